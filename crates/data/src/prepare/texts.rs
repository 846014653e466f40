//! The texts of inputs one after another, for whoever needs text rather than ids.

use super::encode::{each_document, utf8};
use super::inputs::Input;
use super::reader::{Content, Position, Reader};
use crate::error::DataError;
use crate::tokenizer::CutRule;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Calls `take` with each text of the inputs, a long one in pieces cut in front of a blank, until it
/// returns false; returns how many texts there were.
pub fn each_text(inputs: &[Input], keys: &[String], take: &mut dyn FnMut(&str) -> bool) -> Result<u64, DataError> {
    let bytes_read = Arc::new(AtomicU64::new(0));
    let mut reader = Reader { inputs, keys, rule: CutRule::BehindAnything, encoder: None, bytes_read };
    let (mut count, mut failed) = (0, None);
    reader.run(Position::start_of(0), &mut |block| {
        let mut counted = |text: &str| {
            count += 1;
            take(text)
        };
        let taken = match &block.content {
            Content::Piece { bytes, .. } => {
                utf8(bytes, &block.path, block.first_line, block.first_byte).map(&mut counted)
            }
            Content::Lines(_) | Content::Rows { .. } => {
                each_document(&block, keys, &mut |_, fields| Ok(fields.iter().all(|text| counted(text))))
            }
        };
        taken.unwrap_or_else(|error| {
            failed = Some(error);
            false
        })
    })?;
    failed.map_or(Ok(count), Err)
}
