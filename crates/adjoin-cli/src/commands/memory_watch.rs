//! Resident memory of the process over time.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adjoin::device::current_resident_bytes;

/// Samples the resident memory of the process on a separate thread.
pub(super) struct MemoryWatch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(f64, u64)>>,
}

/// Initial time between two samples.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Maximum number of samples. If it is exceeded, every second sample is dropped, and the sampling rate is halved.
const LOOKS_MAX: usize = 512;

impl MemoryWatch {
    /// Starts sampling; returns `None` if the system provides no thread.
    pub(super) fn begin() -> Option<Self> {
        let (stop, stopped) = channel();
        let look = move || {
            let (begun, mut every, mut looks) = (Instant::now(), LOOK_EVERY, Vec::new());
            loop {
                looks.push((begun.elapsed().as_secs_f64(), current_resident_bytes()));
                if looks.len() == LOOKS_MAX {
                    let mut number = 0;
                    looks.retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    every *= 2;
                }
                // The receive waits for the pause between two samples. It ends at once when the watch is finished.
                if stopped.recv_timeout(every) != Err(RecvTimeoutError::Timeout) {
                    return looks;
                }
            }
        };
        let thread = std::thread::Builder::new().name("memory".into()).spawn(look).ok()?;
        Some(Self { stop, thread })
    }

    /// Stops sampling; returns the samples: seconds since the start, and bytes.
    pub(super) fn finish(self) -> Vec<(f64, u64)> {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
