//! From a run file, its overrides and its starting weights to a checked run.

use crate::failure::Failure;
use henge_checkpoint::{Block, CheckpointError, Source, open_source};
use henge_spec::{Arch, Home, Model, Parameter, Run, Settings, parameters};
use henge_train::ReadWeights;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

pub fn resolve(file: &Path, overrides: &[String]) -> Result<(Run, Option<ReadWeights>), Failure> {
    let mut settings = read(file, overrides)?;
    let weights = match settings.text("init.from").map(str::to_string) {
        Some(from) => Some(adopt(&mut settings, Path::new(&from))?),
        None => None,
    };
    let run = Run::resolve(settings)?;
    let weights = weights.map(|source| reader(source, &run.model)).transpose()?;
    Ok((run, weights))
}

/// A run file and its overrides, without a meaning yet.
pub fn read(file: &Path, overrides: &[String]) -> Result<Settings, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::request(format!("{name}: {error}; give the path of a run file")))?;
    let mut settings = Settings::parse(&text, &name)?;
    overrides.iter().try_for_each(|text| settings.set(text))?;
    Ok(settings)
}

fn adopt(settings: &mut Settings, from: &Path) -> Result<Box<dyn Source>, Failure> {
    let source = open_source(from)?;
    settings.adopt(&source.facts(), &origin(source.as_ref()))?;
    Ok(source)
}

/// What tells of a model beside its weights.
pub fn origin(source: &dyn Source) -> String {
    let config = source.path().join("config.json");
    let told = if config.is_file() { config.as_path() } else { source.path() };
    told.display().to_string()
}

/// Starting weights. What an encoder's heads lack there is drawn, and said so: folders of the bare
/// `BertModel` have none, and no pretrained encoder has a task's layer.
pub fn reader(source: Box<dyn Source>, model: &Model) -> Result<ReadWeights, Failure> {
    let absent = absent_heads(source.as_ref(), model)?;
    if !absent.is_empty() {
        let (path, names) = (source.path().display(), Vec::from_iter(absent.iter().map(String::as_str)).join(", "));
        eprintln!("{path} has no {names}: drawn from run.seed");
    }
    Ok(Arc::new(move |parameter: &Parameter, (row, rows, column, columns), out: &mut [f32]| {
        if absent.contains(&parameter.name) {
            return Ok(false);
        }
        source.read(parameter, Block { row, rows, column, columns }, out)?;
        Ok(true)
    }))
}

/// The tensors of an encoder's heads that are not in `source`; a task's layer counts as absent,
/// as another task's may stand there.
fn absent_heads(source: &dyn Source, model: &Model) -> Result<BTreeSet<String>, CheckpointError> {
    let is_head = |p: &Parameter| p.home == Home::Head && !p.name.starts_with("final_norm");
    let mut absent = BTreeSet::new();
    for parameter in parameters(model).into_iter().filter(|p| model.arch == Arch::Bert && is_head(p)) {
        if parameter.name.starts_with("task.") {
            absent.insert(parameter.name);
            continue;
        }
        match source.read(&parameter, Block { row: 0, rows: 1, column: 0, columns: 1 }, &mut [0.0]) {
            Ok(()) => {}
            Err(CheckpointError::NoTensor { .. }) => _ = absent.insert(parameter.name),
            Err(error) => return Err(error),
        }
    }
    Ok(absent)
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        if error.is_machine() { Self::run(error) } else { Self::request(error) }
    }
}
