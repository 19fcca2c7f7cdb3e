//! Text on standard output and standard error.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use adjoin::{Error, Result};

/// Formats a fraction as messages do: `3.04 %`.
pub(crate) fn percent(share: f64) -> String {
    match 100.0 * share {
        small if small > 0.0 && small < 0.01 => "less than 0.01 %".into(),
        // A fraction below 1 is never rounded to 100 %.
        part if share < 1.0 => format!("{} %", ((part * 100.0).round() / 100.0).min(99.99)),
        percent => format!("{} %", (percent * 100.0).round() / 100.0),
    }
}

/// Prints text. A reader that exits early, as `head` does, is not an error.
///
/// # Errors
/// If the text cannot be written, as on a full disk.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    // Flushed here, since the standard library ignores errors of the flush at exit.
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Error::device(format!("cannot write standard output: {error}")).caused_by(error))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error. Replaces the macro of the standard library, which panics if standard error is
/// closed, for example because the terminal was closed. With this macro, the work continues.
macro_rules! eprintln {
    ($($what:tt)*) => {
        $crate::print::say(format_args!($($what)*))
    };
}

/// Temporary files of results in object stores, each with its URL.
static UPLOADS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Sets the temporary files that messages name by their URLs. The files are removed at the end of the command, so their
/// own names are of no use to the reader.
pub(crate) fn set_uploads(files: &[(PathBuf, PathBuf)]) {
    let names = files.iter().map(|(file, url)| (file.display().to_string(), url.display().to_string())).collect();
    *UPLOADS.lock().unwrap_or_else(PoisonError::into_inner) = names;
}

pub(crate) fn say(line: Arguments<'_>) {
    let uploads = UPLOADS.lock().unwrap_or_else(PoisonError::into_inner);
    let line = uploads.iter().fold(line.to_string(), |line, (file, url)| line.replace(file, url));
    let _ = std::io::stderr().write_fmt(format_args!("{line}\n"));
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages_have_no_needless_digits() {
        let shares = [(1.0, "100 %"), (0.95, "95 %"), (0.999, "99.9 %"), (0.030_42, "3.04 %"), (0.0, "0 %")];
        shares.iter().for_each(|(share, text)| assert_eq!(percent(*share), *text));
        assert_eq!((percent(1e-9).as_str(), percent(1.0 - 1e-9).as_str()), ("less than 0.01 %", "99.99 %"));
    }
}
