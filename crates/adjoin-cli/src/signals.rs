//! Cancels the work on Ctrl-C, SIGTERM, and SIGHUP (the terminal was closed). The work then stops cleanly and
//! removes its temporary files.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adjoin::{Cancel, Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// Base of exit codes for signals: the exit code is this number plus the number of the signal.
const SIGNAL_BASE: usize = 128;

/// The flag that cancels the work, and the signal that set it.
#[derive(Clone, Default)]
pub(crate) struct Stopped {
    pub(crate) cancel: Cancel,
    signal: Arc<AtomicUsize>,
}

impl Stopped {
    pub(crate) fn exit_code(&self) -> u8 {
        (SIGNAL_BASE + self.signal.load(Ordering::Relaxed)) as u8
    }
}

/// Starts to watch for signals. A second signal ends the process at once.
///
/// # Errors
/// If the thread cannot be started. Signals would then be caught but ignored, so the caller must not continue.
pub(crate) fn watch() -> Result<Stopped> {
    let stopped = Stopped::default();
    // Without a handler, SIGXFSZ ends the process. With one, a write beyond the file size limit fails, and the
    // unfinished result is removed.
    let _ = flag::register(SIGXFSZ, Arc::default());
    // If `nohup` started the process, it should continue after a hang-up.
    let hang_up = (!is_ignored(SIGHUP)).then_some(SIGHUP);
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up)) else {
        return Ok(stopped); // without a handler, a signal just ends the process
    };
    let watched = stopped.clone();
    let watcher = std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            // After the first signal, temporary files are deleted, which may take long. The second signal does not
            // wait.
            if watched.cancel.is_cancelled() {
                std::process::exit((SIGNAL_BASE + signal.unsigned_abs() as usize) as i32);
            }
            // Stored before the cancellation, after which the exit code may be read.
            watched.signal.store(signal.unsigned_abs() as usize, Ordering::Relaxed);
            watched.cancel.cancel();
        }
    });
    drop(watcher.map_err(Error::no_thread)?); // the thread ends with the process
    Ok(stopped)
}

/// Returns whether the process was started with a signal ignored, as far as the system reports it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Bit 0 is signal 1.
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
