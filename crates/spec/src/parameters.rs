//! The logical tensors of a model: unpadded, unfused, the same for every layout.

use crate::{Arch, Model, NormPlacement, TaskHead};

/// How tensor parallelism splits a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Every rank holds the whole.
    Whole,
    /// Equal blocks of rows (column-parallel linear: `[out, in]` split over out).
    Rows,
    /// Equal blocks of columns (row-parallel linear: split over in).
    Columns,
    /// Rows by [`Model::vocab_range`].
    Vocabulary,
}

/// Initial values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Independent normals of mean 0 and this standard deviation.
    Normal(f64),
    /// All ones.
    Ones,
    /// All zeros.
    Zeros,
}

/// Where a parameter lives along the pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Before the first layer.
    Embedding,
    /// In a layer, by global index.
    Layer(usize),
    /// After the last layer.
    Head,
}

/// Where a parameter stands in a Hugging Face folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HfSource {
    /// Name of the tensor there.
    pub name: String,
    /// Whether it is stored `[in, out]` (GPT-2's Conv1D).
    pub transposed: bool,
    /// First output row of this parameter in the stored tensor, and the stored tensor's
    /// number of output rows, where several are fused.
    pub fused: Option<(usize, usize)>,
}

/// A logical tensor of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Henge's name, also the name in checkpoints.
    pub name: String,
    /// Global, unpadded shape: `[out, in]` or `[channels]`.
    pub shape: Vec<usize>,
    /// How tensor parallelism splits it.
    pub split: Split,
    /// Whether weight decay applies: matrices only.
    pub decay: bool,
    /// Initial values.
    pub init: Init,
    /// Place along the pipeline.
    pub home: Home,
    /// Place in a Hugging Face folder.
    pub hf: HfSource,
}

impl Parameter {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows and columns; a vector is one column.
    pub fn matrix(&self) -> (usize, usize) {
        (self.shape[0], self.shape.get(1).copied().unwrap_or(1))
    }

    /// The block `(first row, rows, first column, columns)` that tensor rank `rank` of
    /// `tensor` holds.
    pub fn block(&self, model: &Model, rank: usize, tensor: usize) -> (usize, usize, usize, usize) {
        let (rows, columns) = self.matrix();
        match self.split {
            Split::Whole => (0, rows, 0, columns),
            Split::Rows => (rank * (rows / tensor), rows / tensor, 0, columns),
            Split::Columns => (0, rows, rank * (columns / tensor), columns / tensor),
            Split::Vocabulary => {
                let (start, end) = model.vocab_range(rank, tensor);
                (start, end - start, 0, columns)
            }
        }
    }
}

/// Every logical tensor of a model, in the order of the forward pass. A tied head has
/// no table of its own.
pub fn parameters(model: &Model) -> Vec<Parameter> {
    let list = List { model, list: Vec::new() };
    match model.arch {
        Arch::Gpt => list.gpt(),
        Arch::Llama => list.llama(),
        Arch::Bert => list.bert(),
    }
}

struct List<'a> {
    model: &'a Model,
    list: Vec<Parameter>,
}

impl List<'_> {
    fn gpt(mut self) -> Vec<Parameter> {
        let m = self.model;
        self.table("embedding.token", m.vocab_size, Split::Vocabulary, Home::Embedding, "transformer.wte.weight");
        self.table("embedding.position", m.seq_len, Split::Whole, Home::Embedding, "transformer.wpe.weight");
        for layer in 0..m.layers {
            self.gpt_layer(layer);
        }
        self.norm("final_norm", Home::Head, "transformer.ln_f");
        if !m.tie_embeddings {
            self.table("head", m.vocab_size, Split::Vocabulary, Home::Head, "lm_head.weight");
        }
        self.list
    }

    fn gpt_layer(&mut self, layer: usize) {
        let m = self.model;
        let (home, hf) = (Home::Layer(layer), format!("transformer.h.{layer}"));
        let name = |part: &str| format!("layer.{layer}.{part}");
        let width = m.heads * m.head_dim;
        self.norm(&name("norm1"), home, &format!("{hf}.ln_1"));
        let fused = |place: usize| Linear {
            out: width,
            input: m.hidden,
            split: Split::Rows,
            residual: false,
            fused: Some((place * width, 3 * width)),
        };
        // The three weights stand side by side, then the three biases: a rank's fused
        // product is then one range of its memory.
        for (place, part) in ["q", "k", "v"].into_iter().enumerate() {
            let (name, hf) = (name(&format!("attention.{part}")), format!("{hf}.attn.c_attn.weight"));
            self.weight(&name, home, &hf, fused(place), true);
        }
        for (place, part) in ["q", "k", "v"].into_iter().enumerate() {
            let (name, hf) = (name(&format!("attention.{part}.bias")), format!("{hf}.attn.c_attn.bias"));
            self.bias(&name, home, &hf, fused(place));
        }
        let linear = Linear { out: m.hidden, input: width, split: Split::Columns, residual: true, fused: None };
        self.conv1d(&name("attention.output"), home, &format!("{hf}.attn.c_proj"), linear);
        self.norm(&name("norm2"), home, &format!("{hf}.ln_2"));
        let linear = Linear { out: m.ffn_hidden, input: m.hidden, split: Split::Rows, residual: false, fused: None };
        self.conv1d(&name("mlp.up"), home, &format!("{hf}.mlp.c_fc"), linear);
        let linear = Linear { out: m.hidden, input: m.ffn_hidden, split: Split::Columns, residual: true, fused: None };
        self.conv1d(&name("mlp.down"), home, &format!("{hf}.mlp.c_proj"), linear);
    }

    fn llama(mut self) -> Vec<Parameter> {
        let m = self.model;
        self.table("embedding.token", m.vocab_size, Split::Vocabulary, Home::Embedding, "model.embed_tokens.weight");
        for layer in 0..m.layers {
            self.llama_layer(layer);
        }
        self.gain("final_norm.gain", Home::Head, "model.norm.weight");
        if !m.tie_embeddings {
            self.table("head", m.vocab_size, Split::Vocabulary, Home::Head, "lm_head.weight");
        }
        self.list
    }

    fn llama_layer(&mut self, layer: usize) {
        let m = self.model;
        let (home, hf) = (Home::Layer(layer), format!("model.layers.{layer}"));
        let (width, kv_width) = (m.heads * m.head_dim, m.kv_heads * m.head_dim);
        let rows = |out, input| Linear { out, input, split: Split::Rows, residual: false, fused: None };
        let columns = |out, input| Linear { out, input, split: Split::Columns, residual: true, fused: None };
        let mut add = |part: &str, source: &str, linear: Linear| {
            self.weight(&format!("layer.{layer}.{part}"), home, &format!("{hf}.{source}.weight"), linear, false);
        };
        let fused = [("q", width), ("k", kv_width), ("v", kv_width)];
        for (part, out) in fused {
            add(&format!("attention.{part}"), &format!("self_attn.{part}_proj"), rows(out, m.hidden));
        }
        if m.qkv_bias {
            for (part, out) in fused {
                let (name, hf) =
                    (format!("layer.{layer}.attention.{part}.bias"), format!("{hf}.self_attn.{part}_proj"));
                self.bias(&name, home, &format!("{hf}.bias"), rows(out, m.hidden));
            }
        }
        let mut add = |part: &str, source: &str, linear: Linear| {
            self.weight(&format!("layer.{layer}.{part}"), home, &format!("{hf}.{source}.weight"), linear, false);
        };
        add("attention.output", "self_attn.o_proj", columns(m.hidden, width));
        add("mlp.gate", "mlp.gate_proj", rows(m.ffn_hidden, m.hidden));
        add("mlp.up", "mlp.up_proj", rows(m.ffn_hidden, m.hidden));
        add("mlp.down", "mlp.down_proj", columns(m.hidden, m.ffn_hidden));
        self.gain(&format!("layer.{layer}.norm1.gain"), home, &format!("{hf}.input_layernorm.weight"));
        self.gain(&format!("layer.{layer}.norm2.gain"), home, &format!("{hf}.post_attention_layernorm.weight"));
    }

    /// Names of `BertForPreTraining`, or of `MegatronBertForPreTraining` with pre-layer-norm.
    fn bert(mut self) -> Vec<Parameter> {
        let (m, embeddings) = (self.model, "bert.embeddings");
        let mut table = |part: &str, rows, split, hf: &str| {
            let name = format!("embedding.{part}");
            self.table(&name, rows, split, Home::Embedding, &format!("{embeddings}.{hf}.weight"));
        };
        table("token", m.vocab_size, Split::Vocabulary, "word_embeddings");
        table("position", m.seq_len, Split::Whole, "position_embeddings");
        if m.token_types > 0 {
            table("type", m.token_types, Split::Whole, "token_type_embeddings");
        }
        if m.norm == NormPlacement::Post {
            self.norm("embedding.norm", Home::Embedding, &format!("{embeddings}.LayerNorm"));
        }
        for layer in 0..m.layers {
            self.bert_layer(layer);
        }
        if m.norm == NormPlacement::Pre {
            self.norm("final_norm", Home::Head, "bert.encoder.ln");
        }
        match m.task {
            Some(task) => self.task_head(task),
            None => self.bert_head(),
        }
        self.list
    }

    fn bert_layer(&mut self, layer: usize) {
        let m = self.model;
        let (home, hf) = (Home::Layer(layer), format!("bert.encoder.layer.{layer}"));
        let name = |part: &str| format!("layer.{layer}.{part}");
        let (norm1, norm2) = match m.norm {
            NormPlacement::Pre => ("attention.ln", "ln"),
            NormPlacement::Post => ("attention.output.LayerNorm", "output.LayerNorm"),
        };
        let width = m.heads * m.head_dim;
        let linear = |out, input, split| Linear { out, input, split, residual: split == Split::Columns, fused: None };
        let qkv = linear(width, m.hidden, Split::Rows);
        let parts = [("q", "query"), ("k", "key"), ("v", "value")];
        for (part, source) in parts {
            let source = format!("{hf}.attention.self.{source}.weight");
            self.weight(&name(&format!("attention.{part}")), home, &source, qkv, false);
        }
        for (part, source) in parts {
            let source = format!("{hf}.attention.self.{source}.bias");
            self.bias(&name(&format!("attention.{part}.bias")), home, &source, qkv);
        }
        let mut dense = |part: &str, source: &str, linear: Linear| {
            self.dense(&name(part), home, &format!("{hf}.{source}"), linear);
        };
        dense("attention.output", "attention.output.dense", linear(m.hidden, width, Split::Columns));
        dense("mlp.up", "intermediate.dense", linear(m.ffn_hidden, m.hidden, Split::Rows));
        dense("mlp.down", "output.dense", linear(m.hidden, m.ffn_hidden, Split::Columns));
        self.norm(&name("norm1"), home, &format!("{hf}.{norm1}"));
        self.norm(&name("norm2"), home, &format!("{hf}.{norm2}"));
    }

    /// Masked-token head (dense, norm, table, bias of the vocabulary) and sentence-order
    /// head (pooler, two classes).
    fn bert_head(&mut self) {
        let (m, home) = (self.model, Home::Head);
        let whole = |out| Linear { out, input: m.hidden, split: Split::Whole, residual: false, fused: None };
        self.dense("head.dense", home, "cls.predictions.transform.dense", whole(m.hidden));
        self.norm("head.norm", home, "cls.predictions.transform.LayerNorm");
        if !m.tie_embeddings {
            self.table("head", m.vocab_size, Split::Vocabulary, home, "cls.predictions.decoder.weight");
        }
        let hf = HfSource { name: "cls.predictions.bias".to_string(), transposed: false, fused: None };
        self.vector("head.bias", m.vocab_size, Split::Vocabulary, Init::Zeros, home, hf);
        self.dense("pooler", home, "bert.pooler.dense", whole(m.hidden));
        self.dense("order", home, "cls.seq_relationship", whole(2));
    }

    /// Pooler, where the task reads it, and one linear layer; names of
    /// `BertForSequenceClassification`, `BertForMultipleChoice` and `BertForQuestionAnswering`.
    fn task_head(&mut self, task: TaskHead) {
        let (m, home) = (self.model, Home::Head);
        let whole = |out| Linear { out, input: m.hidden, split: Split::Whole, residual: false, fused: None };
        if task.is_pooled() {
            self.dense("pooler", home, "bert.pooler.dense", whole(m.hidden));
        }
        let hf = if task.is_pooled() { "classifier" } else { "qa_outputs" };
        self.dense("task", home, hf, whole(task.outputs()));
    }

    /// Weight and bias.
    fn dense(&mut self, name: &str, home: Home, hf: &str, linear: Linear) {
        self.weight(name, home, &format!("{hf}.weight"), linear, false);
        self.bias(&format!("{name}.bias"), home, &format!("{hf}.bias"), linear);
    }

    fn table(&mut self, name: &str, rows: usize, split: Split, home: Home, hf: &str) {
        let linear = Linear { out: rows, input: self.model.hidden, split, residual: false, fused: None };
        self.weight(name, home, hf, linear, false);
    }

    /// Weight and bias under GPT-2's `[in, out]` storage.
    fn conv1d(&mut self, name: &str, home: Home, hf: &str, linear: Linear) {
        self.weight(name, home, &format!("{hf}.weight"), linear, true);
        self.bias(&format!("{name}.bias"), home, &format!("{hf}.bias"), linear);
    }

    /// A row-parallel bias is whole: it is added after the sum over ranks.
    fn bias(&mut self, name: &str, home: Home, hf: &str, linear: Linear) {
        let split = if linear.split == Split::Rows { Split::Rows } else { Split::Whole };
        let hf = HfSource { name: hf.to_string(), transposed: false, fused: linear.fused };
        self.vector(name, linear.out, split, Init::Zeros, home, hf);
    }

    fn weight(&mut self, name: &str, home: Home, hf: &str, linear: Linear, transposed: bool) {
        let m = self.model;
        let residual = if linear.residual { (2.0 * m.layers as f64).sqrt() } else { 1.0 };
        self.list.push(Parameter {
            name: format!("{name}.weight"),
            shape: vec![linear.out, linear.input],
            split: linear.split,
            decay: true,
            init: Init::Normal(m.init_std / residual),
            home,
            hf: HfSource { name: hf.to_string(), transposed, fused: linear.fused },
        });
    }

    fn norm(&mut self, name: &str, home: Home, hf: &str) {
        self.gain(&format!("{name}.gain"), home, &format!("{hf}.weight"));
        let hf = HfSource { name: format!("{hf}.bias"), transposed: false, fused: None };
        self.vector(&format!("{name}.bias"), self.model.hidden, Split::Whole, Init::Zeros, home, hf);
    }

    fn gain(&mut self, name: &str, home: Home, hf: &str) {
        let hf = HfSource { name: hf.to_string(), transposed: false, fused: None };
        self.vector(name, self.model.hidden, Split::Whole, Init::Ones, home, hf);
    }

    fn vector(&mut self, name: &str, len: usize, split: Split, init: Init, home: Home, hf: HfSource) {
        let shape = vec![len];
        self.list.push(Parameter { name: name.to_string(), shape, split, decay: false, init, home, hf });
    }
}

#[derive(Clone, Copy)]
struct Linear {
    out: usize,
    input: usize,
    split: Split,
    residual: bool,
    fused: Option<(usize, usize)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{formulas, preset};

    fn small(name: &str) -> Model {
        let shape = preset(name).expect(name);
        Model { layers: 3, hidden: 64, heads: 4, kv_heads: shape.kv_heads.min(4), head_dim: 16, ..shape }
    }

    #[test]
    fn every_list_has_as_many_elements_as_the_closed_form() {
        let (gpt, bert, llama) = (small("gpt2-124m"), small("bert-336m"), small("llama3-8b"));
        let untied = Model { tie_embeddings: false, ..bert.clone() };
        let post = Model { norm: NormPlacement::Post, ..bert.clone() };
        let biased = Model { qkv_bias: true, kv_heads: 2, ..llama.clone() };
        for model in [gpt, bert, untied, post, llama, biased] {
            let listed: usize = parameters(&model).iter().map(Parameter::len).sum();
            assert_eq!(listed as f64, formulas::parameters(&model), "{model:?}");
        }
    }

    #[test]
    fn names_are_unique_in_each_list() {
        for name in ["gpt2-124m", "bert-336m", "llama3-8b"] {
            let list = parameters(&small(name));
            let names: std::collections::BTreeSet<_> = list.iter().map(|p| &p.name).collect();
            assert_eq!(names.len(), list.len(), "{name}");
        }
    }
}
