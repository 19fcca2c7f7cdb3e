//! From the text of a trace to operations.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::HEADER;
use crate::error::Operation;

/// What was asked of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    files: Vec<PathBuf>,
    operations: Vec<TracedOperation>,
}

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedOperation {
    /// What was asked.
    pub operation: Operation,
    /// Number of the file or folder, for [`Trace::name`].
    pub file: usize,
    /// First byte of a read or write, else 0.
    pub offset: u64,
    /// Bytes of a read or write, else 0.
    pub bytes: u64,
    /// Nanoseconds from the start of the trace to that of the operation.
    pub start_ns: u64,
    /// Nanoseconds that it took.
    pub duration_ns: u64,
    /// Whether it succeeded.
    pub ok: bool,
    /// Number of the new name, for a rename.
    pub to: Option<usize>,
}

/// A text that is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {why}")]
pub struct TraceError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl Trace {
    /// Reads the text of a trace. Holds less memory than twenty times the text.
    ///
    /// # Errors
    /// Where it is not one of this version, or breaks off.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut trace = Self::default();
        let mut lines = text.split_inclusive(|byte| *byte == b'\n').enumerate();
        let first = lines.next().map_or(&[][..], |(_, line)| line);
        if first != [HEADER.as_bytes(), b"\n"].concat() {
            return Err(TraceError { line: 1, why: format!("expected {HEADER:?}") });
        }
        for (number, line) in lines {
            trace.take(line).map_err(|why| TraceError { line: number + 1, why })?;
        }
        Ok(trace)
    }

    /// The operations in the order in which they ended.
    pub fn operations(&self) -> &[TracedOperation] {
        &self.operations
    }

    /// The name of a file.
    ///
    /// # Panics
    /// Where no operation of this trace has that number.
    pub fn name(&self, file: usize) -> &Path {
        &self.files[file]
    }

    /// Number of files and folders.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let line = line.strip_suffix(b"\n").ok_or("it breaks off")?;
        let line = str::from_utf8(line).map_err(|_| "it is not ASCII")?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["file", number, name] => {
                let expected = self.files.len();
                if number.parse() != Ok(expected) {
                    return Err(format!("expected file {expected}"));
                }
                self.files.push(unescape(name)?);
            }
            [operation, rest @ ..] => {
                let operation =
                    Operation::of_word(operation).ok_or_else(|| format!("no operation {operation:?} is known"))?;
                self.operations.push(self.operation(operation, rest)?);
            }
            [] => unreachable!("a split has at least one part"),
        }
        Ok(())
    }

    fn operation(&self, operation: Operation, words: &[&str]) -> Result<TracedOperation, String> {
        let (fields, to) = match words {
            [fields @ .., to] if operation == Operation::Rename => (fields, Some(self.file(to)?)),
            fields => (fields, None),
        };
        let &[file, offset, bytes, start, duration, outcome] = fields else {
            return Err(format!("{} fields are too few or too many for a {}", words.len(), operation.word()));
        };
        let ok = match outcome {
            "ok" => true,
            "failed" => false,
            _ => return Err(format!("{outcome:?} is no outcome")),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        Ok(TracedOperation {
            operation,
            file: self.file(file)?,
            offset: number(offset)?,
            bytes: number(bytes)?,
            start_ns: number(start)?,
            duration_ns: number(duration)?,
            ok,
            to,
        })
    }

    fn file(&self, text: &str) -> Result<usize, String> {
        let number = text.parse().ok().filter(|number| *number < self.files.len());
        number.ok_or_else(|| format!("no file {text:?} has been named"))
    }
}

/// The name as it is written in a trace.
pub(super) fn escape(name: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%';
    let escaped = |byte: &u8| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02x}") };
    name.as_os_str().as_encoded_bytes().iter().map(escaped).collect()
}

fn unescape(text: &str) -> Result<PathBuf, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        bytes.push(match byte {
            b'%' => match (digit(rest.next()), digit(rest.next())) {
                (Some(high), Some(low)) => (high * 16 + low) as u8,
                _ => return Err("% without two hexadecimal digits".into()),
            },
            byte => byte,
        });
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fails(text: &str) -> String {
        Trace::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let text = "adjoin-trace 1\nfile 0 a%20b\nread 0 4096 512 10 20 ok\nfile 1 c\nrename 0 0 0 30 1 failed 1\n";
        let trace = Trace::parse(text.as_bytes()).unwrap();
        assert_eq!((trace.files(), trace.name(0), trace.name(1)), (2, Path::new("a b"), Path::new("c")));
        let read = TracedOperation {
            operation: Operation::Read,
            file: 0,
            offset: 4096,
            bytes: 512,
            start_ns: 10,
            duration_ns: 20,
            ok: true,
            to: None,
        };
        assert_eq!(trace.operations()[0], read);
        assert_eq!((trace.operations()[1].to, trace.operations()[1].ok), (Some(1), false));
    }

    #[test]
    fn what_is_no_trace_is_refused_by_its_line() {
        assert_eq!(fails(""), "line 1 of the trace: expected \"adjoin-trace 1\"");
        assert_eq!(fails("adjoin-trace 2\n"), "line 1 of the trace: expected \"adjoin-trace 1\"");
        let line = |line: &str| fails(&format!("adjoin-trace 1\nfile 0 a\n{line}"));
        assert_eq!(line("read 0 0 1 0 0"), "line 3 of the trace: it breaks off");
        assert_eq!(line("read 0 0 1 0 0\n"), "line 3 of the trace: 5 fields are too few or too many for a read");
        assert_eq!(line("read 1 0 1 0 0 ok\n"), "line 3 of the trace: no file \"1\" has been named");
        assert_eq!(line("read 0 -1 1 0 0 ok\n"), "line 3 of the trace: \"-1\" is no number");
        assert_eq!(line("read 0 0 1 0 0 perhaps\n"), "line 3 of the trace: \"perhaps\" is no outcome");
        assert_eq!(line("dance 0 0 1 0 0 ok\n"), "line 3 of the trace: no operation \"dance\" is known");
        assert_eq!(line("file 2 a\n"), "line 3 of the trace: expected file 1");
        assert_eq!(line("file 1 %2\n"), "line 3 of the trace: % without two hexadecimal digits");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Trace::parse(&bytes);
            let _ = Trace::parse(&[b"adjoin-trace 1\n", &bytes[..]].concat());
        }

        #[test]
        fn no_changed_trace_panics(lines in prop::collection::vec("(file|read|rename|sync) [0-9%a ]{0,30}", 0..6)) {
            let _ = Trace::parse(["adjoin-trace 1\nfile 0 a\n", &lines.join("\n")].concat().as_bytes());
        }

        #[test]
        fn every_name_survives(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let name = PathBuf::from(OsString::from_vec(bytes));
            let escaped = escape(&name);
            prop_assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(unescape(&escaped).unwrap(), name);
        }
    }
}
