//! Evaluates expressions on the rows of a table.

use std::sync::Arc;

use arrow_arith::{boolean, numeric};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, Int64Array, NullArray, RecordBatch, StringArray};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType};
use arrow_select::nullif::nullif;
use arrow_select::zip::zip;
use arrow_string::length::length;
use arrow_string::like::{ilike, like};

use super::compare::{compare, widen};
use super::expression::{Expression, Function, Operator, field_of, place_of};
use super::values::Values;
use crate::base::error::{Error, Result};

impl Expression {
    /// Computes a value for each row.
    ///
    /// # Errors
    /// If types do not match, or if a value cannot be computed, for example in a division by zero.
    pub(super) fn evaluate(&self, table: &RecordBatch) -> Result<ArrayRef> {
        let values = self.values(table)?;
        if !values.is_scalar {
            return Ok(values.array);
        }
        // A scalar is repeated only at the end. Until then, kernels compare it with all rows at once.
        let first = Int64Array::from(vec![0; table.num_rows()]);
        arrow_select::take::take(&values.array, &first, None).map_err(|error| self.failed(&error))
    }

    fn values(&self, table: &RecordBatch) -> Result<Values> {
        let one = |array: ArrayRef| Ok(Values { array, is_scalar: true });
        match self {
            Self::Column(path) => column(table, path).map(|array| Values { array, is_scalar: false }),
            Self::Text(text) => one(Arc::new(StringArray::from(vec![text.as_str()]))),
            Self::Integer(value) => one(Arc::new(Int64Array::from(vec![*value]))),
            Self::Float(value) => one(Arc::new(Float64Array::from(vec![*value]))),
            Self::Boolean(value) => one(Arc::new(BooleanArray::from(vec![*value]))),
            Self::Null => one(Arc::new(NullArray::new(1))),
            Self::Binary(operator @ (Operator::And | Operator::Or), both) => {
                // Each side is evaluated only once. Evaluating it twice would take time exponential in the depth of the
                // condition.
                let array = self.logic(*operator, [&both[0], &both[1]], table)?;
                Ok(Values { array, is_scalar: false })
            }
            Self::Binary(operator, both) => {
                let (left, right) = self.alike(both[0].values(table)?, both[1].values(table)?)?;
                let array = self.operate(*operator, &left, &right).map_err(|error| self.failed(&error))?;
                Ok(Values { array, is_scalar: left.is_scalar && right.is_scalar })
            }
            Self::Not(inner) => {
                let array = self.truth(inner, table)?;
                let array = boolean::not(&array).map_err(|error| self.failed(&error))?;
                Ok(Values { array: Arc::new(array), is_scalar: false })
            }
            Self::IsNull(inner) => {
                let array = boolean::is_null(&inner.evaluate(table)?).map_err(|error| self.failed(&error))?;
                Ok(Values { array: Arc::new(array), is_scalar: false })
            }
            Self::Negative(inner) => {
                let Values { array, is_scalar } = inner.values(table)?;
                let array = numeric::neg(&array).map_err(|error| self.failed(&error))?;
                Ok(Values { array, is_scalar })
            }
            Self::Like { both, ignores_case } => {
                let [text, pattern] = [both[0].text(table)?, both[1].text(table)?];
                let is_scalar = text.is_scalar && pattern.is_scalar;
                let matched = if *ignores_case { ilike(&text, &pattern) } else { like(&text, &pattern) };
                Ok(Values { array: Arc::new(matched.map_err(|error| self.failed(&error))?), is_scalar })
            }
            Self::Call(function, arguments) => {
                let array = self.applied(*function, arguments, table)?;
                Ok(Values { array, is_scalar: false })
            }
        }
    }

    fn operate(&self, operator: Operator, left: &Values, right: &Values) -> std::result::Result<ArrayRef, ArrowError> {
        let truth = |array: BooleanArray| Arc::new(array) as ArrayRef;
        // This is the fast path for common types. Arrow's kernels handle all other types.
        if let Some(found) = compare(operator, left, right) {
            return Ok(truth(found));
        }
        match operator {
            Operator::Add => numeric::add(left, right),
            Operator::Subtract => numeric::sub(left, right),
            Operator::Multiply => numeric::mul(left, right),
            Operator::Divide => numeric::div(left, right),
            Operator::Remainder => numeric::rem(left, right),
            Operator::Equal => cmp::eq(left, right).map(truth),
            Operator::Unequal => cmp::neq(left, right).map(truth),
            Operator::Less => cmp::lt(left, right).map(truth),
            Operator::LessOrEqual => cmp::lt_eq(left, right).map(truth),
            Operator::Greater => cmp::gt(left, right).map(truth),
            Operator::GreaterOrEqual => cmp::gt_eq(left, right).map(truth),
            Operator::And | Operator::Or => unreachable!("AND and OR combine truths, not values"),
        }
    }

    fn logic(&self, operator: Operator, both: [&Self; 2], table: &RecordBatch) -> Result<ArrayRef> {
        let [left, right] = [self.truth(both[0], table)?, self.truth(both[1], table)?];
        let combined = match operator {
            Operator::And => boolean::and_kleene(&left, &right),
            _ => boolean::or_kleene(&left, &right),
        };
        Ok(Arc::new(combined.map_err(|error| self.failed(&error))?))
    }

    fn truth(&self, inner: &Self, table: &RecordBatch) -> Result<BooleanArray> {
        let array = inner.evaluate(table)?;
        // A bare NULL has no boolean type, but is a valid operand of AND, OR and NOT.
        let array = if *array.data_type() == DataType::Null { cast(&array, &DataType::Boolean)? } else { array };
        let truth = array.as_boolean_opt().cloned();
        truth.ok_or_else(|| Error::option(format!("AND, OR and NOT take booleans, not {}", array.data_type())))
    }

    /// Evaluates an expression that must be text or null.
    fn text(&self, table: &RecordBatch) -> Result<Values> {
        let Values { array, is_scalar } = self.values(table)?;
        let kind = array.data_type();
        if !kind.is_string() && *kind != DataType::Null {
            return Err(Error::option(format!("LIKE compares texts, not {kind}")));
        }
        Ok(Values { array: cast(&array, &DataType::LargeUtf8)?, is_scalar })
    }

    fn applied(&self, function: Function, arguments: &[Self], table: &RecordBatch) -> Result<ArrayRef> {
        let argument = arguments[0].evaluate(table)?;
        // A column of nulls counts as text.
        let is_null = *argument.data_type() == DataType::Null && function != Function::Coalesce;
        let argument = if is_null { cast(&argument, &DataType::LargeUtf8)? } else { argument };
        if function == Function::Coalesce {
            let all = |found: ArrayRef, next: &Self| self.either(found, next.evaluate(table)?);
            return arguments[1..].iter().try_fold(argument, all);
        }
        let is_text = |array: &ArrayRef| array.data_type().is_string();
        match function {
            Function::Lower => texts(&argument, |text| text.to_lowercase()),
            Function::Upper => texts(&argument, |text| text.to_uppercase()),
            Function::Trim => texts(&argument, |text| text.trim().to_owned()),
            Function::Normalize => texts(&argument, normalized),
            Function::Length if is_text(&argument) => {
                let argument = cast(&argument, &DataType::LargeUtf8)?;
                let of = |text: Option<&str>| text.map(|text| text.chars().count() as i64);
                Ok(Arc::new(argument.as_string::<i64>().iter().map(of).collect::<Int64Array>()))
            }
            _ => length(&argument).map_err(|error| self.failed(&error)),
        }
    }

    /// Returns the values of `found`, with nulls replaced by the values of `other`.
    fn either(&self, found: ArrayRef, other: ArrayRef) -> Result<ArrayRef> {
        let of = |array| Values { array, is_scalar: false };
        let (found, other) = self.alike(of(found), of(other))?;
        let there = boolean::is_not_null(&found.array).map_err(|error| self.failed(&error))?;
        zip(&there, &found, &other).map_err(|error| self.failed(&error))
    }

    /// Converts two sets of values to one type. Numbers are converted to i64 or f64, and a text to the type of the
    /// other side.
    fn alike(&self, left: Values, right: Values) -> Result<(Values, Values)> {
        let (of_left, of_right) = (left.array.data_type(), right.array.data_type());
        let common = match (of_left, of_right) {
            (left, right) if let Some(common) = common(left, right) => common,
            // If only one side is text, it is usually a constant, such as a date in quotes.
            (text, other) | (other, text) if text.is_string() => other.clone(),
            (left, right) if left.is_temporal() && right.is_temporal() => left.clone(),
            (left, right) => {
                return Err(Error::option(format!("{left} and {right} cannot be compared or combined")));
            }
        };
        let cast = |values: Values| {
            let remedy = if values.is_scalar { TO_A_NUMBER } else { AS_TEXTS };
            cast_or(&values.array, &common, remedy).map(|array| Values { array, ..values })
        };
        Ok((cast(left)?, cast(right)?))
    }

    fn failed(&self, error: &ArrowError) -> Error {
        Error::option(format!("cannot compute with the columns: {error}"))
    }
}

/// Returns a column of a table. If the path leads into structs, returns the field at its end. Dictionaries are replaced
/// by their values.
fn column(table: &RecordBatch, path: &[super::expression::Name]) -> Result<ArrayRef> {
    let (first, fields) = path.split_first().expect("a column has a name");
    let mut array = table.column(place_of(first, &table.schema())?).clone();
    for name in fields {
        let place = field_of(name, array.data_type())?;
        let outer = array.as_struct().clone();
        array = outer.column(place).clone();
        // A field of a null struct is null, even if the field itself is not marked as null.
        if let Some(nulls) = outer.nulls() {
            let is_null = BooleanArray::new(!nulls.inner(), None);
            array = nullif(&array, &is_null).map_err(|error| Error::input(error.to_string()))?;
        }
    }
    match array.data_type().clone() {
        DataType::Dictionary(_, values) => cast(&array, &values),
        _ => Ok(array),
    }
}

/// Returns the type in which values of two types can be sorted together, if there is one. For numbers it is i64 or f64.
pub(crate) fn common(left: &DataType, right: &DataType) -> Option<DataType> {
    Some(match (left, right) {
        (left, right) if left == right => left.clone(),
        (DataType::Null, other) | (other, DataType::Null) => other.clone(),
        // This includes u64. A value that does not fit in i64 fails in the strict cast instead of wrapping.
        (left, right) if left.is_integer() && right.is_integer() => DataType::Int64,
        (left, right) if left.is_numeric() && right.is_numeric() => DataType::Float64,
        (left, right) if left.is_string() && right.is_string() => DataType::LargeUtf8,
        _ => return None,
    })
}

fn texts(array: &ArrayRef, change: impl Fn(&str) -> String) -> Result<ArrayRef> {
    let array = cast(array, &DataType::LargeUtf8)?;
    let changed = array.as_string::<i64>().iter().map(|text| text.map(&change));
    Ok(Arc::new(changed.collect::<arrow_array::LargeStringArray>()))
}

/// Returns the words of a text (runs of letters and digits) in lower case, separated by spaces.
fn normalized(text: &str) -> String {
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// Remedy for texts of a column that are compared with a number.
const AS_TEXTS: &str = "put the number in quotes to compare texts, such as '1'";
/// Remedy for a constant text that is compared with numbers.
const TO_A_NUMBER: &str = "compare the column, which has numbers, with a number";

/// Casts values to another type.
///
/// # Errors
/// If a value cannot be cast.
pub(crate) fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    cast_or(array, to, AS_TEXTS)
}

/// Casts values to another type. If a text is no number, the error names `remedy`.
fn cast_or(array: &ArrayRef, to: &DataType, remedy: &str) -> Result<ArrayRef> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    if let Some(widened) = widen(array, to) {
        return Ok(widened);
    }
    // By default, a value that cannot be cast becomes null, and its row would silently fail the filter.
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let remedy = match array.data_type().is_string() && to.is_numeric() {
        true => remedy.to_owned(),
        false => format!("write it as {to}"),
    };
    cast_with_options(array, to, &strict).map_err(|error| Error::option(format!("{error}; {remedy}")))
}
