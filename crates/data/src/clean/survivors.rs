//! Documents that passed the first pass, in files without names: the objects in one, the hashes of each
//! band in one of its own. The system removes them however the process ends.

use super::filter::Survivor;
use crate::error::DataError;
use henge_files::{Operation, WithPath};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Input (4 bytes) and line (8 bytes) in front of each object.
const HEAD: usize = 12;

/// The files while they grow.
pub(super) struct Survivors {
    folder: PathBuf,
    documents: BufWriter<File>,
    bands: Vec<BufWriter<File>>,
    /// Where each document begins, and where the last one ends.
    places: Vec<u64>,
}

impl Survivors {
    pub(super) fn create(folder: &Path, bands: usize) -> Result<Self, DataError> {
        let create = || tempfile::tempfile_in(folder).with_path(folder, Operation::Create).map(BufWriter::new);
        let bands = (0..bands).map(|_| create()).collect::<Result<_, _>>()?;
        Ok(Survivors { folder: folder.to_path_buf(), documents: create()?, bands, places: vec![0] })
    }

    pub(super) fn add(&mut self, input: u32, kept: &[Survivor]) -> Result<(), DataError> {
        for survivor in kept {
            self.append(input, survivor).with_path(&self.folder, Operation::Write)?;
        }
        if self.places.len() > u32::MAX as usize {
            return Err(DataError::BadRequest {
                what: "more than 4294967294 documents passed the filters".into(),
                remedy: "clean the corpus in parts".into(),
            });
        }
        Ok(())
    }

    fn append(&mut self, input: u32, survivor: &Survivor) -> std::io::Result<()> {
        self.documents.write_all(&input.to_le_bytes())?;
        self.documents.write_all(&survivor.line.to_le_bytes())?;
        self.documents.write_all(&survivor.json)?;
        let start = self.places.last().copied().unwrap_or(0);
        self.places.push(start + (HEAD + survivor.json.len()) as u64);
        for (file, hash) in self.bands.iter_mut().zip(&survivor.bands) {
            file.write_all(&hash.to_le_bytes())?;
        }
        Ok(())
    }

    /// Ends the writing.
    pub(super) fn finish(self) -> Result<Documents, DataError> {
        let close = |file: BufWriter<File>| {
            file.into_inner().map_err(|error| error.into_error()).with_path(&self.folder, Operation::Write)
        };
        let bands = self.bands.into_iter().map(close).collect::<Result<_, _>>()?;
        Ok(Documents { documents: close(self.documents)?, bands, places: self.places, folder: self.folder })
    }
}

/// The files to read from.
pub(super) struct Documents {
    folder: PathBuf,
    documents: File,
    bands: Vec<File>,
    places: Vec<u64>,
}

/// One of them.
pub(super) struct Document {
    pub(super) input: usize,
    pub(super) line: u64,
    pub(super) json: String,
}

impl Documents {
    pub(super) fn len(&self) -> usize {
        self.places.len() - 1
    }

    pub(super) fn read(&self, document: usize) -> Result<Document, DataError> {
        let (start, end) = (self.places[document], self.places[document + 1]);
        let mut bytes = vec![0; (end - start) as usize];
        self.documents.read_exact_at(&mut bytes, start).with_path(&self.folder, Operation::Read)?;
        let json = String::from_utf8(bytes.split_off(HEAD)).expect("only text was written");
        let (input, line) = bytes.split_at(4);
        Ok(Document {
            input: u32::from_le_bytes(input.try_into().expect("four bytes")) as usize,
            line: u64::from_le_bytes(line.try_into().expect("eight bytes")),
            json,
        })
    }

    /// The number of bands.
    pub(super) fn bands(&self) -> usize {
        self.bands.len()
    }

    /// Hash and number of each document, by hash, then number.
    pub(super) fn sorted_band(&self, band: usize) -> Result<Vec<(u64, u32)>, DataError> {
        let mut file = &self.bands[band];
        file.seek(SeekFrom::Start(0)).with_path(&self.folder, Operation::Read)?;
        let mut reader = std::io::BufReader::with_capacity(1 << 18, file);
        let mut hashes = Vec::with_capacity(self.len());
        let mut bytes = [0; 8];
        for document in 0..self.len() as u32 {
            reader.read_exact(&mut bytes).with_path(&self.folder, Operation::Read)?;
            hashes.push((u64::from_le_bytes(bytes), document));
        }
        hashes.sort_unstable();
        Ok(hashes)
    }
}
