//! Opens and searches stores, indexes and collections through one type.

mod copy;
mod get;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{Schema, SchemaRef};
use serde::Serialize;

pub use self::get::OnMissing;
use self::get::fetching_bytes;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::options::{Metric, VectorType};
use crate::base::report::SearchStatistics;
use crate::buckets;
pub(crate) use crate::buckets::SearchQueries;
use crate::collection::{Collection, CollectionFacts, CollectionManifest};
use crate::index::{self, Index, IndexManifest};
use crate::query::SearchOptions;
use crate::sink::{HitSchema, HitSink};
use crate::source::{IdKind, Ids};
use crate::store::format::MANIFEST_FILE;
use crate::store::{FolderKind, Store, StoreManifest, find_manifest};

/// An open folder. Clones share the open folder.
#[derive(Clone)]
pub enum Folder {
    /// Vectors in buckets.
    Store(Arc<Store>),
    /// Vectors in a graph.
    Index(Arc<Index>),
    /// Vectors that may be inserted and deleted.
    Collection(Arc<Collection>),
}

/// A store, an index or a collection whose manifest was read, but which is not open yet.
pub struct ClosedFolder {
    path: PathBuf,
    manifest: FolderManifest,
}

enum FolderManifest {
    Store(Box<StoreManifest>),
    Index(Box<IndexManifest>),
    Collection(Box<CollectionManifest>),
}

/// Properties of an open folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FolderFacts {
    /// `store`, `index` or `collection`.
    pub kind: &'static str,
    /// Number of rows that searches can find.
    pub rows: u64,
    /// Type of the vectors.
    #[serde(flatten)]
    pub vectors: VectorType,
    /// Metric of searches.
    pub metric: Metric,
    /// Kind of the ids.
    pub ids: IdKind,
    /// Number of buckets, if the folder is a store.
    pub buckets: Option<u32>,
    /// Sequence number of the last write, if the folder is a collection.
    pub sequence: Option<u64>,
}

impl ClosedFolder {
    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// If there is no store, index or collection, or if its manifest is damaged or has a newer version.
    pub fn read(context: &Context, path: &Path) -> Result<Self> {
        let (kind, bytes) = find_manifest(context, path)?.ok_or_else(|| {
            let at = path.display();
            let remedy = "build one first with adjoin build, or create a collection";
            Error::input(format!("{at} is not a store, an index or a collection; {remedy}"))
        })?;
        let manifest = match kind {
            FolderKind::Store => FolderManifest::Store(StoreManifest::decode(path, &bytes)?.into()),
            FolderKind::Index => FolderManifest::Index(IndexManifest::decode(path, &bytes)?.into()),
            FolderKind::Collection => FolderManifest::Collection(CollectionManifest::decode(path, &bytes)?.into()),
        };
        Ok(Self { path: path.to_owned(), manifest })
    }

    /// Returns the kind of the folder.
    pub fn kind(&self) -> FolderKind {
        match self.manifest {
            FolderManifest::Store(_) => FolderKind::Store,
            FolderManifest::Index(_) => FolderKind::Index,
            FolderManifest::Collection(_) => FolderKind::Collection,
        }
    }

    /// Opens the folder. A collection is opened for reading only. If another generation was published since the
    /// manifest was read, the new generation may be opened instead.
    ///
    /// # Errors
    /// If the folder is damaged, or if the budget is too small.
    pub fn open(self, context: &Context) -> Result<Folder> {
        let path = &self.path;
        Ok(match self.manifest {
            FolderManifest::Store(manifest) => Folder::Store(Store::open_read(context, path, *manifest)?.into()),
            FolderManifest::Index(manifest) => Folder::Index(Index::open_read(context, path, *manifest)?.into()),
            FolderManifest::Collection(manifest) => {
                Folder::Collection(Collection::open_read(context, path, *manifest)?.into())
            }
        })
    }

    /// Returns the kind of the ids of rows.
    pub fn ids(&self) -> IdKind {
        match &self.manifest {
            FolderManifest::Store(manifest) => manifest.ids,
            FolderManifest::Index(facts) => facts.ids,
            FolderManifest::Collection(manifest) => manifest.ids,
        }
    }

    /// Checks that the folder is of the kind `wanted`.
    ///
    /// # Errors
    /// If the folder is of another kind.
    pub fn check_kind(&self, wanted: FolderKind) -> Result<()> {
        if self.kind() == wanted { Ok(()) } else { Err(self.kind().is_not(wanted, &self.path)) }
    }

    /// Returns a context for opening the folder and fetching rows by id. If the budget is too small for either step,
    /// the error names a budget that suffices for both.
    ///
    /// # Errors
    /// If the manifest of a long-term index is damaged, or if the file of the columns cannot be read.
    pub fn fetching_context(&self, context: &Context, ids: &Ids) -> Result<Context> {
        match &self.manifest {
            FolderManifest::Store(_) => Ok(context.clone()),
            FolderManifest::Index(facts) => {
                let pass = index::fetching_bytes(context, &self.path, facts)?;
                let bytes = pass.and(Index::memory_bytes(facts) + fetching_bytes(ids, facts.vectors));
                Ok(context.naming_at_least(bytes.longest))
            }
            FolderManifest::Collection(manifest) => {
                Collection::fetching_context(context, &self.path, manifest, fetching_bytes(ids, manifest.vectors))
            }
        }
    }

    /// Returns a context for opening and searching the folder. If the budget is too small for either step, the error
    /// names a budget that suffices for both. `sink_bytes` returns the memory that the sink needs for hits of a schema.
    ///
    /// # Errors
    /// If the queries are rows of the folder and the folder is not a store, or if a manifest is damaged.
    pub fn search_context(
        &self,
        context: &Context,
        queries: SearchQueries<'_>,
        options: &SearchOptions,
        sink_bytes: &dyn Fn(HitSchema) -> u64,
    ) -> Result<Context> {
        match &self.manifest {
            FolderManifest::Store(_) => Ok(context.clone()),
            FolderManifest::Index(facts) => {
                let sources = queries.into_sources(FolderKind::Index)?;
                let columns = index::column_needs(context, &self.path, facts, &options.columns)?;
                let schema = index::hit_schema(facts, sources.queries);
                let schema = schema.with_columns(columns.as_ref().map(|columns| columns.schema.clone()));
                let sink_bytes = sink_bytes(schema);
                let bytes = index::search_bytes(context, facts, sources, options, columns, sink_bytes);
                Ok(context.naming_at_least(Index::memory_bytes(facts).saturating_add(bytes)))
            }
            FolderManifest::Collection(manifest) => {
                let queries = queries.into_sources(FolderKind::Collection)?;
                Collection::search_context(context, &self.path, manifest, queries, options, sink_bytes)
            }
        }
    }
}

impl Folder {
    /// Opens a folder. A collection is opened for reading only.
    ///
    /// # Errors
    /// If there is no store, index or collection, if it is damaged, or if the budget is too small.
    pub fn open(context: &Context, path: &Path) -> Result<Self> {
        ClosedFolder::read(context, path)?.open(context)
    }

    /// Opens a folder. A collection is opened for reading and writing.
    ///
    /// # Errors
    /// The errors of [`Self::open`], and if another process writes to the collection.
    pub fn open_to_write(context: &Context, path: &Path) -> Result<Self> {
        let closed = ClosedFolder::read(context, path)?;
        // Only a collection can be opened for writing, since stores and indexes are replaced as a whole.
        match closed.kind() {
            FolderKind::Collection => Ok(Self::Collection(Collection::open(context, path)?.into())),
            FolderKind::Store | FolderKind::Index => closed.open(context),
        }
    }

    /// Returns the kind of the folder.
    pub fn kind(&self) -> FolderKind {
        match self {
            Self::Store(_) => FolderKind::Store,
            Self::Index(_) => FolderKind::Index,
            Self::Collection(_) => FolderKind::Collection,
        }
    }

    /// Returns the current properties of the folder.
    pub fn facts(&self) -> FolderFacts {
        let kind = self.kind().name();
        match self {
            Self::Store(store) => {
                let &StoreManifest { rows, vectors, metric, ids, buckets, .. } = store.manifest();
                FolderFacts { kind, rows, vectors, metric, ids, buckets: Some(buckets), sequence: None }
            }
            Self::Index(index) => {
                let &IndexManifest { rows, vectors, metric, ids, .. } = index.facts();
                FolderFacts { kind, rows, vectors, metric, ids, buckets: None, sequence: None }
            }
            Self::Collection(collection) => {
                let CollectionManifest { vectors, metric, ids, .. } = collection.manifest();
                let CollectionFacts { rows, sequence, .. } = collection.facts();
                let sequence = Some(sequence);
                FolderFacts { kind, rows, vectors, metric, ids, buckets: None, sequence }
            }
        }
    }

    /// Returns the names and types of the columns that filters can use.
    ///
    /// # Errors
    /// If the columns cannot be read.
    pub fn attributes(&self) -> Result<Vec<(String, String)>> {
        match self {
            Self::Store(store) => store.attributes(),
            Self::Index(index) => index.attributes(),
            Self::Collection(collection) => {
                let attributes = collection.manifest().attributes.into_iter();
                Ok(attributes.map(|attribute| (attribute.name, attribute.kind.to_string())).collect())
            }
        }
    }

    /// Returns the schema of the columns `names`, which hits can carry.
    ///
    /// # Errors
    /// If the folder does not have one of the columns, if a name is given twice, or if the columns cannot be read.
    pub fn columns_schema(&self, names: &[String]) -> Result<SchemaRef> {
        let columns = match self {
            Self::Store(store) => store.result_columns(names)?.map(|columns| columns.schema().clone()),
            Self::Index(index) => index.result_columns(names)?.map(|columns| columns.schema().clone()),
            Self::Collection(collection) => collection.columns_schema(names)?,
        };
        Ok(columns.unwrap_or_else(|| Arc::new(Schema::empty())))
    }

    /// Returns the schema of the hits of a search.
    ///
    /// # Errors
    /// If the queries are rows of the folder and the folder is not a store, or if the folder does not have one of the
    /// columns that hits carry.
    pub fn hit_schema(&self, queries: SearchQueries<'_>, options: &SearchOptions) -> Result<HitSchema> {
        let schema = match self {
            Self::Store(store) => buckets::hit_schema(store, queries),
            Self::Index(index) => index::hit_schema(index.facts(), queries.into_sources(FolderKind::Index)?.queries),
            Self::Collection(collection) => {
                collection.hit_schema(queries.into_sources(FolderKind::Collection)?.queries)
            }
        };
        Ok(schema.with_columns(Some(self.columns_schema(&options.columns)?)))
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
            Self::Index(index) => {
                index::search(context, index, queries.into_sources(FolderKind::Index)?, options, sink)
            }
            Self::Collection(collection) => {
                collection.search(context, queries.into_sources(FolderKind::Collection)?, options, sink)
            }
        }
    }

    /// Name of the manifest. Replacing this file publishes another generation.
    pub const MANIFEST_FILE: &str = MANIFEST_FILE;
}
