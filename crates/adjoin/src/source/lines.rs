//! Splits files into lines, and CSV files into records.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};

use super::foreign::changed;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// Number of bytes to read at a time.
const BLOCK_BYTES: usize = 128 << 10;
/// Maximum length of a line, in bytes. Lengths of texts within a line are 32-bit numbers.
const LINE_BYTES_MAX: usize = 1 << 30;
/// Optional first bytes that mark the file as UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A line of a file.
pub(super) struct Line<'a> {
    /// Line number, counted from 1 as in editors.
    pub(super) number: u64,
    /// Bytes of the line, including the line break.
    pub(super) bytes: &'a [u8],
}

impl Line<'_> {
    /// Returns the byte order mark before the line, if any.
    pub(super) fn mark(&self) -> &[u8] {
        let is_marked = self.number == 1 && self.bytes.starts_with(BYTE_ORDER_MARK);
        if is_marked { BYTE_ORDER_MARK } else { &[] }
    }

    /// Returns the contents of the line, without surrounding white space.
    pub(super) fn text(&self) -> &[u8] {
        self.bytes[self.mark().len()..].trim_ascii()
    }

    /// Returns whether the line is blank. Blank lines are not rows.
    pub(super) fn is_blank(&self) -> bool {
        self.text().is_empty()
    }
}

/// Reader of the lines of a file, one after the other.
pub(super) struct Lines {
    pub(super) path: PathBuf,
    file: Arc<dyn ReadFile>,
    /// Offset in the file of the next read.
    position: u64,
    buffer: Vec<u8>,
    /// Range of `buffer` that was read but not returned yet.
    present: Range<usize>,
    /// Number of bytes at the start of `present` that contain no end of a line.
    searched: usize,
    /// Number of the last returned line.
    pub(super) number: u64,
    /// Memory for lines that are longer than the buffer. If absent, a longer line means that the file has changed
    /// since it was opened.
    growth: Option<(Context, Reservation)>,
    ending: Ending,
}

/// The end of a line.
enum Ending {
    /// A line break.
    LineBreak,
    /// The end of a CSV record, which may contain line breaks within quotes.
    Record(RecordEnd),
}

impl Ending {
    /// Returns the length of the line that ends within `bytes`; `None` if it does not end there. `bytes` follow the
    /// bytes of earlier calls.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::LineBreak => bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1),
            Self::Record(end) => end.find(bytes),
        }
    }
}

impl Lines {
    /// Creates a reader for a file with lines of at most `line_bytes_max` bytes.
    pub(super) fn of(path: &Path, file: Arc<dyn ReadFile>, line_bytes_max: usize) -> Self {
        Self::new(path, file, BLOCK_BYTES + line_bytes_max)
    }

    /// Returns the bytes that a reader of [`Lines::of`] holds.
    pub(super) fn bytes(line_bytes_max: usize) -> u64 {
        (BLOCK_BYTES + line_bytes_max) as u64
    }

    /// Creates a reader for a file with lines of unknown length. Its buffer grows if a line is longer than the buffer.
    ///
    /// # Errors
    /// Fails if the budget is too small for the initial buffer.
    pub(super) fn of_unknown(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let memory = context.reserve_between_runs(2 * BLOCK_BYTES as u64, &format!("{}: its lines", path.display()))?;
        Ok(Self { growth: Some((context.clone(), memory)), ..Self::new(path, file, BLOCK_BYTES) })
    }

    fn new(path: &Path, file: Arc<dyn ReadFile>, buffer_bytes: usize) -> Self {
        let (path, buffer) = (path.to_owned(), vec![0; buffer_bytes]);
        let ending = Ending::LineBreak;
        Self { path, file, position: 0, buffer, present: 0..0, searched: 0, number: 0, growth: None, ending }
    }

    /// Returns the bytes that a reader of [`Lines::of_csv`] reserves at first.
    pub(super) fn of_csv_bytes() -> u64 {
        2 * BLOCK_BYTES as u64
    }

    /// Creates a reader for the records of a CSV file. Its buffer grows if a record is longer than the buffer.
    ///
    /// # Errors
    /// Fails if the budget is too small for the initial buffer.
    pub(super) fn of_csv(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let memory = context.reserve_between_runs(Self::of_csv_bytes(), &format!("{}: its records", path.display()))?;
        let (growth, ending) = (Some((context.clone(), memory)), Ending::Record(RecordEnd::default()));
        Ok(Self { growth, ending, ..Self::new(path, file, BLOCK_BYTES) })
    }

    /// Returns the next line. The last line may lack a line break.
    pub(super) fn next_line(&mut self) -> Result<Option<Line<'_>>> {
        loop {
            // Skips bytes that were searched before. Otherwise a long line that is read in many blocks would take
            // quadratic time.
            let unsearched = self.present.start + self.searched;
            let end = self.ending.find(&self.buffer[unsearched..self.present.end]).map(|bytes| unsearched + bytes);
            let is_over = self.position == self.file.len();
            // The last line may lack a line break.
            let Some(end) = end.or((is_over && !self.present.is_empty()).then_some(self.present.end)) else {
                if is_over {
                    return Ok(None);
                }
                self.searched = self.present.len();
                self.read_more()?;
                continue;
            };
            let line = self.present.start..end;
            (self.present.start, self.searched) = (end, 0);
            self.number += 1;
            return Ok(Some(Line { number: self.number, bytes: &self.buffer[line] }));
        }
    }

    fn read_more(&mut self) -> Result<()> {
        // Moves the rest of a line to the front, so that each line is contiguous in the buffer.
        self.buffer.copy_within(self.present.clone(), 0);
        self.present = 0..self.present.len();
        if self.present.end == self.buffer.len() {
            self.grow()?;
        }
        let free = &mut self.buffer[self.present.end..];
        let bytes = free.len().min(BLOCK_BYTES).min((self.file.len() - self.position) as usize);
        self.file.read_at(self.position, &mut free[..bytes])?;
        self.position += bytes as u64;
        self.present.end += bytes;
        Ok(())
    }

    fn grow(&mut self) -> Result<()> {
        let (path, line) = (self.path.display(), self.number + 1);
        // Without `growth`, the size of the buffer was chosen for the longest line that the file had when it was
        // opened.
        let Some((context, memory)) = &mut self.growth else { return Err(changed(&self.path)) };
        let bytes = 2 * self.buffer.len();
        if bytes > LINE_BYTES_MAX {
            return Err(Error::input(format!(
                "{path}: line {line} has more than {LINE_BYTES_MAX} bytes; write one row per line"
            )));
        }
        // Both buffers exist while one is copied to the other.
        context.grow(memory, (self.buffer.len() + bytes) as u64, &format!("{path}: line {line}"))?;
        let mut larger = vec![0; bytes];
        larger[..self.buffer.len()].copy_from_slice(&self.buffer);
        self.buffer = larger;
        Ok(())
    }
}

/// Search for the end of a CSV record: a line break that is not within quotes.
#[derive(Default)]
struct RecordEnd(Place);

#[derive(Default, Clone, Copy, PartialEq)]
enum Place {
    #[default]
    FieldStart,
    Field,
    Quoted,
    /// After a quote within quotes. The quotes end here unless another quote follows.
    QuoteInQuoted,
}

impl RecordEnd {
    /// Returns how many of `bytes` belong to the record. Returns `None` if the record does not end within them.
    /// `bytes` follow the bytes of earlier calls.
    fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            self.0 = match (self.0, byte) {
                (Place::Quoted, b'"') => Place::QuoteInQuoted,
                // Two quotes within quotes stand for a quote, so the second one opens the quotes again.
                (Place::Quoted, _) | (Place::FieldStart | Place::QuoteInQuoted, b'"') => Place::Quoted,
                (_, b'\n' | b'\r') => {
                    self.0 = Place::FieldStart;
                    return Some(at + 1);
                }
                (_, b',') => Place::FieldStart,
                _ => Place::Field,
            };
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the lengths of records if bytes arrive in parts of `step` bytes.
    fn lengths(text: &str, step: usize) -> Vec<usize> {
        let (mut end, mut lengths, mut open) = (RecordEnd::default(), Vec::new(), 0);
        for mut part in text.as_bytes().chunks(step) {
            while let Some(bytes) = end.find(part) {
                lengths.push(open + bytes);
                (open, part) = (0, &part[bytes..]);
            }
            open += part.len();
        }
        lengths.push(open);
        lengths
    }

    #[test]
    fn csv_record_lengths_match_the_decoder() {
        let records = ["a,b\n", "1,\"x\ny\"\n", "2,\"say \"\"so\"\"\n\"\n", "3,5\" wide\n", "\r", "\n", "4,\"\""];
        let (text, expected) = (records.concat(), records.map(str::len));
        for step in [1, 2, 3, 7, 1_000] {
            assert_eq!(lengths(&text, step), expected, "{step}");
        }
    }
}
