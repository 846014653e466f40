//! Every recipe is a run that could start.

use henge_spec::{Run, Settings};
use std::path::Path;

#[test]
fn every_recipe_resolves() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes");
    let recipes: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(recipes.len() >= 14, "{} recipes", recipes.len());
    for path in recipes {
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let run = Settings::parse(&text, &name).and_then(Run::resolve).unwrap_or_else(|error| panic!("{error}"));
        assert!(run.microbatches(run.train.batching.global) > 0, "{name}");
    }
}
