//! The model of a checkpoint or folder, from its keys of a run file.

use crate::CheckpointError;
use henge_spec::Model;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Value;

/// The model that facts describe. `file` names their source in errors.
///
/// # Errors
/// [`CheckpointError::Model`] where a key is absent or is no value of its kind.
pub fn model_of(facts: &BTreeMap<String, Value>, file: &Path) -> Result<Model, CheckpointError> {
    let wrong = |source| CheckpointError::Model { file: file.to_path_buf(), source: Box::new(source) };
    Model::of_facts(facts, &file.display().to_string()).map_err(wrong)
}
