//! Thread priorities.

/// Increase of a thread's nice value. By sched(7), weights differ by a factor of 1.25 per step, so a thread with the
/// default priority gets three times as much processor time. A larger value would be too much: the thread cannot
/// raise its priority again when something begins to wait for it.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Lowers the priority of the calling thread and of threads that it starts later. They still make progress on a busy
/// machine. Does nothing on systems other than Linux.
pub fn give_way() {
    // Best effort: without permission, the priority is unchanged.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}
