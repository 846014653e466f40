//! Real folders: what is read is what Python's own reading of the format gives.

mod common;

use common::*;
use henge_checkpoint::{Block, Checkpoint, CheckpointError, Export, HfFolder, Kind, Weights, export};
use henge_spec::{Activation, Arch, DropoutRates, Model, Parameter, Rope, RopeScaling, parameters};
use safetensors::SafeTensors;
use std::path::Path;

/// A plain reading of a folder's only file through the reference implementation.
struct Reference(Vec<u8>);

impl Reference {
    fn value(&self, p: &Parameter, row: usize, column: usize) -> f32 {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let name = &p.hf.name;
        let tensor = file.tensor(name).unwrap();
        let row = row + p.hf.fused.map_or(0, |(first, _)| first);
        let width = tensor.shape().get(1).copied().unwrap_or(1);
        let place = if p.hf.transposed { column * width + row } else { row * width + column };
        f32::from_le_bytes(tensor.data()[4 * place..][..4].try_into().unwrap())
    }
}

#[test]
fn real_folders_are_read_as_the_reference_implementation_reads_them() {
    let Some(data) = test_data() else { return };
    for folder in HF_FOLDERS {
        let (hf, model) = open_hf(&data.join(folder));
        let reference = Reference(std::fs::read(data.join(folder).join("model.safetensors")).unwrap());
        let mut chance = Chance(7);
        for p in parameters(&model) {
            let (rows, columns) = p.matrix();
            let (row, column) = (chance.below(rows), chance.below(columns));
            let block = Block {
                row,
                rows: 1 + chance.below((rows - row).min(9)),
                column,
                columns: 1 + chance.below((columns - column).min(9)),
            };
            let mut whole = vec![0.0; p.len()];
            hf.read(&p, Block::whole(&p), &mut whole).unwrap();
            let mut part = vec![0.0; block.len()];
            hf.read(&p, block, &mut part).unwrap();
            for (i, &value) in part.iter().enumerate() {
                let (row, column) = (block.row + i / block.columns, block.column + i % block.columns);
                assert_eq!(value, reference.value(&p, row, column), "{folder} {} {row} {column}", p.name);
                assert_eq!(value, whole[row * columns + column], "{folder} {} {row} {column}", p.name);
            }
        }
    }
}

#[test]
fn the_configuration_becomes_the_model() {
    let Some(data) = test_data() else { return };
    let (_, gpt) = open_hf(&data.join("oracle/gpt2"));
    assert_eq!((gpt.arch, gpt.layers, gpt.hidden, gpt.heads), (Arch::Gpt, 4, 64, 4));
    assert_eq!((gpt.ffn_hidden, gpt.seq_len, gpt.vocab_size, gpt.tie_embeddings), (256, 48, 509, true));
    assert_eq!(gpt.dropout.attention, 0.0);
    let (_, llama) = open_hf(&data.join("oracle/llama"));
    assert_eq!((llama.arch, llama.kv_heads, llama.head_dim, llama.ffn_hidden), (Arch::Llama, 2, 16, 172));
    assert_eq!((llama.tie_embeddings, llama.norm_eps, llama.rope.unwrap().theta), (false, 1e-5, 10000.0));
}

/// Writes a folder with a changed configuration and, when given, changed weights.
fn altered(from: &Path, change: impl Fn(&mut serde_json::Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut config = serde_json::from_slice(&std::fs::read(from.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    std::fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
    folder
}

#[test]
fn what_a_configuration_asks_for_and_is_not_done_is_refused_by_name() {
    let Some(data) = test_data() else { return };
    let (gpt, llama) = (data.join("oracle/gpt2"), data.join("oracle/llama"));
    let cases: [(&Path, &str, serde_json::Value, &str); 14] = [
        (&gpt, "model_type", "mamba".into(), "`mamba`"),
        (&gpt, "n_embd", serde_json::Value::Null, "`n_embd` is null"),
        (&gpt, "n_layer", (-3).into(), "`n_layer` is -3"),
        (&gpt, "n_head", 7.into(), "64 is not divisible by 7"),
        (&gpt, "scale_attn_by_inverse_layer_idx", true.into(), "`scale_attn_by_inverse_layer_idx` is true"),
        (&gpt, "activation_function", "relu".into(), "`relu`"),
        (&llama, "attention_bias", true.into(), "`attention_bias` is true"),
        (&llama, "rope_parameters", serde_json::json!({"rope_type": "llama3"}), "`llama3` positions without a number"),
        (&llama, "rope_parameters", serde_json::json!({"rope_type": "dynamic"}), "positions without a number `factor`"),
        (&llama, "partial_rotary_factor", 0.5.into(), "`partial_rotary_factor` is 0.5"),
        (&llama, "rope_scaling", serde_json::json!({"type": "longrope"}), "scaled by `longrope`"),
        (&llama, "rope_scaling", serde_json::json!({"type": "yarn", "factor": 4, "mscale": 0.7}), "with `mscale`"),
        (&llama, "layer_types", serde_json::json!(["sliding_attention"]), "window of 8 tokens"),
        (&llama, "num_hidden_layers", (1u64 << 33).into(), "8589934592 layers"),
    ];
    for (from, key, value, expected) in cases {
        let folder = altered(from, |config| {
            config[key] = value.clone();
            if key == "rope_scaling" {
                config["rope_parameters"] = serde_json::Value::Null;
            }
            config["sliding_window"] = 8.into();
        });
        let error = HfFolder::open(folder.path()).unwrap_err();
        assert!(matches!(error, CheckpointError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.is_machine());
    }
}

#[test]
fn scalings_of_rotary_positions_are_read_and_written_as_they_are() {
    let Some(data) = test_data() else { return };
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let longest = open_hf(&data.join("oracle/llama")).1.seq_len;
    let cases = [
        (json(r#"{"rope_type": "linear", "factor": 4.0}"#), RopeScaling::Linear { factor: 4.0 }),
        (json(r#"{"rope_type": "dynamic", "factor": 4.0}"#), RopeScaling::Dynamic { factor: 4.0, original: longest }),
        (
            json(
                r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192}"#,
            ),
            RopeScaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 8192 },
        ),
        (
            json(
                r#"{"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                    "original_max_position_embeddings": 32768}"#,
            ),
            RopeScaling::Yarn { factor: 4.0, fast: 32.0, slow: 1.0, original: 32768 },
        ),
    ];
    for (table, scaling) in cases {
        // The key before version 5, and the one since.
        for key in ["rope_scaling", "rope_parameters"] {
            let folder = altered(&data.join("oracle/llama"), |config| {
                config["rope_parameters"] = serde_json::Value::Null;
                config[key] = table.clone();
            });
            let (hf, model) = open_hf(folder.path());
            assert_eq!(model.rope.unwrap().scaling, scaling, "{key} {table}");
            let out = folder.path().join("out");
            export(&hf, &Export::float32(), &out).unwrap();
            let written = json(&std::fs::read_to_string(out.join("config.json")).unwrap());
            assert_eq!(written["rope_scaling"], table);
            assert_eq!(open_hf(&out).1, model);
        }
    }
}

#[test]
fn biases_of_queries_keys_and_values_make_a_qwen2() {
    let folder = tempfile::tempdir().unwrap();
    let gpt = Model::gpt(2, 16, 4, 8, 50);
    let (arch, activation) = (Arch::Llama, Activation::SwiGlu);
    let rope = Some(Rope::plain(1e6));
    let model = Model { arch, activation, rope, kv_heads: 2, qkv_bias: true, dropout: DropoutRates::all(0.0), ..gpt };
    let saved = save_made(folder.path(), &model, 5, (2, 1), 3);
    let out = folder.path().join("out");
    export(&Checkpoint::open(&saved).unwrap(), &Export::float32(), &out).unwrap();
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    assert!(config.contains("\"qwen2\"") && config.contains("Qwen2ForCausalLM"), "{config}");
    let (hf, back) = open_hf(&out);
    assert_eq!(back, model);
    for p in parameters(&model) {
        let mut found = vec![0.0; p.len()];
        hf.read(&p, Block::whole(&p), &mut found).unwrap();
        let same = found.iter().zip(Made::block(Kind::Weight, &p, Block::whole(&p)));
        assert!(same.into_iter().all(|(a, b)| a.to_bits() == b.to_bits()), "{}", p.name);
    }
}

#[test]
fn weights_of_another_shape_than_the_configuration_are_named() {
    let Some(data) = test_data() else { return };
    let folder = altered(&data.join("oracle/gpt2"), |config| config["n_inner"] = 128.into());
    let (hf, model) = open_hf(folder.path());
    let p = parameters(&model).into_iter().find(|p| p.name == "layer.2.mlp.up.weight").unwrap();
    let error = hf.read(&p, Block::whole(&p), &mut vec![0.0; p.len()]).unwrap_err().to_string();
    assert!(
        error.contains("`transformer.h.2.mlp.c_fc.weight` has shape [64, 256] where the model has [64, 128]"),
        "{error}"
    );
}

#[test]
fn a_cut_or_overwritten_file_is_an_error_with_its_name() {
    let Some(data) = test_data() else { return };
    let folder = altered(&data.join("oracle/gpt2"), |_| ());
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 7, 8, 100, 4896, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = HfFolder::open(folder.path()).unwrap_err();
        assert!(matches!(error, CheckpointError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("model.safetensors"), "{error}");
    }
    std::fs::write(&path, [0xff; 64]).unwrap();
    assert!(matches!(HfFolder::open(folder.path()), Err(CheckpointError::Damaged { .. })));
}
