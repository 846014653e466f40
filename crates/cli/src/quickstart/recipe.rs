//! The run file of a quickstart: a model that learns within minutes, split over the cores.

use std::path::Path;

const HEADS: usize = 4;
const SEQUENCES: usize = 16;

/// The split and the length of the run.
pub struct Recipe {
    cores: usize,
    tensor: usize,
    data: usize,
    vocabulary: usize,
    steps: u64,
}

impl Recipe {
    /// Tensor ranks first, one a core, as many as the heads allow; then replicas, as many as
    /// the batch allows; both powers of two. Cores that are left become threads of ranks.
    pub fn for_machine(vocabulary: usize, steps: u64) -> Self {
        let cores = crate::cores::cores();
        Self::for_cores(cores, vocabulary, steps)
    }

    fn for_cores(cores: usize, vocabulary: usize, steps: u64) -> Self {
        let tensor = power_of_two_within(cores.min(HEADS));
        let data = power_of_two_within((cores / tensor).min(SEQUENCES));
        Self { cores, tensor, data, vocabulary, steps }
    }

    /// The choice in words.
    pub fn why(&self) -> String {
        let Self { cores, tensor, data, .. } = self;
        format!(
            "\n{cores} cores: {tensor} tensor parallel ranks (a power of two up to the {HEADS} heads), {data} data \
             parallel (a power of two of the cores left, up to the {SEQUENCES} sequences of a step)"
        )
    }

    /// The run file.
    pub fn text(&self, run: &Path, corpus: &Path, tokenizer: &Path) -> String {
        let Self { tensor, data, vocabulary, steps, .. } = self;
        let quoted = |path: &Path| toml_string(&path.display().to_string());
        let (run, corpus, tokenizer) = (quoted(run), quoted(corpus), quoted(tokenizer));
        let (micro, eval_every) = (SEQUENCES / data, steps.div_ceil(2).max(1));
        let warmup = steps / 10;
        format!(
            "# Written by henge quickstart.\n\
             [run]\ndir = {run}\n\n\
             [model]\nlayers = 4\nhidden = 128\nheads = {HEADS}\nseq_len = 128\nvocab_size = {vocabulary}\n\
             dropout = 0.0\n\n\
             [layout]\ntensor = {tensor}\ndata = {data}\n\n\
             [train]\nsteps = {steps}\nglobal_batch = {SEQUENCES}\nmicro_batch = {micro}\nprecision = \"f32\"\n\
             optimizer = {{ lr = 3e-3, min_lr = 3e-4, warmup_steps = {warmup}, decay = \"cosine\", weight_decay = 0.1 }}\n\
             eval_every = {eval_every}\neval_steps = 32\n\n\
             [data]\ntrain = [{corpus}]\nsplit = [95, 5, 0]\ntokenizer = {tokenizer}\n"
        )
    }
}

/// The largest power of two that is not above `n`, at least 1.
fn power_of_two_within(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

/// A string as TOML writes it: JSON's escapes are TOML's.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use henge_spec::{Run, Settings};

    #[test]
    fn cores_become_tensor_ranks_first() {
        let split = |cores| {
            let recipe = Recipe::for_cores(cores, 2048, 100);
            (recipe.tensor, recipe.data)
        };
        assert_eq!([1, 2, 3, 4, 8, 12, 96].map(split), [(1, 1), (2, 1), (2, 1), (4, 1), (4, 2), (4, 2), (4, 16)]);
    }

    #[test]
    fn every_recipe_is_a_run_file() {
        for (cores, steps) in [(1, 1), (2, 300), (6, 20), (64, 1000)] {
            let recipe = Recipe::for_cores(cores, 1999, steps);
            let text = recipe.text(Path::new("a \"b\"/run"), Path::new("c\\d"), Path::new("t.json"));
            let run = Run::resolve(Settings::parse(&text, "run.toml").unwrap()).unwrap();
            assert_eq!((run.dir.as_str(), run.train.steps), ("a \"b\"/run", steps));
            assert!(run.layout.ranks() <= cores);
        }
    }
}
