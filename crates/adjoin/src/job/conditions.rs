//! What must be true of rows and pairs that are joined.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::message::{Argument, message};
use crate::sql::{Condition, PairCondition};

/// What must be true of rows for them to be joined; nothing where there is no condition.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    /// Of the rows of the first set, or of the only one.
    pub rows: Option<Condition>,
    /// Of those of the other set.
    pub other_rows: Option<Condition>,
    /// What must be true of a pair for it to count.
    pub pairs: Option<PairCondition>,
}

impl Conditions {
    /// Of what a caller gives.
    ///
    /// # Errors
    /// As [`Condition::parse`] and [`PairCondition::parse`].
    pub fn parse(rows: Option<&str>, other_rows: Option<&str>, pairs: Option<&str>) -> Result<Self> {
        let parse = |text: Option<&str>| text.map(Condition::parse).transpose();
        let pairs = pairs.map(PairCondition::parse).transpose()?;
        Ok(Self { rows: parse(rows)?, other_rows: parse(other_rows)?, pairs })
    }

    /// The columns that they read of the first set (0), or of the other one (1).
    pub fn columns(&self, set: usize, are_two_sets: bool) -> Vec<String> {
        let rows = [&self.rows, &self.other_rows][set].iter().flat_map(Condition::columns);
        let sides = if are_two_sets { set..set + 1 } else { 0..2 };
        let of_pairs = |condition| sides.clone().flat_map(move |side| PairCondition::columns(condition, side));
        let all: BTreeSet<String> = rows.chain(self.pairs.iter().flat_map(of_pairs)).collect();
        all.into_iter().collect()
    }

    /// Refuses a condition on the rows of a source that names no column: only columns that are named are kept.
    pub(super) fn check_source(&self, set: usize, columns: &[String]) -> Result<()> {
        let asking = [(&self.rows, Argument::Where), (&self.other_rows, Argument::WhereOther)];
        match &asking[set] {
            (Some(_), asking) if columns.is_empty() => {
                Err(Error::option(message![*asking, " names no column, so it is the same for all rows; name one"]))
            }
            _ => Ok(()),
        }
    }

    /// Refuses what is said of a set that is not there.
    ///
    /// # Errors
    /// Where there is a condition on the rows of the other of two sets, and only one set.
    pub fn check(&self, are_two_sets: bool) -> Result<()> {
        match self.other_rows {
            Some(_) if !are_two_sets => Err(Error::option(message![
                Argument::WhereOther,
                " is for the rows of another set: give ",
                Argument::With,
                ", or ",
                Argument::Where,
                " for those of the only one"
            ])),
            _ => Ok(()),
        }
    }
}
