use std::fmt::Display;

use adjoin::context::Context;
use adjoin::error::{Error, Result};
use adjoin::message::one_line;
use adjoin::options::{format_bytes, format_count};
use adjoin::store::{self, Kind, VerifyReport, kind_of};

use super::{collection, index};
use crate::Outcome;
use crate::args::{Resources, Verify};
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

/// Most damages and leftovers that are listed.
const PRINTED_MAX: usize = 20;

pub(crate) fn verify(arguments: &Verify, stopped: &Stopped) -> Result<Outcome> {
    // Damage to the manifest is an expected finding of verification.
    let kind = kind_of(&Context::default(), &arguments.folder).ok().flatten().unwrap_or(Kind::Store);
    verify_of(arguments, kind, stopped)
}

/// Verifies a folder of a given kind; refuses a folder of another kind.
pub(super) fn verify_of(arguments: &Verify, kind: Kind, stopped: &Stopped) -> Result<Outcome> {
    let Verify { folder, memory, quiet } = arguments;
    let (memory, quiet) = (memory.clone(), *quiet);
    let context = resolve::context(&Resources { memory, threads: None, kernel: None, device: None, quiet }, stopped)?;
    match kind {
        Kind::Index => return index::verify(context, folder, quiet),
        Kind::Collection => return collection::verify(context, folder, quiet),
        Kind::Store => {}
    }
    let report = store::verify(&context, folder)?;
    drop(context); // ends the progress bar
    if !quiet {
        print(&summary(&report))?;
    }
    let Some(remedy) = report.remedy() else { return Ok(Outcome::Done) };
    let count = print_damages(&report.damages, report.damage_count);
    Err(Error::corrupt(format!("{} is damaged, {count} of it; {remedy}", folder.display())))
}

/// Prints the first of `count` damages; returns that number in words.
pub(super) fn print_damages(damages: &[impl Display], count: u64) -> String {
    for damage in damages.iter().take(PRINTED_MAX) {
        eprintln!("{damage}");
    }
    let more = count.saturating_sub(PRINTED_MAX as u64);
    if more > 0 {
        eprintln!("and {more} more");
    }
    format_count(count, "part")
}

fn summary(report: &VerifyReport) -> String {
    let mut text = String::new();
    if report.is_sound() {
        let (bytes, buckets) = (format_bytes(report.bytes_read), format_count(report.buckets, "bucket"));
        text += &format!("sound: all checksums match, {bytes} in {buckets}\n");
    }
    let unknown = report.unknown.iter().map(|(name, role)| {
        format!("of a role that this version does not know: {name}, {role}; it belongs to the store")
    });
    text + &listed(unknown) + &unnamed(("the store", BUILD_LEFT), &report.leftovers, &report.strangers)
}

/// What to do about the leftovers of a build.
pub(super) const BUILD_LEFT: &str = "from a build that did not end; unless a build is at work there, delete it";

/// Lists names in a folder that do not belong to its contents.
pub(super) fn unnamed((whole, of_leftover): (&str, &str), leftovers: &[String], strangers: &[String]) -> String {
    let leftovers = leftovers.iter().map(|name| format!("left over: {name}, {of_leftover}"));
    let strangers = strangers.iter().map(|name| format!("not part of {whole}: {name}"));
    listed(leftovers) + &listed(strangers)
}

/// Returns the first lines, with names in them escaped, and the number of further ones.
fn listed(lines: impl ExactSizeIterator<Item = String>) -> String {
    let more = lines.len().saturating_sub(PRINTED_MAX);
    let text: String = lines.take(PRINTED_MAX).map(|line| one_line(line) + "\n").collect();
    if more > 0 { text + &format!("and {more} more\n") } else { text }
}
