//! A step as text: one line a rank, one character a slice of time.

use crate::simulate::Span;
use henge_schedule::Op;

/// Draws spans on `width` characters a rank: a forward is its microbatch's last digit, a
/// backward the letter in its place (`a` for 0), `>` a send, `=` a reduction, `#` the
/// optimizer, `.` idle.
pub fn gantt(spans: &[Span], ranks: usize, seconds: f64, width: usize) -> String {
    let mut lines = vec![vec![b'.'; width]; ranks];
    let column = |time: f64| ((time / seconds * width as f64) as usize).min(width);
    for span in spans {
        let (from, to) = (column(span.start), column(span.end));
        for cell in &mut lines[span.rank][from..to] {
            *cell = letter(&span.op);
        }
    }
    let digits = ranks.saturating_sub(1).to_string().len();
    let mut text = String::new();
    for (rank, line) in lines.iter().enumerate() {
        text += &format!("r{rank:<digits$} {}\n", String::from_utf8_lossy(line));
    }
    text + "digits: forward of that microbatch (last digit); letters: backward, a for 0; > send, = reduce, # optimizer\n"
}

fn letter(op: &Op) -> u8 {
    match *op {
        Op::Forward { microbatch, .. } => b'0' + (microbatch % 10) as u8,
        Op::Backward { microbatch, .. } => b'a' + (microbatch % 10) as u8,
        Op::Send { .. } => b'>',
        Op::ReduceGradients { .. } | Op::SyncEmbedding => b'=',
        Op::Step => b'#',
        Op::PostRecv { .. } | Op::WaitRecv { .. } | Op::WaitSend { .. } => b'.',
    }
}
