//! The trait's operations: sizes checked, buffers taken, kernels called.

use super::attention_backward::Outputs;
use super::rows::{self, Rows, RowsMut};
use super::vocabulary::PieceStats;
use super::weight::{PanelWeight, TileWeight};
use super::{Fast, FastLogits, FastWeight, Form, Numbers, Tokens};
use super::{attention, attention_backward, decode, elementwise, norm, rotary, vocabulary};
use crate::bf16::{self, Output};
use crate::memory::{Activation, Flat};
use crate::plain::vocabulary::{local, losses, rescale};
use crate::rounding::Rounding;
use crate::team::Parts;
use henge_tensor::{
    AdamStep, AttentionCall, Backend, Buffer, CachedAttention, DropoutAt, ElementBytes, Held, Kind, Matrix,
    NonLinearity, Rotation, VocabularyShard, VocabularyStats,
};
use std::ops::Range;

impl Backend for Fast {
    type Real = f32;
    type Buffer = Numbers;
    type Activation = Tokens;
    type Weight = FastWeight;
    type Vector = Numbers;
    type NormStats = Numbers;
    type AttentionStats = Numbers;
    type Logits = FastLogits;

    fn describe(&self) -> String {
        let operands = match (self.compute.rounding, self.compute.tiles) {
            (_, Some(tiles)) => format!(", products on {}", tiles.name()),
            (Rounding::Exact, _) => String::new(),
            (rounding, _) => format!(", operands rounded to {}", rounding.name()),
        };
        format!("{} f32{operands}, {} threads", self.level().name(), self.team.threads())
    }

    fn element_bytes(&self) -> ElementBytes {
        let bytes = if self.compute.tiles.is_some() { size_of::<u16>() } else { size_of::<f32>() };
        ElementBytes { activation: bytes, weight: bytes }
    }

    fn held(&self) -> Held {
        self.pool.held()
    }

    fn zeros(&self, len: usize, kind: Kind) -> Numbers {
        Flat::zeros(&self.pool, len, kind)
    }

    fn prepare(&self, buffer: &Numbers, at: usize, rows: usize, columns: usize) -> FastWeight {
        let mut weight = match self.compute.tiles {
            Some(_) => FastWeight::Tiles(TileWeight::new(&self.pool, rows, columns)),
            None => FastWeight::Panels(PanelWeight::new(&self.pool, self.level(), rows, columns)),
        };
        self.refresh(&mut weight, buffer, at);
        weight
    }

    fn refresh(&self, weight: &mut FastWeight, buffer: &Numbers, at: usize) {
        let w = &buffer.values()[at..];
        match (weight, self.compute.tiles) {
            (FastWeight::Tiles(weight), Some(tiles)) => weight.pack(self.tile_machine(tiles), w),
            (FastWeight::Panels(weight), None) => {
                weight.pack(&self.team, w);
                weight.packed_mut().into_iter().for_each(|packed| self.round_all(packed));
            }
            _ => unreachable!("a weight of another backend"),
        }
    }

    fn prepare_vector(&self, buffer: &Numbers, at: usize, len: usize) -> Numbers {
        let mut vector = Flat::blank(&self.pool, len, Kind::Weight);
        self.refresh_vector(&mut vector, buffer, at);
        vector
    }

    fn refresh_vector(&self, vector: &mut Numbers, buffer: &Numbers, at: usize) {
        buffer.read(at, vector.values_mut());
    }

    fn upload(&self, rows: usize, columns: usize, values: &[f32]) -> Tokens {
        assert_eq!(values.len(), rows * columns, "values of a {rows} x {columns} matrix");
        let mut x = self.blank(rows, columns);
        x.values_mut().copy_from_slice(values);
        x
    }

    fn download(&self, x: &Tokens) -> Vec<f32> {
        self.wide(x).values().to_vec()
    }

    fn duplicate(&self, x: &Tokens) -> Tokens {
        if x.narrow().is_some() {
            let mut copy = self.blank_operand(x.rows(), x.columns());
            self.convert(x, &mut copy);
            return copy;
        }
        let mut copy = self.blank_like(x);
        elementwise::each_chunk(&self.team, copy.values_mut(), |copy, range| copy.copy_from_slice(&x.values()[range]));
        copy
    }

    fn blank(&self, rows: usize, columns: usize) -> Tokens {
        Activation::blank(&self.pool, rows, columns)
    }

    fn zeroed(&self, rows: usize, columns: usize) -> Tokens {
        let mut x = self.blank(rows, columns);
        elementwise::each_chunk(&self.team, x.values_mut(), |x, _| x.fill(0.0));
        x
    }

    fn add(&self, x: &mut Tokens, y: &Tokens) {
        assert_eq!((x.rows(), x.columns()), (y.rows(), y.columns()), "terms of a sum");
        let (level, rows) = (self.level(), x.rows());
        let (sum, term) = (RowsMut::of(x), Rows::of(y));
        rows::each(&self.team, rows, |row, [one, two]| {
            let term = term.row(level, row, one);
            // SAFETY: each row is one task's.
            unsafe { sum.change(level, row, two, |sum| elementwise::add(level, sum, term)) };
        });
    }

    fn dropout(&self, x: &mut Tokens, at: &DropoutAt) {
        if let Form::Copy(wide) = self.wide(x) {
            *x = wide;
        }
        let columns = x.columns();
        elementwise::dropout(self.level(), &self.team, x.values_mut(), columns, at);
    }

    fn add_branch(
        &self,
        residual: &Tokens,
        mut branch: Tokens,
        bias: Option<&Numbers>,
        dropout: Option<&DropoutAt>,
    ) -> Tokens {
        assert_eq!((residual.rows(), residual.columns()), (branch.rows(), branch.columns()), "residual and branch");
        let (residual, bias) = (Rows::of(residual), bias.map(Flat::values));
        if branch.narrow().is_none() {
            elementwise::add_branch(self.level(), &self.team, branch.values_mut(), (residual, None), bias, dropout);
            return branch;
        }
        let (mut sum, branch) = (self.blank_like(&branch), Rows::of(&branch));
        let terms = (residual, Some(branch));
        elementwise::add_branch(self.level(), &self.team, sum.values_mut(), terms, bias, dropout);
        sum
    }

    fn take_rows(&self, x: &Tokens, rows: &[usize]) -> Tokens {
        let (mut y, level, from) = (self.blank(rows.len(), x.columns()), self.level(), Rows::of(x));
        elementwise::each_row(&self.team, y.values_mut(), x.columns(), |y, at| {
            y.copy_from_slice(from.row(level, rows[at], &mut Vec::new()));
        });
        y
    }

    fn add_rows(&self, x: &mut Tokens, rows: &[usize], y: &Tokens) {
        assert_eq!((rows.len(), x.columns()), (y.rows(), y.columns()), "rows to add");
        let y = self.wide(y);
        for (at, &row) in rows.iter().enumerate() {
            elementwise::add(self.level(), x.row_mut(row), y.row(at));
        }
    }

    fn lookup(&self, table: &FastWeight, first_row: usize, ids: &[u32]) -> Tokens {
        let mut x = self.blank(ids.len(), table.columns());
        elementwise::each_row(&self.team, x.values_mut(), table.columns(), |x, token| {
            match local(first_row, table.rows(), i64::from(ids[token])) {
                Some(row) => table.read_row(row, x),
                None => x.fill(0.0),
            }
        });
        x
    }

    fn lookup_gradient(
        &self,
        dy: &Tokens,
        first_row: usize,
        table_rows: usize,
        ids: &[u32],
        grads: &mut Numbers,
        at: usize,
    ) {
        let (columns, level, dy) = (dy.columns(), self.level(), self.wide(dy));
        let grads = Parts::of(&mut grads.values_mut()[at..][..table_rows * columns]);
        elementwise::each_column_block(&self.team, columns, |from, width| {
            for (token, &id) in ids.iter().enumerate() {
                if let Some(row) = local(first_row, table_rows, i64::from(id)) {
                    // SAFETY: each block of columns is one task's.
                    let grads = unsafe { grads.part(row * columns + from, width) };
                    elementwise::add(level, grads, &dy.row(token)[from..from + width]);
                }
            }
        });
    }

    fn layer_norm(&self, x: &Tokens, gain: &Numbers, bias: &Numbers, eps: f64) -> (Tokens, Numbers) {
        assert_eq!(bias.len(), x.columns(), "bias of a norm");
        self.norm(x, norm::Parameters { gain: gain.values(), bias: Some(bias.values()), eps })
    }

    fn layer_norm_backward(
        &self,
        dy: &Tokens,
        x: &Tokens,
        stats: &Numbers,
        gain: &Numbers,
        dx: &mut Tokens,
        grads: &mut Numbers,
        gain_at: usize,
        bias_at: usize,
    ) {
        let columns = x.columns();
        let mut scratch = self.scratch(norm::backward_tasks(x.rows()) * 2 * columns);
        let inputs = norm::Backward { dy: Rows::of(dy), x: Rows::of(x), stats: stats.values(), gain: gain.values() };
        inputs.layer_norm(self.machine(), dx.values_mut(), scratch.values_mut());
        for sums in scratch.values().chunks_exact(2 * columns.max(1)) {
            let (dgain, dbias) = sums.split_at(columns);
            elementwise::add(self.level(), &mut grads.values_mut()[gain_at..][..columns], dgain);
            elementwise::add(self.level(), &mut grads.values_mut()[bias_at..][..columns], dbias);
        }
    }

    fn rms_norm(&self, x: &Tokens, gain: &Numbers, eps: f64) -> (Tokens, Numbers) {
        self.norm(x, norm::Parameters { gain: gain.values(), bias: None, eps })
    }

    fn rms_norm_backward(
        &self,
        dy: &Tokens,
        x: &Tokens,
        stats: &Numbers,
        gain: &Numbers,
        dx: &mut Tokens,
        grads: &mut Numbers,
        gain_at: usize,
    ) {
        let columns = x.columns();
        let mut scratch = self.scratch(norm::backward_tasks(x.rows()) * columns);
        let inputs = norm::Backward { dy: Rows::of(dy), x: Rows::of(x), stats: stats.values(), gain: gain.values() };
        inputs.rms_norm(self.machine(), dx.values_mut(), scratch.values_mut());
        for dgain in scratch.values().chunks_exact(columns.max(1)) {
            elementwise::add(self.level(), &mut grads.values_mut()[gain_at..][..columns], dgain);
        }
    }

    fn linear(&self, x: &Tokens, w: &FastWeight, bias: Option<&Numbers>) -> Tokens {
        assert_eq!(x.columns(), w.columns(), "inputs of a linear");
        let (mut y, compute) = (self.blank_operand(x.rows(), w.rows()), self.compute);
        let bias = bias.map(Flat::values);
        let w = match self.tiles_and(w) {
            Ok((machine, w)) => {
                let stride = bf16::stride_of(y.columns());
                let output = Output::Narrow { y: Parts::of(y.narrow_mut()), stride, bias };
                self.tile_product(machine, self.operand(x).tiles(), w.transposed(), &output);
                return y;
            }
            Err(w) => w,
        };
        self.forward_product(x.values(), w, bias, y.values_mut(), |_, _, values| compute.round(values));
        y
    }

    fn linear_activated(
        &self,
        x: &Tokens,
        w: &FastWeight,
        bias: Option<&Numbers>,
        f: NonLinearity,
    ) -> (Tokens, Tokens) {
        if f == NonLinearity::SwiGlu {
            return self.linear_gated(x, w, bias);
        }
        assert_eq!(x.columns(), w.columns(), "inputs of a linear");
        let (mut pre, mut y) = (self.blank_operand(x.rows(), w.rows()), self.blank_operand(x.rows(), w.rows()));
        let (compute, width) = (self.compute, w.rows());
        let bias = bias.map(Flat::values);
        let w = match self.tiles_and(w) {
            Ok((machine, w)) => {
                let stride = bf16::stride_of(width);
                let (to_pre, to_y) = (Parts::of(pre.narrow_mut()), Parts::of(y.narrow_mut()));
                let output = Output::Activated { pre: to_pre, y: to_y, stride, bias, f };
                self.tile_product(machine, self.operand(x).tiles(), w.transposed(), &output);
                return (y, pre);
            }
            Err(w) => w,
        };
        let outputs = Parts::of(y.values_mut());
        self.forward_product(x.values(), w, bias, pre.values_mut(), |row, columns, values| {
            compute.round(values);
            // SAFETY: each piece of a row is finished once.
            let y = unsafe { outputs.part(row * width + columns.start, columns.len()) };
            elementwise::activate(compute.level, values, f, y);
            compute.round(y);
        });
        (y, pre)
    }

    fn linear_input_gradient(&self, dy: &Tokens, w: &FastWeight) -> Tokens {
        assert_eq!(dy.columns(), w.rows(), "outputs of a linear");
        let mut dx = self.blank_operand(dy.rows(), w.columns());
        match self.tiles_and(w) {
            Ok((machine, w)) => {
                let stride = bf16::stride_of(dx.columns());
                let output = Output::Narrow { y: Parts::of(dx.narrow_mut()), stride, bias: None };
                self.tile_product(machine, self.operand(dy).tiles(), w.straight(), &output);
            }
            Err(w) => self.backward_product(dy.values(), w, dx.values_mut()),
        }
        dx
    }

    fn linear_weight_gradient(&self, x: &Tokens, dy: &Tokens, grads: &mut Numbers, at: usize) {
        assert_eq!(x.rows(), dy.rows(), "tokens of a linear");
        let dw = &mut grads.values_mut()[at..][..x.columns() * dy.columns()];
        if let Some(tiles) = self.compute.tiles {
            return self.tile_gradient(tiles, self.operand(x).tiles(), self.operand(dy).tiles(), dw);
        }
        self.weight_product(x.values(), dy.values(), (x.columns(), dy.columns()), dw);
    }

    fn bias_gradient(&self, dy: &Tokens, grads: &mut Numbers, at: usize) {
        let sums = &mut grads.values_mut()[at..][..dy.columns()];
        elementwise::add_column_sums(self.level(), &self.team, Rows::of(dy), dy.rows(), sums);
    }

    fn activation_backward(&self, mut dy: Tokens, pre: &Tokens, f: NonLinearity) -> Tokens {
        let compute = self.compute;
        if f == NonLinearity::SwiGlu {
            let mut dpre = self.blank_operand(pre.rows(), pre.columns());
            let (from, inner, to) = (Rows::of(&dy), Rows::of(pre), RowsMut::of(&mut dpre));
            rows::each(&self.team, pre.rows(), |row, [one, two, three]| {
                let (dy, pre) = (from.row(compute.level, row, one), inner.row(compute.level, row, two));
                let gated = |dpre: &mut [f32]| {
                    elementwise::gated_backward(compute.level, dy, pre, dpre);
                    compute.round(dpre);
                };
                // SAFETY: each row is one task's.
                unsafe { to.write(compute.level, row, three, gated) };
            });
            return dpre;
        }
        if self.compute.tiles.is_some() {
            let rows = pre.rows();
            let (inner, to) = (Rows::of(pre), RowsMut::of(&mut dy));
            rows::each(&self.team, rows, |row, [one, two]| {
                let pre = inner.row(compute.level, row, one);
                let slope = |dy: &mut [f32]| elementwise::activate_backward(compute.level, dy, pre, f);
                // SAFETY: each row is one task's.
                unsafe { to.change(compute.level, row, two, slope) };
            });
            return dy;
        }
        elementwise::each_chunk(&self.team, dy.values_mut(), |dy, range| {
            elementwise::activate_backward(compute.level, dy, &pre.values()[range], f);
            compute.round(dy);
        });
        dy
    }

    fn rotate(&self, qkv: &mut Tokens, rotation: &Rotation) {
        assert_eq!(qkv.rows(), rotation.positions.len(), "one position a token");
        let compute = self.compute;
        let turned = rotation.heads * 2 * rotation.table.pairs;
        let (rows, to) = (qkv.rows(), RowsMut::of(qkv));
        rows::each(&self.team, rows, |token, [buffer]| {
            let angles = rotation.table.at(rotation.positions[token] as usize);
            let turn = |row: &mut [f32]| {
                rotary::turn_heads(compute.level, &mut row[..turned], angles, rotation.turn);
                compute.round(&mut row[..turned]);
            };
            // SAFETY: each row is one task's.
            unsafe { to.change(compute.level, token, buffer, turn) };
        });
    }

    fn attention(&self, qkv: &Tokens, call: &AttentionCall) -> (Tokens, Numbers) {
        let qkv = self.wide(qkv);
        let inputs = self.attention_inputs(&qkv, call);
        let mut y = self.blank(qkv.rows(), call.shape.heads * call.shape.head_dim);
        let mut logs = Flat::blank(&self.pool, qkv.rows() * call.shape.heads, Kind::Activation);
        let mut scratch = self.scratch(self.team.threads() * attention::forward_scratch(self.level(), call));
        attention::forward(inputs, &self.team, y.values_mut(), logs.values_mut(), scratch.values_mut());
        (self.as_operand(y), logs)
    }

    fn attention_cached(&self, qkv: &Tokens, cache: &mut Numbers, call: &CachedAttention) -> Tokens {
        assert_eq!((qkv.rows(), qkv.columns()), (call.rows(), call.qkv_columns()), "fused attention input");
        let mut y = self.blank(qkv.rows(), call.heads * call.head_dim);
        let mut scratch = self.scratch(self.team.threads() * decode::scratch_len(call));
        let qkv = self.wide(qkv);
        let inputs = decode::Inputs { level: self.level(), qkv: qkv.values(), call };
        decode::forward(inputs, &self.team, cache.values_mut(), y.values_mut(), scratch.values_mut());
        self.as_operand(y)
    }

    fn attention_backward(
        &self,
        dy: &Tokens,
        qkv: &Tokens,
        y: &Tokens,
        stats: &Numbers,
        call: &AttentionCall,
    ) -> Tokens {
        let (dy, qkv, y) = (self.wide(dy), self.wide(qkv), self.wide(y));
        let inputs = self.attention_inputs(&qkv, call);
        let outputs = Outputs { y: y.values(), dy: dy.values(), logs: stats.values() };
        let mut dqkv = self.blank_like(&qkv);
        let mut scratch = self.scratch(self.team.threads() * attention_backward::backward_scratch(self.level(), call));
        attention_backward::backward(inputs, outputs, &self.team, dqkv.values_mut(), scratch.values_mut());
        self.as_operand(dqkv)
    }

    fn vocabulary_sweep(
        &self,
        x: &Tokens,
        table: &FastWeight,
        bias: Option<&Numbers>,
        shard: &VocabularyShard,
    ) -> (FastLogits, VocabularyStats<Numbers>) {
        let (first, last) = shard.rows;
        assert_eq!(last - first, shard.targets.len(), "one target a token");
        let mut logits = self.blank(last - first, table.rows());
        let mut pieces = self.scratch(PieceStats::room(last - first, table.rows()));
        let found = PieceStats::new(self.level(), table.rows(), pieces.values_mut());
        let bias = bias.map(Flat::values);
        match self.tiles_and(table) {
            Ok((machine, w)) => {
                let (stride, y) = (table.rows(), Parts::of(logits.values_mut()));
                let x = self.operand_rows(x, first..last);
                let tokens = x.tiles().rows(x.skip..x.skip + last - first);
                let output = Output::Wide { y, stride, bias };
                self.tile_product_and(machine, tokens, w.transposed(), &output, &|rows, columns| {
                    let Output::Wide { y, .. } = &output else { return };
                    for row in rows {
                        // SAFETY: each part is finished once, and written no more.
                        let piece = unsafe { y.part(row * stride + columns.start, columns.len()) };
                        found.finish(row, columns.start, piece);
                    }
                });
            }
            Err(w) => {
                let x = &x.values()[first * table.columns()..last * table.columns()];
                self.forward_product(x, w, bias, logits.values_mut(), |row, columns, logits| {
                    found.finish(row, columns.start, logits);
                });
            }
        }
        let blank = || Flat::blank(&self.pool, last - first, Kind::Activation);
        let mut stats = VocabularyStats { max: blank(), sum: blank(), target: blank() };
        let numbers = (stats.max.values_mut(), stats.sum.values_mut(), stats.target.values_mut());
        vocabulary::statistics(pieces.values(), logits.values(), table.rows(), shard, numbers);
        (FastLogits { values: logits }, stats)
    }

    fn vocabulary_rescale(&self, stats: &mut VocabularyStats<Numbers>, local: &Numbers) {
        rescale(stats.sum.values_mut(), local.values(), stats.max.values());
    }

    fn vocabulary_losses(&self, stats: &VocabularyStats<Numbers>, targets: &[i64]) -> Vec<f64> {
        let numbers = (stats.max.values(), stats.sum.values(), stats.target.values());
        losses(numbers, targets)
    }

    fn vocabulary_gradient(
        &self,
        logits: FastLogits,
        stats: &VocabularyStats<Numbers>,
        x: &Tokens,
        table: &FastWeight,
        shard: &VocabularyShard,
        scale: f64,
        dx: &mut Tokens,
        grads: &mut Numbers,
        at: usize,
        bias_at: Option<usize>,
    ) {
        let mut logits = logits.values;
        let (rows, columns, compute) = (table.rows(), table.columns(), self.compute);
        let numbers = (stats.max.values(), stats.sum.values(), scale);
        let made = |from: Option<&[f32]>, to: &RowsMut| {
            vocabulary::gradient(self.machine(), from, to, shard, numbers, |row| compute.round(row));
        };
        let logits = match compute.tiles {
            None => {
                made(None, &RowsMut::of(&mut logits));
                logits
            }
            Some(_) => {
                let mut narrow = self.blank_operand(logits.rows(), rows);
                made(Some(logits.values()), &RowsMut::of(&mut narrow));
                narrow
            }
        };
        let tokens = shard.rows.0 * columns..shard.rows.1 * columns;
        let dw = &mut grads.values_mut()[at..][..rows * columns];
        match self.tiles_and(table) {
            Ok((machine, w)) => {
                let y = Parts::of(&mut dx.values_mut()[tokens]);
                self.tile_product(
                    machine,
                    logits.tiles(),
                    w.straight(),
                    &Output::Wide { y, stride: columns, bias: None },
                );
                let x = self.operand_rows(x, shard.rows.0..shard.rows.1);
                self.tile_gradient(machine.tiles, x.tiles().rows(x.skip..x.skip + logits.rows()), logits.tiles(), dw);
            }
            Err(w) => {
                self.backward_product(logits.values(), w, &mut dx.values_mut()[tokens.clone()]);
                self.weight_product(&x.values()[tokens], logits.values(), (columns, rows), dw);
            }
        }
        if let Some(bias_at) = bias_at {
            let sums = &mut grads.values_mut()[bias_at..][..rows];
            elementwise::add_column_sums(self.level(), &self.team, Rows::of(&logits), logits.rows(), sums);
        }
    }

    fn logits_values(&self, logits: &FastLogits) -> Vec<f32> {
        self.download(&logits.values)
    }

    fn sum_of_squares(&self, buffer: &Numbers, range: Range<usize>) -> f64 {
        elementwise::sum_of_squares(self.level(), &self.team, &buffer.values()[range])
    }

    fn scale(&self, buffer: &mut Numbers, range: Range<usize>, factor: f64) {
        let level = self.level();
        elementwise::each_chunk(&self.team, &mut buffer.values_mut()[range], |x, _| {
            elementwise::scale(level, x, factor as f32);
        });
    }

    fn adam(
        &self,
        values: &mut Numbers,
        grads: &Numbers,
        first: &mut Numbers,
        second: &mut Numbers,
        range: Range<usize>,
        step: &AdamStep,
    ) {
        let values = &mut values.values_mut()[range.clone()];
        let (first, second) = (&mut first.values_mut()[range.clone()], &mut second.values_mut()[range.clone()]);
        elementwise::adam(self.machine(), values, &grads.values()[range], (first, second), step);
    }
}
