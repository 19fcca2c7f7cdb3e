//! Reads the lines of a result in two passes. The first collects the ids. The second selects the lines to show, and
//! computes the clusters.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use adjoin::{Components, Context, Error, Result, device::Reservation};
use serde::Serialize;

use super::result::{Kind, Line, ResultFile};

/// Purpose of the memory, for error messages.
pub(super) const PURPOSE: &str = "this report";
/// Most lines on the page.
pub(super) const SHOWN: usize = 100_000;
pub(super) const SHOWN_BYTES: u64 = (SHOWN * 2 * size_of::<Shown>()) as u64;
/// Least bytes of a page: the lines on it, and the first ids.
pub(super) const LEAST_BYTES: u64 = SHOWN_BYTES + IDS_BYTES_AT_ONCE;
/// Value of the right row if a line has no right row.
const NO_ROW: u32 = u32::MAX;
/// Largest number of thresholds on the curve.
const STEPS: usize = 200;
/// Bytes that are reserved at once.
pub(super) const IDS_BYTES_AT_ONCE: u64 = 1 << 20;
/// Bytes of an id in addition to its text: in the map, in its cluster, and on the page.
const BYTES_AN_ID: u64 = 144;

/// Result of both passes.
pub(super) struct Lines {
    pub(super) total: u64,
    /// Number of distinct queries if the lines are hits, otherwise 0.
    pub(super) queries: u64,
    pub(super) causes: Causes,
    pub(super) ids: Vec<String>,
    /// The side of each id, 0 or 1, if equal ids on the two sides are different rows; otherwise empty.
    pub(super) sides: Vec<u8>,
    /// Whether the larger number is on the same side in each line, as in a join of one set without ids.
    pub(super) is_ordered: bool,
    /// The lines on the page, the most important first.
    pub(super) shown: Vec<ShownLine>,
    /// Number of lines at each threshold.
    pub(super) curve: Vec<(f32, u64)>,
    /// Members of each cluster as positions in `ids`, the largest cluster first.
    pub(super) clusters: Vec<Vec<u32>>,
    /// Memory of the ids and of the lines that are shown.
    pub(super) memory: Vec<Reservation>,
}

/// A line on the page: positions of its rows in the ids, and its value.
pub(super) struct ShownLine {
    pub(super) left: u32,
    pub(super) right: Option<u32>,
    pub(super) value: Option<f32>,
}

/// Number of removed rows by the reason of their removal.
#[derive(Default, Serialize)]
pub(super) struct Causes {
    near: u64,
    equal: u64,
    decided: u64,
}

impl Causes {
    fn add(&mut self, line: &Line) {
        *match line {
            Line { right: None, .. } => &mut self.decided,
            Line { value: None, .. } => &mut self.equal,
            _ => &mut self.near,
        } += 1;
    }
}

/// Returns the bytes of an id with a text of this length.
pub(super) fn bytes_of_id(text_bytes: usize) -> u64 {
    2 * text_bytes as u64 + BYTES_AN_ID
}

/// A line on the page, ordered by its rank. A max-heap of such lines returns the least important line first.
struct Shown {
    rank: f32,
    /// The right row is `NO_ROW` if there is none.
    pair: (u32, u32),
    /// NaN if there is none.
    value: f32,
}

impl Shown {
    fn line(self) -> ShownLine {
        let Self { pair: (left, right), value, .. } = self;
        ShownLine {
            left,
            right: Some(right).filter(|&right| right != NO_ROW),
            value: Some(value).filter(|value| value.is_finite()),
        }
    }
}

impl Ord for Shown {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.total_cmp(&other.rank).then(self.pair.cmp(&other.pair))
    }
}

impl PartialOrd for Shown {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Shown {}

/// Result of the first pass.
struct Collected {
    interned: Interned,
    is_ordered: bool,
    total: u64,
    queries: u64,
    low: f32,
    high: f32,
    causes: Causes,
}

impl Lines {
    /// Reads the lines of a file. If `of_two_sets` is true, equal ids of the first and the second set are different
    /// rows. Leaves `spare_bytes` bytes of memory for inputs that are read afterwards.
    pub(super) fn read(context: &Context, file: &ResultFile, of_two_sets: bool, spare_bytes: u64) -> Result<Self> {
        let reading = file.reading_bytes()?;
        drop(context.reserve(LEAST_BYTES + reading.max(spare_bytes), PURPOSE)?);
        let shown_memory = context.reserve(SHOWN_BYTES, PURPOSE)?;
        // This reservation is held during both passes. It keeps the ids from using memory that later inputs need.
        let spare = context.reserve(spare_bytes.saturating_sub(reading), PURPOSE)?;
        let Collected { mut interned, is_ordered, total, queries, low, high, causes } =
            Self::collect(context, file, of_two_sets)?;
        let rows = interned.len() as u64;
        let components_bytes = if file.kind == Kind::Hits { 0 } else { Components::memory_bytes(rows) };
        let of_components = context.reserve(components_bytes, PURPOSE)?;
        let _memory = (spare, of_components);
        let mut components = Components::new(if file.kind == Kind::Hits { 0 } else { rows });
        let (mut shown, mut curve) = (BinaryHeap::new(), Curve::new(low, high, file.is_similarity()));
        let mut number = 0;
        // Second pass: only the most important lines are kept, since memory may not hold all of them.
        file.each(context, |Line { left, right: right_id, sets, value }| {
            value.iter().for_each(|&value| curve.add(value));
            number += 1;
            if file.kind == Kind::Hits && number > SHOWN {
                return Ok(());
            }
            let sets = sets.map(|set| if of_two_sets { set } else { 0 });
            let left = interned.place(context, sets[0], left)?;
            let right = right_id.map_or(Ok(NO_ROW), |id| interned.place(context, sets[1], id))?;
            match (file.kind, right) {
                (Kind::Hits, _) | (_, NO_ROW) => (),
                _ => components.join(left.into(), right.into()),
            }
            if file.kind != Kind::Clusters {
                let rank = rank(file, number, value);
                shown.push(Shown { rank, pair: (left, right), value: value.unwrap_or(f32::NAN) });
            }
            if shown.len() > SHOWN {
                shown.pop();
            }
            Ok(())
        })?;
        let (ids, sides, mut memory) = interned.into_ids(of_two_sets);
        memory.push(shown_memory);
        let clusters = if file.kind == Kind::Hits { Vec::new() } else { clusters_of(&mut components, rows) };
        let shown = shown.into_sorted_vec().into_iter().map(Shown::line).collect();
        Ok(Self { total, queries, causes, shown, curve: curve.points(), clusters, ids, sides, is_ordered, memory })
    }

    /// Reads the lines a first time, since the second pass needs the number of ids and the range of the values.
    fn collect(context: &Context, file: &ResultFile, of_two_sets: bool) -> Result<Collected> {
        let (low, high) = (f32::INFINITY, f32::NEG_INFINITY);
        let interned = Interned::default();
        let causes = Causes::default();
        let mut all = Collected { interned, is_ordered: true, total: 0, queries: 0, low, high, causes };
        let mut query = None;
        file.each(context, |line| {
            all.total += 1;
            all.causes.add(&line);
            let Line { left, right: right_id, sets, value } = line;
            if let Some(value) = value {
                (all.low, all.high) = (all.low.min(value), all.high.max(value));
            }
            if file.kind == Kind::Hits {
                // The hits of a query are next to each other.
                if query.as_ref() != Some(&left) {
                    all.queries += 1;
                    query = Some(left.clone());
                }
                // Hits form no clusters, and the page shows only the first hits, so the ids of later hits are not
                // needed.
                if all.total > SHOWN as u64 {
                    return Ok(());
                }
            }
            all.is_ordered = all.is_ordered
                && right_id.as_ref().is_none_or(|right| match file.kind {
                    Kind::Removed => is_before(right, &left),
                    Kind::Clusters => true,
                    Kind::Pairs | Kind::Hits => is_before(&left, right),
                });
            let sets = sets.map(|set| if of_two_sets { set } else { 0 });
            all.interned.place(context, sets[0], left)?;
            right_id.map_or(Ok(()), |id| all.interned.place(context, sets[1], id).map(drop))
        })?;
        Ok(all)
    }
}

/// Returns the rank of a line. Lines with the smallest ranks are shown first: the closest pairs, the removed rows
/// that are farthest from their kept rows (the doubtful ones), and the first hits.
fn rank(file: &ResultFile, number: usize, value: Option<f32>) -> f32 {
    let farness = value.map(|value| if file.is_similarity() { -value } else { value });
    match file.kind {
        Kind::Removed => farness.map_or(f32::INFINITY, |farness| -farness),
        Kind::Pairs | Kind::Clusters => farness.unwrap_or(f32::NEG_INFINITY),
        // All numbers up to the last shown line are exact in f32.
        Kind::Hits => number as f32,
    }
}

/// Returns whether both ids are numbers, and `left` is the smaller one.
fn is_before(left: &str, right: &str) -> bool {
    matches!((left.parse::<u64>(), right.parse::<u64>()), (Ok(left), Ok(right)) if left < right)
}

fn clusters_of(components: &mut Components, rows: u64) -> Vec<Vec<u32>> {
    let mut members: HashMap<u64, Vec<u32>> = HashMap::new();
    // Rows that were removed without a kept row are in no cluster.
    for row in 0..rows {
        if components.is_paired(row) {
            members.entry(components.first(row)).or_default().push(row as u32);
        }
    }
    let mut clusters: Vec<Vec<u32>> = members.into_values().collect();
    // Clusters of one size are ordered by the first member, so that the page does not depend on the order in the hash
    // map.
    clusters.sort_by(|a, b| b.len().cmp(&a.len()).then(a[0].cmp(&b[0])));
    clusters
}

/// Numbers of the ids on each side, in order of first use. If there is one set, all ids are on the first side.
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
    /// Distinct thresholds in ascending order. They are `f32` like the values, so that a value on a threshold is within
    /// it, here and on the page.
    thresholds: Vec<f32>,
    is_similarity: bool,
    /// For each threshold, the number of values that are within it, but not within the next stricter one.
    steps: Vec<u64>,
}

impl Curve {
    fn new(low: f32, high: f32, is_similarity: bool) -> Self {
        let (low, width) = (f64::from(low), f64::from(high) - f64::from(low));
        // The loosest threshold is the lowest similarity or the highest distance.
        let first = usize::from(!is_similarity);
        let threshold = |k: usize| (low + width * k as f64 / STEPS as f64) as f32;
        let mut thresholds: Vec<f32> = (first..first + STEPS).map(threshold).collect();
        thresholds.dedup();
        Self { is_similarity, steps: vec![0; thresholds.len()], thresholds }
    }

    fn add(&mut self, value: f32) {
        let step = if self.is_similarity {
            self.thresholds.partition_point(|&threshold| threshold <= value).saturating_sub(1)
        } else {
            self.thresholds.partition_point(|&threshold| threshold < value).min(self.steps.len() - 1)
        };
        self.steps[step] += 1;
    }

    /// Returns thresholds in ascending order, with the number of pairs within each.
    fn points(self) -> Vec<(f32, u64)> {
        if self.steps.iter().all(|&pairs| pairs == 0) {
            return Vec::new(); // no pairs, no range of thresholds
        }
        let mut sum = 0;
        let sums = |pairs: &u64| {
            sum += pairs;
            sum
        };
        // A lower similarity includes more pairs, so the sum starts at the high end.
        let pairs: Vec<u64> = if self.is_similarity {
            let mut pairs: Vec<u64> = self.steps.iter().rev().map(sums).collect();
            pairs.reverse();
            pairs
        } else {
            self.steps.iter().map(sums).collect()
        };
        self.thresholds.into_iter().zip(pairs).collect()
    }
}
