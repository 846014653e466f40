//! Collectives and messages by topology. All results are seconds.

use crate::Cluster;

/// Ranks that reduce or gather together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// How many.
    pub ranks: f64,
    /// How many of them share a node.
    pub per_node: f64,
}

impl Group {
    /// Neighbouring ranks, as a tensor parallel group. Where neither size divides the other
    /// some group straddles two nodes, and all wait for it: only what every node is sure to
    /// hold of a group counts.
    pub fn contiguous(ranks: usize, node: usize) -> Self {
        let per_node = if ranks.is_multiple_of(node) || node.is_multiple_of(ranks) {
            ranks.min(node)
        } else {
            greatest_common_divisor(ranks, node)
        };
        Self { ranks: ranks as f64, per_node: per_node as f64 }
    }

    /// Ranks `stride` apart, as a data parallel group.
    pub fn strided(ranks: usize, stride: usize, node: usize) -> Self {
        Self { ranks: ranks as f64, per_node: ranks.min((node / stride).max(1)) as f64 }
    }

    /// Whether its ranks sit in more than one node.
    pub fn crosses_nodes(&self) -> bool {
        self.nodes() > 1.0
    }

    fn nodes(&self) -> f64 {
        (self.ranks / self.per_node).ceil()
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The links of a cluster, ready to price communication.
#[derive(Clone, Copy)]
pub struct Network<'a> {
    cluster: &'a Cluster,
}

impl<'a> Network<'a> {
    /// The links of `cluster`.
    pub fn new(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }

    /// All-reduce of `bytes` a rank: every rank sends and receives 2 (n-1)/n of them.
    pub fn all_reduce(&self, bytes: f64, group: Group) -> f64 {
        2.0 * self.half_ring(bytes, group)
    }

    /// All-gather to, or reduce-scatter from, `bytes` a rank.
    pub fn gather(&self, bytes: f64, group: Group) -> f64 {
        self.half_ring(bytes, group)
    }

    /// A gather in which every device draws the whole through its own card, as ZeRO-3's
    /// broadcasts of single tensors do: cards of a node do not help each other.
    pub fn flat_gather(&self, bytes: f64, group: Group) -> f64 {
        if group.ranks <= 1.0 {
            return 0.0;
        }
        let bandwidth = if group.crosses_nodes() { self.card() } else { self.link() };
        bytes * (group.ranks - 1.0) / group.ranks / bandwidth + self.latency(group)
    }

    /// One way round a ring: n-1 steps of bytes/n. Rings of a node use all cards of the
    /// group's devices there; many nodes are climbed as a tree, in 2 log2 steps.
    fn half_ring(&self, bytes: f64, group: Group) -> f64 {
        if group.ranks <= 1.0 {
            return 0.0;
        }
        let bandwidth = if group.crosses_nodes() { self.link().min(self.card() * group.per_node) } else { self.link() };
        bytes * (group.ranks - 1.0) / group.ranks / bandwidth + self.latency(group)
    }

    fn latency(&self, group: Group) -> f64 {
        let constants = &self.cluster.constants;
        let nodes = group.nodes();
        let across = if nodes > 1.0 { nodes.min(2.0 * nodes.log2()) } else { 0.0 };
        (group.per_node - 1.0) * constants.link_latency + across * constants.network_latency
    }

    /// A message of `bytes` from one device to another of the same node.
    pub fn message_in_node(&self, bytes: f64) -> f64 {
        self.cluster.constants.message_latency + bytes / self.link()
    }

    /// A message of `bytes` from one device to another of another node.
    pub fn message_across(&self, bytes: f64) -> f64 {
        let constants = &self.cluster.constants;
        constants.message_latency + bytes / (self.card_share() * constants.message_efficiency)
    }

    fn link(&self) -> f64 {
        self.cluster.link_bandwidth * self.cluster.constants.link_efficiency
    }

    /// What a collective reaches of a device's share of its node's cards.
    fn card(&self) -> f64 {
        self.card_share() * self.cluster.constants.card_efficiency
    }

    /// A device's share of its node's cards.
    fn card_share(&self) -> f64 {
        self.cluster.card_bandwidth * self.cluster.cards / self.cluster.node_devices as f64
    }
}
