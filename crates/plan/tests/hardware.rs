//! Cluster files: the catalogue reads, and every slip is an error by key and line.

use henge_plan::cost::{Group, Network};
use henge_plan::{Cluster, PlanError};

fn a100() -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/clusters/dgx-a100.toml");
    std::fs::read_to_string(folder).unwrap()
}

fn refused(from: &str, to: &str) -> String {
    let text = a100();
    assert!(text.contains(from), "{from}");
    Cluster::parse(&text.replace(from, to), "mine.toml").unwrap_err().to_string()
}

fn line_of(key: &str) -> usize {
    1 + a100().lines().position(|line| line.contains(key)).unwrap()
}

#[test]
fn catalogue_reads_and_is_what_the_data_sheets_say() {
    for name in Cluster::names() {
        let cluster = Cluster::named(name).unwrap();
        assert_eq!(cluster.name, name);
        assert!(cluster.capacity() < cluster.device.memory);
    }
    let selene = Cluster::named("dgx-a100").unwrap();
    // Section 5 of arXiv 2104.04473: 312 TFLOP/s, 8 GPUs and 8 HDR cards a node.
    assert_eq!((selene.device.peaks.f16, selene.node_devices, selene.cards), (312e12, 8, 8.0));
}

#[test]
fn negative_bandwidth_is_named_by_key_and_line() {
    let words = refused("card_gb_per_second = 25.0", "card_gb_per_second = -25.0");
    assert!(words.starts_with(&format!("mine.toml:{}:", line_of("card_gb_per_second"))), "{words}");
    assert!(words.contains("network.card_gb_per_second = -25"), "{words}");
}

#[test]
fn terabytes_per_microsecond_are_absurd() {
    let words = refused("memory_gb_per_second = 2039.0", "memory_gb_per_second = 1e9");
    assert!(words.starts_with(&format!("mine.toml:{}:", line_of("memory_gb_per_second"))), "{words}");
    assert!(words.contains("absurd") && words.contains("device.memory_gb_per_second"), "{words}");
    assert!(refused("memory_gib = 80.0", "memory_gib = nan").contains("device.memory_gib"));
}

#[test]
fn missing_unknown_and_fractional_keys() {
    assert!(refused("multiprocessors = 108\n", "").contains("multiprocessors"));
    let words = refused("multiprocessors = 108", "multiprocesors = 108");
    assert!(words.starts_with(&format!("mine.toml:{}:", line_of("multiprocessors"))), "{words}");
    assert!(refused("devices = 8", "devices = 8.5").contains("whole number"));
    assert!(refused("[node]", "[node").starts_with("mine.toml:"));
    let words = refused("memory_gib = 80.0", "memory_gib = \"80\"");
    assert!(words.starts_with(&format!("mine.toml:{}: `memory_gib`:", line_of("memory_gib"))), "{words}");
}

#[test]
fn a_group_that_straddles_two_nodes_waits_for_the_network() {
    let cluster = Cluster::named("dgx-a100").unwrap();
    let (bytes, network) = (1e8, Network::new(&cluster));
    let seconds = |ranks: usize| network.all_reduce(bytes, Group::contiguous(ranks, cluster.node_devices));
    assert!(seconds(4) < seconds(8), "inside a node more ranks move a little more");
    // Six of eight devices: some groups have two ranks in one node and four in the next.
    assert!(seconds(6) > 3.0 * seconds(8), "{} against {}", seconds(6), seconds(8));
}

#[test]
fn a_misspelt_name_gets_the_nearest() {
    let error = Cluster::named("dgx-a1000").unwrap_err();
    let PlanError::UnknownCluster { nearest, known, .. } = error else { panic!("{error}") };
    assert_eq!(nearest.as_deref(), Some("dgx-a100"));
    assert_eq!(known.len(), Cluster::names().len());
}
