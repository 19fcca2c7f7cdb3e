//! Progress on standard error: a bar if it is a terminal, otherwise a line every few seconds, or lines of JSON.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use adjoin::{Context, Progress, format_number};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::{ProgressForm, Quiet};

/// Time between two lines if standard error is not a terminal. A shorter phase prints no line.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Template of the bar.
const BAR: &str = "{prefix:>9} {wide_bar} {human_pos}/{human_len} {unit}  {per_sec}  {eta} left";

/// Time between two JSON lines within a phase.
const OBJECT_EVERY: Duration = Duration::from_secs(1);

/// Returns a context that shows progress as requested.
pub(crate) fn with_progress(mut context: Context, quiet: &Quiet) -> Context {
    context.progress = match quiet.progress {
        _ if quiet.quiet => return context,
        ProgressForm::Text => Arc::new(Terminal::new()),
        ProgressForm::Json => Arc::new(Objects::default()),
    };
    context
}

struct Terminal {
    is_terminal: bool,
    phase: Mutex<Option<Phase>>,
}

struct Phase {
    bar: ProgressBar,
    name: String,
    unit: String,
    total: u64,
    begun: Instant,
    told: Instant,
}

impl Terminal {
    fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), phase: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Phase>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(phase) = self.lock().take() {
            phase.bar.finish_and_clear();
        }
    }
}

impl Progress for Terminal {
    fn begin(&self, name: &str, unit: &str, total: u64) {
        let mut current = self.lock();
        if let Some(before) = current.take() {
            before.bar.finish_and_clear();
        }
        let bar = if self.is_terminal { ProgressBar::new(total) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template(&BAR.replace("{unit}", unit));
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        let now = Instant::now();
        *current = Some(Phase { bar, name: name.into(), unit: unit.into(), total, begun: now, told: now });
    }

    fn advance(&self, done: u64) {
        let mut current = self.lock();
        let Some(phase) = current.as_mut() else { return };
        // Threads report in any order, so the position must not decrease.
        phase.bar.set_position(phase.bar.position().max(done));
        if !self.is_terminal && phase.told.elapsed() >= LINE_EVERY {
            phase.told = Instant::now();
            // The mean since the start of the phase varies less than the rate of the last seconds.
            let rate = done as f64 / phase.begun.elapsed().as_secs_f64();
            let left = phase.total.saturating_sub(done) as f64 / rate.max(f64::MIN_POSITIVE);
            let Phase { name, unit, total, .. } = phase;
            let [done, total, rate] = [done, *total, rate as u64].map(format_number);
            eprintln!("{name}: {done} of {total} {unit}, {rate} per second, {left:.0} s left");
        }
    }

    fn note(&self, line: &str) {
        match self.lock().as_ref() {
            // The bar is hidden meanwhile, so that the line is not printed into it.
            Some(phase) => phase.bar.suspend(|| eprintln!("adjoin: {line}")),
            None => eprintln!("adjoin: {line}"),
        }
    }
}

/// Progress as JSON lines, for programs that show it.
#[derive(Default)]
struct Objects {
    phase: Mutex<Option<NamedPhase>>,
}

struct NamedPhase {
    name: String,
    unit: String,
    total: u64,
    done: u64,
    written: Instant,
}

impl NamedPhase {
    fn write(&mut self) {
        self.written = Instant::now();
        let Self { name, unit, total, done, .. } = self;
        eprintln!("{}", json!({"event": "progress", "phase": name, "unit": unit, "total": total, "done": done}));
    }
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, Option<NamedPhase>> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the last position of the phase, which may be newer than its last line.
    fn end(phase: Option<NamedPhase>) {
        phase.into_iter().for_each(|mut phase| phase.write());
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        Self::end(self.lock().take());
    }
}

impl Progress for Objects {
    fn begin(&self, name: &str, unit: &str, total: u64) {
        let mut current = self.lock();
        Self::end(current.take());
        let mut phase = NamedPhase { name: name.into(), unit: unit.into(), total, done: 0, written: Instant::now() };
        phase.write();
        *current = Some(phase);
    }

    fn advance(&self, done: u64) {
        let mut current = self.lock();
        let Some(phase) = current.as_mut() else { return };
        // Threads report in any order, so the position must not decrease.
        phase.done = phase.done.max(done);
        if phase.written.elapsed() >= OBJECT_EVERY {
            phase.write();
        }
    }

    fn note(&self, line: &str) {
        let _current = self.lock(); // lines of two threads must not mix
        eprintln!("{}", json!({"event": "note", "message": line}));
    }
}
