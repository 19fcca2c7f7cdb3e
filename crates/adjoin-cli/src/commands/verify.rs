use adjoin::error::{Error, Result};
use adjoin::options::format_bytes;
use adjoin::store::{self, VerifyReport};

use crate::Outcome;
use crate::args::{Resources, Verify};
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

/// Damages and leftovers that are printed one by one.
const PRINTED_MAX: usize = 20;

pub(crate) fn verify(arguments: &Verify, stopped: &Stopped) -> Result<Outcome> {
    let Verify { store, memory, quiet } = arguments;
    let resources = Resources { memory: memory.clone(), threads: None, kernel: None, device: None, quiet: *quiet };
    let context = resolve::context(&resources, stopped)?;
    let report = store::verify(&context, store)?;
    drop(context); // ends the progress bar
    if !quiet {
        print(&summary(&report))?;
    }
    let Some(remedy) = report.remedy() else { return Ok(Outcome::Done) };
    for damage in report.damages.iter().take(PRINTED_MAX) {
        eprintln!("{damage}");
    }
    let more = report.damage_count.saturating_sub(PRINTED_MAX as u64);
    if more > 0 {
        eprintln!("and {more} more");
    }
    let (count, what) = (report.damage_count, if report.damage_count == 1 { "part" } else { "parts" });
    Err(Error::corrupt(format!("{} is damaged, {count} {what} of it; {remedy}", store.display())))
}

fn summary(report: &VerifyReport) -> String {
    let mut text = String::new();
    if report.is_sound() {
        let (bytes, buckets) = (format_bytes(report.bytes_read), report.buckets);
        text += &format!("sound: all {bytes} are as written, {buckets} buckets\n");
    }
    for name in report.leftovers.iter().take(PRINTED_MAX) {
        text += &format!("left over: {name} is no part of the store; unless a build is at work there, delete it\n");
    }
    if report.leftovers.len() > PRINTED_MAX {
        text += &format!("and {} more left over\n", report.leftovers.len() - PRINTED_MAX);
    }
    text
}
