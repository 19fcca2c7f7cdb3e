//! What is on the page, and the page.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use adjoin::context::Context;
use adjoin::error::Result;
use serde::Serialize;

use super::pairs::Pairs;

/// Rows of clusters that are shown, the largest clusters first.
const CLUSTERED_ROWS_SHOWN: usize = 100_000;
/// Most characters of a text.
const TEXT_MAX: usize = 400;

/// Everything that the page draws; `assets/report.js` knows the names.
#[derive(Serialize)]
pub(crate) struct Page {
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
    /// Makes a page of the pairs in a file.
    ///
    /// # Errors
    /// Where the file cannot be read, is no result, or has more ids than memory holds.
    pub(crate) fn read(context: &Context, path: &Path, stats: Option<serde_json::Value>) -> Result<Self> {
        let Pairs { value, total, ids, shown, curve, mut clusters } = Pairs::read(context, path)?;
        let (clusters_total, clustered_rows) = (clusters.len() as u64, ids.len() as u64);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        clusters.iter().for_each(|members| *sizes.entry(members.len() as u64).or_default() += 1);
        let mut rows = 0;
        let fitting = clusters.iter().take_while(|members| {
            rows += members.len();
            rows <= CLUSTERED_ROWS_SHOWN
        });
        let fitting = fitting.count();
        clusters.truncate(fitting);
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
        })
    }

    /// Pairs of the result.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Pairs on the page.
    pub(crate) fn shown(&self) -> usize {
        self.pairs.value.len()
    }

    /// The ids on it.
    pub(crate) fn ids(&self) -> HashSet<&str> {
        self.names.iter().map(|(id, _)| id.as_str()).collect()
    }

    /// Shows texts for ids.
    pub(crate) fn give_names(&mut self, texts: HashMap<String, String>) {
        for (id, text) in &mut self.names {
            if let Some(given) = texts.get(id) {
                *text = given.chars().take(TEXT_MAX).collect();
            }
        }
    }

    /// The page as one file.
    pub(crate) fn html(&self) -> String {
        let data = serde_json::to_string(self).expect("numbers and texts are JSON");
        let parts = [
            ("{{chart_style}}", include_str!("../../assets/uplot.min.css")),
            ("{{style}}", include_str!("../../assets/report.css")),
            ("{{chart_script}}", include_str!("../../assets/uplot.min.js")),
            ("{{script}}", include_str!("../../assets/report.js")),
            // Last, as texts may look like a place; none of them may end the element.
            ("{{data}}", &data.replace('<', "\\u003c")),
        ];
        let template = include_str!("../../assets/report.html").to_owned();
        parts.iter().fold(template, |page, (place, part)| page.replacen(place, part, 1))
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
            self.shown.push(self.all[id as usize].clone());
            self.shown.len() as u32 - 1
        })
    }
}
