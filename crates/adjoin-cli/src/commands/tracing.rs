use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{Context, Error, OwnFolder, Result, Target, device::Recorder};

/// Trace of all device operations after its creation. The file is removed if the trace is not completed.
pub(super) struct Tracing<'a> {
    path: &'a Path,
    partial: PathBuf,
    /// Holds the file until it is complete.
    folder: OwnFolder,
    recorder: Arc<Recorder>,
}

impl<'a> Tracing<'a> {
    pub(super) fn begin(context: &mut Context, path: &'a Path) -> Result<Self> {
        // The partial trace is next to the result, since a file cannot be renamed to another file system.
        let folder = OwnFolder::create(&context.device, Target::parent_of(path), "trace")?;
        let partial = folder.path().join("trace");
        let recorder = Recorder::create(context.device.clone(), &partial);
        let recorder = Arc::new(recorder.map_err(|error| cannot_write(path, error))?);
        context.device = recorder.clone();
        Ok(Self { path, partial, folder, recorder })
    }

    pub(super) fn finish(self) -> Result<()> {
        let named = self.recorder.finish().and_then(|()| std::fs::rename(&self.partial, self.path));
        // The folder is deleted even after an error, so that no partial trace is left, for example on a full disk.
        drop(self.folder);
        named.map_err(|error| cannot_write(self.path, error))
    }
}

/// Returns the error for a file that cannot be written: a trace or a file of statistics.
pub(super) fn cannot_write(path: &Path, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::device(format!("cannot write {}: {error}", path.display())).caused_by(error)
}
