//! Compares columns of the most common types, and converts numbers to wider types for the comparison.
//!
//! Other types use Arrow's crates. These take long to compile, so they are built without optimization and are slower.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type,
};
use arrow_array::{Array, ArrayAccessor, ArrayRef, ArrowNativeTypeOp, BooleanArray};
use arrow_schema::DataType;

use super::expression::Operator;
use super::values::Values;

/// Compares values row by row. The results, including nulls, are those of [`arrow_ord::cmp`]. Returns `None` if a type
/// is not one of the common types, if the types differ, or if the operator is not a comparison.
pub(super) fn compare(operator: Operator, left: &Values, right: &Values) -> Option<BooleanArray> {
    if left.array.data_type() != right.array.data_type() {
        return None;
    }
    match left.array.data_type() {
        DataType::Int64 => numbers::<Int64Type>(operator, left, right),
        DataType::Float64 => numbers::<Float64Type>(operator, left, right),
        DataType::Utf8 => texts::<i32>(operator, left, right),
        DataType::LargeUtf8 => texts::<i64>(operator, left, right),
        _ => None,
    }
}

/// Converts numbers to a wider type. The conversion is exact, except that large integers are rounded if they are
/// converted to floats. Returns `None` if this function does not implement the conversion.
pub(super) fn widen(array: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    match (array.data_type(), to) {
        (DataType::Int8, DataType::Int64) => Some(converted::<Int8Type, Int64Type>(array, i64::from)),
        (DataType::Int16, DataType::Int64) => Some(converted::<Int16Type, Int64Type>(array, i64::from)),
        (DataType::Int32, DataType::Int64) => Some(converted::<Int32Type, Int64Type>(array, i64::from)),
        (DataType::UInt8, DataType::Int64) => Some(converted::<UInt8Type, Int64Type>(array, i64::from)),
        (DataType::UInt16, DataType::Int64) => Some(converted::<UInt16Type, Int64Type>(array, i64::from)),
        (DataType::UInt32, DataType::Int64) => Some(converted::<UInt32Type, Int64Type>(array, i64::from)),
        // An i32 is exact in f64. Large i64 values are rounded, as in the cast that this function replaces.
        (DataType::Int32, DataType::Float64) => Some(converted::<Int32Type, Float64Type>(array, f64::from)),
        (DataType::Int64, DataType::Float64) => Some(converted::<Int64Type, Float64Type>(array, |value| value as f64)),
        (DataType::Float32, DataType::Float64) => Some(converted::<Float32Type, Float64Type>(array, f64::from)),
        _ => None,
    }
}

fn converted<F: ArrowPrimitiveType, T: ArrowPrimitiveType>(
    array: &ArrayRef,
    convert: impl Fn(F::Native) -> T::Native,
) -> ArrayRef {
    Arc::new(array.as_primitive::<F>().unary::<_, T>(convert))
}

fn numbers<T: ArrowPrimitiveType>(operator: Operator, left: &Values, right: &Values) -> Option<BooleanArray> {
    let arrays = Pair {
        left: left.array.as_primitive::<T>(),
        right: right.array.as_primitive::<T>(),
        is_scalar: [left.is_scalar, right.is_scalar],
    };
    Some(match operator {
        Operator::Equal => arrays.compare(|left, right| left.is_eq(right)),
        Operator::Unequal => arrays.compare(|left, right| left.is_ne(right)),
        Operator::Less => arrays.compare(|left, right| left.is_lt(right)),
        Operator::LessOrEqual => arrays.compare(|left, right| left.is_le(right)),
        Operator::Greater => arrays.compare(|left, right| left.is_gt(right)),
        Operator::GreaterOrEqual => arrays.compare(|left, right| left.is_ge(right)),
        _ => return None,
    })
}

fn texts<O: arrow_array::OffsetSizeTrait>(operator: Operator, left: &Values, right: &Values) -> Option<BooleanArray> {
    let arrays = Pair {
        left: left.array.as_string::<O>(),
        right: right.array.as_string::<O>(),
        is_scalar: [left.is_scalar, right.is_scalar],
    };
    Some(match operator {
        Operator::Equal => arrays.compare(|left, right| left == right),
        Operator::Unequal => arrays.compare(|left, right| left != right),
        Operator::Less => arrays.compare(|left, right| left < right),
        Operator::LessOrEqual => arrays.compare(|left, right| left <= right),
        Operator::Greater => arrays.compare(|left, right| left > right),
        Operator::GreaterOrEqual => arrays.compare(|left, right| left >= right),
        _ => return None,
    })
}

/// Two arrays of one type that are compared. A scalar is compared with every row of the other array.
struct Pair<A> {
    left: A,
    right: A,
    is_scalar: [bool; 2],
}

impl<A: ArrayAccessor + Copy> Pair<A> {
    fn compare(self, test: impl Fn(A::Item, A::Item) -> bool) -> BooleanArray {
        let Self { left, right, is_scalar } = self;
        match is_scalar {
            // Comparing with null gives null for every row, so values need not be compared.
            [false, true] if right.is_null(0) => BooleanArray::new_null(left.len()),
            [true, false] if left.is_null(0) => BooleanArray::new_null(right.len()),
            [false, true] => BooleanArray::from_unary(left, |value| test(value, right.value(0))),
            [true, false] => BooleanArray::from_unary(right, |value| test(left.value(0), value)),
            [true, true] | [false, false] => BooleanArray::from_binary(left, right, test),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{Float64Array, Int8Array, Int64Array, LargeStringArray, StringArray, UInt32Array};
    use arrow_cast::cast;
    use arrow_ord::cmp;

    use super::*;

    fn arrays() -> Vec<ArrayRef> {
        let floats = [Some(f64::NAN), Some(0.0), Some(-0.0), None, Some(f64::NEG_INFINITY), Some(1e300)];
        let texts = [Some("b"), Some(""), None, Some("é"), Some("a\u{0}"), Some("B")];
        vec![
            Arc::new(Int64Array::from(vec![Some(3), None, Some(i64::MIN), Some(i64::MAX), Some(0), Some(-1)])),
            Arc::new(Float64Array::from(floats.to_vec())),
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(LargeStringArray::from(texts.to_vec())),
        ]
    }

    #[test]
    fn comparisons_are_those_of_arrow() {
        let one = |array: &ArrayRef, row| Values { array: array.slice(row, 1), is_scalar: true };
        for array in arrays() {
            let rows = Values { array: array.clone(), is_scalar: false };
            for row in 0..array.len() {
                let reversed = arrow_select::take::take(&array, &Int64Array::from(vec![5, 4, 3, 2, 1, 0]), None);
                let reversed = Values { array: reversed.unwrap(), is_scalar: false };
                for (left, right) in [
                    (rows.clone(), one(&array, row)),
                    (one(&array, row), rows.clone()),
                    (one(&array, row), one(&array, 0)),
                    (rows.clone(), reversed),
                ] {
                    let found = |operator| compare(operator, &left, &right).unwrap();
                    assert_eq!(found(Operator::Equal), cmp::eq(&left, &right).unwrap());
                    assert_eq!(found(Operator::Unequal), cmp::neq(&left, &right).unwrap());
                    assert_eq!(found(Operator::Less), cmp::lt(&left, &right).unwrap());
                    assert_eq!(found(Operator::LessOrEqual), cmp::lt_eq(&left, &right).unwrap());
                    assert_eq!(found(Operator::Greater), cmp::gt(&left, &right).unwrap());
                    assert_eq!(found(Operator::GreaterOrEqual), cmp::gt_eq(&left, &right).unwrap());
                }
            }
        }
    }

    #[test]
    fn numbers_are_widened_as_arrow_does() {
        let narrow: [ArrayRef; 3] = [
            Arc::new(Int8Array::from(vec![Some(-128), None, Some(127)])),
            Arc::new(UInt32Array::from(vec![Some(0), None, Some(u32::MAX)])),
            Arc::new(Int64Array::from(vec![Some(i64::MAX), None, Some(-(1 << 53) - 1)])),
        ];
        for (array, to) in narrow.iter().zip([DataType::Int64, DataType::Int64, DataType::Float64]) {
            assert_eq!(&widen(array, &to).unwrap(), &cast(array, &to).unwrap());
        }
        assert!(widen(&narrow[2], &DataType::Int8).is_none());
    }
}
