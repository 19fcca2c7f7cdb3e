//! Aligned buffers that direct reads fill without a copy.

use std::ops::{Deref, DerefMut};

/// Alignment that the engine uses for the offsets, lengths and addresses of direct reads, in bytes. Every common
/// device accepts it.
pub const BLOCK_BYTES: usize = 4096;

/// One block. `Vec<Block>` has aligned memory, so no allocator of our own is needed.
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Returns zeroed blocks. `vec![Block(..); count]` would write zeros also where the system has just cleared the memory.
fn zeroed_blocks(count: usize) -> Vec<Block> {
    let blocks = Box::<[Block]>::new_zeroed_slice(count);
    // SAFETY: a block is an array of bytes, for which zeros are valid.
    unsafe { blocks.assume_init() }.into_vec()
}

/// Zeroed bytes at an address that is a multiple of [`BLOCK_BYTES`]; the capacity is rounded up to whole blocks.
pub struct AlignedBuffer {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuffer {
    /// Creates a buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        Self { blocks: zeroed_blocks(len.div_ceil(BLOCK_BYTES)), len }
    }

    /// Returns the size of the buffer's memory, in bytes.
    pub fn capacity(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// Changes the length. The memory is reused if it is large enough. The contents become unspecified.
    pub fn resize(&mut self, len: usize) {
        let blocks = len.div_ceil(BLOCK_BYTES);
        if blocks > self.blocks.len() {
            self.blocks = Vec::new(); // frees the old memory before more is allocated; its contents are not needed
            self.blocks = zeroed_blocks(blocks);
        }
        self.len = len;
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Block` is a plain array of bytes without padding, and the vector holds at least `len` bytes.
        unsafe { std::slice::from_raw_parts(self.blocks.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.blocks.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_have_an_aligned_address_and_the_requested_length() {
        for len in [0, 1, 4095, 4096, 4097] {
            let mut buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn resize_reuses_memory_up_to_its_capacity() {
        let mut buffer = AlignedBuffer::zeroed(5000);
        let address = buffer.as_ptr();
        for len in [1, 8192, 0, 4096] {
            buffer.resize(len);
            assert_eq!((buffer.len(), buffer.as_ptr()), (len, address), "{len}");
        }
        buffer.resize(8193);
        assert_eq!((buffer.len(), buffer.as_ptr() as usize % BLOCK_BYTES), (8193, 0));
    }
}
