//! `henge finetune`: from a pretrained encoder to a task's scores.

pub mod data;
pub mod resolve;
pub mod results;
mod source;
mod watch;

use crate::failure::{Failure, print, print_json};
use crate::ranks::Ranks;
use crate::train::folder::{Folder, Resume};
use crate::train::sources::validation_batch;
use crate::train::{check_machine, finish, interrupt};
use henge_files::write_atomic;
use henge_spec::Run;
use henge_train::{Job, Options, Source};
use resolve::Resolved;
use results::{Outputs, Results};
use source::{TaskSource, TaskValidation};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use watch::Watch;

#[derive(clap::Args)]
pub struct Args {
    /// The run file (TOML), with a [task]
    run: PathBuf,
    /// Override a key: --set task.seeds=1
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let resolved = resolve::resolve(&args.run, &args.overrides)?;
    let (run, files) = (&resolved.run, &resolved.files);
    check_machine(&Ranks::Threads, run)?;
    let stop = interrupt::heed(&Ranks::Threads)?;
    let mut outputs = Vec::new();
    for index in 0..files.seeds {
        let one = train_and_predict(&resolved, index, &stop)?;
        if !args.json {
            print(&format!("{}\n", one.line(files)))?;
        }
        outputs.push(one);
    }
    let results = Results::new(run, files, &resolved.protocol, &outputs)?;
    write_results(Path::new(&run.dir), &results)?;
    if args.json { print_json(&results) } else { print(&results.lines()) }
}

/// One seed's run, in a folder of its own; one that is done already is only asked again.
fn train_and_predict(resolved: &Resolved, index: usize, stop: &Arc<AtomicBool>) -> Result<Outputs, Failure> {
    let run = resolved.of_seed(index)?;
    let folder = Folder::open(&run, &Resume::Auto)?;
    let resume = folder.checkpoint(&run, &Resume::Auto)?;
    folder.write_config(&run)?;
    let watch = Arc::new(Watch::new(run.train.steps));
    eprintln!("seed {} ({} of {})", run.seed, index + 1, resolved.files.seeds);
    watch.lines.begin(&run, Ranks::Threads.kind(), Ranks::Threads.threads(&run));
    let predict = sets(resolved, &run);
    finish(
        Ranks::Threads,
        Job {
            folder: folder.path().to_path_buf(),
            train: Arc::new(TaskSource::new(resolved.files.train.clone(), run.seed, run.train.batching)),
            valid: if run.train.eval_every > 0 { predict.clone() } else { vec![] },
            predict,
            weights: resolved.weights.clone(),
            resume,
            stop: stop.clone(),
            options: Options::default(),
            observer: watch.clone(),
            run: run.clone(),
        },
    )?;
    Ok(Outputs::new(&run, &resolved.files, &watch.take()))
}

fn sets(resolved: &Resolved, run: &Run) -> Vec<(String, Arc<dyn Source>)> {
    let global_batch = validation_batch(run);
    let set = |(file, examples): &(String, Arc<source::TaskExamples>)| {
        let source: Arc<dyn Source> = Arc::new(TaskValidation { examples: examples.clone(), global_batch });
        (file.clone(), source)
    };
    resolved.files.valid.iter().map(set).collect()
}

fn write_results(folder: &Path, results: &Results) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(results).map_err(Failure::run)? + "\n";
    write_atomic(&folder.join("results.json"), |file| file.write_all(text.as_bytes())).map_err(Failure::run)
}
