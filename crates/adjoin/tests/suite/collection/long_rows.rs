//! Collections of rows with long ids and columns. A budget that a refusal names must suffice, and accepted rows must
//! be mergeable.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use adjoin::{
    Collect, Collection, CollectionOptions, Context, Durability, Element, ErrorKind, IdKind, Metric, QueryTarget,
    Result, SearchEffort, SearchOptions, VectorType, Write,
    lab::{
        collection::{MergerOptions, start_merger},
        query::QuerySources,
    },
};
use arrow_array::StringArray;

use super::carried::Carried;
use super::{LIVE, bare_device, context_on, options};
use crate::harness::{Set, Setup};

const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: 32 };

/// Lengths in bytes of the id and of the column of each row.
#[derive(Clone, Copy)]
struct Lengths {
    id: usize,
    column: usize,
}

/// Returns rows with ids and columns of these lengths.
fn rows(numbers: std::ops::Range<u32>, Lengths { id, column }: Lengths) -> Carried {
    let vector =
        |number: u32| (0..VECTORS.dimensions as u32).map(move |k| (number.wrapping_mul(2_654_435_761 + k) >> 23) as u8);
    let ids: Vec<String> = numbers.clone().map(|number| format!("{number:0>id$}")).collect();
    let texts: StringArray = numbers.clone().map(|number| Some(format!("{number:x<column$}"))).collect();
    let set = Set::of_stored(VECTORS, numbers.flat_map(vector).collect()).with_text_ids(&ids);
    Carried::new(set, vec![("text", Arc::new(texts))])
}

fn create(context: &Context, live: &Path) {
    let attributes = vec!["text:text".parse().unwrap()];
    let mut options = CollectionOptions { attributes, ..options(VECTORS, Metric::L2, IdKind::Utf8) };
    (options.index.degree, options.index.build_list) = (Some(8), 16);
    Collection::create(context, live, &options).unwrap();
}

fn upsert(collection: &Collection, rows: &Carried) -> Result<()> {
    collection.write(&Write { upsert: Some(rows), ..Write::default() }, Durability::Group).map(drop)
}

/// Merges with a budget of `memory`. Returns the number of rows, or the budget that the refusal names and its
/// message.
fn merge_within(live: &Path, memory: u64) -> std::result::Result<u64, (u64, String)> {
    let context = Collection::context_of_merge(&Setup { memory, ..Setup::default() }.context(), live);
    let merged = Collection::open(&context, live).and_then(|collection| collection.merge(&context));
    merged.map(|merged| merged.rows).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Budget, "{error}");
        let text = error.to_string();
        let named = text.split("give memory ").nth(1).and_then(|rest| rest.split("MB").next());
        (named.and_then(|named| named.parse::<u64>().ok()).unwrap_or_else(|| panic!("{text}")) * 1_000_000, text)
    })
}

/// Checks that the budget that a refused merge names suffices. Many budgets are tried.
#[test]
fn the_budget_that_a_merge_of_long_rows_names_suffices() {
    const LENGTHS: Lengths = Lengths { id: 2_000, column: 3_000 };
    let folder = tempfile::tempdir().unwrap();
    let (ample, mut refusals) = (Setup::default().context(), 0);
    for (number, too_small) in [19_000_000, 33_000_000, 48_000_000].into_iter().enumerate() {
        let live = folder.path().join(number.to_string());
        create(&ample, &live);
        let collection = Collection::open(&ample, &live).unwrap();
        upsert(&collection, &rows(0..1_000, LENGTHS)).unwrap();
        collection.merge(&ample).unwrap();
        upsert(&collection, &rows(900..1_400, LENGTHS)).unwrap();
        drop(collection);
        let Err((named, refused)) = merge_within(&live, too_small) else { continue };
        assert_eq!(merge_within(&live, named), Ok(1_400), "after {refused}");
        refusals += 1;
    }
    assert!(refusals > 0, "the smallest budget is too small");
}

/// Checks that a merge is refused before any work if the disk has no space for the text ids.
#[test]
fn a_merge_whose_ids_do_not_fit_on_the_disk_is_refused() {
    const LENGTHS: Lengths = Lengths { id: 2_000, column: 1 };
    let device = bare_device();
    let (context, live) = (context_on(&device), Path::new(LIVE));
    create(&context, live);
    let collection = Collection::open(&context, live).unwrap();
    upsert(&collection, &rows(0..300, LENGTHS)).unwrap();
    // The disk has space for the log and for everything else except the ids.
    device.set_free_bytes(collection.statistics().unwrap().unmerged_bytes + 300 * 300);
    let refused = collection.merge(&context).unwrap_err().to_string();
    assert!(refused.contains("a merge needs at least"), "{refused}");
    device.set_free_bytes(1 << 30);
    assert_eq!(collection.merge(&context).unwrap().rows, 300);
}

/// Checks a collection with a budget of 68 MB that refuses writes of long rows. It can still be searched, merged and
/// opened again.
#[test]
fn long_rows_that_could_not_be_merged_are_refused() {
    const LENGTHS: Lengths = Lengths { id: 200, column: 1_000 };
    let merges = || MergerOptions { at_bytes: 2 << 20, threads: 1, retry_after: Duration::from_millis(1) };
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    let context = Setup { memory: 68 << 20, ..Setup::default() }.context();
    create(&context, &live);
    let collection = Arc::new(Collection::open(&context, &live).unwrap());
    let merger = start_merger(&collection, merges()).unwrap();
    let mut taken = 0;
    let refused = (0..200).find_map(|write| {
        let written = upsert(&collection, &rows(200 * write..200 * (write + 1), LENGTHS));
        taken += 200 * u64::from(written.is_ok());
        written.err()
    });
    let refused = refused.expect("not all rows fit");
    assert_eq!(refused.kind(), ErrorKind::Budget, "{refused}");
    assert!(taken > 0 && collection.facts().rows == taken, "{taken}: {refused}");
    let find = |collection: &Collection| {
        let (query, hits) = (rows(7..8, LENGTHS), Collect::default());
        let options = SearchOptions::new(QueryTarget::Nearest(10), SearchEffort::default(), 1);
        collection.search(&context, QuerySources::new(&query), &options, Box::new(hits.clone())).unwrap();
        assert_eq!(hits.batches()[0].values[0], 0.0);
    };
    find(&collection);
    drop(merger);
    collection.merge(&context).unwrap();
    find(&collection);
    drop(collection);
    let again = Arc::new(Collection::open(&context, &live).unwrap());
    assert_eq!(again.facts().rows, taken);
    find(&again);
    start_merger(&again, merges()).unwrap();
}

/// Checks the smallest budget with which one large write is accepted. With it, the collection can also be opened
/// again, which needs a buffer for reading that write from the log.
#[test]
fn a_large_write_that_is_accepted_leaves_room_for_a_restart() {
    const LENGTHS: Lengths = Lengths { id: 2_000, column: 1 };
    const STEP: u64 = 1 << 20;
    let large = rows(0..4_000, LENGTHS);
    let folder = tempfile::tempdir().unwrap();
    let merges = || MergerOptions { at_bytes: 1 << 30, threads: 1, retry_after: Duration::from_millis(1) };
    let accepts = |memory: u64| {
        let (live, context) = (folder.path().join(memory.to_string()), Setup { memory, ..Setup::default() }.context());
        create(&Setup::default().context(), &live);
        let collection = Arc::new(Collection::open(&context, &live).unwrap());
        let Ok(_merger) = start_merger(&collection, merges()) else { return false };
        upsert(&collection, &large).is_ok()
    };
    let least = (0..).map(|step| (63 << 20) + step * STEP).find(|&memory| accepts(memory)).unwrap();
    let context = Setup { memory: least, ..Setup::default() }.context();
    let again = Arc::new(Collection::open(&context, &folder.path().join(least.to_string())).unwrap());
    assert_eq!(again.facts().rows, 4_000);
    start_merger(&again, merges()).unwrap();
}
