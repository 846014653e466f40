//! Two models, tensor by tensor.

use crate::{Block, CheckpointError, Kind, Source, model_of};
use henge_spec::{Parameter, parameters};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Elements read at a time from either side.
const PANEL: usize = 1 << 20;

/// How one tensor of two sources compares.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TensorDiff {
    /// Weight or moment.
    pub kind: Kind,
    /// Logical name.
    pub name: String,
    /// Shape in the first, `None` where it is not there.
    pub left: Option<Vec<usize>>,
    /// Shape in the second.
    pub right: Option<Vec<usize>>,
    /// The numbers, where both have the tensor in one shape.
    pub numbers: Option<Numbers>,
}

/// Norms and differences, summed in float64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Numbers {
    /// Euclidean norm in the first.
    pub left_norm: f64,
    /// Euclidean norm in the second.
    pub right_norm: f64,
    /// Euclidean norm of the difference.
    pub difference_norm: f64,
    /// Largest absolute difference.
    pub largest: f64,
    /// Elements whose bits differ.
    pub differing: u64,
}

impl TensorDiff {
    /// Whether both have the tensor with the same bits.
    pub fn is_same(&self) -> bool {
        self.numbers.is_some_and(|numbers| numbers.differing == 0)
    }
}

/// Compares every tensor that either has, in the order of the forward pass.
pub fn diff(left: &dyn Source, right: &dyn Source) -> Result<Vec<TensorDiff>, CheckpointError> {
    let (left_list, right_list) = (tensors(left)?, tensors(right)?);
    let mut order: Vec<_> = left_list.iter().map(|(kind, p)| (*kind, p.name.clone())).collect();
    let known: BTreeSet<_> = order.iter().cloned().collect();
    order.extend(right_list.iter().map(|(kind, p)| (*kind, p.name.clone())).filter(|key| !known.contains(key)));
    let by_name = |list: Vec<(Kind, Parameter)>| -> BTreeMap<_, _> {
        list.into_iter().map(|(kind, p)| ((kind, p.name.clone()), p)).collect()
    };
    let (left_list, right_list) = (by_name(left_list), by_name(right_list));
    let one = |key: (Kind, String)| {
        let (a, b) = (left_list.get(&key), right_list.get(&key));
        let numbers = match (a, b) {
            (Some(a), Some(b)) if a.shape == b.shape => Some(numbers(key.0, (left, a), (right, b))?),
            _ => None,
        };
        let shape = |p: Option<&Parameter>| p.map(|p| p.shape.clone());
        Ok(TensorDiff { kind: key.0, name: key.1, left: shape(a), right: shape(b), numbers })
    };
    order.into_iter().map(one).collect()
}

fn tensors(source: &dyn Source) -> Result<Vec<(Kind, Parameter)>, CheckpointError> {
    let list = parameters(&model_of(&source.facts(), source.path())?);
    Ok(source.kinds().into_iter().flat_map(|kind| list.clone().into_iter().map(move |p| (kind, p))).collect())
}

/// Some rows at a time, so that memory does not grow with the tensor.
fn numbers(
    kind: Kind,
    (left, a): (&dyn Source, &Parameter),
    (right, b): (&dyn Source, &Parameter),
) -> Result<Numbers, CheckpointError> {
    let (rows, columns) = a.matrix();
    let at_once = (PANEL / columns.max(1)).max(1);
    let mut sums = Numbers::default();
    for row in (0..rows).step_by(at_once) {
        let block = Block { row, rows: at_once.min(rows - row), column: 0, columns };
        let (mut x, mut y) = (vec![0.0; block.len()], vec![0.0; block.len()]);
        left.read_kind(kind, a, block, &mut x)?;
        right.read_kind(kind, b, block, &mut y)?;
        x.iter().zip(&y).for_each(|(&x, &y)| sums.add(x, y));
    }
    sums.left_norm = sums.left_norm.sqrt();
    sums.right_norm = sums.right_norm.sqrt();
    sums.difference_norm = sums.difference_norm.sqrt();
    Ok(sums)
}

impl Numbers {
    /// Adds squares; the caller takes the roots.
    fn add(&mut self, x: f32, y: f32) {
        let (left, right) = (f64::from(x), f64::from(y));
        // Equal infinities differ by nothing, not by NaN.
        let difference = if x == y { 0.0 } else { (left - right).abs() };
        self.left_norm += left * left;
        self.right_norm += right * right;
        self.difference_norm += difference * difference;
        // Once not a number, always: `max` alone would forget it.
        let lost = difference.is_nan() || self.largest.is_nan();
        self.largest = if lost { f64::NAN } else { self.largest.max(difference) };
        self.differing += u64::from(x.to_bits() != y.to_bits());
    }
}
