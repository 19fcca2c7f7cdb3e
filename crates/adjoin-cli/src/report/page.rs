//! The content of a report page, and its output.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};

use adjoin::{Context, Result, device::Reservation};
use serde::Serialize;

use super::html::{Drawn, write_html};
use super::pairs::{PairFile, Pairs};
use super::table::Texts;

/// Most rows of clusters on the page; the largest clusters that fit are shown.
pub(super) const CLUSTERED_ROWS_SHOWN: usize = 100_000;

/// The data of the page; `assets/report.js` uses these names.
#[derive(Serialize)]
pub struct Page {
    source: String,
    value: String,
    total: u64,
    stats: Option<serde_json::Value>,
    curve: CurveData,
    sizes: Vec<(u64, u64)>,
    clusters_total: u64,
    clustered_rows: u64,
    /// Ids and texts.
    names: Vec<(String, String)>,
    /// The side of each name, 0 or 1, if the pairs are of two sets; else empty.
    sides: Vec<u8>,
    pairs: PairData,
    clusters: Vec<Vec<u32>>,
    #[serde(skip)]
    is_ordered: bool,
    #[serde(skip)]
    memory: Vec<Reservation>,
}

#[derive(Serialize)]
struct CurveData {
    thresholds: Vec<f64>,
    pairs: Vec<u64>,
}

#[derive(Serialize, Default)]
struct PairData {
    left: Vec<u32>,
    right: Vec<u32>,
    value: Vec<f32>,
}

impl Page {
    /// Reads the pairs of a file, and leaves `spare_bytes` bytes of memory for inputs that are read afterwards.
    ///
    /// # Errors
    /// If the file cannot be read, is not a result, or has more ids than memory holds.
    pub(super) fn read(
        context: &Context,
        file: PairFile,
        of_two_sets: bool,
        stats: Option<serde_json::Value>,
        spare_bytes: u64,
    ) -> Result<Self> {
        let source = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pairs = Pairs::read(context, file, of_two_sets, spare_bytes)?;
        let Pairs { value, total, ids, sides, is_ordered, shown, curve, mut clusters, memory } = pairs;
        let (clusters_total, clustered_rows) = (clusters.len() as u64, ids.len() as u64);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        clusters.iter().for_each(|members| *sizes.entry(members.len() as u64).or_default() += 1);
        // The largest cluster is first. If it does not fit, smaller ones may still fit.
        let mut left = CLUSTERED_ROWS_SHOWN;
        clusters.retain(|members| {
            let fits = members.len() <= left;
            left -= if fits { members.len() } else { 0 };
            fits
        });
        let mut names = Names::new(ids, sides);
        let mut pairs = PairData::default();
        for (left, right, value) in shown {
            pairs.left.push(names.place(left));
            pairs.right.push(names.place(right));
            pairs.value.push(value);
        }
        // Numbers of ids become positions on the page, which has only the ids that it shows.
        clusters.iter_mut().flatten().for_each(|member| *member = names.place(*member));
        let sides = names.sides_shown;
        // Texts are added once it is known which ids are on the page.
        let names: Vec<(String, String)> = names.shown.into_iter().map(|id| (id, String::new())).collect();
        Ok(Self {
            source,
            value,
            total,
            stats,
            curve: CurveData {
                thresholds: curve.iter().map(|point| point.0).collect(),
                pairs: curve.iter().map(|point| point.1).collect(),
            },
            sizes: sizes.into_iter().collect(),
            clusters_total,
            clustered_rows,
            names,
            sides,
            pairs,
            clusters,
            is_ordered,
            memory,
        })
    }

    /// Returns the number of pairs of the result.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of pairs on the page.
    pub fn shown(&self) -> usize {
        self.pairs.value.len()
    }

    /// Returns whether each left id is a number below the right one.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Returns the ids of a side on the page; with one set, all ids are on side 0.
    pub(crate) fn ids(&self, side: usize) -> HashSet<&str> {
        let sides = sides_or_first(&self.sides);
        self.names.iter().zip(sides).filter(|&(_, of)| of == side).map(|((id, _), _)| id.as_str()).collect()
    }

    /// Sets the texts for the ids of a side.
    pub(super) fn give_names(&mut self, side: usize, texts: Texts) {
        let Texts { mut of, memory, .. } = texts;
        self.memory.extend(memory);
        for ((id, text), _) in self.names.iter_mut().zip(sides_or_first(&self.sides)).filter(|&(_, of)| of == side) {
            if let Some(given) = of.remove(id) {
                *text = given;
            }
        }
    }

    /// Writes the page as one file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (section, script) = (include_str!("../../assets/report.html"), include_str!("../../assets/report.js"));
        write_html(out, &Drawn { section, script }, self)
    }
}

/// Returns the side of each name; 0 for all if there is one set.
fn sides_or_first(sides: &[u8]) -> impl Iterator<Item = usize> {
    // Endless for one set, since it is zipped with the names.
    let count = if sides.is_empty() { usize::MAX } else { sides.len() };
    (0..count).map(|k| sides.get(k).copied().map_or(0, usize::from))
}

/// All ids, and the ones on the page, which are numbered in order of first use.
struct Names {
    all: Vec<String>,
    /// The side of each id; empty if there is one set.
    sides: Vec<u8>,
    places: HashMap<u32, u32>,
    shown: Vec<String>,
    sides_shown: Vec<u8>,
}

impl Names {
    fn new(all: Vec<String>, sides: Vec<u8>) -> Self {
        Self { all, sides, places: HashMap::new(), shown: Vec::new(), sides_shown: Vec::new() }
    }

    fn place(&mut self, id: u32) -> u32 {
        *self.places.entry(id).or_insert_with(|| {
            self.shown.push(std::mem::take(&mut self.all[id as usize])); // taken only once
            self.sides_shown.extend(self.sides.get(id as usize));
            self.shown.len() as u32 - 1
        })
    }
}
