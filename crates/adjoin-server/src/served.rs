//! What is served: a store, an index or a collection that is open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::buckets::{self, QuerySet};
use adjoin::collection::{Collection, Merger, MergerOptions};
use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::index::{self, Index};
use adjoin::load;
use adjoin::options::{Metric, VectorType};
use adjoin::query::{QueryTarget, SearchEffort, SearchOptions};
use adjoin::report::SearchStatistics;
use adjoin::sink::HitSink;
use adjoin::source::{IdKind, Ids, VectorSource};
use adjoin::store::{Kind, Store, kind_of};
use serde::Serialize;

use crate::request::SEED;

/// What is open.
pub(crate) enum Served {
    Store(Arc<Store>),
    Index(Box<Index>),
    Collection { collection: Arc<Collection>, _merger: Merger },
}

/// What is told of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Facts {
    pub(crate) kind: &'static str,
    pub(crate) rows: u64,
    #[serde(flatten)]
    pub(crate) vectors: VectorType,
    pub(crate) metric: Metric,
    pub(crate) ids: IdKind,
    /// Of a store.
    pub(crate) buckets: Option<u32>,
    /// Of a collection, the number of the last write.
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

    /// Opens what is in a folder.
    ///
    /// # Errors
    /// Where there is nothing that can be served, it is damaged, or the budget does not hold it.
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

    /// What is told of it now.
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

    /// Names and types of the attributes that conditions may ask for.
    ///
    /// # Errors
    /// Where they cannot be read.
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

    /// Why it cannot be written to any more, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Collection { collection, .. } => collection.failure(),
            Self::Store(_) | Self::Index(_) => None,
        }
    }

    /// The collection, where it is one.
    ///
    /// # Errors
    /// Where it is not.
    pub(crate) fn collection(&self) -> Result<&Arc<Collection>> {
        match self {
            Self::Collection { collection, .. } => Ok(collection),
            Self::Store(_) | Self::Index(_) => {
                let kind = self.facts().kind;
                Err(Error::option(format!("the {kind} that is served does not change; serve a collection to write")))
            }
        }
    }

    /// That what is wanted has a meaning here.
    ///
    /// # Errors
    /// Where it has none.
    pub(crate) fn check(&self, search: &SearchOptions) -> Result<()> {
        if let (Self::Store(store), Some(_)) = (self, &search.filter) {
            store.check_filtered()?;
        }
        search.effort.check_for(self.kind())
    }

    /// Whether a search for what is asked knows how far it must look, or learns that in a moment.
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

    /// The vectors of rows by their names, as they are stored; none of a name that no row has.
    ///
    /// # Errors
    /// Where the names are of another kind than those of the rows, or what is served cannot be read.
    pub(crate) fn vectors_named(&self, context: &Context, names: &Ids) -> Result<Vec<Option<Vec<u8>>>> {
        match self {
            Self::Store(store) => load::vectors_named(context, store, names),
            Self::Index(index) => index.vectors_named(context, names),
            Self::Collection { collection, .. } => collection.get(names),
        }
    }

    /// Whether it is a store whose searches can have conditions.
    ///
    /// # Errors
    /// Where its attributes cannot be read.
    pub(crate) fn is_filtered(&self) -> Result<bool> {
        Ok(matches!(self, Self::Store(_)) && !self.attributes()?.is_empty())
    }

    /// Finds what is wanted of each query.
    ///
    /// # Errors
    /// As the search of its kind.
    pub(crate) fn search(
        &self,
        context: &Context,
        queries: &dyn VectorSource,
        search: &SearchOptions,
        sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        match self {
            Self::Store(store) => {
                buckets::search(context, store, (QuerySet::Source(queries), QuerySet::Rows), search, sink)
            }
            Self::Index(index) => index::search(context, index, (queries, None), search, sink),
            Self::Collection { collection, .. } => collection.search(context, (queries, None), search, sink),
        }
    }
}

/// When what is in a folder was published: changes with every generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generation(Option<(u64, i64, i64)>);

impl Generation {
    /// That of a folder now.
    pub(crate) fn of(folder: &Path) -> Self {
        use std::os::unix::fs::MetadataExt;
        let manifest: PathBuf = folder.join(adjoin::store::format::MANIFEST_FILE);
        let facts = manifest.metadata().ok();
        // A manifest appears by a rename: a new one is a file of its own.
        Self(facts.map(|facts| (facts.ino(), facts.mtime(), facts.mtime_nsec())))
    }
}
