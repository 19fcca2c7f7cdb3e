//! Locks that are released when the holding process ends, in whatever way (`flock`).

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::creator::Creator;
use crate::device::{HeldLock, Lock};

/// Maximum length of a lock file's text that is accepted as the description of a holder, in bytes.
const HOLDER_BYTES_MAX: u64 = 400;

/// Takes the lock of the file at `path`, as [`Device::lock`](crate::Device::lock) specifies.
pub(crate) fn lock(path: &Path) -> io::Result<Lock> {
    loop {
        let (file, made) = open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Others(holder_in(&file))),
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => {
                if made {
                    std::fs::remove_file(path)?;
                }
                return Ok(Lock::Unsupported);
            }
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let held = FileLock { file, creator: Creator::this_process() };
        // The previous holder may have removed the file after we opened it. The lock that we hold is then of a file
        // without a name, so try again.
        if is_at(&held.file, path)? {
            let named = held.file.set_len(0).and_then(|()| held.file.write_all_at(this_process().as_bytes(), 0));
            if named.is_err() && made {
                let _ = std::fs::remove_file(path); // best effort: `named` has the error to report
            }
            return named.map(|()| Lock::Ours(HeldLock::new(held)));
        }
    }
}

/// Opens the file, and creates it if it is missing. Returns the file and whether it was created.
fn open(path: &Path) -> io::Result<(File, bool)> {
    // Links are refused, since a link of another user could lead to any file. Pipes are refused because they cannot
    // be locked.
    let no_links = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(no_links);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.map(|file| (file, true)),
    }
    let file = options.create(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "only a file can be locked"));
    }
    Ok((file, false))
}

/// Returns whether `path` is the path of the open file `file`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the holder that the file describes. It is used in messages only: only the lock itself is reliable.
fn holder_in(file: &File) -> String {
    let mut text = String::new();
    let read = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
    let is_text = read.is_ok() && !text.is_empty() && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if is_text { text } else { "another process".into() }
}

#[allow(clippy::disallowed_methods, reason = "people read the time, nothing else does")]
fn this_process() -> String {
    let system = rustix::system::uname();
    let now = DateTime::<Utc>::from(SystemTime::now()).format("%F %T UTC");
    format!("process {} on host {} since {now}", std::process::id(), system.nodename().to_string_lossy())
}

/// A held lock, which is released when this is dropped.
struct FileLock {
    file: File,
    creator: Creator,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent, which may still rely on it.
        if self.creator.is_this_process() {
            // Closing the file does not release the lock if a child that was forked in the meantime has the file open
            // too.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_or_pipe_is_not_locked() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, pipe) = (folder.path().join("file"), folder.path().join("link"), folder.path().join("pipe"));
        std::fs::write(&file, "dear").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(lock(&link).is_err() && lock(&pipe).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), b"dear");
    }

    #[test]
    fn lock_files_without_valid_text_name_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let Ok(Lock::Ours(_held)) = lock(&path) else { panic!("it is free") };
        for text in [&b""[..], b"\x1b[2J", b"a\nb", &[0xff; 4]] {
            std::fs::write(&path, text).unwrap();
            let Ok(Lock::Others(holder)) = lock(&path) else { panic!("it is taken") };
            assert_eq!(holder, "another process");
        }
    }

    #[test]
    fn a_forked_child_leaves_the_lock_to_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let (file, _) = open(&path).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let inherited = file.try_clone().unwrap();
        drop(FileLock { file: inherited, creator: Creator::another_process() });
        assert!(matches!(lock(&path), Ok(Lock::Others(_))));
        drop(FileLock { file, creator: Creator::this_process() });
        assert!(matches!(lock(&path), Ok(Lock::Ours(_))));
    }
}
