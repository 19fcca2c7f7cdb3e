//! Thread priorities.

/// Increase of a thread's nice value. A thread at the default gets about ten times as much processor time.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Lowers the priority of the calling thread, and of threads that it starts, below all others on the machine. Does
/// nothing on systems without thread priorities.
pub fn give_way() {
    // Best effort: without permission, the priority is unchanged.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}
