//! How files bypass the page cache: the one part of reading and writing files that differs between systems.
//!
//! Linux has a flag of the open file, `O_DIRECT`. macOS has `F_NOCACHE`, which is advice: unaligned reads and writes
//! then go through the page cache and do not fail.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file for reads that bypass the page cache.
///
/// # Errors
/// With [`io::ErrorKind::InvalidInput`] if the file system refuses direct reads, and as opening a file does.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn open_bypassing(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let direct_flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(direct_flag).open(path)
}

/// Opens a file for reads that bypass the page cache.
///
/// # Errors
/// As opening a file does.
#[cfg(target_vendor = "apple")]
pub(crate) fn open_bypassing(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).open(path)?;
    rustix::fs::fcntl_nocache(&file, true)?;
    Ok(file)
}

/// Makes later reads and writes of an open file bypass the page cache, or go through it.
///
/// # Errors
/// If the file system refuses it.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn bypass(file: &File, on: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })?)
}

/// Makes later reads and writes of an open file bypass the page cache, or go through it.
///
/// # Errors
/// If the system refuses it.
#[cfg(target_vendor = "apple")]
pub(crate) fn bypass(file: &File, on: bool) -> io::Result<()> {
    Ok(rustix::fs::fcntl_nocache(file, on)?)
}
