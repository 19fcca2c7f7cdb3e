//! Conditions on rows, as in `WHERE`.

use std::collections::BTreeSet;

use arrow_array::cast::AsArray;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Schema};

use super::evaluate::cast;
use super::expression::{Expression, place_of};
use super::parse::{parse, quoted, refused};
use crate::base::error::{Error, Result};

/// A condition on the columns of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    expression: Expression,
}

impl Condition {
    /// Parses a condition such as `lang = 'en' AND year >= 2020`.
    ///
    /// # Errors
    /// If the text is not SQL, or if it uses unsupported features.
    pub fn parse(text: &str) -> Result<Self> {
        let kind = "a condition, such as \"lang = 'en' AND year >= 2020\"";
        let expression = parse(text, kind, |parser| Expression::of(&parser.parse_expr().map_err(refused)?))?;
        Ok(Self { text: text.to_owned(), expression })
    }

    /// Returns the condition as the user typed it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the columns that the condition reads.
    pub fn columns(&self) -> Vec<String> {
        let mut names = BTreeSet::new();
        self.expression.add_columns(&mut names);
        names.into_iter().map(|name| name.text.clone()).collect()
    }

    /// Returns the indices of the columns that the condition reads in tables of `schema`, ascending.
    ///
    /// # Errors
    /// If a column is missing, if types do not match, or if the expression is not boolean.
    pub(crate) fn bind(&self, schema: &Schema) -> Result<Vec<usize>> {
        let mut names = BTreeSet::new();
        self.expression.add_columns(&mut names);
        // Two spellings of one name are one column, so the indices are a set.
        let places = names.into_iter().map(|name| place_of(name, schema)).collect::<Result<BTreeSet<usize>>>();
        let places: Vec<usize> = places.map_err(|error| self.failed(&error))?.into_iter().collect();
        let read = schema.project(&places).map_err(|error| self.failed(&error))?;
        // The condition is evaluated on a table without rows, so that wrong types are reported before any file is read.
        self.values(&RecordBatch::new_empty(read.into()))?;
        Ok(places)
    }

    /// Returns, for each row of a table, whether the condition is true. The table must have the columns at the indices
    /// that [`Self::bind`] returned. Null counts as false.
    ///
    /// # Errors
    /// If a value cannot be computed.
    pub(crate) fn is_true(&self, table: &RecordBatch) -> Result<BooleanArray> {
        let truth = self.values(table)?;
        Ok(match truth.nulls() {
            None => truth,
            // The value of a null is arbitrary, so it is masked.
            Some(nulls) => BooleanArray::new(truth.values() & nulls.inner(), None),
        })
    }

    fn values(&self, table: &RecordBatch) -> Result<BooleanArray> {
        let found = self.expression.evaluate(table).map_err(|error| self.failed(&error))?;
        let found = match found.data_type() {
            DataType::Null => cast(&found, &DataType::Boolean)?,
            _ => found,
        };
        found.as_boolean_opt().cloned().ok_or_else(|| {
            let kind = found.data_type();
            self.failed(&format!("it yields {kind}, not true or false; compare it with a value"))
        })
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> Error {
        Error::option(format!("cannot filter rows by {}: {why}", quoted(&self.text)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Date32Array, Float64Array, Int32Array, NullArray, StringArray, StringViewArray};

    use super::*;

    fn table() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("lang", Arc::new(StringArray::from(vec![Some("en"), Some("de"), None, Some("EN"), Some("e%n")]))),
            ("Year", Arc::new(Int32Array::from(vec![Some(2020), None, Some(2019), Some(2021), Some(-1)]))),
            ("score", Arc::new(Float64Array::from(vec![0.5, f64::NAN, -1.0, 2.0, 0.0]))),
            ("day", Arc::new(Date32Array::from(vec![10, 20, 30, 40, 50]))),
            ("is_new", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, Some(true), None]))),
            ("view", Arc::new(StringViewArray::from(vec!["a", "b", "c", "d", "e"]))),
            ("nothing", Arc::new(NullArray::new(5))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// Returns the rows that meet a condition.
    fn passing(condition: &str) -> Vec<usize> {
        let (table, condition) = (table(), Condition::parse(condition).unwrap());
        let read = table.project(&condition.bind(&table.schema()).unwrap()).unwrap();
        let truth = condition.is_true(&read).unwrap();
        assert_eq!(truth.null_count(), 0);
        (0..truth.len()).filter(|&row| truth.value(row)).collect()
    }

    #[test]
    fn filters_follow_sql_and_null_is_not_true() {
        for (condition, expected) in [
            ("lang = 'en'", &[0][..]),
            ("lang <> 'en'", &[1, 3, 4]),
            ("not lang = 'en'", &[1, 3, 4]),
            ("lang = 'en' or year is null", &[0, 1]),
            ("lang = 'en' AND \"Year\" >= 2020", &[0]),
            ("not (year > 2019 and lang = 'xx')", &[0, 1, 2, 3, 4]),
            ("year > 2019 or lang is null", &[0, 2, 3]),
            ("year between 2019 and 2020", &[0, 2]),
            ("year not between 2019 and 2020", &[3, 4]),
            ("year in (2020, 2021, null)", &[0, 3]),
            ("year not in (2020, null)", &[]),
            ("year not in (2020, 2019)", &[3, 4]),
            ("lang like 'e%'", &[0, 4]),
            ("lang like 'e_'", &[0]),
            ("lang not like '%n'", &[1, 3]),
            ("lang ilike 'en'", &[0, 3]),
            ("lang like 'e\\%n'", &[4]),
            ("view like 'b'", &[1]),
            ("view in ('a', 'e')", &[0, 4]),
            ("score < 1", &[0, 2, 4]),
            ("score * 2 = 1 or year % 2 = 1 and year > 0", &[0, 2, 3]),
            ("day < '1970-02-01'", &[0, 1, 2]),
            ("day between '1970-01-21' and '1970-02-10'", &[1, 2, 3]),
            ("is_new", &[0, 3]),
            ("not is_new", &[1]),
            ("is_new is null", &[2, 4]),
            ("is_new = false", &[1]),
            ("nothing = 1", &[]),
            ("nothing is null", &[0, 1, 2, 3, 4]),
            ("lower(lang) = 'en' and length(lang) = 2", &[0, 3]),
            ("true", &[0, 1, 2, 3, 4]),
            ("null", &[]),
        ] {
            assert_eq!(passing(condition), expected, "{condition}");
        }
    }

    #[test]
    fn long_conditions_need_little_stack() {
        let chain = vec!["year=1"; 400].join(" or ");
        assert_eq!(passing(&chain), [0; 0]);
        let list = (0..900).map(|k| k.to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(passing(&format!("year not in ({list})")), [0, 2, 3, 4]);
    }

    #[test]
    fn nested_conditions_evaluate_each_part_once() {
        let nested = (0..45).fold("is_new".to_owned(), |inner, k| format!("({inner} {} is_new)", ["and", "or"][k % 2]));
        assert_eq!(passing(&nested), [0, 3]); // if each level were evaluated twice, this would not end
    }

    #[test]
    fn refuses_invalid_conditions() {
        for (condition, words) in [
            ("", "such as"),
            ("lang = ", "such as"),
            ("lang = 'en' order by year", "not expected"),
            ("lang = 'en'; drop table x", "not expected"),
            ("language = 'en'", "there is no column language; choose from lang, Year, score"),
            ("lang = \"en\"", "view, nothing; a text is in single quotes: 'en'"),
            ("year", "it yields Int32, not true or false"),
            ("year + 1", "not true or false"),
            ("year = 'x'", "cannot filter rows by year = 'x'"),
            ("year > 'abc'", "compare the column, which has numbers, with a number"),
            ("lang and true", "AND, OR and NOT take booleans"),
            ("year like '2%'", "LIKE compares texts, not Int32"),
            ("lang like 'a' escape '!'", "is not supported"),
            ("exists (select 1)", "is not supported"),
            ("random() < 1", "no function random"),
            ("is_new = 3", "cannot be compared"),
        ] {
            let schema = table().schema();
            let refused = Condition::parse(condition).and_then(|condition| condition.bind(&schema));
            let message = refused.expect_err(condition).to_string();
            assert!(message.contains(words), "{condition}: {message}");
        }
        let long = Condition::parse(&"-".repeat(5_000)).unwrap_err().to_string();
        assert!(long.contains("a condition has 5000 bytes; write at most 4096"), "{long}");
        let of_texts = Condition::parse("lang = 1").unwrap();
        let read = table().project(&of_texts.bind(&table().schema()).unwrap()).unwrap();
        let message = of_texts.is_true(&read).unwrap_err().to_string();
        assert!(message.contains("put the number in quotes to compare texts"), "{message}");
        let divided = Condition::parse("year / 0 = 1").unwrap();
        let table = table().project(&divided.bind(&table().schema()).unwrap()).unwrap();
        assert!(divided.is_true(&table).unwrap_err().to_string().contains("ivide"));
    }
}
