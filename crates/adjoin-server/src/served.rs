//! The open store, index or collection that a server searches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::buckets::{self, QuerySet, SearchQueries};
use adjoin::collection::{Collection, Merger, MergerOptions};
use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::index::{self, Index};
use adjoin::load;
use adjoin::options::{Metric, VectorType};
use adjoin::query::{QuerySources, QueryTarget, SearchEffort, SearchOptions};
use adjoin::report::SearchStatistics;
use adjoin::sink::HitSink;
use adjoin::source::{IdKind, Ids, VectorSource};
use adjoin::store::{Kind, Store, kind_of};
use serde::Serialize;

use crate::request::SEED;

/// An open store, index or collection.
pub(crate) enum Served {
    Store(Arc<Store>),
    Index(Box<Index>),
    Collection { collection: Arc<Collection>, _merger: Merger },
}

/// Metadata returned by `/v1/info`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Facts {
    pub(crate) kind: &'static str,
    pub(crate) rows: u64,
    #[serde(flatten)]
    pub(crate) vectors: VectorType,
    pub(crate) metric: Metric,
    pub(crate) ids: IdKind,
    /// Number of buckets of a store.
    pub(crate) buckets: Option<u32>,
    /// Sequence number of the last write to a collection.
    pub(crate) sequence: Option<u64>,
}

impl Served {
    fn kind(&self) -> Kind {
        match self {
            Self::Store(_) => Kind::Store,
            Self::Index(_) => Kind::Index,
            Self::Collection { .. } => Kind::Collection,
        }
    }

    /// Opens the store, index or collection in `folder`.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the budget does not hold it.
    pub(crate) fn open(context: &Context, folder: &Path) -> Result<Self> {
        Ok(match kind_of(context, folder)? {
            Some(Kind::Store) => Self::Store(Arc::new(Store::open(context, folder)?)),
            Some(Kind::Index) => Self::Index(Box::new(Index::open(context, folder)?)),
            Some(Kind::Collection) => {
                let collection = Arc::new(Collection::open(context, folder)?);
                let _merger = Merger::start(&collection, MergerOptions::of(context))?;
                Self::Collection { collection, _merger }
            }
            None => {
                let at = folder.display();
                return Err(Error::input(format!(
                    "{at} is not a store, an index or a collection; make a store with: adjoin build"
                )));
            }
        })
    }

    /// Returns the current metadata.
    pub(crate) fn facts(&self) -> Facts {
        match self {
            Self::Store(store) => {
                let manifest = store.manifest();
                Facts {
                    kind: "store",
                    rows: manifest.rows,
                    vectors: manifest.vectors,
                    metric: manifest.metric,
                    ids: manifest.ids,
                    buckets: Some(manifest.buckets),
                    sequence: None,
                }
            }
            Self::Index(index) => {
                let facts = index.facts();
                Facts {
                    kind: "index",
                    rows: facts.rows,
                    vectors: facts.vectors,
                    metric: facts.metric,
                    ids: facts.ids,
                    buckets: None,
                    sequence: None,
                }
            }
            Self::Collection { collection, .. } => {
                let (manifest, facts) = (collection.manifest(), collection.facts());
                Facts {
                    kind: "collection",
                    rows: facts.rows,
                    vectors: manifest.vectors,
                    metric: manifest.metric,
                    ids: manifest.ids,
                    buckets: None,
                    sequence: Some(facts.sequence),
                }
            }
        }
    }

    /// Returns the names and types of the columns that filters may use.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn attributes(&self) -> Result<Vec<(String, String)>> {
        match self {
            Self::Store(store) => store.attributes(),
            Self::Index(index) => index.attributes(),
            Self::Collection { collection, .. } => {
                let attributes = collection.manifest().attributes;
                Ok(attributes.into_iter().map(|attribute| (attribute.name, attribute.kind.to_string())).collect())
            }
        }
    }

    /// Returns why writes are no longer possible, if they are not.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Collection { collection, .. } => collection.failure(),
            Self::Store(_) | Self::Index(_) => None,
        }
    }

    /// Returns the collection.
    ///
    /// # Errors
    /// If a store or an index is served.
    pub(crate) fn collection(&self) -> Result<&Arc<Collection>> {
        match self {
            Self::Collection { collection, .. } => Ok(collection),
            Self::Store(_) | Self::Index(_) => {
                let kind = self.facts().kind;
                Err(Error::option(format!("the {kind} that is served does not change; serve a collection to write")))
            }
        }
    }

    /// Checks that the effort and the filter are supported here.
    ///
    /// # Errors
    /// Where it has none.
    pub(crate) fn check(&self, search: &SearchOptions) -> Result<()> {
        if let (Self::Store(store), Some(_)) = (self, &search.filter) {
            store.check_filtered()?;
        }
        search.effort.check_for(self.kind())
    }

    /// Returns whether the effort of a search is calibrated already, or can be calibrated in a moment.
    pub(crate) fn is_calibrated(&self, search: &SearchOptions) -> bool {
        let QueryTarget::Nearest(k) = search.target else { return false };
        let known = |is_calibrated: &dyn Fn(f64) -> bool| match search.effort {
            SearchEffort::Recall(recall) => is_calibrated(recall),
            _ => true,
        };
        match self {
            Self::Store(_) => matches!(search.effort, SearchEffort::Probes(_)) || k <= buckets::CALIBRATED_K_MAX,
            Self::Index(index) => known(&|recall| index.is_calibrated(k, recall, SEED)),
            Self::Collection { collection, .. } => known(&|recall| collection.is_calibrated(k, recall, SEED)),
        }
    }

    /// Returns the stored vectors of rows by id; `None` for an id that no row has.
    ///
    /// # Errors
    /// If the ids are not of the kind of the rows' ids, or reading fails.
    pub(crate) fn vectors_named(&self, context: &Context, names: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
        match self {
            Self::Store(store) => load::vectors_named(context, store, names),
            Self::Index(index) => index.vectors_named(context, names),
            Self::Collection { collection, .. } => collection.get(names),
        }
    }

    /// Returns whether this is a store with columns, so that searches can have filters.
    ///
    /// # Errors
    /// If its columns cannot be read.
    pub(crate) fn is_filtered(&self) -> Result<bool> {
        Ok(matches!(self, Self::Store(_)) && !self.attributes()?.is_empty())
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
        match self {
            Self::Store(store) => {
                buckets::search(context, store, SearchQueries::new(QuerySet::Source(queries)), search, sink)
            }
            Self::Index(index) => index::search(context, index, QuerySources::new(queries), search, sink),
            Self::Collection { collection, .. } => collection.search(context, QuerySources::new(queries), search, sink),
        }
    }
}

/// Identifies the published generation of a folder: changes with every generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generation(Option<(u64, i64, i64)>);

impl Generation {
    /// Reads the current generation of `folder`.
    pub(crate) fn of(folder: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let manifest: PathBuf = folder.join(adjoin::store::format::MANIFEST_FILE);
        let facts = manifest.metadata().ok();
        // A manifest is published by a rename, so that a new one has its own inode.
        Self(facts.map(|facts| (facts.ino(), facts.mtime(), facts.mtime_nsec())))
    }
}
