//! What the papers print, and how far the planner is from it.
//!
//! The rows live in `published/*.toml`: each names its model, layout and switches, the
//! printed value and its last digit. Nothing in the cost model looks at them.

mod artifact;
mod figures;
mod rows;
mod validate;
mod zero_bubble;

pub use artifact::{ArtifactRow, artifact_rows};
pub use figures::{Figure, FigureSeries, figure, figure_numbers, table};
pub use rows::{Quantity, Question, Row, Series, all_series};
pub use validate::{Family, Judged, Summary, judge, summary, validate};
pub use zero_bubble::{BubbleRow, bubble_rows};
