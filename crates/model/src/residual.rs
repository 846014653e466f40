//! A branch beside the residual stream, and where its norm stands (1909.08053, figure 7):
//!
//! ```text
//!   pre    y = x + dropout(branch(norm(x)) + bias)
//!   post   y = norm(x + dropout(branch(x) + bias))
//! ```

use crate::norm::{Norm, SavedNorm};
use crate::{Context, Microbatch, Store};
use henge_comm::CommError;
use henge_random::Dropout;
use henge_spec::{Model, NormPlacement};
use henge_tensor::{Backend, DropoutAt};

/// Attention or MLP: reads what is whole on every tensor rank, gives the same.
pub(crate) trait Branch<B: Backend> {
    /// What backward needs.
    type Saved;

    fn refresh(&mut self, backend: &B, values: &B::Buffer);
    /// The last linear's bias, added with dropout and residual after the reduction.
    fn bias(&self) -> Option<&B::Vector>;
    fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
    ) -> Result<(B::Activation, Self::Saved), CommError>;
    /// The branch's input, which it keeps.
    fn input(saved: &Self::Saved) -> &B::Activation;
    /// Gradient of the input from that of the output.
    fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: &B::Activation,
        saved: Self::Saved,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError>;
}

pub(crate) struct Residual<B: Backend, F: Branch<B>> {
    norm: Norm<B>,
    pub branch: F,
    placement: NormPlacement,
    layer: usize,
}

/// What backward needs.
pub(crate) struct SavedResidual<B: Backend, F: Branch<B>> {
    norm: SavedNorm<B>,
    branch: F::Saved,
}

impl<B: Backend, F: Branch<B>> Residual<B, F> {
    /// `branch` of layer `layer` beside the norm `layer.N.{norm}`.
    pub fn new(
        backend: &B,
        store: &Store<B>,
        chunk: usize,
        model: &Model,
        (layer, norm): (usize, &str),
        branch: F,
    ) -> Self {
        let norm = Norm::new(backend, store, chunk, &format!("layer.{layer}.{norm}"), model.norm_eps);
        Self { norm, branch, placement: model.norm, layer }
    }

    pub fn refresh(&mut self, backend: &B, values: &B::Buffer) {
        self.norm.refresh(backend, values);
        self.branch.refresh(backend, values);
    }

    pub fn forward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        x: B::Activation,
        dropout: Option<Dropout>,
    ) -> Result<(B::Activation, SavedResidual<B, F>), CommError> {
        let mask = at.mask(dropout, micro, self.layer);
        let add = |x: &B::Activation, branch| at.backend.add_branch(x, branch, self.branch.bias(), mask.as_ref());
        match self.placement {
            NormPlacement::Pre => {
                let (normed, norm) = self.norm.forward(at.backend, x);
                let (out, branch) = self.branch.forward(at, micro, normed)?;
                Ok((add(norm.input(), out), SavedResidual { norm, branch }))
            }
            NormPlacement::Post => {
                let (out, branch) = self.branch.forward(at, micro, x)?;
                let (y, norm) = self.norm.forward(at.backend, add(F::input(&branch), out));
                Ok((y, SavedResidual { norm, branch }))
            }
        }
    }

    /// A pre-norm branch whose output `run` makes, nothing dropped or kept: decoding.
    pub fn forward_with(
        &self,
        backend: &B,
        x: B::Activation,
        run: impl FnOnce(B::Activation) -> Result<B::Activation, CommError>,
    ) -> Result<B::Activation, CommError> {
        assert_eq!(self.placement, NormPlacement::Pre, "only decoders decode");
        let (normed, norm) = self.norm.forward(backend, x);
        Ok(backend.add_branch(norm.input(), run(normed)?, self.branch.bias(), None))
    }

    /// Gradient of the input from that of the output.
    pub fn backward(
        &self,
        at: &Context<B>,
        micro: &Microbatch,
        dy: B::Activation,
        saved: SavedResidual<B, F>,
        dropout: Option<Dropout>,
        grads: &mut B::Buffer,
    ) -> Result<B::Activation, CommError> {
        let mask = at.mask(dropout, micro, self.layer);
        let SavedResidual { norm, branch } = saved;
        // The gradient of the sum, to which each path into it adds its share.
        let mut stream = match self.placement {
            NormPlacement::Pre => dy,
            NormPlacement::Post => self.norm.backward_alone(at.backend, &dy, &norm, grads),
        };
        let dropped = dropped(at.backend, &stream, mask.as_ref());
        let dbranch = self.branch.backward(at, micro, dropped.as_ref().unwrap_or(&stream), branch, grads)?;
        match self.placement {
            NormPlacement::Pre => self.norm.backward(at.backend, &dbranch, &norm, &mut stream, grads),
            NormPlacement::Post => at.backend.add(&mut stream, &dbranch),
        }
        Ok(stream)
    }
}

/// The branch's gradient: a masked copy of the stream's, or `None` where nothing drops.
fn dropped<B: Backend>(backend: &B, stream: &B::Activation, mask: Option<&DropoutAt>) -> Option<B::Activation> {
    mask.map(|mask| {
        let mut copy = backend.duplicate(stream);
        backend.dropout(&mut copy, mask);
        copy
    })
}
