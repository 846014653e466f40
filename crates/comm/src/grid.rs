//! The rank grid and its groups.

use henge_spec::Layout;
use std::fmt;

/// A set of ranks that talk together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Ranks that share each layer.
    Tensor,
    /// Ranks that hold the same weights for other samples.
    Data,
    /// The stages of one pipeline.
    Pipeline,
    /// First and last stage of one pipeline (one rank where they are the same).
    Embedding,
    /// All ranks of one replica: tensor times pipeline.
    Model,
    /// Every rank.
    World,
}

impl Group {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Tensor, Self::Data, Self::Pipeline, Self::Embedding, Self::Model, Self::World];
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Tensor => "tensor",
            Self::Data => "data",
            Self::Pipeline => "pipeline",
            Self::Embedding => "embedding",
            Self::Model => "model",
            Self::World => "world",
        })
    }
}

/// A rank's place on the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index on the tensor axis.
    pub tensor: usize,
    /// Index on the data axis.
    pub data: usize,
    /// Index on the pipeline axis.
    pub pipeline: usize,
}

/// The grid `[pipeline, data, tensor]`, tensor fastest (2104.04473 artifact):
/// `rank = (pipeline * d + data) * t + tensor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    tensor: usize,
    data: usize,
    pipeline: usize,
}

impl Grid {
    /// The grid of a layout.
    pub fn new(layout: &Layout) -> Self {
        Self { tensor: layout.tensor, data: layout.data, pipeline: layout.pipeline }
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.tensor * self.data * self.pipeline
    }

    /// Ranks of the tensor, data and pipeline axes.
    pub fn axes(&self) -> Place {
        Place { tensor: self.tensor, data: self.data, pipeline: self.pipeline }
    }

    /// Where a rank stands.
    pub fn place(&self, rank: usize) -> Place {
        assert!(rank < self.ranks(), "rank {rank} of {}", self.ranks());
        Place {
            tensor: rank % self.tensor,
            data: rank / self.tensor % self.data,
            pipeline: rank / (self.tensor * self.data),
        }
    }

    /// The rank that stands at a place.
    pub fn rank(&self, place: Place) -> usize {
        (place.pipeline * self.data + place.data) * self.tensor + place.tensor
    }

    /// The rank at index `pipeline` of the pipeline that `rank` belongs to.
    pub fn on_pipeline(&self, rank: usize, pipeline: usize) -> usize {
        self.rank(Place { pipeline, ..self.place(rank) })
    }

    /// The ranks of the group that `rank` belongs to, ascending. A rank between the ends
    /// of a pipeline is alone in its embedding group.
    pub fn members(&self, group: Group, rank: usize) -> Vec<usize> {
        let here = self.place(rank);
        let last = self.pipeline - 1;
        let inside = |other: &Place| match group {
            Group::Tensor => other.data == here.data && other.pipeline == here.pipeline,
            Group::Data => other.tensor == here.tensor && other.pipeline == here.pipeline,
            Group::Pipeline => other.tensor == here.tensor && other.data == here.data,
            Group::Embedding => {
                let ends = |place: &Place| place.pipeline == 0 || place.pipeline == last;
                *other == here || other.tensor == here.tensor && other.data == here.data && ends(other) && ends(&here)
            }
            Group::Model => other.data == here.data,
            Group::World => true,
        };
        (0..self.ranks()).filter(|&other| inside(&self.place(other))).collect()
    }
}
