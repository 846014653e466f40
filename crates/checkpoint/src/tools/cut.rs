//! How a rewritten checkpoint is cut into shards.

use crate::{Block, Kind};
use henge_spec::{Home, Model, Parameter, Split, parameters};

/// Which shard gets what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// This many shards of nearly equal size, cut between rows.
    Shards(usize),
    /// One shard for each rank of this many tensor and pipeline ranks, cut as those ranks
    /// hold it, so that each of them reads whole chunks of one file.
    Layout {
        /// Tensor parallel ranks.
        tensor: usize,
        /// Pipeline ranks.
        pipeline: usize,
    },
}

/// A block of a weight or moment.
pub(super) type Piece = (Kind, Parameter, Block);

impl Cut {
    /// Why this cut cannot be made of a model, with the way out.
    pub(super) fn problem(self, model: &Model) -> Option<(String, String)> {
        let (what, fix) = match self {
            Self::Shards(0) => ("0 shards".to_string(), "ask for 1 or more"),
            Self::Shards(_) => return None,
            Self::Layout { tensor, pipeline } if tensor == 0 || pipeline == 0 => {
                (format!("{tensor} tensor and {pipeline} pipeline ranks"), "ask for 1 or more of each")
            }
            Self::Layout { tensor, pipeline } => {
                if !model.layers.is_multiple_of(pipeline) {
                    let what = format!("{} layers are not divisible by {pipeline} pipeline ranks", model.layers);
                    return Some((what, "choose a divisor".to_string()));
                }
                let odd = parameters(model).into_iter().find(|p| !splits(p, tensor))?;
                (
                    format!("`{}` {:?} does not split over {tensor} tensor ranks", odd.name, odd.shape),
                    "choose a divisor",
                )
            }
        };
        Some((what, fix.to_string()))
    }

    /// The pieces of each shard.
    pub(super) fn pieces(self, model: &Model, kinds: &[Kind]) -> Vec<Vec<Piece>> {
        let tensors = kinds.iter().flat_map(|&kind| parameters(model).into_iter().map(move |p| (kind, p)));
        match self {
            Self::Shards(shards) => equal(tensors.collect(), shards),
            Self::Layout { tensor, pipeline } => {
                let mut pieces = vec![Vec::new(); tensor * pipeline];
                for (kind, p) in tensors {
                    let stage = stage(p.home, model.layers, pipeline);
                    let holders = if p.split == Split::Whole { 1 } else { tensor };
                    for rank in 0..holders {
                        let block = p.block(model, rank, tensor).into();
                        pieces[stage * tensor + rank].push((kind, p.clone(), block));
                    }
                }
                pieces
            }
        }
    }
}

fn splits(p: &Parameter, tensor: usize) -> bool {
    let (rows, columns) = p.matrix();
    match p.split {
        Split::Whole | Split::Vocabulary => true,
        Split::Rows => rows.is_multiple_of(tensor),
        Split::Columns => columns.is_multiple_of(tensor),
    }
}

fn stage(home: Home, layers: usize, pipeline: usize) -> usize {
    match home {
        Home::Embedding => 0,
        Home::Layer(layer) => layer / (layers / pipeline),
        Home::Head => pipeline - 1,
    }
}

/// Cuts the tensors, laid end to end, into spans that differ by at most a row.
fn equal(tensors: Vec<(Kind, Parameter)>, shards: usize) -> Vec<Vec<Piece>> {
    let total: u128 = tensors.iter().map(|(_, p)| p.len() as u128).sum();
    let mut pieces = vec![Vec::new(); shards];
    let mut start = 0;
    for (kind, p) in tensors {
        let (rows, columns) = p.matrix();
        let shard_of = |row: usize| ((start + (row * columns) as u128) * shards as u128 / total.max(1)) as usize;
        let mut row = 0;
        while row < rows {
            let shard = shard_of(row);
            // The first row of the next shard: shards only rise along the rows.
            let end = row + partition(rows - row, |further| shard_of(row + further) == shard);
            pieces[shard].push((kind, p.clone(), Block { row, rows: end - row, column: 0, columns }));
            row = end;
        }
        start += p.len() as u128;
    }
    pieces
}

/// The first number below `end` for which `holds` no longer does, by halving.
fn partition(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_of_nearly_equal_size_and_hold_everything() {
        let model = Model::gpt(2, 16, 4, 8, 50);
        let whole: usize = parameters(&model).iter().map(Parameter::len).sum();
        for shards in [1, 2, 3, 7, 20] {
            let pieces = Cut::Shards(shards).pieces(&model, &[Kind::Weight, Kind::FirstMoment]);
            let sizes: Vec<usize> = pieces.iter().map(|p| p.iter().map(|(_, _, b)| b.len()).sum()).collect();
            assert_eq!(sizes.iter().sum::<usize>(), 2 * whole);
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 2 * 64, "{sizes:?}"); // the longest row has 64 elements
        }
    }
}
