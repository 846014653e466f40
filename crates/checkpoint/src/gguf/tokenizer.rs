//! The tokenizer of a GGUF file as a `tokenizer.json`.
//!
//! Two kinds are told: byte-level BPE (`gpt2`), whose merges stand in the file, and
//! SentencePiece's BPE (`llama`), whose merges follow from the scores of its pieces.

use super::reader::Value;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};

type Metadata = BTreeMap<String, Value>;
/// What is wrong and what to do.
type Problem = (String, String);

const NORMAL: i128 = 1;
const UNKNOWN: i128 = 2;
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;

/// What SentencePiece writes for a blank.
const BLANK: &str = "\u{2581}";

/// Words of Llama 3 (`tokenizer.json` of its folder).
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Words of Qwen2: as Llama 3's, digits one by one.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The tokenizer as JSON; `None` where the file has none.
pub(super) fn json(metadata: &Metadata) -> Option<Result<String, Problem>> {
    let kind = text(metadata, "model")?;
    let made = match kind {
        "gpt2" => byte_level(metadata),
        "llama" => sentence_piece(metadata),
        other => Err(unsupported(format!("its tokenizer is of kind `{other}`"))),
    };
    Some(made.map(|json| json.to_string()))
}

fn byte_level(metadata: &Metadata) -> Result<Json, Problem> {
    let tokens = texts(metadata, "tokens")?;
    let byte_level = |regex: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex });
    let words = |pattern: &str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    let sequence = |parts: [Json; 2]| json!({ "type": "Sequence", "pretokenizers": parts });
    let (normalizer, pre, ignore_merges) = match text(metadata, "pre").unwrap_or("absent") {
        "gpt-2" => (Json::Null, byte_level(true), false),
        "smollm" => {
            let digits = json!({ "type": "Digits", "individual_digits": true });
            (Json::Null, sequence([digits, byte_level(true)]), false)
        }
        "llama-bpe" | "llama3" | "llama-v3" => (Json::Null, sequence([words(LLAMA3), byte_level(false)]), true),
        "qwen2" => (json!({ "type": "NFC" }), sequence([words(QWEN2), byte_level(false)]), false),
        other => return Err(unsupported(format!("`tokenizer.ggml.pre` is `{other}`"))),
    };
    let merges: Vec<&str> = texts(metadata, "merges")?;
    let pairs = merges.iter().map(|merge| {
        let pair = merge.split_once(' ').ok_or_else(|| unsupported(format!("`{merge}` is no pair to merge")))?;
        Ok(json!([pair.0, pair.1]))
    });
    let model = json!({
        "type": "BPE",
        "ignore_merges": ignore_merges,
        "vocab": vocabulary(&tokens)?,
        "merges": pairs.collect::<Result<Vec<_>, Problem>>()?,
    });
    // The kinds that keep whole words are also those that begin a text by default.
    let post = template(metadata, &tokens, ignore_merges)?;
    Ok(document(added(metadata, &tokens)?, (normalizer, pre), post, byte_level(true), model))
}

fn sentence_piece(metadata: &Metadata) -> Result<Json, Problem> {
    let tokens = texts(metadata, "tokens")?;
    let blank = json!({ "type": "Replace", "pattern": { "String": " " }, "content": BLANK });
    let prefix = flag(metadata, "add_space_prefix", true);
    let prepend = prefix.then(|| json!({ "type": "Prepend", "prepend": BLANK }));
    let normalizer =
        json!({ "type": "Sequence", "normalizers": prepend.into_iter().chain([blank]).collect::<Vec<_>>() });
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": BLANK }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if prefix {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    let unknown = token(metadata, &tokens, "unknown_token_id")?.or(tokens.first().copied());
    let model = json!({
        "type": "BPE",
        "unk_token": unknown,
        "fuse_unk": true,
        "byte_fallback": true,
        "vocab": vocabulary(&tokens)?,
        "merges": merges_of_scores(metadata, &tokens)?,
    });
    let decoder = json!({ "type": "Sequence", "decoders": decoders });
    let post = template(metadata, &tokens, true)?;
    Ok(document(added(metadata, &tokens)?, (normalizer, Json::Null), post, decoder, model))
}

fn document(added: Vec<Json>, (normalizer, pre): (Json, Json), post: Json, decoder: Json, model: Json) -> Json {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": decoder,
        "model": model,
    })
}

/// Every way to split a piece into two others is a merge; the better the piece's score, the
/// earlier, and of one piece's ways the one whose parts score best, as the transformers
/// library derives them.
fn merges_of_scores(metadata: &Metadata, tokens: &[&str]) -> Result<Vec<Json>, Problem> {
    let scores = scores(metadata, tokens.len())?;
    let kinds = kinds(metadata, tokens.len())?;
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (*token, id)).collect();
    let mut merges: Vec<(usize, usize, usize)> = Vec::new();
    for (id, piece) in tokens.iter().enumerate().filter(|(id, _)| kinds[*id] == NORMAL) {
        let cuts = piece.char_indices().skip(1).map(|(cut, _)| piece.split_at(cut));
        let start = merges.len();
        merges.extend(cuts.filter_map(|(left, right)| Some((id, *ids.get(left)?, *ids.get(right)?))));
        let key = |&(_, left, right): &(usize, usize, usize)| (scores[left], scores[right]);
        merges[start..].sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal));
    }
    merges.sort_by(|a, b| scores[b.0].total_cmp(&scores[a.0]));
    Ok(merges.into_iter().map(|(_, left, right)| json!([tokens[left], tokens[right]])).collect())
}

/// Tokens that are found in text as they stand.
fn added(metadata: &Metadata, tokens: &[&str]) -> Result<Vec<Json>, Problem> {
    let kinds = kinds(metadata, tokens.len())?;
    let all = kinds.iter().zip(tokens).enumerate();
    let stands = all.filter(|(_, (kind, _))| [UNKNOWN, CONTROL, USER_DEFINED].contains(kind));
    let entry = |(id, (&kind, token)): (usize, (&i128, &&str))| {
        json!({
            "id": id,
            "content": token,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": kind != USER_DEFINED,
        })
    };
    Ok(stands.map(entry).collect())
}

/// Puts the token that begins a text before it, where the file asks for one.
fn template(metadata: &Metadata, tokens: &[&str], default: bool) -> Result<Json, Problem> {
    let begin = token(metadata, tokens, "bos_token_id")?.filter(|_| flag(metadata, "add_bos_token", default));
    let Some(begin) = begin else { return Ok(Json::Null) };
    let id = tokens.iter().position(|token| *token == begin);
    let special = json!({ "SpecialToken": { "id": begin, "type_id": 0 } });
    let sequence = |name: &str, of: u8| json!({ "Sequence": { "id": name, "type_id": of } });
    Ok(json!({
        "type": "TemplateProcessing",
        "single": [special, sequence("A", 0)],
        "pair": [special, sequence("A", 0), sequence("B", 1)],
        "special_tokens": { begin: { "id": begin, "ids": [id], "tokens": [begin] } },
    }))
}

fn vocabulary(tokens: &[&str]) -> Result<Json, Problem> {
    let vocabulary: serde_json::Map<String, Json> =
        tokens.iter().enumerate().map(|(id, token)| (token.to_string(), id.into())).collect();
    match vocabulary.len() == tokens.len() {
        true => Ok(Json::Object(vocabulary)),
        false => Err(unsupported("its tokenizer has a token twice".to_string())),
    }
}

fn find<'a>(metadata: &'a Metadata, key: &str) -> Option<&'a Value> {
    metadata.get(&format!("tokenizer.ggml.{key}"))
}

fn text<'a>(metadata: &'a Metadata, key: &str) -> Option<&'a str> {
    match find(metadata, key) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    }
}

fn flag(metadata: &Metadata, key: &str, default: bool) -> bool {
    matches!(find(metadata, key).unwrap_or(&Value::Flag(default)), Value::Flag(true))
}

fn texts<'a>(metadata: &'a Metadata, key: &str) -> Result<Vec<&'a str>, Problem> {
    let list = match find(metadata, key) {
        Some(Value::List(list)) => {
            list.iter().map(|v| if let Value::Text(text) = v { Some(text.as_str()) } else { None })
        }
        _ => return Err(missing(key)),
    };
    list.collect::<Option<_>>().ok_or_else(|| missing(key))
}

/// Kinds of the tokens; all are normal where the file does not say.
fn kinds(metadata: &Metadata, tokens: usize) -> Result<Vec<i128>, Problem> {
    let Some(value) = find(metadata, "token_type") else { return Ok(vec![NORMAL; tokens]) };
    let kinds: Option<Vec<i128>> = match value {
        Value::List(list) => list.iter().map(|v| if let Value::Whole(kind) = v { Some(*kind) } else { None }).collect(),
        _ => None,
    };
    kinds.filter(|kinds| kinds.len() == tokens).ok_or_else(|| missing("token_type"))
}

fn scores(metadata: &Metadata, tokens: usize) -> Result<Vec<f64>, Problem> {
    let scores: Option<Vec<f64>> = match find(metadata, "scores") {
        Some(Value::List(list)) => {
            list.iter().map(|v| if let Value::Float(score) = v { Some(*score) } else { None }).collect()
        }
        _ => None,
    };
    scores.filter(|scores| scores.len() == tokens).ok_or_else(|| missing("scores"))
}

/// The token whose id stands under a key.
fn token<'a>(metadata: &Metadata, tokens: &[&'a str], key: &str) -> Result<Option<&'a str>, Problem> {
    let Some(value) = find(metadata, key) else { return Ok(None) };
    let id = if let Value::Whole(id) = value { usize::try_from(*id).ok() } else { None };
    let token = id.and_then(|id| tokens.get(id).copied());
    token
        .map(Some)
        .ok_or_else(|| unsupported(format!("`tokenizer.ggml.{key}` names none of its {} tokens", tokens.len())))
}

fn missing(key: &str) -> Problem {
    unsupported(format!("`tokenizer.ggml.{key}` is no list of one value for each token"))
}

fn unsupported(what: String) -> Problem {
    (what, "give the tokenizer.json of the model with `--tokenizer`".to_string())
}
