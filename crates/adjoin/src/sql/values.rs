//! Values of an expression.

use arrow_array::{Array, ArrayRef, Datum};

/// Values for some rows: one per row, or one for all rows.
#[derive(Clone)]
pub(super) struct Values {
    pub(super) array: ArrayRef,
    pub(super) is_scalar: bool,
}

impl Datum for Values {
    fn get(&self) -> (&dyn Array, bool) {
        (&*self.array, self.is_scalar)
    }
}
