//! Parses search requests in JSON. Vectors are converted to their stored form during parsing. Parsing stops as soon
//! as a limit is exceeded.

use std::fmt;

use adjoin::{Element, VectorType};
use serde::de::{DeserializeSeed, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::ids::GivenIds;
use crate::problem::Problem;

/// Maximum number of queries of a request.
pub(crate) const QUERIES_MAX: usize = 4_096;

/// Members of a search request, also accepted in the query string if the body is not JSON.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Members {
    pub(crate) queries: Option<Vectors>,
    /// Ids of rows whose vectors are the queries, instead of `queries`.
    pub(crate) like: Option<GivenIds>,
    pub(crate) k: Option<u64>,
    pub(crate) radius: Option<f64>,
    pub(crate) min_similarity: Option<f64>,
    pub(crate) recall: Option<f64>,
    #[serde(default)]
    pub(crate) exact: bool,
    pub(crate) nprobe: Option<u32>,
    pub(crate) list: Option<usize>,
    pub(crate) r#where: Option<String>,
    #[serde(default)]
    pub(crate) columns: ColumnNames,
    pub(crate) deadline_ms: Option<u64>,
    /// Whether an answer may lack the rows of shards that fail. Servers of a folder answer whole or not at all.
    #[serde(default)]
    pub(crate) partial: bool,
    /// Element type of a raw body.
    pub(crate) element: Option<String>,
}

impl Members {
    /// Example of a search request, for messages.
    pub(crate) const EXAMPLE: &'static str = r#"{"queries": [[0.5, 1.5]], "k": 10}"#;
}

/// Names of columns, given as a list, or (in a query string) as a text with commas.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ColumnNames(pub(crate) Vec<String>);

impl<'de> Deserialize<'de> for ColumnNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AllNames)
    }
}

struct AllNames;

impl<'de> Visitor<'de> for AllNames {
    type Value = ColumnNames;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of names of columns")
    }

    fn visit_str<E>(self, names: &str) -> Result<ColumnNames, E> {
        Ok(ColumnNames(names.split(',').map(str::to_owned).collect()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<ColumnNames, A::Error> {
        let mut names = Vec::new();
        while let Some(name) = all.next_element()? {
            names.push(name);
        }
        Ok(ColumnNames(names))
    }
}

/// Vectors in one buffer, one after the other, little-endian. Vectors from JSON are f32.
#[derive(Debug, PartialEq)]
pub(crate) struct Vectors {
    pub(crate) rows: usize,
    pub(crate) kind: VectorType,
    pub(crate) stored: Vec<u8>,
}

/// Parses a JSON object. Refuses a list, which serde alone would accept as the members in the order of their
/// declaration. `example` is a valid object, for messages.
///
/// # Errors
/// If the body is no object, or has members that `T` does not have.
pub(crate) fn object<'a, T: Deserialize<'a>>(body: &'a [u8], example: &str) -> Result<T, Problem> {
    if body.trim_ascii_start().first() != Some(&b'{') {
        let what = if body.trim_ascii().is_empty() { "the body is empty" } else { "the body is not a JSON object" };
        return Err(Problem::bad_request(format!("{what}; send one such as {example}")));
    }
    parse(body)
}

/// Parses a value from JSON.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| Problem::bad_request(format!("the body is not as expected: {error}")))
}

impl<'de> Deserialize<'de> for Vectors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(AllRows)
    }
}

struct AllRows;

impl<'de> Visitor<'de> for AllRows {
    type Value = Vectors;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of vectors, each a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Vectors, A::Error> {
        // The first row sets the dimension. All others are compared with it.
        let kind = VectorType { element: Element::F32, dimensions: 0 };
        let mut vectors = Vectors { rows: 0, kind, stored: Vec::new() };
        while let Some(dimensions) = rows.next_element_seed(Row { number: vectors.rows, into: &mut vectors.stored })? {
            if vectors.rows > 0 && dimensions != vectors.kind.dimensions {
                let (row, first) = (vectors.rows, vectors.kind.dimensions);
                return Err(A::Error::custom(format!(
                    "vector {row} has {dimensions} numbers, but vector 0 has {first}; give vectors of one length"
                )));
            }
            (vectors.rows, vectors.kind.dimensions) = (vectors.rows + 1, dimensions);
            // Checked during parsing, so that a long list cannot fill the memory first.
            if vectors.rows > QUERIES_MAX {
                return Err(A::Error::custom(format!("more than {QUERIES_MAX} vectors; send several requests")));
            }
        }
        Ok(vectors)
    }
}

/// Parser of row `number`, whose elements are appended to the bytes of all rows.
struct Row<'a> {
    number: usize,
    into: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = usize;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a list of numbers as vector {}", self.number)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<usize, A::Error> {
        let mut dimensions = 0;
        while let Some(value) = elements.next_element::<f64>()? {
            // A number beyond the range of f32 becomes infinite, so the check of the result finds it.
            let element = value as f32;
            if !element.is_finite() {
                return Err(A::Error::custom(format!(
                    "element {dimensions} of vector {} is {value:?}, beyond the range of f32",
                    self.number
                )));
            }
            dimensions += 1;
            if dimensions > VectorType::DIMENSIONS_MAX {
                return Err(A::Error::custom(format!(
                    "vector {} has more than {} numbers, the most that a vector may have",
                    self.number,
                    VectorType::DIMENSIONS_MAX
                )));
            }
            self.into.extend_from_slice(&element.to_le_bytes());
        }
        if dimensions == 0 {
            return Err(A::Error::custom(format!("vector {} has no numbers", self.number)));
        }
        Ok(dimensions)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(text: &str) -> Result<Members, Problem> {
        object(text.as_bytes(), Members::EXAMPLE)
    }

    #[test]
    fn vectors_become_stored_bytes() {
        let read = members(r#"{"queries": [[1, -2.5], [3e0, 0]], "k": 3, "where": "a = 1"}"#).unwrap();
        let stored = [1.0f32, -2.5, 3.0, 0.0].iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!(
            read.queries,
            Some(Vectors { rows: 2, kind: VectorType { element: Element::F32, dimensions: 2 }, stored })
        );
        assert_eq!((read.k, read.r#where.as_deref()), (Some(3), Some("a = 1")));
    }

    #[test]
    fn errors_in_json_bodies_name_their_place() {
        for (text, words) in [
            ("{", "EOF"),
            ("[]", r#"the body is not a JSON object; send one such as {"queries""#),
            ("[[[1, 2]], null, 1]", "the body is not a JSON object"),
            (" ", "the body is empty"),
            (r#"{"queries": [[1, 1e400]]}"#, "number out of range"),
            (r#"{"queries": [[1, 2], [3]]}"#, "vector 1 has 1 numbers, but vector 0 has 2"),
            (r#"{"queries": [[1, 1e39]]}"#, "element 1 of vector 0 is 1e39"),
            (r#"{"queries": [[1, NaN]]}"#, "expected value"),
            (r#"{"queries": [[1, null]]}"#, "null"),
            (r#"{"queries": [1]}"#, "a list of numbers as vector 0"),
            (r#"{"queries": [[]]}"#, "vector 0 has no numbers"),
            (r#"{"queries": 7}"#, "a list of vectors"),
            (r#"{"queries": [[1]], "top_k": 3}"#, "unknown field `top_k`"),
            (r#"{"k": 1, "k": 2}"#, "duplicate field"),
            (r#"{"k": -1}"#, "-1"),
            (r#"{"columns": [1]}"#, "a string"),
            (r#"{"columns": 1}"#, "a list of names of columns"),
        ] {
            let problem = members(text).unwrap_err();
            assert!(problem.detail.contains(words), "{text}: {}", problem.detail);
        }
        let long = format!(r#"{{"queries": [[{}0]]}}"#, "0,".repeat(VectorType::DIMENSIONS_MAX));
        assert!(members(&long).unwrap_err().detail.contains("more than 8192 numbers"));
        let many = format!(r#"{{"queries": [{}[0]]}}"#, "[0],".repeat(QUERIES_MAX));
        assert!(members(&many).unwrap_err().detail.contains("more than 4096 vectors"));
    }

    proptest! {
        /// Checks that every body is read or refused.
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = object::<Members>(&bytes, "");
        }

        /// Checks that every body close to a valid one is read or refused.
        #[test]
        fn no_almost_valid_body_panics(at in 0..60usize, byte in any::<u8>()) {
            let mut text = br#"{"queries":[[1,2.5],[3,-4e3]],"k":10,"recall":0.9,"where":"a"}"#.to_vec();
            text[at] = byte;
            let _ = object::<Members>(&text, "");
        }

        /// Checks that the numbers equal those in the text, rounded to f32.
        #[test]
        fn numbers_equal_their_json_text(rows in proptest::collection::vec(proptest::collection::vec(-1e30f32..1e30, 3), 1..5)) {
            let text = serde_json::json!({ "queries": rows }).to_string();
            let read = members(&text).unwrap().queries.unwrap();
            let wanted: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
            prop_assert_eq!(read.stored, wanted);
        }
    }
}
