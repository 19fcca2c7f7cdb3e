//! Progress on standard error: a bar if it is a terminal, otherwise a line every few seconds.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use adjoin::{Progress, format_number};
use indicatif::{ProgressBar, ProgressStyle};

/// Time between two lines if standard error is not a terminal. A shorter phase prints no line.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Template of the bar.
const BAR: &str = "{prefix:>9} {wide_bar} {human_pos}/{human_len} {unit}  {per_sec}  {eta} left";

pub(crate) struct Terminal {
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
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal(), phase: Mutex::new(None) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Phase>> {
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
