//! Bypassing the page cache. This is the only part of reading and writing files that differs between systems.
//!
//! Linux has a flag of the open file, `O_DIRECT`. macOS has `F_NOCACHE`, which is only advice: unaligned reads and
//! writes do not fail but go through the page cache.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file for reads that bypass the page cache.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] if the file system refuses direct reads; otherwise as for [`File::open`].
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn open_bypassing(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    let direct_flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(direct_flag).open(path)
}

/// Opens a file for reads that bypass the page cache.
///
/// # Errors
/// As for [`File::open`], or if the system refuses the advice.
#[cfg(target_vendor = "apple")]
pub(crate) fn open_bypassing(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).open(path)?;
    rustix::fs::fcntl_nocache(&file, true)?;
    Ok(file)
}

/// Sets whether later reads and writes of an open file bypass the page cache.
///
/// # Errors
/// If the file system refuses it.
#[cfg(not(target_vendor = "apple"))]
pub(crate) fn bypass(file: &File, on: bool) -> io::Result<()> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    let flags = fcntl_getfl(file)?;
    Ok(fcntl_setfl(file, if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })?)
}

/// Sets whether later reads and writes of an open file bypass the page cache.
///
/// # Errors
/// If the system refuses it.
#[cfg(target_vendor = "apple")]
pub(crate) fn bypass(file: &File, on: bool) -> io::Result<()> {
    Ok(rustix::fs::fcntl_nocache(file, on)?)
}
