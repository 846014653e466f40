//! A tokenizer as one of the `tokenizers` library, to be measured against it.

use super::byte_level::ByteLevel;
use super::load::byte_to_char;
use super::{Kind, Tokenizer};
use crate::error::DataError;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel as LibraryByteLevel;

impl Tokenizer {
    /// The library's tokenizer of the same ids; `None` where the library has no such model.
    pub(crate) fn to_library(&self) -> Result<Option<tokenizers::Tokenizer>, DataError> {
        match &self.kind {
            Kind::ByteLevel(model) => byte_level(model).map(Some).map_err(|error| self.fault(error.to_string())),
            Kind::ByteLevelWithAdded { library, .. } | Kind::Library(library) => Ok(Some((**library).clone())),
            _ => Ok(None),
        }
    }
}

fn byte_level(model: &ByteLevel) -> tokenizers::Result<tokenizers::Tokenizer> {
    let spelled = |id: u32| model.bytes(id).iter().map(|&byte| byte_to_char(byte)).collect::<String>();
    let ids = (0..model.size() as u32).filter(|&id| !model.bytes(id).is_empty());
    let vocabulary: Vocab = ids.map(|id| (spelled(id), id)).collect();
    let merges = model.merges().into_iter().map(|(left, right)| (spelled(left), spelled(right))).collect();
    let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).build()?;
    let mut library = tokenizers::Tokenizer::new(bpe);
    library.with_pre_tokenizer(Some(LibraryByteLevel::new(false, true, true)));
    Ok(library)
}
