//! Buffers that a disk can write into without a copy.

use std::ops::{Deref, DerefMut};

/// Alignment of offsets, lengths and addresses of direct reads. Every common device accepts multiples of it.
pub const BLOCK_BYTES: usize = 4096;

/// One block, so that a vector of them is aligned without code of our own.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Zeroed bytes whose address is a multiple of [`BLOCK_BYTES`]; the capacity is rounded up to whole blocks.
pub struct AlignedBuffer {
    blocks: Vec<Block>,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let blocks = vec![Block([0; BLOCK_BYTES]); len.div_ceil(BLOCK_BYTES)];
        Self { blocks, len }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Block` is a plain array of bytes without padding, the vector holds at least `len` of them.
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
    fn address_is_aligned_and_length_is_kept() {
        for len in [0, 1, 4095, 4096, 4097] {
            let mut buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
            buffer.fill(7);
            assert!(buffer.iter().all(|&byte| byte == 7));
        }
    }
}
