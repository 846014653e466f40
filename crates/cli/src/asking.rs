//! What `generate`, `eval` and `embed` share: a model, how it is cut, and on what it runs.

use crate::cores::{cores, threads_per_rank};
use crate::failure::Failure;
use henge_comm::threads;
use henge_cpu::Fast;
use henge_data::tokenizer::Tokenizer;
use henge_eval::{EvalError, Loaded};
use henge_spec::Layout;
use henge_tensor::Precision;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(clap::Args)]
pub struct ModelArgs {
    /// A checkpoint, a run's folder (its newest checkpoint), a Hugging Face folder, a GGUF file
    /// or a Megatron checkpoint
    #[arg(long, visible_alias = "model", value_name = "PATH")]
    pub checkpoint: PathBuf,
    /// gpt2, a tokenizer.json or a folder that holds one [default: what lies beside the
    /// checkpoint or is recorded in it]
    #[arg(long, value_name = "NAME")]
    pub tokenizer: Option<String>,
    /// Tensor ranks, pipeline ranks and replicas, as in t=2,p=2,d=1
    #[arg(long, default_value = "t=1", value_parser = layout)]
    pub layout: Layout,
    /// Precision of products: f32, bf16, f16
    #[arg(long, default_value = "f32")]
    pub precision: Precision,
    /// Threads of all ranks together [default: the cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// A model with the machine it runs on.
pub struct Asked {
    pub loaded: Arc<Loaded>,
    pub layout: Layout,
    precision: Precision,
    /// Of each rank.
    threads: usize,
}

impl ModelArgs {
    /// A decoder.
    pub fn open(&self) -> Result<Asked, Failure> {
        self.asked(Loaded::open(&self.checkpoint)?)
    }

    pub fn open_encoder(&self) -> Result<Asked, Failure> {
        self.asked(Loaded::open_encoder(&self.checkpoint)?)
    }

    /// An encoder with the head of a task.
    pub fn open_tuned(&self) -> Result<Asked, Failure> {
        self.asked(Loaded::open_tuned(&self.checkpoint)?)
    }

    fn asked(&self, loaded: Loaded) -> Result<Asked, Failure> {
        loaded.check_layout(&self.layout)?;
        let threads = threads_per_rank(self.threads.unwrap_or_else(cores), self.layout.ranks());
        Ok(Asked { loaded: Arc::new(loaded), layout: self.layout, precision: self.precision, threads })
    }

    pub fn tokenizer(&self, asked: &Asked) -> Result<Tokenizer, Failure> {
        Ok(asked.loaded.tokenizer(self.tokenizer.as_deref())?)
    }
}

impl Asked {
    pub fn engine(&self) -> threads::Options {
        threads::Options::new(self.layout.ranks(), self.threads)
    }

    /// Makes a rank's device.
    pub fn device(&self) -> impl Fn(usize) -> Fast + Send + Sync + use<> {
        let (threads, precision) = (self.threads, self.precision);
        move |_| Fast::new(threads, precision)
    }

    /// For reports: `t=2,p=1,d=1`.
    pub fn layout_text(&self) -> String {
        let Layout { tensor, pipeline, data, .. } = self.layout;
        format!("t={tensor},p={pipeline},d={data}")
    }

    pub fn precision(&self) -> Precision {
        self.precision
    }
}

fn layout(text: &str) -> Result<Layout, String> {
    let mut layout = Layout::ONE;
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not key=number; write t=2,p=2"))?;
        let axis = match key.trim() {
            "t" | "tensor" => &mut layout.tensor,
            "p" | "pipeline" => &mut layout.pipeline,
            "d" | "data" => &mut layout.data,
            other => return Err(format!("there is no axis `{other}`; choose of t, p and d")),
        };
        let number = value.trim().parse().ok().filter(|&number| (1..=1 << 16).contains(&number));
        *axis = number.ok_or_else(|| format!("`{value}` is no number of ranks; write 1 or more"))?;
    }
    Ok(layout)
}

impl From<EvalError> for Failure {
    fn from(error: EvalError) -> Self {
        if error.is_request() { Self::request(error) } else { Self::run(error) }
    }
}
