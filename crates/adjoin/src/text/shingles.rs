//! Converts texts to sets of shingles.

use xxhash_rust::xxh3::xxh3_64;

use crate::base::choice::choices;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Maximum number of words or characters of a shingle.
const SIZE_MAX: usize = 1_000;
/// Memory for the set of a text, in bytes per byte of the text: eight for the hash of each character, and the
/// normalized text, which may be longer than the text itself.
pub(crate) const SET_GROWTH: u64 = 12;

/// Units of which shingles consist.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ShingleUnit {
    /// Words, which are separated by white space.
    #[default]
    Words,
    /// Characters.
    Characters,
}

choices! { Argument::Shingles => ShingleUnit { Words = "words", Characters = "characters" } }

impl ShingleUnit {
    /// Returns the number of units of a shingle if the user gives none.
    fn usual_size(self) -> usize {
        match self {
            Self::Words => 3,
            Self::Characters => 9,
        }
    }
}

/// Rule that divides a text into shingles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shingling {
    pub(crate) unit: ShingleUnit,
    /// Number of units of a shingle.
    pub(crate) size: usize,
}

impl Shingling {
    /// Creates the rule for shingles of `size` units. `None` chooses the usual size.
    ///
    /// # Errors
    /// If the size is 0 or too large.
    pub(crate) fn new(unit: ShingleUnit, size: Option<usize>) -> Result<Self> {
        let size = size.unwrap_or(unit.usual_size());
        if (1..=SIZE_MAX).contains(&size) {
            return Ok(Self { unit, size });
        }
        let given = Argument::ShingleSize.with(size);
        Err(Error::option(message![given, format!(" is out of range; give 1 to {SIZE_MAX} {unit}")]))
    }

    /// Returns the hashes of the shingles of a text, ascending and distinct. A text with fewer units than a shingle has
    /// one shingle, which is the whole text. A text without words has none.
    pub(crate) fn set_of(&self, text: &str) -> Vec<u64> {
        let text = &*normalized(text);
        if text.is_empty() {
            return Vec::new();
        }
        let mut set = match self.unit {
            ShingleUnit::Words => {
                let spaces = || text.match_indices(' ').map(|(at, _)| at);
                let starts = std::iter::once(0).chain(spaces().map(|at| at + 1));
                self.hashes(text, spaces().count() + 1, starts, spaces())
            }
            ShingleUnit::Characters => {
                let starts = || text.char_indices().map(|(at, _)| at);
                self.hashes(text, starts().count(), starts(), starts().skip(1))
            }
        };
        set.sort_unstable();
        set.dedup();
        set
    }

    /// Hashes the shingles of a text with `units` units. `starts` are the starts of all units, `ends` are the ends of
    /// all but the last one.
    fn hashes(
        &self,
        text: &str,
        units: usize,
        starts: impl Iterator<Item = usize>,
        ends: impl Iterator<Item = usize>,
    ) -> Vec<u64> {
        let mut hashes = Vec::with_capacity(units.saturating_sub(self.size) + 1);
        let ends = ends.chain([text.len()]).skip(self.size.min(units) - 1);
        hashes.extend(starts.zip(ends).map(|(start, end)| xxh3_64(&text.as_bytes()[start..end])));
        hashes
    }
}

/// Returns a text in lower case, without white space at its ends, and with one space for each other run of white space.
fn normalized(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        if !normalized.is_empty() {
            normalized.push(' ');
        }
        if word.is_ascii() {
            let start = normalized.len();
            normalized.push_str(word);
            normalized[start..].make_ascii_lowercase();
        } else {
            // Each character is converted by itself, so a shingle does not depend on the characters around it.
            normalized.extend(word.chars().flat_map(char::to_lowercase));
        }
    }
    normalized
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(shingles: &[&str]) -> Vec<u64> {
        let mut hashes: Vec<u64> = shingles.iter().map(|shingle| xxh3_64(shingle.as_bytes())).collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn a_set_has_each_shingle_once() {
        for (unit, size, text, shingles) in [
            (ShingleUnit::Words, 2, " The quick\tTHE\n\nquick fox ", &["the quick", "quick the", "quick fox"][..]),
            (ShingleUnit::Words, 3, "one two three", &["one two three"]),
            (ShingleUnit::Words, 4, "One  two three", &["one two three"]),
            (ShingleUnit::Words, 1, "a B b A", &["a", "b"]),
            (ShingleUnit::Words, 3, " \u{a0}\n", &[]),
            (ShingleUnit::Words, 3, "", &[]),
            (ShingleUnit::Characters, 2, "Äb  C", &["äb", "b ", " c"]),
            (ShingleUnit::Characters, 9, "short", &["short"]),
        ] {
            let shingling = Shingling::new(unit, Some(size)).unwrap();
            assert_eq!(shingling.set_of(text), hashes(shingles), "{size} {unit} of {text:?}");
        }
    }

    #[test]
    fn the_size_of_shingles_is_limited() {
        assert_eq!(Shingling::new(ShingleUnit::Words, None).unwrap().size, 3);
        assert_eq!(Shingling::new(ShingleUnit::Characters, None).unwrap().size, 9);
        for size in [0, SIZE_MAX + 1] {
            let refused = Shingling::new(ShingleUnit::Words, Some(size)).unwrap_err().to_string();
            assert_eq!(refused, format!("shingle-size {size} is out of range; give 1 to 1000 words"));
        }
    }
}
