//! A vocabulary of one's own, learnt from the text it will encode, by the `tokenizers` library.

use crate::error::DataError;
use crate::prepare::{Input, each_text};
use henge_files::write_atomic;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::models::wordpiece::{WordPiece, WordPieceTrainer};
use tokenizers::models::{ModelWrapper, TrainerWrapper};
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

/// Texts read ahead of the counting.
const TEXTS_AHEAD: usize = 256;
/// The bytes and the specials must fit.
const SMALLEST: usize = 300;

/// Which kind of vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularyKind {
    /// GPT-2's: words by its pattern, bytes as the alphabet, `<|endoftext|>` as the one special token.
    ByteLevelBpe,
    /// BERT's, cased.
    WordPieceCased,
    /// BERT's, lower-cased and without accents.
    WordPieceUncased,
}

/// What to learn from and how much.
#[derive(Clone, Debug)]
pub struct TrainTokenizerOptions {
    pub inputs: Vec<Input>,
    /// The text field of JSON lines.
    pub key: String,
    pub kind: VocabularyKind,
    /// Entries with the special tokens.
    pub vocabulary_size: usize,
    /// Pairs rarer than this are not merged.
    pub least_count: u64,
    /// The `tokenizer.json` to write.
    pub output: PathBuf,
}

/// Learns a vocabulary and writes it; returns its size, which is smaller than asked for where the text
/// holds too few pairs.
pub fn train_tokenizer(options: &TrainTokenizerOptions) -> Result<usize, DataError> {
    let size = options.vocabulary_size;
    if size < SMALLEST {
        return Err(DataError::BadRequest {
            what: format!("a vocabulary of {size} cannot hold the 256 bytes and the special tokens"),
            remedy: format!("ask for {SMALLEST} or more"),
        });
    }
    let fault = |error: tokenizers::Error| DataError::Tokenizer {
        name: options.output.display().to_string(),
        fault: error.to_string(),
    };
    let (mut tokenizer, mut trainer) = untrained(options).map_err(fault)?;
    let (texts_in, texts) = sync_channel::<String>(TEXTS_AHEAD);
    let (read, trained) = thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let keys = [options.key.clone()];
            each_text(&options.inputs, &keys, &mut |text| texts_in.send(text.to_string()).is_ok())
        });
        let trained = tokenizer.train(&mut trainer, texts.into_iter()).map(|_| ());
        (reader.join().expect("the reader panicked"), trained)
    });
    if read? == 0 {
        return Err(DataError::EmptyInput { inputs: names(&options.inputs) });
    }
    trained.map_err(fault)?;
    save(&tokenizer, &options.output).map_err(fault)??;
    Ok(tokenizer.get_vocab_size(true))
}

fn save(tokenizer: &Tokenizer, path: &Path) -> Result<Result<(), DataError>, tokenizers::Error> {
    let text = tokenizer.to_string(true)?;
    Ok(write_atomic(path, |file| file.write_all(text.as_bytes())).map_err(DataError::from))
}

fn names(inputs: &[Input]) -> String {
    inputs.iter().map(|input| input.path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn untrained(options: &TrainTokenizerOptions) -> Result<(Tokenizer, TrainerWrapper), tokenizers::Error> {
    match options.kind {
        VocabularyKind::ByteLevelBpe => Ok(untrained_bpe(options)),
        VocabularyKind::WordPieceCased => {
            untrained_word_piece(options, BertNormalizer::new(true, true, Some(false), false))
        }
        VocabularyKind::WordPieceUncased => untrained_word_piece(options, BertNormalizer::default()),
    }
}

fn untrained_bpe(options: &TrainTokenizerOptions) -> (Tokenizer, TrainerWrapper) {
    let byte_level = ByteLevel::new(false, true, true);
    let mut tokenizer = Tokenizer::new(ModelWrapper::BPE(BPE::default()));
    tokenizer.with_pre_tokenizer(Some(byte_level)).with_decoder(Some(byte_level)).with_post_processor(Some(byte_level));
    let trainer = BpeTrainer::builder()
        .vocab_size(options.vocabulary_size)
        .min_frequency(options.least_count)
        .special_tokens(specials(&["<|endoftext|>"]))
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .show_progress(false)
        .build();
    (tokenizer, TrainerWrapper::BpeTrainer(trainer))
}

fn untrained_word_piece(
    options: &TrainTokenizerOptions,
    normalizer: BertNormalizer,
) -> Result<(Tokenizer, TrainerWrapper), tokenizers::Error> {
    let model = WordPiece::builder().unk_token("[UNK]".into()).build()?;
    let mut tokenizer = Tokenizer::new(ModelWrapper::WordPiece(model));
    tokenizer
        .with_normalizer(Some(normalizer))
        .with_pre_tokenizer(Some(BertPreTokenizer))
        .with_decoder(Some(tokenizers::decoders::wordpiece::WordPiece::default()));
    let trainer = WordPieceTrainer::builder()
        .vocab_size(options.vocabulary_size)
        .min_frequency(options.least_count)
        .special_tokens(specials(&["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
        .show_progress(false)
        .build();
    Ok((tokenizer, TrainerWrapper::WordPieceTrainer(trainer)))
}

fn specials(names: &[&str]) -> Vec<AddedToken> {
    names.iter().map(|name| AddedToken::from(*name, true)).collect()
}
