//! Writing an indexed corpus in constant memory.
//!
//! Tokens stream into `PREFIX.bin.tmp`, lengths and document starts into spool files of their own,
//! because the index holds its counts in front and its tables one after another. Pointers are never
//! stored before the end: they are the running sum of the lengths. Lists in memory, as other writers
//! keep, take 16 bytes a sequence and have run machines out of memory on corpora of many short ones.

use super::beside;
use super::layout::IndexLayout;
use super::token_type::TokenType;
use crate::error::DataError;
use crate::spool::Spool;
use henge_files::{AtomicFile, FilesError, Operation, WithPath, sync_folder};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// How far a corpus has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WriterState {
    pub tokens: u64,
    pub sequences: u64,
    pub documents: u64,
    /// Largest token id so far.
    pub largest_id: u32,
    /// Tokens of the sequence that is not ended yet.
    pub open_tokens: u64,
}

/// A corpus being written; it appears under its name at [`IndexedWriter::finish`] and not before.
#[derive(Debug)]
pub struct IndexedWriter {
    prefix: PathBuf,
    token_type: TokenType,
    state: WriterState,
    bin: Spool,
    lengths: Spool,
    documents: Spool,
    modes: Option<Spool>,
    bytes: Vec<u8>,
}

impl IndexedWriter {
    /// Starts the corpus `prefix`; its folder must exist.
    pub fn create(prefix: &Path, token_type: TokenType) -> Result<Self, DataError> {
        Self::resume(prefix, token_type, WriterState::default())
    }

    /// Goes on from `state`, cutting off what was written after it.
    ///
    /// # Errors
    /// When a spool file is shorter than `state` says.
    pub fn resume(prefix: &Path, token_type: TokenType, state: WriterState) -> Result<Self, DataError> {
        let width = token_type.width() as u64;
        Ok(IndexedWriter {
            prefix: prefix.to_path_buf(),
            token_type,
            state,
            bin: Spool::open(&beside(prefix, ".bin.tmp"), state.tokens * width)?,
            lengths: Spool::open(&beside(prefix, ".lengths.tmp"), state.sequences * 4)?,
            documents: Spool::open(&beside(prefix, ".documents.tmp"), state.documents * 8)?,
            modes: None,
            bytes: Vec::new(),
        })
    }

    /// As [`IndexedWriter::create`] for a corpus in which each sequence has a mode.
    pub fn create_with_modes(prefix: &Path, token_type: TokenType) -> Result<Self, DataError> {
        let mut writer = Self::create(prefix, token_type)?;
        writer.modes = Some(Spool::open(&beside(prefix, ".modes.tmp"), 0)?);
        Ok(writer)
    }

    /// What has been written so far.
    pub fn state(&self) -> WriterState {
        self.state
    }

    /// Adds tokens to the sequence under way.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), DataError> {
        let Some(&largest) = ids.iter().max() else { return Ok(()) };
        if largest > self.token_type.largest_id() {
            let (path, dtype) = (beside(&self.prefix, ".bin"), self.token_type.name());
            return Err(DataError::IdTooWide { path, id: largest, dtype });
        }
        self.bytes.clear();
        self.token_type.encode(ids, &mut self.bytes);
        self.bin.append(&self.bytes)?;
        self.state.largest_id = self.state.largest_id.max(largest);
        self.state.tokens += ids.len() as u64;
        self.state.open_tokens += ids.len() as u64;
        Ok(())
    }

    /// Ends the sequence under way, with mode 0 where the corpus has modes.
    pub fn end_sequence(&mut self) -> Result<(), DataError> {
        self.end_sequence_with_mode(0)
    }

    /// Ends the sequence under way.
    pub fn end_sequence_with_mode(&mut self, mode: i8) -> Result<(), DataError> {
        let tokens = self.state.open_tokens;
        let length =
            i32::try_from(tokens).map_err(|_| DataError::SequenceTooLong { document: self.state.documents, tokens })?;
        self.lengths.append(&length.to_le_bytes())?;
        if let Some(modes) = &mut self.modes {
            modes.append(&mode.to_le_bytes())?;
        }
        self.state.sequences += 1;
        self.state.open_tokens = 0;
        Ok(())
    }

    /// Ends the document under way: the next sequence begins another.
    ///
    /// # Panics
    /// When a sequence is still open.
    pub fn end_document(&mut self) -> Result<(), DataError> {
        assert_eq!(self.state.open_tokens, 0, "a document ends inside a sequence");
        // The table holds where each document ends, which is where the next begins.
        self.documents.append(&self.state.sequences.to_le_bytes())?;
        self.state.documents += 1;
        Ok(())
    }

    /// Flushes everything to the device, so that [`IndexedWriter::resume`] from this state will work.
    pub fn sync(&mut self) -> Result<WriterState, DataError> {
        for spool in [&mut self.bin, &mut self.lengths, &mut self.documents].into_iter().chain(&mut self.modes) {
            spool.sync()?;
        }
        Ok(self.state)
    }

    /// Leaves the unfinished files on disk when dropped, for [`IndexedWriter::resume`].
    pub fn keep(&mut self) {
        for spool in [&mut self.bin, &mut self.lengths, &mut self.documents].into_iter().chain(&mut self.modes) {
            spool.keep();
        }
    }

    /// Writes the index, gives both files their names and returns what they hold.
    ///
    /// A corpus of the same name is replaced. Its index goes first, so that a kill in between leaves a
    /// `.bin` without index, which no reader takes for a corpus.
    pub fn finish(mut self) -> Result<WriterState, DataError> {
        assert_eq!(self.state.open_tokens, 0, "the corpus ends inside a sequence");
        self.sync()?;
        let (bin_path, idx_path) = (beside(&self.prefix, ".bin"), beside(&self.prefix, ".idx"));
        let index = self.write_index(&idx_path)?;
        if let Err(source) = fs::remove_file(&idx_path)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(FilesError::new(&idx_path, Operation::Remove, source).into());
        }
        self.bin.rename(&bin_path)?;
        index.commit()?;
        let folder = self.prefix.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        sync_folder(folder)?;
        Ok(self.state)
    }

    fn write_index(&self, path: &Path) -> Result<AtomicFile, DataError> {
        let mut index = AtomicFile::create(path)?;
        let WriterState { sequences, documents, .. } = self.state;
        let has_modes = self.modes.is_some();
        let layout = IndexLayout { token_type: self.token_type, sequences, documents, has_modes };
        index.write_all(&layout.header()).with_path(path, Operation::Write)?;
        copy(&self.lengths, &mut index, path)?;
        self.write_pointers(&mut index, path)?;
        index.write_all(&0u64.to_le_bytes()).with_path(path, Operation::Write)?;
        copy(&self.documents, &mut index, path)?;
        if let Some(modes) = &self.modes {
            copy(modes, &mut index, path)?;
        }
        Ok(index)
    }

    fn write_pointers(&self, index: &mut AtomicFile, path: &Path) -> Result<(), DataError> {
        let mut lengths = BufReader::with_capacity(1 << 18, self.lengths.reader()?);
        let (mut word, mut pointer) = ([0u8; 4], 0u64);
        for _ in 0..self.state.sequences {
            lengths.read_exact(&mut word).with_path(self.lengths.path(), Operation::Read)?;
            index.write_all(&pointer.to_le_bytes()).with_path(path, Operation::Write)?;
            pointer += u64::from(u32::from_le_bytes(word)) * self.token_type.width() as u64;
        }
        Ok(())
    }
}

fn copy(spool: &Spool, index: &mut AtomicFile, path: &Path) -> Result<(), DataError> {
    std::io::copy(&mut spool.reader()?, index).with_path(path, Operation::Write)?;
    Ok(())
}
