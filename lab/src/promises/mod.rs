//! Measures how often the promised recall is reached, and the cost. Joins real sets and compares the results with the
//! truth.
//!
//! `promises DATA WORK` joins each set many times at many recalls, each time with another seed for the sample. It
//! prints how often the recall is reached, and how often the reported interval contains it. DATA is the folder with
//! the sets. WORK gets the stores, the truth, and the list `runs.csv` with one line per run. Runs in that list are
//! not repeated, so the program can be interrupted. The summary at the end covers all runs. These runs force the
//! calibrated rule, even if finding every pair would cost less. In a smaller number of runs, in `chosen.csv`, the
//! rule is chosen as in a user's join.
//!
//! `promises DATA WORK rules` prints the number of comparisons of each rule. `promises DATA WORK search` measures
//! searches, in `search.csv`. `promises DATA WORK indexes` measures searches of graph indexes, in `index.csv`.
//! `promises DATA WORK parts` measures joins of two sets, in `between.csv`, and joins of new rows with old ones, in
//! `grown.csv`.

mod rules;
mod runs;
mod search;
mod setting;

use std::fs;
use std::path::Path;

use adjoin::{Context, Error, Result};

/// Budget in bytes. It exceeds the needs of all these joins, since only the recall is measured.
const MEMORY: u64 = 8 << 30;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (data, work, what) = match arguments {
        [data, work] => (Path::new(data), Path::new(work), None),
        [data, work, what] => (Path::new(data), Path::new(work), Some(what.as_str())),
        _ => return Err(Error::option("give DATA WORK [rules|search|indexes|parts]")),
    };
    let context = Context::default().with_memory(MEMORY);
    fs::create_dir_all(work).map_err(|error| Error::device(format!("{}: {error}", work.display())))?;
    let holds = match what {
        None => runs::all(&context, data, work),
        Some("parts") => runs::of_parts(&context, data, work),
        Some("search") => search::all(&context, data, work),
        Some("indexes") => search::of_indexes(&context, data, work),
        Some("rules") => rules::print(&context, data, work).map(|()| true),
        Some(_) => Err(Error::option("give DATA WORK [rules|search|indexes|parts]")),
    };
    match holds? {
        true => Ok(()),
        false => Err(Error::input("a promise was not kept; the lines above tell which")),
    }
}
