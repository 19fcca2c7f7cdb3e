//! Columns of rows in requests. Converts one JSON object per row to a table, and refuses values that it would have to
//! change.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use adjoin::{Attribute, AttributeKind};
use arrow_array::builder::{ArrayBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::temporal_conversions::timestamp_us_to_datetime;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::problem::Problem;

/// Maximum number of characters of a value or name that a message quotes.
const QUOTED_MAX: usize = 60;

/// Builds a table with the columns `attributes` of `rows` rows, from one object per row.
///
/// # Errors
/// If the number of objects is not `rows`, or an object has a name or a value that the columns do not allow.
pub(crate) fn table_of(
    attributes: &[Attribute],
    objects: Option<Vec<&RawValue>>,
    rows: usize,
) -> Result<Option<RecordBatch>, Problem> {
    let Some(objects) = objects else {
        return if attributes.is_empty() || rows == 0 { Ok(None) } else { Err(left_out(attributes)) };
    };
    if objects.len() != rows {
        let given = objects.len();
        return Err(Problem::bad_request(format!(
            "there are {rows} vectors, but {given} objects in `columns`; give an object for each vector"
        )));
    }
    if attributes.is_empty() && objects.iter().all(|object| object.get() == "{}") {
        return Ok(None);
    }
    let mut columns: Vec<Column> = attributes.iter().map(|attribute| Column::new(attribute.kind)).collect();
    for (row, object) in objects.into_iter().enumerate() {
        let failed = |why: &dyn fmt::Display| Problem::bad_request(format!("the columns of vector {row}: {why}"));
        // Checked here, since the error of the parser does not show an example of an object.
        if !object.get().starts_with('{') {
            return Err(failed(&format!("{} is not an object; give {}", quoted(object.get()), example(attributes))));
        }
        let mut deserializer = serde_json::Deserializer::from_str(object.get());
        let read = OneObject { attributes, columns: &mut columns, row }.deserialize(&mut deserializer);
        read.map_err(|error| failed(&without_place(&error)))?;
    }
    let columns: Vec<ArrayRef> = columns.iter_mut().map(|column| column.builder().finish()).collect();
    let field =
        |(attribute, column): (&Attribute, &ArrayRef)| Field::new(&attribute.name, column.data_type().clone(), true);
    let fields: Vec<Field> = attributes.iter().zip(&columns).map(field).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
        .map(Some)
        .map_err(|error| Problem::bad_request(format!("the columns: {error}")))
}

fn left_out(attributes: &[Attribute]) -> Problem {
    Problem::bad_request(format!(
        "columns are missing; give an object for each vector in `columns`, such as {}",
        example(attributes)
    ))
}

/// Returns an object that rows with these columns may have.
fn example(attributes: &[Attribute]) -> String {
    let shown = attributes.first().map(|Attribute { name, .. }| {
        let mut members = serde_json::Map::new();
        members.insert(name.clone(), serde_json::Value::Null);
        serde_json::Value::Object(members).to_string()
    });
    shown.unwrap_or_else(|| "{}".to_owned())
}

/// Returns a message of the parser without its line and column. They count from the start of the object, not of the
/// body, so they would mislead the user.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words).to_owned()
}

fn quoted(text: &str) -> String {
    let mut cut: String = text.chars().take(QUOTED_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_MAX).is_some() {
        cut.push_str(" ...");
    }
    cut
}

/// Values of a column. Dates and timestamps stay text: the collection parses them, as it does for every source.
enum Column {
    Text(StringBuilder),
    Int64(Int64Builder),
    Float64(Float64Builder),
    Bool(BooleanBuilder),
    Date(StringBuilder),
    Timestamp(StringBuilder),
}

impl Column {
    fn new(kind: AttributeKind) -> Self {
        match kind {
            AttributeKind::Text => Self::Text(StringBuilder::new()),
            AttributeKind::Int64 => Self::Int64(Int64Builder::new()),
            AttributeKind::Float64 => Self::Float64(Float64Builder::new()),
            AttributeKind::Bool => Self::Bool(BooleanBuilder::new()),
            AttributeKind::Date => Self::Date(StringBuilder::new()),
            AttributeKind::Timestamp => Self::Timestamp(StringBuilder::new()),
        }
    }

    fn builder(&mut self) -> &mut dyn ArrayBuilder {
        match self {
            Self::Text(values) | Self::Date(values) | Self::Timestamp(values) => values,
            Self::Int64(values) => values,
            Self::Float64(values) => values,
            Self::Bool(values) => values,
        }
    }

    /// Returns the number of values.
    fn len(&mut self) -> usize {
        self.builder().len()
    }

    fn push_null(&mut self) {
        match self {
            Self::Text(values) | Self::Date(values) | Self::Timestamp(values) => values.append_null(),
            Self::Int64(values) => values.append_null(),
            Self::Float64(values) => values.append_null(),
            Self::Bool(values) => values.append_null(),
        }
    }

    /// Appends a JSON value.
    ///
    /// # Errors
    /// If the value is of another type. The error describes the expected type.
    fn push(&mut self, json: &str) -> Result<(), &'static str> {
        if json == "null" {
            self.push_null();
            return Ok(());
        }
        let text = || serde_json::from_str::<Cow<'_, str>>(json).ok();
        match self {
            Self::Text(values) => values.append_value(text().ok_or("a text")?),
            Self::Int64(values) => values.append_value(integer(json).ok_or("an integer of 64 bits")?),
            Self::Float64(values) => values.append_value(float(json).ok_or("a number that 64-bit floats hold")?),
            Self::Bool(values) => values.append_value(serde_json::from_str(json).map_err(|_| "true or false")?),
            Self::Date(values) => values.append_value(text().ok_or("a text such as \"2020-02-29\"")?),
            Self::Timestamp(values) => {
                let microseconds = || timestamp_us_to_datetime(integer(json)?).map(|time| time.to_string().into());
                let expected = "a text such as \"2020-02-29T12:00:00Z\", or microseconds since 1970";
                values.append_value(text().or_else(microseconds).ok_or(expected)?);
            }
        }
        Ok(())
    }
}

/// Returns the integer that equals a JSON number: `1`, `1.0` and `10e-1` are all 1. Returns `None` if the number is
/// not an integer or not in the range of i64.
fn integer(json: &str) -> Option<i64> {
    // Parsed as text: a conversion through f64 would round integers above 2^53.
    let (mantissa, exponent) = match json.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()),
        None => (json, Some(0)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // Leading zeros are removed. Trailing zeros are moved to the exponent, so that `10e-1` is recognized as an
    // integer.
    let digits = digits.trim_start_matches('0');
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let dropped = (digits.len() - significant.len()) as i64;
    // The number of zeros to append to the digits. If it is negative, the value has a fraction, so it is not an
    // integer.
    let zeros = exponent?.checked_sub(fraction.len() as i64)?.checked_add(dropped)?;
    // 2^63 has 19 digits.
    if !(0..=19).contains(&zeros) {
        return None;
    }
    format!("{sign}{significant}{}", "0".repeat(zeros as usize)).parse().ok()
}

/// Returns the f64 that is nearest to a JSON number. Returns `None` for an integer that no f64 equals.
fn float(json: &str) -> Option<f64> {
    if !json.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    let value: f64 = json.parse().ok().filter(|value: &f64| value.is_finite())?;
    // A client that sends an integer expects to read this integer back, so an integer that would be rounded is
    // refused.
    let is_exact = match integer(json) {
        Some(integer) => value as i128 == i128::from(integer),
        None => true,
    };
    is_exact.then_some(value)
}

/// Deserializer that appends the values of one row's object to the columns.
struct OneObject<'a> {
    attributes: &'a [Attribute],
    columns: &'a mut [Column],
    row: usize,
}

impl<'de> DeserializeSeed<'de> for OneObject<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for OneObject<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        // Values are read as raw text. This keeps all digits, and nested values do not use the stack.
        while let Some((name, value)) = members.next_entry::<Cow<'de, str>, &RawValue>()? {
            let Some(at) = self.attributes.iter().position(|attribute| attribute.name == name) else {
                let known: Vec<&str> = self.attributes.iter().map(|attribute| &*attribute.name).collect();
                let known = if known.is_empty() { "the rows have none".to_owned() } else { known.join(", ") };
                let name = quoted(&name);
                return Err(A::Error::custom(format!("there is no column `{name}`; choose from: {known}")));
            };
            let column = &mut self.columns[at];
            // Each earlier row has added one value to every column, so a column that is longer has a value of this
            // row already.
            if column.len() > self.row {
                return Err(A::Error::custom(format!("`{}` is given twice; give it once", quoted(&name))));
            }
            column.push(value.get()).map_err(|expected| {
                let (name, kind, value) = (quoted(&name), self.attributes[at].kind, quoted(value.get()));
                A::Error::custom(format!("`{name}` is {value}, which is not a valid {kind}; give {expected}, or null"))
            })?;
        }
        // If the object lacks a member, null is added, so that all columns have equal length.
        self.columns
            .iter_mut()
            .filter_map(|column| (column.len() == self.row).then(|| column.push_null()))
            .for_each(drop);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, Int64Type};
    use proptest::prelude::*;

    use super::*;

    const ALL: [&str; 6] = ["t:text", "i:int64", "f:float64", "b:bool", "d:date", "s:timestamp"];

    fn table(known: &[&str], objects: &str, rows: usize) -> Result<Option<RecordBatch>, Problem> {
        let known: Vec<Attribute> = known.iter().map(|text| text.parse().unwrap()).collect();
        table_of(&known, Some(serde_json::from_str(objects).unwrap()), rows)
    }

    #[test]
    fn json_objects_become_columns_with_nulls_for_missing_members() {
        let objects = r#"[{"t": "e\u006e", "i": 7}, {"i": null, "t": null}, {"f": 0.1, "b": true, "s": 1000001}]"#;
        let table = table(&ALL, objects, 3).unwrap().unwrap();
        assert_eq!(table.column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("en"), None, None]);
        assert_eq!(table.column(1).as_primitive::<Int64Type>().iter().collect::<Vec<_>>(), [Some(7), None, None]);
        assert_eq!(table.column(2).as_primitive::<Float64Type>().value(2), 0.1);
        assert!(table.column(3).as_boolean().value(2));
        assert_eq!(table.column(5).as_string::<i32>().value(2), "1970-01-01 00:00:01.000001");
        assert_eq!(table_of(&[], None, 3), Ok(None));
        assert_eq!(super::table_of(&[], Some(serde_json::from_str("[{}]").unwrap()), 1), Ok(None));
    }

    #[test]
    fn numbers_are_exact_or_refused() {
        for (text, value) in [
            ("1", Some(1)),
            ("1.0", Some(1)),
            ("-0.0", Some(0)),
            ("0e99999999999999999999", Some(0)),
            ("12e2", Some(1_200)),
            ("1250e-2", None),
            ("1200e-2", Some(12)),
            ("1.5", None),
            ("-2.9", None),
            ("1.00000000000000000000001", None),
            ("1e400", None),
            ("1e18446744073709551617", None),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9.223372036854775808e18", Some(i64::MIN)),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("\"1\"", None),
            ("true", None),
            ("[1]", None),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
        for (text, value) in [
            ("0.1", Some(0.1)),
            ("1e308", Some(1e308)),
            ("1e309", None),
            ("-1e400", None),
            ("5e-324", Some(5e-324)),
            ("9007199254740993", None),
            ("9007199254740992", Some(9_007_199_254_740_992.0)),
            ("-9223372036854775808", Some(-9_223_372_036_854_775_808.0)),
            ("\"NaN\"", None),
        ] {
            assert_eq!(float(text), value, "{text}");
        }
    }

    #[test]
    fn invalid_columns_are_refused_with_their_vector_and_a_remedy() {
        let deep = format!(r#"[{{"t": {}{}}}]"#, "[".repeat(50_000), "]".repeat(50_000));
        for (objects, rows, words) in [
            ("[{}]", 2, "there are 2 vectors, but 1 objects in `columns`; give an object for each vector"),
            (r#"[{"other": 1}]"#, 1, "vector 0: there is no column `other`; choose from: t, i, f, b, d, s"),
            (
                r#"[{}, {"i": "x"}]"#,
                2,
                "vector 1: `i` is \\\"x\\\", which is not a valid int64; give an integer of 64 bits, or null",
            ),
            (r#"[{"i": 1.5}]"#, 1, "`i` is 1.5, which is not a valid int64"),
            (r#"[{"i": 1e400}]"#, 1, "`i` is 1e400, which is not a valid int64"),
            (r#"[{"f": 1e400}]"#, 1, "`f` is 1e400, which is not a valid float64"),
            (r#"[{"t": 7}]"#, 1, "`t` is 7, which is not a valid text"),
            (r#"[{"b": 1}]"#, 1, "give true or false"),
            (r#"[{"d": 1}]"#, 1, "2020-02-29"),
            (r#"[{"s": 1.5}]"#, 1, "microseconds since 1970"),
            (r#"[{"t": "a", "t": "b"}]"#, 1, "`t` is given twice"),
            ("[7]", 1, "vector 0: 7 is not an object; give {\"t\":null}"),
            ("[[]]", 1, "is not an object"),
            ("[null]", 1, "null is not an object; give {\"t\":null}"),
            (&deep, 1, "which is not a valid text"),
        ] {
            let problem = table(&ALL, objects, rows).unwrap_err();
            assert_eq!(problem.status, 400);
            assert!(problem.detail.contains(words) && problem.detail.len() < 500, "{objects}: {}", problem.detail);
        }
        let missing = table_of(&["lang:text".parse().unwrap()], None, 1).unwrap_err().detail;
        assert!(missing.contains("give an object for each vector in `columns`, such as {\"lang\":null}"), "{missing}");
        assert!(table(&[], r#"[{"x": 1}]"#, 1).unwrap_err().detail.contains("the rows have none"));
    }

    proptest! {
        /// Checks that integers in any notation equal the result of exact arithmetic.
        #[test]
        fn integers_agree_with_exact_arithmetic(whole in "-?[0-9]{1,18}", fraction in "[0-9]{0,6}", exponent in -8..8i32) {
            let dot = if fraction.is_empty() { "" } else { "." };
            let text = format!("{whole}{dot}{fraction}e{exponent}");
            let scaled: i128 = format!("{whole}{fraction}").parse().unwrap();
            let shift = exponent - fraction.len() as i32;
            let exact = match shift {
                0.. => Some(scaled * 10i128.pow(shift as u32)),
                _ => (scaled % 10i128.pow(-shift as u32) == 0).then(|| scaled / 10i128.pow(-shift as u32)),
            };
            prop_assert_eq!(integer(&text), exact.and_then(|exact| exact.try_into().ok()));
        }

        /// Checks that every object is read or refused.
        #[test]
        fn no_object_panics(value in "[\\[\\]{}\":,0-9a-z.eE+-]{0,60}") {
            let text = format!("[{{\"i\": {value}}}, {{\"f\": {value}, \"t\": {value}, \"s\": {value}, \"d\": {value}}}]");
            let known: Vec<Attribute> = ALL.iter().map(|text| text.parse().unwrap()).collect();
            if let Ok(objects) = serde_json::from_str::<Vec<&RawValue>>(&text) {
                let rows = objects.len();
                let _ = super::table_of(&known, Some(objects), rows);
            }
        }
    }
}
