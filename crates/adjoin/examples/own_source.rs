//! Builds and joins a store of vectors that are in memory, through a source that the caller has written.

use std::path::PathBuf;

use adjoin::{
    BuildOptions, Collect, Context, Element, IdKind, Ids, JoinOptions, Predicate, Result, SourceInfo, Store,
    VectorBatch, VectorScan, VectorSource, VectorType,
};

/// Points in memory. They have no ids, so results contain row numbers.
struct Points {
    info: SourceInfo,
    points: Vec<[f32; 2]>,
}

impl Points {
    fn new(points: Vec<[f32; 2]>) -> Self {
        let vectors = VectorType { element: Element::F32, dimensions: 2 };
        let rows = points.len() as u64;
        Self { info: SourceInfo { rows, vectors, ids: IdKind::None, rounded_from_f64: false }, points }
    }
}

impl VectorSource for Points {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    // The engine scans a source several times. `batch_bytes` limits the size of a batch.
    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let batch_rows = (batch_bytes / self.info.vectors.bytes()).max(1);
        Ok(Box::new(Scan { points: &self.points, batch_rows, next: 0 }))
    }

    fn scan_bytes(&self, _batch_bytes: u64) -> u64 {
        0
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (PathBuf::from("points in memory"), row)
    }
}

/// A scan of the points.
struct Scan<'a> {
    points: &'a [[f32; 2]],
    batch_rows: usize,
    next: usize,
}

impl VectorScan for Scan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let first = self.next;
        self.next = (first + self.batch_rows).min(self.points.len());
        let batch = &self.points[first..self.next];
        if batch.is_empty() {
            return Ok(None);
        }
        let bytes = batch.as_flattened().iter().flat_map(|value| value.to_le_bytes()).collect();
        let (first_row, rows) = (first as u64, batch.len());
        Ok(Some(VectorBatch { first_row, rows, bytes, faults: Vec::new(), ids: Ids::None }))
    }
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);
    let points = Points::new((0..1_000).map(|k| [(k % 40) as f32, (k / 40) as f32]).collect());
    let path = folder.path().join("points.store");
    let report = Store::build(&context, &points, &path, &BuildOptions::default())?;
    println!("{} rows in {} buckets", report.manifest.rows, report.manifest.buckets);

    // A store is built once. It can then be joined any number of times, for example with several thresholds.
    let store = Store::open(&context, &path)?;
    let plan = JoinOptions::exact(Predicate::l2(1.0)?).prepare(&context, &store, false)?;
    let pairs = Collect::default();
    plan.run(&context, &store, Box::new(pairs.clone()))?;
    println!("{} pairs of neighbors", pairs.pairs().len());
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
