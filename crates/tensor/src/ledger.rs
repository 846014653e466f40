//! What the operations of a step cost: calls, time, arithmetic and bytes by operation.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};

/// What is counted together. Products are told apart by their sizes, from which whoever
/// knows the model knows which they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// `[tokens, inputs] -> [tokens, outputs]`, with bias and non-linearity.
    Forward {
        /// Inputs of the linear.
        inputs: usize,
        /// Outputs of the linear.
        outputs: usize,
    },
    /// `[tokens, outputs] -> [tokens, inputs]`.
    InputGradient {
        /// Inputs of the linear.
        inputs: usize,
        /// Outputs of the linear.
        outputs: usize,
    },
    /// Over the tokens, to `[outputs, inputs]`.
    WeightGradient {
        /// Inputs of the linear.
        inputs: usize,
        /// Outputs of the linear.
        outputs: usize,
    },
    /// Attention forward, with rotary positions.
    Attention,
    /// Attention backward.
    AttentionBackward,
    /// Norms forward.
    Norm,
    /// Norms backward.
    NormBackward,
    /// Non-linearities backward, and their biases' gradients.
    ActivationBackward,
    /// Residual stream: sums, copies, dropout, rows taken and added.
    Residual,
    /// Look-up in the embedding's tables and its gradient.
    Embedding,
    /// Logits, their statistics and losses.
    Head,
    /// Gradients of logits, head and hidden states.
    HeadBackward,
    /// Norm of the gradients and the update.
    Optimizer,
    /// Weights brought into the order of their products.
    Prepare,
    /// Collectives and messages, waiting included.
    Communication,
}

/// Totals of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Entry {
    /// Times it ran.
    pub calls: u64,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// Floating-point operations of products, a multiply-add counted as two; 0 where there
    /// is no product.
    pub flops: f64,
    /// Bytes of operands and results, each counted once a call: the least that moves.
    pub bytes: f64,
}

impl AddAssign for Entry {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.seconds += other.seconds;
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

/// Entries that one rank's backend and communicator write and a reporter takes. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct Ledger(Arc<Mutex<BTreeMap<Operation, Entry>>>);

impl Ledger {
    /// Adds to an operation.
    pub fn add(&self, operation: Operation, entry: Entry) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(operation).or_default() += entry;
    }

    /// All entries since the last call.
    pub fn take(&self) -> BTreeMap<Operation, Entry> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_add_up_until_taken() {
        let (ledger, entry) = (Ledger::default(), Entry { calls: 1, seconds: 0.5, flops: 3.0, bytes: 8.0 });
        let clone = ledger.clone();
        ledger.add(Operation::Norm, entry);
        clone.add(Operation::Norm, entry);
        clone.add(Operation::Head, entry);
        let taken = ledger.take();
        assert_eq!(taken[&Operation::Norm], Entry { calls: 2, seconds: 1.0, flops: 6.0, bytes: 16.0 });
        assert_eq!(taken.len(), 2);
        assert!(clone.take().is_empty());
    }
}
