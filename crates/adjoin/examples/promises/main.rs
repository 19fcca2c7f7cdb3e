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

#![allow(clippy::unwrap_used, reason = "a poisoned lock is a bug here")]
#![allow(clippy::disallowed_methods, reason = "half of the seeds are to be new ones")]

mod rules;
mod runs;
mod search;
mod setting;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use adjoin::context::Context;
use adjoin::error::Error;

/// More than any of these joins needs: what is in question is recall.
const MEMORY: u64 = 8 << 30;

fn main() {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (data, work, what) = match arguments.as_slice() {
        [data, work] => (data, work, None),
        [data, work, what] if ["rules", "search", "indexes", "parts"].map(OsStr::new).contains(&what.as_os_str()) => {
            (data, work, Some(what.as_os_str()))
        }
        _ => {
            eprintln!("usage: promises DATA WORK [rules|search|indexes|parts]");
            std::process::exit(2);
        }
    };
    let context = Context::default().with_memory(MEMORY);
    let made = fs::create_dir_all(work).map_err(|error| Error::device(format!("{}: {error}", work.display())));
    let holds = made.and_then(|()| match what {
        None => runs::all(&context, data, work),
        Some(what) if what == "parts" => runs::of_parts(&context, data, work),
        Some(what) if what == "search" => search::all(&context, data, work),
        Some(what) if what == "indexes" => search::of_indexes(&context, data, work),
        Some(_) => rules::print(&context, data, work).map(|()| true),
    });
    match holds {
        Ok(true) => {}
        Ok(false) => std::process::exit(1),
        Err(error) => {
            eprintln!("promises: {error}");
            std::process::exit(2);
        }
    }
}
