//! A run's folder: locked while the run lasts, and never shared by two runs.

use super::order;
use crate::failure::Failure;
use henge_checkpoint::Checkpoint;
use henge_files::{LockFile, write_atomic};
use henge_spec::{Data, Run, Settings};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open run folder; the lock is held until it is dropped.
pub struct Folder {
    path: PathBuf,
    _lock: LockFile,
}

/// Where a run begins: `--resume`.
#[derive(Clone, Debug)]
pub enum Resume {
    /// From the folder's newest checkpoint; from the start where there is none.
    Auto,
    /// From the start, in a folder without a run.
    Never,
    /// From this checkpoint or the newest of this run folder.
    From(PathBuf),
}

impl std::str::FromStr for Resume {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "never" => Self::Never,
            path => Self::From(path.into()),
        })
    }
}

impl Folder {
    /// Makes and locks the folder; one that holds another run is refused.
    pub fn open(run: &Run, resume: &Resume) -> Result<Self, Failure> {
        let path = PathBuf::from(&run.dir);
        std::fs::create_dir_all(&path).map_err(|error| Failure::run(format!("{}: {error}", path.display())))?;
        let lock = LockFile::acquire(&path.join("lock")).map_err(Failure::request)?;
        let folder = Self { path, _lock: lock };
        match resume {
            Resume::Never => folder.refuse_any(run)?,
            Resume::Auto | Resume::From(_) => folder.refuse_other(run)?,
        }
        // A killed run's unfinished save may be whole; this run's failure must not publish it.
        henge_checkpoint::discard_staged(&folder.path.join("checkpoints"));
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The checkpoint to go on from, held against the run's model.
    pub fn checkpoint(&self, run: &Run, resume: &Resume) -> Result<Option<Arc<Checkpoint>>, Failure> {
        let found = match resume {
            Resume::Never => None,
            Resume::Auto => henge_checkpoint::latest(&self.path.join("checkpoints"))?,
            Resume::From(path) => Some(Checkpoint::open(&henge_checkpoint::newest(path)?)?),
        };
        if let Some(checkpoint) = &found {
            checkpoint.check_model(&run.model)?;
            self.leave_other_line(checkpoint, run)?;
        }
        Ok(found.map(Arc::new))
    }

    /// Going on from an older checkpoint leaves the newer ones behind: they are set aside, or the
    /// next start would go on from them. Those of a run from elsewhere are not ours to move.
    fn leave_other_line(&self, checkpoint: &Checkpoint, run: &Run) -> Result<(), Failure> {
        let (ours, step) = (self.path.join("checkpoints"), checkpoint.manifest().run.step);
        let newer = henge_checkpoint::published(&ours)?.iter().any(|(other, _)| *other > step);
        let canonical = |path: &Path| path.canonicalize().ok();
        let inside = checkpoint.folder().parent().and_then(canonical) == canonical(&ours);
        if newer && !inside {
            return Err(self.taken(run, "with newer checkpoints than the one to go on from"));
        }
        for path in henge_checkpoint::set_aside_after(&ours, step)? {
            eprintln!("set aside {}: this run goes on from step {step}", path.display());
        }
        Ok(())
    }

    /// Writes `config.toml`.
    pub fn write_config(&self, run: &Run) -> Result<(), Failure> {
        let path = self.path.join("config.toml");
        write_atomic(&path, |file| file.write_all(run.render().as_bytes())).map_err(Failure::run)
    }

    fn refuse_any(&self, run: &Run) -> Result<(), Failure> {
        let saved = !henge_checkpoint::published(&self.path.join("checkpoints"))?.is_empty();
        if saved || self.path.join("metrics.jsonl").exists() {
            Err(self.taken(run, "--resume never starts anew"))
        } else {
            Ok(())
        }
    }

    /// Model, seed and data make a run; layout, steps and recipe may change on the way.
    fn refuse_other(&self, run: &Run) -> Result<(), Failure> {
        let path = self.path.join("config.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { return Ok(()) };
        let there = Settings::parse(&text, &path.display().to_string()).and_then(Run::resolve)?;
        let (a, b) = (there.model.facts(), run.model.facts());
        let shape = |key: &&String| !key.contains("dropout") && !key.ends_with("init_std");
        if let Some(key) = a.keys().chain(b.keys()).filter(shape).find(|key| a.get(*key) != b.get(*key)) {
            return Err(self.taken(run, &format!("its {key} differs")));
        }
        if there.seed != run.seed {
            return Err(self.taken(run, "its run.seed differs"));
        }
        // Sets of its own let a run train on what was held out before.
        let data = |run: &Run| {
            let Data { train, stages, order, batches, split, valid, .. } = run.data.clone();
            let task = run.task.as_ref().map(|task| (task.name, task.train.clone(), task.length));
            (train, stages, order, batches, split, valid.is_empty(), task)
        };
        if data(&there) != data(run) {
            return Err(self.taken(run, "its data differ"));
        }
        if let Some(samples) = order::made_for(&there).filter(|_| order::made_for(&there) != order::made_for(run)) {
            return Err(self.taken(run, &format!("its order was made for data.order_samples = {samples}")));
        }
        Ok(())
    }

    fn taken(&self, run: &Run, why: &str) -> Failure {
        let (path, place) = (self.path.display(), run.place("run.dir"));
        Failure::request(format!(
            "{path} already holds another run ({why}); choose another run.dir ({place}) or move that folder away"
        ))
    }
}
