//! From a run file, its overrides and its starting weights to a checked run.

use crate::failure::Failure;
use henge_checkpoint::{Block, CheckpointError, Source, open_source};
use henge_spec::{Parameter, Run, Settings};
use henge_train::ReadWeights;
use std::path::Path;
use std::sync::Arc;

pub fn resolve(file: &Path, overrides: &[String]) -> Result<(Run, Option<ReadWeights>), Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::request(format!("{name}: {error}; give the path of a run file")))?;
    let mut settings = Settings::parse(&text, &name)?;
    overrides.iter().try_for_each(|text| settings.set(text))?;
    let weights = match settings.text("init.from").map(str::to_string) {
        Some(from) => Some(adopt(&mut settings, Path::new(&from))?),
        None => None,
    };
    Ok((Run::resolve(settings)?, weights.map(reader)))
}

fn adopt(settings: &mut Settings, from: &Path) -> Result<Box<dyn Source>, Failure> {
    let source = open_source(from)?;
    let config = source.path().join("config.json");
    let told = if config.is_file() { config.as_path() } else { source.path() };
    settings.adopt(&source.facts(), &told.display().to_string())?;
    Ok(source)
}

fn reader(source: Box<dyn Source>) -> ReadWeights {
    Arc::new(move |parameter: &Parameter, (row, rows, column, columns), out: &mut [f32]| {
        let block = Block { row, rows, column, columns };
        Ok(source.read(parameter, block, out)?)
    })
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        if error.is_machine() { Self::run(error) } else { Self::request(error) }
    }
}
