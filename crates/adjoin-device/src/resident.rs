//! What the system says of this process's memory, and how its allocator is told to be sparing.

/// The most memory that this process ever had resident, in bytes; 0 where the system does not say.
pub fn peak_resident_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Lets [`peak_resident_bytes`] begin anew, where the system allows it; elsewhere it stays what it was.
pub fn forget_peak_resident_bytes() {
    let _ = std::fs::write("/proc/self/clear_refs", "5"); // proc(5)
}

/// The memory that this process has resident now, in bytes; 0 where the system does not say.
pub fn current_resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// From this size on an allocation is a mapping of its own, which goes back to the system when it is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 64 << 10;

/// Keeps the allocator of the C library from holding memory that the engine has freed: one arena for all threads, and
/// large blocks as mappings of their own. With an arena for each thread, and blocks that one thread allocates and another
/// frees, a join held a third more than it asked for. To be called at the start of a program whose memory is bounded;
/// elsewhere than with the GNU C library it does nothing.
pub fn spare_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES)] {
        // SAFETY: mallopt only sets a parameter of the allocator, under its own lock.
        let _ = unsafe { libc::mallopt(parameter, value) }; // where it is refused, memory is held as before
    }
}

/// Pages of memory of which the processor remembers where they lie, however many of the usual size there are.
#[cfg(target_os = "linux")]
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the system to hold bytes that nothing was written to yet in large pages, where whole ones fit: reads at random
/// places of many megabytes then wait less for the processor to find the memory. Changes nothing else; elsewhere than on
/// Linux it does nothing.
pub fn prefer_large_pages(bytes: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        let before = bytes.as_ptr().align_offset(LARGE_PAGE_BYTES);
        let Some(whole) = bytes.get_mut(before..) else { return };
        let len = whole.len() / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        // SAFETY: the range lies within the slice, which is borrowed mutably, and this advice leaves its contents alone.
        let _ = unsafe { rustix::mm::madvise(whole.as_mut_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_no_less_than_the_present() {
        let current = current_resident_bytes();
        assert!(current > 0 && peak_resident_bytes() >= current);
    }

    #[test]
    fn large_pages_leave_bytes_as_they_are() {
        for len in [0, 1, 5_000, 9 << 20] {
            let mut bytes = vec![7_u8; len];
            let middle = len / 3;
            prefer_large_pages(&mut bytes[middle..]);
            assert!(bytes.iter().all(|&byte| byte == 7));
            bytes.fill(8);
            assert!(bytes.iter().all(|&byte| byte == 8));
        }
    }
}
