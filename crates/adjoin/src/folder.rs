//! Opens and searches a store, an index or a collection through one type.

use std::path::Path;

use crate::buckets;
pub use crate::buckets::SearchQueries;
use crate::collection::{Collection, CollectionWork, collection_context};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::index::{self, Index};
use crate::query::SearchOptions;
use crate::report::SearchStatistics;
use crate::sink::{HitSchema, HitSink};
use crate::store::{Kind, Store, kind_of};

/// An open folder. A collection is open for reading only.
pub enum Folder {
    /// Vectors in buckets.
    Store(Box<Store>),
    /// Vectors in a graph.
    Index(Box<Index>),
    /// Vectors that may be inserted and deleted.
    Collection(Box<Collection>),
}

/// Returns the kind of the folder at a path.
fn kind(context: &Context, path: &Path) -> Result<Kind> {
    let missing = || {
        let at = path.display();
        Error::input(format!(
            "{at} is not a store, an index or a collection; build one first, a store with: adjoin build"
        ))
    };
    kind_of(context, path)?.ok_or_else(missing)
}

impl Folder {
    /// Opens a folder.
    ///
    /// # Errors
    /// If there is no store, index or collection, it is damaged, or the budget is too small.
    pub fn open(context: &Context, path: &Path) -> Result<Self> {
        Ok(match kind(context, path)? {
            Kind::Store => Self::Store(Box::new(Store::open(context, path)?)),
            Kind::Index => Self::Index(Box::new(Index::open(context, path)?)),
            Kind::Collection => Self::Collection(Box::new(Collection::open_read_only(context, path)?)),
        })
    }

    /// Returns a context for opening and searching a folder: at whichever step a smaller budget fails, the error names one
    /// that suffices for all. `sink_bytes` is what the sink of the hits holds.
    ///
    /// # Errors
    /// If there is no store, index or collection, or its manifest is damaged.
    pub fn search_context(
        context: &Context,
        path: &Path,
        queries: SearchQueries<'_>,
        options: &SearchOptions,
        sink_bytes: &dyn Fn(HitSchema) -> u64,
    ) -> Result<Context> {
        match kind(context, path)? {
            Kind::Store => Ok(context.clone()),
            Kind::Index => {
                let sources = queries.into_sources(Kind::Index)?;
                let facts = Index::manifest(context, path)?;
                let sink_bytes = sink_bytes(index::hit_schema(&facts, sources.queries));
                let bytes = index::search_bytes(context, &facts, sources, options, sink_bytes);
                Ok(context.naming_at_least(Index::memory_bytes(&facts).saturating_add(bytes)))
            }
            Kind::Collection => {
                let sources = queries.into_sources(Kind::Collection)?;
                let bytes = Collection::search_bytes(context, path, sources, options, sink_bytes)?;
                Ok(collection_context(context, path, CollectionWork::Read(bytes)))
            }
        }
    }

    /// Returns the kind of the folder.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Store(_) => Kind::Store,
            Self::Index(_) => Kind::Index,
            Self::Collection(_) => Kind::Collection,
        }
    }

    /// Returns the schema of the hits.
    ///
    /// # Errors
    /// If the queries are rows of the folder and the folder is not a store.
    pub fn hit_schema(&self, queries: SearchQueries<'_>) -> Result<HitSchema> {
        Ok(match self {
            Self::Store(store) => buckets::hit_schema(store, queries.queries),
            Self::Index(index) => index::hit_schema(index.facts(), queries.into_sources(Kind::Index)?.queries),
            Self::Collection(collection) => collection.hit_schema(queries.into_sources(Kind::Collection)?.queries),
        })
    }

    /// Finds the hits of each query and passes them to `sink`, in the order of the queries.
    ///
    /// # Errors
    /// If an option is out of range or does not apply to this kind of folder, if the element type or dimension of the
    /// queries does not match the folder, if the budget is too small, if a file cannot be read, or if the sink fails.
    pub fn search(
        &self,
        context: &Context,
        queries: SearchQueries<'_>,
        options: &SearchOptions,
        sink: Box<dyn HitSink + '_>,
    ) -> Result<SearchStatistics> {
        match self {
            Self::Store(store) => buckets::search(context, store, queries, options, sink),
            Self::Index(index) => index::search(context, index, queries.into_sources(Kind::Index)?, options, sink),
            Self::Collection(collection) => {
                collection.search(context, queries.into_sources(Kind::Collection)?, options, sink)
            }
        }
    }
}
