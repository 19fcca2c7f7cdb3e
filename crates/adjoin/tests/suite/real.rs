//! Joins of real vectors, compared with the oracle. `ADJOIN_DATA` is the folder with the sets.

use std::path::PathBuf;
use std::sync::Arc;

use adjoin::{
    Context, Metric, PairSink, Predicate, Result, SourceInfo, SourceOptions, Store, VectorBatch, VectorScan,
    VectorSource, VectorType, lab::source::open,
};

use crate::groups;
use crate::harness::{Setup, assert_same};
use crate::oracle::Oracle;

/// Number of rows to join.
const ROWS: u64 = 20_000;
/// Batch size in bytes. The size of no set is a multiple of it.
const BATCH_BYTES: usize = 1_000_003;

/// Source of the first rows of another source.
pub(crate) struct First {
    source: Arc<dyn VectorSource>,
    info: SourceInfo,
}

impl First {
    /// Returns the type of the vectors.
    pub(crate) fn vectors(&self) -> VectorType {
        self.info.vectors
    }
}

impl VectorSource for First {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let scan = self.source.scan(BATCH_BYTES)?;
        Ok(Box::new(FirstScan { scan, left: self.info.rows as usize, vector_bytes: self.info.vectors.bytes() }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.source.locate(row)
    }
}

struct FirstScan<'a> {
    scan: Box<dyn VectorScan + 'a>,
    left: usize,
    vector_bytes: usize,
}

impl VectorScan for FirstScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(mut batch) = self.scan.next_batch()? else { return Ok(None) };
        batch.rows = batch.rows.min(self.left);
        batch.bytes.truncate(batch.rows * self.vector_bytes);
        self.left -= batch.rows;
        Ok(Some(batch))
    }
}

/// Opens the first rows of a set as a source. Also returns their bytes. These follow `header` bytes at the start of
/// the file. Returns `None` if the file does not exist.
pub(crate) fn first(file: &str, header: usize) -> Option<(First, Vec<u8>)> {
    let Some(folder) = std::env::var_os("ADJOIN_DATA") else {
        println!("skipped: ADJOIN_DATA names no folder with {file}");
        return None;
    };
    let path = PathBuf::from(folder).join(file);
    let setup = Setup::default();
    let names = [path.to_str().expect("the folder's name is text").to_owned()];
    let source = open(&setup.context(), &names, &SourceOptions::default()).unwrap();
    let info = SourceInfo { rows: ROWS, ..source.info().clone() };
    let mut stored = std::fs::read(&path).unwrap().split_off(header);
    assert_eq!(stored.len() as u64, source.info().rows * info.vectors.bytes() as u64);
    stored.truncate(ROWS as usize * info.vectors.bytes());
    Some((First { source, info }, stored))
}

/// Joins a set at thresholds from the loosest to the strictest. The number of pairs is known for each.
fn check(file: &str, header: usize, metric: Metric, thresholds: &[(Predicate, usize)]) {
    let Some((source, stored)) = first(file, header) else { return };
    let oracle = Oracle::within(source.info.vectors, &stored, thresholds[0].0);
    let setup = Setup::default().with_metric(metric);
    let built = setup.build(&source).unwrap();
    for &(predicate, pairs) in thresholds {
        let wanted = oracle.pairs(predicate);
        let joined = built.join(&setup, predicate).unwrap();
        assert_same(&joined.pairs, &wanted, &format!("{file} {predicate:?}"));
        assert_eq!(wanted.len(), pairs, "{file} {predicate:?}: is this another set?");
        let verified = joined.statistics.join.verified_pairs;
        println!("{file} {predicate:?}: {} pairs of {verified} verified", wanted.len());
        assert!(verified < ROWS * (ROWS - 1) / 2, "{file} {predicate:?}: the buckets save nothing");
    }
    // Results per row are checked for the strictest threshold, since it has the fewest pairs.
    let &(predicate, _) = thresholds.last().unwrap();
    let (vectors, rows) = (source.info.vectors, (0..ROWS).collect::<Vec<_>>());
    let vector = |row: u64| &stored[row as usize * vectors.bytes()..][..vectors.bytes()];
    let value = |x, y| Oracle::of_all(vectors, &[vector(x), vector(y)].concat(), metric).value(0, 1);
    let pairs = oracle.pairs(predicate);
    let feed = |_: &Context, _: &Store, sink: Box<dyn PairSink + '_>| groups::feed_with(&pairs, sink);
    let results = groups::Results::of(&built, &setup, &feed);
    groups::check(&results, metric, &rows, &pairs, &|row| row.to_string(), &value);
}

fn l2(eps: f64) -> Predicate {
    Predicate::l2(eps).unwrap()
}

fn cosine(min_similarity: f64) -> Predicate {
    Predicate::cosine(min_similarity).unwrap()
}

#[test]
fn sift() {
    check("sift-200k.u8bin", 8, Metric::L2, &[(l2(226.55), 96_585), (l2(126.566), 9_820)]);
}

#[test]
fn sift_stars() {
    check("sift-stars-50k.u8bin", 8, Metric::L2, &[(l2(174.88), 498_123), (l2(77.57), 54_799)]);
}

#[test]
fn joins_package_descriptions_by_cosine() {
    check("debdesc.f16.npy", 128, Metric::Cosine, &[(cosine(0.8), 87_713), (cosine(0.95), 13_115)]);
}

#[test]
fn joins_package_descriptions_by_distance() {
    check("debdesc.f16.npy", 128, Metric::L2, &[(l2(0.7354), 143_434)]);
}

#[test]
fn glosses() {
    check("wordnet-20k.f16.npy", 128, Metric::Cosine, &[(cosine(0.7), 5_134), (cosine(0.8), 923)]);
}
