//! Text on standard output.

use std::io::{ErrorKind, Write};

use adjoin::error::{Error, Result};

/// Prints text. That a reader leaves before its end, as `head` does, is no fault.
///
/// # Errors
/// Where the text cannot be written, as on a full disk.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::device(format!("cannot write standard output: {error}")).caused_by(error))
        }
        _ => Ok(()),
    }
}
