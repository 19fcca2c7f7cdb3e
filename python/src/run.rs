//! Runs the engine on its own thread, while Python shows progress, handles Ctrl-C and raises errors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjoin::{Argument, Cancel, Context, Error, ErrorKind, Mention, Progress, Result, device::Creator};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::options::Resources;

/// Interval of checks for signals and progress.
const EVERY: Duration = Duration::from_millis(100);

/// The current runs of this process. The system counts their memory together, so each must know the budgets of the
/// others.
///
/// This mutex is locked only by threads that hold the interpreter's lock. A thread that forks holds that lock, so the
/// mutex is never locked in a child.
static RUNS: Mutex<Vec<Run>> = Mutex::new(Vec::new());

/// Budget of a run, and the largest sum of the budgets of the runs that were concurrent with it.
struct Run {
    /// Process of the run. A forked child drops the runs of its parent.
    creator: Creator,
    budget_bytes: u64,
    others_bytes: Arc<AtomicU64>,
}

/// Registers a run in `RUNS` until it is dropped.
pub(crate) struct Counted(Arc<AtomicU64>);

impl Counted {
    fn begin(budget_bytes: u64, others_bytes: Arc<AtomicU64>) -> Self {
        let (runs, creator) = (&mut *lock(&RUNS), Creator::this_process());
        runs.retain(|run| run.creator == creator);
        runs.push(Run { creator, budget_bytes, others_bytes: others_bytes.clone() });
        let all: u64 = runs.iter().map(|run| run.budget_bytes).sum();
        for run in runs.iter() {
            run.others_bytes.fetch_max(all - run.budget_bytes, Ordering::Relaxed);
        }
        Self(others_bytes)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        lock(&RUNS).retain(|run| !Arc::ptr_eq(&run.others_bytes, &self.0));
    }
}

/// Threads that wait for work. Locked like [`RUNS`].
static WAITING: Mutex<Vec<WaitingThread>> = Mutex::new(Vec::new());
/// Most threads that wait for work.
const WAITING_MAX: usize = 8;

/// Work of a waiting thread.
type Job = Box<dyn FnOnce() + Send>;

/// A thread that runs one job after another.
struct WaitingThread {
    /// Process of the thread. Forked children do not have it.
    creator: Creator,
    jobs: SyncSender<Job>,
}

impl WaitingThread {
    /// Returns a thread that waits for work; a new one if there is none.
    fn take() -> std::io::Result<Self> {
        let creator = Creator::this_process();
        let mut waiting = lock(&WAITING);
        waiting.retain(|thread| thread.creator == creator);
        if let Some(thread) = waiting.pop() {
            return Ok(thread);
        }
        let (jobs, receiver) = sync_channel::<Job>(1);
        let thread = std::thread::Builder::new().name("adjoin".to_owned());
        // A job that panics drops the sender of its result, which its caller reports. The thread takes the next job.
        thread.spawn(move || receiver.into_iter().for_each(|job| drop(catch_unwind(AssertUnwindSafe(job)))))?;
        Ok(Self { creator, jobs })
    }

    /// Starts a job. If the thread has ended, the job is dropped.
    fn begin(&self, job: impl FnOnce() + Send + 'static) {
        let _ = self.jobs.send(Box::new(job)); // the receiver of the job's result then reports that
    }

    /// Lets the thread wait for other work. It ends if enough others wait.
    fn give_back(self) {
        let mut waiting = lock(&WAITING);
        if waiting.len() < WAITING_MAX {
            waiting.push(self);
        }
    }
}

/// A run that is about to start.
pub(crate) struct Running {
    creator: Creator,
    context: Context,
    /// Sum of the budgets of concurrent runs.
    others_bytes: Arc<AtomicU64>,
    progress: Option<Py<PyAny>>,
    told: Arc<Told>,
}

/// The last progress of the engine, and log lines that were not passed to Python yet.
#[derive(Default)]
struct Told {
    phase: Mutex<Option<Phase>>,
    notes: Mutex<Vec<String>>,
}

#[derive(Clone)]
struct Phase {
    name: String,
    unit: String,
    total: u64,
    done: u64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Progress for Told {
    fn begin(&self, phase: &str, unit: &str, total: u64) {
        *lock(&self.phase) = Some(Phase { name: phase.to_owned(), unit: unit.to_owned(), total, done: 0 });
    }

    fn advance(&self, done: u64) {
        if let Some(phase) = &mut *lock(&self.phase) {
            phase.done = done;
        }
    }

    fn note(&self, line: &str) {
        lock(&self.notes).push(line.to_owned());
    }
}

impl Running {
    pub(crate) fn new(resources: &Resources, progress: Option<Py<PyAny>>) -> Result<Self> {
        let told = Arc::new(Told::default());
        let others_bytes = Arc::default();
        let mut context = resources.context(Arc::clone(&others_bytes))?;
        context.progress = told.clone();
        Ok(Self { creator: Creator::this_process(), context, others_bytes, progress, told })
    }

    /// Prepares a run on an open folder. It shares the memory of the folder's `context` with other runs, unless the caller
    /// set other resources. A forked child of the process that opened the folder has memory of its own.
    pub(crate) fn sharing(context: &Context, resources: &Resources, progress: Option<Py<PyAny>>) -> Result<Self> {
        let creator = Creator::this_process();
        if !resources.are_of_folder() || context.budget().creator() != creator {
            return Self::new(resources, progress);
        }
        let (told, others_bytes) = (Arc::new(Told::default()), Arc::default());
        let mut context = context.clone().beside(resources.before_bytes(), Arc::clone(&others_bytes));
        context.progress = told.clone();
        Ok(Self { creator, context, others_bytes, progress, told })
    }

    /// Returns the context of the run.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Disables progress callbacks.
    pub(crate) fn silent(self) -> Self {
        Self { progress: None, ..self }
    }

    /// Returns an error in a forked child.
    pub(crate) fn check_creator(&self) -> Result<()> {
        Context::check_opened_here(self.creator, "this result")
    }

    /// Registers the budget of this run until the returned value is dropped, for work that continues after the call.
    pub(crate) fn counted(&self) -> Counted {
        Counted::begin(self.context.memory_bytes(), self.others_bytes.clone())
    }

    /// Runs `work` on its own thread, without the interpreter's lock.
    pub(crate) fn run<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&Context) -> Result<R> + Send) -> PyResult<R> {
        let context = &self.uncanceled();
        self.run_by(py, || {
            let (sender, receiver) = sync_channel(1);
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name("adjoin".to_owned());
                match thread.spawn_scoped(scope, move || sender.send(work(context))) {
                    Ok(_) => self.wait(&receiver, &context.cancel),
                    Err(error) => (Err(Error::no_thread(error)), None),
                }
            })
        })
    }

    /// Runs `work` like [`Self::run`], on a thread that waits for work. Starting a thread would take longer than many
    /// searches.
    pub(crate) fn run_short<R: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Context) -> Result<R> + Send + 'static,
    ) -> PyResult<R> {
        let context = self.uncanceled();
        let cancel = context.cancel.clone();
        let thread = WaitingThread::take().map_err(|error| raised(py, &Error::no_thread(error)))?;
        let result = self.run_by(py, || {
            let (sender, receiver) = sync_channel(1);
            thread.begin(move || drop(sender.send(work(&context))));
            self.wait(&receiver, &cancel)
        });
        thread.give_back();
        result
    }

    /// Returns the context of one run: a cancelled run does not cancel later ones.
    fn uncanceled(&self) -> Context {
        let mut context = self.context.clone();
        context.cancel = Cancel::default();
        context
    }

    /// Calls `run` without the interpreter's lock.
    fn run_by<R: Send>(&self, py: Python<'_>, run: impl FnOnce() -> (Result<R>, Option<PyErr>) + Send) -> PyResult<R> {
        self.check_creator().map_err(|error| raised(py, &error))?;
        let _counted = self.counted();
        let (result, stopped) = py.detach(run);
        self.pass_notes_on(py)?;
        match stopped {
            Some(error) => Err(error),
            None => result.map_err(|error| raised(py, &error)),
        }
    }

    /// Waits for the result of the engine, and cancels its work if Python has a pending signal. Also returns the error of
    /// the signal.
    fn wait<R>(&self, receiver: &Receiver<Result<R>>, cancel: &Cancel) -> (Result<R>, Option<PyErr>) {
        let mut stopped = None;
        loop {
            match receiver.recv_timeout(EVERY) {
                Ok(result) => return (result, stopped),
                Err(RecvTimeoutError::Disconnected) => {
                    return (Err(Error::device("the engine ended without a result")), stopped);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stopped.is_none()
                && let Err(error) = Python::attach(|py| self.look_after(py))
            {
                stopped = Some(error);
                cancel.cancel();
            }
        }
    }

    /// Shows the progress, and returns an error if Python has a pending signal.
    fn look_after(&self, py: Python<'_>) -> PyResult<()> {
        py.check_signals()?;
        self.pass_notes_on(py)?;
        let phase = lock(&self.told.phase).clone();
        if let (Some(progress), Some(Phase { name, unit, total, done })) = (&self.progress, phase) {
            progress.call1(py, (name, unit, total, done))?;
        }
        Ok(())
    }

    /// Passes log lines of the engine to Python's log.
    fn pass_notes_on(&self, py: Python<'_>) -> PyResult<()> {
        let lines = std::mem::take(&mut *lock(&self.told.notes));
        if lines.is_empty() { Ok(()) } else { log(py, lines) }
    }
}

/// Writes lines to the logger `adjoin`, as warnings if they begin with `warning: `.
fn log(py: Python<'_>, lines: Vec<String>) -> PyResult<()> {
    let log = py.import("logging")?.call_method1("getLogger", ("adjoin",))?;
    lines.into_iter().try_for_each(|line| {
        let (level, line) = line.strip_prefix("warning: ").map_or(("info", &*line), |warning| ("warning", warning));
        log.call_method1(level, ("%s", line)).map(|_| ())
    })
}

/// Converts an error to a Python exception with its message, in which options are spelled as arguments.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error.kind() {
        ErrorKind::Input => "InputError",
        ErrorKind::Option => "OptionError",
        ErrorKind::Budget => "BudgetError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Cancelled => return PyKeyboardInterrupt::new_err(()),
        _ => "AdjoinError",
    };
    let message = error.spelled(as_argument);
    let kind = py.import("adjoin._errors").and_then(|errors| errors.getattr(name));
    match kind.and_then(|kind| Ok(kind.cast_into::<PyType>()?)) {
        Ok(kind) => PyErr::from_type(kind, message),
        Err(error) => error,
    }
}

/// Formats an option as a Python argument, with its value as a literal.
fn as_argument(Mention { argument, value }: &Mention) -> String {
    let name = match argument {
        Argument::With => "other".to_owned(), // `with` is a word of the language
        Argument::WithNames => "other_names".to_owned(),
        _ => argument.name().replace('-', "_"),
    };
    match value {
        Some(value) if value.parse::<f64>().is_ok() => format!("{name}={value}"),
        Some(value) => format!("{name}={value:?}"),
        None if *argument == Argument::NoIds => "ids=False".to_owned(),
        None if argument.is_switch() => format!("{name}=True"),
        None => name,
    }
}
