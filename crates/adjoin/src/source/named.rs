//! Rows that are looked for by what names them, among all that come by.

use std::collections::HashMap;

use super::{IdKind, Ids};
use crate::error::{Error, Result};

/// The vectors of rows with some names: their ids, or their numbers where they have no ids. Of rows that share a name, the first
/// that comes by counts.
pub(crate) struct Named {
    /// Where the vector of a name goes, for the names that no row had so far.
    missing: HashMap<Vec<u8>, Vec<usize>>,
    found: Vec<Option<Vec<u8>>>,
}

impl Named {
    /// Looks for names among rows with ids of a kind.
    ///
    /// # Errors
    /// Where the names are of another kind.
    pub(crate) fn new(kind: IdKind, names: &Ids) -> Result<Self> {
        let kind_of_names = if kind == IdKind::None { IdKind::Int64 } else { kind };
        if names.kind() != kind_of_names {
            return Err(Error::input(match kind {
                IdKind::None => "rows have no ids here: their numbers name them; give numbers",
                IdKind::Int64 => "ids are integers here; give integers",
                IdKind::Utf8 => "ids are texts here; give texts",
            }));
        }
        let mut missing: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        for k in 0..names.len() {
            let mut name = Vec::new();
            names.append_bytes_of(k, &mut name);
            missing.entry(name).or_default().push(k);
        }
        Ok(Self { missing, found: vec![None; names.len()] })
    }

    /// Takes note of a row that is called by the bytes of its id ([`Ids::append_bytes_of`]).
    ///
    /// # Errors
    /// Where it is looked for and its vector cannot be had.
    pub(crate) fn meet(&mut self, name: &[u8], vector: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
        if self.missing.contains_key(name) {
            let vector = vector()?;
            for k in self.missing.remove(name).into_iter().flatten() {
                self.found[k] = Some(vector.clone());
            }
        }
        Ok(())
    }

    /// The same of a row without an id.
    ///
    /// # Errors
    /// As [`Self::meet`].
    pub(crate) fn meet_row(&mut self, row: u64, vector: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
        self.meet(&row.to_le_bytes(), vector)
    }

    /// Whether a row was found for each name.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The vector of each name; none of a name that no row had.
    pub(crate) fn into_found(self) -> Vec<Option<Vec<u8>>> {
        self.found
    }
}
