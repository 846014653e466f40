//! A rectangle of a logical tensor, and the question whether rectangles tile it.

use henge_spec::Parameter;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Rows `[row, row + rows)` by columns `[column, column + columns)` of a logical tensor; a
/// vector is one column. Without rows or columns it is empty, and reads and writes of it do
/// nothing: a tensor rank beyond a small vocabulary holds such a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// First row.
    pub row: usize,
    /// Number of rows.
    pub rows: usize,
    /// First column.
    pub column: usize,
    /// Number of columns.
    pub columns: usize,
}

impl From<(usize, usize, usize, usize)> for Block {
    /// From the tuple that [`Parameter::block`] returns.
    fn from((row, rows, column, columns): (usize, usize, usize, usize)) -> Self {
        Self { row, rows, column, columns }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rows {}..{}, columns {}..{}",
            self.row,
            self.row + self.rows,
            self.column,
            self.column + self.columns
        )
    }
}

impl Block {
    /// All of a tensor of this shape.
    pub fn of_shape(shape: &[usize]) -> Self {
        let (rows, columns) = matrix(shape);
        Self { row: 0, rows, column: 0, columns }
    }

    /// All of a parameter.
    pub fn whole(parameter: &Parameter) -> Self {
        Self::of_shape(&parameter.shape)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// Whether every element lies inside a tensor of this shape. Sums are checked: blocks
    /// come from files too.
    pub fn fits(&self, shape: &[usize]) -> bool {
        let (rows, columns) = matrix(shape);
        let end = |start: usize, len: usize| start.checked_add(len);
        end(self.row, self.rows).is_some_and(|end| end <= rows)
            && end(self.column, self.columns).is_some_and(|end| end <= columns)
    }

    /// The elements that both have, in the tensor's coordinates.
    pub fn intersection(&self, other: &Block) -> Option<Block> {
        let (row, rows) = overlap((self.row, self.rows), (other.row, other.rows))?;
        let (column, columns) = overlap((self.column, self.columns), (other.column, other.columns))?;
        Some(Block { row, rows, column, columns })
    }

    /// The shape a file gives this block of a tensor with `dimensions` axes.
    pub(crate) fn shape(&self, dimensions: usize) -> Vec<usize> {
        if dimensions == 1 { vec![self.rows] } else { vec![self.rows, self.columns] }
    }
}

/// Rows and columns of a shape; a vector is one column, a number one element.
pub(crate) fn matrix(shape: &[usize]) -> (usize, usize) {
    (shape.first().copied().unwrap_or(1), shape.get(1).copied().unwrap_or(1))
}

fn overlap(a: (usize, usize), b: (usize, usize)) -> Option<(usize, usize)> {
    let start = a.0.max(b.0);
    let end = (a.0 + a.1).min(b.0 + b.1);
    (start < end).then(|| (start, end - start))
}

/// Whether the blocks cover a tensor of this shape exactly once; if not, what is wrong.
pub(crate) fn check_cover(shape: &[usize], blocks: &[Block]) -> Result<(), String> {
    if let Some(outside) = blocks.iter().find(|block| !block.fits(shape)) {
        return Err(format!("{outside} lie outside its shape {shape:?}"));
    }
    let mut sorted: Vec<&Block> = blocks.iter().filter(|block| !block.is_empty()).collect();
    sorted.sort_by_key(|block| (block.row, block.column));
    for (place, a) in sorted.iter().enumerate() {
        // Blocks further on that start below this one's last row cannot meet it.
        let near = sorted[place + 1..].iter().take_while(|b| b.row < a.row + a.rows);
        if let Some(twice) = near.filter_map(|b| a.intersection(b)).next() {
            return Err(format!("{twice} are stored twice"));
        }
    }
    let whole = Block::of_shape(shape).len();
    let held: usize = sorted.iter().map(|block| block.len()).sum();
    if held == whole { Ok(()) } else { Err(format!("{} of its {whole} elements are missing", whole - held)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(row: usize, rows: usize, column: usize, columns: usize) -> Block {
        (row, rows, column, columns).into()
    }

    #[test]
    fn tilings_pass_and_gaps_and_overlaps_do_not() {
        let tiles = [block(0, 3, 0, 4), block(3, 2, 0, 1), block(3, 2, 1, 3), block(5, 0, 0, 4)];
        assert_eq!(check_cover(&[5, 4], &tiles), Ok(()));
        assert!(check_cover(&[5, 4], &tiles[..2]).unwrap_err().contains("6 of its 20 elements are missing"));
        let twice = [block(0, 3, 0, 4), block(2, 3, 0, 4)];
        assert_eq!(check_cover(&[5, 4], &twice).unwrap_err(), "rows 2..3, columns 0..4 are stored twice");
        let outside = [block(0, usize::MAX, 0, 4)];
        assert!(check_cover(&[5, 4], &outside).unwrap_err().contains("outside"));
    }

    #[test]
    fn intersections_are_in_the_tensors_coordinates() {
        assert_eq!(block(0, 3, 2, 4).intersection(&block(2, 9, 0, 3)), Some(block(2, 1, 2, 1)));
        assert_eq!(block(0, 3, 0, 4).intersection(&block(3, 1, 0, 4)), None);
        assert_eq!(block(0, 0, 0, 4).intersection(&block(0, 1, 0, 4)), None);
    }
}
