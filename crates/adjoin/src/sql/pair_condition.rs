//! Conditions on pairs of rows. They combine comparisons of an expression of the left row with an expression of the
//! right row.

use std::collections::BTreeSet;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Schema};

use super::evaluate::{cast, common};
use super::expression::{Expression, Name, Operator, place_of};
use super::parse::{parse, quoted, refused};
use crate::base::error::{Error, Result};

/// Names of the rows of a pair.
const SIDES: [&str; 2] = ["left", "right"];

/// A condition on the columns of the left and the right row of a pair.
#[derive(Debug, Clone, PartialEq)]
pub struct PairCondition {
    text: String,
    tree: Tree,
    comparisons: Vec<[Expression; 2]>,
}

/// Boolean structure of a condition. A comparison is given by its number.
#[derive(Debug, Clone, PartialEq)]
enum Tree {
    And(Box<[Tree; 2]>),
    Or(Box<[Tree; 2]>),
    Not(Box<Tree>),
    Comparison(usize, Operator),
}

/// Position of a value in the order of all values. The largest number is for null.
pub(crate) type Rank = u32;
/// Rank of null.
pub(crate) const NULL: Rank = Rank::MAX;

impl PairCondition {
    /// Parses a condition such as `left.source <> right.source AND left.year <= right.year`.
    ///
    /// # Errors
    /// If the text is not SQL, if it uses unsupported features, or if one side of a comparison uses both rows.
    pub fn parse(text: &str) -> Result<Self> {
        let kind = "a condition on pairs, such as \"left.source <> right.source\"";
        let (tree, comparisons) = parse(text, kind, |parser| {
            let expression = Expression::of(&parser.parse_expr().map_err(refused)?)?;
            let mut comparisons = Vec::new();
            Ok((Tree::of(expression, &mut comparisons)?, comparisons))
        })?;
        Ok(Self { text: text.to_owned(), tree, comparisons })
    }

    /// Returns the condition as the user typed it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the number of comparisons.
    pub(crate) fn comparisons(&self) -> usize {
        self.comparisons.len()
    }

    /// Returns whether both sides of a comparison are equal expressions, one of each row.
    pub(crate) fn is_alike(&self, comparison: usize) -> bool {
        let [left, right] = &self.comparisons[comparison];
        left == right
    }

    /// Returns the names of the columns of one side that the condition reads. Side 0 is the left row, and side 1 the
    /// right row.
    pub fn columns(&self, side: usize) -> Vec<String> {
        self.names(side).into_iter().map(|name| name.text.clone()).collect()
    }

    fn names(&self, side: usize) -> BTreeSet<&Name> {
        let mut names = BTreeSet::new();
        self.comparisons.iter().for_each(|both| both[side].add_columns(&mut names));
        names
    }

    /// Binds the condition to left and right rows of the given schemas.
    ///
    /// # Errors
    /// If a column is missing, or if types do not match.
    pub(crate) fn bind(&self, schemas: [&Schema; 2]) -> Result<BoundPairs<'_>> {
        let places = |side: usize| -> Result<Vec<usize>> {
            let places = self.names(side).into_iter().map(|name| place_of(name, schemas[side]));
            let places = places.collect::<Result<BTreeSet<usize>>>();
            Ok(places.map_err(|error| self.failed(&error))?.into_iter().collect())
        };
        let places = [places(0)?, places(1)?];
        let read = |side: usize| -> Result<RecordBatch> {
            let read = schemas[side].project(&places[side]).map_err(|error| self.failed(&error))?;
            Ok(RecordBatch::new_empty(read.into()))
        };
        let nothing = [read(0)?, read(1)?];
        let kind = |both: &[Expression; 2]| {
            let of = |side: usize| both[side].evaluate(&nothing[side]).map_err(|error| self.failed(&error));
            let (left, right) = (of(0)?, of(1)?);
            let (left, right) = (left.data_type(), right.data_type());
            shared(left, right).ok_or_else(|| {
                self.failed(&format!("the left side is {left} and the right side {right}, which cannot be compared"))
            })
        };
        let kinds = self.comparisons.iter().map(kind).collect::<Result<Vec<_>>>()?;
        Ok(BoundPairs { condition: self, places, kinds })
    }

    /// Unifies the types of this condition after it was bound to several kinds of rows, so that each comparison has a
    /// single type.
    ///
    /// # Errors
    /// If types do not match.
    pub(crate) fn together<'a>(&'a self, mut all: Vec<BoundPairs<'a>>) -> Result<Vec<BoundPairs<'a>>> {
        // Ranks of all rows are compared with each other, so they must be ranks of values of one type.
        for comparison in 0..self.comparisons.len() {
            let kinds = all.iter().map(|bound| bound.kinds[comparison].clone());
            let kind = kinds.map(Ok).reduce(|one, other| {
                let (one, other) = (one?, other?);
                shared(&one, &other).ok_or_else(|| {
                    self.failed(&format!("one set has {one} and the other {other}, which cannot be compared"))
                })
            });
            let kind = kind.expect("a join has rows")?;
            all.iter_mut().for_each(|bound| bound.kinds[comparison] = kind.clone());
        }
        Ok(all)
    }

    /// Returns whether the condition is true for a pair of rows. `ranks` returns the ranks of the left value and of the
    /// right value of a comparison, given its number.
    pub(crate) fn is_true(&self, ranks: impl Fn(usize) -> [Rank; 2]) -> bool {
        self.tree.truth(&ranks) == Some(true)
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> Error {
        Error::option(format!("cannot filter pairs by {}: {why}", quoted(&self.text)))
    }
}

/// A condition on pairs of rows of known types.
pub(crate) struct BoundPairs<'a> {
    condition: &'a PairCondition,
    /// Indices of the columns of the left row and of the right row that the condition reads, ascending.
    pub(crate) places: [Vec<usize>; 2],
    /// Type in which the values of each comparison are compared.
    pub(crate) kinds: Vec<DataType>,
}

impl BoundPairs<'_> {
    /// Computes the values of one side of a comparison for the rows of a table. The table must have the columns at the
    /// `places` of this side.
    ///
    /// # Errors
    /// If a value cannot be computed.
    pub(crate) fn values(&self, comparison: usize, side: usize, table: &RecordBatch) -> Result<ArrayRef> {
        let values = self.condition.comparisons[comparison][side].evaluate(table);
        let values = values.and_then(|values| cast(&values, &self.kinds[comparison]));
        values.map_err(|error| self.condition.failed(&error))
    }
}

/// Returns the type in which values of two types are compared, or `None` if they cannot be compared.
fn shared(left: &DataType, right: &DataType) -> Option<DataType> {
    // Constants such as dates are written as text.
    let constant = |text: &DataType, other: &DataType| text.is_string() && other.is_temporal();
    common(left, right).or_else(|| match () {
        () if constant(left, right) => Some(right.clone()),
        () if constant(right, left) => Some(left.clone()),
        () => None,
    })
}

impl Tree {
    fn of(expression: Expression, comparisons: &mut Vec<[Expression; 2]>) -> Result<Self> {
        Ok(match expression {
            Expression::Binary(Operator::And, both) => Self::And(Self::of_both(*both, comparisons)?),
            Expression::Binary(Operator::Or, both) => Self::Or(Self::of_both(*both, comparisons)?),
            Expression::Not(inner) => Self::Not(Box::new(Self::of(*inner, comparisons)?)),
            // If both sides read only one row, the comparison is an expression of this row.
            Expression::Binary(operator, both) if operator.compares() && sides_of(&both[0])? != sides_of(&both[1])? => {
                Self::between_rows(operator, *both, comparisons)?
            }
            // An expression of a single row is compared with true.
            one => Self::between_rows(Operator::Equal, [one, Expression::Boolean(true)], comparisons)?,
        })
    }

    fn of_both([one, other]: [Expression; 2], comparisons: &mut Vec<[Expression; 2]>) -> Result<Box<[Self; 2]>> {
        Ok(Box::new([Self::of(one, comparisons)?, Self::of(other, comparisons)?]))
    }

    /// Builds a comparison of two rows, or of a row with a constant.
    fn between_rows(
        operator: Operator,
        [one, other]: [Expression; 2],
        comparisons: &mut Vec<[Expression; 2]>,
    ) -> Result<Self> {
        let is_of_one_row = |sides: [bool; 2]| sides != [true; 2];
        let [of_one, of_other] = [sides_of(&one)?, sides_of(&other)?];
        // Ranks are computed once per row. An expression of both rows would have to be computed for each pair.
        if !is_of_one_row(of_one) || !is_of_one_row(of_other) {
            return Err(Error::option(
                "each side of a comparison may use only one row: write left.a < right.b + 1 instead of left.a - \
                 right.b < 1",
            ));
        }
        // The expression of the left row is put first. A constant may be on either side.
        let swap = of_one[1] || of_other[0];
        let (operator, mut both) = if swap { (operator.mirrored(), [other, one]) } else { (operator, [one, other]) };
        both.iter_mut().try_for_each(strip)?;
        // Equal comparisons share their ranks, which take four bytes per row.
        let known = comparisons.iter().position(|there| *there == both).unwrap_or_else(|| {
            comparisons.push(both);
            comparisons.len() - 1
        });
        Ok(Self::Comparison(known, operator))
    }

    /// Returns the truth value as in SQL, which is `None` (unknown) if it depends on null.
    fn truth(&self, ranks: &impl Fn(usize) -> [Rank; 2]) -> Option<bool> {
        match self {
            Self::And(both) => match (both[0].truth(ranks), both[1].truth(ranks)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(both) => match (both[0].truth(ranks), both[1].truth(ranks)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Not(inner) => inner.truth(ranks).map(|truth| !truth),
            Self::Comparison(number, operator) => {
                let [left, right] = ranks(*number);
                // As in SQL, a comparison with null is unknown, and so is its negation.
                (left != NULL && right != NULL).then(|| operator.holds(left, right))
            }
        }
    }
}

/// Returns two flags: whether an expression reads columns of the left row, and whether it reads columns of the right
/// row.
fn sides_of(expression: &Expression) -> Result<[bool; 2]> {
    let mut names = BTreeSet::new();
    expression.add_columns(&mut names);
    let mut sides = [false; 2];
    for name in names {
        let side = SIDES.iter().position(|side| name.text.eq_ignore_ascii_case(side));
        let side = side
            .ok_or_else(|| Error::option(format!("{} does not name a row; write left.{0} or right.{0}", name.text)))?;
        sides[side] = true;
    }
    Ok(sides)
}

/// Removes the name of the row from column names.
fn strip(expression: &mut Expression) -> Result<()> {
    expression.each_column(&mut |path| {
        let side = path.remove(0).text;
        match path.is_empty() {
            true => Err(Error::option(format!("{side} is a row; name a column of the row, as {side}.source"))),
            false => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int32Array, Int64Array, StringArray};

    use super::*;

    fn left() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("source", Arc::new(StringArray::from(vec![Some("web"), Some("book"), None]))),
            ("Year", Arc::new(Int32Array::from(vec![Some(2019), None, Some(2021)]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn right() -> RecordBatch {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("source", Arc::new(StringArray::from(vec!["web", "news", "WEB"]))),
            ("year", Arc::new(Int64Array::from(vec![2019, 2020, 2022]))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    /// Returns the pairs of rows that meet a condition.
    fn passing(text: &str) -> Vec<(usize, usize)> {
        let condition = PairCondition::parse(text).unwrap();
        let tables = [left(), right()];
        let bound = condition.bind([&tables[0].schema(), &tables[1].schema()]).unwrap();
        let read = [0, 1].map(|side| tables[side].project(&bound.places[side]).unwrap());
        // The rank of a value is its position in the order of all values as texts.
        let texts = |comparison: usize, side: usize| -> Vec<Option<String>> {
            let values = bound.values(comparison, side, &read[side]).unwrap();
            let text = |row| arrow_cast::display::array_value_to_string(&values, row).unwrap();
            (0..values.len()).map(|row| values.is_valid(row).then(|| text(row))).collect()
        };
        let ranks = |comparison: usize| {
            let both = [texts(comparison, 0), texts(comparison, 1)];
            let mut all: Vec<String> = both.iter().flatten().flatten().cloned().collect();
            all.sort();
            let rank = |text: &Option<String>| match text {
                Some(text) => all.iter().position(|other| other == text).unwrap() as Rank,
                None => NULL,
            };
            both.map(|texts| texts.iter().map(rank).collect::<Vec<_>>())
        };
        let ranks: Vec<[Vec<Rank>; 2]> = (0..condition.comparisons()).map(ranks).collect();
        let pairs = (0..3).flat_map(|x| (0..3).map(move |y| (x, y)));
        pairs.filter(|&(x, y)| condition.is_true(|k| [ranks[k][0][x], ranks[k][1][y]])).collect()
    }

    #[test]
    fn pair_filters_follow_sql_and_null_is_not_true() {
        for (condition, expected) in [
            ("left.source = right.source", &[(0, 0)][..]),
            ("LEFT.source <> \"right\".source", &[(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
            ("not right.source = left.source", &[(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
            ("lower(left.source) = lower(right.source)", &[(0, 0), (0, 2)]),
            ("left.year < right.year", &[(0, 1), (0, 2), (2, 2)]),
            ("right.year > left.year", &[(0, 1), (0, 2), (2, 2)]),
            ("left.year + 1 >= right.year and right.year + 1 >= left.year", &[(0, 0), (0, 1), (2, 1), (2, 2)]),
            ("left.source = right.source or left.year > right.year", &[(0, 0), (2, 0), (2, 1)]),
            ("left.source is null and right.source = 'web'", &[(2, 0)]),
            ("left.source = 'book' and 2020 < right.year", &[(1, 2)]),
            ("left.source = left.source and right.year = 2020", &[(0, 1), (1, 1)]),
            ("left.source in ('web', 'x') and not right.year between 2019 and 2020", &[(0, 2)]),
        ] {
            assert_eq!(passing(condition), expected, "{condition}");
        }
    }

    #[test]
    fn refuses_invalid_pair_conditions() {
        for (condition, words) in [
            ("", "such as"),
            ("left.source <>", "such as"),
            ("left.source <> right.source; drop", "not expected"),
            ("source <> right.source", "source does not name a row; write left.source or right.source"),
            ("left.a - right.b < 1", "only one row"),
            ("left.lang = right.source", "there is no column lang; choose from source, Year"),
            ("left.source = right.lang", "there is no column lang; choose from source, year"),
            ("left.source = right.year", "the left side is Utf8 and the right side Int64, which cannot be compared"),
            ("left.year", "the left side is Int32 and the right side Boolean"),
            ("left = right", "name a column of the row"),
        ] {
            let (left, right) = (left().schema(), right().schema());
            let refused =
                PairCondition::parse(condition).and_then(|condition| condition.bind([&left, &right]).map(drop));
            let message = refused.expect_err(condition).to_string();
            assert!(message.contains(words), "{condition}: {message}");
        }
        assert!(PairCondition::parse(&"-".repeat(5_000)).is_err());
    }
}
