//! Parser of traces.

use std::ffi::OsString;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::{HEADER, HEADER_1};
use crate::error::Operation;

/// Maximum length of a line of a trace, in bytes. Each byte of a name may take three bytes, since names are escaped.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// A recorded sequence of operations on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    names: Names,
    operations: Vec<TracedOperation>,
}

/// Names of files and consumers, at the indexes by which a trace refers to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Names {
    files: Vec<PathBuf>,
    consumers: Vec<String>,
}

/// Reads the operations of a trace one by one. Holds only one line and the names in memory.
pub struct TraceReader<R> {
    text: R,
    names: Names,
    tells_causes: bool,
    /// Number and text of the last line read.
    line: usize,
    bytes: Vec<u8>,
}

impl<R: BufRead> TraceReader<R> {
    /// Creates a reader, and reads the first line.
    pub fn begin(text: R) -> Result<Self, TraceError> {
        let mut reader = Self { text, names: Names::default(), tells_causes: false, line: 0, bytes: Vec::new() };
        reader.read_line()?;
        let is = |header: &str| reader.bytes.strip_suffix(b"\n") == Some(header.as_bytes());
        reader.tells_causes = is(HEADER);
        if !reader.tells_causes && !is(HEADER_1) {
            return Err(TraceError { line: 1, why: format!("expected {HEADER:?}") });
        }
        Ok(reader)
    }

    /// Returns the next operation; `None` at the end of the trace.
    ///
    /// # Errors
    /// If the text is truncated, malformed, or cannot be read.
    pub fn next_operation(&mut self) -> Result<Option<TracedOperation>, TraceError> {
        while self.read_line()? {
            let taken = self.names.take(&self.bytes, self.tells_causes);
            if let Some(operation) = taken.map_err(|why| TraceError { line: self.line, why })? {
                return Ok(Some(operation));
            }
        }
        Ok(None)
    }

    /// Returns the name of a file.
    ///
    /// # Panics
    /// If the operations returned so far do not include one with this file.
    pub fn name(&self, file: usize) -> &Path {
        &self.names.files[file]
    }

    /// Reads the next line. Returns false at the end of the text.
    fn read_line(&mut self) -> Result<bool, TraceError> {
        self.line += 1;
        self.bytes.clear();
        let read = (&mut self.text).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.bytes);
        read.map_err(|error| TraceError { line: self.line, why: format!("cannot be read: {error}") })?;
        Ok(!self.bytes.is_empty())
    }
}

/// An operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedOperation {
    /// The operation.
    pub operation: Operation,
    /// Number of the file or folder, which [`Trace::name`] accepts.
    pub file: usize,
    /// Offset of a read or write in bytes; 0 for other operations.
    pub offset: u64,
    /// Length of a read or write in bytes; 0 for other operations.
    pub bytes: u64,
    /// Start of the operation, in nanoseconds since the trace began.
    pub start_ns: u64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
    /// Whether the operation succeeded.
    pub ok: bool,
    /// Number of the new name if the operation is a rename.
    pub to: Option<usize>,
    /// Number of the consumer, which [`Trace::consumer`] accepts.
    pub consumer: Option<u8>,
    /// Number of the consumer's step that needs the bytes.
    pub step: Option<u64>,
    /// Number of the step on which the read depends, lower than `step`. The read started after the reads of that step
    /// had ended.
    pub after: Option<u64>,
}

/// Error in the text of a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {why}")]
pub struct TraceError {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong with the line.
    pub why: String,
}

impl Trace {
    /// Parses a trace. Uses less than 20 times as much memory as the text.
    pub fn parse(text: &[u8]) -> Result<Self, TraceError> {
        let mut reader = TraceReader::begin(text)?;
        let mut operations = Vec::new();
        while let Some(operation) = reader.next_operation()? {
            operations.push(operation);
        }
        Ok(Self { names: reader.names, operations })
    }

    /// Returns the operations in the order in which they ended.
    pub fn operations(&self) -> &[TracedOperation] {
        &self.operations
    }

    /// Returns the name of a file.
    ///
    /// # Panics
    /// If no operation of this trace has this file number.
    pub fn name(&self, file: usize) -> &Path {
        &self.names.files[file]
    }

    /// Returns the name of a consumer.
    ///
    /// # Panics
    /// If no operation of this trace has this consumer number.
    pub fn consumer(&self, consumer: u8) -> &str {
        &self.names.consumers[usize::from(consumer)]
    }

    /// Returns the number of files and folders.
    pub fn files(&self) -> usize {
        self.names.files.len()
    }
}

impl Names {
    /// Parses a line. If it names a file, stores the name and returns `None`. Otherwise returns the operation.
    fn take(&mut self, line: &[u8], tells_causes: bool) -> Result<Option<TracedOperation>, String> {
        let line = line.strip_suffix(b"\n").ok_or("it is incomplete")?;
        let line = str::from_utf8(line).map_err(|_| "it is not ASCII")?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["file", number, name] => {
                let expected = self.files.len();
                if number.parse() != Ok(expected) {
                    return Err(format!("expected file {expected}"));
                }
                self.files.push(unescape(name)?);
                Ok(None)
            }
            [operation, rest @ ..] => {
                let operation =
                    Operation::of_word(operation).ok_or_else(|| format!("unknown operation {operation:?}"))?;
                self.operation(operation, rest, tells_causes).map(Some)
            }
            [] => unreachable!("a split has at least one part"),
        }
    }

    fn operation(
        &mut self,
        operation: Operation,
        words: &[&str],
        tells_causes: bool,
    ) -> Result<TracedOperation, String> {
        let (fields, to) = match words {
            [fields @ .., to] if operation == Operation::Rename => (fields, Some(self.file(to)?)),
            fields => (fields, None),
        };
        let (&[file, offset, bytes, start, duration, outcome], cause) = match fields.split_first_chunk() {
            Some((what, &[consumer, step, after])) if tells_causes => (what, [consumer, step, after]),
            Some((what, [])) if !tells_causes => (what, ["-"; 3]),
            _ => return Err(format!("{} fields are too few or too many for a {}", words.len(), operation.word())),
        };
        let ok = match outcome {
            "ok" => true,
            "failed" => false,
            _ => return Err(format!("{outcome:?} is not an outcome")),
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        let [consumer, step, after] = cause;
        let step_number = |text| if text == "-" { Ok(None) } else { number(text).map(Some) };
        let (step, after) = (step_number(step)?, step_number(after)?);
        if after.is_some() && after >= step {
            return Err("a step depends on one that is not before it".into());
        }
        Ok(TracedOperation {
            operation,
            file: self.file(file)?,
            offset: number(offset)?,
            bytes: number(bytes)?,
            start_ns: number(start)?,
            duration_ns: number(duration)?,
            ok,
            to,
            consumer: self.consumer_number(consumer)?,
            step,
            after,
        })
    }

    fn consumer_number(&mut self, word: &str) -> Result<Option<u8>, String> {
        if word == "-" {
            return Ok(None);
        }
        let known = self.consumers.iter().position(|consumer| consumer == word);
        let number = known.unwrap_or(self.consumers.len());
        let number = u8::try_from(number).map_err(|_| "there are more than 256 consumers")?;
        if known.is_none() {
            self.consumers.push(word.to_owned());
        }
        Ok(Some(number))
    }

    fn file(&self, text: &str) -> Result<usize, String> {
        let number = text.parse().ok().filter(|number| *number < self.files.len());
        number.ok_or_else(|| format!("the file {text:?} was not named before"))
    }
}

/// Returns the escaped form of a name, as it is written in traces.
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
    fn parses_a_written_trace() {
        let first = "adjoin-trace 2\nfile 0 a%20b\nread 0 4096 512 10 20 ok join 7 3\n";
        let text = format!("{first}file 1 c\nrename 0 0 0 30 1 failed - - - 1\nread 1 0 1 30 2 ok join 8 -\n");
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
            consumer: Some(0),
            step: Some(7),
            after: Some(3),
        };
        assert_eq!(trace.operations()[0], read);
        assert_eq!(trace.consumer(0), "join");
        let rename = trace.operations()[1];
        assert_eq!(
            (rename.to, rename.ok, rename.consumer, rename.step, rename.after),
            (Some(1), false, None, None, None)
        );
        let second = trace.operations()[2];
        assert_eq!((second.consumer, second.step, second.after), (Some(0), Some(8), None));
    }

    #[test]
    fn traces_of_version_1_have_no_causes() {
        let operations = "read 0 4096 512 10 20 ok\nfile 1 c\nrename 0 0 0 30 1 failed 1\n";
        let of_1 = Trace::parse(format!("adjoin-trace 1\nfile 0 a\n{operations}").as_bytes()).unwrap();
        let operations = operations.replace("ok", "ok - - -").replace("failed", "failed - - -");
        let of_2 = Trace::parse(format!("adjoin-trace 2\nfile 0 a\n{operations}").as_bytes()).unwrap();
        assert_eq!(of_1, of_2);
        assert_eq!(of_1.operations().len(), 2);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let endless = std::io::Read::chain(&b"adjoin-trace 2\nfile 0 "[..], std::io::repeat(b'a'));
        let mut reader = TraceReader::begin(std::io::BufReader::new(endless)).unwrap();
        assert_eq!(reader.next_operation().unwrap_err().to_string(), "line 2 of the trace: it is incomplete");
    }

    #[test]
    fn invalid_traces_are_refused_with_a_line_number() {
        for header in ["", "adjoin-trace 2", "adjoin-trace 3\n", "adjoin-trace 22\n"] {
            assert_eq!(fails(header), "line 1 of the trace: expected \"adjoin-trace 2\"");
        }
        let line = |line: &str| fails(&format!("adjoin-trace 2\nfile 0 a\n{line}"));
        assert_eq!(line("read 0 0 1 0 0"), "line 3 of the trace: it is incomplete");
        let fields = |count| format!("line 3 of the trace: {count} fields are too few or too many for a read");
        assert_eq!(line("read 0 0 1 0 0 ok\n"), fields(6));
        assert_eq!(line("read 0 0 1 0 0 ok - - - -\n"), fields(10));
        assert_eq!(fails("adjoin-trace 1\nfile 0 a\nread 0 0 1 0 0 ok - - -\n"), fields(9));
        assert_eq!(line("read 1 0 1 0 0 ok - - -\n"), "line 3 of the trace: the file \"1\" was not named before");
        assert_eq!(line("read 0 -1 1 0 0 ok - - -\n"), "line 3 of the trace: \"-1\" is not a number");
        assert_eq!(line("read 0 0 1 0 0 perhaps - - -\n"), "line 3 of the trace: \"perhaps\" is not an outcome");
        assert_eq!(line("read 0 0 1 0 0 ok join x -\n"), "line 3 of the trace: \"x\" is not a number");
        let late = "line 3 of the trace: a step depends on one that is not before it";
        assert_eq!([line("read 0 0 1 0 0 ok join 4 4\n"), line("read 0 0 1 0 0 ok join - 0\n")], [late, late]);
        let consumers: String = (0..257).map(|k| format!("read 0 0 1 0 0 ok c{k} - -\n")).collect();
        assert_eq!(line(&consumers), "line 259 of the trace: there are more than 256 consumers");
        assert_eq!(line("dance 0 0 1 0 0 ok - - -\n"), "line 3 of the trace: unknown operation \"dance\"");
        assert_eq!(line("file 2 a\n"), "line 3 of the trace: expected file 1");
        assert_eq!(line("file 1 %2\n"), "line 3 of the trace: % without two hexadecimal digits");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Trace::parse(&bytes);
            for header in ["adjoin-trace 1\n", "adjoin-trace 2\n"] {
                let _ = Trace::parse(&[header.as_bytes(), &bytes].concat());
            }
        }

        #[test]
        fn no_changed_trace_panics(lines in prop::collection::vec("(file|read|rename|sync) [0-9%a -]{0,40}", 0..6),
                                   causes in prop::collection::vec("(-|join|[a-c ]{0,3}) [0-9-]{0,21} [0-9-]{0,21}", 0..6)) {
            let lines = lines.join("\n");
            let causes: String = causes.iter().map(|cause| format!("read 0 0 1 0 0 ok {cause}\n")).collect();
            for header in ["adjoin-trace 1", "adjoin-trace 2"] {
                let _ = Trace::parse(format!("{header}\nfile 0 a\n{lines}").as_bytes());
                let _ = Trace::parse(format!("{header}\nfile 0 a\n{causes}{lines}").as_bytes());
            }
        }

        #[test]
        fn causes_round_trip(consumer in "[!-,.-~]{1,9}", step: Option<u64>, after: Option<u64>) {
            let step = step.max(after.and_then(|after| after.checked_add(1)));
            let after = after.filter(|&after| step > Some(after));
            let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
            let cause = format!("{consumer} {} {}", number(step), number(after));
            let trace = Trace::parse(format!("adjoin-trace 2\nfile 0 a\nread 0 0 1 0 0 ok {cause}\n").as_bytes()).unwrap();
            let read = trace.operations()[0];
            prop_assert_eq!((trace.consumer(read.consumer.unwrap()), read.step, read.after), (&*consumer, step, after));
        }

        #[test]
        fn names_round_trip(bytes in prop::collection::vec(any::<u8>(), 1..40)) {
            let name = PathBuf::from(OsString::from_vec(bytes));
            let escaped = escape(&name);
            prop_assert!(escaped.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(unescape(&escaped).unwrap(), name);
        }
    }
}
