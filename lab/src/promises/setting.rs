//! A real set with one threshold and its truth.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use adjoin::{
    BuildOptions, Context, Error, GroundtruthOptions, JoinOptions, JoinStatistics, PairBatch, PairSink, Predicate,
    Result, SourceOptions, Store, Written,
    lab::{
        join::{Prepared, Sets},
        source,
        store::RowSet,
    },
};

use crate::rules::{self, RuleJoin};

/// How the rows of a real set are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joined {
    /// All rows with each other.
    Within,
    /// The first two thirds with the others.
    Between,
    /// The last tenth with all other rows and with each other.
    Grown,
}

impl Joined {
    /// Returns the name, which is also a part of the names of files.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Between => "between",
            Self::Grown => "grown",
        }
    }

    /// Returns the number of the first row of the second part, if there are `rows` rows.
    fn second(self, rows: u64) -> u64 {
        match self {
            Self::Within => rows,
            Self::Between => 2 * rows / 3,
            Self::Grown => rows - rows / 10,
        }
    }

    /// Returns how often a pair counts as a neighbor of its earlier row and of its later row. `second` is the first
    /// row of the second part.
    fn weights(self, earlier: u64, later: u64, second: u64) -> [u32; 2] {
        match (self, earlier < second, later < second) {
            (Self::Within, ..) | (Self::Between, true, false) | (Self::Grown, false, false) => [1, 1],
            (Self::Grown, true, false) => [0, 2],
            _ => [0, 0],
        }
    }
}

/// Stores of the parts of a set, and the number of neighbors of each row.
pub(crate) struct Setting {
    joined: Joined,
    stores: Vec<Store>,
    pub(crate) predicate: Predicate,
    truth: Vec<u32>,
}

/// Result of a join.
pub(crate) struct Reached {
    pub(crate) statistics: JoinStatistics,
    pub(crate) recall: RecallReached,
}

/// Recalls of a join: the fraction of all pairs that were found, and the mean fraction of a vector's neighbors that
/// were found. The latter is given for the first set and for the second set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecallReached {
    pub(crate) pair: f64,
    pub(crate) per_vector: f64,
    pub(crate) per_right_vector: f64,
}

impl Reached {
    /// Returns the number of pairs that the rule admitted, per vector.
    pub(crate) fn compared(&self) -> f64 {
        self.statistics.join.candidate_pairs as f64 / self.statistics.common.rows as f64
    }
}

/// Sink that counts the neighbors of each row. `second` is the first row of the second part.
struct Neighbors {
    joined: Joined,
    second: u64,
    counts: Arc<Mutex<Vec<u32>>>,
}

impl PairSink for Neighbors {
    fn wants_ids(&self) -> bool {
        false
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let mut counts = self.counts.lock().unwrap();
        let rows = counts.len() as u64;
        for (&left, &right) in batch.left_rows.iter().zip(&batch.right_rows) {
            let (earlier, later) = (left % rows, right % rows); // new rows are numbered after all possible old ones
            let [of_earlier, of_later] = self.joined.weights(earlier, later, self.second);
            counts[earlier as usize] += of_earlier;
            counts[later as usize] += of_later;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

impl Setting {
    /// Opens a set. Its store and its truth are computed once and kept in the folder `work`.
    pub(crate) fn open(context: &Context, file: &Path, work: &Path, threshold: f64, joined: Joined) -> Result<Self> {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let predicate = if name.ends_with(".npy") { Predicate::cosine(threshold)? } else { Predicate::l2(threshold)? };
        let names = [file.to_string_lossy().into_owned()];
        let source = source::open(context, &names, &SourceOptions::default())?;
        let rows = source.info().rows;
        let second = joined.second(rows);
        let store = |part: Range<u64>| {
            let is_whole = part == (0..rows);
            let folder = work.join(if is_whole { format!("{name}.store") } else { format!("{name}-{part:?}.store") });
            if adjoin::FolderKind::of(context, &folder)?.is_none() {
                let mut left_out = RowSet::new(rows);
                (0..rows).filter(|row| !part.contains(row)).for_each(|row| left_out.insert(row));
                let left_out = (!is_whole).then(|| Arc::new(left_out));
                let options = BuildOptions { metric: predicate.metric(), left_out, ..BuildOptions::default() };
                Store::build(context, &*source, &folder, &options)?;
            }
            Store::open(context, &folder)
        };
        let parts = [0..second, second..rows].into_iter().filter(|part| !part.is_empty());
        let stores = parts.map(store).collect::<Result<Vec<_>>>()?;
        let kind = if joined == Joined::Within { String::new() } else { format!("{}-", joined.name()) };
        let at = work.join(format!("{name}-{kind}{threshold}.truth"));
        let truth = match fs::read(&at) {
            Ok(bytes) => bytes.as_chunks().0.iter().map(|&count| u32::from_le_bytes(count)).collect(),
            Err(_) => {
                let counts = Arc::new(Mutex::new(vec![0; rows as usize]));
                let options = GroundtruthOptions { predicate, sample: None, seed: 1 };
                options.run(context, &*source, Box::new(Neighbors { joined, second, counts: counts.clone() }))?;
                let truth = std::mem::take(&mut *counts.lock().unwrap());
                let bytes: Vec<u8> = truth.iter().flat_map(|count: &u32| count.to_le_bytes()).collect();
                fs::write(&at, bytes).map_err(|error| Error::device(format!("{}: {error}", at.display())))?;
                truth
            }
        };
        let pairs = truth.iter().map(|&count| u64::from(count)).sum::<u64>() / 2;
        println!("{name} {} at {threshold}: {pairs} pairs", joined.name());
        Ok(Self { joined, stores, predicate, truth })
    }

    fn sets(&self) -> Sets<'_> {
        match (self.joined, &self.stores[..]) {
            (Joined::Between, [left, right]) => Sets::between(left, right),
            (Joined::Grown, [old, new]) => Sets::grown(old, new),
            (_, stores) => (&stores[0]).into(),
        }
    }

    /// Joins once.
    pub(crate) fn join(&self, context: &Context, options: &JoinOptions) -> Result<Reached> {
        self.run(context, &options.prepare(context, self.sets(), false)?)
    }

    /// Joins the set with itself by a rule of the laboratory.
    pub(crate) fn join_by(&self, context: &Context, join: &RuleJoin) -> Result<(rules::Joined, RecallReached)> {
        let joined = join.run(context, &self.stores[0])?;
        let reached = self.recall_of(&joined.found.of_rows);
        Ok((joined, reached))
    }

    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> u64 {
        self.truth.len() as u64
    }

    fn run(&self, context: &Context, prepared: &Prepared) -> Result<Reached> {
        let counts = Arc::new(Mutex::new(vec![0; self.truth.len()]));
        let (joined, second) = (self.joined, self.joined.second(self.truth.len() as u64));
        let sink = Box::new(Neighbors { joined, second, counts: counts.clone() });
        let statistics = prepared.run(context, self.sets(), sink)?;
        let recall = self.recall_of(&counts.lock().unwrap());
        Ok(Reached { statistics, recall })
    }

    /// Returns the recall of a result. `found` has the number of neighbors of each row in the result.
    fn recall_of(&self, found: &[u32]) -> RecallReached {
        let sum = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>();
        let ratio = |found: f64, all: f64| if all > 0.0 { found / all } else { 1.0 };
        let mean_share = |of: Range<usize>| {
            let shares = self.truth[of.clone()].iter().zip(&found[of]).filter(|(truth, _)| **truth > 0);
            let shares: Vec<f64> = shares.map(|(&truth, &found)| f64::from(found) / f64::from(truth)).collect();
            ratio(shares.iter().sum(), shares.len() as f64)
        };
        let end = self.truth.len();
        let second = self.joined.second(end as u64) as usize;
        let [per_vector, per_right_vector] = match self.joined {
            Joined::Between => [mean_share(0..second), mean_share(second..end)],
            _ => [mean_share(0..end); 2],
        };
        RecallReached { pair: ratio(sum(found), sum(&self.truth)), per_vector, per_right_vector }
    }
}
