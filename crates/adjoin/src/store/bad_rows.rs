//! Describes rows that cannot be used. Decides which is wrong: the rows, or the expected number of dimensions.

use std::collections::BTreeMap;

use crate::base::error::Error;
use crate::base::message::{Message, message};
use crate::base::options::{DIMENSIONS_MAX, Element, Metric, VectorType, f16_values, f32_values};
use crate::base::predicate::squared_norm;
use crate::source::{Fault, VectorBatch, VectorSource};

/// Maximum number of bad rows in an error message.
const ROWS_NAMED: usize = 5;
/// Maximum number of lengths in an error message.
const LENGTHS_NAMED: usize = 4;
/// Maximum number of distinct lengths that are counted.
const LENGTHS_COUNTED: usize = 1_000;

/// Bit masks of f16 and f32: the exponent and the magnitude. All exponent bits are set if a value is infinite or NaN.
const HALF: (u16, u16) = (0x7c00, 0x7fff);
const FLOAT: (u32, u32) = (0x7f80_0000, 0x7fff_ffff);

/// Returns a description of what is wrong with a vector; `None` if it can be used.
pub(crate) fn fault_of_vector(element: Element, metric: Metric, vector: &[u8]) -> Option<String> {
    // Works on bits, eight or more values at a time, since every row of a source passes through here.
    let (finite, zero) = match element {
        Element::F32 => {
            let largest = vector.as_chunks().0.iter().fold(0, |most, &x| most.max(u32::from_le_bytes(x) & FLOAT.1));
            if largest < FLOAT.0
                && let Some(fault) = fault_of_length(metric, f32::from_bits(largest), vector)
            {
                return Some(fault);
            }
            (largest < FLOAT.0, largest == 0)
        }
        Element::F16 => {
            let bits = vector.as_chunks().0.iter().map(|&x| u16::from_le_bytes(x));
            let finite = bits.clone().fold(true, |finite, x| finite & (x & HALF.0 != HALF.0));
            (finite, bits.fold(0, |any, x| any | (x & HALF.1)) == 0)
        }
        Element::U8 | Element::I8 => (true, vector.iter().fold(0, |any, x| any | x) == 0),
    };
    if !finite {
        let values: Vec<f64> = match element {
            Element::F16 => f16_values(vector).collect(),
            _ => f32_values(vector).collect(),
        };
        let (at, value) = values.into_iter().enumerate().find(|(_, value)| !value.is_finite())?;
        return Some(format!("has {value} at element {at}"));
    }
    (metric == Metric::Cosine && zero).then(|| "is all zeros, so its cosine is undefined".into())
}

/// Describes the fault of an f32 vector that is so long that distances or scores may exceed f32, the type of results.
/// `largest` is the largest magnitude of its elements.
fn fault_of_length(metric: Metric, largest: f32, vector: &[u8]) -> Option<String> {
    let (most, what) = match metric {
        Metric::L2 => (f64::from(f32::MAX) / 2.0, "distances"),
        Metric::Ip => (f64::from(f32::MAX).sqrt(), "scores"),
        Metric::Cosine => return None,
    };
    // Almost no vector has elements that are large enough, so the sum is rarely computed.
    if f64::from(largest) * (DIMENSIONS_MAX as f64).sqrt() <= most {
        return None;
    }
    let length = squared_norm(Element::F32, vector).sqrt();
    let fault = || {
        format!(
            "has length {length:.3e}, so its {what} may exceed f32; scale all vectors to a length of at most \
                 {most:.2e}"
        )
    };
    (length > most).then(fault)
}

/// The first bad rows of a batch, for an error message.
#[derive(Default)]
pub(super) struct BadRows {
    named: Vec<(u64, String)>,
    more: bool,
}

impl BadRows {
    pub(super) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(super) fn add(&mut self, row: u64, fault: impl FnOnce() -> String) {
        match self.named.len() < ROWS_NAMED {
            true => self.named.push((row, fault())),
            false => self.more = true,
        }
    }

    /// Returns the error that names the rows. Its advice is `remedy`, unless the expected length seems to be wrong.
    pub(super) fn refusal(&self, source: &dyn VectorSource, lengths: &Lengths, remedy: Message) -> Error {
        let named = self.named.iter().map(|(row, fault)| {
            let (file, row) = source.locate(*row);
            format!("{}: the vector of row {row} {fault}", file.display())
        });
        let named = named.collect::<Vec<_>>().join("; ");
        let more = if self.more { "; and more" } else { "" };
        let remedy = lengths.complaint(source).map_or(remedy, Message::from);
        Error::input(message![format!("{named}{more}; "), remedy])
    }
}

/// Numbers of lists by length, counted during a scan. The expected length is the length of the first list that is not
/// empty, so it depends on the data alone. If another length is more frequent, that first list is reported as the
/// wrong one.
pub(super) struct Lengths {
    dimensions: usize,
    rows: u64,
    /// Number of rows with a list of the expected length.
    right: u64,
    /// First row with a list of the expected length.
    first_right: Option<u64>,
    /// For each other length, the number of lists.
    others: BTreeMap<usize, u64>,
}

impl Lengths {
    pub(super) fn new(vectors: VectorType) -> Self {
        Self { dimensions: vectors.dimensions, rows: 0, right: 0, first_right: None, others: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, batch: &VectorBatch) {
        self.rows += batch.rows as u64;
        let no_such_list = |fault: &Fault| matches!(fault, Fault::Null | Fault::Length(_));
        let mut without = batch.faults.iter().filter(|(_, fault)| no_such_list(fault)).map(|(row, _)| *row).peekable();
        if self.first_right.is_none() {
            let first = (0..batch.rows).find(|row| without.next_if_eq(row).is_none());
            self.first_right = first.map(|row| batch.first_row + row as u64);
        }
        self.right += (batch.rows - batch.faults.iter().filter(|(_, fault)| no_such_list(fault)).count()) as u64;
        for (_, fault) in &batch.faults {
            // The number of counted lengths is limited, since a damaged file may have as many lengths as rows.
            if let Fault::Length(length @ 1..) = fault
                && (self.others.len() < LENGTHS_COUNTED || self.others.contains_key(length))
            {
                *self.others.entry(*length).or_default() += 1;
            }
        }
    }

    /// Returns an error if another length is more frequent than the expected one. Otherwise most lists would be left
    /// out.
    pub(super) fn refusal(&self, source: &dyn VectorSource) -> Option<Error> {
        self.complaint(source).map(Error::input)
    }

    /// Returns a complaint if another length is more frequent than the expected one.
    fn complaint(&self, source: &dyn VectorSource) -> Option<String> {
        let most = self.others.values().max().filter(|&&count| count > self.right);
        let (Some(_), Some(first)) = (most, self.first_right) else { return None };
        let (file, row) = source.locate(first);
        let mut counts: Vec<(u64, usize)> = self.others.iter().map(|(&length, &count)| (count, length)).collect();
        counts.push((self.right, self.dimensions));
        counts.sort_by_key(|&(count, length)| (std::cmp::Reverse(count), length));
        let mut named: Vec<String> = counts
            .iter()
            .take(LENGTHS_NAMED)
            .map(|&(count, length)| format!("{count} {} {length}", if count == 1 { "has" } else { "have" }))
            .collect();
        if counts.len() > LENGTHS_NAMED {
            named.push("others have other lengths".to_owned());
        }
        Some(format!(
            "of {} rows checked, {}: the first non-empty list sets the number of elements, but that of row {row} of \
             {} seems to be the exception; remove that row",
            self.rows,
            named.join(", "),
            file.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_whose_distances_may_overflow_are_faults() {
        let fault = |metric, vector: &[f32]| {
            let stored: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
            fault_of_vector(Element::F32, metric, &stored)
        };
        let (longest, longest_ip) = (f32::MAX / 2.0, 1.8e19);
        for (metric, longest) in [(Metric::L2, longest), (Metric::Ip, longest_ip)] {
            assert_eq!(fault(metric, &[longest, 0.0]), None);
            assert_eq!(fault(metric, &[0.7 * longest, -0.7 * longest]), None);
            let words = fault(metric, &[0.8 * longest, 0.8 * longest]).unwrap();
            assert!(words.contains("may exceed f32; scale all vectors to a length of at most 1."), "{words}");
        }
        assert_eq!(fault(Metric::Cosine, &[f32::MAX, f32::MAX]), None);
        assert_eq!(fault(Metric::L2, &[f32::NAN, f32::MAX]).unwrap(), "has NaN at element 0");
        assert_eq!(fault(Metric::L2, &[f32::MAX, f32::INFINITY]).unwrap(), "has inf at element 1");
    }
}
