//! Who gets a processor first.

/// By how much the priority of a thread is lowered: one that keeps the usual gets about ten times as much of a processor.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// From now on the calling thread, and threads that it starts, give way to all others of the machine. Where priorities are not
/// those of threads, nothing changes.
pub fn give_way() {
    // Best effort: who may not change it keeps the usual priority.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}
