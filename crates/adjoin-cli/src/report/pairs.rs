//! The pairs of a result, read in two passes: one to collect the ids, one for pairs and clusters.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};

use adjoin::{Components, Context, Error, PairSchema, Result, TableFile, device::Reservation};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_schema::{DataType, Schema};

use super::table::{column, open, texts_of};

/// Purpose of the memory, for error messages.
pub(super) const PURPOSE: &str = "this report";
/// Most pairs on the page; if there are more, the closest.
pub(super) const SHOWN: usize = 100_000;
pub(super) const SHOWN_BYTES: u64 = (SHOWN * 2 * size_of::<Close>()) as u64;
/// Least bytes of a page: the pairs on it, and the first ids.
pub(super) const LEAST_BYTES: u64 = SHOWN_BYTES + IDS_BYTES_AT_ONCE;
/// Number of thresholds on the curve.
const STEPS: usize = 200;
/// Bytes that are reserved at once.
pub(super) const IDS_BYTES_AT_ONCE: u64 = 1 << 20;
/// Bytes of an id in addition to its text: in the map, in its cluster, and on the page.
const BYTES_AN_ID: u64 = 144;

/// Result of both passes.
pub(super) struct Pairs {
    /// `distance` or `similarity`.
    pub(super) value: String,
    pub(super) total: u64,
    pub(super) ids: Vec<String>,
    /// The side of each id, 0 or 1, if the pairs are of two sets; else empty.
    pub(super) sides: Vec<u8>,
    /// Whether each left id is a number below the right one, as row numbers of one set are.
    pub(super) is_ordered: bool,
    /// The closest pairs, in ascending order of rank: positions of left and right in `ids`, and the value.
    pub(super) shown: Vec<(u32, u32, f32)>,
    /// Number of pairs at each threshold.
    pub(super) curve: Vec<(f64, u64)>,
    /// Members of each cluster as positions in `ids`, the largest cluster first.
    pub(super) clusters: Vec<Vec<u32>>,
    /// Memory of the ids and of the pairs that are shown.
    pub(super) memory: Vec<Reservation>,
}

/// Returns the bytes of an id with a text of this length.
pub(super) fn bytes_of_id(text_bytes: usize) -> u64 {
    2 * text_bytes as u64 + BYTES_AN_ID
}

/// A file of pairs.
pub(super) struct PairFile {
    path: PathBuf,
    table: TableFile,
    value: String,
}

/// A pair, ordered by closeness: a max-heap of these returns the farthest first.
struct Close {
    rank: f32,
    pair: (u32, u32),
    value: f32,
}

impl Ord for Close {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(self.pair.cmp(&other.pair))
    }
}

impl PartialOrd for Close {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Close {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Close {}

impl Pairs {
    /// Reads the pairs of a file. If they are of two sets, left and right ids are kept apart. Leaves `spare_bytes`
    /// bytes of memory for inputs that are read afterwards.
    pub(super) fn read(context: &Context, file: PairFile, of_two_sets: bool, spare_bytes: u64) -> Result<Self> {
        let is_similarity = file.value == "similarity";
        let reading = file.reading_bytes()?;
        drop(context.reserve(LEAST_BYTES + reading.max(spare_bytes), PURPOSE)?);
        let shown_memory = context.reserve(SHOWN_BYTES, PURPOSE)?;
        // Held during both passes, so that ids do not take the memory of inputs that are read later.
        let spare = context.reserve(spare_bytes.saturating_sub(reading), PURPOSE)?;
        let right = usize::from(of_two_sets);
        let mut interned = Interned::default();
        let mut is_ordered = true;
        let (mut total, mut low, mut high) = (0u64, f32::INFINITY, f32::NEG_INFINITY);
        // First pass: the second one needs the number of ids and the range of the values.
        file.each(context, |left, right_id, value| {
            total += 1;
            is_ordered = is_ordered && is_before(&left, &right_id);
            interned.place(context, 0, left)?;
            interned.place(context, right, right_id)?;
            (low, high) = (low.min(value), high.max(value));
            Ok(())
        })?;
        let rows = interned.len() as u64;
        let of_components = context.reserve(Components::memory_bytes(rows), PURPOSE)?;
        let _memory = (spare, of_components);
        let mut components = Components::new(rows);
        let (mut shown, mut curve) = (BinaryHeap::new(), Curve::new(low, high, is_similarity));
        // Second pass: only the closest pairs are kept, since memory may not hold all of them.
        file.each(context, |left, right_id, value| {
            let pair = (interned.place(context, 0, left)?, interned.place(context, right, right_id)?);
            components.join(pair.0.into(), pair.1.into());
            curve.add(value);
            let rank = if is_similarity { -value } else { value };
            shown.push(Close { rank, pair, value });
            if shown.len() > SHOWN {
                shown.pop();
            }
            Ok(())
        })?;
        let (ids, sides, mut memory) = interned.into_ids(of_two_sets);
        memory.push(shown_memory);
        let shown = shown.into_sorted_vec().into_iter().map(|Close { pair, value, .. }| (pair.0, pair.1, value));
        Ok(Self {
            value: file.value,
            total,
            shown: shown.collect(),
            curve: curve.points(),
            clusters: clusters_of(&mut components, rows),
            ids,
            sides,
            is_ordered,
            memory,
        })
    }
}

/// Names the result in a table without pairs, by the column that no other result has.
fn other_result(schema: &Schema) -> Option<&'static str> {
    const RESULTS: [(&str, &str); 4] = [
        ("kept_id", "removed rows"),
        ("rank", "the hits of a search"),
        ("count", "counts of neighbors"),
        ("cluster", "clusters of rows"),
    ];
    let has = |name: &str| schema.index_of(name).is_ok();
    // A table with both columns of ids is a file of pairs, even if it has one of the columns above.
    let is_pairs = PairSchema::ID_COLUMNS.into_iter().all(has);
    RESULTS.into_iter().find(|(column, _)| !is_pairs && has(column)).map(|(_, what)| what)
}

/// Returns whether one id is a number below another.
fn is_before(left: &str, right: &str) -> bool {
    matches!((left.parse::<u64>(), right.parse::<u64>()), (Ok(left), Ok(right)) if left < right)
}

fn clusters_of(components: &mut Components, rows: u64) -> Vec<Vec<u32>> {
    let mut members: HashMap<u64, Vec<u32>> = HashMap::new();
    (0..rows).for_each(|row| members.entry(components.first(row)).or_default().push(row as u32));
    let mut clusters: Vec<Vec<u32>> = members.into_values().collect();
    // Ties are broken by the first member, so that the page does not depend on the order in the hash map.
    clusters.sort_by(|a, b| b.len().cmp(&a.len()).then(a[0].cmp(&b[0])));
    clusters
}

impl PairFile {
    pub(super) fn open(context: &Context, path: &Path) -> Result<Self> {
        let table = open(context, path, &PairSchema::ID_COLUMNS)?;
        let schema = table.schema();
        if let Some(what) = other_result(schema) {
            let at = path.display();
            return Err(Error::input(format!(
                "{at} has {what}; report needs the pairs of a join (columns left_id, right_id)"
            )));
        }
        // A JSON file without lines has no columns, so either name will do.
        let is_named = |name: &&str| schema.index_of(name).is_ok() || schema.fields().is_empty();
        let value = ["distance", "similarity"].into_iter().find(is_named);
        let no_pairs = || {
            let at = path.display();
            Error::input(format!("{at} has no column distance or similarity; name the pairs that a join wrote"))
        };
        let value = value.ok_or_else(no_pairs)?.to_owned();
        Ok(Self { path: path.to_owned(), table, value })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the file states that left and right rows are of two sets; CSV and JSON lines never do.
    pub(super) fn is_marked_of_two_sets(&self) -> bool {
        let (key, value) = PairSchema::TWO_SETS;
        self.table.schema().metadata().get(key).is_some_and(|sets| sets == value)
    }

    /// Returns the positions of both ids and of the value.
    fn columns(&self) -> Result<[usize; 3]> {
        let place = |name| column(&self.table, &self.path, name);
        let [left, right] = PairSchema::ID_COLUMNS;
        Ok([place(left)?, place(right)?, place(&self.value)?])
    }

    /// Returns the bytes that reading the pairs takes.
    pub(super) fn reading_bytes(&self) -> Result<u64> {
        if self.table.schema().fields().is_empty() { Ok(0) } else { self.table.reading_bytes(&self.columns()?) }
    }

    /// Returns bounds on the number of pairs and on the bytes of their ids as texts.
    pub(super) fn size(&self) -> Result<(u64, u64)> {
        if self.table.schema().fields().is_empty() { Ok((0, 0)) } else { self.table.size(&self.columns()?[..2]) }
    }

    /// Passes the ids of one side to `take`, which takes less memory than reading pairs.
    ///
    /// # Errors
    /// If the file cannot be read, memory does not suffice, or `take` fails.
    pub(super) fn each_id(&self, context: &Context, side: usize, mut take: impl FnMut(&str)) -> Result<()> {
        if self.table.schema().fields().is_empty() {
            return Ok(()); // a JSON file without lines has no pairs
        }
        self.table.each(context, &self.columns()?[side..=side], |_, batch| {
            let id = texts_of(batch.column(0))?;
            (0..batch.num_rows()).try_for_each(|row| id(row).map(|id| take(&id)))
        })
    }

    /// Passes the ids and the value of each pair to `take`.
    ///
    /// # Errors
    /// If the file cannot be read, memory does not suffice, or `take` fails.
    pub(super) fn each(
        &self,
        context: &Context,
        mut take: impl FnMut(String, String, f32) -> Result<()>,
    ) -> Result<()> {
        if self.table.schema().fields().is_empty() {
            return Ok(()); // a JSON file without lines has no pairs
        }
        self.table.each(context, &self.columns()?, |first, batch| {
            let values = self.values(first, batch, 2)?;
            let (left, right) = (texts_of(batch.column(0))?, texts_of(batch.column(1))?);
            values.into_iter().enumerate().try_for_each(|(k, value)| take(left(k)?, right(k)?, value))
        })
    }

    fn values(&self, first: u64, batch: &RecordBatch, column: usize) -> Result<Vec<f32>> {
        let values = batch.column(column);
        let floats = match values.data_type() {
            DataType::Float32 => values.as_primitive::<Float32Type>().values().to_vec(),
            DataType::Float64 => values.as_primitive::<Float64Type>().values().iter().map(|&x| x as f32).collect(),
            DataType::Int64 => {
                let whole = values.as_primitive::<arrow_array::types::Int64Type>();
                whole.values().iter().map(|&x| x as f32).collect()
            }
            _ => Vec::new(),
        };
        match floats.iter().position(|value| !value.is_finite()) {
            None if floats.len() == batch.num_rows() => Ok(floats),
            bad => {
                let (at, row) = (self.path.display(), first + bad.unwrap_or(0) as u64);
                Err(Error::input(format!("{at}: row {row} has no number as its {}; write the pairs again", self.value)))
            }
        }
    }
}

/// Ids of each side with their numbers, in order of first use; with one set, all are on the first side.
#[derive(Default)]
struct Interned {
    places: [HashMap<String, u32>; 2],
    /// Bytes that may be added before more memory is reserved.
    granted_bytes: u64,
    memory: Vec<Reservation>,
}

impl Interned {
    fn len(&self) -> usize {
        self.places.iter().map(HashMap::len).sum()
    }

    fn place(&mut self, context: &Context, side: usize, id: String) -> Result<u32> {
        let next = self.len();
        if let Some(&place) = self.places[side].get(&id) {
            return Ok(place);
        }
        let bytes = bytes_of_id(id.len());
        // A reservation for each id would be slow, so a larger one is taken and used up.
        if bytes > self.granted_bytes {
            let granted = bytes.max(IDS_BYTES_AT_ONCE);
            self.memory.push(context.reserve(granted, PURPOSE)?);
            self.granted_bytes = granted;
        }
        self.granted_bytes -= bytes;
        let place = u32::try_from(next).map_err(|_| Error::input("more ids than a page can have"))?;
        self.places[side].insert(id, place);
        Ok(place)
    }

    fn into_ids(self, of_two_sets: bool) -> (Vec<String>, Vec<u8>, Vec<Reservation>) {
        let mut sides = vec![0; if of_two_sets { self.len() } else { 0 }];
        self.places[1].values().for_each(|&place| sides[place as usize] = 1);
        let places = self.places.into_iter().flatten();
        let mut ids: Vec<(u32, String)> = places.map(|(id, place)| (place, id)).collect();
        // Numbers follow the order of first use, which a hash map does not keep.
        ids.sort_unstable();
        (ids.into_iter().map(|(_, id)| id).collect(), sides, self.memory)
    }
}

/// Number of pairs at each of several thresholds.
struct Curve {
    low: f64,
    width: f64,
    is_similarity: bool,
    steps: Vec<u64>,
}

impl Curve {
    fn new(low: f32, high: f32, is_similarity: bool) -> Self {
        let (low, high) = (f64::from(low), f64::from(high));
        Self { low, width: (high - low) / STEPS as f64, is_similarity, steps: vec![0; STEPS] }
    }

    fn add(&mut self, value: f32) {
        // The range is empty if all values are equal.
        let step = if self.width > 0.0 { ((f64::from(value) - self.low) / self.width) as usize } else { 0 };
        // The largest value is the end of the last step.
        self.steps[step.min(STEPS - 1)] += 1;
    }

    /// Returns thresholds in ascending order, with the number of pairs within each.
    fn points(self) -> Vec<(f64, u64)> {
        let edge = |k: usize| self.low + self.width * k as f64;
        if self.steps.iter().all(|&pairs| pairs == 0) {
            return Vec::new(); // no pairs, no range of thresholds
        }
        let mut sum = 0;
        let mut add = |pairs: u64| {
            sum += pairs;
            sum
        };
        // A lower similarity includes more pairs, so the sum starts at the high end.
        if self.is_similarity {
            let mut points: Vec<_> = (0..STEPS).rev().map(|k| (edge(k), add(self.steps[k]))).collect();
            points.reverse();
            points
        } else {
            (0..STEPS).map(|k| (edge(k + 1), add(self.steps[k]))).collect()
        }
    }
}
