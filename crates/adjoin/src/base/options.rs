//! Common options: element types, metrics, and the formats of sizes and numbers.

use std::fmt;

use half::f16;
use serde::{Deserialize, Serialize};

use crate::base::choice::choices;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Maximum number of dimensions of a vector.
pub(crate) const DIMENSIONS_MAX: usize = 8_192;
/// Maximum number of rows of a set.
pub(crate) const ROWS_MAX: u64 = 1 << 40;

/// Type of a vector's elements, as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names say it
pub enum Element {
    F32,
    F16,
    U8,
    I8,
}

impl Element {
    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::U8 | Self::I8 => 1,
        }
    }

    /// Returns the elements of a stored vector of this type.
    pub fn values(self, stored: &[u8]) -> Box<dyn Iterator<Item = f64> + '_> {
        match self {
            Self::F32 => Box::new(f32_values(stored)),
            Self::F16 => Box::new(f16_values(stored)),
            Self::U8 => Box::new(stored.iter().map(|&byte| f64::from(byte))),
            Self::I8 => Box::new(stored.iter().map(|&byte| f64::from(byte.cast_signed()))),
        }
    }

    /// Returns whether elements are integers. L2 distances between integers are exact.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::U8 | Self::I8)
    }
}

/// Returns the elements of a stored f32 vector.
pub(crate) fn f32_values(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks::<4>().0.iter().map(|&chunk| f64::from(f32::from_le_bytes(chunk)))
}

/// Returns the elements of a stored f16 vector.
pub(crate) fn f16_values(bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.as_chunks::<2>().0.iter().map(|&chunk| f64::from(f16::from_le_bytes(chunk)))
}

choices! { "the element type" => Element { F32 = "f32", F16 = "f16", U8 = "u8", I8 = "i8" } }

/// Measure of how near two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Euclidean distance.
    L2,
    /// Cosine of the angle. A larger value means nearer.
    Cosine,
    /// Inner product of a query and a row. A larger value means nearer. It is only for searches, since it is not a
    /// distance between rows.
    Ip,
}

impl Metric {
    /// Metrics that joins support. They are distances between rows.
    pub const OF_JOINS: &'static [Self] = &[Self::L2, Self::Cosine];

    /// Refuses a join if the metric is not a distance. The message calls the vectors `vectors`.
    ///
    /// # Errors
    /// Fails for inner products.
    pub(crate) fn check_joins(self, vectors: impl fmt::Display) -> Result<()> {
        if self != Self::Ip {
            return Ok(());
        }
        Err(Error::option(message![
            format!(
                "{vectors} has the metric ip, but a join needs a distance, and an inner product is not one; build with "
            ),
            Argument::Metric.with(Self::L2),
            " or ",
            Argument::Metric.with(Self::Cosine)
        ]))
    }
}

choices! { Argument::Metric => Metric { L2 = "l2", Cosine = "cosine", Ip = "ip" } }

/// Element type and dimensions of a set's vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorType {
    /// Type of the elements.
    pub element: Element,
    /// Number of elements of a vector, from 1 to [`Self::DIMENSIONS_MAX`].
    pub dimensions: usize,
}

impl VectorType {
    /// Maximum number of dimensions of a vector.
    pub const DIMENSIONS_MAX: usize = DIMENSIONS_MAX;

    /// Returns the size of a stored vector in bytes.
    pub fn bytes(self) -> usize {
        self.dimensions * self.element.bytes()
    }
}

/// Parses a size in bytes, such as `51MB`, `512MiB`, `2GiB` or `4096`.
///
/// # Errors
/// Fails if the text is not a size.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let wrong = || Error::option(format!("{text} is not a size; write it like 51MB, 512MiB or 2GiB"));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
    // With this limit, sums of sizes fit in 64 bits.
    if bytes < 1.0 || bytes > (1u64 << 60) as f64 {
        return Err(wrong());
    }
    Ok(bytes as u64)
}

/// Memory budget of a run, as given by the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MemorySize {
    /// A number of bytes.
    Bytes(u64),
    /// A fraction of the memory of the machine or cgroup. It is above 0 and at most 1.
    Share(f64),
}

/// Parses the memory budget of a run: a size that [`parse_bytes`] accepts, or a percentage such as `80%`.
///
/// # Errors
/// Fails if the text is neither a size nor a percentage.
pub(crate) fn parse_memory(text: &str) -> Result<MemorySize> {
    let Some(number) = text.strip_suffix('%') else { return parse_bytes(text).map(MemorySize::Bytes) };
    let wrong =
        || Error::option(format!("{text} is not a fraction of the memory; write it like 80%, above 0% and up to 100%"));
    // `parse` also accepts texts that users would not write as a percentage, such as `inf` and numbers with exponents.
    let is_plain = |number: &&str| number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let percent: Option<f64> = Some(number.trim_end()).filter(is_plain).and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.map(|percent| MemorySize::Share(percent / 100.0)).ok_or_else(wrong)
}

/// Formats a number of bytes for people, such as `51.2 MB`. [`parse_bytes`] accepts this form.
pub fn format_bytes(bytes: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.iter().find(|(factor, _)| bytes as f64 >= *factor) {
        Some((factor, unit)) => format!("{:.1} {unit}", bytes as f64 / factor),
        None => format!("{bytes} B"),
    }
}

/// Formats a number for people, such as `5,568`.
pub fn format_number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap_or("")).collect();
    groups.join(",")
}

/// Formats a number with its noun, such as `1 pair` or `5,568 pairs`.
pub fn format_count(count: u64, one: &str) -> String {
    format!("{} {one}{}", format_number(count), if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_counts_are_formatted() {
        let numbers = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_023_456, "1,023,456")];
        numbers.iter().for_each(|(number, text)| assert_eq!(format_number(*number), *text));
        assert_eq!(format_number(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            ["0 pairs", "1 pair", "2 pairs"],
            [0, 1, 2].map(|count| format_count(count, "pair")).each_ref().map(String::as_str)
        );
    }

    #[test]
    fn sizes_are_parsed_and_formatted() {
        for (text, bytes) in [("51MB", 51_000_000), ("2GiB", 2 << 30), ("4096", 4096), ("1.5 kb", 1500)] {
            assert_eq!(parse_bytes(text).unwrap(), bytes);
        }
        for text in ["", "GiB", "12parsecs", "-1MB", "0", "1e3", "9999999TiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(format_bytes(51_200_000), "51.2 MB");
        assert_eq!(format_bytes(999), "999 B");
    }

    #[test]
    fn memory_is_a_size_or_a_percentage() {
        for (text, size) in [
            ("2GiB", MemorySize::Bytes(2 << 30)),
            ("80%", MemorySize::Share(0.8)),
            ("12.5 %", MemorySize::Share(0.125)),
            ("100%", MemorySize::Share(1.0)),
        ] {
            assert_eq!(parse_memory(text).unwrap(), size);
        }
        for text in ["%", "0%", "101%", "-5%", "nan%", "inf%", "1e1%", "5%%", "80%MB", "half"] {
            assert!(parse_memory(text).is_err(), "{text}");
        }
    }
}
