//! Collections. Acknowledged writes must never be lost, and no other rows may appear.

mod attributes;
mod background;
mod backups;
mod buckets;
mod carried;
mod crashes;
mod damage;
mod held;
mod history;
#[cfg(adjoin_shuttle)]
mod interleavings;
mod long_rows;
mod regions;
mod rows;
mod sources;
mod statistics;
mod steps;
mod strays;
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Collect, Collection, CollectionOptions, Condition, Context, Durability, Element, IdKind, Ids, IndexOptions, Metric,
    QueryTarget, Random, Result, SearchEffort, SearchOptions, VectorType, Write, WriteReport,
    device::{Device, FaultPlan, SimulatedDevice},
    lab::query::QuerySources,
};
use arrow_array::{ArrayRef, Int64Array, StringArray};

use self::carried::{Carried, attributes_of};
use crate::harness::{Set, Setup};

pub(crate) const LIVE: &str = "data/live";
const DIMENSIONS: usize = 3;
const VECTORS: VectorType = VectorType { element: Element::U8, dimensions: DIMENSIONS };
/// Ids are below this number.
const IDS: u64 = 40;
const QUERY: [u8; DIMENSIONS] = [7, 100, 200];

/// Vectors that a collection must have, by id.
pub(crate) type Model = BTreeMap<i64, [u8; DIMENSIONS]>;

/// Content of one write.
#[derive(Debug, Clone, Default)]
pub(crate) struct Step {
    delete: Vec<i64>,
    insert: Model,
    upsert: Model,
    /// If set, the write consists only of a filter: it deletes vectors with a first element below this number.
    delete_below: Option<u8>,
}

impl Step {
    /// Returns a random step that a collection with the vectors `there` accepts.
    pub(crate) fn draw(random: &mut Random, there: &Model) -> Self {
        let mut step = Self::default();
        if random.below(12) == 0 {
            return Self { delete_below: Some(random.below(80) as u8), ..step };
        }
        for _ in 0..=random.below(4) {
            let (id, vector) = (random.below(IDS) as i64, [(); DIMENSIONS].map(|()| random.below(256) as u8));
            if step.delete.contains(&id) || step.insert.contains_key(&id) || step.upsert.contains_key(&id) {
                continue;
            }
            match random.below(3) {
                0 => step.delete.push(id),
                1 if !there.contains_key(&id) => drop(step.insert.insert(id, vector)),
                _ => drop(step.upsert.insert(id, vector)),
            }
        }
        step
    }

    pub(crate) fn apply(&self, model: &mut Model) {
        let is_below = |vector: &[u8]| self.delete_below.is_some_and(|least| vector[0] < least);
        model.retain(|id, vector| !self.delete.contains(id) && !is_below(vector));
        model.extend(self.insert.clone());
        model.extend(self.upsert.clone());
    }

    pub(crate) fn write(&self, collection: &Collection, durability: Durability) -> Result<WriteReport> {
        if let Some(least) = self.delete_below {
            return collection.delete_where(&Condition::parse(&format!("size < {least}"))?, durability);
        }
        let delete = Ids::Int64(self.delete.clone());
        let [insert, upsert] = [&self.insert, &self.upsert].map(set);
        collection.write(&Write { delete: Some(&delete), insert: Some(&insert), upsert: Some(&upsert) }, durability)
    }
}

/// Returns the vectors of a model as a source, with ids and columns.
pub(crate) fn set(model: &Model) -> Carried {
    let ids: Vec<i64> = model.keys().copied().collect();
    Carried::of(Set::of_stored(VECTORS, model.values().flatten().copied().collect()).with_ids(&ids))
}

pub(crate) fn context_on(device: &SimulatedDevice) -> Context {
    let device: Arc<dyn Device> = Arc::new(device.clone());
    Setup { threads: 1, ..Setup::default() }.context_on(device)
}

/// Returns a device without a collection.
fn bare_device() -> SimulatedDevice {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/unrelated", b"stays");
    device
}

/// Returns a device with an empty collection.
pub(crate) fn device() -> SimulatedDevice {
    let device = bare_device();
    create(&context_on(&device)).unwrap();
    device
}

pub(crate) fn create(context: &Context) -> Result<()> {
    Collection::create(context, Path::new(LIVE), &options_of_steps())
}

/// Returns options of a collection that accepts [`Step`]s.
fn options_of_steps() -> CollectionOptions {
    let attributes = ["name:text", "size:int64"].map(|text| text.parse().unwrap()).to_vec();
    CollectionOptions { attributes, ..options(VECTORS, Metric::L2, IdKind::Int64) }
}

/// Returns options of a collection with the default graph.
pub(crate) fn options(vectors: VectorType, metric: Metric, ids: IdKind) -> CollectionOptions {
    CollectionOptions { vectors, metric, ids, attributes: Vec::new(), index: IndexOptions::default() }
}

/// Returns the content of a collection. It is read in every possible way, and all ways must agree.
pub(crate) fn content(context: &Context, collection: &Collection) -> std::result::Result<Model, String> {
    let model = rows(collection).map_err(|error| error.to_string())?;
    if collection.facts().rows != model.len() as u64 {
        return Err(format!("{} rows, but {} ids have one", collection.facts().rows, model.len()));
    }
    for below in [None, Some(90)] {
        let found = found_below(context, collection, below).map_err(|error| error.to_string())?;
        let is_wanted = |vector: &[u8]| below.is_none_or(|below| vector[0] < below);
        let wanted = by_distance(&model.clone().into_iter().filter(|(_, vector)| is_wanted(vector)).collect());
        if found != wanted {
            return Err(format!("found {found:?} below {below:?}, there are {wanted:?}"));
        }
    }
    let ids = Ids::Int64(model.keys().copied().collect());
    let columns = collection.get_attributes(&ids).map_err(|error| error.to_string())?;
    let names: StringArray = model.values().map(|vector| attributes_of(vector[0]).0).collect();
    let sizes: Int64Array = model.values().map(|vector| Some(attributes_of(vector[0]).1)).collect();
    if columns.columns() != [Arc::new(names.clone()) as ArrayRef, Arc::new(sizes.clone())] {
        return Err(format!("columns {columns:?}, they should be {names:?} and {sizes:?}"));
    }
    Ok(model)
}

/// Looks up all ids, and returns the rows that exist.
fn rows(collection: &Collection) -> Result<Model> {
    let all: Vec<i64> = (0..IDS as i64).collect();
    let got = collection.get(&Ids::Int64(all.clone()))?;
    Ok(all.iter().zip(got).filter_map(|(&id, vector)| Some((id, vector?.try_into().unwrap()))).collect())
}

/// Returns the hits that a search should find if the collection equals the model: pairs of squared distance and id.
fn by_distance(model: &Model) -> Vec<(f64, i64)> {
    let squared = |vector: &[u8]| vector.iter().zip(QUERY).map(|(&x, y)| (f64::from(x) - f64::from(y)).powi(2)).sum();
    sorted(model.iter().map(|(&id, vector)| (squared(vector), id)).collect())
}

fn sorted(mut rows: Vec<(f64, i64)>) -> Vec<(f64, i64)> {
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap());
    rows
}

/// Searches for all rows. Returns pairs of squared distance and id.
fn found(context: &Context, collection: &Collection) -> Result<Vec<(f64, i64)>> {
    found_below(context, collection, None)
}

/// Searches for all rows with a first element below `below`. Returns pairs of squared distance and id.
fn found_below(context: &Context, collection: &Collection, below: Option<u8>) -> Result<Vec<(f64, i64)>> {
    let (queries, hits) = (Set::of_stored(VECTORS, QUERY.to_vec()), Collect::default());
    let mut options = SearchOptions::new(QueryTarget::Nearest(2 * IDS), SearchEffort::default(), 1);
    options.filter = below.map(|below| Condition::parse(&format!("size < {below}"))).transpose()?;
    collection.search(context, QuerySources::new(&queries), &options, Box::new(hits.clone()))?;
    let batches = hits.batches();
    let Ids::Int64(ids) = &batches[0].ids else { panic!("ids are integers") };
    let squared = batches[0].values.iter().map(|&far| f64::from(far).powi(2).round());
    Ok(sorted(squared.zip(ids.iter().copied()).collect()))
}
