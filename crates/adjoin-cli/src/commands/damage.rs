//! Lists of damage and leftovers in a folder.

use std::fmt::Display;

use adjoin::{Message, format_count};

/// Maximum number of damages and of leftovers that are listed.
const PRINTED_MAX: usize = 20;

/// Prints the first of `count` damages. Returns `count` in words.
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

/// Origin of the leftovers of a build, with the remedy.
pub(super) const BUILD_LEFT: &str = "from an interrupted build; delete it unless a build is running there";

/// Lists the names in a folder that do not belong to its `contents`. `origin` describes where the leftovers are from.
pub(super) fn unnamed(contents: &str, origin: &str, leftovers: &[String], strangers: &[String]) -> String {
    let leftovers = leftovers.iter().map(|name| format!("left over: {name}, {origin}"));
    let strangers = strangers.iter().map(|name| format!("not part of {contents}: {name}"));
    listed(leftovers) + &listed(strangers)
}

/// Returns the first lines, and how many more there are. Escapes control characters.
pub(super) fn listed(lines: impl ExactSizeIterator<Item = String>) -> String {
    let more = lines.len().saturating_sub(PRINTED_MAX);
    // Names are from the folder and may contain control characters or line breaks.
    let text: String = lines.take(PRINTED_MAX).map(|line| Message::one_line(line) + "\n").collect();
    if more > 0 { text + &format!("and {more} more\n") } else { text }
}
