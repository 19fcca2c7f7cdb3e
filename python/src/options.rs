//! Conversion of Python arguments to options of the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use adjoin::{
    AttributeKind, BuildOptions, Choice, Conditions, Context, Durability, Element, Error, IdChoice, IdKind,
    IndexOptions, JoinEffort, JoinOptions, KeepRule, Metric, OnBad, OnDuplicateId, OnMissing, Predicate, Result,
    ResultKind, ShingleUnit, SourceOptions, VectorSource, open_source, parse_bytes,
};
use adjoin_object::ObjectDevice;
use arrow_schema::Schema;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Returns a context with default resources, which reads files and objects.
pub(crate) fn plain_context() -> Context {
    let mut context = Context::default();
    context.device = Arc::new(ObjectDevice::over(context.device));
    context
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Resources {
    memory: Option<String>,
    threads: Option<usize>,
    before_bytes: u64,
    /// Folder for temporary files; if `None`, the engine chooses.
    temporary: Option<PathBuf>,
}

impl Resources {
    /// Returns whether the work takes the resources of an open folder: the caller set no others.
    pub(crate) fn are_of_folder(&self) -> bool {
        self.memory.is_none() && self.threads.is_none()
    }

    /// Returns the bytes that the process held before the work.
    pub(crate) fn before_bytes(&self) -> u64 {
        self.before_bytes
    }

    /// Creates a context with this memory limit. The limit applies in addition to the memory that the process held at
    /// the call, and to the budgets of concurrent runs.
    pub(crate) fn context(&self, others_bytes: Arc<AtomicU64>) -> Result<Context> {
        let context = plain_context().with_resources(self.memory.as_deref(), self.threads)?;
        let context = context.beside(self.before_bytes, others_bytes);
        match &self.temporary {
            Some(folder) => context.with_temporary(folder),
            None => Ok(context),
        }
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StoreRequest {
    pub(crate) metric: String,
    pub(crate) force: bool,
    pub(crate) resume: bool,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct IndexRequest {
    pub(crate) metric: Option<String>,
    pub(crate) force: bool,
    degree: Option<usize>,
    build_list: usize,
    code_bytes: Option<usize>,
    page: String,
}

impl IndexRequest {
    pub(crate) fn options(&self, seed: u64) -> Result<IndexOptions> {
        let Self { degree, build_list, code_bytes, .. } = *self;
        let page_bytes = parse_bytes(&self.page)?;
        let options = IndexOptions { degree, build_list, code_bytes, seed, page_bytes, ..IndexOptions::default() };
        options.check().map(|()| options)
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StoreOptions {
    seed: u64,
    buckets: Option<u32>,
    vector_column: Option<String>,
    split: Option<String>,
    id_column: Option<String>,
    ids: bool,
    on_bad: String,
    on_duplicate_id: String,
    columns: Vec<String>,
    sort_by: Option<String>,
}

impl StoreOptions {
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn source_options(&self) -> Result<SourceOptions> {
        let ids = IdChoice::new(self.id_column.as_deref(), !self.ids)?;
        Ok(SourceOptions { vector_column: self.vector_column.clone(), ids, split: self.split.clone() })
    }

    /// Returns the indices of the columns to read from a table; `name` is the table's name in messages.
    pub(crate) fn columns_read(&self, name: &str, schema: &Schema) -> Result<Vec<usize>> {
        let kept = self.build_options(Metric::L2, false)?.kept_columns();
        self.source_options()?.columns_read(name.as_ref(), schema, &kept)
    }

    pub(crate) fn open(&self, context: &Context, sources: &[String]) -> Result<Arc<dyn VectorSource>> {
        open_source(context, sources, &self.source_options()?)
    }

    pub(crate) fn build_options(&self, metric: Metric, force: bool) -> Result<BuildOptions> {
        let (on_bad, on_duplicate_id) = (self.on_bad.parse()?, self.on_duplicate_id.parse()?);
        let (seed, buckets) = (self.seed, self.buckets);
        let (attributes, sort_by) = (self.columns.clone(), self.sort_by.clone());
        Ok(BuildOptions {
            metric,
            seed,
            buckets,
            on_bad,
            on_duplicate_id,
            attributes,
            sort_by,
            force,
            ..BuildOptions::default()
        })
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JoinTarget {
    eps: Option<f64>,
    min_similarity: Option<f64>,
    recall: Option<f64>,
    exact: bool,
    recall_of: String,
}

impl JoinTarget {
    /// Returns the threshold, if one was given.
    pub(crate) fn predicate(&self) -> Result<Option<Predicate>> {
        let given = self.eps.is_some() || self.min_similarity.is_some();
        given.then(|| Predicate::of(self.eps, self.min_similarity)).transpose()
    }

    pub(crate) fn aim(&self) -> Result<JoinEffort> {
        JoinEffort::of(self.recall, self.exact)?.with_recall_of(&self.recall_of)
    }

    pub(crate) fn join_options(&self, seed: u64) -> Result<JoinOptions> {
        let predicate = Predicate::of(self.eps, self.min_similarity)?;
        Ok(JoinOptions { seed, ..JoinOptions::approximate(predicate, self.aim()?) })
    }
}

/// Filters on rows and on pairs.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct JoinFilters {
    rows: Option<String>,
    other_rows: Option<String>,
    pairs: Option<String>,
}

impl JoinFilters {
    pub(crate) fn parse(&self) -> Result<Conditions> {
        Conditions::parse(self.rows.as_deref(), self.other_rows.as_deref(), self.pairs.as_deref())
    }
}

/// Returns the names of the values of each option with a closed set of values.
pub(crate) fn choices(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let joined: Vec<&str> = Metric::OF_JOINS.iter().map(|metric| metric.name()).collect();
    let all = [
        ("column type", AttributeKind::names()),
        ("durability", Durability::names()),
        ("element", Element::names()),
        ("ids", IdKind::OF_COLLECTIONS.iter().map(|kind| kind.name()).collect()),
        ("keep rule", KeepRule::names()),
        ("metric", joined),
        ("on_bad", OnBad::names()),
        ("on_duplicate_id", OnDuplicateId::names()),
        ("on_missing", OnMissing::names()),
        ("result", ResultKind::names()),
        ("search metric", Metric::names()),
        ("shingles", ShingleUnit::names()),
        ("recall_of", JoinEffort::RECALL_OF.to_vec()),
    ];
    let choices = PyDict::new(py);
    for (option, names) in all {
        choices.set_item(option, PyTuple::new(py, names)?)?;
    }
    Ok(choices)
}

pub(crate) fn json(of: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(of).map_err(|error| Error::corrupt(error.to_string()))
}
