//! Sorts rows by columns, as in `ORDER BY`.

use std::collections::BTreeSet;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{DataType, Schema, SchemaRef, SortOptions};
use sqlparser::ast::{OrderByExpr, OrderBySort};
use sqlparser::parser::Parser;

use super::evaluate::cast;
use super::expression::{Expression, Name, place_of};
use super::parse::{parse, refused};
use crate::base::error::{Error, Result};

/// Expressions to sort by, each with a direction. Nulls are last unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderBy {
    keys: Vec<(Expression, SortOptions)>,
}

impl OrderBy {
    /// Parses an order such as `length(text) DESC, date`.
    ///
    /// # Errors
    /// If the text is not SQL, or if it uses unsupported features.
    pub fn parse(text: &str) -> Result<Self> {
        let kind = "columns to sort by, such as \"length(text) DESC, date\"";
        let key = |key: &OrderByExpr| {
            let descending = match &key.options.sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(OrderBySort::Using(_)) => return Err(Error::option("USING is not supported; write ASC or DESC")),
            };
            let nulls_first = key.options.nulls_first.unwrap_or(false);
            Ok((Expression::of(&key.expr)?, SortOptions { descending, nulls_first }))
        };
        let keys = parse(text, kind, |parser| {
            let keys = parser.parse_comma_separated(Parser::parse_order_by_expr).map_err(refused)?;
            keys.iter().map(key).collect()
        })?;
        Ok(Self { keys })
    }

    /// Returns the number of keys.
    pub(crate) fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Returns the types of the keys for tables of one schema.
    ///
    /// # Errors
    /// If a column is missing, or if types do not match.
    pub(crate) fn kinds(&self, schema: &Schema) -> Result<Vec<DataType>> {
        let places = self.places(schema)?;
        let read = SchemaRef::new(schema.project(&places).map_err(|error| Error::option(error.to_string()))?);
        // The table has no rows, since only the types of the keys are needed.
        let nothing = RecordBatch::new_empty(read);
        self.keys.iter().map(|(expression, _)| Ok(expression.evaluate(&nothing)?.data_type().clone())).collect()
    }

    /// Binds the order to tables of one schema. `kinds` are the types of the keys. They are given, since encoded keys
    /// of several files compare correctly only if they have one type.
    ///
    /// # Errors
    /// The errors of [`OrderBy::kinds`].
    pub(crate) fn bind(&self, schema: &Schema, kinds: &[DataType]) -> Result<BoundOrder> {
        let field = |(kind, (_, options)): (&DataType, &(Expression, SortOptions))| {
            SortField::new_with_options(kind.clone(), *options)
        };
        let fields = kinds.iter().zip(&self.keys).map(field).collect();
        let converter =
            RowConverter::new(fields).map_err(|error| Error::option(format!("cannot sort by that: {error}")))?;
        Ok(BoundOrder { order: self.clone(), places: self.places(schema)?, kinds: kinds.to_vec(), converter })
    }

    /// Returns the names of the columns that the order reads and that tables of `schema` do not have.
    pub(crate) fn missing(&self, schema: &Schema) -> impl Iterator<Item = &str> {
        self.names().into_iter().filter(|name| place_of(name, schema).is_err()).map(|name| name.text.as_str())
    }

    /// Returns the columns that the order reads.
    fn names(&self) -> BTreeSet<&Name> {
        let mut names = BTreeSet::new();
        self.keys.iter().for_each(|(expression, _)| expression.add_columns(&mut names));
        names
    }

    /// Returns the indices of the columns that the order reads, ascending.
    fn places(&self, schema: &Schema) -> Result<Vec<usize>> {
        let names = self.names().into_iter();
        let places: BTreeSet<usize> = names.map(|name| place_of(name, schema)).collect::<Result<_>>()?;
        Ok(places.into_iter().collect())
    }
}

/// An order of the rows of tables of one schema.
pub(crate) struct BoundOrder {
    order: OrderBy,
    /// Indices of the columns that the order reads, ascending.
    pub(crate) places: Vec<usize>,
    kinds: Vec<DataType>,
    converter: RowConverter,
}

/// Sort keys of some rows.
pub(crate) struct SortKeys {
    rows: Rows,
    first: ArrayRef,
}

impl SortKeys {
    /// Returns the key of a row as bytes. The bytes sort like the rows, and are equal if all values are equal.
    pub(crate) fn of(&self, row: usize) -> &[u8] {
        self.rows.row(row).data()
    }

    /// Returns whether the first value of a row is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.first.is_null(row)
    }
}

impl BoundOrder {
    /// Returns the keys of the rows of a table with the columns at [`BoundOrder::places`].
    ///
    /// # Errors
    /// If a value cannot be computed.
    pub(crate) fn keys(&self, table: &RecordBatch) -> Result<SortKeys> {
        let keys = self.order.keys.iter().zip(&self.kinds);
        // Values are cast to the types that all files have in common, since encoded keys compare correctly only if they
        // have one type.
        let columns = keys.map(|((expression, _), kind)| cast(&expression.evaluate(table)?, kind));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let rows = self.converter.convert_columns(&columns);
        let rows = rows.map_err(|error| Error::option(format!("cannot sort by that: {error}")))?;
        Ok(SortKeys { rows, first: columns[0].clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{Date32Array, Float64Array, Int32Array, ListArray, NullArray, StringArray, StructArray};
    use arrow_schema::Field;

    use super::*;

    fn table() -> RecordBatch {
        let texts = StringArray::from(vec![Some("bb"), Some("äöü"), None, Some("A"), Some("bb")]);
        let years = Int32Array::from(vec![Some(2020), None, Some(2019), Some(2020), Some(2021)]);
        let scores = Float64Array::from(vec![0.5, f64::NAN, -1.0, 2.0, 0.5]);
        let days = Date32Array::from(vec![10, 20, 30, 40, 50]);
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>((0..5).map(|k| Some(vec![Some(1); 5 - k])));
        let inner: ArrayRef = Arc::new(Int32Array::from(vec![3, 1, 2, 5, 4]));
        let nested = StructArray::from(vec![(Arc::new(Field::new("v", DataType::Int32, false)), inner)]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("text", Arc::new(texts)),
            ("Year", Arc::new(years)),
            ("score", Arc::new(scores)),
            ("day", Arc::new(days)),
            ("tags", Arc::new(lists)),
            ("s", Arc::new(nested)),
            ("nothing", Arc::new(NullArray::new(5))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// Returns the rows in the given order. Rows with equal keys are ordered by number.
    fn sorted(order: &str) -> Vec<usize> {
        let table = table();
        let order = OrderBy::parse(order).unwrap();
        let bound = order.bind(&table.schema(), &order.kinds(&table.schema()).unwrap()).unwrap();
        let keys = bound.keys(&table.project(&bound.places).unwrap()).unwrap();
        let mut rows: Vec<usize> = (0..table.num_rows()).collect();
        rows.sort_by(|a, b| keys.of(*a).cmp(keys.of(*b)).then(a.cmp(b)));
        rows
    }

    #[test]
    fn rows_are_sorted_as_in_sql() {
        for (order, expected) in [
            ("text", [3, 0, 4, 1, 2]),
            ("length(text) desc, year desc", [1, 4, 0, 3, 2]),
            ("octet_length(text) DESC", [1, 0, 4, 3, 2]),
            ("year", [2, 0, 3, 4, 1]),
            ("\"Year\" NULLS FIRST", [1, 2, 0, 3, 4]),
            ("year DESC", [4, 0, 3, 2, 1]),
            ("text = 'bb' desc, score", [0, 4, 3, 1, 2]),
            ("coalesce(year, 2019)", [1, 2, 0, 3, 4]),
            ("length(tags)", [4, 3, 2, 1, 0]),
            ("s.v", [1, 2, 0, 4, 3]),
            ("-s.v * 2", [3, 4, 0, 2, 1]),
            ("day < '1970-02-01' desc, lower(text) = 'a' desc", [0, 1, 2, 3, 4]),
            ("year in (2021, 2019) desc, s.v % 2 = 0 and not year is null", [2, 4, 0, 3, 1]),
            ("year is null desc, score desc", [1, 3, 0, 4, 2]),
            ("normalize(text)", [3, 0, 4, 1, 2]),
            ("1", [0, 1, 2, 3, 4]),
            ("length(nothing), upper(nothing), length(null), year", [2, 0, 3, 4, 1]),
        ] {
            assert_eq!(sorted(order), expected, "{order}");
        }
    }

    #[test]
    fn refuses_invalid_sort_orders() {
        let schema = table().schema();
        for (order, words) in [
            ("", "such as"),
            ("text desc nonsense", "nonsense"),
            ("random()", "no function random"),
            ("text + 1", "Cannot cast"),
            ("absent", "there is no column absent; choose from text, Year"),
            ("\"year\"", "there is no column year"),
            ("s.w", "there is no column w; choose from v"),
            ("text.v", "has none; name a column"),
            ("length(text, year)", "takes one argument"),
            ("(select 1)", "is not supported"),
            ("text; drop table x", "not expected"),
            ("s.v / 0", "ivide"),
        ] {
            let refused = OrderBy::parse(order).and_then(|order| {
                let bound = order.bind(&schema, &order.kinds(&schema)?)?;
                bound.keys(&table().project(&bound.places).unwrap()).map(drop)
            });
            let message = refused.expect_err(order).to_string();
            assert!(message.contains(words), "{order}: {message}");
        }
        assert!(OrderBy::parse(&"-".repeat(5_000)).is_err());
        assert!(OrderBy::parse(&format!("{}a{}", "(".repeat(400), ")".repeat(400))).is_err());
    }
}
