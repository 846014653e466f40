//! From a run file, its overrides and its starting weights to a checked run.

use crate::failure::Failure;
use henge_checkpoint::{Block, CheckpointError, Source, open_source};
use henge_spec::{Parameter, Run, Settings};
use henge_train::ReadWeights;
use std::path::Path;
use std::sync::Arc;

pub fn resolve(file: &Path, overrides: &[String]) -> Result<(Run, Option<ReadWeights>), Failure> {
    let mut settings = read(file, overrides)?;
    let weights = match settings.text("init.from").map(str::to_string) {
        Some(from) => Some(adopt(&mut settings, Path::new(&from))?),
        None => None,
    };
    Ok((Run::resolve(settings)?, weights.map(reader)))
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

fn reader(source: Box<dyn Source>) -> ReadWeights {
    Arc::new(move |parameter: &Parameter, (row, rows, column, columns), out: &mut [f32]| {
        let block = Block { row, rows, column, columns };
        source.read(parameter, block, out)?;
        Ok(true)
    })
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        if error.is_machine() { Self::run(error) } else { Self::request(error) }
    }
}
