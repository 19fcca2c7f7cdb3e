//! What Python passes, as options of the engine.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::join::{Aim, JoinOptions};
use adjoin::options::Metric;
use adjoin::predicate::Predicate;
use adjoin::source::{self, IdChoice, SourceOptions, VectorSource};
use adjoin::store::{BuildOptions, OnBad, OnDuplicateId};
use pyo3::FromPyObject;

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Resources {
    memory: String,
    threads: Option<usize>,
    before_bytes: u64,
    /// Where temporary files go; where not given, the engine says.
    temporary: Option<PathBuf>,
}

impl Resources {
    /// A context of that memory, beside what the process held when it was called.
    pub(crate) fn context(&self) -> Result<Context> {
        let context = Context::default().with_resources(&self.memory, self.threads)?.beside(self.before_bytes);
        match &self.temporary {
            Some(folder) => context.with_temporary(folder),
            None => Ok(context),
        }
    }
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct WantedStore {
    pub(crate) metric: String,
    pub(crate) force: bool,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct StoreOptions {
    seed: u64,
    buckets: Option<u32>,
    vector_column: Option<String>,
    id_column: Option<String>,
    ids: bool,
    on_bad: String,
    on_duplicate_id: String,
}

impl StoreOptions {
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    pub(crate) fn source_options(&self) -> Result<SourceOptions> {
        let ids = IdChoice::new(self.id_column.as_deref(), !self.ids)?;
        Ok(SourceOptions { vector_column: self.vector_column.clone(), ids })
    }

    /// What only a build can heed, and whether it was given.
    pub(crate) fn only_for_builds(&self) -> [(&'static str, bool); 6] {
        [
            ("--vector-column", self.vector_column.is_some()),
            ("--id-column", self.id_column.is_some()),
            ("--no-ids", !self.ids),
            ("--buckets", self.buckets.is_some()),
            ("--on-bad", self.on_bad != "error"),
            ("--on-duplicate-id", self.on_duplicate_id != "error"),
        ]
    }

    pub(crate) fn open(&self, context: &Context, sources: &[String]) -> Result<Arc<dyn VectorSource>> {
        source::open(context, sources, &self.source_options()?)
    }

    pub(crate) fn build_options(&self, metric: Metric, force: bool) -> Result<BuildOptions> {
        if self.buckets == Some(0) {
            return Err(Error::option("--buckets 0 holds no vector; give at least 1"));
        }
        let on_bad = one_of("--on-bad", &self.on_bad, [("error", OnBad::Error), ("skip", OnBad::Skip)])?;
        let choices = [("error", OnDuplicateId::Error), ("keep", OnDuplicateId::Keep)];
        let on_duplicate_id = one_of("--on-duplicate-id", &self.on_duplicate_id, choices)?;
        let (seed, buckets) = (self.seed, self.buckets);
        Ok(BuildOptions { metric, seed, buckets, on_bad, on_duplicate_id, force, ..BuildOptions::default() })
    }
}

fn one_of<T>(option: &str, given: &str, choices: [(&str, T); 2]) -> Result<T> {
    let names = choices.each_ref().map(|(name, _)| *name);
    let found = choices.into_iter().find(|(name, _)| *name == given);
    let refused = || Error::option(format!("{option} is {given:?}; give {}", names.join(" or ")));
    found.map(|(_, choice)| choice).ok_or_else(refused)
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Wanted {
    eps: Option<f64>,
    min_similarity: Option<f64>,
    recall: Option<f64>,
    exact: bool,
}

impl Wanted {
    pub(crate) fn predicate(&self) -> Result<Predicate> {
        match (self.eps, self.min_similarity) {
            (Some(eps), None) => Predicate::l2(eps),
            (None, Some(similarity)) => Predicate::cosine(similarity),
            _ => Err(Error::option("give a threshold: either --eps or --min-similarity")),
        }
    }

    pub(crate) fn join_options(&self, seed: u64) -> Result<JoinOptions> {
        let aim = match self.recall {
            Some(_) if self.exact => {
                return Err(Error::option("--exact finds every pair; leave out --recall"));
            }
            _ if self.exact => Aim::Every,
            None => Aim::Unsaid,
            Some(recall) => Aim::recall(recall)?,
        };
        Ok(JoinOptions { seed, ..JoinOptions::approximate(self.predicate()?, aim) })
    }
}

pub(crate) fn json(of: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(of).map_err(|error| Error::corrupt(error.to_string()))
}
