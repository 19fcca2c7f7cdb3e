//! Thread priorities.

/// Increase of a thread's nice value. A thread at the default gets three times as much processor time (sched(7): a factor
/// of 1.25 per step). Not more, since the thread cannot raise its priority again when somebody begins to wait for it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lowers the priority of the calling thread, and of threads that it starts. It still proceeds on a busy machine. Does
/// nothing on systems without thread priorities.
pub fn give_way() {
    // Best effort: without permission, the priority is unchanged.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}
