//! Joins that DiskJoin is compared with in its Figure 7. They run in memory and use the kernels of the engine.
//!
//! `other-joins cluster-join|rshj FILE EPS ROWS [NAME=VALUE]...` joins the first ROWS rows of a `.u8bin` file within
//! the distance EPS. It prints pairs, computed distances and seconds as JSON. Names for ClusterJoin are `partitions`
//! and `seed`. Names for RSHJ are `tables`, `hashes` per table, `width` of a slot in multiples of EPS, `cover` as a
//! fraction of EPS, `memory` that it may use, and `seed`.

mod cluster_join;
mod rshj;

use adjoin::{Context, Error, Result, kernels::Panel, lab::report::Stopwatch};
use serde_json::json;

/// Input of a join: rows, the threshold `eps`, and its square as the limit of squared distances.
struct Joined<'a> {
    context: &'a Context,
    rows: &'a Panel<u8>,
    eps: f64,
    limit: u32,
}

/// Number of pairs that a join found, and number of distances that it computed. The latter includes distances for
/// choosing the pairs to compare.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    pairs: u64,
    distances: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.distances += other.distances;
    }
}

/// Options of the form NAME=VALUE.
struct Options<'a>(&'a [String]);

impl Options<'_> {
    fn value(&self, name: &str, usual: f64) -> Result<f64> {
        let text = self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        text.map_or(Ok(usual), number)
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Result<N> {
    text.parse().map_err(|_| Error::option(format!("{text} is no number that fits")))
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let [way, file, eps, rows, options @ ..] = arguments else {
        return Err(Error::option("give cluster-join or rshj, a u8bin file, a distance and how many rows"));
    };
    let (rows, eps): (Panel<u8>, f64) = (read(file, number(rows)?)?, number(eps)?);
    let joined = Joined { context: &Context::default(), rows: &rows, eps, limit: (eps * eps) as u32 };
    let watch = Stopwatch::start();
    let Counts { pairs, distances } = match way.as_str() {
        "cluster-join" => cluster_join::join(&joined, &Options(options))?,
        "rshj" => rshj::join(&joined, &Options(options))?,
        _ => return Err(Error::option(format!("{way} is neither cluster-join nor rshj"))),
    };
    println!("{}", json!({"pairs": pairs, "distances": distances, "seconds": watch.seconds()}));
    Ok(())
}

/// Reads the first rows of a u8bin file.
fn read(file: &str, count: usize) -> Result<Panel<u8>> {
    let bytes = std::fs::read(file).map_err(|error| Error::input(format!("{file}: {error}")))?;
    let (header, elements) = bytes.split_at_checked(8).ok_or_else(|| Error::input(format!("{file}: too short")))?;
    let dimensions = header[4..].iter().rev().fold(0, |n, &byte| n << 8 | usize::from(byte));
    let mut panel = Panel::zeroed(count, dimensions);
    let mut vectors = elements.chunks_exact(dimensions.max(1));
    for row in 0..count {
        let vector = vectors.next().ok_or_else(|| Error::input(format!("{file} has {row} vectors")))?;
        panel.row_mut(row).copy_from_slice(vector);
    }
    Ok(panel)
}
