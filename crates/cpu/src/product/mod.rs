//! Products in float32.
//!
//! ```text
//!              columns block (512 wide, 1 MB with a depth block: second cache)
//!              +----------------+
//!              | packed panels  |
//!              +----------------+
//!   +------+   +----------------+
//!   | copy | x |   c            |  sliver of 14 rows: its copy stays in the first cache
//!   +------+   |                |  while the panels of the block pass by
//!   | next |   |                |  the next sliver is fetched meanwhile
//! ```
//!
//! A task is some slivers of one columns block; where there is one sliver (decoding), its panels
//! are dealt out and finished in a second round. Sums run in blocks of 512 terms, added in
//! order, so results depend neither on the tasks nor on the threads.
//!
//! Rejected: the `gemm` crate for these (its packing of weights cannot be kept from one
//! microbatch to the next, and it has no epilogue); one 64 KiB panel kept in the first
//! cache while slivers pass by (the panel alone overflows it at this depth, and a
//! smaller depth means more passes over `c`).

mod pack;
mod tile;

pub use pack::{DEPTH, Packing, pack_rows, pack_transposed};
pub use tile::{Old, SLIVER_STRIDE, Tile, tile_by_columns, tile_by_rows, tile_of_sliver};

#[cfg(test)]
mod tests;

use crate::simd::{Level, kernel};
use crate::team::{Parts, Team};
use std::ops::Range;

/// Columns of a block: with a depth block of panels it fills half of the second cache. A
/// finished piece of a row starts at a multiple of it.
pub const COLUMNS: usize = 512;
/// Slivers whose columns are copied together: a line of the source holds a bit more than one.
const GROUP: usize = 4;
/// Most slivers of a task.
const SLIVERS: usize = 20;
/// Tasks of each thread where there is one sliver.
const SHARES: usize = 4;

/// A packed right operand.
#[derive(Clone, Copy)]
pub struct Panels<'a> {
    pub packing: Packing,
    pub values: &'a [f32],
}

/// How a result of `rows x columns` is cut into tasks.
struct Grid {
    rows: usize,
    columns: usize,
    /// Rows of a task, whole slivers.
    block_rows: usize,
    row_blocks: usize,
    /// Columns of a task, whole panels.
    block_columns: usize,
    column_blocks: usize,
}

impl Grid {
    /// `together` slivers of a task are cheaper than as many tasks.
    fn new(
        level: Level,
        threads: usize,
        (rows, columns): (usize, usize),
        depth_blocks: usize,
        together: usize,
    ) -> Self {
        let (slivers, column_blocks) = (rows.div_ceil(level.tile_rows()), columns.div_ceil(COLUMNS));
        let all = slivers * column_blocks;
        let of_task = if depth_blocks > 1 {
            // Each task reads all blocks of panels from afar: as few and equal ones as fit.
            all.div_ceil(threads * all.div_ceil(threads * SLIVERS))
        } else {
            // Tasks that follow each other find their panels in the cache, and some dozens
            // for each thread even out what one of them loses to the system.
            let fine = (all / (32 * threads)).clamp(1, SLIVERS);
            if all < 4 * together * threads { fine } else { fine.next_multiple_of(together) }
        };
        let block_rows = of_task * level.tile_rows();
        let row_blocks = rows.div_ceil(block_rows);
        Self { rows, columns, block_rows, row_blocks, block_columns: COLUMNS, column_blocks }
    }

    /// One sliver reads each panel once, so its time is that of reading them: panels are dealt
    /// to the threads as evenly as they come.
    fn of_sliver(level: Level, threads: usize, (rows, columns): (usize, usize)) -> Self {
        let panels = columns.div_ceil(level.panel()).div_ceil(threads * SHARES);
        let block_columns = (panels * level.panel()).min(COLUMNS);
        let column_blocks = columns.div_ceil(block_columns);
        Self { rows, columns, block_rows: rows, row_blocks: 1, block_columns, column_blocks }
    }

    fn tasks(&self) -> usize {
        self.row_blocks * self.column_blocks
    }

    /// Tasks that follow each other share their columns.
    fn task(&self, task: usize) -> (Range<usize>, Range<usize>) {
        let (row, column) = (task % self.row_blocks * self.block_rows, task / self.row_blocks * self.block_columns);
        (row..(row + self.block_rows).min(self.rows), column..(column + self.block_columns).min(self.columns))
    }
}

/// Called with the row, the columns and the values of each piece of a row of `y` once it is
/// complete.
pub type Finish<'a> = dyn Fn(usize, Range<usize>, &mut [f32]) + Sync + 'a;

/// `y = x b`, `x [rows, depth]` row-major.
pub fn product(level: Level, team: &Team, x: &[f32], b: Panels, y: &mut [f32], finish: &Finish) {
    let Packing { depth, columns, .. } = b.packing;
    if y.is_empty() {
        return;
    }
    let rows = y.len() / columns;
    assert_eq!(x.len(), rows * depth, "left operand of a {rows} x {depth} x {columns} product");
    let grid = Grid::new(level, team.threads(), (rows, columns), b.packing.blocks(), 1);
    let parts = Parts::of(y);
    let sweep = Sweep { level, b, c: &parts, c_stride: columns };
    let sum = |(rows, columns): (Range<usize>, Range<usize>)| {
        for block in 0..b.packing.blocks().max(1) {
            let old = if block == 0 { Old::Replaced } else { Old::Kept };
            product_block(&sweep, x, block, (rows.clone(), columns.clone()), old);
        }
    };
    let complete = |(rows, columns): (Range<usize>, Range<usize>)| {
        for row in rows {
            // SAFETY: tasks do not overlap.
            let piece = unsafe { parts.part(row * grid.columns + columns.start, columns.len()) };
            finish(row, columns.clone(), piece);
        }
    };
    if rows > level.tile_rows() {
        return team.each(grid.tasks(), &|_, task| {
            sum(grid.task(task));
            complete(grid.task(task));
        });
    }
    let shares = Grid::of_sliver(level, team.threads(), (rows, columns));
    team.each(shares.tasks(), &|_, task| sum(shares.task(task)));
    team.each(grid.tasks(), &|_, task| complete(grid.task(task)));
}

/// One depth block of a task of [`product`].
fn product_block(sweep: &Sweep, x: &[f32], block: usize, (rows, columns): (Range<usize>, Range<usize>), old: Old) {
    let (depth, level) = (sweep.b.packing.depth, sweep.level);
    let width = if depth == 0 { 0 } else { sweep.b.packing.depth_of(block) };
    let segment = |row: usize| &x[row * depth + block * DEPTH..][..width];
    let mut sliver = [0.0; 14 * SLIVER_STRIDE];
    for row in rows.clone().step_by(level.tile_rows()) {
        let height = (rows.end - row).min(level.tile_rows());
        for r in 0..height {
            sliver[r * SLIVER_STRIDE..][..width].copy_from_slice(segment(row + r));
        }
        let left = Left { run: tile_of_sliver, rows: height, a: sliver.as_ptr(), a_step: 1 };
        sweep.row_of_tiles(left, block, (row, columns.clone()), old, &|tile| {
            let next = row + height + tile;
            if next < rows.end {
                prefetch(level, segment(next));
            }
        });
    }
}

/// `c [m, n] += y^T x` over tokens, `y [tokens, m]` row-major, `x [tokens, n]` packed.
pub fn transposed_product(level: Level, team: &Team, y: &[f32], x: Panels, c: &mut [f32]) {
    let (tokens, n) = (x.packing.depth, x.packing.columns);
    if c.is_empty() {
        return;
    }
    let m = c.len() / n;
    assert_eq!(y.len(), tokens * m, "left operand of a {m} x {tokens} x {n} product");
    let grid = Grid::new(level, team.threads(), (m, n), x.packing.blocks(), GROUP);
    let parts = Parts::of(c);
    let sweep = Sweep { level, b: x, c: &parts, c_stride: n };
    team.each(grid.tasks(), &|_, task| {
        let (rows, columns) = grid.task(task);
        for block in 0..x.packing.blocks() {
            transposed_block(&sweep, (y, m), block, (rows.clone(), columns.clone()));
        }
    });
}

/// One depth block of a task of [`transposed_product`].
fn transposed_block(
    sweep: &Sweep,
    (y, m): (&[f32], usize),
    block: usize,
    (rows, columns): (Range<usize>, Range<usize>),
) {
    let (level, tokens) = (sweep.level, sweep.b.packing.depth_of(block));
    let (height, tiles) = (level.tile_rows(), columns.len().div_ceil(level.panel()));
    let y = &y[block * DEPTH * m..];
    let mut slivers = [0.0; GROUP * 14 * DEPTH];
    for group in rows.clone().step_by(GROUP * height) {
        let width = (rows.end - group).min(GROUP * height);
        copy_columns(level, y, m, tokens, group..group + width, &mut slivers);
        for (i, row) in (group..group + width).step_by(height).enumerate() {
            let a = slivers[i * height * DEPTH..].as_ptr();
            let left = Left { run: tile_by_columns, rows: (group + width - row).min(height), a, a_step: height };
            sweep.row_of_tiles(left, block, (row, columns.clone()), Old::Kept, &|tile| {
                let next = group + width..(group + 2 * width).min(rows.end);
                let share = tokens.div_ceil(GROUP * tiles);
                let ahead = (i * tiles + tile) * share;
                prefetch_columns(level, y, m, ahead.min(tokens)..(ahead + share).min(tokens), next);
            });
        }
    }
}

/// Where tiles of one product read their panels and leave their sums.
struct Sweep<'a> {
    level: Level,
    b: Panels<'a>,
    c: &'a Parts<'a, f32>,
    c_stride: usize,
}

/// The left operand of a row of tiles.
#[derive(Clone, Copy)]
struct Left {
    run: fn(Level, &Tile),
    rows: usize,
    a: *const f32,
    a_step: usize,
}

impl Sweep<'_> {
    /// The tiles of one sliver over some columns, which start at a panel; `before(i)` runs
    /// ahead of the `i`th.
    fn row_of_tiles(
        &self,
        left: Left,
        block: usize,
        (row, columns): (usize, Range<usize>),
        old: Old,
        before: &dyn Fn(usize),
    ) {
        let (packing, panel) = (self.b.packing, self.level.panel());
        let depth = if packing.depth == 0 { 0 } else { packing.depth_of(block) };
        for (i, column) in columns.clone().step_by(panel).enumerate() {
            before(i);
            let b = &self.b.values[packing.at(block, column / panel)..][..depth * panel];
            let c = self.c.pointer(row * self.c_stride + column);
            let columns = (columns.end - column).min(panel);
            let Left { run, rows, a, a_step } = left;
            run(
                self.level,
                &Tile { rows, columns, depth, a, a_step, a_stride: 0, b: b.as_ptr(), c, c_stride: self.c_stride, old },
            );
        }
    }
}

kernel! {
    /// Brings the lines of `x` to the second cache.
    fn prefetch<S>(x: &[f32]) {
        for i in (0..x.len()).step_by(16) {
            S::prefetch_far(x.as_ptr().wrapping_add(i));
        }
    }
    /// Columns of the first `tokens` rows of `x`, whose rows are `stride` numbers, to slivers
    /// `[slivers, DEPTH, tile_rows]`.
    fn copy_columns<S>(x: &[f32], stride: usize, tokens: usize, columns: Range<usize>, slivers: &mut [f32]) {
        for k in 0..tokens {
            let row = &x[k * stride..][columns.clone()];
            for (i, from) in row.chunks(S::ROWS).enumerate() {
                let to = &mut slivers[(i * DEPTH + k) * S::ROWS..][..S::ROWS];
                // SAFETY: both hold `from.len()` numbers, which are at most a vector.
                unsafe { S::store_part(to.as_mut_ptr(), from.len(), S::load_part(from.as_ptr(), from.len())) };
            }
        }
    }
    /// As [`prefetch`], some columns of some rows of `stride` numbers.
    fn prefetch_columns<S>(x: &[f32], stride: usize, rows: Range<usize>, columns: Range<usize>) {
        for row in rows {
            for i in (0..columns.len() + 15).step_by(16) {
                S::prefetch_far(x.as_ptr().wrapping_add(row * stride + columns.start + i));
            }
        }
    }
}
