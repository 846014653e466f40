//! The rank grid against the papers' example.

mod support;

use henge_comm::{Grid, Group};
use support::grid;

/// The groups of a kind, each once, in order of their first ranks.
fn groups(grid: &Grid, group: Group) -> Vec<Vec<usize>> {
    let all = (0..grid.ranks()).map(|rank| grid.members(group, rank));
    let mut all: Vec<_> = all.collect();
    all.sort();
    all.dedup();
    all
}

/// 16 ranks, t = 2, p = 4, so d = 2: the example beside Megatron's initialisation of its
/// groups (`megatron/mpu/initialize.py`).
#[test]
fn groups_of_the_sixteen_rank_example() {
    let grid = grid(2, 4, 2);
    let pairs = |rows: &[[usize; 2]]| rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>();
    assert_eq!(
        groups(&grid, Group::Tensor),
        pairs(&[[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]])
    );
    assert_eq!(
        groups(&grid, Group::Data),
        pairs(&[[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]])
    );
    assert_eq!(
        groups(&grid, Group::Pipeline),
        [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]].map(|row| row.to_vec())
    );
    assert_eq!(
        groups(&grid, Group::Model),
        [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]].map(|row| row.to_vec())
    );
    let embedding: Vec<_> = groups(&grid, Group::Embedding).into_iter().filter(|ranks| ranks.len() > 1).collect();
    assert_eq!(embedding, pairs(&[[0, 12], [1, 13], [2, 14], [3, 15]]));
}

#[test]
fn every_rank_is_in_one_group_of_each_kind() {
    for (t, p, d) in [(1, 1, 1), (2, 1, 1), (1, 3, 1), (1, 1, 5), (2, 2, 2), (3, 2, 4), (2, 4, 3)] {
        let grid = grid(t, p, d);
        let sizes = [
            (Group::Tensor, t),
            (Group::Data, d),
            (Group::Pipeline, p),
            (Group::Model, t * p),
            (Group::World, t * p * d),
        ];
        for (group, size) in sizes {
            let groups = groups(&grid, group);
            assert!(groups.iter().all(|ranks| ranks.len() == size), "{group} of {t},{p},{d}: {groups:?}");
            let mut ranks = groups.concat();
            ranks.sort_unstable();
            assert_eq!(ranks, (0..grid.ranks()).collect::<Vec<_>>(), "{group} of {t},{p},{d}");
        }
    }
}

#[test]
fn the_embedding_group_is_both_ends_of_a_pipeline() {
    let single = grid(2, 1, 3);
    assert!((0..6).all(|rank| single.members(Group::Embedding, rank) == [rank]), "one stage is both ends");
    let two = grid(2, 2, 1);
    assert_eq!(groups(&two, Group::Embedding), groups(&two, Group::Pipeline));
    let four = grid(1, 4, 1);
    assert_eq!(groups(&four, Group::Embedding), [vec![0, 3], vec![1], vec![2]]);
}

#[test]
fn a_place_and_its_rank_are_one() {
    let grid = grid(2, 4, 3);
    for rank in 0..grid.ranks() {
        let place = grid.place(rank);
        assert_eq!(grid.rank(place), rank);
        assert_eq!(rank, (place.pipeline * 3 + place.data) * 2 + place.tensor);
    }
}
