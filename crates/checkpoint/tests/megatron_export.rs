//! Checkpoints written for Megatron, read again by the reader that is held against Megatron's own,
//! and by torch's where `HENGE_TEST_PYTHON` (or `python3`) has torch.

mod common;

use common::*;
use henge_checkpoint::{
    Cut, Export, Kind, MegatronCheckpoint, Source, TensorDiff, diff, export_megatron, import, model_of, open_source,
};
use henge_spec::DType;
use std::path::Path;
use std::process::Command;

const FIXTURE: &str = "data/megatron-ckpt-tiny/gpt2/torch_dist";

fn same(left: &dyn Source, right: &dyn Source) {
    let mut found = diff(left, right).unwrap();
    found.retain(|tensor| tensor.kind == Kind::Weight); // The optimizer's moments are not written.
    let other: Vec<_> = found.iter().filter(|tensor| !tensor.is_same()).map(|tensor| &tensor.name).collect();
    assert!(other.is_empty() && !found.is_empty(), "{other:?}");
    // Rates of dropout are of a run, and Megatron's arguments have one for two of them.
    let model = |source: &dyn Source| {
        let model = model_of(&source.facts(), source.path()).unwrap();
        henge_spec::Model { dropout: henge_spec::DropoutRates::all(0.0), ..model }
    };
    assert_eq!(model(left), model(right));
}

#[test]
fn what_is_written_reads_back_to_the_bit() {
    let Some(data) = test_data() else { return };
    for name in HF_FOLDERS.into_iter().chain([FIXTURE]) {
        let folder = tempfile::tempdir().unwrap();
        let at = |part: &str| folder.path().join(part);
        let source = open_source(&data.join(name)).unwrap();
        import(source.as_ref(), Cut::Layout { tensor: 2, pipeline: 1 }, &at("henge")).unwrap();
        let source = open_source(&at("henge")).unwrap();
        let options = Export { shard_bytes: 100_000, ..Export::float32() };
        let done = export_megatron(source.as_ref(), &options, &at("out")).unwrap();
        assert!(done.weights.len() > 1, "{done:?}");
        same(source.as_ref(), &MegatronCheckpoint::open(&at("out")).unwrap());
        assert_eq!(std::fs::read_to_string(at("out/latest_checkpointed_iteration.txt")).unwrap(), "release");
        // Half the bits: what comes back is what rounding left, and rounds to itself.
        let half = Export { dtype: DType::BF16, ..Export::float32() };
        export_megatron(source.as_ref(), &half, &at("half")).unwrap();
        let halved = open_source(&at("half")).unwrap();
        export_megatron(halved.as_ref(), &half, &at("again")).unwrap();
        same(halved.as_ref(), open_source(&at("again")).unwrap().as_ref());
        assert!(!diff(source.as_ref(), halved.as_ref()).unwrap().iter().all(TensorDiff::is_same));
    }
}

#[test]
fn a_step_names_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let saved = save_made(folder.path(), &small_model(), 12, (1, 1), 1);
    let out = folder.path().join("out");
    export_megatron(open_source(&saved).unwrap().as_ref(), &Export::float32(), &out).unwrap();
    assert!(out.join("iter_0000012/.metadata").is_file());
    same(open_source(&saved).unwrap().as_ref(), open_source(&out).unwrap().as_ref());
}

#[test]
fn what_megatron_has_no_name_for_is_refused() {
    let Some(data) = test_data() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let source = open_source(&data.join("oracle/bert")).unwrap();
    let error = export_megatron(source.as_ref(), &Export::float32(), &out).unwrap_err().to_string();
    assert!(error.contains("it is a BERT"), "{error}");
    assert!(!out.exists());
}

/// Loads everything by torch's own reader, and holds it against the weights beside the fixture.
const SCRIPT: &str = r#"
import sys, torch, json
from safetensors.torch import load_file
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.metadata import TensorStorageMetadata, BytesStorageMetadata
at, expected, converted = sys.argv[1:4]
reader = dcp.FileSystemReader(at)
kinds = reader.read_metadata().state_dict_metadata
state = {name: torch.empty(kind.size, dtype=kind.properties.dtype)
    for name, kind in kinds.items() if isinstance(kind, TensorStorageMetadata)}
dcp.load(state, storage_reader=reader, no_dist=True)
dcp_to_torch_save(at, converted)
whole = torch.load(converted, weights_only=False)
expected, seen = load_file(expected), 0
# The weights beside the fixture have the norms apart, under the names of their modules.
norms = {'self_attention.linear_qkv.layer_norm_': 'input_layernorm.', 'mlp.linear_fc1.layer_norm_': 'pre_mlp_layernorm.'}
def module(name, layer):
    for fused, apart in norms.items(): name = name.replace(fused, apart)
    return name.replace('layers.', f'layers.{layer}.', 1)
for name, value in state.items():
    assert torch.equal(whole[name], value), name
    if name.startswith('decoder.layers.'):
        for layer, part in enumerate(value):
            assert torch.equal(part, expected[module(name, layer)]), name
            seen += 1
    else:
        assert torch.equal(value, expected[name]), name
        seen += 1
extra = [name for name, kind in kinds.items() if isinstance(kind, BytesStorageMetadata)]
common = torch.load(at + '/common.pt', weights_only=False)
print(json.dumps([seen, len(extra), common['args'].num_layers]))
"#;

#[test]
fn torch_reads_what_is_written() {
    let Some(data) = test_data() else { return };
    let python = std::env::var("HENGE_TEST_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let there = Command::new(&python).args(["-c", "import torch, safetensors"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} has no torch and safetensors; name one that has in HENGE_TEST_PYTHON");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let options = Export { shard_bytes: 200_000, ..Export::float32() };
    export_megatron(open_source(&data.join(FIXTURE)).unwrap().as_ref(), &options, &out).unwrap();
    let expected = data.join("data/megatron-ckpt-tiny/gpt2/state_dict.safetensors");
    let paths: [&Path; 3] = [&out.join("release"), &expected, &folder.path().join("converted.pt")];
    let output = Command::new(&python).args(["-c", SCRIPT]).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // 2 layers of 12 tensors and 4 states; 2 tables and the last norm's 2.
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "[28, 8, 2]");
}
