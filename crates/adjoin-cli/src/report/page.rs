//! What is on the page, and the page.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Write};
use std::path::Path;

use adjoin::context::Context;
use adjoin::device::Reservation;
use adjoin::error::Result;
use serde::Serialize;

use super::html::{Drawn, write_html};
use super::pairs::Pairs;

/// Rows of clusters that are shown, the largest first of those that fit.
const CLUSTERED_ROWS_SHOWN: usize = 100_000;

/// Everything that the page draws; `assets/report.js` knows the names.
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
    /// Id and text.
    names: Vec<(String, String)>,
    pairs: PairData,
    clusters: Vec<Vec<u32>>,
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
    /// Makes a page of the pairs in a file, and leaves `beside` bytes for what is read afterwards.
    ///
    /// # Errors
    /// Where the file cannot be read, is no result, or has more ids than memory holds.
    pub(crate) fn read(context: &Context, path: &Path, stats: Option<serde_json::Value>, beside: u64) -> Result<Self> {
        let Pairs { value, total, ids, shown, curve, mut clusters, memory } = Pairs::read(context, path, beside)?;
        let (clusters_total, clustered_rows) = (clusters.len() as u64, ids.len() as u64);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        clusters.iter().for_each(|members| *sizes.entry(members.len() as u64).or_default() += 1);
        let mut left = CLUSTERED_ROWS_SHOWN;
        clusters.retain(|members| {
            let fits = members.len() <= left;
            left -= if fits { members.len() } else { 0 };
            fits
        });
        let mut names = Names::new(ids);
        let mut pairs = PairData::default();
        for (left, right, value) in shown {
            pairs.left.push(names.place(left));
            pairs.right.push(names.place(right));
            pairs.value.push(value);
        }
        clusters.iter_mut().flatten().for_each(|member| *member = names.place(*member));
        let names: Vec<(String, String)> = names.shown.into_iter().map(|id| (id, String::new())).collect();
        Ok(Self {
            source: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
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
            pairs,
            clusters,
            memory,
        })
    }

    /// Pairs of the result.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Pairs on the page.
    pub fn shown(&self) -> usize {
        self.pairs.value.len()
    }

    /// The ids on it.
    pub(crate) fn ids(&self) -> HashSet<&str> {
        self.names.iter().map(|(id, _)| id.as_str()).collect()
    }

    /// Shows texts for ids.
    pub(crate) fn give_names(&mut self, (mut texts, memory): (HashMap<String, String>, Vec<Reservation>)) {
        self.memory.extend(memory);
        for (id, text) in &mut self.names {
            if let Some(given) = texts.remove(id) {
                *text = given;
            }
        }
    }

    /// Writes the page as one file.
    ///
    /// # Errors
    /// Where `out` refuses.
    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let (section, script) = (include_str!("../../assets/report.html"), include_str!("../../assets/report.js"));
        write_html(out, &Drawn { section, script }, self)
    }
}

/// Those of many ids that are shown, numbered as they come.
struct Names {
    all: Vec<String>,
    places: HashMap<u32, u32>,
    shown: Vec<String>,
}

impl Names {
    fn new(all: Vec<String>) -> Self {
        Self { all, places: HashMap::new(), shown: Vec::new() }
    }

    fn place(&mut self, id: u32) -> u32 {
        *self.places.entry(id).or_insert_with(|| {
            self.shown.push(std::mem::take(&mut self.all[id as usize])); // it is asked for once
            self.shown.len() as u32 - 1
        })
    }
}
