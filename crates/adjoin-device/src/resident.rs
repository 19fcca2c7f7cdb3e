//! Resident memory of this process, and ways to reduce it.

/// Returns the peak resident memory of this process, in bytes; `None` if the system does not report it.
pub fn peak_resident_bytes() -> Option<u64> {
    #[cfg(not(target_vendor = "apple"))]
    return status_bytes("VmHWM:");
    #[cfg(target_vendor = "apple")]
    apple::peak_bytes()
}

/// Resets [`peak_resident_bytes`] to the current value if the system allows it. Otherwise the peak is unchanged.
pub fn forget_peak_resident_bytes() {
    let _ = std::fs::write("/proc/self/clear_refs", "5"); // proc(5)
}

/// Returns the current resident memory of this process, in bytes; 0 if the system does not report it.
pub fn current_resident_bytes() -> u64 {
    #[cfg(not(target_vendor = "apple"))]
    let resident = resident_pages().and_then(|pages| pages.checked_mul(rustix::param::page_size() as u64));
    #[cfg(target_vendor = "apple")]
    let resident = apple::resident_bytes();
    resident.unwrap_or(0)
}

/// Minimum size of an allocation that gets a mapping of its own. A mapping is returned to the system when it is
/// freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 64 << 10;

/// Makes the allocator of the C library hold less freed memory: it uses one arena for all threads, and mappings for
/// large blocks. By default it has one arena per thread. Some blocks are allocated by one thread and freed by
/// another. With the default, a join therefore held a third more memory than it had requested.
///
/// Call this at the start of a program with a memory budget. Does nothing without the GNU C library.
pub fn spare_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    for (parameter, value) in [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES)] {
        // SAFETY: mallopt only sets a parameter of the allocator, under its own lock.
        let _ = unsafe { libc::mallopt(parameter, value) }; // if refused, memory is held as before
    }
}

/// Returns freed memory that the allocator of the C library holds to the system. Call this between two steps of which
/// the second has large blocks: it cannot use memory that was freed in small blocks. Does nothing without the GNU C
/// library.
pub fn release_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim only changes free memory, under the locks of the allocator.
    let _ = unsafe { libc::malloc_trim(0) }; // whether any memory was released
}

/// Size of large pages in bytes. There are few of them, so the processor can cache all their addresses.
#[cfg(target_os = "linux")]
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Asks the system to back memory with large pages. This works for memory that has not been written yet and that
/// spans whole large pages. Random reads of many megabytes then cause fewer TLB misses. The contents are unchanged.
/// Does nothing on systems other than Linux.
pub fn prefer_large_pages(bytes: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        // Only whole large pages get the advice, since the pages at both ends may be shared with other memory.
        let before = bytes.as_ptr().align_offset(LARGE_PAGE_BYTES);
        let Some(whole) = bytes.get_mut(before..) else { return };
        let len = whole.len() / LARGE_PAGE_BYTES * LARGE_PAGE_BYTES;
        // SAFETY: the range is within the slice, which is borrowed mutably, and this advice does not change its
        // contents.
        let _ = unsafe { rustix::mm::madvise(whole.as_mut_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

/// Drops the pages of the program's code from memory. Code that runs again is read from its file again.
///
/// The system maps 16 pages around each page that is used. Parsing arguments and opening files therefore leaves
/// megabytes of code in memory that a command does not run again. Call this between the steps of a program with a
/// memory budget. Does nothing on systems other than Linux.
pub fn forget_code() {
    #[cfg(target_os = "linux")]
    for range in own_code() {
        let start = std::ptr::with_exposed_provenance_mut(range.start);
        // SAFETY: the range is a whole private mapping of a file and is never writable. Its pages hold the bytes of the
        // file, and the system reads them from there again.
        let _ = unsafe { rustix::mm::madvise(start, range.len(), rustix::mm::Advice::LinuxDontNeed) };
    }
}

/// Returns the addresses of this program's code; none if the system does not list them.
#[cfg(target_os = "linux")]
fn own_code() -> Vec<std::ops::Range<usize>> {
    let (program, mappings) = (std::fs::read_link("/proc/self/exe"), std::fs::read_to_string("/proc/self/maps"));
    let (Ok(program), Ok(mappings)) = (program, mappings) else { return Vec::new() };
    mappings.lines().filter_map(|line| code_range(line, &program)).collect()
}

/// Returns the addresses in a line of `/proc/self/maps` if they are code of `file`.
#[cfg(target_os = "linux")]
fn code_range(line: &str, file: &std::path::Path) -> Option<std::ops::Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let is_code = fields.next()? == "r-xp";
    let is_of_file = fields.nth(3).is_some_and(|path| std::path::Path::new(path) == file);
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    (is_code && is_of_file).then(|| Some(address(start)?..address(end)?)).flatten()
}

/// Returns the number of resident pages of this process. The file is shorter than `status`, and quicker to read.
#[cfg(not(target_vendor = "apple"))]
fn resident_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/self/statm").ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(not(target_vendor = "apple"))]
fn status_bytes(key: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Memory statistics of macOS, which has no `/proc`. The peak cannot be reset, so it includes earlier work of the
/// process.
#[cfg(target_vendor = "apple")]
mod apple {
    /// Returns the peak resident memory of this process, in bytes.
    pub(super) fn peak_bytes() -> Option<u64> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: getrusage writes one whole `rusage` to the pointer if it returns 0.
        let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
        // SAFETY: it returned 0, so the value is initialized.
        let usage = (done == 0).then(|| unsafe { usage.assume_init() })?;
        // macOS reports bytes, other systems kibibytes.
        u64::try_from(usage.ru_maxrss).ok().filter(|bytes| *bytes > 0)
    }

    /// Returns the current resident memory of this process, in bytes.
    pub(super) fn resident_bytes() -> Option<u64> {
        let mut facts = std::mem::MaybeUninit::<libc::proc_taskinfo>::uninit();
        let bytes = libc::c_int::try_from(size_of::<libc::proc_taskinfo>()).ok()?;
        let process = libc::c_int::try_from(std::process::id()).ok()?;
        // SAFETY: the buffer has `bytes` bytes, and proc_pidinfo writes no more.
        let written =
            unsafe { libc::proc_pidinfo(process, libc::PROC_PIDTASKINFO, 0, facts.as_mut_ptr().cast(), bytes) };
        // SAFETY: the whole structure was written.
        (written == bytes).then(|| unsafe { facts.assume_init() }.pti_resident_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_resident_bytes_are_at_least_the_current_ones() {
        let current = current_resident_bytes();
        assert!(current > 0 && peak_resident_bytes().is_some_and(|peak| peak >= current));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn code_is_found_in_a_list_of_mappings() {
        let file = std::path::Path::new("/usr/bin/adjoin");
        let code = "55d0a000-55d0c000 r-xp 00001000 fe:00 42    /usr/bin/adjoin";
        assert_eq!(code_range(code, file), Some(0x55d0_a000..0x55d0_c000));
        for other in [code.replace("r-xp", "r--p"), code.replace("adjoin", "other"), "55d0a000-55d0c000 r-xp".into()] {
            assert_eq!(code_range(&other, file), None, "{other}");
        }
    }

    /// Other tests run at the same time and map code again, but not all the code that no test runs.
    #[test]
    #[cfg(target_os = "linux")]
    fn code_runs_after_it_was_dropped() {
        read_own_code();
        let read = resident_code_bytes();
        forget_code();
        let left = resident_code_bytes();
        assert!(left < read, "{left} of {read} bytes are left");
    }

    /// Reads a byte of every page of this program's code, so that all of them are resident.
    #[cfg(target_os = "linux")]
    fn read_own_code() {
        for range in own_code() {
            for address in range.step_by(rustix::param::page_size()) {
                // SAFETY: the address is in a readable mapping of the program's code, which is never unmapped.
                unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() };
            }
        }
    }

    /// Returns the resident bytes of this program's code, which the system counts page by page.
    #[cfg(target_os = "linux")]
    fn resident_code_bytes() -> usize {
        let program = std::fs::read_link("/proc/self/exe").expect("the system names this program");
        let mappings = std::fs::read_to_string("/proc/self/smaps").expect("the system lists mappings");
        let of_code = mappings.lines().skip_while(|line| code_range(line, &program).is_none());
        let resident = of_code.filter_map(|line| line.strip_prefix("Rss:")).next().expect("the mapping has a size");
        resident.trim().trim_end_matches(" kB").parse::<usize>().expect("the size is a number") << 10
    }

    #[test]
    fn large_pages_preserve_bytes() {
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
