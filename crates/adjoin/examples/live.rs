//! How long writes of a live index take: buffered and grouped, by one writer and by many, beside a file that is synced for each
//! write; and how long it takes to open what they left.
//!
//! usage: live FOLDER [WRITES]; the folder is made, and left.

use std::path::{Path, PathBuf};
use std::time::Instant;

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::index::IndexOptions;
use adjoin::live::{Collection, Durability, LiveOptions, Write};
use adjoin::options::{Element, Metric, VectorType};
use adjoin::source::{IdKind, Ids, SourceInfo, VectorBatch, VectorScan, VectorSource};

const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 128 };

/// One row with its id.
struct Row {
    info: SourceInfo,
    id: i64,
}

struct RowScan(Option<i64>);

impl Row {
    fn new(id: i64) -> Self {
        Self { info: SourceInfo { rows: 1, vectors: VECTORS, ids: IdKind::Int64, rounded_from_f64: false }, id }
    }
}

impl VectorSource for Row {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, _batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        Ok(Box::new(RowScan(Some(self.id))))
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        batch_bytes
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        ("a row in memory".into(), row)
    }
}

impl VectorScan for RowScan {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let batch = |id: i64| {
            let bytes = (0..VECTORS.dimensions).map(|place| (id as usize * 31 + place * place) as u8).collect();
            VectorBatch { first_row: 0, rows: 1, bytes, faults: Vec::new(), ids: Ids::Int64(vec![id]) }
        };
        Ok(self.0.take().map(batch))
    }
}

/// The p50 and p99 of some times, in microseconds.
fn percentiles(mut seconds: Vec<f64>) -> (f64, f64) {
    seconds.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| 1e6 * seconds[((seconds.len() - 1) as f64 * share) as usize];
    (at(0.5), at(0.99))
}

/// Lets writers insert rows one by one; returns how long each took, and all.
fn write(collection: &Collection, ids: std::ops::Range<i64>, writers: i64, durability: Durability) -> (Vec<f64>, f64) {
    let begun = Instant::now();
    let times = std::thread::scope(|scope| {
        let one = |writer: i64| {
            let ids = ids.clone().skip(writer as usize).step_by(writers as usize);
            let insert = |id: i64| {
                let (row, begun) = (Row::new(id), Instant::now());
                let write = Write { insert: Some(&row), ..Write::default() };
                collection.write(&write, durability).expect("it is written");
                begun.elapsed().as_secs_f64()
            };
            ids.map(insert).collect::<Vec<f64>>()
        };
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || one(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    (times, begun.elapsed().as_secs_f64())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let folder = Path::new(arguments.get(1).map_or("target/live", String::as_str));
    let writes: i64 = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let context = Context::default();
    let mut file = context.device.create(&folder.with_extension("synced"))?;
    let begun = Instant::now();
    for _ in 0..500 {
        file.append(&[7; 184])?;
        file.sync()?;
    }
    println!("a file that is synced for each write: {:.0} a second", 500.0 / begun.elapsed().as_secs_f64());
    let (metric, ids, attributes, index) = (Metric::L2, IdKind::Int64, Vec::new(), IndexOptions::default());
    Collection::create(&context, folder, &LiveOptions { vectors: VECTORS, metric, ids, attributes, index })?;
    let collection = Collection::open(&context, folder)?;
    let (mut next, mut before) = (0, 0);
    println!("writers  durability  a second  p50 us  p99 us  syncs");
    for (durability, share) in [(Durability::Buffered, 8), (Durability::Group, 40)] {
        for writers in [1, 2, 4, 8, 16, 32] {
            let ids = next..next + (writes / share).min(400 * writers.max(8) * 8);
            next = ids.end;
            let count = (ids.end - ids.start) as f64;
            let (times, seconds) = write(&collection, ids, writers, durability);
            let (p50, p99) = percentiles(times);
            let syncs = collection.syncs() - before;
            before += syncs;
            println!("{writers:7}  {durability:10?}  {:8.0}  {p50:6.0}  {p99:6.0}  {syncs:5}", count / seconds);
        }
    }
    let rest = next..next.max(writes);
    write(&collection, rest, 2, Durability::Buffered);
    collection.close()?;
    let begun = Instant::now();
    let rows = Collection::open(&context, folder)?.facts().rows;
    println!("opened with {rows} rows of as many records in {:.2} s", begun.elapsed().as_secs_f64());
    Ok(())
}
