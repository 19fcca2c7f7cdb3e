//! One join on many machines: a plan of its parts, the run of a part, and the merge of all results.
//!
//! [`PartPlan::create`] plans and calibrates once, and writes the plan to one file. [`PartPlan::run_part`] runs a
//! part. Its result depends only on the plan and the store, so it has equal bytes on any machine. [`PartPlan::merge`]
//! passes the records of all parts to the sinks that a join on one machine uses.

mod merge;
mod plan;
mod run;
mod timed;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ResultKind;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::part_files::PartFiles;
use crate::base::report::CommonStatistics;
use crate::base::sealed::{SealedKind, SealedReader};
use crate::join::{Done, JoinOptions, JoinPlan, PlannedPart};
use crate::plan::Task;
use crate::sink::PartContent;
use crate::store::Store;

/// Plans and results of parts, as files.
const PLAN: SealedKind =
    SealedKind { magic: *b"adjPLAN\n", version: 1, name: "the plan of a join in parts", remedy: "plan again" };
const PART: SealedKind =
    SealedKind { magic: *b"adjPART\n", version: 1, name: "the result of a part", remedy: "run that part again" };
/// Maximum number of parts of a plan.
pub(crate) const PARTS_MAX: u32 = 100_000;
/// Bytes of a task in a plan, and tasks in a frame.
const TASK_BYTES: usize = 8;
const TASKS_A_FRAME: usize = 64 << 10;

/// Options of a plan in parts.
#[derive(Debug, Clone)]
pub struct PartOptions {
    /// The join.
    pub join: JoinOptions,
    /// Number of parts.
    pub parts: u32,
    /// The result that the parts are merged to. From parts for pairs, every result can be merged.
    pub result: ResultKind,
}

/// The plan of a join in parts.
pub struct PartPlan {
    path: PathBuf,
    head: PlanHead,
    /// Checksum of the file, which identifies its bytes.
    seal: u64,
}

/// First frame of a plan. The other frames have the tasks.
#[derive(Serialize, Deserialize)]
struct PlanHead {
    store: PathBuf,
    result: String,
    content: PartContent,
    /// The plan without its tasks.
    plan: JoinPlan,
    tasks: usize,
    /// Bytes that a single run of all tasks reads.
    whole_read_bytes: u64,
    parts: Vec<PlannedPart>,
    facts: Vec<PartFacts>,
    /// Checksum of the plan without its times, by which parts identify their plan. Plans of older versions have none.
    identity: Option<String>,
}

/// Predictions for a part.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct PartFacts {
    /// Number of the part, from 1.
    pub part: u32,
    /// Pairs of buckets that it compares.
    pub tasks: u64,
    /// Pairs of rows in these buckets.
    pub comparisons: u64,
    /// Buckets that it reads.
    pub buckets: u64,
    /// Bytes that it reads.
    pub read_bytes: u64,
    /// Bytes of the buckets that other parts read as well.
    pub halo_bytes: u64,
    /// Memory budget with which the part reads only `read_bytes` bytes.
    pub memory_bytes: u64,
    /// Seconds that the part takes on the machine that created the plan.
    pub seconds: f64,
}

/// Statistics of a plan.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)] // docs/statistics.md explains each
pub struct PlanStatistics {
    #[serde(flatten)]
    pub common: CommonStatistics,
    pub plan: PlanCounts,
}

/// Totals of a plan, and its parts.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct PlanCounts {
    pub parts: Vec<PartFacts>,
    pub read_bytes: u64,
    pub read_bytes_of_one_machine: u64,
    /// Number of comparisons of the largest part, divided by the mean.
    pub balance: f64,
}

/// Returns the records that parts must have so that a result can be merged.
fn content_of(result: ResultKind) -> PartContent {
    match result {
        ResultKind::Pairs => PartContent::Pairs,
        ResultKind::Removed | ResultKind::Kept => PartContent::Rows,
        ResultKind::Clusters => PartContent::Forest,
        ResultKind::Counts => PartContent::Counts,
    }
}

impl PartPlan {
    /// Reads a plan.
    ///
    /// # Errors
    /// Fails if the file is missing, damaged, or of another kind or version.
    pub fn read(context: &Context, path: &Path) -> Result<Self> {
        let at = path.display();
        let Some(mut reader) = SealedReader::open(context, path, PLAN)? else {
            return Err(Error::input(format!("{at} is missing; name the file that adjoin plan has written")));
        };
        let seal = reader.seal();
        let frame = reader.next()?.unwrap_or_default().to_vec();
        // The plan of the join has its own version, which is checked before the plan is used.
        let head: PlanHead = serde_json::from_slice(&frame).map_err(|error| {
            Error::input(format!("{at} is a plan of another version of adjoin ({error}); plan again"))
        })?;
        head.plan.check_version()?;
        let mut ends = head.parts.iter().map(|part| part.end);
        let is_whole = head.parts.len() == head.facts.len()
            && (1..=PARTS_MAX as usize).contains(&head.parts.len())
            && ends.clone().is_sorted()
            && ends.next_back() == Some(head.tasks);
        if !is_whole {
            return Err(reader.damaged());
        }
        Ok(Self { path: path.to_owned(), head, seal })
    }

    /// Returns the predictions for each part.
    pub fn parts(&self) -> &[PartFacts] {
        &self.head.facts
    }

    /// Returns the result for which the plan was created.
    pub fn result(&self) -> ResultKind {
        self.head.result.parse().unwrap_or_default()
    }

    /// Opens the store, at the path in the plan, or at the path `elsewhere` if it is given.
    ///
    /// # Errors
    /// Fails if the store cannot be opened.
    pub fn open_store(&self, context: &Context, elsewhere: Option<&Path>) -> Result<Store> {
        Store::open(context, elsewhere.unwrap_or(&self.head.store))
    }

    /// Parses the number of a part, such as `3/256`.
    ///
    /// # Errors
    /// Fails if there is no such part.
    pub fn part_number(&self, text: &str) -> Result<u32> {
        self.files().number(text)
    }

    /// Returns the files of the parts.
    fn files(&self) -> PartFiles<'_> {
        PartFiles { plan: &self.path, parts: self.head.parts.len() as u32 }
    }

    /// Reads the tasks of a part.
    fn tasks(&self, context: &Context, number: u32) -> Result<Vec<Task>> {
        let part = number as usize - 1;
        let begin = part.checked_sub(1).map_or(0, |before| self.head.parts[before].end);
        let end = self.head.parts[part].end;
        let Some(mut reader) = SealedReader::open(context, &self.path, PLAN)? else {
            return Err(Error::input(format!("{} is missing", self.path.display())));
        };
        if reader.seal() != self.seal {
            return Err(Error::input(format!("{} was replaced during the run; start again", self.path.display())));
        }
        reader.next()?;
        let (mut tasks, mut at) = (Vec::with_capacity(end - begin), 0);
        while let Some(frame) = reader.next()? {
            for &task in frame.as_chunks::<TASK_BYTES>().0 {
                if (begin..end).contains(&at) {
                    let task = u64::from_le_bytes(task);
                    tasks.push((task as u32, (task >> 32) as u32));
                }
                at += 1;
            }
        }
        if at != self.head.tasks {
            return Err(reader.damaged());
        }
        Ok(tasks)
    }

    /// Opens the result of a part. Returns `None` if there is none.
    fn open_part(&self, context: &Context, folder: &Path, number: u32) -> Result<Option<SealedReader>> {
        self.files().open(context, folder, number, PART, &self.part_head(number))
    }

    fn part_head(&self, part: u32) -> PartHead {
        // A plan of a version that recorded no identity is identified by the checksum of all of its bytes.
        let plan = self.head.identity.clone().unwrap_or_else(|| format!("{:016x}", self.seal));
        PartHead { plan, part, content: self.head.content }
    }
}

/// First frame of the result of a part. The records follow; the last frame has the counts.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct PartHead {
    plan: String,
    part: u32,
    content: PartContent,
}

/// Last frame of the result of a part, with its counts. It is a JSON object, which no frame of records is.
#[derive(Serialize, Deserialize)]
struct PartEnd {
    frames: u64,
    done: Done,
}
