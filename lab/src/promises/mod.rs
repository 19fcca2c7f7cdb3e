//! Measures how often the promised recall is reached, and its cost. Joins whole real sets and compares the results with
//! the truth.
//!
//! `promises DATA WORK` joins each set many times at many recalls, each time with a sample of another seed. It prints
//! how often the recall is reached and how often the printed interval contains it. DATA has the sets; WORK gets the
//! stores, the truth, and one line for each run in `runs.csv`. Runs that are listed there are not repeated, so the
//! program can be interrupted; the summary at the end covers all runs. These runs force the calibrated rule, even if
//! finding every pair would cost less. Fewer runs, in `chosen.csv`, choose the rule as a user's join does.
//!
//! `promises DATA WORK rules` prints instead the comparisons of each rule. `promises DATA WORK search` measures
//! searches, in `search.csv`; `promises DATA WORK indexes` searches of graph indexes, in `index.csv`; `promises DATA
//! WORK parts` joins of two sets, in `between.csv`, and joins of new rows with old ones, in `grown.csv`.

mod rules;
mod runs;
mod search;
mod setting;

use std::fs;
use std::path::Path;

use adjoin::{Context, Error, Result};

/// More than any of these joins needs, since the question is recall.
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
