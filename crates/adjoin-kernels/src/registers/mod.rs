//! Sixteen numbers in vector registers: two registers of AVX2, or four of NEON.
//!
//! Both modules have the functions that loops over sixteen lanes need, so such a loop has one source for both. Each
//! function needs the features that it enables. The compiler checks that its callers enable them too.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::{Floats, Integers, transposed_floats, transposed_words, tree};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::{Floats, Integers, transposed_floats, transposed_words, tree};
