//! A rank's own threads.
//!
//! ```text
//!   caller = worker 0        run(f): publish f, take part, wait for the others
//!   worker 1..threads        wait for a generation, run f, count down
//! ```
//!
//! Both waits spin for some microseconds, since the next operation of a step follows at
//! once, and then sleep, so that idle ranks leave the processor to others. One thread
//! starts no worker.
//!
//! Rejected: a pool shared by ranks (their operations would queue behind each other, and
//! which thread touches what would depend on the neighbours); rayon's pool per rank (its
//! hand-over costs more than a small operation).

use std::cell::Cell;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Turns of the spinning wait, about 50 microseconds.
const PATIENCE: u32 = 1_000;

/// What the workers run: a function of the worker's number.
type Job = dyn Fn(usize) + Sync;

/// A job with its lifetime forgotten; `Team::run` does not return while a worker may use it.
#[derive(Clone, Copy)]
struct JobPointer(*const Job);
// SAFETY: the job is `Sync`, and `Team::run` keeps it alive until all workers are done.
unsafe impl Send for JobPointer {}

/// Some threads that work together on one operation at a time.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// One operation at a time: not to be shared between threads.
    exclusive: PhantomData<Cell<()>>,
}

struct Shared {
    job: Mutex<Option<JobPointer>>,
    /// Number of jobs published so far; changes under `job`'s lock.
    generation: AtomicU64,
    start: Condvar,
    /// Workers still at the present job.
    busy: AtomicUsize,
    done: Condvar,
    panicked: AtomicBool,
    quit: AtomicBool,
}

impl Team {
    /// A team of `threads` (at least 1), the caller included.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            job: Mutex::new(None),
            generation: AtomicU64::new(0),
            start: Condvar::new(),
            busy: AtomicUsize::new(0),
            done: Condvar::new(),
            panicked: AtomicBool::new(false),
            quit: AtomicBool::new(false),
        });
        let spawn = |worker| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.work(worker))
        };
        let workers = (1..threads).map(spawn).collect();
        Self { shared, workers, exclusive: PhantomData }
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `work(worker)` on every thread and returns when all are done.
    pub fn run(&self, work: &(dyn Fn(usize) + Sync)) {
        if self.workers.is_empty() {
            return work(0);
        }
        // SAFETY: only the lifetime changes; `finish` below runs before `work` ends, also
        // when the caller's own part panics.
        let job: *const Job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const Job>(work) };
        self.shared.publish(JobPointer(job), self.workers.len());
        let own = catch_unwind(AssertUnwindSafe(|| work(0)));
        self.shared.finish();
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        assert!(!self.shared.panicked.load(Ordering::Acquire), "a thread of the team panicked");
    }

    /// Runs `work(worker, task)` once for each task, in order of arrival. What a task
    /// computes must not depend on its worker.
    pub fn each(&self, tasks: usize, work: &(dyn Fn(usize, usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() {
            return (0..tasks).for_each(|task| work(0, task));
        }
        let next = AtomicUsize::new(0);
        self.run(&|worker| {
            loop {
                let task = next.fetch_add(1, Ordering::Relaxed);
                if task >= tasks {
                    break;
                }
                work(worker, task);
            }
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        {
            let _job = lock(&self.shared.job);
            self.shared.generation.fetch_add(1, Ordering::AcqRel);
            self.shared.start.notify_all();
        }
        for worker in self.workers.drain(..) {
            // A worker catches the panics of its jobs, so it ends well.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn publish(&self, job: JobPointer, workers: usize) {
        self.busy.store(workers, Ordering::Release);
        *lock(&self.job) = Some(job);
        self.generation.fetch_add(1, Ordering::AcqRel);
        // A worker that saw the old generation under the lock is waiting by now.
        drop(lock(&self.job));
        self.start.notify_all();
    }

    /// Returns once no worker is at the job.
    fn finish(&self) {
        if !spin(|| self.busy.load(Ordering::Acquire) == 0) {
            let mut job = lock(&self.job);
            while self.busy.load(Ordering::Acquire) != 0 {
                job = self.done.wait(job).unwrap_or_else(PoisonError::into_inner);
            }
        }
        *lock(&self.job) = None;
    }

    fn work(&self, worker: usize) {
        let mut seen = 0;
        loop {
            seen = self.await_generation(seen);
            if self.quit.load(Ordering::Acquire) {
                return;
            }
            let job = *lock(&self.job);
            if let Some(JobPointer(job)) = job {
                // SAFETY: `Team::run` waits for `busy` to fall to 0 before the job ends.
                let job = unsafe { &*job };
                if catch_unwind(AssertUnwindSafe(|| job(worker))).is_err() {
                    self.panicked.store(true, Ordering::Release);
                }
            }
            if self.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                drop(lock(&self.job));
                self.done.notify_all();
            }
        }
    }

    fn await_generation(&self, seen: u64) -> u64 {
        let changed = || self.generation.load(Ordering::Acquire) != seen;
        if !spin(changed) {
            let mut job = lock(&self.job);
            while !changed() {
                job = self.start.wait(job).unwrap_or_else(PoisonError::into_inner);
            }
        }
        seen + 1
    }
}

/// Whether `ready` came true within our patience.
fn spin(ready: impl Fn() -> bool) -> bool {
    for _ in 0..PATIENCE {
        if ready() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slice whose disjoint parts are written by different tasks.
pub(crate) struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    owner: PhantomData<&'a mut [T]>,
}

// SAFETY: handing out parts is `unsafe`, and its caller keeps them disjoint.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub fn of(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), owner: PhantomData }
    }

    /// The address of element `at`, for writes in strides.
    pub fn pointer(&self, at: usize) -> *mut T {
        assert!(at <= self.len, "element {at} of {}", self.len);
        self.start.wrapping_add(at)
    }

    /// As [`Parts::pointer`], also past the end, for what is only fetched ahead.
    pub fn address(&self, at: usize) -> *const T {
        self.start.wrapping_add(at)
    }

    /// `len` elements from `at`.
    ///
    /// # Safety
    /// No two parts in use at one time overlap.
    #[allow(clippy::mut_from_ref)] // the point of the type
    pub unsafe fn part(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "part {at} + {len} of {}", self.len);
        // SAFETY: inside the slice by the check; disjoint by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(at), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in 1..5 {
            let team = Team::new(threads);
            assert_eq!(team.threads(), threads);
            for tasks in [0, 1, 2, 7, 100] {
                let mut counts = vec![0u8; tasks];
                let parts = Parts::of(&mut counts);
                // SAFETY: each task writes its own element.
                team.each(tasks, &|_, task| unsafe { parts.part(task, 1)[0] += 1 });
                assert!(counts.iter().all(|&count| count == 1));
            }
        }
    }

    #[test]
    fn rounds_follow_each_other_after_spinning_and_after_sleeping() {
        let team = Team::new(3);
        let sum = AtomicUsize::new(0);
        for round in 0..2_000 {
            team.run(&|worker| {
                sum.fetch_add(worker, Ordering::Relaxed);
            });
            if round % 500 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        assert_eq!(sum.into_inner(), 2_000 * 3);
    }

    #[test]
    #[should_panic(expected = "a thread of the team panicked")]
    fn a_panic_of_a_worker_reaches_the_caller() {
        Team::new(2).run(&|worker| assert_eq!(worker, 0));
    }
}
