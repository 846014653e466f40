//! `henge generate`: a model goes on with prompts.

use crate::asking::{Asked, ModelArgs};
use crate::failure::{Failure, print, print_json};
use henge_data::tokenizer::Tokenizer;
use henge_eval::{Completion, Draw, EvalError, Finish, Generation, Listener, Sampling, Silent, generate};
use henge_spec::Model;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// A text to go on with; may be given several times
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// A prompt as token ids, as in 464,3290; may be given several times
    #[arg(long, value_name = "IDS")]
    prompt_ids: Vec<String>,
    /// A file of prompts, one a line; in a .jsonl file each line is an object with `prompt`
    /// (a text) or `tokens` (ids)
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// Most tokens of a continuation
    #[arg(long, default_value_t = 64, value_name = "N")]
    max_tokens: usize,
    /// Draw from the softmax of the logits over this; 0 takes the most likely token
    /// [default: 0, or 1 with --top-k or --top-p]
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// Draw among the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Draw among the most likely tokens that make up this share of the probability
    #[arg(long, value_name = "P")]
    top_p: Option<f64>,
    /// Seed of the draws
    #[arg(long, default_value_t = 1234)]
    seed: u64,
    /// End a continuation before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on past the end-of-document token
    #[arg(long)]
    ignore_end: bool,
    /// Prompts that run together
    #[arg(long, default_value_t = 8, value_name = "N")]
    batch: usize,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A prompt as a person gave it.
struct Prompt {
    text: Option<String>,
    tokens: Vec<u32>,
    /// The option, or file and line.
    place: String,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let asked = args.model.open()?;
    let tokenizer = args.tokenizer(&asked)?.map(Arc::new);
    let prompts = args.read_prompts(tokenizer.as_deref())?;
    prompts.iter().try_for_each(|prompt| prompt.check(asked.loaded.model()))?;
    let listener: Arc<dyn Listener> = match (args.json, prompts.len()) {
        (false, 1) => Arc::new(Stream),
        _ => Arc::new(Silent),
    };
    if let (false, [Prompt { text: Some(text), .. }]) = (args.json, &prompts[..]) {
        print(text)?;
    }
    let job = Generation {
        loaded: Arc::clone(&asked.loaded),
        layout: asked.layout,
        prompts: prompts.iter().map(|prompt| prompt.tokens.clone()).collect(),
        batch: args.batch,
        sampling: args.sampling(),
        max_tokens: args.max_tokens,
        end: tokenizer.as_ref().and_then(|t| t.end_of_document()).filter(|_| !args.ignore_end),
        stops: args.stop.iter().filter(|stop| !stop.is_empty()).cloned().collect(),
        tokenizer,
        listener,
    };
    let begin = Instant::now();
    let completions = generate(job, asked.engine(), asked.device())?;
    let seconds = begin.elapsed().as_secs_f64();
    if args.json {
        return print_json(&args.document(&asked, &prompts, &completions, seconds));
    }
    show(&prompts, &completions)?;
    let tokens: usize = completions.iter().map(|completion| completion.tokens.len()).sum();
    eprintln!("{tokens} tokens in {seconds:.2} s, the reading of the weights included");
    Ok(())
}

impl Prompt {
    /// Names the prompt as a person wrote it; the engine knows its number only.
    fn check(&self, model: &Model) -> Result<(), EvalError> {
        let (place, tokens, limit) = (self.place.clone(), self.tokens.len(), model.seq_len);
        if tokens > limit {
            return Err(EvalError::TooLong { place, tokens, limit, fix: "shorten it, or keep its end only" });
        }
        match self.tokens.iter().find(|&&token| token as usize >= model.vocab_size) {
            Some(&token) => Err(EvalError::TokenBeyondVocabulary { place, token, vocab_size: model.vocab_size }),
            None => Ok(()),
        }
    }
}

impl Args {
    /// None where every prompt is ids and no tokenizer is given or found.
    fn tokenizer(&self, asked: &Asked) -> Result<Option<Tokenizer>, Failure> {
        let wanted = self.model.tokenizer.is_some() || !self.prompt.is_empty() || !self.stop.is_empty();
        if wanted || asked.loaded.has_tokenizer() {
            return Ok(Some(self.model.tokenizer(asked)?));
        }
        Ok(None)
    }

    fn sampling(&self) -> Sampling {
        let is_cut = self.top_k.is_some() || self.top_p.is_some();
        let temperature = self.temperature.unwrap_or(if is_cut { 1.0 } else { 0.0 });
        if temperature == 0.0 {
            return Sampling::Greedy;
        }
        Sampling::Random(Draw { temperature, top_k: self.top_k, top_p: self.top_p, seed: self.seed })
    }

    fn read_prompts(&self, tokenizer: Option<&Tokenizer>) -> Result<Vec<Prompt>, Failure> {
        let mut prompts = Vec::new();
        for text in &self.prompt {
            prompts.push(encoded(text, tokenizer, "--prompt")?);
        }
        for ids in &self.prompt_ids {
            prompts.push(Prompt { text: None, tokens: parse_ids(ids)?, place: "--prompt-ids".to_string() });
        }
        if let Some(file) = &self.prompts {
            prompts.extend(read_file(file, tokenizer)?);
        }
        if prompts.is_empty() {
            return Err(Failure::request("there is nothing to go on with; give --prompt, --prompt-ids or --prompts"));
        }
        Ok(prompts)
    }

    fn document(&self, asked: &Asked, prompts: &[Prompt], completions: &[Completion], seconds: f64) -> Value {
        let one = |(prompt, completion): (&Prompt, &Completion)| {
            json!({
                "prompt": prompt.text,
                "prompt_tokens": prompt.tokens,
                "text": completion.text,
                "tokens": completion.tokens,
                "finish": completion.finish,
            })
        };
        json!({
            "checkpoint": asked.loaded.path(),
            "layout": asked.layout_text(),
            "precision": asked.precision().to_string(),
            "sampling": match self.sampling() {
                Sampling::Greedy => json!("greedy"),
                Sampling::Random(draw) => json!({
                    "temperature": draw.temperature, "top_k": draw.top_k, "top_p": draw.top_p, "seed": draw.seed,
                }),
            },
            "seconds": seconds,
            "completions": prompts.iter().zip(completions).map(one).collect::<Vec<_>>(),
        })
    }
}

/// An empty text begins with the end-of-document token, behind which documents begin.
fn encoded(text: &str, tokenizer: Option<&Tokenizer>, place: &str) -> Result<Prompt, Failure> {
    let words = "a prompt in words needs a tokenizer; give --tokenizer, or the prompt as ids";
    let tokenizer = tokenizer.ok_or_else(|| Failure::request(format!("{place}: {words}")))?;
    let mut tokens = Vec::new();
    tokenizer.encoder().encode(text, &mut tokens)?;
    if tokens.is_empty() {
        tokens.extend(tokenizer.end_of_document());
    }
    Ok(Prompt { text: Some(text.to_string()), tokens, place: place.to_string() })
}

fn parse_ids(text: &str) -> Result<Vec<u32>, Failure> {
    let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
    let ids =
        parts.map(|part| part.parse().map_err(|_| Failure::request(format!("--prompt-ids {text}: `{part}` is no id"))));
    ids.collect()
}

fn read_file(file: &Path, tokenizer: Option<&Tokenizer>) -> Result<Vec<Prompt>, Failure> {
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::request(format!("{}: {error}", file.display())))?;
    let is_json = file.extension().is_some_and(|extension| extension == "jsonl");
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let prompts = lines.map(|(index, line)| {
        let place = format!("{}:{}", file.display(), index + 1);
        if is_json { from_json(line, tokenizer, &place) } else { encoded(line, tokenizer, &place) }
    });
    prompts.collect()
}

fn from_json(line: &str, tokenizer: Option<&Tokenizer>, place: &str) -> Result<Prompt, Failure> {
    let wrong = |problem: String| Failure::request(format!("{place}: {problem}"));
    let value: Value = serde_json::from_str(line).map_err(|error| wrong(format!("not JSON: {error}")))?;
    if let Some(text) = value["prompt"].as_str() {
        return encoded(text, tokenizer, place);
    }
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let tokens = value["tokens"].as_array().and_then(|list| list.iter().map(id).collect());
    let tokens = tokens.ok_or_else(|| wrong("an object needs `prompt` (a text) or `tokens` (a list of ids)".into()))?;
    Ok(Prompt { text: None, tokens, place: place.to_string() })
}

/// Text to the terminal as it comes. A reader that has gone away is no error.
struct Stream;

impl Listener for Stream {
    fn grown(&self, _prompt: usize, text: &str) {
        // What cannot be written now cannot be written later either; the run goes on.
        let _ = print(text);
        let _ = std::io::stdout().flush();
    }
}

fn show(prompts: &[Prompt], completions: &[Completion]) -> Result<(), Failure> {
    let mut out = String::new();
    for (prompt, completion) in prompts.iter().zip(completions) {
        let is_streamed = prompts.len() == 1;
        if !is_streamed {
            out += &format!("--- prompt {}\n{}", completion.prompt + 1, prompt.text.as_deref().unwrap_or_default());
        }
        match &completion.text {
            None => out += &completion.tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
            Some(text) if !is_streamed => out += text,
            Some(_) => {}
        }
        out += "\n";
        if completion.finish == Finish::ModelLength {
            eprintln!("prompt {}: the model has no more positions", completion.prompt + 1);
        }
    }
    print(&out)
}
