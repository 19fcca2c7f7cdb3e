//! Bytes that tests allocate, to check functions that state the memory of a structure.

/// Builds a value. Also returns the bytes that it holds of those that this thread allocated.
pub(crate) fn allocated<T>(build: impl FnOnce() -> T) -> (T, u64) {
    let mut built = None;
    let counted = allocation_counter::measure(|| built = Some(build()));
    (built.expect("it was just built"), counted.bytes_current.try_into().expect("nothing that existed before is freed"))
}

/// Fails unless a structure holds at most `stated` bytes, and more than half of them.
#[track_caller]
pub(crate) fn assert_states_bytes(held: u64, stated: u64) {
    assert!(held <= stated && 2 * held > stated, "{held} bytes are held, {stated} are stated");
}
