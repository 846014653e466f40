//! What ends an evaluation or a generation.

use henge_checkpoint::CheckpointError;
use henge_comm::CommError;
use henge_data::DataError;
use henge_files::FilesError;
use std::path::PathBuf;
use thiserror::Error;

/// Why there is no result. Variants that are a request's fault say so by
/// [`EvalError::is_request`].
#[derive(Debug, Error)]
pub enum EvalError {
    /// A rank failed or waited too long.
    #[error(transparent)]
    Comm(#[from] CommError),
    /// A rank panicked or failed.
    #[error("rank {rank} {words}")]
    Rank {
        /// The first rank that failed.
        rank: usize,
        /// Its words.
        words: String,
    },
    /// Weights that cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A tokenizer that cannot be loaded or used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A file that cannot be read.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// An encoder asked for what follows a text.
    #[error(
        "{}: it is a bert, an encoder, which sees both sides of a token and predicts none that follow; \
         give a gpt or a llama, or ask it for the vector of a text (henge embed)",
        path.display()
    )]
    Encoder {
        /// Where the weights are.
        path: PathBuf,
    },
    /// A decoder asked for the vector of a text.
    #[error("{}: it is a {arch}, a decoder, whose tokens do not see the whole text; give a bert", path.display())]
    Decoder {
        /// Where the weights are.
        path: PathBuf,
        /// Its family.
        arch: String,
    },
    /// An encoder without the head of a task.
    #[error("{}: it has no fine-tuned head; train one with `henge finetune` and give its run's folder", path.display())]
    NoTask {
        /// Where the weights are.
        path: PathBuf,
    },
    /// A layout that the model cannot be cut into.
    #[error("layout t={tensor},p={pipeline},d={data}: {problem}")]
    Layout {
        /// Tensor ranks.
        tensor: usize,
        /// Pipeline ranks.
        pipeline: usize,
        /// Replicas.
        data: usize,
        /// What does not fit, and what would.
        problem: String,
    },
    /// No tokenizer was given and none was found.
    #[error("{}: no tokenizer is beside it or recorded in it; give --tokenizer (gpt2, a tokenizer.json or a folder)", path.display())]
    NoTokenizer {
        /// Where the weights are.
        path: PathBuf,
    },
    /// A tokenizer with more tokens than the model.
    #[error(
        "tokenizer {name} has ids up to {}, but {} has a vocabulary of {vocab_size}: they do not belong together; \
         give the tokenizer that the model was trained with (--tokenizer)",
        size - 1, path.display()
    )]
    ForeignTokenizer {
        /// The tokenizer.
        name: String,
        /// One more than its largest id.
        size: usize,
        /// Where the weights are.
        path: PathBuf,
        /// Entries of the model's table.
        vocab_size: usize,
    },
    /// A tokenizer that is not the one the weights come with.
    #[error(
        "tokenizer {name} gives other ids than the one that {} comes with: they do not belong together; \
         leave --tokenizer out",
        path.display()
    )]
    AnotherTokenizer {
        /// The tokenizer.
        name: String,
        /// Where the weights are.
        path: PathBuf,
    },
    /// An id that the model has no row for.
    #[error("{place}: token {token} is not below the model's vocabulary of {vocab_size}")]
    TokenBeyondVocabulary {
        /// Which prompt or example.
        place: String,
        /// The token.
        token: u32,
        /// Entries of the model's table.
        vocab_size: usize,
    },
    /// A text that the model has no positions for.
    #[error("{place}: {tokens} tokens, but the model sees at most {limit}; {fix}")]
    TooLong {
        /// Which prompt or example.
        place: String,
        /// Its length.
        tokens: usize,
        /// The longest that fits.
        limit: usize,
        /// What to do.
        fix: &'static str,
    },
    /// A text without anything to begin from or to score.
    #[error("{place}: {problem}")]
    Empty {
        /// Which prompt or file.
        place: String,
        /// What is missing, and what to do.
        problem: String,
    },
    /// A line of a task file that is not an example.
    #[error("{}:{line}: {problem}", file.display())]
    Task {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// A setting without meaning.
    #[error("{setting} = {value}: {expected}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        expected: &'static str,
    },
    /// Logits that are no numbers.
    #[error(
        "the model's logits at position {position} of prompt {prompt} are not finite; its weights are damaged or it diverged"
    )]
    NonFinite {
        /// Index of the prompt, from 0.
        prompt: usize,
        /// Position in the sequence.
        position: usize,
    },
}

impl EvalError {
    /// Whether the request was wrong, as against the run having failed.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Comm(_) | Self::Rank { .. } | Self::NonFinite { .. } => false,
            Self::Checkpoint(error) => !error.is_machine(),
            Self::Data(error) => !error.is_machine_failure(),
            _ => true,
        }
    }

    /// A setting that counts things is not 0.
    pub(crate) fn refuse_zero(setting: &'static str, value: usize) -> Result<(), Self> {
        if value > 0 {
            return Ok(());
        }
        Err(Self::Setting { setting, value: "0".to_string(), expected: "it must be 1 or more" })
    }

    /// Every token of `place` is below the model's vocabulary.
    pub(crate) fn refuse_foreign(tokens: &[u32], vocab_size: usize, place: String) -> Result<(), Self> {
        match tokens.iter().find(|&&token| token as usize >= vocab_size) {
            Some(&token) => Err(Self::TokenBeyondVocabulary { place, token, vocab_size }),
            None => Ok(()),
        }
    }
}
