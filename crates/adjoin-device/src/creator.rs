//! The process that created an object, so that a copy of the object in a forked child can be recognized.

use std::io;

/// Process that created an object.
///
/// A child of `fork` has a copy of its parent's memory, but of the parent's threads only the one that forked. It
/// shares open files, file locks and io_uring rings with the parent. In the child, a mutex may stay locked forever, a
/// thread can never be joined, and a write changes the parent's file. Objects with such parts therefore remember
/// their creator, and do nothing in any other process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Creator(u32);

impl Creator {
    /// Returns the running process.
    pub fn this_process() -> Self {
        Self(std::process::id())
    }

    /// Returns whether the running process is the creator. It is not in a forked child.
    pub fn is_this_process(self) -> bool {
        self.0 == std::process::id()
    }

    /// Returns the process id.
    pub fn id(self) -> u32 {
        self.0
    }

    /// Checks that the running process is the creator.
    ///
    /// # Errors
    /// In a forked child.
    pub(crate) fn check(self) -> io::Result<()> {
        if self.is_this_process() {
            return Ok(());
        }
        let (creator, child) = (self.0, std::process::id());
        Err(io::Error::other(format!(
            "process {creator} opened it, not its forked child {child}; open it in the child"
        )))
    }

    /// Returns a creator that is not this process, as a forked child sees its parent.
    #[cfg(test)]
    pub(crate) fn another_process() -> Self {
        Self(std::process::id() ^ 1)
    }
}
