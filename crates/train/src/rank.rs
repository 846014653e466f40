//! One rank of a run: its stages, its store, its optimizer, and the loop over steps.

use crate::evaluation::losses;
use crate::executor::{Executor, Stages, Work};
use crate::metrics::{EvaluationReport, RunLog, StepReport};
use crate::optimizer::{Optimizer, squares};
use crate::prefetch::{Batch, Prefetch, Share, microbatch};
use crate::saver::Saver;
use crate::scaler::Scaler;
use crate::source::Source;
use crate::totals::{self, LossSums};
use crate::{Job, TrainError, diagnostics, memory};
use henge_comm::{Comm, Group, Place as GridPlace, Reduce};
use henge_model::{Context, Dropouts, Microbatch, Place, Stage, Store};
use henge_schedule::{Program, Shape};
use henge_spec::{Arch, Home, Model, Precision, ScheduleKind};
use henge_tensor::{Backend, Buffer, ViewMut};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

pub(crate) struct Rank<'a, B: Backend> {
    pub(crate) job: &'a Arc<Job>,
    pub(crate) backend: B,
    pub(crate) comm: &'a dyn Comm<B::Activation>,
    pub(crate) place: GridPlace,
    pub(crate) places: Vec<Place>,
    pub(crate) stages: Vec<Stage<B>>,
    pub(crate) store: Store<B>,
    pub(crate) optimizer: Optimizer<B>,
    pub(crate) scaler: Scaler,
    pub(crate) saver: Saver,
    programs: HashMap<usize, Program>,
    names: BTreeMap<String, usize>,
    pub(crate) progress: Progress,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// After its last step.
    Finished,
    /// On request, after this step, which is saved.
    Stopped {
        /// The step.
        step: u64,
    },
}

/// How far the run is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub steps: u64,
    pub samples: u64,
    pub tokens: u64,
    /// First sample of the last step.
    pub last_first: u64,
}

/// What a step leaves to report.
struct Outcome {
    /// Mean losses of the global batch.
    losses: LossSums,
    norm: f64,
    lr: f64,
    scale: f64,
    skipped: bool,
    squares: Vec<f64>,
    tokens: u64,
    data_seconds: f64,
}

impl<'a, B: Backend> Rank<'a, B> {
    pub fn new(job: &'a Arc<Job>, backend: B, comm: &'a dyn Comm<B::Activation>) -> Result<Self, TrainError> {
        let (run, grid) = (&job.run, comm.grid());
        let (place, layout) = (grid.place(comm.rank()), &run.layout);
        let stage_of = |chunk| henge_schedule::virtual_stage(layout.pipeline, place.pipeline, chunk);
        let places: Vec<Place> = (0..layout.chunks)
            .map(|chunk| Place {
                tensor: place.tensor,
                tensors: layout.tensor,
                stage: stage_of(chunk),
                stages: layout.stages(),
            })
            .collect();
        let mut store = Store::new(&backend, &run.model, &places);
        match &job.weights {
            Some(weights) => store.load_or_draw(run.seed, |slot, out| weights(&slot.parameter, slot.block, out))?,
            None => store.draw(run.seed),
        }
        let stages = places.iter().enumerate();
        let stages =
            stages.map(|(chunk, place)| Stage::new(&backend, &store, chunk, &run.model, place, layout.recompute));
        let stages = stages.collect();
        let mut rank = Self {
            optimizer: Optimizer::new(&backend, run.train.optimizer, &store),
            scaler: Scaler::new(run.train.precision, run.train.loss_scale),
            saver: Saver::new(job.clone()),
            programs: HashMap::new(),
            names: diagnostics::names(&run.model),
            progress: Progress::default(),
            job,
            backend,
            comm,
            place,
            places,
            stages,
            store,
        };
        if let Some(checkpoint) = &job.resume {
            rank.restore(checkpoint)?;
        }
        Ok(rank)
    }

    /// Prepares every weight again from the master values.
    pub(crate) fn refresh(&mut self) {
        for stage in &mut self.stages {
            stage.refresh(&self.backend, &self.store.values);
        }
    }

    /// Trains to the last step, or to the end of the step in which the run is asked to stop.
    /// Rank 0 writes metrics and tells the observer.
    pub fn train(&mut self) -> Result<Ended, TrainError> {
        let mut metrics = self.open_metrics()?;
        self.saver.reserve(&self.parts());
        self.dump_logits()?;
        let (steps, first) = (self.job.run.train.steps, self.progress.steps + 1);
        let train = self.job.train.clone();
        let mut batches = Prefetch::start(train, self.share(), self.progress.steps..steps, self.progress.samples);
        while self.progress.steps < steps {
            let report = self.step(&mut batches)?;
            if let Some(metrics) = &mut metrics {
                metrics.line(&report)?;
                self.job.observer.step(&report);
            }
            if self.comm.rank() == 0 && report.step == first {
                self.report_memory()?;
            }
            self.evaluate_if_due(&mut metrics)?;
            let stop = self.agree_on_the_boundary()?;
            if stop || self.is_save_due() {
                metrics.as_mut().map_or(Ok(()), RunLog::sync)?;
                self.begin_save(report.loss)?;
            }
            if stop && self.progress.steps < steps {
                self.finish_save()?;
                return Ok(Ended::Stopped { step: self.progress.steps });
            }
        }
        self.finish_save()?;
        self.predict_all()?;
        Ok(Ended::Finished)
    }

    pub(crate) fn backend(&self) -> &B {
        &self.backend
    }

    /// Tells what this rank holds by kind, beside the formulas, and writes `memory.json`.
    fn report_memory(&self) -> Result<(), TrainError> {
        let shapes = self.programs.values().map(|program| program.shape);
        let in_flight = shapes.map(|shape| shape.peak_in_flight(self.place.pipeline)).max().unwrap_or(1);
        let (bytes, last) = (self.backend.element_bytes(), &self.places[self.places.len() - 1]);
        let forecast = memory::forecast(&self.job.run, bytes, self.store.values.len(), in_flight, last);
        let report = memory::report(&self.backend.held(), &forecast, self.saver.bytes);
        self.job.observer.memory(&report);
        self.write_json(&self.job.folder.join("memory.json"), &report)
    }

    fn write_json(&self, path: &Path, record: &impl Serialize) -> Result<(), TrainError> {
        let failed = |error| TrainError::Output { path: path.display().to_string(), source: error };
        let text = serde_json::to_string(record).map_err(io::Error::other).map_err(failed)?;
        henge_files::write_atomic(path, |file| file.write_all(text.as_bytes()))
            .map_err(io::Error::other)
            .map_err(failed)
    }

    /// At the end of a step all ranks agree on two things in one call: whether to stop, as any of
    /// them was asked, and whether the save in flight goes on.
    fn agree_on_the_boundary(&mut self) -> Result<bool, TrainError> {
        let asked = self.job.stop.load(Ordering::Relaxed);
        let busy = self.saver.is_busy()?;
        let mut values = [asked, busy].map(|flag| f64::from(u8::from(flag)));
        self.comm.all_reduce(Group::World, ViewMut::of(&mut values), Reduce::Max)?;
        let [asked, busy] = values.map(|value| value > 0.0);
        self.advance_save(busy)?;
        Ok(asked)
    }

    fn is_save_due(&self) -> bool {
        let (every, steps) = (self.job.run.checkpoint_every, self.progress.steps);
        steps == self.job.run.train.steps || every > 0 && steps.is_multiple_of(every)
    }

    /// Every rank checks the receipt of a resume before a line of the run is touched.
    fn open_metrics(&self) -> Result<Option<RunLog>, TrainError> {
        let receipt = self.job.resume.as_ref().map(|checkpoint| self.receipt(checkpoint)).transpose()?;
        if self.comm.rank() != 0 {
            return Ok(None);
        }
        let metrics = RunLog::open(&self.job.folder, self.progress.steps + 1)?;
        receipt.iter().for_each(|receipt| self.job.observer.resumed(receipt));
        Ok(Some(metrics))
    }

    fn step(&mut self, batches: &mut Prefetch) -> Result<StepReport, TrainError> {
        let begin = Instant::now();
        let Progress { steps, samples, .. } = self.progress;
        let batch = batches.next().ok_or(TrainError::UsedUp("the batches are used up".to_string()))?;
        let Batch { global, micros, .. } = batch?;
        let data_seconds = begin.elapsed().as_secs_f64();
        let outcome = Outcome { data_seconds, ..self.run_step(&micros, global)? };
        self.progress = Progress {
            steps: steps + 1,
            samples: samples + global as u64,
            tokens: self.progress.tokens + outcome.tokens,
            last_first: samples,
        };
        Ok(self.report(outcome, begin.elapsed().as_secs_f64(), global))
    }

    /// This replica's share of every batch.
    pub(crate) fn share(&self) -> Share {
        let run = &self.job.run;
        Share { replica: self.place.data, replicas: run.layout.data, micro: run.train.batching.micro }
    }

    fn run_step(&mut self, micros: &[Microbatch], global: usize) -> Result<Outcome, TrainError> {
        let (scored, tokens) = self.scored(micros)?;
        let scale = self.scaler.scale();
        self.store.clear_grads();
        self.prepare_program(micros.len())?;
        let program = &self.programs[&micros.len()];
        let dropouts = Dropouts::of(&self.job.run.model, self.job.run.seed);
        let stages = stages(self.job, &self.backend, self.comm, &self.places, &self.stages, dropouts);
        let weights = LossSums { tokens: scale, classes: scale }.over(scored);
        let work = Work { micros, scale: weights.tokens, class_scale: weights.classes };
        let executor = Executor::new(&self.backend, self.comm, stages, &mut self.store, work);
        let own_losses = executor.walk(program, self.place.pipeline)?;
        let mut sums = own_losses.as_array();
        totals::from_last_stage(self.comm, &mut sums)?;
        let losses = LossSums::of_array(sums).over(scored);
        let squares = squares(&self.backend, self.comm, &self.store, &self.names, self.place.tensor)?;
        let norm = squares.iter().sum::<f64>().sqrt() / scale;
        let lr = self.optimizer.lr();
        let skipped = match norm.is_finite() && losses.total().is_finite() {
            true => self.update(norm, scale),
            false if self.scaler.overflow() => true,
            false => return Err(self.non_finite(own_losses.total(), global)?),
        };
        Ok(Outcome { losses, norm, lr, scale, skipped, squares, tokens, data_seconds: 0.0 })
    }

    /// What is scored in the global batch, counted before the first forward, and its tokens.
    fn scored(&self, micros: &[Microbatch]) -> Result<(LossSums, u64), TrainError> {
        let own = micros.iter().map(|micro| micro.used() as f64).sum();
        let [tokens, classes] = LossSums::scored(micros).as_array();
        let mut counts = [tokens, classes, own];
        totals::sum(self.comm, Group::Data, &mut counts)?;
        let [tokens, classes, used] = counts;
        Ok((LossSums::of_array([tokens, classes]), used as u64))
    }

    fn prepare_program(&mut self, microbatches: usize) -> Result<(), TrainError> {
        if self.programs.contains_key(&microbatches) {
            return Ok(());
        }
        let layout = &self.job.run.layout;
        let kind = match layout.schedule {
            // One chunk a rank is plain 1F1B by another name.
            ScheduleKind::Interleaved if layout.chunks == 1 => ScheduleKind::OneForwardOneBackward,
            kind => kind,
        };
        let shape = Shape { kind, pipeline: layout.pipeline, chunks: layout.chunks, microbatches };
        let program = Program::generate(shape)?;
        if let Err(fault) = henge_schedule::check(&program) {
            panic!("a generated program is wrong: {fault}");
        }
        self.programs.insert(microbatches, program);
        Ok(())
    }

    /// Steps the optimizer; nothing is skipped.
    fn update(&mut self, norm: f64, scale: f64) -> bool {
        self.optimizer.update(&self.backend, &mut self.store, norm, scale);
        self.refresh();
        self.scaler.clean();
        false
    }

    /// What went wrong first, agreed on by every rank: the loss, or else the gradient nearest
    /// to it, since a backward spreads what is not finite towards the embedding.
    fn non_finite(&self, own_loss: f64, global: usize) -> Result<TrainError, TrainError> {
        let all = henge_spec::parameters(&self.job.run.model);
        let number = |slot: &henge_model::Slot| all.iter().position(|parameter| parameter.name == slot.parameter.name);
        let bad =
            |slot: &&henge_model::Slot| !self.backend.sum_of_squares(&self.store.grads, slot.range.clone()).is_finite();
        let own = match own_loss.is_finite() {
            false => Some(all.len()),
            true => self.store.slots.iter().filter(|slot| !slot.copy).filter(bad).filter_map(number).max(),
        };
        let latest = self.largest(own.map_or(-1.0, |number| number as f64))?;
        let mine = own.is_some_and(|number| number as f64 == latest);
        // Of several ranks that saw it the first is named.
        let rank = -self.largest(if mine { -(self.comm.rank() as f64) } else { f64::NEG_INFINITY })?;
        let (what, place) = match all.get(latest as usize) {
            Some(parameter) => (format!("the gradient of {}", parameter.name), place_of(parameter.home)),
            None => ("the loss".to_string(), "after the last layer".to_string()),
        };
        let (step, first_sample) = (self.progress.steps + 1, self.progress.samples);
        let last_sample = first_sample + global as u64 - 1;
        Ok(TrainError::NonFinite { step, what, rank: rank as usize, place, first_sample, last_sample })
    }

    pub(crate) fn largest(&self, value: f64) -> Result<f64, TrainError> {
        let mut values = [value];
        self.comm.all_reduce(Group::World, ViewMut::of(&mut values), Reduce::Max)?;
        Ok(values[0])
    }

    fn report(&mut self, outcome: Outcome, seconds: f64, global: usize) -> StepReport {
        let run = &self.job.run;
        // Sequences may be shorter than the model's longest: given ones, and pairs without padding.
        let shape = Model { seq_len: outcome.tokens as usize / global, ..run.model.clone() };
        let flops = henge_spec::formulas::model_flops(&shape, global as f64);
        let gradients = self.job.options.dump_gradients.then(|| {
            let norm = |&index: &usize| outcome.squares[index].sqrt() / outcome.scale;
            self.names.iter().map(|(name, index)| (name.clone(), norm(index))).collect()
        });
        let encoder = run.model.arch == Arch::Bert;
        StepReport {
            step: self.progress.steps,
            loss: outcome.losses.total(),
            masked_loss: encoder.then_some(outcome.losses.tokens),
            order_loss: encoder.then_some(outcome.losses.classes),
            lr: outcome.lr,
            grad_norm: outcome.norm,
            loss_scale: outcome.scale,
            skipped: outcome.skipped,
            samples: self.progress.samples,
            tokens: self.progress.tokens,
            step_seconds: seconds,
            data_seconds: outcome.data_seconds,
            save_seconds: self.saver.take_held_up(),
            tokens_per_second: outcome.tokens as f64 / seconds,
            model_tflops: flops / seconds / 1e12,
            mfu: self.job.options.peak_flops.map(|peak| flops / seconds / peak),
            held_bytes: self.backend.held().total() + self.saver.bytes,
            gradients,
        }
    }

    fn evaluate_if_due(&mut self, metrics: &mut Option<RunLog>) -> Result<(), TrainError> {
        let train = &self.job.run.train;
        let (every, steps) = (train.eval_every, self.progress.steps);
        let due = every > 0 && (steps.is_multiple_of(every) || steps == train.steps);
        if !due {
            return Ok(());
        }
        for (set, source) in &self.job.valid {
            let report = self.evaluate(set, source.clone())?;
            if let Some(metrics) = metrics {
                metrics.line(&report)?;
                self.job.observer.evaluation(&report);
            }
        }
        Ok(())
    }

    /// Mean loss over the first batches of a set.
    fn evaluate(&self, set: &str, source: Arc<dyn Source>) -> Result<EvaluationReport, TrainError> {
        let stages = stages(self.job, &self.backend, self.comm, &self.places, &self.stages, Dropouts::NONE);
        let (mut sums, mut scored) = (LossSums::default(), LossSums::default());
        let mut batches = Prefetch::start(source, self.share(), 0..self.job.run.train.eval_steps, 0);
        while let Some(batch) = batches.next() {
            for (index, micro) in batch?.micros.iter().enumerate() {
                if let Some(losses) = losses(&self.backend, self.comm, &stages, micro, index)? {
                    sums.add(&losses);
                    scored.add_sums(LossSums::scored(std::slice::from_ref(micro)));
                }
            }
        }
        let (sums, scored) = LossSums::from_last_stage(self.comm, sums, scored)?;
        let means = sums.over(scored);
        let (eval_loss, encoder) = (means.total(), self.job.run.model.arch == Arch::Bert);
        let step = self.progress.steps;
        if !eval_loss.is_finite() && self.job.run.train.precision != Precision::F16 {
            return Err(TrainError::NonFiniteEvaluation { step, set: set.to_string() });
        }
        Ok(EvaluationReport {
            step,
            set: set.to_string(),
            eval_loss,
            perplexity: means.tokens.exp(),
            masked_loss: encoder.then_some(means.tokens),
            order_loss: encoder.then_some(means.classes),
            targets: scored.tokens as u64,
        })
    }

    fn dump_logits(&self) -> Result<(), TrainError> {
        let Some(path) = &self.job.options.dump_logits else { return Ok(()) };
        let source = self.job.train.as_ref();
        let last = source.batch(0, 0).map_or(0, |sequences| sequences as u64 - 1);
        let micro = microbatch(source, [0, last])?;
        let stages = stages(self.job, &self.backend, self.comm, &self.places, &self.stages, Dropouts::NONE);
        let logits = diagnostics::first_logits(&self.backend, self.comm, &stages, &micro)?;
        if self.comm.rank() != 0 {
            return Ok(());
        }
        self.write_json(path, &logits)
    }
}

fn place_of(home: Home) -> String {
    match home {
        Home::Embedding => "the embedding".to_string(),
        Home::Layer(layer) => format!("layer {layer}"),
        Home::Head => "after the last layer".to_string(),
    }
}

pub(crate) fn stages<'r, B: Backend>(
    job: &'r Job,
    backend: &'r B,
    comm: &'r dyn Comm<B::Activation>,
    places: &[Place],
    stages: &'r [Stage<B>],
    dropouts: Dropouts,
) -> Stages<'r, B> {
    let context = |&place: &Place| Context { backend, comm, model: &job.run.model, place, dropouts };
    Stages { stages, contexts: places.iter().map(context).collect() }
}
