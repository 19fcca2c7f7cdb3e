//! Writes results to standard output, or to a file that appears completely or not at all.

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
    /// A file with this path.
    File {
        /// Path of the file.
        path: PathBuf,
        /// Whether an existing file may be replaced.
        force: bool,
    },
    /// Standard output.
    Standard {
        /// Whether the run continues after the reader of the output has left, as in `| head`. It does if there are
        /// other outputs.
        outlives_reader: bool,
    },
}

impl Target {
    /// Returns the path if the target is a file.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Standard { .. } => None,
        }
    }
}

/// A file in a private folder until it is published. Dropping the draft removes the file.
pub(crate) struct Draft {
    device: Arc<dyn Device>,
    folder: OwnFolder,
    path: PathBuf,
    force: bool,
}

impl Draft {
    /// Creates a draft of the file `path`. Returns it with a writer for the contents of the file.
    pub(crate) fn create(context: &Context, path: &Path, force: bool) -> Result<(Self, OutputWriter)> {
        // If the name is taken, this fails early. Publishing checks again.
        Target::check_free(&*context.device, path, force)?;
        if path.file_name().is_none() {
            let at = path.display();
            return Err(Error::option(format!("{at} is not a file name; name a file for the result")));
        }
        // The private folder is next to the result, so that the rename does not cross file systems.
        let folder = OwnFolder::create(&context.device, Target::parent_of(path), "result")?;
        let draft = Self { device: context.device.clone(), folder, path: path.to_owned(), force };
        let file = context.device.create(&draft.partial())?;
        Ok((draft, OutputWriter::new(Sink::File(file))))
    }

    fn partial(&self) -> PathBuf {
        self.folder.path().join("result")
    }

    /// Publishes the file under its name. Fails if the name was taken in the meantime and must not be replaced.
    pub(crate) fn publish(self) -> Result<()> {
        Target::check_free(&*self.device, &self.path, self.force)?;
        self.device.rename(&self.partial(), &self.path)?;
        let Self { device, folder, path, .. } = self;
        // The folder is removed before the sync, so that its removal becomes durable, too.
        drop(folder);
        Ok(device.sync_folder(Target::parent_of(&path))?)
    }
}

impl Target {
    /// Writes a file that appears completely or not at all.
    ///
    /// # Errors
    /// Fails as [`Self::check_free`] does, or if a file cannot be written.
    pub fn write_file(
        context: &Context,
        path: &Path,
        force: bool,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        LaterFile::begin(context, path, force)?.finish(write)
    }
}

/// A file that is written at the end of a run. It is created before the run, so that a location that cannot be written
/// is reported before any work is done.
pub struct LaterFile {
    draft: Draft,
    output: OutputWriter,
}

impl LaterFile {
    /// Creates the file as a draft.
    ///
    /// # Errors
    /// Fails as [`Target::check_free`] does, or if a file cannot be written.
    pub fn begin(context: &Context, path: &Path, force: bool) -> Result<Self> {
        let (draft, output) = Draft::create(context, path, force)?;
        Ok(Self { draft, output })
    }

    /// Writes the contents of the file and publishes it.
    ///
    /// # Errors
    /// Fails if the name was taken in the meantime, or if a file cannot be written.
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
    /// Checks that a file can be created at `path`.
    ///
    /// # Errors
    /// Fails if a file exists at `path` and `force` is false, if a folder exists at `path`, if its parent folder is
    /// missing, if the path is remote, or if the device denies access.
    pub fn check_free(device: &dyn Device, path: &Path, force: bool) -> Result<()> {
        if let Location::Remote(name) = Location::of(path) {
            let url = name.public_url();
            return Err(Error::option(format!(
                "{url}: results cannot be written to object stores here; write to a \
                                              folder, and copy it"
            )));
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

/// Fails if the folder that contains `path` is missing.
pub(crate) fn check_parent(device: &dyn Device, path: &Path) -> Result<()> {
    let at = Target::parent_of(path).display();
    match device.kind(Target::parent_of(path))? {
        Some(FileKind::Folder) => Ok(()),
        Some(_) => Err(Error::input(format!(
            "{at} is not a folder, so it cannot hold {}; choose another place",
            path.display()
        ))),
        None => Err(Error::input(format!(
            "{at} does not exist, so it cannot hold {}; create that folder first",
            path.display()
        ))),
    }
}

enum Sink {
    File(Box<dyn WriteFile>),
    Standard {
        out: io::Stdout,
        /// Receives a note if the reader leaves and the run continues. `None` if the run ends instead.
        goes_on: Option<Arc<dyn Progress>>,
    },
    /// Replaces `Standard` after the reader of standard output has left, in a run that continues.
    Nobody,
}

/// Writer that counts the bytes and passes them on.
pub(crate) struct OutputWriter {
    sink: Sink,
    written: Arc<AtomicU64>,
    reader_gone: Arc<AtomicBool>,
}

impl OutputWriter {
    fn new(sink: Sink) -> Self {
        Self { sink, written: Arc::default(), reader_gone: Arc::default() }
    }

    /// Creates a writer for an open file.
    pub(crate) fn file(file: Box<dyn WriteFile>) -> Self {
        Self::new(Sink::File(file))
    }

    /// Creates a writer for standard output. [`Target::Standard`] explains `outlives_reader`.
    pub(crate) fn standard(context: &Context, outlives_reader: bool) -> Self {
        let goes_on = outlives_reader.then(|| context.progress.clone());
        Self::new(Sink::Standard { out: io::stdout(), goes_on })
    }

    /// Returns the counter of written bytes. It can be read while the writer is in use.
    pub(crate) fn written(&self) -> Arc<AtomicU64> {
        self.written.clone()
    }

    /// Returns the flag that is set when the reader leaves and the run ends. It can be read while the writer is in
    /// use.
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

    /// Handles a write that failed because the reader left. If the run continues, discards all further output and
    /// succeeds.
    fn unless_reader_left(&mut self, done: io::Result<()>) -> io::Result<()> {
        if !done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return done;
        }
        if let Sink::Standard { goes_on: Some(progress), .. } = &self.sink {
            progress.note("standard output was closed; the other results are still written");
            self.sink = Sink::Nobody;
            return Ok(());
        }
        // Callers see only a failed write. With this flag, they can end without an error message.
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
