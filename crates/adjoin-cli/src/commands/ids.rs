//! Files of ids.

use std::io::Read;

use adjoin::{Error, IdKind, Ids, Result, format_count};

/// Reads ids, one per line, from a file or from standard input. If `kind` is `IdKind::None`, they are row numbers.
pub(super) fn ids_of(file: &str, kind: IdKind) -> Result<Ids> {
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().read_to_string(&mut text).map(drop),
        _ => std::fs::read_to_string(file).map(|read| text = read),
    };
    let remedy = "name a file with one id per line, or - to read the ids from standard input";
    read.map_err(|error| Error::input(format!("{file}: the ids cannot be read: {error}; {remedy}")))?;
    // Text ids are not trimmed, since blanks may be part of them.
    if kind == IdKind::Utf8 {
        return Ok(text.lines().collect());
    }
    let integer = |(number, line): (usize, &str)| {
        let why = |_| Error::input(format!("{file}: line {number} is {line:?}, but the ids are integers; correct it"));
        line.trim().parse::<i64>().map_err(why)
    };
    (1..).zip(text.lines()).map(integer).collect::<Result<_>>().map(Ids::Int64)
}

/// Prints how many of the ids to delete had no row.
pub(super) fn say_missing(count: u64) {
    if count > 0 {
        let were = if count == 1 { "was" } else { "were" };
        eprintln!("{} to delete {were} not found", format_count(count, "id"));
    }
}
