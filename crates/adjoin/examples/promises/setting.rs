//! A real set at one threshold, with its truth.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::join::{JoinOptions, Prepared, join, prepare, prepare_each};
use adjoin::plan::Rule;
use adjoin::predicate::Predicate;
use adjoin::report::JoinStatistics;
use adjoin::sink::{PairBatch, PairSink, Written};
use adjoin::source::{self, SourceOptions};
use adjoin::store::{BuildOptions, Store, build};
use adjoin::truth::{GroundtruthOptions, groundtruth};

/// A store, and how many neighbours each row has.
pub(crate) struct Setting {
    store: Store,
    pub(crate) predicate: Predicate,
    truth: Vec<u32>,
}

/// What a join did and reached.
pub(crate) struct Reached {
    pub(crate) statistics: JoinStatistics,
    /// Share of all pairs, and mean share of a vector's neighbours.
    pub(crate) pair: f64,
    pub(crate) per_vector: f64,
}

impl Reached {
    /// Pairs that the rule admitted, for each vector.
    pub(crate) fn compared(&self) -> f64 {
        self.statistics.join.candidate_pairs as f64 / self.statistics.common.rows as f64
    }
}

/// Counts the neighbours of each row.
struct Neighbours(Arc<Mutex<Vec<u32>>>);

impl PairSink for Neighbours {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let mut counts = self.0.lock().unwrap();
        batch.left_rows.iter().chain(&batch.right_rows).for_each(|&row| counts[row as usize] += 1);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

impl Setting {
    /// Opens a set; its store and truth are made once and kept in `work`.
    pub(crate) fn open(context: &Context, file: &Path, work: &Path, threshold: f64) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let predicate = if name.ends_with(".npy") { Predicate::cosine(threshold)? } else { Predicate::l2(threshold)? };
        let names = [file.to_string_lossy().into_owned()];
        let source = source::open(context, &names, &SourceOptions::default())?;
        let folder = work.join(format!("{name}.store"));
        if adjoin::store::kind_of(context, &folder)?.is_none() {
            let options = BuildOptions { metric: predicate.metric(), ..BuildOptions::default() };
            build(context, &*source, &folder, &options)?;
        }
        let store = Store::open(context, &folder)?;
        let at = work.join(format!("{name}-{threshold}.truth"));
        let truth = match fs::read(&at) {
            Ok(bytes) => bytes.as_chunks().0.iter().map(|&count| u32::from_le_bytes(count)).collect(),
            Err(_) => {
                let counts = Arc::new(Mutex::new(vec![0; source.info().rows as usize]));
                let options = GroundtruthOptions { predicate, sample: None, seed: 1 };
                groundtruth(context, &*source, &options, Box::new(Neighbours(counts.clone())))?;
                let truth = std::mem::take(&mut *counts.lock().unwrap());
                let bytes: Vec<u8> = truth.iter().flat_map(|count: &u32| count.to_le_bytes()).collect();
                fs::write(&at, bytes).map_err(|error| Error::device(format!("{}: {error}", at.display())))?;
                truth
            }
        };
        println!("{name} at {threshold}: {} pairs", truth.iter().map(|&count| u64::from(count)).sum::<u64>() / 2);
        Ok(Self { store, predicate, truth })
    }

    /// Joins once.
    pub(crate) fn join(&self, context: &Context, options: &JoinOptions) -> Result<Reached> {
        self.run(context, &prepare(context, &self.store, options, false)?)
    }

    /// Joins by a rule once for each recall; none where no sample supports the promise.
    pub(crate) fn join_each(
        &self,
        context: &Context,
        options: &JoinOptions,
        rule: (Rule, &[f64]),
    ) -> Result<Vec<Option<Reached>>> {
        let prepared = prepare_each(context, &self.store, options, rule, false)?;
        prepared.into_iter().map(|one| one.map(|one| self.run(context, &one)).transpose()).collect()
    }

    fn run(&self, context: &Context, prepared: &Prepared) -> Result<Reached> {
        let counts = Arc::new(Mutex::new(vec![0; self.truth.len()]));
        let sink = Box::new(Neighbours(counts.clone()));
        let statistics = join(context, &self.store, prepared, sink)?;
        let found = counts.lock().unwrap();
        let sum = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>();
        let shares = self.truth.iter().zip(&*found).filter(|(truth, _)| **truth > 0);
        let shares: Vec<f64> = shares.map(|(&truth, &found)| f64::from(found) / f64::from(truth)).collect();
        let ratio = |found: f64, all: f64| if all > 0.0 { found / all } else { 1.0 };
        let pair = ratio(sum(&found), sum(&self.truth));
        let per_vector = ratio(shares.iter().sum(), shares.len() as f64);
        Ok(Reached { statistics, pair, per_vector })
    }
}
