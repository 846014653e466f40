//! The trait's operations: sizes checked, buffers taken, kernels called.

use super::attention_backward::Outputs;
use super::vocabulary::PieceStats;
use super::{Fast, FastLogits, FastWeight, Numbers, Tokens};
use super::{attention, attention_backward, decode, elementwise, norm, rotary, vocabulary};
use crate::memory::{Activation, Flat};
use crate::plain::vocabulary::{local, losses, rescale};
use crate::rounding::Rounding;
use crate::team::Parts;
use henge_tensor::{
    AdamStep, AttentionCall, Backend, Buffer, CachedAttention, DropoutAt, Held, Kind, Matrix, NonLinearity, Rotation,
    VocabularyShard, VocabularyStats,
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
        let operands = match self.compute.rounding {
            Rounding::Exact => String::new(),
            rounding => format!(", operands rounded to {}", rounding.name()),
        };
        format!("{} f32{operands}, {} threads", self.level().name(), self.team.threads())
    }

    fn held(&self) -> Held {
        self.pool.held()
    }

    fn zeros(&self, len: usize, kind: Kind) -> Numbers {
        Flat::zeros(&self.pool, len, kind)
    }

    fn prepare(&self, buffer: &Numbers, at: usize, rows: usize, columns: usize) -> FastWeight {
        let mut weight = FastWeight::new(&self.pool, self.level(), rows, columns);
        self.refresh(&mut weight, buffer, at);
        weight
    }

    fn refresh(&self, weight: &mut FastWeight, buffer: &Numbers, at: usize) {
        weight.pack(&self.team, &buffer.values()[at..]);
        for packed in weight.packed_mut() {
            self.round_all(packed);
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
        x.values().to_vec()
    }

    fn duplicate(&self, x: &Tokens) -> Tokens {
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
        let level = self.level();
        elementwise::each_chunk(&self.team, x.values_mut(), |x, range| elementwise::add(level, x, &y.values()[range]));
    }

    fn dropout(&self, x: &mut Tokens, at: &DropoutAt) {
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
        let (columns, bias) = (branch.columns(), bias.map(Flat::values));
        let branch_values = branch.values_mut();
        elementwise::add_branch(self.level(), &self.team, branch_values, columns, residual.values(), bias, dropout);
        branch
    }

    fn take_rows(&self, x: &Tokens, rows: &[usize]) -> Tokens {
        let mut y = self.blank(rows.len(), x.columns());
        elementwise::each_row(&self.team, y.values_mut(), x.columns(), |y, at| y.copy_from_slice(x.row(rows[at])));
        y
    }

    fn add_rows(&self, x: &mut Tokens, rows: &[usize], y: &Tokens) {
        assert_eq!((rows.len(), x.columns()), (y.rows(), y.columns()), "rows to add");
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
        let (columns, level) = (dy.columns(), self.level());
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
        let inputs = norm::Backward { dy: dy.values(), x: x.values(), stats: stats.values(), gain: gain.values() };
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
        let inputs = norm::Backward { dy: dy.values(), x: x.values(), stats: stats.values(), gain: gain.values() };
        inputs.rms_norm(self.machine(), dx.values_mut(), scratch.values_mut());
        for dgain in scratch.values().chunks_exact(columns.max(1)) {
            elementwise::add(self.level(), &mut grads.values_mut()[gain_at..][..columns], dgain);
        }
    }

    fn linear(&self, x: &Tokens, w: &FastWeight, bias: Option<&Numbers>) -> Tokens {
        assert_eq!(x.columns(), w.columns(), "inputs of a linear");
        let (mut y, compute) = (self.blank(x.rows(), w.rows()), self.compute);
        let bias = bias.map(Flat::values);
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
        let (mut pre, mut y) = (self.blank(x.rows(), w.rows()), self.blank(x.rows(), w.rows()));
        let outputs = Parts::of(y.values_mut());
        let (compute, width) = (self.compute, w.rows());
        let bias = bias.map(Flat::values);
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
        let mut dx = self.blank(dy.rows(), w.columns());
        self.backward_product(dy.values(), w, dx.values_mut());
        dx
    }

    fn linear_weight_gradient(&self, x: &Tokens, dy: &Tokens, grads: &mut Numbers, at: usize) {
        assert_eq!(x.rows(), dy.rows(), "tokens of a linear");
        let dw = &mut grads.values_mut()[at..][..x.columns() * dy.columns()];
        self.weight_product(x.values(), dy.values(), (x.columns(), dy.columns()), dw);
    }

    fn bias_gradient(&self, dy: &Tokens, grads: &mut Numbers, at: usize) {
        let sums = &mut grads.values_mut()[at..][..dy.columns()];
        elementwise::add_column_sums(self.level(), &self.team, dy.values(), sums);
    }

    fn activation_backward(&self, mut dy: Tokens, pre: &Tokens, f: NonLinearity) -> Tokens {
        let compute = self.compute;
        if f == NonLinearity::SwiGlu {
            let mut dpre = self.blank_like(pre);
            elementwise::each_row(&self.team, dpre.values_mut(), pre.columns(), |dpre, row| {
                elementwise::gated_backward(compute.level, dy.row(row), pre.row(row), dpre);
                compute.round(dpre);
            });
            return dpre;
        }
        elementwise::each_chunk(&self.team, dy.values_mut(), |dy, range| {
            elementwise::activate_backward(compute.level, dy, &pre.values()[range], f);
            compute.round(dy);
        });
        dy
    }

    fn rotate(&self, qkv: &mut Tokens, rotation: &Rotation) {
        assert_eq!(qkv.rows(), rotation.positions.len(), "one position a token");
        let (columns, compute) = (qkv.columns(), self.compute);
        let turned = rotation.heads * 2 * rotation.table.pairs;
        elementwise::each_row(&self.team, qkv.values_mut(), columns, |row, token| {
            let angles = rotation.table.at(rotation.positions[token] as usize);
            rotary::turn_heads(compute.level, &mut row[..turned], angles, rotation.turn);
            compute.round(&mut row[..turned]);
        });
    }

    fn attention(&self, qkv: &Tokens, call: &AttentionCall) -> (Tokens, Numbers) {
        let inputs = self.attention_inputs(qkv, call);
        let mut y = self.blank(qkv.rows(), call.shape.heads * call.shape.head_dim);
        let mut logs = Flat::blank(&self.pool, qkv.rows() * call.shape.heads, Kind::Activation);
        let mut scratch = self.scratch(self.team.threads() * attention::forward_scratch(self.level(), call));
        attention::forward(inputs, &self.team, y.values_mut(), logs.values_mut(), scratch.values_mut());
        self.round_all(y.values_mut());
        (y, logs)
    }

    fn attention_cached(&self, qkv: &Tokens, cache: &mut Numbers, call: &CachedAttention) -> Tokens {
        assert_eq!((qkv.rows(), qkv.columns()), (call.rows(), call.qkv_columns()), "fused attention input");
        let mut y = self.blank(qkv.rows(), call.heads * call.head_dim);
        let mut scratch = self.scratch(self.team.threads() * decode::scratch_len(call));
        let inputs = decode::Inputs { level: self.level(), qkv: qkv.values(), call };
        decode::forward(inputs, &self.team, cache.values_mut(), y.values_mut(), scratch.values_mut());
        self.round_all(y.values_mut());
        y
    }

    fn attention_backward(
        &self,
        dy: &Tokens,
        qkv: &Tokens,
        y: &Tokens,
        stats: &Numbers,
        call: &AttentionCall,
    ) -> Tokens {
        let inputs = self.attention_inputs(qkv, call);
        let outputs = Outputs { y: y.values(), dy: dy.values(), logs: stats.values() };
        let mut dqkv = self.blank_like(qkv);
        let mut scratch = self.scratch(self.team.threads() * attention_backward::backward_scratch(self.level(), call));
        attention_backward::backward(inputs, outputs, &self.team, dqkv.values_mut(), scratch.values_mut());
        self.round_all(dqkv.values_mut());
        dqkv
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
        let x = &x.values()[first * table.columns()..last * table.columns()];
        let mut pieces = self.scratch(PieceStats::room(last - first, table.rows()));
        let found = PieceStats::new(self.level(), table.rows(), pieces.values_mut());
        self.forward_product(x, table, bias.map(Flat::values), logits.values_mut(), |row, columns, logits| {
            found.finish(row, columns.start, logits);
        });
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
        vocabulary::gradient(self.machine(), logits.values_mut(), rows, shard, numbers, |row| compute.round(row));
        let tokens = shard.rows.0 * columns..shard.rows.1 * columns;
        self.backward_product(logits.values(), table, &mut dx.values_mut()[tokens.clone()]);
        let dw = &mut grads.values_mut()[at..][..rows * columns];
        self.weight_product(&x.values()[tokens], logits.values(), (columns, rows), dw);
        if let Some(bias_at) = bias_at {
            let sums = &mut grads.values_mut()[bias_at..][..rows];
            elementwise::add_column_sums(self.level(), &self.team, logits.values(), sums);
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
