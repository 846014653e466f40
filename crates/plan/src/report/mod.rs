//! What a person sees: text, a page, drawings, a trace.

mod charts;
mod gantt;
mod page;
mod svg;
mod text;
mod trace;

pub use gantt::gantt;
pub use page::{Page, page};
pub use svg::{Window, figure_svg, timeline_svg};
pub use text::{artifact_text, figure_text, prediction_text, ranking_text, validation_text};
pub use trace::chrome_trace;
