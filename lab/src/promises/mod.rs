//! Is the promise of recall kept, and what does it cost? Joins whole real sets and compares what was found with the
//! truth.
//!
//! `promises DATA WORK` joins them many times, each with a sample of another seed, at many recalls, and says how often
//! the recall is reached and the printed interval holds it. DATA has the sets, WORK the stores, the truth and one line for
//! each run in `runs.csv`. Runs that are listed there are not made again, so it can be interrupted; the summary at the
//! end is of all of them. The calibrated rule is forced: where it would cost less to find every pair, a user gets
//! every pair. Fewer runs, in `chosen.csv`, are those that a user gets.
//!
//! `promises DATA WORK rules` prints what each rule compares instead; `promises DATA WORK search` does the same as the first
//! with searches, in `search.csv`, `promises DATA WORK indexes` with those of graph indexes, in `index.csv`, and
//! `promises DATA WORK parts` with joins of two sets, in `between.csv`, and of rows that come to others, in `grown.csv`.

mod rules;
mod runs;
mod search;
mod setting;

use std::fs;
use std::path::Path;

use adjoin::context::Context;
use adjoin::error::{Error, Result};

/// More than any of these joins needs: what is in question is recall.
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
