//! Both forms of a real Megatron checkpoint, and synthetic ones of several ranks.

mod common;

use common::*;
use henge_checkpoint::{
    Block, CheckpointError, Cut, MegatronCheckpoint, Source, Weights, diff, import, model_of, open_source,
};
use henge_spec::parameters;
use reference::Reference;
use safetensors::SafeTensors;
use std::path::Path;
use std::process::Command;

const FORMS: [&str; 2] = ["legacy", "torch_dist"];

#[test]
fn both_forms_hold_the_weights_that_were_saved_beside_them() {
    let Some(data) = test_data() else { return };
    let folder = data.join("data/megatron-ckpt-tiny/gpt2");
    let bytes = std::fs::read(folder.join("state_dict.safetensors")).unwrap();
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    let value = |name: &str, index: usize| {
        let tensor = saved.tensor(name).unwrap();
        f32::from_le_bytes(tensor.data()[4 * index..][..4].try_into().unwrap())
    };
    for form in FORMS {
        let source = MegatronCheckpoint::open(&folder.join(form)).unwrap();
        let model = model_of(&source.facts(), source.path()).unwrap();
        for p in parameters(&model) {
            let mut out = vec![0.0; p.len()];
            source.read(&p, Block::whole(&p), &mut out).unwrap();
            let part = p.name.rsplit_once('.').unwrap().0.rsplit('.').next().unwrap();
            for (i, &found) in out.iter().enumerate() {
                let (row, column) = (i / p.matrix().1, i % p.matrix().1);
                // Heads of 16 channels, each its query, key and value in turn.
                let fused = |place: usize| ((row / 16) * 48 + place * 16 + row % 16) * p.matrix().1 + column;
                let place = ["q", "k", "v"].iter().position(|&name| name == part);
                let (name, index) = match place {
                    Some(place) => (saved_name(&p.name), fused(place)),
                    None => (saved_name(&p.name), i),
                };
                assert_eq!(found, value(&name, index), "{form} {} {i}", p.name);
            }
        }
    }
}

/// Megatron's name, spelt out independently of the crate.
fn saved_name(name: &str) -> String {
    let mut text = name.replace("layer.", "decoder.layers.").replace(".gain", ".weight");
    for (ours, theirs) in [
        ("embedding.token", "embedding.word_embeddings"),
        ("embedding.position", "embedding.position_embeddings"),
        ("final_norm", "decoder.final_layernorm"),
        ("norm1", "input_layernorm"),
        ("norm2", "pre_mlp_layernorm"),
        ("attention.q", "self_attention.linear_qkv"),
        ("attention.k", "self_attention.linear_qkv"),
        ("attention.v", "self_attention.linear_qkv"),
        ("attention.output", "self_attention.linear_proj"),
        ("mlp.up", "mlp.linear_fc1"),
        ("mlp.down", "mlp.linear_fc2"),
    ] {
        text = text.replace(ours, theirs);
    }
    text
}

#[test]
fn the_golden_logits_follow_from_both_forms() {
    let Some(data) = test_data() else { return };
    let folder = data.join("data/megatron-ckpt-tiny/gpt2");
    let text = std::fs::read(folder.join("golden_logits.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let numbers =
        |key: &str| -> Vec<f64> { golden[key].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect() };
    let tokens: Vec<usize> = numbers("input_ids").into_iter().map(|n| n as usize).collect();
    for form in FORMS {
        let logits = Reference::of(&MegatronCheckpoint::open(&folder.join(form)).unwrap()).logits(&tokens);
        for (found, expected) in logits.last().unwrap().iter().zip(numbers("last_logits_first16")) {
            assert!((found - expected).abs() < 1e-6, "{form}: {found} {expected}");
        }
        let sum: f64 = logits.iter().flatten().map(|value| value.abs()).sum();
        let expected = golden["logits_abs_sum"].as_f64().unwrap();
        assert!((sum - expected).abs() < 1e-6 * expected, "{form}: {sum} {expected}");
    }
}

/// The reference itself, against the losses of the oracle.
#[test]
fn the_reference_meets_the_oracle() {
    let Some(data) = test_data() else { return };
    for name in ["oracle/gpt2", "oracle/llama"] {
        let source = open_source(&data.join(name)).unwrap();
        let text = std::fs::read(data.join(name).join("expected.json")).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let rows =
            |key: &str| -> Vec<Vec<i64>> { serde_json::from_value(expected["batches"][0][key].clone()).unwrap() };
        let reference = Reference::of(source.as_ref());
        let (mut loss, mut scored) = (0.0, 0);
        for (tokens, labels) in rows("tokens").into_iter().zip(rows("labels")) {
            let tokens: Vec<usize> = tokens.into_iter().map(|token| token as usize).collect();
            for (logits, label) in reference.logits(&tokens).iter().zip(labels).filter(|(_, label)| *label >= 0) {
                let total: f64 = logits.iter().map(|value| value.exp()).sum();
                loss += total.ln() - logits[label as usize];
                scored += 1;
            }
        }
        let wanted = expected["first"]["loss"].as_f64().unwrap();
        let found = loss / f64::from(scored);
        assert!((found - wanted).abs() < 1e-6 * wanted, "{name}: {found} {wanted}");
    }
}

#[test]
fn both_forms_import_to_the_same_bits() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let open = |form: &str| {
        let out = folder.path().join(form);
        let source = open_source(&data.join("data/megatron-ckpt-tiny/gpt2").join(form)).unwrap();
        import(source.as_ref(), Cut::Shards(2), &out).unwrap();
        open_source(&out).unwrap()
    };
    let found = diff(open(FORMS[0]).as_ref(), open(FORMS[1]).as_ref()).unwrap();
    assert!(found.len() > 20 && found.iter().all(henge_checkpoint::TensorDiff::is_same));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { std::fs::write(target, std::fs::read(path).unwrap()).unwrap() }
    }
}

/// Bytes changed at random in the pickles, archives and their directories: an error or other
/// weights, for the format has no checksum that covers them, but never a panic or a wrong size.
#[test]
fn hostile_files_are_errors_and_nothing_worse() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut chance, mut refused) = (Chance(5), 0);
    for form in FORMS {
        let at = folder.path().join(form);
        copy(&data.join("data/megatron-ckpt-tiny/gpt2").join(form), &at);
        std::fs::copy(data.join("data/megatron-ckpt-tiny/gpt2/config.json"), at.join("config.json")).unwrap();
        let target = match form {
            "legacy" => at.join("iter_0000001/mp_rank_00/model_optim_rng.pt"),
            _ => at.join("iter_0000001/.metadata"),
        };
        let whole = std::fs::read(&target).unwrap();
        for round in 0..300 {
            let mut bytes = whole.clone();
            for _ in 0..1 + round % 4 {
                // The pickle of the legacy form stands at its beginning.
                let place = chance.below(bytes.len().min(6000));
                bytes[place] = chance.next() as u8;
            }
            if round % 10 == 0 {
                bytes.truncate(chance.below(whole.len()));
            }
            std::fs::write(&target, bytes).unwrap();
            match MegatronCheckpoint::open(&at) {
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains(at.to_str().unwrap()), "{error}");
                }
                Ok(source) => {
                    let model = model_of(&source.facts(), source.path()).unwrap();
                    for p in parameters(&model) {
                        let _ = source.read(&p, Block::whole(&p), &mut vec![0.0; p.len()]);
                    }
                }
            }
        }
    }
    assert!(refused > 150, "{refused}");
}

#[test]
fn a_missing_rank_or_file_is_named() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("torch_dist");
    copy(&data.join("data/megatron-ckpt-tiny/gpt2/torch_dist"), &at);
    std::fs::copy(data.join("data/megatron-ckpt-tiny/gpt2/config.json"), at.join("config.json")).unwrap();
    std::fs::remove_file(at.join("iter_0000001/__0_1.distcp")).unwrap();
    let error = MegatronCheckpoint::open(&at).unwrap_err().to_string();
    assert!(error.contains("__0_1.distcp"), "{error}");
    std::fs::remove_file(at.join("config.json")).unwrap();
    copy(&data.join("data/megatron-ckpt-tiny/gpt2/torch_dist"), &at);
    let error = MegatronCheckpoint::open(&at).unwrap_err();
    assert!(matches!(&error, CheckpointError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("`hidden_size` is not known"), "{error}");
}

/// Saves a Llama-shaped model with grouped queries as torch would from 2 x 2 ranks with 2 chunks
/// each, cut by the rules of Megatron's layers, and the whole tensors under Henge's names.
const SCRIPT: &str = r#"
import argparse, pathlib, struct, sys, torch
out = pathlib.Path(sys.argv[1]); dtype = getattr(torch, sys.argv[2]); chunks = int(sys.argv[3])
L, h, a, g, d, f, V, t, p = 8, 32, 8, 4, 4, 24, 50, 2, 2
torch.manual_seed(1)
full, ranks = {}, [[[{} for _ in range(chunks)] for _ in range(p)] for _ in range(t)]
def rand(*shape): return torch.randn(*shape).to(dtype)
def put(stage, chunk, name, parts):
    for r in range(t): ranks[r][stage][chunk][name] = (parts[r] if isinstance(parts, list) else parts).clone()
table = rand(V, h); full['embedding.token.weight'] = table
padded = torch.cat([table, torch.zeros(256 - V, h, dtype=dtype)])
put(0, 0, 'embedding.word_embeddings.weight', list(padded.chunk(t)))
head = rand(V, h); full['head.weight'] = head
put(p - 1, chunks - 1, 'output_layer.weight', list(torch.cat([head, torch.zeros(256 - V, h, dtype=dtype)]).chunk(t)))
norm = rand(h); full['final_norm.gain'] = norm; put(p - 1, chunks - 1, 'decoder.final_layernorm.weight', norm)
per = L // (p * chunks)
for layer in range(L):
    block = layer // per; stage, chunk = block % p, block // p
    at = f'decoder.layers.{layer % per}.'; own = f'layer.{layer}.'
    q, k, v, o = rand(a*d, h), rand(g*d, h), rand(g*d, h), rand(h, a*d)
    gate, up, down, n1, n2 = rand(f, h), rand(f, h), rand(h, f), rand(h), rand(h)
    for name, value in dict(q=q, k=k, v=v, output=o).items(): full[own + f'attention.{name}.weight'] = value
    for name, value in dict(gate=gate, up=up, down=down).items(): full[own + f'mlp.{name}.weight'] = value
    full[own + 'norm1.gain'] = n1; full[own + 'norm2.gain'] = n2
    groups = [torch.cat([q.view(g, a//g*d, h)[i], k.view(g, d, h)[i], v.view(g, d, h)[i]]) for i in range(g)]
    put(stage, chunk, at + 'self_attention.linear_qkv.weight', list(torch.cat(groups).chunk(t)))
    put(stage, chunk, at + 'self_attention.linear_qkv.layer_norm_weight', n1)
    put(stage, chunk, at + 'self_attention.linear_proj.weight', list(o.chunk(t, 1)))
    put(stage, chunk, at + 'mlp.linear_fc1.weight', [torch.cat(x) for x in zip(gate.chunk(t), up.chunk(t))])
    put(stage, chunk, at + 'mlp.linear_fc1.layer_norm_weight', n2)
    put(stage, chunk, at + 'mlp.linear_fc2.weight', list(down.chunk(t, 1)))
args = argparse.Namespace(num_layers=L, hidden_size=h, num_attention_heads=a, num_query_groups=g, kv_channels=d,
    group_query_attention=True, ffn_hidden_size=f, max_position_embeddings=64, padded_vocab_size=256, vocab_size=V,
    position_embedding_type='rope', normalization='RMSNorm', norm_epsilon=1e-6, rotary_base=5000, hidden_dropout=0.0,
    attention_dropout=0.0)
for r in range(t):
    for s in range(p):
        at = out / 'iter_0000007' / f'mp_rank_{r:02d}_{s:03d}'; at.mkdir(parents=True)
        state = dict(args=args, checkpoint_version=3.0, iteration=7, rng_state=[torch.random.get_rng_state()])
        for c in range(chunks): state['model' if chunks == 1 else f'model{c}'] = ranks[r][s][c]
        torch.save(state, at / 'model_optim_rng.pt')
(out / 'latest_checkpointed_iteration.txt').write_text('7')
whole = out / 'full'; whole.mkdir()
for name, value in full.items(): (whole / name).write_bytes(value.float().numpy().tobytes())
"#;

#[test]
fn ranks_and_chunks_come_together() {
    let python = std::env::var("HENGE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import torch, numpy"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no torch; name one that has in HENGE_TEST_PYTHON");
        return;
    }
    for (dtype, chunks) in [("float32", "1"), ("bfloat16", "2")] {
        let folder = tempfile::tempdir().unwrap();
        let made =
            Command::new(&python).args(["-c", SCRIPT]).arg(folder.path()).args([dtype, chunks]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let source = open_source(folder.path()).unwrap();
        let model = model_of(&source.facts(), source.path()).unwrap();
        assert_eq!((model.layers, model.kv_heads, model.vocab_size, model.norm_eps), (8, 4, 50, 1e-6));
        assert_eq!((model.tie_embeddings, model.rope.unwrap().theta), (false, 5000.0));
        for p in parameters(&model) {
            let mut out = vec![0.0f32; p.len()];
            source.read(&p, Block::whole(&p), &mut out).unwrap();
            let expected = std::fs::read(folder.path().join("full").join(&p.name)).unwrap();
            let bytes: Vec<u8> = out.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert!(bytes == expected, "{dtype} {chunks} {}", p.name);
            let (rows, columns) = p.matrix();
            let block = Block { row: rows / 3, rows: rows / 2, column: columns / 3, columns: 1.max(columns / 2) };
            let mut part = vec![0.0; block.len()];
            source.read(&p, block, &mut part).unwrap();
            for (i, &value) in part.iter().enumerate() {
                let (row, column) = (block.row + i / block.columns, block.column + i % block.columns);
                assert_eq!(value, out[row * columns + column], "{} {block}", p.name);
            }
        }
        std::fs::remove_dir_all(folder.path().join("iter_0000007/mp_rank_01_001")).unwrap();
        let error = MegatronCheckpoint::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains("3 ranks are there of 2 tensor by 2 pipeline ranks"), "{error}");
    }
}
