//! Parses SQL text from a user, with limits on its length, its nesting and the size of its expression.

use std::cell::Cell;
use std::fmt::Display;
use std::thread;

use sqlparser::dialect::GenericDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use crate::base::error::{Error, Result};

/// Largest number of bytes of a text.
const TEXT_BYTES_MAX: usize = 4_096;
/// Bytes of the stack of the parser thread. The parser limits nested parentheses, but builds a left-deep tree for a
/// chain such as `1+1+1`, and displaying or dropping this tree recurses once per operator.
/// `texts_of_any_shape_fit_the_stack` tests this size with the deepest trees. Only pages of the stack that are touched
/// take memory.
const STACK_BYTES: usize = 16 << 20;
/// Largest number of levels of an expression. Code that walks an expression recurses, on threads whose stack may be
/// small.
const DEPTH_MAX: usize = 100;
/// Largest number of parts of an expression. `BETWEEN` and `IN` repeat their left side, so the size of an expression
/// grows exponentially with their nesting depth.
const PARTS_MAX: usize = 20_000;
/// Largest number of characters of SQL that an error message quotes.
const QUOTED_MAX: usize = 200;

/// Parses all of `text` with `read`, on a thread whose stack is large enough for any text. `kind` names the kind of
/// text and has an example. It is used in error messages.
///
/// # Errors
/// If the text is too long or is not SQL, if `read` fails, or if no thread can be started.
pub(super) fn parse<R: Send>(
    text: &str,
    kind: &str,
    read: impl FnOnce(&mut Parser<'_>) -> Result<R> + Send,
) -> Result<R> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(Error::option(format!(
            "{} has {} bytes; write at most {TEXT_BYTES_MAX}",
            kind.split(',').next().unwrap_or(kind),
            text.len()
        )));
    }
    // The parser needs its own thread, since the stack of the caller may be small, for example on a thread of Python or
    // of the server.
    thread::scope(|scope| {
        let work = || read_all(text, kind, read);
        let thread = thread::Builder::new().name("adjoin sql".into()).stack_size(STACK_BYTES);
        let thread = thread.spawn_scoped(scope, work).map_err(Error::no_thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read_all<R>(text: &str, kind: &str, read: impl FnOnce(&mut Parser<'_>) -> Result<R>) -> Result<R> {
    let failed = |why: &dyn Display| Error::option(format!("cannot read {:?} as {kind}: {why}", quoted(text)));
    let mut parser = Parser::new(&GenericDialect {}).try_with_sql(text).map_err(|error| failed(&error))?;
    let read = read(&mut parser).map_err(|error| failed(&error))?;
    // The parser stops at the end of an expression and would ignore the rest of the text.
    match parser.peek_token().token {
        Token::EOF => Ok(read),
        next => Err(failed(&format!("{next} was not expected"))),
    }
}

/// Converts an error of the parser to an error with a short message. If the text is nested too deeply, the message
/// names a remedy.
pub(super) fn refused(error: ParserError) -> Error {
    match error {
        ParserError::RecursionLimitExceeded => too_deep(),
        error => Error::option(quoted(&error.to_string())),
    }
}

/// Returns the start of a text, cut to the length that an error message should quote.
pub(super) fn quoted(text: &str) -> String {
    // The text is cut by characters, since a cut by bytes could split a character.
    let mut cut: String = text.chars().take(QUOTED_MAX).collect();
    if cut.len() < text.len() {
        cut.push_str(" ...");
    }
    cut
}

fn too_deep() -> Error {
    Error::option(
        "it is nested too deeply; use fewer parentheses and shorter chains of operators other than AND and OR",
    )
}

/// Counts levels and parts of an expression while it is built.
#[derive(Default)]
pub(super) struct Bounds {
    depth: Cell<usize>,
    parts: Cell<usize>,
}

impl Bounds {
    /// Runs `build` one level deeper.
    ///
    /// # Errors
    /// If there are too many levels or parts, or if `build` fails.
    pub(super) fn within<R>(&self, build: impl FnOnce() -> Result<R>) -> Result<R> {
        // Parts are counted before building, so that a text that expands exponentially is refused early.
        self.parts.set(self.parts.get() + 1);
        if self.parts.get() > PARTS_MAX {
            return Err(Error::option(format!("it has more than {PARTS_MAX} parts; nest fewer of BETWEEN and IN")));
        }
        // The depth is checked before the recursion, so that the stack suffices for any text.
        if self.depth.get() == DEPTH_MAX {
            return Err(too_deep());
        }
        self.depth.set(self.depth.get() + 1);
        let built = build();
        self.depth.set(self.depth.get() - 1);
        built
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Condition, OrderBy, PairCondition};
    use super::*;

    /// Returns a text of the maximum length that repeats `part` between two ends.
    fn repeated([first, part, last]: [&str; 3]) -> String {
        let times = (TEXT_BYTES_MAX - first.len() - last.len()) / part.len();
        [first, &part.repeat(times), last].concat()
    }

    #[test]
    fn texts_of_any_shape_fit_the_stack() {
        let small = thread::Builder::new().stack_size(128 << 10);
        let parsed = small.spawn(|| {
            for (ends, words) in [
                (["a = 1", "+1", ""], "nested too deeply"),
                (["a", " is null", ""], "nested too deeply"),
                (["a", "::int", ""], "is not supported"),
                (["a", "||b", ""], "is not supported"),
                (["a", " between 1 and 2", ""], "nested too deeply"),
                (["a", " in (1)", ""], "nested too deeply"),
                (["", "not ", "a"], "cannot read"),
                (["", "- ", "a"], "cannot read"),
                (["", "(", ""], "cannot read"),
                (["", "lower(", "a"], "cannot read"),
                (["", "[", ""], "cannot read"),
                (["", "{", ""], "cannot read"),
                (["", "case when ", "a"], "cannot read"),
                (["", "exists(select ", "a"], "cannot read"),
                (["a", "[1]", ""], "cannot"),
                (["a", " at time zone b", ""], "is not supported"),
                (["a", " and a || 1", ""], "is not supported"),
                (["interval ", "interval ", "1"], "cannot read"),
            ] {
                let text = repeated(ends);
                let all = [
                    Condition::parse(&text).map(drop),
                    PairCondition::parse(&text).map(drop),
                    OrderBy::parse(&text).map(drop),
                ];
                for refused in all.map(|parsed| parsed.expect_err(&text[..40]).to_string()) {
                    assert!(refused.contains(words) && refused.len() < 1_000, "{text}: {refused}");
                }
            }
            Condition::parse(&repeated(["a", " or a", ""])).unwrap();
            Condition::parse(&repeated(["a in (1", ",1", ")"])).unwrap();
        });
        parsed.unwrap().join().unwrap();
    }

    #[test]
    fn refuses_nested_lists_with_too_many_parts() {
        let nested = (0..9).fold("a".to_owned(), |inner, _| format!("({inner} in (1, 2, 3, 4, 5, 6, 7, 8))"));
        let refused = Condition::parse(&nested).unwrap_err().to_string();
        assert!(refused.contains("more than 20000 parts"), "{refused}");
    }
}
