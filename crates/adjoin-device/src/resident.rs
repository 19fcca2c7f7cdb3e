//! What the system says of this process's memory, and how its allocator is told to be sparing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
#[cfg(target_os = "linux")]
use rustix::mm::{MremapFlags, mremap};

/// Blocks from this size on are mappings of their own where [`MappedBlocks`] allocates.
const BLOCK_BYTES_MAPPED: usize = 64 << 10;
/// Every system's pages are at least so large, and mappings aligned to them.
const PAGE_BYTES_MIN: usize = 4096;

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

/// The same for the engine alone, inside of a program that others wrote and whose allocator is not ours to tell: as the
/// global allocator of an extension it gives large blocks mappings of their own, which go back to the system when they are
/// freed. A first join in Python held 71 MB where one of the command line held 45.
pub struct MappedBlocks;

// SAFETY: a block is mapped or the system allocator's by the size and alignment of its layout alone, which are the same
// when it is freed or grown; a private anonymous mapping is zeroed, aligned to pages and nobody else's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for MappedBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_mapped(layout) {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        }
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the system chooses a place that is free; the size is not 0.
        let mapped = unsafe { mmap_anonymous(null_mut(), layout.size(), access, kind) };
        mapped.map_or(null_mut(), |block| block.cast())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises; new mappings are zeroed.
        if is_mapped(layout) { unsafe { self.alloc(layout) } } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !is_mapped(layout) {
            // SAFETY: as the caller promises, and by its layout it came from there.
            return unsafe { System.dealloc(block, layout) };
        }
        // SAFETY: by its layout the block is a mapping of this size, which nobody uses any more.
        let freed = unsafe { munmap(block.cast(), layout.size()) };
        debug_assert!(freed.is_ok(), "a whole mapping can be given back");
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is one of a layout.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as the caller promises, and by its layout it came from there.
            (false, false) => unsafe { System.realloc(block, layout, size) },
            #[cfg(target_os = "linux")]
            (true, true) => {
                // SAFETY: by its layout the block is a mapping of this size; whoever has it gets the new place.
                let moved = unsafe { mremap(block.cast(), layout.size(), size, MremapFlags::MAYMOVE) };
                moved.map_or(null_mut(), |block| block.cast())
            }
            _ => {
                // SAFETY: as the caller promises; both blocks hold the bytes that are copied, and are not the same.
                unsafe {
                    let moved = self.alloc(new);
                    if !moved.is_null() {
                        moved.copy_from_nonoverlapping(block, layout.size().min(size));
                        self.dealloc(block, layout);
                    }
                    moved
                }
            }
        }
    }
}

/// Whether a block has a mapping of its own.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= BLOCK_BYTES_MAPPED && layout.align() <= PAGE_BYTES_MIN
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

    /// Blocks of all sizes around the limit, grown and shrunk, keep their bytes.
    #[test]
    #[allow(unsafe_code)]
    fn blocks_keep_their_bytes_when_they_grow_and_shrink() {
        let sizes = [1, 4096, BLOCK_BYTES_MAPPED - 1, BLOCK_BYTES_MAPPED, 3 * BLOCK_BYTES_MAPPED + 5, 1 << 20];
        for align in [1, 64, PAGE_BYTES_MIN, 4 * PAGE_BYTES_MIN] {
            for (from, to) in sizes.iter().flat_map(|&from| sizes.map(|to| (from, to))) {
                let [old, new] = [from, to].map(|size| Layout::from_size_align(size, align).unwrap());
                // SAFETY: each block is used within its layout, and freed with it once.
                unsafe {
                    let block = MappedBlocks.alloc_zeroed(old);
                    assert!(!block.is_null() && (block as usize).is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(block, from).iter().all(|&byte| byte == 0));
                    block.write_bytes(7, from);
                    let block = MappedBlocks.realloc(block, old, to);
                    assert!(!block.is_null() && (block as usize).is_multiple_of(align));
                    assert!(std::slice::from_raw_parts(block, from.min(to)).iter().all(|&byte| byte == 7));
                    MappedBlocks.dealloc(block, new);
                }
            }
        }
    }

    #[test]
    fn the_peak_is_no_less_than_the_present() {
        let current = current_resident_bytes();
        assert!(current > 0 && peak_resident_bytes() >= current);
    }
}
