//! Files of rows that the parts of a build exchange. Each reading part writes one, sorted by center, with a section for
//! each writing part. A writing part reads its section of all files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{F64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::records::Tally;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::sealed::{SealedKind, SealedReader, SealedWriter};

/// The file of a reading part.
pub(super) const SHUFFLE: SealedKind = SealedKind {
    magic: *b"adjSHUF\n",
    version: 1,
    name: "the result of a reading part of a build",
    remedy: "run that part again",
};
/// Approximate size of a frame of records, in bytes. A frame is the least that a writing part reads.
pub(super) const FRAME_BYTES: usize = 256 << 10;

/// Index of a file.
#[derive(Serialize, Deserialize)]
struct ShuffleIndex {
    usable_rows: u64,
    /// Offset of the table of each section.
    tables: Vec<u64>,
}

/// Tally of a center in the table of a section.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ListedTally {
    rows: U64,
    id_bytes: U64,
    radius: F64,
}

/// A frame in the table of a section.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ListedFrame {
    offset: U64,
    /// Place in the section of the center of the first record.
    place: U32,
}

/// Writer of a file.
pub(super) struct ShuffleWriter {
    file: SealedWriter,
    frame: Vec<u8>,
    /// Frames of the current section.
    frames: Vec<ListedFrame>,
    tables: Vec<u64>,
}

impl ShuffleWriter {
    /// Creates a writer that appends to a file with a head.
    pub(super) fn new(file: SealedWriter) -> Self {
        Self { file, frame: Vec::with_capacity(FRAME_BYTES), frames: Vec::new(), tables: Vec::new() }
    }

    /// Appends a record of the center at a place of the current section. Places ascend.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn push(&mut self, place: usize, record: &[u8]) -> Result<()> {
        if self.frame.len() + record.len() > FRAME_BYTES {
            self.end_frame()?;
        }
        if self.frame.is_empty() {
            let (offset, place) = (self.file.offset().into(), (place as u32).into());
            self.frames.push(ListedFrame { offset, place });
        }
        self.frame.extend_from_slice(record);
        Ok(())
    }

    fn end_frame(&mut self) -> Result<()> {
        if !self.frame.is_empty() {
            self.file.append(&self.frame)?;
            self.frame.clear();
        }
        Ok(())
    }

    /// Ends a section. `tallies` has the tally of each of its centers, in order.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn end_section(&mut self, tallies: impl Iterator<Item = Tally>) -> Result<()> {
        self.end_frame()?;
        let mut table = Vec::new();
        for Tally { rows, id_bytes, radius } in tallies {
            let listed = ListedTally { rows: rows.into(), id_bytes: id_bytes.into(), radius: radius.into() };
            table.extend_from_slice(listed.as_bytes());
        }
        table.extend_from_slice(self.frames.as_bytes());
        self.frames.clear();
        self.tables.push(self.file.offset());
        self.file.append(&table)
    }

    /// Publishes the file. Returns its length in bytes.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn finish(self, usable_rows: u64) -> Result<u64> {
        let index = ShuffleIndex { usable_rows, tables: self.tables };
        self.file.finish_with_index(&serde_json::to_vec(&index).expect("an index has no map"))
    }
}

/// A section of a file.
pub(super) struct ShuffleSection {
    /// Usable rows of the whole file.
    pub(super) usable_rows: u64,
    /// Tallies of the centers of the section.
    pub(super) tallies: Vec<Tally>,
    /// Frames of the section.
    pub(super) frames: Vec<ListedFrame>,
}

impl ShuffleSection {
    /// Reads the table of a section with `centers` centers.
    ///
    /// # Errors
    /// Fails if the file is damaged or cannot be read.
    pub(super) fn read(reader: &SealedReader, section: usize, centers: usize) -> Result<Self> {
        let index: Option<ShuffleIndex> = serde_json::from_slice(&reader.index()?).ok();
        let Some(ShuffleIndex { usable_rows, tables }) = index else { return Err(reader.damaged()) };
        let Some(&table) = tables.get(section) else { return Err(reader.damaged()) };
        let table = reader.frame_at(table)?;
        let Some((tallies, frames)) = table.split_at_checked(centers * size_of::<ListedTally>()) else {
            return Err(reader.damaged());
        };
        let (Ok(tallies), Ok(frames)) =
            (<[ListedTally]>::ref_from_bytes(tallies), <[ListedFrame]>::ref_from_bytes(frames))
        else {
            return Err(reader.damaged());
        };
        let tally = |listed: &ListedTally| Tally {
            rows: listed.rows.get(),
            id_bytes: listed.id_bytes.get(),
            radius: listed.radius.get(),
        };
        Ok(Self { usable_rows, tallies: tallies.iter().map(tally).collect(), frames: frames.to_vec() })
    }

    /// Returns the bytes of the list of frames in memory.
    pub(super) fn frames_bytes(&self) -> u64 {
        size_of_val(&self.frames[..]) as u64
    }
}

/// A section of all files.
pub(super) struct ShuffledRows {
    context: Context,
    /// The files, in the order of their rows, and their frames.
    files: Vec<(PathBuf, Vec<ListedFrame>)>,
    centers: usize,
}

impl ShuffledRows {
    /// Creates an empty section with `centers` centers.
    pub(super) fn new(context: &Context, centers: usize) -> Self {
        Self { context: context.clone(), files: Vec::new(), centers }
    }

    /// Adds the section of a file. Its rows follow the rows of the files before.
    pub(super) fn add(&mut self, path: &Path, frames: Vec<ListedFrame>) {
        self.files.push((path.to_owned(), frames));
    }

    /// Returns the number of centers.
    pub(super) fn centers(&self) -> usize {
        self.centers
    }

    /// Passes the records of the centers at `places` to `take`, and perhaps some records of centers next to them. Each
    /// call passes many complete records. Within each center, records are in the order of the source.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is damaged, or if `take` fails.
    pub(super) fn read(&self, places: Range<usize>, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for (path, frames) in &self.files {
            let starts_before = |place: usize| frames.partition_point(|frame| (frame.place.get() as usize) < place);
            // The last frame that starts before the places may end within them.
            let first = starts_before(places.start).saturating_sub(1);
            let some = &frames[first..starts_before(places.end).max(first)];
            let Some(start) = some.first() else { continue };
            // A file is open only while it is read, since there may be more files than a process may have open.
            let Some(reader) = SealedReader::open(&self.context, path, SHUFFLE)? else {
                return Err(SHUFFLE.damaged(path, "it is missing"));
            };
            reader.each_frame(start.offset.get(), some.len(), &mut take)?;
        }
        Ok(())
    }
}
