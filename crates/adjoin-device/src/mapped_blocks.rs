//! Allocator that returns large blocks to the system when they are freed. It keeps a few of them for reuse.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
#[cfg(target_os = "linux")]
use rustix::mm::{MremapFlags, mremap};

/// Minimum size of a block that gets a mapping of its own, in bytes.
const BLOCK_BYTES_MAPPED: usize = 64 << 10;
/// Smallest page size of any system; mappings are aligned to it.
const PAGE_BYTES_MIN: usize = 4096;
/// The system's allocator stores a header of this size next to each small block, and rounds the total up to a
/// multiple of this size.
const SMALL_BLOCK_BYTES: u64 = 16;
/// Limits on freed blocks that are kept for reuse: default limit on their bytes, and limit on their number.
const SPARE_BYTES: usize = 1 << 20;
const SPARE_BLOCKS: usize = 64;

/// Global allocator for a program or extension that has a memory budget. A large block is a mapping of its own. It is
/// returned to the system when it is freed. (In Python, the first join held 71 MB with the allocator of the C
/// library. On the command line it held 45 MB.)
///
/// A join allocates and frees buckets all the time, and the system clears each page of a new mapping. Clearing took a
/// third of the time in which floats were loaded. Therefore the last few freed blocks are kept and reused.
pub struct MappedBlocks;

impl MappedBlocks {
    /// Default limit on the bytes of freed blocks that are kept.
    pub const KEPT_AT_FIRST: u64 = SPARE_BYTES as u64;

    /// Returns how many bytes of the system's memory a block of `size` bytes takes. A block with a mapping of its own
    /// takes whole pages. A smaller block takes its size and the header of the system's allocator, rounded up.
    pub const fn block_bytes(size: u64) -> u64 {
        match size {
            0 => 0,
            size if size >= BLOCK_BYTES_MAPPED as u64 => size.next_multiple_of(PAGE_BYTES_MIN as u64),
            size => (size + SMALL_BLOCK_BYTES).next_multiple_of(SMALL_BLOCK_BYTES),
        }
    }

    /// Sets the limit on the bytes of freed blocks that are kept.
    pub fn keep(bytes: u64) {
        KEPT.store(bytes as usize, Ordering::Relaxed);
    }
}

static KEPT: AtomicUsize = AtomicUsize::new(SPARE_BYTES);

/// Freed blocks that are kept for reuse.
struct Spare {
    /// Kept blocks, oldest first, followed by empty entries, which have address 0.
    blocks: [Block; SPARE_BLOCKS],
    bytes: usize,
}

/// A whole mapping.
#[derive(Clone, Copy)]
struct Block {
    address: usize,
    bytes: usize,
}

impl Block {
    const NONE: Self = Self { address: 0, bytes: 0 };
}

/// This lock is only taken with `try_lock`. In a forked process, the thread that holds it may not exist, so waiting
/// could last forever.
static SPARE: Mutex<Spare> = Mutex::new(Spare { blocks: [Block::NONE; SPARE_BLOCKS], bytes: 0 });

impl Spare {
    /// Removes and returns the block with the size nearest to `bytes`. Returns `None` if no size is near enough.
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let away = |block: &Block| block.bytes.abs_diff(bytes);
        // A block that is much smaller would have to be moved, and one that is much larger would waste memory.
        let near = self.blocks.iter().enumerate().filter(|(_, block)| block.address != 0 && away(block) <= bytes / 2);
        let (at, &found) = near.min_by_key(|(_, block)| away(block))?;
        self.blocks[at..].rotate_left(1);
        self.blocks[SPARE_BLOCKS - 1] = Block::NONE;
        self.bytes -= found.bytes;
        Some(found)
    }

    /// Keeps a block. Passes the blocks that it displaces to `free`, or the block itself if it is too large to keep.
    fn keep(&mut self, block: Block, free: &mut dyn FnMut(Block)) {
        let most = KEPT.load(Ordering::Relaxed);
        if block.bytes > most {
            return free(block);
        }
        let mut held = self.blocks.iter().filter(|block| block.address != 0).count();
        while held == SPARE_BLOCKS || (held > 0 && self.bytes + block.bytes > most) {
            free(self.blocks[0]);
            self.bytes -= self.blocks[0].bytes;
            self.blocks.rotate_left(1);
            held -= 1;
            self.blocks[SPARE_BLOCKS - 1] = Block::NONE;
        }
        self.blocks[held] = block;
        self.bytes += block.bytes;
    }
}

/// Returns a mapping of `bytes` bytes, which must be whole pages, and whether all of its bytes are zero.
fn map(bytes: usize) -> (*mut u8, bool) {
    let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.take(bytes));
    if let Some(block) = spare {
        // A reused block has old contents, so it is never reported as zero.
        match resized(block, bytes) {
            resized if resized.is_null() => free(block),
            resized => return (resized, false),
        }
    }
    let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the system chooses a free address range, and the size is not 0.
    let mapped = unsafe { mmap_anonymous(null_mut(), bytes, access, kind) };
    (mapped.map_or(null_mut(), |block| block.cast()), true)
}

/// Resizes a mapping, possibly by moving it. Returns null and leaves the mapping unchanged if the system refuses. Linux
/// does not grow a mapping of which a part was advised to use huge pages.
#[cfg(target_os = "linux")]
fn resized(block: Block, bytes: usize) -> *mut u8 {
    let at = std::ptr::with_exposed_provenance_mut(block.address);
    if block.bytes == bytes {
        return at;
    }
    // SAFETY: the block is a whole mapping of this size, and the caller uses only the new address from now on.
    let moved = unsafe { mremap(at.cast(), block.bytes, bytes, MremapFlags::MAYMOVE) };
    moved.map_or(null_mut(), |block| block.cast())
}

/// Fails, because this system cannot resize mappings. Therefore `unmap` keeps no blocks.
#[cfg(not(target_os = "linux"))]
fn resized(_block: Block, _bytes: usize) -> *mut u8 {
    null_mut()
}

/// Returns a mapping to the system, or keeps it for reuse.
fn unmap(block: *mut u8, bytes: usize) {
    let block = Block { address: block.expose_provenance(), bytes };
    match SPARE.try_lock() {
        Ok(mut spare) if cfg!(target_os = "linux") => spare.keep(block, &mut free),
        _ => free(block),
    }
}

fn free(Block { address, bytes }: Block) {
    // SAFETY: the block is a whole mapping of this size, and nothing uses it any more.
    let freed = unsafe { munmap(std::ptr::with_exposed_provenance_mut(address), bytes) };
    debug_assert!(freed.is_ok(), "a whole mapping can be given back");
}

/// Returns the size of a block's mapping, in bytes. If the system's pages are larger than assumed here, the system
/// rounds up further.
fn mapped_bytes(size: usize) -> usize {
    size.next_multiple_of(PAGE_BYTES_MIN)
}

/// Returns whether a block has a mapping of its own.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= BLOCK_BYTES_MAPPED && layout.align() <= PAGE_BYTES_MIN
}

// SAFETY: size and alignment of the layout alone determine whether a block is a mapping or belongs to the system's
// allocator. The caller passes the same layout when it frees or grows the block. A private anonymous mapping is
// zeroed, page-aligned and exclusive to this process, and a kept block is handed out once.
unsafe impl GlobalAlloc for MappedBlocks {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match is_mapped(layout) {
            true => map(mapped_bytes(layout.size())).0,
            // SAFETY: as the caller promises.
            false => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !is_mapped(layout) {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        let (block, is_zero) = map(mapped_bytes(layout.size()));
        if !is_zero && !block.is_null() {
            // SAFETY: the block has at least this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match is_mapped(layout) {
            true => unmap(block, mapped_bytes(layout.size())),
            // SAFETY: as the caller promises; a block with this layout belongs to the system's allocator.
            false => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that `size` is valid for a layout with this alignment.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        match (is_mapped(layout), is_mapped(new)) {
            // SAFETY: as the caller promises; a block with this layout belongs to the system's allocator.
            (false, false) => return unsafe { System.realloc(block, layout, size) },
            (true, true) => {
                let old = Block { address: block.expose_provenance(), bytes: mapped_bytes(layout.size()) };
                let resized = resized(old, mapped_bytes(size));
                if !resized.is_null() {
                    return resized;
                }
            }
            _ => {}
        }
        // SAFETY: as the caller promises; the blocks are distinct, and each has at least as many bytes as are copied.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests sizes on both sides of the limit for mappings.
    #[test]
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

    /// Linux divides a mapping at the ends of a part with another advice, and refuses to grow it then.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_block_grows_although_a_part_of_it_has_an_advice() {
        let layout = Layout::from_size_align(3 << 20, 8).unwrap();
        // SAFETY: the block is used within its layout, and freed with the layout of its last size. The advised part is
        // inside it and page-aligned.
        unsafe {
            let block = MappedBlocks.alloc(layout);
            block.write_bytes(7, layout.size());
            let middle = block.add(1 << 20).cast();
            rustix::mm::madvise(middle, 1 << 20, rustix::mm::Advice::LinuxHugepage).unwrap();
            let grown = MappedBlocks.realloc(block, layout, 64 << 20);
            assert!(!grown.is_null());
            assert!(std::slice::from_raw_parts(grown, layout.size()).iter().all(|&byte| byte == 7));
            MappedBlocks.dealloc(grown, Layout::from_size_align(64 << 20, 8).unwrap());
        }
    }

    #[test]
    fn block_sizes_include_allocator_overhead() {
        assert_eq!([0, 1, 16, 100].map(MappedBlocks::block_bytes), [0, 32, 32, 128]);
        let mapped = BLOCK_BYTES_MAPPED as u64;
        assert_eq!([mapped, mapped + 1].map(MappedBlocks::block_bytes), [mapped, mapped + PAGE_BYTES_MIN as u64]);
    }

    #[test]
    fn spare_blocks_evict_the_oldest_and_reuse_the_closest_size() {
        let mut spare = Spare { blocks: [Block::NONE; SPARE_BLOCKS], bytes: 0 };
        let mut freed = Vec::new();
        let mut keep = |spare: &mut Spare, address: usize, bytes: usize| {
            spare.keep(Block { address, bytes }, &mut |block| freed.push(block.address));
        };
        for (address, bytes) in [(1, SPARE_BYTES / 2), (2, SPARE_BYTES / 4), (3, SPARE_BYTES / 8)] {
            keep(&mut spare, address, bytes);
        }
        keep(&mut spare, 4, SPARE_BYTES + 1); // freed at once
        keep(&mut spare, 5, SPARE_BYTES / 2); // evicts the first
        assert_eq!(spare.take(SPARE_BYTES / 4 + 1).map(|block| block.address), Some(2));
        assert!(spare.take(SPARE_BYTES / 32).is_none(), "none is near");
        assert_eq!(spare.bytes, SPARE_BYTES / 8 + SPARE_BYTES / 2);
        (6..6 + SPARE_BLOCKS).for_each(|address| keep(&mut spare, address, PAGE_BYTES_MIN));
        assert_eq!(freed, [4, 1, 3, 5]);
        let held = spare.blocks.iter().map(|block| block.address);
        assert_eq!(held.collect::<Vec<_>>(), (6..6 + SPARE_BLOCKS).collect::<Vec<_>>());
    }

    /// Each thread writes its number to its blocks and checks that it is still there: the spare blocks of all threads
    /// are shared.
    #[test]
    fn threads_never_share_a_block() {
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let bytes = BLOCK_BYTES_MAPPED + PAGE_BYTES_MIN * (round % 7);
                        let layout = Layout::from_size_align(bytes, 64).unwrap();
                        // SAFETY: the block is used within its layout, and freed with it once.
                        unsafe {
                            let block = MappedBlocks.alloc(layout);
                            block.write_bytes(thread, bytes);
                            std::thread::yield_now();
                            assert!(std::slice::from_raw_parts(block, bytes).iter().all(|&byte| byte == thread));
                            MappedBlocks.dealloc(block, layout);
                        }
                    }
                });
            }
        });
    }
}
