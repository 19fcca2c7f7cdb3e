//! Sets in memory, and functions that build and join them in one call.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use adjoin::{
    BuildOptions, Cancel, Collect, Context, Element, Error, IdKind, Ids, JoinEffort, JoinOptions, JoinStatistics,
    Metric, OnBad, PairSink, Predicate, Progress, Result, SourceAttributes, SourceInfo, Store, VectorBatch, VectorScan,
    VectorSource, VectorType,
    device::Device,
    kernels::Kernel,
    lab::{
        join::{Prepared, Sets},
        plan::Rule,
        report::Silent,
        source::{AttributeTables, Fault},
    },
};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use tempfile::TempDir;

use crate::oracle::{Oracle, Pair};

/// A set of vectors in memory.
#[derive(Clone)]
pub(crate) struct Set {
    info: SourceInfo,
    stored: Vec<u8>,
    ids: Ids,
    /// Numbers of the rows with a null vector, in ascending order.
    missing: Vec<u64>,
    batch_rows: usize,
    /// Columns in addition to the vectors.
    columns: Option<RecordBatch>,
}

impl Set {
    /// Creates a set from the values of all vectors, one vector after the other. Each value is rounded to the element
    /// type.
    pub(crate) fn of(element: Element, dimensions: usize, values: &[f64]) -> Self {
        let mut stored = Vec::with_capacity(values.len() * element.bytes());
        for &value in values {
            match element {
                Element::F32 => stored.extend((value as f32).to_le_bytes()),
                Element::F16 => stored.extend(half::f16::from_f64(value).to_le_bytes()),
                Element::U8 => stored.push(value.round() as u8),
                Element::I8 => stored.push((value.round() as i8).cast_unsigned()),
            }
        }
        Self::of_stored(VectorType { element, dimensions }, stored)
    }

    /// Creates a set from the stored bytes of all vectors.
    pub(crate) fn of_stored(vectors: VectorType, stored: Vec<u8>) -> Self {
        assert!(stored.len().is_multiple_of(vectors.bytes()));
        let rows = (stored.len() / vectors.bytes()) as u64;
        let info = SourceInfo { rows, vectors, ids: IdKind::None, rounded_from_f64: false };
        Self { info, stored, ids: Ids::None, missing: Vec::new(), batch_rows: 7, columns: None }
    }

    pub(crate) fn with_ids(mut self, ids: &[i64]) -> Self {
        assert_eq!(ids.len() as u64, self.info.rows);
        self.info.ids = IdKind::Int64;
        Self { ids: Ids::Int64(ids.to_vec()), ..self }
    }

    pub(crate) fn with_text_ids(mut self, ids: &[String]) -> Self {
        assert_eq!(ids.len() as u64, self.info.rows);
        self.info.ids = IdKind::Utf8;
        Self { ids: ids.iter().collect(), ..self }
    }

    pub(crate) fn with_columns(self, columns: RecordBatch) -> Self {
        assert_eq!(columns.num_rows() as u64, self.info.rows);
        Self { columns: Some(columns), ..self }
    }

    pub(crate) fn with_missing(self, rows: &[u64]) -> Self {
        Self { missing: rows.to_vec(), ..self }
    }

    pub(crate) fn in_batches_of(self, rows: usize) -> Self {
        Self { batch_rows: rows, ..self }
    }

    pub(crate) fn rows(&self) -> u64 {
        self.info.rows
    }

    /// Splits the set into the rows before `row` and the others.
    pub(crate) fn split_at(&self, row: u64) -> [Self; 2] {
        [0..row, row..self.rows()].map(|rows| {
            let bytes = self.vectors().bytes();
            let mut ids = Ids::empty(self.info.ids);
            rows.clone().for_each(|row| ids.push_from(&self.ids, row as usize));
            let stored = self.stored[rows.start as usize * bytes..rows.end as usize * bytes].to_vec();
            let missing = self.missing.iter().filter(|row| rows.contains(row)).map(|row| row - rows.start);
            let info = SourceInfo { rows: rows.end - rows.start, ..self.info.clone() };
            let columns = self.columns.as_ref();
            let columns = columns.map(|all| all.slice(rows.start as usize, (rows.end - rows.start) as usize));
            Self { info, stored, ids, missing: missing.collect(), batch_rows: self.batch_rows, columns }
        })
    }

    pub(crate) fn has_ids(&self) -> bool {
        self.info.ids != IdKind::None
    }

    /// Returns the stored bytes of all vectors.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.stored
    }

    pub(crate) fn vectors(&self) -> VectorType {
        self.info.vectors
    }

    /// Computes all pairs of the set, without a threshold.
    pub(crate) fn oracle(&self, metric: Metric) -> Oracle {
        Oracle::of_all(self.vectors(), &self.stored, metric)
    }

    /// Returns the correct result of a join of this set with another one.
    pub(crate) fn true_pairs_with(&self, other: &Self, predicate: Predicate) -> Vec<Pair> {
        let both = [&self.stored[..], &other.stored].concat();
        let of_both = Oracle::within(self.vectors(), &both, predicate).pairs(predicate);
        let between = of_both.into_iter().filter(|&(left, right, _)| left < self.rows() && right >= self.rows());
        between.map(|(left, right, value)| (left, right - self.rows(), value)).collect()
    }

    /// Returns the correct result of a join of this set with itself.
    pub(crate) fn true_pairs(&self, predicate: Predicate) -> Vec<Pair> {
        Oracle::within(self.vectors(), &self.stored, predicate).pairs(predicate)
    }
}

impl VectorSource for Set {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(Box::new(SetScan { set: self, next_row: 0 }))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        2 * batch_bytes
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (PathBuf::from("set.in.memory"), row)
    }

    fn attributes(&self) -> Option<&dyn SourceAttributes> {
        self.columns.as_ref().map(|_| self as &dyn SourceAttributes)
    }
}

impl SourceAttributes for Set {
    fn schema(&self) -> Result<SchemaRef> {
        Ok(self.columns.as_ref().expect("it has some").schema())
    }

    fn tables(&self, _context: &Context) -> Result<AttributeTables<'_>> {
        let columns = self.columns.as_ref().expect("it has some");
        let starts = (0..columns.num_rows()).step_by(self.batch_rows);
        let rows = |start: usize| (columns.num_rows() - start).min(self.batch_rows);
        Ok(Box::new(starts.map(move |start| Ok(columns.slice(start, rows(start))))))
    }
}

struct SetScan<'a> {
    set: &'a Set,
    next_row: u64,
}

impl VectorScan for SetScan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let Set { info, stored, ids, missing, batch_rows, .. } = self.set;
        let first_row = self.next_row;
        let rows = (info.rows - first_row).min(*batch_rows as u64);
        if rows == 0 {
            return Ok(None);
        }
        self.next_row += rows;
        let size = info.vectors.bytes();
        let mut batch_ids = Ids::empty(info.ids);
        (first_row..self.next_row).for_each(|row| batch_ids.push_from(ids, row as usize));
        let mut bytes = stored[first_row as usize * size..self.next_row as usize * size].to_vec();
        let here = missing.iter().filter(|&&row| (first_row..first_row + rows).contains(&row));
        let faults: Vec<_> = here.map(|row| ((row - first_row) as usize, Fault::Null)).collect();
        faults.iter().for_each(|&(k, _)| bytes[k * size..][..size].fill(0));
        Ok(Some(VectorBatch { first_row, rows: rows as usize, bytes, faults, ids: batch_ids }))
    }
}

/// Options of builds and joins.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) threads: usize,
    pub(crate) kernel: Kernel,
    pub(crate) memory: u64,
    pub(crate) cache_bytes: Option<u64>,
    pub(crate) rule: Rule,
    pub(crate) aim: JoinEffort,
    pub(crate) build: BuildOptions,
    pub(crate) cancel: Cancel,
    pub(crate) progress: Arc<dyn Progress>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            threads: 2,
            kernel: Kernel::detect(),
            memory: 1 << 30,
            cache_bytes: None,
            rule: Rule::MarginSum,
            aim: JoinEffort::Every,
            build: BuildOptions::default(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
        }
    }
}

impl Setup {
    pub(crate) fn with_metric(mut self, metric: Metric) -> Self {
        self.build.metric = metric;
        self
    }

    pub(crate) fn with_buckets(mut self, buckets: u32) -> Self {
        self.build.buckets = Some(buckets);
        self
    }

    pub(crate) fn skipping_bad_rows(mut self) -> Self {
        self.build.on_bad = OnBad::Skip;
        self
    }

    pub(crate) fn context(&self) -> Context {
        let mut context = Context::default().with_memory(self.memory);
        context.threads = self.threads;
        context.kernel = self.kernel;
        context.cancel = self.cancel.clone();
        context.progress = self.progress.clone();
        context
    }

    pub(crate) fn context_on(&self, device: Arc<dyn Device>) -> Context {
        let mut context = self.context();
        context.device = device;
        context
    }

    pub(crate) fn join_options(&self, predicate: Predicate) -> JoinOptions {
        JoinOptions {
            rule: Some(self.rule),
            aim: self.aim,
            cache_bytes: self.cache_bytes,
            ..JoinOptions::exact(predicate)
        }
    }

    /// Builds a store that is removed when the returned value is dropped.
    pub(crate) fn build(&self, source: &dyn VectorSource) -> Result<Built> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let context = self.context();
        Store::build(&context, source, &path, &self.build)?;
        Ok(Built { store: Store::open(&context, &path)?, folder })
    }
}

/// A store in a temporary folder.
pub(crate) struct Built {
    pub(crate) store: Store,
    folder: TempDir,
}

/// Result of a join.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) pairs: Vec<Pair>,
    pub(crate) statistics: JoinStatistics,
}

impl Built {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    pub(crate) fn prepare(&self, setup: &Setup, predicate: Predicate) -> Result<Prepared> {
        setup.join_options(predicate).prepare(&setup.context(), &self.store, false)
    }

    /// Joins the store into a sink.
    pub(crate) fn join_into(
        &self,
        setup: &Setup,
        predicate: Predicate,
        sink: Box<dyn PairSink>,
    ) -> Result<JoinStatistics> {
        let options = setup.join_options(predicate);
        Self::run(&setup.context(), (&self.store).into(), &options, sink)
    }

    fn run(
        context: &Context,
        sets: Sets<'_>,
        options: &JoinOptions,
        sink: Box<dyn PairSink + '_>,
    ) -> Result<JoinStatistics> {
        let prepared = options.prepare(context, sets, sink.wants_ids())?;
        prepared.run(context, sets, sink)
    }

    /// Joins the store with the store of another set.
    pub(crate) fn cross_join(&self, other: &Self, setup: &Setup, options: &JoinOptions) -> Result<Joined> {
        Self::collect(&setup.context(), Sets::between(&self.store, &other.store), options)
    }

    pub(crate) fn join(&self, setup: &Setup, predicate: Predicate) -> Result<Joined> {
        self.join_with(setup, &setup.join_options(predicate))
    }

    /// Joins the store with any options.
    pub(crate) fn join_with(&self, setup: &Setup, options: &JoinOptions) -> Result<Joined> {
        Self::collect(&setup.context(), (&self.store).into(), options)
    }

    /// Joins the store through another device.
    pub(crate) fn join_on(&self, device: Arc<dyn Device>, setup: &Setup, predicate: Predicate) -> Result<Joined> {
        let context = setup.context_on(device);
        let store = Store::open(&context, &self.path())?;
        Self::collect(&context, (&store).into(), &setup.join_options(predicate))
    }

    pub(crate) fn collect(context: &Context, sets: Sets<'_>, options: &JoinOptions) -> Result<Joined> {
        let sink = Collect::default();
        let statistics = Self::run(context, sets, options, Box::new(sink.clone()))?;
        let pairs = sink.pairs();
        assert_eq!(statistics.join.pairs, pairs.len() as u64, "the statistics count what the sink got");
        Ok(Joined { pairs, statistics })
    }
}

/// Builds a store, and joins it.
pub(crate) fn join(source: &dyn VectorSource, setup: &Setup, predicate: Predicate) -> Result<Joined> {
    setup.clone().with_metric(predicate.metric()).build(source)?.join(setup, predicate)
}

/// Runs `work`, which might hang, on another thread. Panics if it takes longer than `seconds`.
pub(crate) fn within_seconds<R: Send + 'static>(seconds: u64, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = std::sync::mpsc::channel();
    // The thread is not scoped, since a scope would wait for a thread that hangs.
    let thread = std::thread::Builder::new().spawn(move || sender.send(work()).unwrap()).unwrap();
    match receiver.recv_timeout(Duration::from_secs(seconds)) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => panic!("not done after {seconds} seconds"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(cause) => std::panic::resume_unwind(cause),
            Ok(()) => unreachable!("it sends before it ends"),
        },
    }
}

/// Returns the error of a result. Panics if the result is a success.
#[track_caller]
pub(crate) fn error_of<R>(result: Result<R>) -> Error {
    match result {
        Ok(_) => panic!("this must not succeed"),
        Err(error) => error,
    }
}

/// Returns every file of a folder by name.
pub(crate) fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Panics if two results differ, with a description of the first difference.
#[track_caller]
pub(crate) fn assert_same(found: &[Pair], expected: &[Pair], what: &str) {
    if let Some(difference) = difference(found, expected) {
        panic!("{what}: {difference}");
    }
}

/// Describes the first difference between two results, if there is one. Values must be equal bit for bit.
pub(crate) fn difference(found: &[Pair], expected: &[Pair]) -> Option<String> {
    let bits = |pairs: &[Pair]| pairs.iter().map(|&(x, y, value)| (x, y, value.to_bits())).collect::<Vec<_>>();
    let (found, expected) = (bits(found), bits(expected));
    if found == expected {
        return None;
    }
    let lacking = |from: &[(u64, u64, u32)], of: &[(u64, u64, u32)]| {
        let lacking = of.iter().filter(|pair| from.binary_search(pair).is_err());
        lacking.map(|&(x, y, value)| (x, y, f32::from_bits(value))).collect::<Vec<_>>()
    };
    let (missing, wrong) = (lacking(&found, &expected), lacking(&expected, &found));
    let first = |pairs: &[Pair]| pairs.iter().take(5).copied().collect::<Vec<_>>();
    Some(format!(
        "{} pairs found, {} wanted; {} missing, such as {:?}; {} wrong, such as {:?}",
        found.len(),
        expected.len(),
        missing.len(),
        first(&missing),
        wrong.len(),
        first(&wrong)
    ))
}
