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

use crate::request::SearchQuestion;

/// Seed of what searches draw.
pub(crate) const SEED: u64 = 1;

/// What is open.
pub(crate) enum Served {
    Store(Arc<Store>),
    Index(Box<Index>),
    Live { collection: Arc<Collection>, _merger: Merger },
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
    /// Opens what is in a folder.
    ///
    /// # Errors
    /// Where there is nothing that can be served, it is damaged, or the budget does not hold it.
    pub(crate) fn open(context: &Context, folder: &Path) -> Result<Self> {
        Ok(match kind_of(context, folder)? {
            Some(Kind::Store) => Self::Store(Arc::new(Store::open(context, folder)?)),
            Some(Kind::Index) => Self::Index(Box::new(Index::open(context, folder)?)),
            Some(Kind::Live) => {
                let collection = Arc::new(Collection::open(context, folder)?);
                let _merger = Merger::start(&collection, MergerOptions::of(context))?;
                Self::Live { collection, _merger }
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
            Self::Live { collection, .. } => {
                let (manifest, facts) = (collection.manifest(), collection.facts());
                Facts {
                    kind: "live",
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
            Self::Live { collection, .. } => {
                let attributes = collection.manifest().attributes;
                Ok(attributes.into_iter().map(|attribute| (attribute.name, attribute.kind.to_string())).collect())
            }
        }
    }

    /// Why it cannot be written to any more, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Live { collection, .. } => collection.failure(),
            Self::Store(_) | Self::Index(_) => None,
        }
    }

    /// The collection, where it is one.
    ///
    /// # Errors
    /// Where it is not.
    pub(crate) fn collection(&self) -> Result<&Arc<Collection>> {
        match self {
            Self::Live { collection, .. } => Ok(collection),
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
    pub(crate) fn check(&self, sought: &SearchQuestion) -> Result<()> {
        match self {
            Self::Store(store) => {
                sought.condition.as_ref().map_or(Ok(()), |_| store.check_filtered())?;
                effort(sought).map(drop)
            }
            _ => walk(sought).map(drop),
        }
    }

    /// Whether a search for what is asked knows how far it must look, or learns that in a moment.
    pub(crate) fn is_calibrated(&self, sought: &SearchQuestion) -> bool {
        let QueryTarget::Nearest(k) = sought.wanted else { return false };
        let known = |is_calibrated: &dyn Fn(f64) -> bool| match walk(sought) {
            Ok(SearchEffort::Recall(recall)) => is_calibrated(recall),
            _ => true,
        };
        match self {
            Self::Store(_) => sought.nprobe.is_some() || k <= search::CALIBRATED_K_MAX,
            Self::Index(index) => known(&|recall| index.is_calibrated(k, recall, SEED)),
            Self::Live { collection, .. } => known(&|recall| collection.is_calibrated(k, recall, SEED)),
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
            Self::Live { collection, .. } => collection.get(names),
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
        sought: &SearchQuestion,
        sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        let condition = sought.condition.clone();
        if let Self::Store(store) = self {
            let options = SearchOptions { wanted: sought.wanted, effort: effort(sought)?, condition, seed: SEED };
            return search::search(context, store, (QuerySet::Source(queries), QuerySet::Rows), &options, sink);
        }
        let options = SearchOptions::new(sought.wanted, walk(sought)?, SEED);
        let options = SearchOptions { filter: condition, ..options };
        match self {
            Self::Index(index) => index::search(context, index, (queries, None), &options, sink),
            Self::Live { collection, .. } => collection.search(context, (queries, None), &options, sink),
            Self::Store(_) => unreachable!("was searched above"),
        }
    }
}

/// How far a search of a store looks.
pub(crate) fn effort(sought: &SearchQuestion) -> Result<SearchEffort> {
    if sought.list.is_some() {
        return Err(Error::option("list is for graph indexes; of a store give nprobe or recall"));
    }
    SearchEffort::of(sought.recall, sought.exact, sought.nprobe)
}

/// How far walks of an index go.
fn walk(sought: &SearchQuestion) -> Result<SearchEffort> {
    if sought.nprobe.is_some() {
        return Err(Error::option("nprobe is for stores; for a graph index give list, recall or exact"));
    }
    SearchEffort::of(sought.recall, sought.exact, sought.list)
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
