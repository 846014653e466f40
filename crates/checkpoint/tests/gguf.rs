//! GGUF files: what is read is what was written, and nothing a damaged file says is believed.

mod common;

use common::*;
use henge_checkpoint::{Block, CheckpointError, Cut, GgufFile, Kind, Source, TokenizerFile, Weights, import, model_of};
use henge_spec::{Model, Parameter, parameters};
use std::path::{Path, PathBuf};

/// A writer of the format by its published description, independent of the reader.
#[derive(Clone, Default)]
struct Gguf {
    pairs: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

impl Gguf {
    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        self.pairs.push([&string(key)[..], &kind.to_le_bytes(), value].concat());
    }

    fn whole(&mut self, key: &str, value: usize) {
        self.pair(key, 4, &(value as u32).to_le_bytes());
    }

    fn float(&mut self, key: &str, value: f32) {
        self.pair(key, 6, &value.to_le_bytes());
    }

    fn text(&mut self, key: &str, value: &str) {
        self.pair(key, 8, &string(value));
    }

    fn list(&mut self, key: &str, kind: u32, values: &[Vec<u8>]) {
        let head = [&kind.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
        self.pair(key, 9, &[head, values.concat()].concat());
    }

    fn bytes(&self) -> Vec<u8> {
        let count = |n: usize| (n as u64).to_le_bytes();
        let mut out = [b"GGUF", &3u32.to_le_bytes()[..], &count(self.tensors.len()), &count(self.pairs.len())].concat();
        out.extend(self.pairs.concat());
        let mut offset = 0usize;
        for (name, shape, kind, bytes) in &self.tensors {
            out.extend(string(name));
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().rev().for_each(|&size| out.extend(count(size)));
            out.extend(kind.to_le_bytes());
            out.extend(count(offset));
            offset += bytes.len().next_multiple_of(32);
        }
        for (.., bytes) in &self.tensors {
            out.resize(out.len().next_multiple_of(32), 0);
            out.extend(bytes);
        }
        out
    }

    fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("model.gguf");
        std::fs::write(&path, self.bytes()).unwrap();
        path
    }
}

const HEADS: usize = 4;
const HEAD_DIM: usize = 8;

/// A small Llama of made-up weights, every matrix in f32 but for the up-projections (Q8_0 of
/// whole numbers, which it holds exactly).
fn small() -> Gguf {
    let mut file = Gguf::default();
    file.text("general.architecture", "llama");
    for (key, value) in [
        ("block_count", 2),
        ("context_length", 16),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", 2),
        ("rope.dimension_count", HEAD_DIM),
    ] {
        file.whole(&format!("llama.{key}"), value);
    }
    file.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    let floats = |name: &str, n: usize| (0..n).flat_map(|i| value(name, i).to_le_bytes()).collect::<Vec<u8>>();
    let mut add = |name: &str, shape: &[usize]| {
        file.tensors.push((name.to_string(), shape.to_vec(), 0, floats(name, shape.iter().product())));
    };
    add("token_embd.weight", &[50, 32]);
    add("output_norm.weight", &[32]);
    for layer in 0..2 {
        for (part, shape) in [
            ("attn_norm", &[32][..]),
            ("ffn_norm", &[32]),
            ("attn_q", &[32, 32]),
            ("attn_k", &[16, 32]),
            ("attn_v", &[16, 32]),
            ("attn_output", &[32, 32]),
            ("ffn_gate", &[64, 32]),
            ("ffn_down", &[32, 64]),
        ] {
            add(&format!("blk.{layer}.{part}.weight"), shape);
        }
    }
    for layer in 0..2 {
        let name = format!("blk.{layer}.ffn_up.weight");
        let row = |row: usize| {
            let q = (0..32).map(move |i| value8(row * 32 + i) as u8);
            half::f16::from_f32(0.25).to_le_bytes().into_iter().chain(q)
        };
        file.tensors.push((name, vec![64, 32], 8, (0..64).flat_map(row).collect()));
    }
    file
}

fn value(name: &str, index: usize) -> f32 {
    Made::value(Kind::Weight, name, index)
}

fn value8(index: usize) -> i8 {
    (index * 7 % 251) as u8 as i8
}

fn open(path: &Path) -> (GgufFile, Model) {
    let file = GgufFile::open(path).unwrap();
    let model = model_of(&file.facts(), path).unwrap();
    (file, model)
}

/// Where a converter puts row `row` of a matrix whose channels are rotated: it splits a head's
/// rows into halves and interleaves them (`permute` of convert_hf_to_gguf.py).
fn converted(row: usize) -> usize {
    let (head, channel) = (row / HEAD_DIM, row % HEAD_DIM);
    head * HEAD_DIM + channel % (HEAD_DIM / 2) * 2 + channel / (HEAD_DIM / 2)
}

#[test]
fn every_tensor_is_read_by_block_with_rotated_rows_in_their_places() {
    let folder = tempfile::tempdir().unwrap();
    let (file, model) = open(&small().write(folder.path()));
    assert_eq!((model.layers, model.hidden, model.kv_heads, model.vocab_size), (2, 32, 2, 50));
    assert_eq!((model.tie_embeddings, model.qkv_bias, model.norm_eps), (true, false, 1e-5));
    let names =
        [("attention.q", "attn_q"), ("attention.k", "attn_k"), ("attention.v", "attn_v"), ("mlp.down", "ffn_down")];
    let mut chance = Chance(3);
    for p in parameters(&model) {
        let (rows, columns) = p.matrix();
        let (row, column) = (chance.below(rows), chance.below(columns));
        let block =
            Block { row, rows: 1 + chance.below(rows - row), column, columns: 1 + chance.below(columns - column) };
        let mut part = vec![0.0; block.len()];
        file.read(&p, block, &mut part).unwrap();
        let stored = names.iter().find_map(|(ours, theirs)| {
            let (layer, rest) = p.name.strip_prefix("layer.")?.split_once('.')?;
            (rest == format!("{ours}.weight")).then(|| format!("blk.{layer}.{theirs}.weight"))
        });
        for (i, &found) in part.iter().enumerate() {
            let (row, column) = (block.row + i / block.columns, block.column + i % block.columns);
            let rotated = p.name.contains("attention.q") || p.name.contains("attention.k");
            let there = if rotated { converted(row) } else { row };
            if let Some(name) = &stored {
                assert_eq!(
                    found.to_bits(),
                    value(name, there * columns + column).to_bits(),
                    "{} {row} {column}",
                    p.name
                );
            }
            if p.name.ends_with("mlp.up.weight") {
                assert_eq!(found, 0.25 * f32::from(value8(row * columns + column)), "{} {row} {column}", p.name);
            }
        }
    }
}

#[test]
fn an_import_is_a_checkpoint_of_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (file, model) = open(&small().write(folder.path()));
    import(&file, Cut::Layout { tensor: 2, pipeline: 1 }, &folder.path().join("henge")).unwrap();
    let checkpoint = henge_checkpoint::Checkpoint::open(&folder.path().join("henge")).unwrap();
    let whole = |weights: &dyn Weights, p: &Parameter| {
        let mut out = vec![0.0; p.len()];
        weights.read(p, Block::whole(p), &mut out).unwrap();
        out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    for p in parameters(&model) {
        assert_eq!(whole(&file, &p), whole(&checkpoint, &p), "{}", p.name);
    }
}

#[test]
fn what_a_file_asks_for_and_is_not_done_is_refused_by_name() {
    type Change = fn(&mut Gguf);
    let cases: [(Change, &str); 7] = [
        (|file| drop(file.pairs.remove(0)), "names no `general.architecture`"),
        (|file| file.whole("llama.expert_count", 8), "mixture of experts"),
        (|file| file.whole("llama.attention.sliding_window", 8), "window of 8 tokens"),
        (
            |file| {
                file.text("llama.rope.scaling.type", "longrope");
                file.float("llama.rope.scaling.factor", 4.0);
            },
            "scaled by `longrope`",
        ),
        (|file| file.whole("llama.attention.key_length", 16), "`llama.rope.dimension_count` is 8 where a head has 16"),
        (|file| drop(file.pairs.remove(1)), "`llama.block_count` is absent"),
        (|file| file.tensors.push(("rope_freqs.weight".into(), vec![4], 0, vec![0; 16])), "`rope_freqs.weight`"),
    ];
    for (change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let mut file = small();
        change(&mut file);
        let error = GgufFile::open(&file.write(folder.path())).unwrap_err();
        assert!(matches!(error, CheckpointError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn no_cut_and_no_flipped_byte_of_the_frame_is_a_panic_or_a_wrong_size() {
    let folder = tempfile::tempdir().unwrap();
    let path = small().write(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let frame = whole.len() - small().tensors.iter().map(|t| t.3.len()).sum::<usize>();
    for length in (0..frame).step_by(7).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(GgufFile::open(&path).is_err(), "{length} bytes");
    }
    let mut chance = Chance(11);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + chance.below(3) {
            bytes[chance.below(frame)] = chance.next() as u8;
        }
        std::fs::write(&path, &bytes).unwrap();
        // Whatever opens can be read or refused.
        let Ok(file) = GgufFile::open(&path) else { continue };
        let Ok(model) = model_of(&file.facts(), &path) else { continue };
        let elements: usize = parameters(&model).iter().map(|p| p.len()).sum();
        for p in parameters(&model).iter().filter(|_| elements < 1 << 20) {
            let _ = file.read(p, Block::whole(p), &mut vec![0.0; p.len()]);
        }
    }
}

#[test]
fn sentence_pieces_with_scores_give_the_ids_of_the_shipped_tokenizer() {
    let Some(data) = test_data() else { return };
    let (tokens, scores) = pieces(&std::fs::read(data.join("data/stories260K/tok512.bin")).unwrap());
    let mut file = small();
    file.text("tokenizer.ggml.model", "llama");
    file.list("tokenizer.ggml.tokens", 8, &tokens.iter().map(|token| string(token)).collect::<Vec<_>>());
    file.list("tokenizer.ggml.scores", 6, &scores.iter().map(|score| score.to_le_bytes().to_vec()).collect::<Vec<_>>());
    let kinds = (0..tokens.len()).map(|id| {
        if id < 3 {
            3i32
        } else if id < 259 {
            6
        } else {
            1
        }
    });
    file.list("tokenizer.ggml.token_type", 5, &kinds.map(|kind| kind.to_le_bytes().to_vec()).collect::<Vec<_>>());
    file.whole("tokenizer.ggml.bos_token_id", 1);
    let folder = tempfile::tempdir().unwrap();
    let (gguf, _) = open(&file.write(folder.path()));
    let Ok(Some(TokenizerFile::Json(json))) = gguf.tokenizer() else { panic!("the tokenizer is in the file") };
    let made: tokenizers::Tokenizer = json.parse().unwrap();
    let shipped = tokenizers::Tokenizer::from_file(data.join("data/stories260K/tokenizer.json")).unwrap();
    for text in ["Once upon a time, there was a little girl.", "", "  two  blanks ", "Zo\u{e9} \u{1f600} 12,345\n\tend"]
    {
        let ids = |tokenizer: &tokenizers::Tokenizer| tokenizer.encode(text, true).unwrap().get_ids().to_vec();
        assert_eq!(ids(&made), ids(&shipped), "{text:?}");
        let decoded = |tokenizer: &tokenizers::Tokenizer| tokenizer.decode(&ids(&shipped), true).unwrap();
        assert_eq!(decoded(&made), decoded(&shipped), "{text:?}");
    }
}

#[test]
fn byte_level_merges_give_the_ids_of_the_shipped_tokenizer() {
    let Some(data) = test_data() else { return };
    let path = data.join("data/gpt2-bpe/tokenizer.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let vocabulary = json["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocabulary.len()];
    vocabulary.iter().for_each(|(token, id)| tokens[id.as_u64().unwrap() as usize] = token.clone());
    let merge = |merge: &serde_json::Value| match merge {
        serde_json::Value::String(pair) => string(pair),
        pair => string(&format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap())),
    };
    let mut file = small();
    file.text("tokenizer.ggml.model", "gpt2");
    file.text("tokenizer.ggml.pre", "gpt-2");
    file.list("tokenizer.ggml.tokens", 8, &tokens.iter().map(|token| string(token)).collect::<Vec<_>>());
    let kinds = tokens.iter().map(|token| if token == "<|endoftext|>" { 3i32 } else { 1 });
    file.list("tokenizer.ggml.token_type", 5, &kinds.map(|kind| kind.to_le_bytes().to_vec()).collect::<Vec<_>>());
    let merges: Vec<Vec<u8>> = json["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    file.list("tokenizer.ggml.merges", 8, &merges);
    let folder = tempfile::tempdir().unwrap();
    let (gguf, _) = open(&file.write(folder.path()));
    let Ok(Some(TokenizerFile::Json(made))) = gguf.tokenizer() else { panic!("the tokenizer is in the file") };
    let (made, shipped): (tokenizers::Tokenizer, _) =
        (made.parse().unwrap(), tokenizers::Tokenizer::from_file(&path).unwrap());
    for text in ["It's 12,345 o'clock", "", "  two  blanks<|endoftext|>Zo\u{e9} \u{1f600}\n\tend"] {
        let ids = |tokenizer: &tokenizers::Tokenizer| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
        assert_eq!(ids(&made), ids(&shipped), "{text:?}");
        assert_eq!(made.decode(&ids(&made), false).unwrap(), text);
    }
}

/// llama2.c's file of pieces: the longest length, then of each its score, length and bytes.
fn pieces(mut bytes: &[u8]) -> (Vec<String>, Vec<f32>) {
    let (mut tokens, mut scores) = (Vec::new(), Vec::new());
    bytes = &bytes[4..];
    while !bytes.is_empty() {
        let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
        scores.push(f32::from_le_bytes(bytes[..4].try_into().unwrap()));
        tokens.push(String::from_utf8_lossy(&bytes[8..8 + length]).trim_matches('\n').replace(' ', "\u{2581}"));
        bytes = &bytes[8 + length..];
    }
    (tokens, scores)
}
