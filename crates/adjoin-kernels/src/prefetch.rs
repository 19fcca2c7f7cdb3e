//! Software prefetch, which lets many cache misses overlap.

/// Maximum number of lines that are prefetched per slice. For a longer slice, the hardware prefetcher continues.
const LINES_MAX: usize = 8;
const LINE_BYTES: usize = 64;

/// Prefetches the first cache lines of a slice that will be read soon. This affects only speed.
#[inline(always)]
pub fn prefetch<T>(values: &[T]) {
    let lines = size_of_val(values).div_ceil(LINE_BYTES).min(LINES_MAX);
    let start = values.as_ptr().cast::<u8>();
    for line in 0..lines {
        prefetch_line(start.wrapping_add(line * LINE_BYTES));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: every x86-64 processor has the instruction, and any address is allowed.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn prefetch_line(address: *const u8) {
    // The intrinsic is not stable yet.
    // SAFETY: every AArch64 processor has the instruction, and any address is
    // allowed.
    unsafe { std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly)) }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn prefetch_line(_address: *const u8) {}
