//! A step in Chrome's trace format, one row a rank.

use crate::simulate::Span;
use henge_schedule::Op;
use serde_json::{Value, json};

/// The document that `chrome://tracing` and Perfetto open; times in microseconds.
pub fn chrome_trace(spans: &[Span], ranks: usize) -> Value {
    let rows = (0..ranks).map(|rank| {
        json!({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": format!("rank {rank}")}})
    });
    let events: Vec<Value> = rows.chain(spans.iter().map(event)).collect();
    json!({"displayTimeUnit": "ms", "traceEvents": events})
}

fn event(span: &Span) -> Value {
    let (name, category) = named(&span.op);
    json!({
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": 0,
        "tid": span.rank,
        "ts": 1e6 * span.start,
        "dur": 1e6 * (span.end - span.start),
    })
}

fn named(op: &Op) -> (String, &'static str) {
    match *op {
        Op::Forward { chunk, microbatch } => (format!("forward {} chunk {chunk}", microbatch + 1), "forward"),
        Op::Backward { chunk, microbatch } => (format!("backward {} chunk {chunk}", microbatch + 1), "backward"),
        Op::Send { message, to } => (format!("send {} to {to}", message.microbatch + 1), "message"),
        Op::ReduceGradients { .. } => ("reduce gradients".to_string(), "reduction"),
        Op::SyncEmbedding => ("sync embedding".to_string(), "reduction"),
        Op::Step => ("optimizer".to_string(), "optimizer"),
        Op::PostRecv { .. } | Op::WaitRecv { .. } | Op::WaitSend { .. } => ("wait".to_string(), "wait"),
    }
}
