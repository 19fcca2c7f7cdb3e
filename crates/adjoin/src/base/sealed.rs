//! Files of frames that end with a seal, a checksum of everything before it. Such a file, or object of an object store,
//! appears completely or not at all. The seal reveals whether the file was truncated or changed later. It also
//! identifies the contents of the file.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::frames::{FRAME_HEAD_BYTES, FrameHead, Frames, frame_head, split_head};
use crate::base::output::OutputWriter;
use crate::base::upload::ResultDraft;

/// Size of the head of the file in bytes: the magic, the version, and four zero bytes.
const HEAD_BYTES: usize = 16;
/// Length in a frame head that marks the seal.
const SEAL: u32 = u32::MAX;
/// Maximum length of a frame, in bytes. Real frames are much shorter.
const FRAME_BYTES_MAX: usize = 1 << 30;

/// A kind of sealed file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SealedKind {
    /// First bytes of the file.
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    /// Name in messages, such as "the plan of a join in parts".
    pub(crate) name: &'static str,
    /// Advice if the file is unusable, such as "plan again".
    pub(crate) remedy: &'static str,
}

impl SealedKind {
    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&self.magic);
        head[8..12].copy_from_slice(&self.version.to_le_bytes());
        head
    }

    /// Returns whether a file is of this kind, of any version. A file that is missing or shorter is not.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub(crate) fn is_at(&self, context: &Context, path: &Path) -> Result<bool> {
        let file = match context.device.open(path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        let mut magic = [0; 8];
        if file.len() >= magic.len() as u64 {
            file.read_at(0, &mut magic)?;
        }
        Ok(magic == self.magic)
    }

    /// Returns the error for a damaged file.
    pub(crate) fn damaged(&self, path: &Path, why: &str) -> Error {
        Error::corrupt(format!("{} is damaged ({why}); {}", path.display(), self.remedy))
    }
}

/// Returns the seal after a further frame with this head. `seal` is the seal before it.
fn sealed_with(seal: u64, frame_head: &FrameHead) -> u64 {
    let mut bytes = [0; 8 + FRAME_HEAD_BYTES];
    bytes[..8].copy_from_slice(&seal.to_le_bytes());
    bytes[8..].copy_from_slice(frame_head);
    xxh3_64(&bytes)
}

/// Writer of a sealed file.
pub(crate) struct SealedWriter {
    draft: ResultDraft,
    output: OutputWriter,
    path: PathBuf,
    seal: u64,
    frames: u64,
    bytes: u64,
}

impl SealedWriter {
    /// Creates a file. It appears at `path` when it is finished.
    ///
    /// # Errors
    /// Fails if the name is taken and `force` is false, or if a file cannot be written.
    pub(crate) fn create(context: &Context, path: &Path, force: bool, kind: SealedKind) -> Result<Self> {
        let (draft, output) = ResultDraft::create(context, path, force)?;
        let (head, path) = (kind.head(), path.to_owned());
        let mut writer = Self { draft, output, path, seal: xxh3_64(&head), frames: 0, bytes: 0 };
        writer.write(&head)?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = |error| Error::device(format!("cannot write {}: {error}", self.path.display()));
        self.output.write_all(bytes).map_err(failed)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub(crate) fn append(&mut self, frame: &[u8]) -> Result<()> {
        let length = u32::try_from(frame.len()).ok().filter(|_| frame.len() <= FRAME_BYTES_MAX);
        let head = frame_head(length.expect("frames are short"), xxh3_64(frame));
        self.write(&head)?;
        self.write(frame)?;
        self.seal = sealed_with(self.seal, &head);
        self.frames += 1;
        Ok(())
    }

    /// Returns the number of frames so far.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the offset of the next frame. [`SealedReader::frame_at`] reads it there.
    pub(crate) fn offset(&self) -> u64 {
        self.bytes
    }

    /// Appends an index, then finishes the file. [`SealedReader::index`] returns the index without a read of the frames
    /// before it.
    ///
    /// # Errors
    /// Fails as [`Self::finish`] does.
    pub(crate) fn finish_with_index(mut self, index: &[u8]) -> Result<u64> {
        let offset = self.bytes;
        self.append(index)?;
        self.append(&offset.to_le_bytes())?;
        self.finish()
    }

    /// Writes the seal and publishes the file. Returns its length in bytes.
    ///
    /// # Errors
    /// Fails if the name was taken in the meantime, or if a file cannot be written.
    pub(crate) fn finish(mut self) -> Result<u64> {
        let seal = frame_head(SEAL, self.seal);
        self.write(&seal)?;
        let Self { draft, output, bytes, .. } = self;
        output.sync()?;
        draft.publish()?;
        Ok(bytes)
    }
}

/// Reader of a sealed file.
pub(crate) struct SealedReader {
    path: PathBuf,
    kind: SealedKind,
    /// All frames before the seal.
    frames: Frames,
    /// Seal at the end of the file.
    seal: u64,
    /// Seal computed from the frames read so far.
    so_far: u64,
}

impl SealedReader {
    /// Opens a file. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Fails if the file is of another kind or version, or if it is truncated.
    pub(crate) fn open(context: &Context, path: &Path, kind: SealedKind) -> Result<Option<Self>> {
        let file = match context.device.open(path) {
            Err(error) if error.source.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let at = path.display();
        let mut head = [0; HEAD_BYTES];
        if file.len() >= HEAD_BYTES as u64 {
            file.read_at(0, &mut head)?;
        }
        let (magic, version) = (&head[..8], u32::from_le_bytes([head[8], head[9], head[10], head[11]]));
        if magic != kind.magic {
            return Err(Error::input(format!("{at} is not {}; {}", kind.name, kind.remedy)));
        }
        if version != kind.version {
            let (ours, remedy) = (kind.version, kind.remedy);
            let age = if version < ours { "older" } else { "newer" };
            return Err(Error::input(format!(
                "{at} has format version {version}, {age} than the version {ours} of this adjoin; {remedy}"
            )));
        }
        if file.len() < (HEAD_BYTES + FRAME_HEAD_BYTES) as u64 {
            return Err(kind.damaged(path, "it is cut off"));
        }
        let end = file.len() - FRAME_HEAD_BYTES as u64;
        let mut seal = [0; FRAME_HEAD_BYTES];
        file.read_at(end, &mut seal)?;
        let (mark, seal) = split_head(&seal);
        if mark != SEAL {
            return Err(kind.damaged(path, "it is cut off"));
        }
        let path = path.to_owned();
        let frames = Frames::new(file, HEAD_BYTES as u64..end, FRAME_BYTES_MAX);
        Ok(Some(Self { path, kind, frames, seal, so_far: xxh3_64(&head) }))
    }

    /// Returns the seal of the whole file.
    pub(crate) fn seal(&self) -> u64 {
        self.seal
    }

    /// Returns the next frame. After the last frame, verifies the seal and returns `None`.
    ///
    /// # Errors
    /// Fails if the file is damaged or the device fails.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        if self.frames.is_at_end() {
            return if self.so_far == self.seal { Ok(None) } else { Err(self.damaged()) };
        }
        let Some(head) = self.frames.read_next()? else { return Err(self.damaged()) };
        self.so_far = sealed_with(self.so_far, &head);
        Ok(Some(self.frames.last()))
    }

    /// Returns the frame at an offset. Does not verify the seal, only the frame.
    ///
    /// # Errors
    /// Fails if the frame is damaged or the device fails.
    pub(crate) fn frame_at(&self, offset: u64) -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        self.each_frame(offset, 1, |read| {
            frame.extend_from_slice(read);
            Ok(())
        })?;
        Ok(frame)
    }

    /// Passes `count` frames to `take`, from the one at `offset` on. Verifies only these frames.
    ///
    /// # Errors
    /// Fails if a frame is damaged, the device fails, or `take` fails.
    pub(crate) fn each_frame(
        &self,
        offset: u64,
        count: usize,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut frames = self.frames.reader_at(offset);
        for _ in 0..count {
            if frames.read_next()?.is_none() {
                return Err(self.kind.damaged(&self.path, &format!("before byte {}", frames.offset())));
            }
            take(frames.last())?;
        }
        Ok(())
    }

    /// Returns the index that [`SealedWriter::finish_with_index`] has written.
    ///
    /// # Errors
    /// Fails as [`Self::frame_at`] does.
    pub(crate) fn index(&self) -> Result<Vec<u8>> {
        let last = self.frames.end().saturating_sub((FRAME_HEAD_BYTES + size_of::<u64>()) as u64);
        let offset = self.frame_at(last)?.try_into().map_err(|_| self.damaged())?;
        self.frame_at(u64::from_le_bytes(offset))
    }

    /// Returns the error for a damaged frame.
    pub(crate) fn damaged(&self) -> Error {
        self.kind.damaged(&self.path, &format!("before byte {}", self.frames.offset()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: SealedKind = SealedKind { magic: *b"adjTEST\n", version: 3, name: "a test", remedy: "test again" };

    fn written(folder: &Path) -> PathBuf {
        let path = folder.join("sealed");
        let mut writer = SealedWriter::create(&Context::default(), &path, true, KIND).unwrap();
        [&b"first"[..], b"", b"third frame"].into_iter().for_each(|frame| writer.append(frame).unwrap());
        writer.finish().unwrap();
        path
    }

    fn read(path: &Path) -> Result<Vec<Vec<u8>>> {
        let mut reader = SealedReader::open(&Context::default(), path, KIND)?.expect("the file exists");
        let mut frames = Vec::new();
        while let Some(frame) = reader.next()? {
            frames.push(frame.to_vec());
        }
        Ok(frames)
    }

    #[test]
    fn frames_are_read_as_written_and_every_change_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        assert_eq!(read(&path).unwrap(), [b"first".to_vec(), Vec::new(), b"third frame".to_vec()]);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).unwrap();
            assert!(read(&path).is_err(), "byte {at} changed");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(read(&path).is_err(), "cut before byte {at}");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(read(&path).is_err(), "a byte too many");
    }

    #[test]
    fn other_versions_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path());
        let mut other = std::fs::read(&path).unwrap();
        other[8] = 2;
        std::fs::write(&path, &other).unwrap();
        let refused = read(&path).unwrap_err().to_string();
        assert!(refused.contains("version 2, older than the version 3 of this adjoin; test again"), "{refused}");
    }
}
