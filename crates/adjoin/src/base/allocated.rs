//! Measures the bytes that tests allocate, to check functions that state the memory of a structure.

/// Builds a value. Returns it with the number of bytes that it holds, of those that this thread allocated.
pub(crate) fn allocated<T>(build: impl FnOnce() -> T) -> (T, u64) {
    let mut built = None;
    let counted = allocation_counter::measure(|| built = Some(build()));
    (built.expect("it was just built"), counted.bytes_current.try_into().expect("nothing that existed before is freed"))
}

/// Fails unless `held`, the bytes that a structure holds, is at most `stated` and more than half of it.
#[track_caller]
pub(crate) fn assert_states_bytes(held: u64, stated: u64) {
    assert!(held <= stated && 2 * held > stated, "{held} bytes are held, {stated} are stated");
}
