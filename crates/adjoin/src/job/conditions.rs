//! Filters on the rows and pairs of a join.

use std::collections::BTreeSet;

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::sql::{Condition, PairCondition};

/// Filters on the rows and pairs of a join. `None` means no filter.
#[derive(Debug, Clone, Default)]
pub struct Conditions {
    /// Filter on the rows of the first or only set.
    pub rows: Option<Condition>,
    /// Filter on the rows of the other set.
    pub other_rows: Option<Condition>,
    /// Filter on pairs.
    pub pairs: Option<PairCondition>,
}

impl Conditions {
    /// Parses filters.
    ///
    /// # Errors
    /// Fails as [`Condition::parse`] and [`PairCondition::parse`] do.
    pub fn parse(rows: Option<&str>, other_rows: Option<&str>, pairs: Option<&str>) -> Result<Self> {
        let parse = |text: Option<&str>| text.map(Condition::parse).transpose();
        let pairs = pairs.map(PairCondition::parse).transpose()?;
        Ok(Self { rows: parse(rows)?, other_rows: parse(other_rows)?, pairs })
    }

    /// Returns the columns of the first set (0) or of the other set (1) that the filters read.
    pub fn columns(&self, set: usize, are_two_sets: bool) -> Vec<String> {
        let rows = [&self.rows, &self.other_rows][set].iter().flat_map(Condition::columns);
        // If there is one set, both rows of a pair are rows of it.
        let sides = if are_two_sets { set..set + 1 } else { 0..2 };
        let of_pairs = |condition| sides.clone().flat_map(move |side| PairCondition::columns(condition, side));
        let all: BTreeSet<String> = rows.chain(self.pairs.iter().flat_map(of_pairs)).collect();
        all.into_iter().collect()
    }

    /// Refuses a filter on the rows of a source that names no column. A store built from a source keeps only the
    /// named columns, so nothing could be evaluated.
    pub(super) fn check_source(&self, set: usize, columns: &[String]) -> Result<()> {
        let asking = [(&self.rows, Argument::Where), (&self.other_rows, Argument::WhereOther)];
        match &asking[set] {
            (Some(_), asking) if columns.is_empty() => {
                Err(Error::option(message![*asking, " names no column, so it is the same for all rows; name one"]))
            }
            _ => Ok(()),
        }
    }

    /// Checks that every filter has a set to apply to.
    ///
    /// # Errors
    /// Fails if there is only one set, but a filter on the rows of the other set.
    pub fn check(&self, are_two_sets: bool) -> Result<()> {
        match self.other_rows {
            Some(_) if !are_two_sets => Err(Error::option(message![
                Argument::WhereOther,
                " filters the rows of a second set: give ",
                Argument::With,
                ", or ",
                Argument::Where,
                " to filter the only set"
            ])),
            _ => Ok(()),
        }
    }
}
