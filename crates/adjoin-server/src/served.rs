//! The open store, index or collection that a server searches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Collection, Context, Error, Folder, HitSink, Merger, QueryTarget, Result, SearchEffort, SearchOptions,
    SearchQueries, SearchStatistics, Store, VectorSource,
};

use crate::request::SEED;

/// An open folder, with automatic merges if it is a collection.
pub(crate) struct Served {
    folder: Folder,
    merger: Option<Merger>,
}

impl Served {
    /// Opens the store, index or collection in a folder. A collection is opened for writing.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the budget is too small for it.
    pub(crate) fn open(context: &Context, path: &Path) -> Result<Self> {
        let folder = Folder::open_to_write(context, path)?;
        let merger = match &folder {
            Folder::Collection(collection) => Some(Merger::start(collection, None)?),
            Folder::Store(_) | Folder::Index(_) => None,
        };
        Ok(Self { folder, merger })
    }

    /// Returns the open folder.
    pub(crate) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Returns the reason why writes are no longer possible, or `None` if they are possible.
    pub(crate) fn failure(&self) -> Option<String> {
        match &self.folder {
            Folder::Collection(collection) => collection.failure(),
            Folder::Store(_) | Folder::Index(_) => None,
        }
    }

    /// Returns the collection.
    ///
    /// # Errors
    /// If a store or an index is served.
    pub(crate) fn collection(&self) -> Result<&Arc<Collection>> {
        match &self.folder {
            Folder::Collection(collection) => Ok(collection),
            Folder::Store(_) | Folder::Index(_) => {
                let kind = self.folder.facts().kind;
                Err(Error::option(format!("the served {kind} accepts no writes; serve a collection to write")))
            }
        }
    }

    /// Checks that the folder supports the effort and the filter, and that it has the requested columns. May read the
    /// file of the columns.
    ///
    /// # Errors
    /// If one of these is not supported, or a column is missing.
    pub(crate) fn check(&self, search: &SearchOptions) -> Result<()> {
        if let (Folder::Store(store), Some(_)) = (&self.folder, &search.filter) {
            store.check_filtered()?;
        }
        search.effort.check_for(self.folder.kind())?;
        self.folder.columns_schema(&search.columns).map(drop)
    }

    /// Returns whether the effort of a search is calibrated already, or can be calibrated in a moment.
    pub(crate) fn is_calibrated(&self, search: &SearchOptions) -> bool {
        let QueryTarget::Nearest(k) = search.target else { return false };
        let known = |is_calibrated: &dyn Fn(f64) -> bool| match search.effort {
            SearchEffort::Recall(recall) => is_calibrated(recall),
            _ => true,
        };
        match &self.folder {
            Folder::Store(_) => matches!(search.effort, SearchEffort::Probes(_)) || k <= Store::CALIBRATED_K_MAX,
            Folder::Index(index) => known(&|recall| index.is_calibrated(k, recall, SEED)),
            Folder::Collection(collection) => known(&|recall| collection.is_calibrated(k, recall, SEED)),
        }
    }

    /// Returns whether this is a store with columns, so that searches can have filters.
    ///
    /// # Errors
    /// If its columns cannot be read.
    pub(crate) fn is_filtered(&self) -> Result<bool> {
        Ok(matches!(self.folder, Folder::Store(_)) && !self.folder.attributes()?.is_empty())
    }

    /// Searches for the target of each query.
    ///
    /// # Errors
    /// As the search of the store, index or collection.
    pub(crate) fn search(
        &self,
        context: &Context,
        queries: &dyn VectorSource,
        search: &SearchOptions,
        sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        self.folder.search(context, SearchQueries::new(queries), search, sink)
    }

    /// Closes the folder. All writes to a collection are then durable.
    ///
    /// # Errors
    /// If the log of the collection cannot be written.
    pub(crate) fn close(self) -> Result<()> {
        // The merger is dropped first, because it holds a reference to the collection.
        drop(self.merger);
        let Folder::Collection(collection) = self.folder else { return Ok(()) };
        Arc::into_inner(collection).map_or(Ok(()), Collection::close)
    }
}

/// Identity of the published generation of a folder. It differs for every generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generation(Option<(u64, i64, i64)>);

impl Generation {
    /// Reads the current generation of `folder`.
    pub(crate) fn of(folder: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let manifest: PathBuf = folder.join(Folder::MANIFEST_FILE);
        let facts = manifest.metadata().ok();
        // A manifest is published by a rename, so a new manifest has a new inode.
        Self(facts.map(|facts| (facts.ino(), facts.mtime(), facts.mtime_nsec())))
    }
}
