//! Finds rows by their names in a stream of rows.

use std::collections::HashMap;

use super::{IdKind, Ids};
use crate::base::error::{Error, Result};

/// Bytes per name during a search, in addition to the id: the entry in the map, two allocations, and the position of
/// the row.
const NAME_BYTES: u64 = 192;

/// Search for the positions of the rows with given names. A name is an id, or a row number if rows have no ids. If
/// several rows have a name, the first row counts.
pub(crate) struct Named {
    /// Names that no row has had so far, with their indices in `found`.
    missing: HashMap<Vec<u8>, Vec<usize>>,
    /// Position of the row of each name.
    found: Vec<Option<u64>>,
}

impl Named {
    /// Starts a search for `names` among rows with ids of the kind `kind`.
    ///
    /// # Errors
    /// Fails if the names are not of that kind.
    pub(crate) fn new(kind: IdKind, names: &Ids) -> Result<Self> {
        // Without ids, rows are named by their numbers, which are integers.
        let kind_of_names = if kind == IdKind::None { IdKind::Int64 } else { kind };
        if names.kind() != kind_of_names {
            return Err(Error::input(match kind {
                IdKind::None => "the rows have no ids; give row numbers",
                IdKind::Int64 => "the ids of the rows are integers; give integers",
                IdKind::Utf8 => "the ids of the rows are texts; give texts",
            }));
        }
        let mut missing: HashMap<Vec<u8>, Vec<usize>> = HashMap::with_capacity(names.len());
        for k in 0..names.len() {
            let mut name = Vec::new();
            // Names of all kinds are converted to bytes, so that they can be compared with rows as bytes.
            names.append_bytes_of(k, &mut name);
            missing.entry(name).or_default().push(k);
        }
        Ok(Self { missing, found: vec![None; names.len()] })
    }

    /// Returns the bytes that a search for these names holds, without the names themselves.
    pub(crate) fn memory_bytes(names: &Ids) -> u64 {
        names.bytes() + NAME_BYTES * names.len() as u64
    }

    /// Visits the row at position `place`. `name` holds the bytes of its id ([`Ids::append_bytes_of`]).
    pub(crate) fn meet(&mut self, name: &[u8], place: u64) {
        // The name is removed, so only the first row with this name counts.
        for k in self.missing.remove(name).into_iter().flatten() {
            self.found[k] = Some(place);
        }
    }

    /// Visits the row number `row`, which has no id, at position `place`.
    pub(crate) fn meet_row(&mut self, row: u64, place: u64) {
        self.meet(&row.to_le_bytes(), place);
    }

    /// Returns whether a row was found for each name.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// Returns the position of the row of each name; `None` if no row has the name.
    pub(crate) fn into_places(self) -> Vec<Option<u64>> {
        self.found
    }
}
