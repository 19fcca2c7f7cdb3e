//! Expressions over the columns of a table.

use std::collections::BTreeSet;

use arrow_schema::{DataType, Field, Schema};
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, UnaryOperator, Value,
};

use super::parse::{Bounds, quoted};
use crate::base::error::{Error, Result};

/// A supported expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    /// A column, or a path to a field of nested structs.
    Column(Vec<Name>),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Null,
    Binary(Operator, Box<[Expression; 2]>),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    IsNull(Box<Expression>),
    /// A text and a pattern, in which `%` matches any text and `_` any character.
    Like {
        both: Box<[Expression; 2]>,
        ignores_case: bool,
    },
    Call(Function, Vec<Expression>),
}

/// A name as typed. If it is in quotes, only an equal name matches.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) is_quoted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    /// Number of characters of a text, of bytes of a binary value, or of elements of a list.
    Length,
    /// Number of bytes of a text.
    OctetLength,
    Lower,
    Upper,
    /// Removes white space at both ends.
    Trim,
    /// Converts a text to its words (runs of letters and digits) in lower case, separated by single spaces.
    Normalize,
    /// Returns the first value that is not null.
    Coalesce,
}

const FUNCTIONS: [(&str, Function); 7] = [
    ("length", Function::Length),
    ("char_length", Function::Length),
    ("octet_length", Function::OctetLength),
    ("lower", Function::Lower),
    ("upper", Function::Upper),
    ("normalize", Function::Normalize),
    ("coalesce", Function::Coalesce),
];

impl Expression {
    /// Converts a parsed expression.
    ///
    /// # Errors
    /// If it contains unsupported operations, or if it is nested too deeply.
    pub(super) fn of(parsed: &Expr) -> Result<Self> {
        Self::build(parsed, &Bounds::default())
    }

    fn build(parsed: &Expr, bounds: &Bounds) -> Result<Self> {
        // Every level of an expression is built by this function, so the bounds apply to all levels.
        bounds.within(|| Self::build_within(parsed, bounds))
    }

    fn build_within(parsed: &Expr, bounds: &Bounds) -> Result<Self> {
        let build = |parsed: &Expr| Self::build(parsed, bounds);
        let boxed = |parsed: &Expr| build(parsed).map(Box::new);
        Ok(match parsed {
            Expr::Identifier(name) => Self::Column(vec![Name::of(name)]),
            Expr::CompoundIdentifier(names) => Self::Column(names.iter().map(Name::of).collect()),
            Expr::Nested(inner) => build(inner)?,
            Expr::Value(value) => Self::literal(&value.value).ok_or_else(|| unsupported(parsed))?,
            // The parser builds a left-deep tree for a chain of AND or OR. It is rebuilt as a balanced tree.
            Expr::BinaryOp { op: BinaryOperator::And, .. } => Self::chain(parsed, Operator::And, build)?,
            Expr::BinaryOp { op: BinaryOperator::Or, .. } => Self::chain(parsed, Operator::Or, build)?,
            Expr::BinaryOp { left, op, right } => {
                let operator = operator(op).ok_or_else(|| unsupported(parsed))?;
                Self::Binary(operator, Box::new([build(left)?, build(right)?]))
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => Self::Not(boxed(expr)?),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => Self::Negative(boxed(expr)?),
            Expr::UnaryOp { op: UnaryOperator::Plus, expr } => build(expr)?,
            Expr::IsNull(inner) => Self::IsNull(boxed(inner)?),
            Expr::IsNotNull(inner) => Self::Not(Box::new(Self::IsNull(boxed(inner)?))),
            Expr::InList { expr, list, negated } => Self::in_list(expr, list, *negated, build)?,
            Expr::Between { expr, negated, low, high } => {
                let compared = |operator, end: &Expr| -> Result<Self> {
                    Ok(Self::Binary(operator, Box::new([build(expr)?, build(end)?])))
                };
                let both = [compared(Operator::GreaterOrEqual, low)?, compared(Operator::LessOrEqual, high)?];
                Self::Binary(Operator::And, Box::new(both)).negated(*negated)
            }
            Expr::Like { negated, any: false, expr, pattern, escape_char: None } => {
                Self::Like { both: Box::new([build(expr)?, build(pattern)?]), ignores_case: false }.negated(*negated)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char: None } => {
                Self::Like { both: Box::new([build(expr)?, build(pattern)?]), ignores_case: true }.negated(*negated)
            }
            Expr::Trim { expr, trim_where: None, trim_what: None, trim_characters: None } => {
                Self::Call(Function::Trim, vec![build(expr)?])
            }
            Expr::Function(call) => {
                let name = call.name.to_string().to_ascii_lowercase();
                let function = FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, function)| *function);
                let FunctionArguments::List(arguments) = &call.args else { return Err(unsupported(parsed)) };
                let of = |argument: &FunctionArg| match argument {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) => build(inner),
                    _ => Err(unsupported(parsed)),
                };
                let arguments = arguments.args.iter().map(of).collect::<Result<Vec<_>>>()?;
                Self::call(function.ok_or_else(|| unknown_function(&name))?, &name, arguments)?
            }
            _ => return Err(unsupported(parsed)),
        })
    }

    fn literal(value: &Value) -> Option<Self> {
        Some(match value {
            // Integers stay exact. Any other number is a float.
            Value::Number(number, _) => match number.parse() {
                Ok(integer) => Self::Integer(integer),
                Err(_) => Self::Float(number.parse().ok()?),
            },
            Value::SingleQuotedString(text) => Self::Text(text.clone()),
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Null => Self::Null,
            _ => return None,
        })
    }

    fn in_list(value: &Expr, list: &[Expr], negated: bool, build: impl Fn(&Expr) -> Result<Self>) -> Result<Self> {
        let equal = |other: &Expr| Ok(Self::Binary(Operator::Equal, Box::new([build(value)?, build(other)?])));
        let all = list.iter().map(equal).collect::<Result<Vec<_>>>()?;
        if all.is_empty() {
            return Err(Error::option("IN () is empty; list some values"));
        }
        Ok(Self::joined(Operator::Or, all).negated(negated))
    }

    /// Converts a chain of one logical operator, of any length.
    fn chain(parsed: &Expr, operator: Operator, build: impl Fn(&Expr) -> Result<Self>) -> Result<Self> {
        let (mut parts, mut first) = (Vec::new(), parsed);
        // This is a loop instead of a recursion, since chains may have thousands of parts.
        while let Expr::BinaryOp { left, op, right } = first
            && self::operator(op) == Some(operator)
        {
            parts.push(&**right);
            first = left;
        }
        parts.push(first);
        Ok(Self::joined(operator, parts.into_iter().rev().map(build).collect::<Result<_>>()?))
    }

    /// Joins expressions into a tree of minimal depth, so that walking it needs little stack.
    fn joined(operator: Operator, mut all: Vec<Self>) -> Self {
        while all.len() > 1 {
            let mut rest = all.into_iter();
            let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(one) = rest.next() {
                pairs.push(match rest.next() {
                    Some(other) => Self::Binary(operator, Box::new([one, other])),
                    None => one,
                });
            }
            all = pairs;
        }
        all.pop().expect("there is at least one")
    }

    fn negated(self, negated: bool) -> Self {
        if negated { Self::Not(Box::new(self)) } else { self }
    }

    fn call(function: Function, name: &str, arguments: Vec<Self>) -> Result<Self> {
        let fits = if function == Function::Coalesce { !arguments.is_empty() } else { arguments.len() == 1 };
        match fits {
            true => Ok(Self::Call(function, arguments)),
            false => Err(Error::option(format!("{name} takes one argument, not {}", arguments.len()))),
        }
    }

    /// Adds the columns that the expression reads.
    pub(super) fn add_columns<'a>(&'a self, columns: &mut BTreeSet<&'a Name>) {
        match self {
            Self::Column(path) => columns.extend(path.first()),
            Self::Binary(_, both) | Self::Like { both, .. } => both.iter().for_each(|one| one.add_columns(columns)),
            Self::Not(inner) | Self::Negative(inner) | Self::IsNull(inner) => inner.add_columns(columns),
            Self::Call(_, arguments) => arguments.iter().for_each(|one| one.add_columns(columns)),
            Self::Text(_) | Self::Integer(_) | Self::Float(_) | Self::Boolean(_) | Self::Null => {}
        }
    }
}

impl Expression {
    /// Calls `change` with the path of each column that the expression reads.
    pub(super) fn each_column(&mut self, change: &mut impl FnMut(&mut Vec<Name>) -> Result<()>) -> Result<()> {
        match self {
            Self::Column(path) => change(path),
            Self::Binary(_, both) | Self::Like { both, .. } => {
                both.iter_mut().try_for_each(|one| one.each_column(change))
            }
            Self::Not(inner) | Self::Negative(inner) | Self::IsNull(inner) => inner.each_column(change),
            Self::Call(_, arguments) => arguments.iter_mut().try_for_each(|one| one.each_column(change)),
            Self::Text(_) | Self::Integer(_) | Self::Float(_) | Self::Boolean(_) | Self::Null => Ok(()),
        }
    }
}

impl Operator {
    /// Returns whether the operator compares two values.
    pub(super) fn compares(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::Unequal | Self::Less | Self::LessOrEqual | Self::Greater | Self::GreaterOrEqual
        )
    }

    /// Returns the comparison for swapped sides, for example `>` for `<`.
    pub(super) fn mirrored(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            other => other,
        }
    }

    /// Returns whether a comparison is true for two values.
    ///
    /// # Panics
    /// If the operator is not a comparison.
    pub(super) fn holds<V: Ord>(self, left: V, right: V) -> bool {
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Less => left < right,
            Self::LessOrEqual => left <= right,
            Self::Greater => left > right,
            Self::GreaterOrEqual => left >= right,
            _ => unreachable!("the operator is a comparison"),
        }
    }
}

impl Name {
    fn of(name: &Ident) -> Self {
        Self { text: name.value.clone(), is_quoted: name.quote_style.is_some() }
    }

    /// Returns the index of the field with this name. If there is none, returns the index of the field whose name
    /// differs only in case, provided that there is only one such field and that the name is not in quotes.
    pub(super) fn find<'a>(&self, mut fields: impl Iterator<Item = &'a Field> + Clone) -> Option<usize> {
        // An equal name is tried first, since a table may have two names that differ only in case.
        let exact = fields.clone().position(|field| *field.name() == self.text);
        exact.or_else(|| {
            if self.is_quoted {
                return None;
            }
            let alike = |field: &Field| field.name().eq_ignore_ascii_case(&self.text);
            // Ambiguous names are refused, since a guess could filter by the wrong column.
            let several = fields.clone().filter(|field| alike(field)).count() > 1;
            if several { None } else { fields.position(alike) }
        })
    }
}

/// Returns the index of a column in a table.
///
/// # Errors
/// If there is no column of this name.
pub(super) fn place_of(name: &Name, schema: &Schema) -> Result<usize> {
    let fields = schema.fields().iter().map(AsRef::as_ref);
    name.find(fields).ok_or_else(|| no_column(name, schema.fields().iter().map(|field| field.name().as_str())))
}

/// Returns the index of a field of a struct.
pub(super) fn field_of(name: &Name, of: &DataType) -> Result<usize> {
    let DataType::Struct(fields) = of else {
        return Err(Error::option(format!("{} names a field, but {of} has none; name a column", name.text)));
    };
    let found = name.find(fields.iter().map(AsRef::as_ref));
    found.ok_or_else(|| no_column(name, fields.iter().map(|field| field.name().as_str())))
}

fn no_column<'a>(name: &Name, names: impl Iterator<Item = &'a str>) -> Error {
    let (Name { text, is_quoted }, names) = (name, names.collect::<Vec<_>>().join(", "));
    // In SQL, double quotes are for names.
    let of_text = if *is_quoted { format!("; a text is in single quotes: '{text}'") } else { String::new() };
    Error::option(format!("there is no column {text}; choose from {names}{of_text}"))
}

fn operator(parsed: &BinaryOperator) -> Option<Operator> {
    Some(match parsed {
        BinaryOperator::Plus => Operator::Add,
        BinaryOperator::Minus => Operator::Subtract,
        BinaryOperator::Multiply => Operator::Multiply,
        BinaryOperator::Divide => Operator::Divide,
        BinaryOperator::Modulo => Operator::Remainder,
        BinaryOperator::Eq => Operator::Equal,
        BinaryOperator::NotEq => Operator::Unequal,
        BinaryOperator::Lt => Operator::Less,
        BinaryOperator::LtEq => Operator::LessOrEqual,
        BinaryOperator::Gt => Operator::Greater,
        BinaryOperator::GtEq => Operator::GreaterOrEqual,
        BinaryOperator::And => Operator::And,
        BinaryOperator::Or => Operator::Or,
        _ => return None,
    })
}

fn unsupported(parsed: &Expr) -> Error {
    Error::option(format!(
        "{} is not supported; use columns, numbers, 'texts', + - * / %, = <> < <= > >=, AND, OR, NOT, IN, \
         BETWEEN, LIKE, ILIKE, IS NULL, {}",
        quoted(&parsed.to_string()),
        functions()
    ))
}

fn unknown_function(name: &str) -> Error {
    Error::option(format!("there is no function {}; choose from {}", quoted(name), functions()))
}

fn functions() -> String {
    let names = FUNCTIONS.iter().map(|(name, _)| *name).chain(["trim"]);
    names.collect::<Vec<_>>().join(", ")
}
