//! Named model shapes of the papers.

use crate::Model;

/// The model of a preset's name, or `None` for an unknown name.
pub fn preset(_name: &str) -> Option<Model> {
    None
}

/// Every preset's name.
pub fn preset_names() -> Vec<&'static str> {
    Vec::new()
}
