//! Opens an encoder's data: corpora prepared by sentences, with the WordPiece vocabulary that
//! masking needs.

use super::order::training_part;
use super::sources::{checked, validation_batch};
use crate::failure::Failure;
use henge_data::CorpusPart;
use henge_data::bert::{BertSamples, BertVocabulary};
use henge_data::order::Split;
use henge_data::tokenizer::Tokenizer;
use henge_spec::Run;
use henge_train::{Frame, PairSource, PairValidationSource, TrainError};

/// The training corpora by weight.
pub fn training(run: &Run) -> Result<PairSource, Failure> {
    let vocabulary = vocabulary(run)?;
    let split = Split::new(run.data.split)?;
    let mut corpora = Vec::new();
    for (prefix, weight) in &run.data.train {
        let part = training_part(run, &checked(run, prefix, "data.train")?, &split)?;
        corpora.push((samples(run, &part, &vocabulary)?, *weight));
    }
    Ok(PairSource::new(corpora, run.train.batching, frame(run, &vocabulary))?)
}

/// One validation set.
pub fn validation_set(run: &Run, part: &CorpusPart) -> Result<PairValidationSource, Failure> {
    let vocabulary = vocabulary(run)?;
    let samples = samples(run, part, &vocabulary)?;
    Ok(PairValidationSource { samples, global_batch: validation_batch(run), frame: frame(run, &vocabulary) })
}

fn samples(run: &Run, part: &CorpusPart, vocabulary: &BertVocabulary) -> Result<BertSamples, Failure> {
    Ok(BertSamples::new(part, vocabulary.clone(), run.model.seq_len as u64, run.seed)?)
}

fn vocabulary(run: &Run) -> Result<BertVocabulary, Failure> {
    let name = run.data.tokenizer.as_ref().expect("a checked run of an encoder names its tokenizer");
    let vocabulary = BertVocabulary::of(&Tokenizer::load(name)?)?;
    // Masking draws from the whole vocabulary, whatever the corpus uses of it.
    let (ids, vocab_size) = (vocabulary.continues.len(), run.model.vocab_size);
    if ids > vocab_size {
        let (origin, place) = (run.place("data.tokenizer"), format!("the last of {name}"));
        return Err(TrainError::TokenBeyondVocabulary { origin, token: ids as u64 - 1, place, vocab_size }.into());
    }
    Ok(vocabulary)
}

fn frame(run: &Run, vocabulary: &BertVocabulary) -> Frame {
    Frame { seq_len: run.model.seq_len, pad: vocabulary.pad }
}
