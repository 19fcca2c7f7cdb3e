//! Fuzz tests of all parsers of untrusted bytes. Each parser must use little memory. It must return a result, or an
//! error of one line that names the file.
//!
//! The number of a case determines its input and its mutations. `ADJOIN_FUZZ_CASES` sets the number of cases per
//! target, and `ADJOIN_FUZZ_FROM` the first case. If a case fails, its number is printed, and
//! `ADJOIN_FUZZ_FROM=number ADJOIN_FUZZ_CASES=1` repeats it. If the process itself dies, set `ADJOIN_FUZZ_LOUD=1` to
//! print the number of each case before it starts.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod collections;
mod corpus;
mod files;
mod indexes;
mod mutate;
mod sources;
mod stores;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, Once, PoisonError};

use adjoin::{Error, Random};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Default number of cases per target. With it, all targets together take a few seconds.
const CASES: u64 = 5_000;
/// Maximum memory that a case may use, for an input of a few kilobytes.
const MEMORY_MAX: usize = 64 << 20;

/// Held while a target runs, so that only one runs at a time: allocations are counted for the whole process.
static AT_WORK: Mutex<()> = Mutex::new(());
static QUIET_HOOK: Once = Once::new();

/// Runs `case` for each case number.
#[track_caller]
fn fuzz(target: &str, memory_max: usize, case: impl FnMut(&mut Random)) {
    fuzz_each(target, 1, memory_max, case);
}

/// Runs only one out of every `share` cases. Use this for targets with slow cases.
#[track_caller]
fn fuzz_each(target: &str, share: u64, memory_max: usize, mut case: impl FnMut(&mut Random)) {
    let _alone = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner);
    QUIET_HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !Error::replaces_panic() {
                print(panic);
            }
        }));
    });
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let from = number("ADJOIN_FUZZ_FROM").unwrap_or(0);
    let loud = number("ADJOIN_FUZZ_LOUD").is_some();
    let cases = number("ADJOIN_FUZZ_CASES").unwrap_or(CASES).div_ceil(share);
    for number in from..from + cases {
        if loud {
            eprintln!("{target} {number}");
        }
        let mut random = Random::new(number, target);
        let before = ALLOCATED.current_usage();
        ALLOCATED.reset_peak_usage();
        let ended = catch_unwind(AssertUnwindSafe(|| case(&mut random)));
        let taken = ALLOCATED.peak_usage().saturating_sub(before);
        if let Err(cause) = ended {
            eprintln!("{target}: case {number} fails; repeat it with ADJOIN_FUZZ_FROM={number} ADJOIN_FUZZ_CASES=1");
            resume_unwind(cause);
        }
        assert!(taken <= memory_max, "{target}: case {number} takes {taken} bytes of memory");
    }
}

/// Checks that an error is one line that contains `name`.
#[track_caller]
fn check_error(error: &Error, name: &str) {
    let message = error.to_string();
    assert!(!message.contains(|c: char| c.is_control()), "more than a line: {message:?}");
    assert!(message.contains(name), "{message} does not name {name}");
    assert!(message.len() < 2_000, "{} characters: {message}", message.len());
}

#[test]
fn sizes() {
    fuzz("sizes", MEMORY_MAX, |random| {
        const WORDS: &[&str] = &[
            "1",
            "9",
            "0",
            ".",
            "e",
            "-",
            "+",
            "k",
            "KiB",
            "TiB",
            "GB",
            " ",
            "\n",
            "inf",
            "NaN",
            "ß",
            "\u{1b}",
            "18446744073709551616",
        ];
        let text: String = (0..random.below(8)).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect();
        match adjoin::parse_bytes(&text) {
            Ok(bytes) => assert!((1..=1 << 60).contains(&bytes), "{text}: {bytes}"),
            Err(error) => check_error(&error, "is not a size"),
        }
    });
}

/// Words from which filters and orders are generated.
const SQL_WORDS: &[&str] = &[
    "a",
    "b.c",
    "\"d\"",
    "left.a",
    "right.a",
    "1",
    "-2.5e9",
    "1e400",
    "'text'",
    "null",
    "true",
    "(",
    ")",
    "((",
    "))",
    "not",
    "and",
    "or",
    "=",
    "<>",
    "<=",
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "::int",
    "in (1, 2)",
    "between 1 and 2",
    "is null",
    "is not null",
    "like 'a%'",
    "ilike",
    "lower(",
    "coalesce(a, ",
    "case when",
    "then",
    "end",
    "desc",
    "nulls first",
    ",",
    ";",
    "--",
    "'",
    "exists (select 1)",
    "cast(a as int)",
    "[1]",
    "{",
    "interval",
    "\u{1b}",
    "ß",
];

/// Checks filters and orders that consist of random words, including long chains and deep nests. The stack is as
/// small as a server's.
#[test]
fn sql() {
    fuzz_each("sql", 10, MEMORY_MAX, |random| {
        let word = |random: &mut Random| SQL_WORDS[random.below(SQL_WORDS.len() as u64) as usize];
        let (first, repeated) = (word(random).to_owned(), [word(random), word(random)]);
        let times = if random.below(4) == 0 { random.below(1_000) } else { 0 };
        let mut text = first;
        (0..times).for_each(|k| text += &format!(" {}", repeated[k as usize % 2]));
        (0..random.below(10)).for_each(|_| text += &format!(" {}", word(random)));
        let parse = move || {
            let all = [
                adjoin::Condition::parse(&text).map(drop),
                adjoin::lab::sql::PairCondition::parse(&text).map(drop),
                adjoin::OrderBy::parse(&text).map(drop),
            ];
            for error in all.into_iter().filter_map(std::result::Result::err) {
                check_error(&error, "");
            }
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(parse).unwrap().join().unwrap();
    });
}

/// Checks that the tests in this crate notice a parser that trusts a length.
#[test]
#[should_panic(expected = "bytes of memory")]
fn canary_a_parser_that_trusts_a_length_is_caught() {
    fuzz("canary", MEMORY_MAX, |random| {
        let claim = mutate::edge(random, 0) as u32;
        std::hint::black_box(Vec::<u8>::with_capacity(claim as usize));
    });
}
