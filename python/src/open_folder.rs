//! Open stores, indexes and collections, without Python.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use adjoin::{
    ClosedFolder, Collection as Live, Context, Error, Folder as Opened, FolderKind, Merger, Result, device::Creator,
    parse_bytes,
};
use pyo3::prelude::*;

use crate::run::Counted;

/// How a folder is opened.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Opening {
    /// The kind that the folder must have: `store`, `index` or `collection`; `None` for any kind.
    kind: Option<String>,
    /// Whether a collection is opened only for searches.
    read_only: bool,
    /// Memory of unmerged rows at which a merge of a collection starts; `None` disables automatic merges.
    merge_at: Option<String>,
}

impl Opening {
    /// Opens a folder, and starts automatic merges of a collection if requested.
    pub(crate) fn open(&self, context: &Context, path: &Path) -> Result<(Opened, Option<Merger>)> {
        let closed = ClosedFolder::read(context, path)?;
        let wanted = self.kind.as_deref().and_then(|name| FolderKind::ALL.into_iter().find(|kind| kind.name() == name));
        wanted.map_or(Ok(()), |wanted| closed.check_kind(wanted))?;
        let folder = if self.read_only { closed.open(context)? } else { Opened::open_to_write(context, path)? };
        let Opened::Collection(live) = &folder else { return Ok((folder, None)) };
        let at_bytes = match self.merge_at.as_deref() {
            _ if self.read_only => return Ok((folder, None)),
            None => return Ok((folder, None)),
            Some("auto") => None,
            Some(size) => Some(parse_bytes(size)?),
        };
        let merger = Merger::start(live, at_bytes)?;
        Ok((folder, Some(merger)))
    }
}

/// An open folder; a collection until it is closed.
pub(crate) struct OpenFolder {
    creator: Creator,
    path: PathBuf,
    kind: FolderKind,
    /// Holds what is open, pages that searches keep, and searches without resources of their own.
    context: Context,
    open: RwLock<Option<Open>>,
}

struct Open {
    folder: Opened,
    /// `None` without automatic merges.
    merger: Option<(Merger, Counted)>,
}

impl Open {
    /// Closes the folder. The caller must drop the returned value on a thread that holds the interpreter's lock.
    fn close(self) -> (Option<Counted>, Result<()>) {
        let Self { folder, merger } = self;
        let counted = merger.map(|(merger, counted)| {
            drop(merger);
            counted
        });
        let Opened::Collection(live) = folder else { return (counted, Ok(())) };
        (counted, Arc::into_inner(live).map_or(Ok(()), Live::close))
    }
}

impl OpenFolder {
    /// Wraps a folder that was opened by this process in `context`, with the automatic merges of a collection.
    pub(crate) fn new(path: PathBuf, context: Context, folder: Opened, merger: Option<(Merger, Counted)>) -> Self {
        let (kind, open) = (folder.kind(), RwLock::new(Some(Open { folder, merger })));
        Self { creator: Creator::this_process(), path, kind, context: context.keeping_caches(), open }
    }

    /// Returns the context in which the folder was opened.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn kind(&self) -> FolderKind {
        self.kind
    }

    /// Calls `work` with the open folder.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&Opened) -> Result<R>) -> Result<R> {
        self.check_creator()?;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let open = open.as_ref().ok_or_else(|| Error::input("the collection was closed; open it again"))?;
        work(&open.folder)
    }

    /// Calls `work` with the open collection.
    pub(crate) fn with_collection<R>(&self, work: impl FnOnce(&Live) -> Result<R>) -> Result<R> {
        self.with(|folder| match folder {
            Opened::Collection(live) => work(live),
            Opened::Store(_) | Opened::Index(_) => {
                Err(Error::input(format!("{} is {}, which accepts no writes", self.path.display(), self.kind)))
            }
        })
    }

    /// Returns an error in a forked child if the folder is a collection. This must be called before a lock is
    /// acquired, since a thread that exists only in the parent may hold the lock.
    pub(crate) fn check_creator(&self) -> Result<()> {
        if self.kind == FolderKind::Collection {
            Context::check_opened_here(self.creator, self.path.display())
        } else {
            Ok(())
        }
    }

    /// Closes the folder, as [`Open::close`] does.
    pub(crate) fn close(&self) -> (Option<Counted>, Result<()>) {
        let open = self.open.write().unwrap_or_else(PoisonError::into_inner).take();
        open.map_or((None, Ok(())), Open::close)
    }
}
