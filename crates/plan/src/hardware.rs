//! Machines: what a device, its node and its network can do, read from data files.
//!
//! The catalogue is the folder `clusters/`, compiled in; a user's file has the same form.
//! Every value is checked against what machines are known to do, so that a slip of a
//! power of ten is an error by key and line and not a wonderful plan.

use crate::{PlanError, Precision};
use serde::Deserialize;
use toml::Spanned;

/// Peaks of matrix products, FLOP/s.
#[derive(Clone, Debug, PartialEq)]
pub struct Peaks {
    /// 32-bit floats.
    pub f32: f64,
    /// IEEE half.
    pub f16: f64,
    /// bfloat16.
    pub bf16: f64,
    /// 8 bits.
    pub fp8: f64,
}

/// A device: a GPU, or a socket of a CPU server.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// Peaks of matrix products.
    pub peaks: Peaks,
    /// Memory, bytes.
    pub memory: f64,
    /// Bandwidth of the memory, bytes per second.
    pub memory_bandwidth: f64,
    /// Number of multiprocessors (or cores) that tiles are spread over.
    pub multiprocessors: f64,
    /// Bytes of the memory that no tensor gets: driver, communication buffers, fragments.
    pub reserved: f64,
    /// Price, if known.
    pub usd_per_hour: Option<f64>,
}

/// Constants of the cost model, one set for a kind of device.
#[derive(Clone, Debug, PartialEq)]
pub struct Constants {
    /// What they were fitted on.
    pub fitted_on: String,
    /// Share of the peak that a large product reaches.
    pub matrix_efficiency: f64,
    /// Elements of the inner dimension that filling and draining a tile costs.
    pub matrix_fill: f64,
    /// Share of a last, partly filled wave of tiles that is lost. Below 1 because the busy
    /// multiprocessors of such a wave get the power and the bandwidth of the idle ones.
    pub wave_tail: f64,
    /// Share of the memory bandwidth that an element-wise kernel reaches.
    pub memory_efficiency: f64,
    /// Time a kernel takes at least, seconds.
    pub launch: f64,
    /// Head width at which the products with the scores lose half their bandwidth.
    pub thin_head: f64,
    /// Share of a link's bandwidth that a collective reaches.
    pub link_efficiency: f64,
    /// Latency of a step of a collective inside a node, seconds.
    pub link_latency: f64,
    /// Share of a card's bandwidth that is reached.
    pub card_efficiency: f64,
    /// Share of a card's bandwidth that one message between stages reaches: a single pair of
    /// peers does not fill a card as a ring of many channels does.
    pub message_efficiency: f64,
    /// Latency of a step that crosses nodes, seconds.
    pub network_latency: f64,
    /// Time of an empty message between stages: host, launch and synchronisation, seconds.
    pub message_latency: f64,
}

/// A cluster of equal nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Name in the catalogue.
    pub name: String,
    /// One line for a person.
    pub describes: String,
    /// The device.
    pub device: Device,
    /// Devices of a node.
    pub node_devices: usize,
    /// One-way bandwidth of a device's links inside the node, bytes per second.
    pub link_bandwidth: f64,
    /// Network cards of a node.
    pub cards: f64,
    /// One-way bandwidth of a card, bytes per second.
    pub card_bandwidth: f64,
    /// The cost model's constants.
    pub constants: Constants,
}

impl Cluster {
    /// Peak of a device at a precision, FLOP/s.
    pub fn peak(&self, precision: Precision) -> f64 {
        match precision {
            Precision::F32 => self.device.peaks.f32,
            Precision::F16 => self.device.peaks.f16,
            Precision::BF16 => self.device.peaks.bf16,
            Precision::FP8 => self.device.peaks.fp8,
        }
    }

    /// Bytes that tensors may take on a device.
    pub fn capacity(&self) -> f64 {
        self.device.memory - self.device.reserved
    }

    /// Bytes per second that an element-wise kernel moves.
    pub fn effective_memory_bandwidth(&self) -> f64 {
        self.device.memory_bandwidth * self.constants.memory_efficiency
    }

    /// The cluster of a catalogue name.
    pub fn named(name: &str) -> Result<Self, PlanError> {
        match CATALOGUE.iter().find(|(entry, _)| *entry == name) {
            Some((entry, text)) => Self::parse(text, &format!("clusters/{entry}.toml")),
            None => Err(unknown(name)),
        }
    }

    /// The cluster of a file's text; `file` is for errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, PlanError> {
        let raw: RawCluster = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            let problem = format!("{}{}", place_of(text, line), error.message().replace('\n', ", "));
            PlanError::ClusterFile { file: file.to_string(), line, problem }
        })?;
        Checker { text, file }.cluster(raw)
    }

    /// Names of the catalogue.
    pub fn names() -> Vec<&'static str> {
        CATALOGUE.iter().map(|(name, _)| *name).collect()
    }
}

macro_rules! catalogue {
    ($($name:literal),+) => {
        const CATALOGUE: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../clusters/", $name, ".toml"))),)+
        ];
    };
}

catalogue!(
    "dgx-2h",
    "dgx-a100",
    "a100-omnipath",
    "dgx-h100",
    "h100-500w",
    "h800",
    "dgx-b200",
    "gb200-nvl72",
    "cpu-server",
    "this-machine"
);

fn unknown(name: &str) -> PlanError {
    let known = Cluster::names();
    let closest = known.iter().map(|entry| (strsim::jaro_winkler(name, entry), *entry));
    let best = closest.max_by(|a, b| a.0.total_cmp(&b.0));
    PlanError::UnknownCluster {
        name: name.to_string(),
        nearest: best.filter(|(likeness, _)| *likeness > 0.75).map(|(_, entry)| entry.to_string()),
        known: known.iter().map(ToString::to_string).collect(),
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The key or the section that a line holds, for errors that do not name it themselves.
fn place_of(text: &str, line: usize) -> String {
    let content = text.lines().nth(line - 1).unwrap_or_default().trim();
    match content.split_once('=') {
        Some((key, _)) => format!("`{}`: ", key.trim()),
        None if content.starts_with('[') => format!("{content}: "),
        None => String::new(),
    }
}

type Number = Spanned<f64>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCluster {
    name: String,
    #[serde(default)]
    describes: String,
    device: RawDevice,
    node: RawNode,
    network: RawNetwork,
    constants: RawConstants,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDevice {
    name: String,
    peak_tflops: RawPeaks,
    memory_gib: Number,
    memory_gb_per_second: Number,
    multiprocessors: Number,
    reserved_gib: Number,
    usd_per_hour: Option<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeaks {
    f32: Number,
    f16: Number,
    bf16: Number,
    fp8: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNode {
    devices: Number,
    link_gb_per_second: Number,
    cards: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    card_gb_per_second: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawConstants {
    fitted_on: String,
    matrix_efficiency: Number,
    matrix_fill: Number,
    wave_tail: Number,
    memory_efficiency: Number,
    launch_microseconds: Number,
    thin_head: Number,
    link_efficiency: Number,
    link_latency_microseconds: Number,
    card_efficiency: Number,
    message_efficiency: Number,
    network_latency_microseconds: Number,
    message_latency_microseconds: Number,
}

/// What a key means, and the range that is believed.
struct Rule {
    key: &'static str,
    why: &'static str,
    low: f64,
    high: f64,
}

const fn rule(key: &'static str, why: &'static str, low: f64, high: f64) -> Rule {
    Rule { key, why, low, high }
}

const SHARE: (&str, f64, f64) = ("a share of a peak", 0.01, 1.0);
const MICROSECONDS: (&str, f64, f64) = ("a latency in microseconds", 0.0, 1e5);

struct Checker<'a> {
    text: &'a str,
    file: &'a str,
}

impl Checker<'_> {
    fn number(&self, number: Number, rule: Rule) -> Result<f64, PlanError> {
        let value = *number.get_ref();
        if value.is_finite() && (rule.low..=rule.high).contains(&value) {
            return Ok(value);
        }
        Err(PlanError::AbsurdValue {
            file: self.file.to_string(),
            line: line_of(self.text, number.span().start),
            key: rule.key.to_string(),
            value,
            why: rule.why,
            low: rule.low,
            high: rule.high,
        })
    }

    fn whole(&self, number: Number, rule: Rule) -> Result<f64, PlanError> {
        let line = line_of(self.text, number.span().start);
        let (key, value) = (rule.key, self.number(number, rule)?);
        if value.fract() == 0.0 {
            return Ok(value);
        }
        let problem = format!("`{key} = {value}` must be a whole number");
        Err(PlanError::ClusterFile { file: self.file.to_string(), line, problem })
    }

    fn cluster(&self, raw: RawCluster) -> Result<Cluster, PlanError> {
        let devices = rule("node.devices", "devices of a node", 1.0, 1024.0);
        let link = rule("node.link_gb_per_second", "one-way GB/s of a device inside its node", 0.1, 20_000.0);
        let cards = rule("node.cards", "network cards of a node", 0.1, 1024.0);
        let card = rule("network.card_gb_per_second", "one-way GB/s of a network card", 0.01, 1000.0);
        let node_devices = self.whole(raw.node.devices, devices)?;
        Ok(Cluster {
            name: raw.name,
            describes: raw.describes,
            device: self.device(raw.device)?,
            node_devices: node_devices as usize,
            link_bandwidth: 1e9 * self.number(raw.node.link_gb_per_second, link)?,
            cards: self.number(raw.node.cards, cards)?,
            card_bandwidth: 1e9 * self.number(raw.network.card_gb_per_second, card)?,
            constants: self.constants(raw.constants)?,
        })
    }

    fn device(&self, raw: RawDevice) -> Result<Device, PlanError> {
        let gib = f64::from(1 << 30);
        let memory = rule("device.memory_gib", "GiB of a device", 0.5, 8192.0);
        let bandwidth = rule("device.memory_gb_per_second", "GB/s of a device's memory", 1.0, 50_000.0);
        let processors = rule("device.multiprocessors", "multiprocessors of a device", 1.0, 10_000.0);
        let price = rule("device.usd_per_hour", "US dollars of a device and hour", 0.0, 1000.0);
        let memory = self.number(raw.memory_gib, memory)?;
        let reserved = rule("device.reserved_gib", "GiB that no tensor gets", 0.0, 0.9 * memory);
        Ok(Device {
            name: raw.name,
            peaks: self.peaks(raw.peak_tflops)?,
            memory: gib * memory,
            memory_bandwidth: 1e9 * self.number(raw.memory_gb_per_second, bandwidth)?,
            multiprocessors: self.number(raw.multiprocessors, processors)?,
            reserved: gib * self.number(raw.reserved_gib, reserved)?,
            usd_per_hour: raw.usd_per_hour.map(|number| self.number(number, price)).transpose()?,
        })
    }

    fn peaks(&self, raw: RawPeaks) -> Result<Peaks, PlanError> {
        let believed = |key| rule(key, "TFLOP/s of a device", 0.001, 100_000.0);
        let peak = |key, number| self.number(number, believed(key)).map(|teraflops| 1e12 * teraflops);
        Ok(Peaks {
            f32: peak("device.peak_tflops.f32", raw.f32)?,
            f16: peak("device.peak_tflops.f16", raw.f16)?,
            bf16: peak("device.peak_tflops.bf16", raw.bf16)?,
            fp8: peak("device.peak_tflops.fp8", raw.fp8)?,
        })
    }

    fn constants(&self, raw: RawConstants) -> Result<Constants, PlanError> {
        let within = |key, number, (why, low, high)| self.number(number, rule(key, why, low, high));
        let seconds = |key, number| within(key, number, MICROSECONDS).map(|microseconds| 1e-6 * microseconds);
        let elements = ("elements", 0.0, 100_000.0);
        Ok(Constants {
            fitted_on: raw.fitted_on,
            matrix_efficiency: within("constants.matrix_efficiency", raw.matrix_efficiency, SHARE)?,
            matrix_fill: within("constants.matrix_fill", raw.matrix_fill, elements)?,
            wave_tail: within("constants.wave_tail", raw.wave_tail, ("a share of a wave", 0.0, 1.0))?,
            memory_efficiency: within("constants.memory_efficiency", raw.memory_efficiency, SHARE)?,
            launch: seconds("constants.launch_microseconds", raw.launch_microseconds)?,
            thin_head: within("constants.thin_head", raw.thin_head, elements)?,
            link_efficiency: within("constants.link_efficiency", raw.link_efficiency, SHARE)?,
            link_latency: seconds("constants.link_latency_microseconds", raw.link_latency_microseconds)?,
            card_efficiency: within("constants.card_efficiency", raw.card_efficiency, SHARE)?,
            message_efficiency: within("constants.message_efficiency", raw.message_efficiency, SHARE)?,
            network_latency: seconds("constants.network_latency_microseconds", raw.network_latency_microseconds)?,
            message_latency: seconds("constants.message_latency_microseconds", raw.message_latency_microseconds)?,
        })
    }
}
