//! Times writes of one row, by one writer and by many. For comparison, also times a file that is synced after each
//! record, and opening the resulting collection.

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use adjoin::{
    Collection, CollectionOptions, Context, Durability, Element, IdKind, Ids, IndexOptions, Metric, Result, VectorType,
    Write,
};
use serde_json::json;

use super::percentile_us;
use super::rows::Rows;

const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 128 };
/// Size of the record of one row in bytes, and number of syncs that are timed.
const RECORD_BYTES: usize = 184;
const SYNCS: usize = 1_000;
const WRITERS: [i64; 6] = [1, 2, 4, 8, 16, 32];

fn row(id: i64) -> Rows {
    let bytes = (0..VECTORS.dimensions).map(|place| (id as usize * 31 + place * place) as u8).collect();
    Rows::new(VECTORS, id, bytes)
}

/// Runs `work` for each id, on several writers. Returns the duration of each call and of all calls together, in
/// seconds.
fn timed(ids: Range<i64>, writers: i64, work: &(dyn Fn(i64) -> Result<()> + Sync)) -> (Vec<f64>, f64) {
    let begun = Instant::now();
    let times = std::thread::scope(|scope| {
        let one = |writer: i64| {
            let once = |id: i64| {
                let begun = Instant::now();
                work(id).expect("the write succeeds");
                begun.elapsed().as_secs_f64()
            };
            ids.clone().skip(writer as usize).step_by(writers as usize).map(once).collect::<Vec<f64>>()
        };
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || one(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("the thread does not panic")).collect()
    });
    (times, begun.elapsed().as_secs_f64())
}

pub(crate) fn run(folder: &Path, writes: i64) -> Result<()> {
    let context = Context::default();
    let mut file = context.device.create(&folder.with_extension("synced"))?;
    let begun = Instant::now();
    for _ in 0..SYNCS {
        file.append(&[7; RECORD_BYTES])?;
        file.sync()?;
    }
    println!("{}", json!({"what": "sync", "per_second": SYNCS as f64 / begun.elapsed().as_secs_f64()}));
    let (metric, ids, attributes, index) = (Metric::L2, IdKind::Int64, Vec::new(), IndexOptions::default());
    Collection::create(&context, folder, &CollectionOptions { vectors: VECTORS, metric, ids, attributes, index })?;
    let collection = Collection::open(&context, folder)?;
    let (mut next, mut before) = (0, 0);
    for (durability, named, share) in [(Durability::Buffered, "buffered", 8), (Durability::Group, "group", 16)] {
        for writers in WRITERS {
            let ids = next..next + (writes / share).min(3_200 * writers.max(8));
            next = ids.end;
            let count = (ids.end - ids.start) as f64;
            let insert = |id| {
                let row = row(id);
                collection.write(&Write { insert: Some(&row), ..Write::default() }, durability).map(drop)
            };
            let delete = |id| {
                let gone = Ids::Int64(vec![id]);
                collection.write(&Write { delete: Some(&gone), ..Write::default() }, durability).map(drop)
            };
            // Every fourth row is deleted again.
            let of_gone = ids.start / 4 + 1..ids.end / 4;
            for (what, ids, each, work) in [
                ("insert", ids, 1, &insert as &(dyn Fn(i64) -> Result<()> + Sync)),
                ("delete", of_gone, 4, &(|id| delete(4 * id))),
            ] {
                let (mut times, seconds) = timed(ids, writers, work);
                let syncs = collection.syncs() - before;
                before += syncs;
                let per_second = (count / f64::from(each)) / seconds;
                let [p50, p99] = [0.5, 0.99].map(|share| percentile_us(&mut times, share));
                println!(
                    "{}",
                    json!({"what": what, "durability": named, "writers": writers, "per_second": per_second, "p50_us": p50,
                        "p99_us": p99, "syncs": syncs})
                );
            }
        }
    }
    collection.load(
        &Rows::new(
            VECTORS,
            next,
            (next..writes).flat_map(|id| (0..128).map(move |place| (id * 31 + place) as u8)).collect(),
        ),
        adjoin::lab::collection::Put::Insert,
        Durability::Buffered,
    )?;
    collection.close()?;
    let begun = Instant::now();
    let rows = Collection::open(&context, folder)?.facts().rows;
    println!("{}", json!({"what": "open", "rows": rows, "writes": writes, "seconds": begun.elapsed().as_secs_f64()}));
    Ok(())
}
