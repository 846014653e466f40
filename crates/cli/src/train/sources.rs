//! Opens a run's data.

use super::order;
use super::pairs;
use crate::failure::Failure;
use henge_data::order::{Part, SampleOrder, Split};
use henge_data::tokenizer::Tokenizer;
use henge_data::{Corpus, CorpusPart, DataError};
use henge_spec::{Arch, Run};
use henge_train::{CorpusSource, GivenBatches, Source, TrainError, ValidationSource};
use std::path::Path;
use std::sync::Arc;

type Sets = Vec<(String, Arc<dyn Source>)>;
type Sources = (Arc<dyn Source>, Sets);

/// Training and validation sequences.
pub fn open(run: &Run) -> Result<Sources, Failure> {
    let train: Arc<dyn Source> = match &run.data.batches {
        Some(file) => Arc::new(given(run, file)?),
        None if run.model.arch == Arch::Bert => Arc::new(pairs::training(run)?),
        None => Arc::new(corpora(run)?),
    };
    Ok((train, validation(run)?))
}

fn given(run: &Run, file: &str) -> Result<GivenBatches, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| Failure::request(format!("{file}: {error}")))?;
    let given = GivenBatches::parse(&text, file, &run.model)?;
    given.sizes().iter().try_for_each(|&size| run.check_batch(size))?;
    let (steps, batches) = (run.train.steps, given.sizes().len());
    if steps > batches as u64 {
        return Err(TrainError::TooFewBatches { file: file.to_string(), steps, batches }.into());
    }
    Ok(given)
}

fn corpora(run: &Run) -> Result<CorpusSource, Failure> {
    let named_in = |place: usize| if place < run.data.train.len() { "data.train" } else { "data.stages" };
    let prefixes = order::prefixes(run).into_iter().enumerate();
    let corpora =
        prefixes.map(|(place, prefix)| checked(run, prefix, named_in(place))).collect::<Result<Vec<_>, _>>()?;
    Ok(CorpusSource::new(order::of(run, &corpora)?, run.train.batching, run.model.vocab_size))
}

fn validation(run: &Run) -> Result<Sets, Failure> {
    if run.train.eval_every == 0 {
        return Ok(Vec::new());
    }
    let split = Split::new(run.data.split)?;
    let own = run.data.valid.iter().map(|prefix| (prefix.as_str(), None));
    let shared = order::prefixes(run).into_iter().map(|prefix| (prefix, Some(&split)));
    let sets: Vec<_> = if run.data.valid.is_empty() { shared.collect() } else { own.collect() };
    sets.into_iter().map(|(prefix, split)| Ok((prefix.to_string(), validation_set(run, prefix, split)?))).collect()
}

fn validation_set(run: &Run, prefix: &str, split: Option<&Split>) -> Result<Arc<dyn Source>, Failure> {
    let corpus = checked(run, prefix, if split.is_some() { "data.train" } else { "data.valid" })?;
    let part: CorpusPart = match split {
        Some(split) => corpus.part(split, Part::Valid)?,
        None => corpus.whole(Part::Valid),
    };
    if run.model.arch == Arch::Bert {
        return Ok(Arc::new(pairs::validation_set(run, &part)?));
    }
    let order = SampleOrder::sequential(vec![part], run.model.seq_len as u64)?;
    Ok(Arc::new(ValidationSource::new(order, validation_batch(run), run.model.vocab_size)))
}

/// Whole microbatches on every replica; what is too much is not scored.
pub fn validation_batch(run: &Run) -> usize {
    let batching = &run.train.batching;
    batching.global.next_multiple_of(batching.micro * run.layout.data)
}

/// Opens a corpus of `key` and holds its largest token against the model, and its tokenizer
/// against the run's, before any work starts.
pub(super) fn checked(run: &Run, prefix: &str, key: &str) -> Result<Arc<Corpus>, Failure> {
    let corpus = Corpus::open(Path::new(prefix))?;
    if let Some(name) = &run.data.tokenizer {
        corpus.check_tokenizer(&Tokenizer::load(name)?)?;
    }
    let (largest, vocab_size) = (corpus.largest_id()?, run.model.vocab_size);
    if (largest as usize) < vocab_size {
        return Ok(corpus);
    }
    let (origin, place) = (run.place(key), format!("the largest of {prefix}"));
    Err(TrainError::TokenBeyondVocabulary { origin, token: u64::from(largest), place, vocab_size }.into())
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Cancelled => Self::interrupted("stopped; the same command goes on from there"),
            error if error.is_machine_failure() => Self::run(error),
            error => Self::request(error),
        }
    }
}
