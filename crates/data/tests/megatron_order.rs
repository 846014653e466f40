//! Megatron's order against the indices that megatron-core 0.16.1 made.

mod common;

use common::test_data;
use henge_data::Corpus;
use henge_data::order::{MegatronIndex, MegatronOptions, MegatronRun, Part, SampleOrder, Split};
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The values of a one- or two-dimensional `.npy` file of 4-byte integers, row by row.
fn npy(folder: &Path, ending: &str) -> Vec<u64> {
    let entry = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let path = entry.into_iter().find(|p| p.to_str().unwrap().ends_with(ending)).unwrap();
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let start = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let header = std::str::from_utf8(&bytes[10..start]).unwrap();
    assert!(header.contains("<i4") || header.contains("<u4"), "{header}");
    bytes[start..].chunks(4).map(|c| u64::from(u32::from_le_bytes(c.try_into().unwrap()))).collect()
}

#[test]
fn indices_equal_megatrons_element_for_element() {
    let Some(data) = test_data() else { return };
    let golden = data.join("megatron-gptdataset-golden");
    let config: Value = serde_json::from_slice(&fs::read(golden.join("golden.json")).unwrap()).unwrap();
    let corpus = Corpus::open(&data.join("megatron-bin-idx/openwebtext-gpt2/meg-gpt2-openwebtext_text_document"));
    let corpus = corpus.unwrap();
    let split = Split::new([949.0, 50.0, 1.0]).unwrap();
    for (part, name, samples) in
        [(Part::Train, "train", Some(8000)), (Part::Valid, "valid", Some(400)), (Part::Test, "test", None)]
    {
        let sequences = split.cut(corpus.indexed().sequences())[part.index()].clone();
        let options = MegatronOptions { sequences, sequence_length: 256, seed: 1234, samples };
        let index = MegatronIndex::build(corpus.indexed(), &options).unwrap();
        let table = |kind: &str| npy(&golden.join("cache"), &format!("{name}-{kind}_index.npy"));
        assert!(index.document_index.iter().map(|&d| u64::from(d)).eq(table("document")), "{name}");
        let places = index.sample_index.iter().flat_map(|&(place, offset)| [place, u64::from(offset)]);
        assert!(places.eq(table("sample")), "{name}");
        assert!(index.shuffle_index.iter().copied().eq(table("shuffle")), "{name}");

        let run = MegatronRun { sequence_length: 256, seed: 1234, samples };
        let order = SampleOrder::megatron(vec![(corpus.clone(), 1.0)], &split, part, &run).unwrap();
        assert_eq!(order.distinct_samples(), config[name]["len"].as_u64().unwrap());
        for (i, sample) in config[name]["samples"].as_object().unwrap() {
            let tokens = order.sample(i.parse().unwrap()).unwrap();
            let head = |key: &str| sample[key].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32);
            assert_eq!(tokens.len(), 257);
            assert!(head("tokens_head").eq(tokens[..16].iter().copied()), "{name} {i}");
            assert!(head("labels_head").eq(tokens[1..17].iter().copied()), "{name} {i}");
            let sum: u64 = tokens[..256].iter().map(|&t| u64::from(t)).sum();
            assert_eq!(Some(sum), sample["tokens_sum"].as_u64());
        }
    }
}

#[test]
fn blends_ask_no_corpus_past_its_end() {
    let Some(data) = test_data() else { return };
    let open = |name: &str| Corpus::open(&data.join("megatron-bin-idx").join(name)).unwrap();
    let corpora = vec![
        (open("openwebtext-gpt2/meg-gpt2-openwebtext_text_document"), 1.0),
        (open("agnews-prompt-gpt2/ag_news_prompt_inputs_document"), 1e-3),
        (open("agnews-prompt-gpt2/ag_news_prompt_targets_document"), 0.3),
    ];
    let split = Split::new([1.0, 0.0, 0.0]).unwrap();
    let run = MegatronRun { sequence_length: 16, seed: 7, samples: Some(20_000) };
    let order = SampleOrder::megatron(corpora, &split, Part::Train, &run).unwrap();
    let mut taken = [0u64; 3];
    for i in 0..20_000 {
        let location = order.locate(i).unwrap();
        taken[location.corpus] += 1;
        assert_eq!(order.pieces(&location).unwrap().iter().map(|p| p.tokens).sum::<u64>(), 17);
    }
    let error = (taken[1] as f64 - 20_000.0 * 1e-3 / 1.301).abs();
    assert!(error < 1.0, "{taken:?}");
    let gone = (20_000..200_000).find_map(|i| order.locate(i).err()).unwrap();
    assert!(gone.to_string().contains("whose order has"), "{gone}");
}
