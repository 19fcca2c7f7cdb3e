//! Looks up rows by name in a stream of rows.

use std::collections::HashMap;

use super::{IdKind, Ids};
use crate::base::error::{Error, Result};

/// Bytes of a name while its row is looked up, in addition to the id: its entry in the map, two allocations, and the
/// place of its row.
const NAME_BYTES: u64 = 192;

/// Collects the places of rows with given names: their ids, or their numbers if they have no ids. If rows share a name,
/// the first one counts.
pub(crate) struct Named {
    /// Names that no row had so far, with the indices in `found` for the place.
    missing: HashMap<Vec<u8>, Vec<usize>>,
    found: Vec<Option<u64>>,
}

impl Named {
    /// Starts a search for names among rows with ids of a kind.
    ///
    /// # Errors
    /// Fails if the names are of another kind.
    pub(crate) fn new(kind: IdKind, names: &Ids) -> Result<Self> {
        // Without ids, rows are named by their numbers, which are integers.
        let kind_of_names = if kind == IdKind::None { IdKind::Int64 } else { kind };
        if names.kind() != kind_of_names {
            return Err(Error::input(match kind {
                IdKind::None => "rows have no ids here: their numbers name them; give numbers",
                IdKind::Int64 => "ids are integers here; give integers",
                IdKind::Utf8 => "ids are texts here; give texts",
            }));
        }
        let mut missing: HashMap<Vec<u8>, Vec<usize>> = HashMap::with_capacity(names.len());
        for k in 0..names.len() {
            let mut name = Vec::new();
            // One form for all kinds of ids, so that rows and names are compared as bytes.
            names.append_bytes_of(k, &mut name);
            missing.entry(name).or_default().push(k);
        }
        Ok(Self { missing, found: vec![None; names.len()] })
    }

    /// Returns the bytes of a search for these names, without the names themselves.
    pub(crate) fn memory_bytes(names: &Ids) -> u64 {
        names.bytes() + NAME_BYTES * names.len() as u64
    }

    /// Checks a row, given the bytes of its id ([`Ids::append_bytes_of`]).
    pub(crate) fn meet(&mut self, name: &[u8], place: u64) {
        // Removing a name makes its first row the one that counts.
        for k in self.missing.remove(name).into_iter().flatten() {
            self.found[k] = Some(place);
        }
    }

    /// Checks a row without an id.
    pub(crate) fn meet_row(&mut self, row: u64, place: u64) {
        self.meet(&row.to_le_bytes(), place);
    }

    /// Returns whether a row was found for each name.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the place of the row of each name; `None` if no row had the name.
    pub(crate) fn into_places(self) -> Vec<Option<u64>> {
        self.found
    }
}
