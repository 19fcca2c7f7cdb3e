//! Reads the files of the redo log when a collection is opened.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::ReadFile;

use super::segment::{
    End, Failure, FilePoint, Frame, LogRows, LogStart, Point, Segment, SegmentWriter, file_name, first_of, no_header,
};
use crate::base::context::Context;
use crate::base::error::{Error, Result};

/// If the last file is smaller than this number of bytes, its records are copied to a new file when writing resumes.
/// This keeps small files from accumulating.
const SEGMENT_BYTES_MIN: u64 = 1 << 20;

/// Content of the files of a log, as it was read at opening.
pub(super) struct LogContents {
    /// The point after the last record.
    pub(super) point: Point,
    /// Records up to this number are known to be durable.
    pub(super) durable: u64,
    last: Option<LastFile>,
    /// Number of files.
    pub(super) files: usize,
    /// Total bytes of the headers and records of these files.
    pub(super) bytes: u64,
    /// Whether the last file ends in a torn record.
    pub(super) is_torn: bool,
}

/// The last file of a log.
struct LastFile {
    segment: Segment,
    /// Bytes of its header and records.
    bytes: u64,
    /// Bytes of memory that reading the file took.
    memory_bytes: u64,
}

/// Open files of a log. They stay readable after they are renamed or removed.
pub(super) struct Segments {
    whole: Vec<Segment>,
    /// Files without a record: their paths, and the record numbers in their names.
    empty: Vec<(PathBuf, u64)>,
}

impl Segments {
    /// Opens the log file that begins with record `start.first`, and all later ones.
    ///
    /// # Errors
    /// If the device fails, a file is missing, or a header is invalid.
    pub(super) fn open(context: &Context, folder: &Path, start: LogStart) -> Result<Self> {
        let LogStart { salt, first } = start;
        let names =
            context.device.list_only(folder, &|name| name.to_str().is_some_and(|name| first_of(name).is_some()))?;
        // Earlier files are leftovers, since their records are in the long-term index.
        let all = names.iter().filter_map(|name| first_of(name.to_str()?));
        let mut firsts: Vec<u64> = all.filter(|&record| record >= first).collect();
        firsts.sort_unstable();
        let (mut whole, mut empty) = (Vec::new(), Vec::new());
        for first in firsts {
            match Segment::open(context, folder, salt, first)? {
                Some(segment) => whole.push(segment),
                None => empty.push((folder.join(file_name(first)), first)),
            }
        }
        // A collection has no log file until its first write. Only in that case may the first record be missing.
        let begins = whole.first().map_or(Point::START.next, |segment| segment.start.next);
        if begins != first {
            let missing = folder.join(file_name(first));
            if empty.iter().any(|(path, _)| *path == missing) {
                return Err(no_header(&missing));
            }
            return Err(Error::corrupt(format!("{} is missing; restore it from a backup", missing.display())));
        }
        Ok(Self { whole, empty })
    }

    /// Returns the files that contain records, with their names.
    pub(super) fn files(&self) -> impl Iterator<Item = (String, &Arc<dyn ReadFile>)> {
        self.whole.iter().map(|segment| (file_name(segment.start.next), segment.file()))
    }

    /// Returns whether one of the files begins with record `first`.
    pub(super) fn has(&self, first: u64) -> bool {
        self.whole.iter().any(|segment| segment.start.next == first)
    }

    /// Returns the total bytes of the files.
    pub(super) fn file_bytes(&self) -> u64 {
        self.whole.iter().map(Segment::file_bytes).sum()
    }

    /// Counts the rows in all files without verifying the records.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn count_rows(&self) -> Result<LogRows> {
        let mut all = LogRows::default();
        for segment in &self.whole {
            let LogRows { rows, record_bytes_max } = segment.count_rows()?;
            all.rows += rows;
            all.record_bytes_max = all.record_bytes_max.max(record_bytes_max);
        }
        Ok(all)
    }

    /// Calls `take` with each record in order. If `before` is given, records of the first file that it contains are
    /// skipped.
    ///
    /// # Errors
    /// If the device or `take` fails, memory does not suffice, or a record that was durable is damaged.
    pub(super) fn read(
        self,
        context: &Context,
        before: Option<&LogContents>,
        take: &mut dyn FnMut(Frame<'_>) -> Result<()>,
    ) -> Result<LogContents> {
        let files = self.whole.len();
        let mut found = LogContents { point: Point::START, durable: 0, last: None, files, bytes: 0, is_torn: false };
        let mut from =
            before.and_then(|before| Some(FilePoint { point: before.point, offset: before.last.as_ref()?.bytes }));
        let mut segments = self.whole.into_iter().peekable();
        while let Some(segment) = segments.next() {
            context.cancel.check()?;
            let until = segments.peek().map(|next| next.start);
            let from = from.take().unwrap_or_else(|| segment.begin());
            let End { point, durable, bytes, is_torn, memory_bytes } = segment.read(context, from, until, take)?;
            let of_all = found.bytes + bytes;
            found = LogContents { point, durable: durable.max(found.durable), bytes: of_all, is_torn, ..found };
            found.last = Some(LastFile { segment, bytes, memory_bytes });
        }
        // The name of an empty file states the number of its first record. If the preceding record was not found, it
        // is lost.
        match self.empty.iter().find(|(_, first)| *first > found.point.next) {
            Some((path, _)) => Err(no_header(path)),
            None => Ok(found),
        }
    }
}

/// Returns the number and the total bytes of the log files in the folder, including leftovers.
///
/// # Errors
/// If the device fails.
pub(super) fn on_disk(context: &Context, folder: &Path) -> Result<(usize, u64)> {
    let names = context.device.list_only(folder, &|name| name.to_str().is_some_and(|name| first_of(name).is_some()))?;
    let (mut files, mut bytes) = (0, 0);
    for name in names {
        match context.device.open(&folder.join(name)) {
            Ok(file) => (files, bytes) = (files + 1, bytes + file.len()),
            Err(error) if error.source.kind() == ErrorKind::NotFound => {} // a merge removed it in the meantime
            Err(error) => return Err(error.into()),
        }
    }
    Ok((files, bytes))
}

impl LogContents {
    /// Returns the number of the first record in the last file.
    pub(super) fn last_file(&self) -> Option<u64> {
        self.last.as_ref().map(|last| last.segment.start.next)
    }

    /// Returns the number of the last record; 0 if there is none.
    pub(super) fn sequence(&self) -> u64 {
        self.point.next - 1
    }

    /// Returns the memory in bytes that [`Self::resume`] needs to read the last file again.
    pub(super) fn resuming_bytes(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.memory_bytes)
    }

    /// Creates a file for new records. Copies existing records to it that are not known to be durable: the disk may
    /// still lose them, even if they could be read.
    ///
    /// # Errors
    /// If a file cannot be read or written.
    pub(super) fn resume(
        &self,
        context: &Context,
        folder: &Path,
        salt: u64,
    ) -> std::result::Result<SegmentWriter, Failure> {
        let mut writer = None;
        let from = match &self.last {
            Some(last) if last.bytes < SEGMENT_BYTES_MIN => last.segment.start.next,
            _ => self.durable + 1,
        };
        if let Some(LastFile { segment, .. }) = &self.last {
            segment.read(context, segment.begin(), None, &mut |frame| {
                let (next, previous) = (frame.head.sequence, frame.head.previous);
                // Skips a record that has become readable since opening: it was neither acknowledged nor applied.
                if next < from || next >= self.point.next {
                    return Ok(());
                }
                if writer.is_none() {
                    writer = Some(SegmentWriter::draft(context, folder, salt, Point { next, previous })?);
                }
                writer.as_mut().map_or(Ok(()), |writer| writer.append(frame.bytes))
            })?;
        }
        let mut writer = match writer {
            Some(writer) => writer,
            None => SegmentWriter::draft(context, folder, salt, self.point)?,
        };
        writer.place(context, folder)?;
        Ok(writer)
    }
}
