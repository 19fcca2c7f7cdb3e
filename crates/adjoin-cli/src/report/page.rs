//! The content of a report page, and its output.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;

use adjoin::{Context, Error, Result, device::Reservation, format_number};
use serde::Serialize;

use super::Names;
use super::html::{Drawn, write_html};
use super::lines::{Causes, Lines, ShownLine};
use super::result::{Kind, ResultFile};
use super::rows::{RowTexts, Shares};
use super::table::Texts;

/// Most rows of clusters on the page; the largest clusters that fit are shown.
pub(super) const CLUSTERED_ROWS_SHOWN: usize = 100_000;

/// The data of the page; `assets/report.js` and `assets/explorer.js` use these names.
#[derive(Serialize)]
pub struct Page {
    source: String,
    kind: Kind,
    /// Name of the value in each line, such as `distance`; null if lines have no value.
    value: Option<&'static str>,
    total: u64,
    queries: u64,
    causes: Causes,
    /// Whether rows can be marked to be kept or removed. False if the result is of two sets or has queries.
    decidable: bool,
    stats: Option<serde_json::Value>,
    curve: CurveData,
    sizes: Vec<(u64, u64)>,
    clusters_total: u64,
    clustered_rows: u64,
    /// Ids and texts.
    names: Vec<(String, String)>,
    /// The side of each name, 0 or 1, if equal ids on the two sides are different rows; otherwise empty.
    sides: Vec<u8>,
    /// Names of further columns of the rows. `details` has their values for each name.
    columns: Vec<String>,
    details: Vec<Vec<String>>,
    /// Position of the column of texts, until the rows have their texts.
    #[serde(skip)]
    text_column: Option<usize>,
    shares: Vec<Shares>,
    pairs: LineData,
    clusters: Vec<Vec<u32>>,
    #[serde(skip)]
    is_ordered: bool,
    #[serde(skip)]
    memory: Vec<Reservation>,
}

#[derive(Serialize)]
struct CurveData {
    thresholds: Vec<f32>,
    pairs: Vec<u64>,
}

#[derive(Serialize, Default)]
struct LineData {
    left: Vec<u32>,
    right: Vec<Option<u32>>,
    value: Vec<Option<f32>>,
}

impl Page {
    /// Reads the lines of a file, and leaves `spare_bytes` bytes of memory for inputs that are read afterwards.
    ///
    /// # Errors
    /// If the file cannot be read, is not a result, or has more ids than memory holds.
    pub(super) fn read(
        context: &Context,
        file: &ResultFile,
        of_two_sets: bool,
        stats: Option<serde_json::Value>,
        spare_bytes: u64,
    ) -> Result<Self> {
        let source = file.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A kept row is never removed. So the ids on the left and on the right of removed rows are disjoint, even in
        // one set.
        let are_apart = of_two_sets || file.kind == Kind::Removed;
        let lines = Lines::read(context, file, are_apart, spare_bytes)?;
        let Lines { total, queries, causes, ids, sides, is_ordered, shown, curve, mut clusters, memory } = lines;
        let clusters_total = clusters.len() as u64;
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        clusters.iter().for_each(|members| *sizes.entry(members.len() as u64).or_default() += 1);
        let clustered_rows = sizes.iter().map(|(size, clusters)| size * clusters).sum();
        // The largest cluster is first. If it does not fit, smaller ones may still fit.
        let mut left = CLUSTERED_ROWS_SHOWN;
        clusters.retain(|members| {
            let fits = members.len() <= left;
            left -= if fits { members.len() } else { 0 };
            fits
        });
        let mut names = IdsShown::new(ids, sides);
        let mut pairs = LineData::default();
        for ShownLine { left, right, value } in shown {
            pairs.left.push(names.place(left));
            pairs.right.push(right.map(|right| names.place(right)));
            pairs.value.push(value);
        }
        // The page has only the ids that it shows, so the numbers of ids are replaced by positions among these.
        clusters.iter_mut().flatten().for_each(|member| *member = names.place(*member));
        let sides = names.sides_shown;
        // Texts are added once it is known which ids are on the page.
        let names: Vec<(String, String)> = names.shown.into_iter().map(|id| (id, String::new())).collect();
        Ok(Self {
            source,
            kind: file.kind,
            value: file.value(),
            total,
            queries,
            causes,
            decidable: !of_two_sets && file.kind != Kind::Hits,
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
            columns: Vec::new(),
            details: Vec::new(),
            text_column: None,
            shares: Vec::new(),
            pairs,
            clusters,
            is_ordered,
            memory,
        })
    }

    /// Returns the number of lines of the result.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of lines on the page.
    pub fn shown(&self) -> usize {
        match self.kind {
            Kind::Clusters => self.clusters.iter().map(Vec::len).sum(),
            Kind::Pairs | Kind::Removed | Kind::Hits => self.pairs.value.len(),
        }
    }

    /// Returns the word for a line of the result, in the singular.
    pub fn unit(&self) -> &'static str {
        match self.kind {
            Kind::Pairs => "pair",
            Kind::Removed => "removed row",
            Kind::Clusters => "row",
            Kind::Hits if self.stats.as_ref().is_some_and(|stats| !stats["nearest"].is_null()) => "neighbor",
            Kind::Hits => "hit",
        }
    }

    /// Returns whether the larger number is on the same side in each line, as in a join of one set without ids.
    pub(super) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Returns whether equal ids on the two sides are different rows.
    pub(super) fn has_sides(&self) -> bool {
        !self.sides.is_empty()
    }

    /// Returns the ids on the page that belong to a side. If the two sides are not distinguished, all ids belong to
    /// side 0.
    pub(super) fn ids(&self, side: usize) -> HashSet<&str> {
        let sides = sides_or_first(&self.sides);
        self.names.iter().zip(sides).filter(|&(_, of)| of == side).map(|((id, _), _)| id.as_str()).collect()
    }

    /// Checks that the statistics, if there are any, count the lines of this result.
    ///
    /// # Errors
    /// If they are of another run.
    pub(super) fn check_statistics(&self, result: &Path) -> Result<()> {
        let Some(stats) = &self.stats else { return Ok(()) };
        let (join, dedupe) = (&stats["join"], &stats["dedupe"]);
        let count = |value: &serde_json::Value| value.as_u64();
        let of_clusters = || {
            // A page cannot distinguish rows with equal ids.
            let largest = count(&join["largest_cluster"])
                .filter(|_| self.total > 0 && count(&stats["duplicate_ids"]).unwrap_or(0) == 0);
            (largest, self.sizes.last().map_or(0, |(size, _)| *size), "rows in the largest cluster")
        };
        let (counted, own, unit) = match self.kind {
            Kind::Pairs => (count(&join["pairs"]), self.total, "pairs"),
            Kind::Removed if dedupe.is_object() => {
                let reasons = ["equal_rows", "near_rows", "decided_rows"];
                (reasons.into_iter().map(|rows| count(&dedupe[rows])).sum(), self.total, "removed rows")
            }
            Kind::Removed | Kind::Clusters => of_clusters(),
            Kind::Hits => {
                let hits = count(&stats["nearest"]["neighbors"]).or_else(|| count(&stats["search"]["hits"]));
                (hits, self.total, "hits")
            }
        };
        match counted.filter(|&counted| counted != own) {
            None => Ok(()),
            Some(counted) => {
                let (at, [counted, own]) = (result.display(), [counted, own].map(format_number));
                Err(Error::input(format!(
                    "the statistics are of another run: they count {counted} {unit}, but {at} has {own}; name the \
                     statistics that were written with this result"
                )))
            }
        }
    }

    /// Sets the texts for the ids of a side.
    pub(super) fn give_names(&mut self, side: usize, texts: Texts) {
        let Texts { mut of, memory, .. } = texts;
        self.memory.extend(memory);
        for ((id, text), _) in self.names.iter_mut().zip(sides_or_first(&self.sides)).filter(|&(_, of)| of == side) {
            if let Some(given) = of.remove(id).and_then(|mut texts| texts.pop()) {
                *text = given;
            }
        }
    }

    /// Sets the columns of the rows from the columns that lines carry. [`Self::give_texts`] takes the texts from them.
    pub(super) fn give_columns(&mut self, file: &ResultFile, rows: RowTexts) {
        let RowTexts { by_side, shares, name } = rows;
        (self.shares, self.text_column) = (shares, name);
        self.columns = file.carried.iter().map(|column| column.name.clone()).collect();
        self.details = vec![Vec::new(); if self.columns.is_empty() { 0 } else { self.names.len() }];
        for (side, texts) in by_side.into_iter().enumerate() {
            let Texts { mut of, memory, .. } = texts;
            self.memory.extend(memory);
            let names = self.names.iter_mut().enumerate().zip(sides_or_first(&self.sides));
            for ((k, (id, text)), _) in names.filter(|&(_, of)| of == side) {
                let Some(texts) = of.remove(id) else { continue };
                text.clear();
                self.details[k] = texts;
            }
        }
    }

    /// Sets the texts of the rows without names of a table, from the column of texts that lines carry. Removes this column,
    /// unless some of the names differ from it.
    pub(super) fn give_texts(&mut self) {
        let Some(place) = self.text_column.take() else { return };
        let mut texts =
            self.names.iter().map(|(_, text)| text).zip(&self.details).filter(|(_, texts)| !texts.is_empty());
        let is_repeated = texts.all(|(text, texts)| text.is_empty() || *text == texts[place]);
        let rows = self.names.iter_mut().map(|(_, text)| text).zip(&mut self.details);
        for (text, texts) in rows.filter(|(_, texts)| !texts.is_empty()) {
            if is_repeated {
                *text = texts.remove(place);
            } else if text.is_empty() {
                text.clone_from(&texts[place]);
            }
        }
        if is_repeated {
            self.columns.remove(place);
        }
        if self.columns.is_empty() {
            self.details.clear();
        }
    }

    /// Counts the rows of the whole set by the columns by which lines are counted, if the tables of names have these
    /// columns.
    ///
    /// # Errors
    /// If a table cannot be read, or memory does not suffice.
    pub(super) fn count_rows(&mut self, context: &Context, set: Names<'_>) -> Result<()> {
        self.shares.iter_mut().try_for_each(|shares| shares.count_rows(context, set))
    }

    /// Writes the page as one file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let section = include_str!("../../assets/report.html");
        let script = concat!(include_str!("../../assets/report.js"), include_str!("../../assets/explorer.js"));
        write_html(out, &Drawn { section, script }, self)
    }
}

/// Returns the side of each name. If the two sides are not distinguished, all names are on side 0.
fn sides_or_first(sides: &[u8]) -> impl Iterator<Item = usize> {
    // If there is one side, the iterator does not end: callers zip it with the names.
    let count = if sides.is_empty() { usize::MAX } else { sides.len() };
    (0..count).map(|k| sides.get(k).copied().map_or(0, usize::from))
}

/// Ids of a result, and the ids that are shown on the page, numbered in order of first use.
struct IdsShown {
    all: Vec<String>,
    /// The side of each id; empty if the two sides are not distinguished.
    sides: Vec<u8>,
    places: HashMap<u32, u32>,
    shown: Vec<String>,
    sides_shown: Vec<u8>,
}

impl IdsShown {
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
