//! Columns that rows have in addition to vector and id. They are set when the collection is created, and all rows have
//! the same columns.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::base::choice::{Choice, choices};
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Most columns of a collection. The bound keeps the manifest small.
const ATTRIBUTES_MAX: usize = 100;
/// Most bytes of a column name.
const NAME_BYTES_MAX: usize = 128;
/// Names that columns must not have: `Collection.get` in Python uses them for the id and the vector.
const RESERVED: [&str; 2] = ["id", "vector"];

/// A column that rows have in addition to vector and id. Any of its values may be null.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Name, as in filters and sources.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    pub kind: AttributeKind,
}

/// Type of the values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttributeKind {
    /// UTF-8 text.
    Text,
    /// Signed 64-bit integers.
    Int64,
    /// 64-bit floats.
    Float64,
    /// True or false.
    Bool,
    /// Days since 1970.
    Date,
    /// Microseconds since 1970, in UTC.
    Timestamp,
}

impl AttributeKind {
    /// Returns the Arrow type of a column of this type.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Int64 => DataType::Int64,
            Self::Float64 => DataType::Float64,
            Self::Bool => DataType::Boolean,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        }
    }
}

choices! {
    "the type of a column" => AttributeKind {
        Text = "text", Int64 = "int64", Float64 = "float64", Bool = "bool", Date = "date", Timestamp = "timestamp",
    }
}

impl FromStr for Attribute {
    type Err = Error;

    /// Parses a name, a colon and a type, such as `year:int64`. The name may contain colons.
    fn from_str(text: &str) -> Result<Self> {
        let there = AttributeKind::names().join(", ");
        let parsed = text
            .rsplit_once(':')
            .and_then(|(name, kind)| Some(Self { name: name.to_owned(), kind: kind.parse().ok()? }));
        let why = format!(": give a name, a colon and a type, which is one of {there}");
        parsed.ok_or_else(|| Error::option(message![Argument::Columns.with(text), why]))
    }
}

/// Checks the names and the number of columns for a new collection.
///
/// # Errors
/// If a name is empty, too long, reserved or given twice, or there are too many.
pub(super) fn check(attributes: &[Attribute]) -> Result<()> {
    let refused = |name: &str, why: String| Err(Error::option(message![Argument::Columns.with(name), why]));
    if attributes.len() > ATTRIBUTES_MAX {
        return refused("", format!("has {} columns; rows have at most {ATTRIBUTES_MAX}", attributes.len()));
    }
    let mut seen = BTreeSet::new();
    for Attribute { name, .. } in attributes {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || name.contains(char::is_control) {
            return refused(name, format!(": a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"));
        }
        if RESERVED.contains(&name.as_str()) {
            return refused(name, ": this name is reserved; give the column another name".into());
        }
        if !seen.insert(name) {
            return refused(name, " is named twice; name it once".into());
        }
    }
    Ok(())
}

/// Returns the Arrow schema of tables with these columns, in this order.
pub(super) fn schema(attributes: &[Attribute]) -> SchemaRef {
    let field = |attribute: &Attribute| Field::new(&attribute.name, attribute.kind.data_type(), true);
    Arc::new(Schema::new(attributes.iter().map(field).collect::<Vec<_>>()))
}

/// Returns the column names, in order.
pub(super) fn names(attributes: &[Attribute]) -> Vec<String> {
    attributes.iter().map(|attribute| attribute.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_definitions_round_trip_and_others_are_refused() {
        for &kind in AttributeKind::ALL {
            let read: Attribute = format!("a:b:{kind}").parse().unwrap();
            assert_eq!(read, Attribute { name: "a:b".into(), kind });
            let json = serde_json::to_value(&read).unwrap();
            assert_eq!(json, serde_json::json!({"name": "a:b", "type": kind.name()}));
            assert_eq!(serde_json::from_value::<Attribute>(json).unwrap(), read);
        }
        for text in ["", "lang", "lang:", "lang:utf8", "lang:Text", ":"] {
            let refused = text.parse::<Attribute>().unwrap_err().to_string();
            assert!(refused.contains("text, int64, float64, bool, date, timestamp"), "{refused}");
        }
        let some = |names: &[&str]| {
            let of = |name: &&str| Attribute { name: name.to_string(), kind: AttributeKind::Text };
            check(&names.iter().map(of).collect::<Vec<_>>())
        };
        some(&[]).unwrap();
        some(&["a", "A", "a.b"]).unwrap();
        let many: Vec<String> = (0..=ATTRIBUTES_MAX).map(|k| k.to_string()).collect();
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for (names, words) in [
            (&["a", "b", "a"][..], "columns a is named twice"),
            (&["id"], "columns id: this name is reserved"),
            (&[""], "1 to 128 bytes"),
            (&["a\n"], "1 to 128 bytes"),
            (&[&long], "1 to 128 bytes"),
            (&many.iter().map(String::as_str).collect::<Vec<_>>(), "101 columns"),
        ] {
            let refused = some(names).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
