//! Writes to a collection while searches and sources hold a snapshot of it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use adjoin::{
    Collect, Collection, Condition, Durability, Ids, QueryTarget, Random, Result, SearchEffort, SearchOptions,
    SourceInfo, VectorScan, VectorSource, lab::query::QuerySources,
};

use super::sources::scanned;
use super::{IDS, LIVE, Model, QUERY, Step, VECTORS, by_distance, content, context_on, device, sorted};
use crate::harness::Set;

/// A query that calls a function before it is read. A search that reads it holds its snapshot by then.
struct Interrupting<'a> {
    query: Set,
    interrupt: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl VectorSource for Interrupting<'_> {
    fn info(&self) -> &SourceInfo {
        self.query.info()
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        if let Some(interrupt) = self.interrupt.lock().unwrap().take() {
            interrupt();
        }
        self.query.scan(batch_bytes)
    }

    fn scan_bytes(&self, batch_bytes: u64) -> u64 {
        self.query.scan_bytes(batch_bytes)
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        self.query.locate(row)
    }
}

/// Checks that a search finds the rows of its begin, no matter what is deleted, replaced, refused, undone and merged
/// before it compares the first row. The next search must see these changes.
#[test]
fn searches_keep_their_rows_while_others_write() {
    let device = device();
    let context = &context_on(&device);
    let collection = &Collection::open(context, Path::new(LIVE)).unwrap();
    let (mut model, mut random) = (Model::new(), Random::new(11, "held"));
    for round in 0..120 {
        let steps: Vec<Step> = (0..3)
            .scan(model.clone(), |after, _| {
                let step = Step::draw(&mut random, after);
                step.apply(after);
                Some(step)
            })
            .collect();
        let below = (round % 3 == 2).then_some(random.below(200) as u8);
        let change = || {
            // The refused write deletes rows in memory and on disk, and is then undone.
            device.set_free_bytes(0);
            let refused =
                Step { delete: (0..IDS as i64 / 2).collect(), upsert: Model::from([(1, [1; 3])]), ..Step::default() };
            assert!(refused.write(collection, Durability::Group).is_err());
            device.set_free_bytes(1 << 30);
            steps.iter().for_each(|step| _ = step.write(collection, Durability::Buffered).unwrap());
            if round % 10 == 9 {
                collection.merge(context).unwrap();
            }
        };
        let query = Set::of_stored(VECTORS, QUERY.to_vec());
        let query = Interrupting { query, interrupt: Mutex::new(Some(Box::new(change))) };
        let mut options = SearchOptions::new(QueryTarget::Nearest(2 * IDS), SearchEffort::default(), 1);
        options.filter = below.map(|below| Condition::parse(&format!("size < {below}")).unwrap());
        let hits = Collect::default();
        // A search takes all free memory of its context, so writes need another one.
        collection.search(&context_on(&device), QuerySources::new(&query), &options, Box::new(hits.clone())).unwrap();
        assert!(query.interrupt.lock().unwrap().is_none(), "the search has read its query");
        let batches = hits.batches();
        let Ids::Int64(ids) = &batches[0].ids else { panic!("ids are integers") };
        let squared = batches[0].values.iter().map(|&far| f64::from(far).powi(2).round());
        let is_wanted = |vector: &[u8]| below.is_none_or(|below| vector[0] < below);
        let wanted = model.clone().into_iter().filter(|(_, vector)| is_wanted(vector)).collect();
        assert_eq!(sorted(squared.zip(ids.iter().copied()).collect()), by_distance(&wanted), "round {round}");
        steps.iter().for_each(|step| step.apply(&mut model));
        assert_eq!(content(context, collection).unwrap(), model, "round {round}");
    }
    let facts = collection.facts();
    assert!(facts.unmerged < facts.rows, "rows are in memory and on disk: {facts:?}");
}

/// Checks that snapshots of one open collection, which share its rows and its lists of deleted rows, never change.
/// Their memory returns to the budget.
#[test]
fn snapshots_of_an_open_collection_never_change() {
    let device = device();
    let context = &context_on(&device);
    let collection = Collection::open(context, Path::new(LIVE)).unwrap();
    let (mut model, mut random) = (Model::new(), Random::new(12, "held"));
    let mut held = Vec::new();
    for round in 0..60 {
        let step = Step::draw(&mut random, &model);
        step.apply(&mut model);
        step.write(&collection, Durability::Buffered).unwrap();
        if round % 13 == 12 {
            collection.merge(context).unwrap();
        }
        held.push((collection.snapshot(), model.clone()));
    }
    for (source, model) in &held {
        assert_eq!(scanned(source, 20), *model);
    }
    drop(held);
    drop(collection);
    assert_eq!(context.budget().reserved(), 0);
}
