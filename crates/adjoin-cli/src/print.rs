//! Text on standard output and standard error.

use std::fmt::Arguments;
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

/// Prints a line on standard error. In place of the macro of the standard library, which panics where nobody hears it, as
/// when the terminal is gone: here the work goes on, or ends as it would.
macro_rules! eprintln {
    ($($what:tt)*) => {
        $crate::print::say(format_args!($($what)*))
    };
}

pub(crate) fn say(line: Arguments<'_>) {
    let _ = std::io::stderr().write_fmt(format_args!("{line}\n"));
}
