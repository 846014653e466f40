//! Named model shapes of the papers and of the models that users know by name.

use crate::{Activation, Arch, DropoutRates, Model, NormPlacement, Rope};

/// One GPT of the papers: name, layers, hidden, heads, sequence, vocabulary.
type Gpt = (&'static str, usize, usize, usize, usize, usize);

/// Vocabulary of GPT-2's byte-pair encoding, and the same padded for t = 8, which
/// arXiv 2104.04473 uses throughout.
const GPT2_VOCABULARY: usize = 50_257;
const PADDED: usize = 51_200;

const GPTS: &[Gpt] = &[
    // OpenAI GPT-2.
    ("gpt2-124m", 12, 768, 12, 1024, GPT2_VOCABULARY),
    ("gpt2-355m", 24, 1024, 16, 1024, GPT2_VOCABULARY),
    ("gpt2-774m", 36, 1280, 20, 1024, GPT2_VOCABULARY),
    ("gpt2-1.5b", 48, 1600, 25, 1024, GPT2_VOCABULARY),
    // arXiv 1909.08053, table 1 (scaling) and table 2 (trained).
    ("megatron-scaling-1.2b", 40, 1536, 16, 1024, GPT2_VOCABULARY),
    ("megatron-scaling-2.5b", 54, 1920, 20, 1024, GPT2_VOCABULARY),
    ("megatron-scaling-4.2b", 64, 2304, 24, 1024, GPT2_VOCABULARY),
    ("megatron-scaling-8.3b", 72, 3072, 32, 1024, GPT2_VOCABULARY),
    ("megatron-gpt2-355m", 24, 1024, 16, 1024, GPT2_VOCABULARY),
    ("megatron-gpt2-2.5b", 54, 1920, 20, 1024, GPT2_VOCABULARY),
    ("megatron-gpt2-8.3b", 72, 3072, 24, 1024, GPT2_VOCABULARY),
    // arXiv 2104.04473, table 1.
    ("gpt-1.7b", 24, 2304, 24, 2048, PADDED),
    ("gpt-3.6b", 30, 3072, 32, 2048, PADDED),
    ("gpt-7.5b", 36, 4096, 32, 2048, PADDED),
    ("gpt-18.4b", 40, 6144, 48, 2048, PADDED),
    ("gpt-39.1b", 48, 8192, 64, 2048, PADDED),
    ("gpt-76.1b", 60, 10_240, 80, 2048, PADDED),
    ("gpt-145.6b", 80, 12_288, 96, 2048, PADDED),
    ("gpt-310.1b", 96, 16_384, 128, 2048, PADDED),
    ("gpt-529.6b", 105, 20_480, 128, 2048, PADDED),
    ("gpt-1t", 128, 25_600, 160, 2048, PADDED),
    // arXiv 2205.05198, table 3 (the larger ones are the three above and GPT-3).
    ("gpt-22b", 48, 6144, 64, 2048, PADDED),
    // Sizes of GPT-3 (arXiv 2005.14165, table 2.1).
    ("gpt3-125m", 12, 768, 12, 2048, GPT2_VOCABULARY),
    ("gpt3-350m", 24, 1024, 16, 2048, GPT2_VOCABULARY),
    ("gpt3-760m", 24, 1536, 16, 2048, GPT2_VOCABULARY),
    ("gpt3-1.3b", 24, 2048, 16, 2048, GPT2_VOCABULARY),
    ("gpt3-2.7b", 32, 2560, 32, 2048, GPT2_VOCABULARY),
    ("gpt3-6.7b", 32, 4096, 32, 2048, GPT2_VOCABULARY),
    ("gpt3-13b", 40, 5120, 40, 2048, GPT2_VOCABULARY),
    ("gpt3-175b", 96, 12_288, 96, 2048, PADDED),
    // BLOOM (ALiBi is not modelled; positions cost nothing in time).
    ("bloom-176b", 70, 14_336, 112, 2048, 250_680),
];

/// BERTs: name, layers, hidden, heads (arXiv 1909.08053, table 4, and the stability study).
const BERTS: &[(&str, usize, usize, usize)] = &[
    ("bert-336m", 24, 1024, 16),
    ("bert-752m", 24, 1536, 24),
    ("bert-1.3b", 24, 2048, 32),
    ("bert-3.9b", 48, 2560, 40),
];

/// One Llama: every number that differs between sizes.
struct Llama {
    name: &'static str,
    layers: usize,
    hidden: usize,
    heads: usize,
    kv_heads: usize,
    ffn_hidden: usize,
    seq_len: usize,
    vocab_size: usize,
    theta: f64,
    tie_embeddings: bool,
}

macro_rules! llama {
    ($name:literal, $l:literal, $h:literal, $a:literal, $kv:literal, $ffn:literal, $s:literal, $v:literal, $theta:literal, $tie:literal) => {
        Llama {
            name: $name,
            layers: $l,
            hidden: $h,
            heads: $a,
            kv_heads: $kv,
            ffn_hidden: $ffn,
            seq_len: $s,
            vocab_size: $v,
            theta: $theta,
            tie_embeddings: $tie,
        }
    };
}

/// Llama 1 (arXiv 2302.13971), 2 (2307.09288) and 3 (2407.21783), 3.2.
const LLAMAS: &[Llama] = &[
    llama!("llama-7b", 32, 4096, 32, 32, 11_008, 2048, 32_000, 10_000.0, false),
    llama!("llama-13b", 40, 5120, 40, 40, 13_824, 2048, 32_000, 10_000.0, false),
    llama!("llama-33b", 60, 6656, 52, 52, 17_920, 2048, 32_000, 10_000.0, false),
    llama!("llama-65b", 80, 8192, 64, 64, 22_016, 2048, 32_000, 10_000.0, false),
    llama!("llama2-7b", 32, 4096, 32, 32, 11_008, 4096, 32_000, 10_000.0, false),
    llama!("llama2-13b", 40, 5120, 40, 40, 13_824, 4096, 32_000, 10_000.0, false),
    llama!("llama2-70b", 80, 8192, 64, 8, 28_672, 4096, 32_000, 10_000.0, false),
    llama!("llama3-1b", 16, 2048, 32, 8, 8192, 8192, 128_256, 500_000.0, true),
    llama!("llama3-3b", 28, 3072, 24, 8, 8192, 8192, 128_256, 500_000.0, true),
    llama!("llama3-8b", 32, 4096, 32, 8, 14_336, 8192, 128_256, 500_000.0, false),
    llama!("llama3-70b", 80, 8192, 64, 8, 28_672, 8192, 128_256, 500_000.0, false),
    llama!("llama3-405b", 126, 16_384, 128, 8, 53_248, 8192, 128_256, 500_000.0, false),
];

/// The model of a preset's name, or `None` for an unknown name.
pub fn preset(name: &str) -> Option<Model> {
    gpt_preset(name).or_else(|| bert_preset(name)).or_else(|| llama_preset(name))
}

/// Every preset's name.
pub fn preset_names() -> Vec<&'static str> {
    let gpts = GPTS.iter().map(|gpt| gpt.0);
    let berts = BERTS.iter().map(|bert| bert.0);
    gpts.chain(berts).chain(LLAMAS.iter().map(|llama| llama.name)).collect()
}

fn gpt_preset(name: &str) -> Option<Model> {
    let &(_, layers, hidden, heads, seq_len, vocabulary) = GPTS.iter().find(|gpt| gpt.0 == name)?;
    Some(Model::gpt(layers, hidden, heads, seq_len, vocabulary))
}

fn bert_preset(name: &str) -> Option<Model> {
    let &(_, layers, hidden, heads) = BERTS.iter().find(|bert| bert.0 == name)?;
    let gpt = Model::gpt(layers, hidden, heads, 512, 30_522);
    Some(Model { arch: Arch::Bert, token_types: 2, ..gpt })
}

fn llama_preset(name: &str) -> Option<Model> {
    let shape = LLAMAS.iter().find(|llama| llama.name == name)?;
    Some(Model {
        arch: Arch::Llama,
        layers: shape.layers,
        hidden: shape.hidden,
        heads: shape.heads,
        kv_heads: shape.kv_heads,
        head_dim: shape.hidden / shape.heads,
        ffn_hidden: shape.ffn_hidden,
        seq_len: shape.seq_len,
        vocab_size: shape.vocab_size,
        dropout: DropoutRates::all(0.0),
        init_std: 0.02,
        tie_embeddings: shape.tie_embeddings,
        norm: NormPlacement::Pre,
        activation: Activation::SwiGlu,
        norm_eps: 1e-5,
        rope: Some(Rope::plain(shape.theta)),
        token_types: 0,
        qkv_bias: false,
        task: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::parameters;

    #[test]
    fn every_name_is_a_model() {
        for name in preset_names() {
            let model = preset(name).expect(name);
            assert_eq!(model.hidden, model.heads * model.head_dim, "{name}");
        }
        assert!(preset("gpt5").is_none());
    }

    #[test]
    fn sizes_are_those_of_the_names() {
        // Published sizes in billions, read from the model cards.
        let cases = [
            ("gpt2-124m", 0.124),
            ("gpt2-1.5b", 1.558),
            ("megatron-gpt2-8.3b", 8.3),
            ("bert-336m", 0.336),
            ("bert-3.9b", 3.9),
            ("gpt3-175b", 174.6),
            ("bloom-176b", 176.2),
            ("llama-7b", 6.738),
            ("llama-65b", 65.29),
            ("llama2-13b", 13.016),
            ("llama2-70b", 68.977),
            ("llama3-1b", 1.236),
            ("llama3-8b", 8.030),
            ("llama3-70b", 70.554),
            ("llama3-405b", 405.853),
        ];
        for (name, billions) in cases {
            let counted = parameters(&preset(name).unwrap()) / 1e9;
            assert!((counted / billions - 1.0).abs() < 0.012, "{name}: {counted} against {billions}");
        }
    }
}
