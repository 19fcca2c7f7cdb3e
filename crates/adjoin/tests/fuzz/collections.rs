//! Fuzz tests of the files of a collection. Checksums are corrected after the damage, so that it reaches the code
//! behind the checks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Collect, Collection, CollectionOptions, Condition, Context, Durability, Element, ErrorKind, IdKind, Ids,
    IndexOptions, Metric, QueryTarget, Random, Result, SearchEffort, SearchOptions, SourceOptions, VectorSource,
    VectorType, Write,
    lab::{collection::Put, query::QuerySources, source::open},
};
use adjoin_device::{Device, FaultPlan, Keep, SimulatedDevice};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::mutate::mutate;
use crate::{MEMORY_MAX, check_error, fuzz_each};

const LIVE: &str = "data/live";
/// Budget of the process that opens a collection.
const BUDGET: u64 = 96 << 20;
/// Only one out of every 10 cases is run, since each case opens, searches and writes.
const SHARE: u64 = 10;
const VECTORS: VectorType = VectorType { element: Element::F32, dimensions: 3 };
/// Number of rows of the source.
const ROWS: u32 = 20;
const HEADER_BYTES: usize = 64;
const HEAD_BYTES: usize = 40;

/// A device with a collection, which has a merge and later writes, and with a source of the collection's vectors.
struct Whole {
    device: SimulatedDevice,
}

/// Opens the source of the vectors on a device.
fn rows_on(context: &Context) -> Result<Arc<dyn VectorSource>> {
    open(context, &["data/rows.jsonl".into()], &SourceOptions::default())
}

fn context_on(device: &SimulatedDevice) -> Context {
    let mut context = Context::default().with_memory(BUDGET);
    context.device = Arc::new(device.clone());
    context.threads = 1;
    context
}

impl Whole {
    fn new() -> Self {
        let line = |k: u32| match k % 3 {
            0 => format!("{{\"v\": [{k}, 0, 1.5], \"name\": null, \"size\": {k}, \"is_even\": true}}\n"),
            _ => format!("{{\"v\": [{k}, 2, 0], \"name\": \"n{k}\", \"size\": {k}.0, \"is_even\": null}}\n"),
        };
        let device = SimulatedDevice::new(FaultPlan::None);
        device.put("data/rows.jsonl", (0..ROWS).map(line).collect::<String>().as_bytes());
        let context = context_on(&device);
        let rows = rows_on(&context).unwrap();
        let (degree, code_bytes) = (Some(4), Some(2));
        let index = IndexOptions { degree, build_list: 8, code_bytes, ..IndexOptions::default() };
        let (metric, ids) = (Metric::L2, IdKind::Int64);
        let attributes = ["name:text", "size:int64", "is_even:bool"].map(|text| text.parse().unwrap()).to_vec();
        let options = CollectionOptions { vectors: VECTORS, metric, ids, attributes, index };
        Collection::create(&context, Path::new(LIVE), &options).unwrap();
        let collection = Collection::open(&context, Path::new(LIVE)).unwrap();
        collection.load(&*rows, Put::Insert, Durability::Group).unwrap();
        collection.merge(&context).unwrap();
        let gone = Ids::Int64(vec![1, 3]);
        collection.write(&Write { delete: Some(&gone), ..Write::default() }, Durability::Group).unwrap();
        collection.load(&*rows, Put::Upsert, Durability::Group).unwrap();
        collection.close().unwrap();
        Self { device }
    }

    /// Returns the path of the file in the collection's folder with a name that starts with `start`.
    fn path(&self, start: &str) -> PathBuf {
        let names = self.device.list(Path::new(LIVE)).unwrap();
        let name = names.iter().find(|name| name.to_str().unwrap().starts_with(start)).unwrap();
        Path::new(LIVE).join(name)
    }

    /// Replaces the file at `path` by `bytes`, and opens, searches, writes to and verifies the collection. Returns
    /// the first error.
    fn survive(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let device = self.device.after_crash(Keep::Everything);
        device.put(path, bytes);
        let context = context_on(&device);
        let worked = || -> Result<()> {
            let rows = rows_on(&context)?;
            let collection = Collection::open(&context, Path::new(LIVE))?;
            collection.get_attributes(&Ids::Int64((0..9).collect()))?;
            let mut options = SearchOptions::new(QueryTarget::Nearest(3), SearchEffort::List(5), 1);
            for condition in [None, Some("name like 'n%' or size < 5")] {
                options.filter = condition.map(Condition::parse).transpose()?;
                collection.search(&context, QuerySources::new(&*rows), &options, Box::new(Collect::default()))?;
            }
            collection.delete_where(&Condition::parse("is_even")?, Durability::Buffered)?;
            collection.load(&*rows, Put::Upsert, Durability::Group)?;
            collection.close()
        };
        let worked = worked();
        for error in
            [worked.as_ref().err(), Collection::verify(&context, Path::new(LIVE)).as_ref().err()].into_iter().flatten()
        {
            // If the damaged collection has another vector type, the error may name the rows and not the collection.
            let name = if error.to_string().contains(LIVE) { LIVE } else { "rows.jsonl" };
            assert!(error.kind() == ErrorKind::Budget || error.kind() != ErrorKind::Cancelled);
            if error.kind() != ErrorKind::Budget {
                check_error(error, name);
            }
        }
        worked
    }

    /// Mutates the file with a name that starts with `start`, and uses the collection. `put_right` corrects the
    /// checksums. Prints how many of the damaged collections work.
    fn fuzz(&self, target: &str, start: &str, put_right: impl Fn(&mut Vec<u8>, &mut Random)) {
        let path = self.path(start);
        let whole = self.device.bytes(&path).unwrap();
        let mut worked = 0;
        fuzz_each(target, SHARE, MEMORY_MAX, |random| {
            let mut bytes = whole.clone();
            mutate(random, &mut bytes, std::slice::from_ref(&whole));
            put_right(&mut bytes, random);
            worked += u32::from(self.survive(&path, &bytes).is_ok());
        });
        eprintln!("{target}: {worked} work");
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
}

fn put_number(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// Corrects the checksums of a log, and in most cases the chain of its records.
fn seal_log(bytes: &mut [u8], random: &mut Random) {
    if bytes.len() < HEADER_BYTES {
        return;
    }
    let header = xxh3_64(&bytes[..HEADER_BYTES - 8]);
    put_number(bytes, HEADER_BYTES - 8, header);
    let salt = number(bytes, 16);
    let (mut at, mut previous) = (HEADER_BYTES, number(bytes, 32));
    while at + HEAD_BYTES <= bytes.len() {
        let payload = number(bytes, at + 8) as u32 as usize;
        let end = at.saturating_add((HEAD_BYTES + payload).next_multiple_of(8));
        if end > bytes.len() {
            return;
        }
        if random.below(8) > 0 {
            put_number(bytes, at + 24, previous);
        }
        previous = xxh3_64_with_seed(&bytes[at + 8..end], salt);
        put_number(bytes, at, previous);
        at = end;
    }
}

#[test]
fn an_undamaged_collection_passes() {
    let whole = Whole::new();
    let path = whole.path("log-");
    whole.survive(&path, &whole.device.bytes(&path).unwrap()).unwrap();
}

#[test]
fn logs() {
    Whole::new().fuzz("log", "log-", |bytes, random| seal_log(bytes, random));
}

#[test]
fn places_of_ids() {
    Whole::new().fuzz("places", "places-", |bytes, _| {
        for (number, block) in (0..).zip(bytes.chunks_exact_mut(4_096)) {
            let checksum = xxh3_64_with_seed(&block[8..], number);
            block[..8].copy_from_slice(&checksum.to_le_bytes());
        }
    });
}

#[test]
fn manifests_of_live_indexes() {
    Whole::new().fuzz("live manifest", "manifest", |bytes, _| {
        let Some(at) = std::str::from_utf8(bytes).ok().and_then(|text| text.find("\"manifest_xxh3\": \"")) else {
            return;
        };
        let digits = at + "\"manifest_xxh3\": \"".len();
        let Some(place) = bytes.get_mut(digits..digits + 16) else { return };
        place.fill(b'0');
        let checksum = format!("{:016x}", xxh3_64(bytes));
        bytes[digits..digits + 16].copy_from_slice(checksum.as_bytes());
    });
}
