//! Output of results: to a file that appears completely or not at all, or to standard output.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use adjoin_device::{Device, FileKind, Location, WriteFile};

use crate::base::context::Context;
use crate::base::error::{Error, Result, device_failure};
use crate::base::locks::OwnFolder;
use crate::base::message::{Argument, message};
use crate::base::report::Progress;

/// Destination of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file with this name, which is replaced only with `force`.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether an existing file may be replaced.
        force: bool,
    },
    /// Standard output.
    Standard {
        /// Whether the run continues if its reader leaves, as with `| head`, because it has other outputs too.
        outlives_reader: bool,
    },
}

impl Target {
    /// Returns the path, if it is a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Standard { .. } => None,
        }
    }
}

/// A file in a folder of its own until it is complete; removed if it never is.
pub(crate) struct Draft {
    device: Arc<dyn Device>,
    folder: OwnFolder,
    path: PathBuf,
    force: bool,
}

impl Draft {
    /// Starts a file; its bytes are written to the returned writer.
    pub(crate) fn create(context: &Context, path: &Path, force: bool) -> Result<(Self, OutputWriter)> {
        // Refused now if possible; publishing checks again.
        Target::check_free(&*context.device, path, force)?;
        if path.file_name().is_none() {
            let at = path.display();
            return Err(Error::option(format!("{at} is not a file name; name a file for the result")));
        }
        // In the same folder as the result, so that the rename does not cross file systems.
        let folder = OwnFolder::create(&context.device, Target::parent_of(path), "result")?;
        let draft = Self { device: context.device.clone(), folder, path: path.to_owned(), force };
        let file = context.device.create(&draft.partial())?;
        Ok((draft, OutputWriter::new(Sink::File(file))))
    }

    fn partial(&self) -> PathBuf {
        self.folder.path().join("result")
    }

    /// Gives the file its name, unless the name was taken in the meantime.
    pub(crate) fn publish(self) -> Result<()> {
        Target::check_free(&*self.device, &self.path, self.force)?;
        self.device.rename(&self.partial(), &self.path)?;
        let Self { device, folder, path, .. } = self;
        // Removed before the sync, so that the sync makes the removal durable too.
        drop(folder);
        Ok(device.sync_folder(Target::parent_of(&path))?)
    }
}

impl Target {
    /// Writes a file that appears completely or not at all.
    ///
    /// # Errors
    /// As [`Self::check_free`], or if a file cannot be written.
    pub fn write_file(
        context: &Context,
        path: &Path,
        force: bool,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        LaterFile::begin(context, path, force)?.finish(write)
    }
}

/// A file that is written at the end of a run. It is created before the run, so that an unwritable location is reported
/// before any work.
pub struct LaterFile {
    draft: Draft,
    output: OutputWriter,
}

impl LaterFile {
    /// Creates the file.
    ///
    /// # Errors
    /// As [`Target::check_free`], or if a file cannot be written.
    pub fn begin(context: &Context, path: &Path, force: bool) -> Result<Self> {
        let (draft, output) = Draft::create(context, path, force)?;
        Ok(Self { draft, output })
    }

    /// Writes the file, and makes it appear.
    ///
    /// # Errors
    /// If the name was taken in the meantime, or a file cannot be written.
    pub fn finish(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let Self { draft, mut output } = self;
        let failed = |error: io::Error| {
            let other = || Error::device(format!("cannot write {}: {error}", draft.path.display()));
            device_failure(&error).unwrap_or_else(other)
        };
        write(&mut output).map_err(failed)?;
        output.sync()?;
        draft.publish()
    }
}

impl Target {
    /// Refuses a name that is taken, or a missing folder.
    ///
    /// # Errors
    /// If something exists at `path` and `force` is false, it is a folder, its parent is missing, or the device does not
    /// permit the check.
    pub fn check_free(device: &dyn Device, path: &Path, force: bool) -> Result<()> {
        if let Location::Remote(name) = Location::of(path) {
            let url = name.public_url();
            return Err(Error::option(format!("{url}: object stores are only read; write to a folder, and copy it")));
        }
        let at = path.display();
        match device.kind(path)? {
            Some(FileKind::Folder) => Err(Error::input(format!("{at} is a folder; name a file for the result"))),
            Some(_) if !force => {
                Err(Error::input(message![format!("{at} exists already; give "), Argument::Force, " to replace it"]))
            }
            _ => check_parent(device, path),
        }
    }

    /// Returns the folder that contains `path`.
    pub fn parent_of(path: &Path) -> &Path {
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

/// Refuses a path in a missing folder.
pub(crate) fn check_parent(device: &dyn Device, path: &Path) -> Result<()> {
    let at = Target::parent_of(path).display();
    match device.kind(Target::parent_of(path))? {
        Some(FileKind::Folder) => Ok(()),
        Some(_) => Err(Error::input(format!(
            "{at} is not a folder, so it cannot hold {}; choose another place",
            path.display()
        ))),
        None => {
            Err(Error::input(format!("{at} is missing, so it cannot hold {}; make that folder first", path.display())))
        }
    }
}

enum Sink {
    File(Box<dyn WriteFile>),
    Standard {
        out: io::Stdout,
        /// Notified if the reader leaves and the run continues without it.
        goes_on: Option<Arc<dyn Progress>>,
    },
    /// Standard output after its reader left, in a run that continues.
    Nobody,
}

/// Counts and forwards bytes.
pub(crate) struct OutputWriter {
    sink: Sink,
    written: Arc<AtomicU64>,
    reader_gone: Arc<AtomicBool>,
}

impl OutputWriter {
    fn new(sink: Sink) -> Self {
        Self { sink, written: Arc::default(), reader_gone: Arc::default() }
    }

    /// Creates a writer to a file in progress.
    pub(crate) fn file(file: Box<dyn WriteFile>) -> Self {
        Self::new(Sink::File(file))
    }

    /// Creates a writer to standard output; `outlives_reader` as in [`Target::Standard`].
    pub(crate) fn standard(context: &Context, outlives_reader: bool) -> Self {
        let goes_on = outlives_reader.then(|| context.progress.clone());
        Self::new(Sink::Standard { out: io::stdout(), goes_on })
    }

    /// Returns the counter of bytes written, which stays readable while the writer is in use.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        self.written.clone()
    }

    /// Returns the flag that is set once the reader has left, which stays readable while the writer is in use.
    pub(crate) fn reader_gone(&self) -> Arc<AtomicBool> {
        self.reader_gone.clone()
    }

    /// Makes written bytes durable.
    pub(crate) fn sync(mut self) -> Result<()> {
        let done = match &mut self.sink {
            Sink::File(file) => return Ok(file.sync()?),
            Sink::Standard { out, .. } => out.flush(),
            Sink::Nobody => Ok(()),
        };
        self.unless_reader_left(done).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => Error::reader_gone(),
            _ => Error::device(format!("cannot write standard output: {error}")),
        })
    }

    /// Discards further output after the reader left, if the run continues.
    fn unless_reader_left(&mut self, done: io::Result<()>) -> io::Result<()> {
        if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return done;
        }
        if let Sink::Standard { goes_on: Some(progress), .. } = &self.sink {
            progress.note("standard output was closed; what else was asked for is still written");
            self.sink = Sink::Nobody;
            return Ok(());
        }
        // Callers see only a failed write; with the flag, they end quietly.
        self.reader_gone.store(true, Ordering::Relaxed);
        done
    }
}

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let done = match &mut self.sink {
            Sink::File(file) => file.append(bytes).map_err(io::Error::other),
            Sink::Standard { out, .. } => out.write_all(bytes),
            Sink::Nobody => return Ok(bytes.len()),
        };
        self.unless_reader_left(done)?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
