//! Infers the types of the columns of JSON lines. The type of a column fits all of its values, in any order.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, SchemaRef};
use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::lines::Lines;

/// Limit on the size of the names of all columns and fields, in bytes. It includes the facts about each of them.
/// Without this limit, objects that are used as maps, with keys that are not column names, could take any amount of
/// memory. The fields of objects may use half of the limit, so that the other half is left for columns.
const NAMES_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the facts about a column or field, without its name.
const COLUMN_BYTES: u64 = 512;

/// Type that marks columns with values of several types. No JSON value has this type.
pub(super) const CONFLICT: DataType = DataType::Binary;

/// Memory for lines that are decoded at a time, in bytes. Exceeded only if a single line takes more.
const DECODED_BYTES: u64 = 2 << 20;

/// Facts about a file, which are found by reading all of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineFacts {
    pub(super) rows: u64,
    pub(super) schema: SchemaRef,
    pub(super) conflicts: Vec<Conflict>,
    pub(super) line_bytes_max: usize,
    /// Maximum memory for decoding a line, in bytes.
    pub(super) decoded_bytes_max: u64,
    pub(super) names_bytes: u64,
}

impl LineFacts {
    /// Returns the schema of the columns.
    pub(super) fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns the number of rows.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes held while lines are read one after the other.
    pub(super) fn lines_bytes(&self) -> u64 {
        Lines::bytes(self.line_bytes_max)
    }

    /// Returns the bytes that a scan holds.
    pub(super) fn held_bytes(&self) -> u64 {
        self.lines_bytes() + self.decoded_bytes_max.max(DECODED_BYTES) + self.names_bytes
    }

    /// Returns the number of rows to decode at a time.
    pub(super) fn rows_at_once(&self) -> usize {
        // Assumes that all lines are as large as the largest one, so that the decoded lines never exceed the planned
        // memory.
        (DECODED_BYTES / self.decoded_bytes_max.max(1)).clamp(1, 1 << 12) as usize
    }
}

/// Types of JSON values, except null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Boolean,
    Number,
    Text,
    List,
    Object,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Boolean => "true or false",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::List => "a list",
            Self::Object => "an object",
        })
    }
}

/// Facts about the values of a column or a field, or about the elements of its lists.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Type and line of the first value.
    first: Option<(Kind, u64)>,
    /// Type and line of the first value with another type.
    other: Option<(Kind, u64)>,
    number: Number,
    /// Facts about the elements of lists.
    elements: Option<Box<Seen>>,
    /// Total number of elements of all lists.
    element_count: u64,
    fields: Keys,
}

/// Facts about the numbers of a column or field.
#[derive(Debug, Default)]
struct Number {
    is_negative: bool,
    is_fraction: bool,
    /// Whether a number is too large for a signed 64-bit integer.
    is_large: bool,
    /// Line of the first integer that f64 cannot represent exactly.
    inexact: Option<u64>,
}

impl Number {
    /// Returns the type for all numbers. It may be a type that rounds some integers.
    fn data_type(&self) -> DataType {
        match self {
            Self { is_fraction: false, is_large: false, .. } => DataType::Int64,
            Self { is_fraction: false, is_negative: false, .. } => DataType::UInt64,
            _ => DataType::Float64,
        }
    }

    /// Returns the line of an integer that the type of the numbers would round, if there is one.
    fn rounded(&self) -> Option<u64> {
        self.inexact.filter(|_| self.data_type() == DataType::Float64)
    }
}

/// The fields of objects, in the order of their first appearance.
#[derive(Debug, Default)]
struct Keys {
    fields: Vec<(String, Seen)>,
    places: HashMap<String, usize>,
    /// Whether some fields were left out because of the limit on names.
    is_cut: bool,
}

/// Counters that are updated while lines are read.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Number of the current line.
    pub(super) line: u64,
    /// Number of values and keys in the current line.
    pub(super) values: u64,
    /// Bytes of all names so far, including the facts about their columns.
    pub(super) names_bytes: u64,
}

/// A column with values of several types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// Name of the column, or path to one of its fields.
    pub(super) column: String,
    pub(super) words: String,
}

impl Seen {
    /// Reads a line, which must be an object.
    pub(super) fn line(&mut self, line: &[u8], count: &mut Count) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        deserializer.deserialize_any(Row { seen: self, count })?;
        deserializer.end()
    }

    /// Returns whether some columns were left out because of the limit on names.
    pub(super) fn is_cut(&self) -> bool {
        self.fields.is_cut
    }

    /// Returns the columns as fields of a schema.
    pub(super) fn columns(&self) -> Fields {
        self.fields.fields.iter().map(|(name, seen)| Field::new(name, seen.data_type(false), true)).collect()
    }

    /// Returns the total number of elements of the lists at the end of the path `way`.
    pub(super) fn element_count(&self, way: &[usize]) -> u64 {
        match way {
            [] => self.element_count,
            [step, rest @ ..] => self.fields.fields.get(*step).map_or(0, |(_, seen)| seen.element_count(rest)),
        }
    }

    /// Returns the columns and fields with values of several types.
    pub(super) fn conflicts(&self) -> Vec<Conflict> {
        let mut found = Vec::new();
        self.fields.fields.iter().for_each(|(name, seen)| seen.add_conflicts(name, &mut found));
        found
    }

    fn add_conflicts(&self, column: &str, found: &mut Vec<Conflict>) {
        let mut add = |words: String| found.push(Conflict { column: column.to_owned(), words });
        if let (Some((kind, line)), Some((other, other_line))) = (self.first, self.other) {
            return add(format!("{kind} in line {line} and {other} in line {other_line}"));
        }
        // Ids above 2^53 could become equal if they were silently read as floats.
        if let Some(line) = self.number.rounded() {
            return add(format!(
                "numbers that only a 64-bit float holds and, in line {line}, an integer that it rounds"
            ));
        }
        if self.fields.is_cut {
            return add("an object with too many different names".to_owned());
        }
        if let Some(elements) = self.elements.as_ref().filter(|elements| elements.number.rounded().is_none()) {
            let mut within = Vec::new();
            elements.add_conflicts(column, &mut within);
            within.into_iter().for_each(|conflict| add(format!("a list that has {}", conflict.words)));
        }
        for (name, seen) in &self.fields.fields {
            seen.add_conflicts(&format!("{column}.{name}"), found);
        }
    }

    /// Returns the type of the values. Numbers in lists always have the type f64, since lists are vectors.
    fn data_type(&self, in_list: bool) -> DataType {
        // All values are null, so every type fits.
        let Some((kind, _)) = self.first else { return DataType::Null };
        if self.other.is_some() || self.fields.is_cut {
            return CONFLICT;
        }
        match kind {
            Kind::Boolean => DataType::Boolean,
            Kind::Text => DataType::Utf8,
            Kind::Number if in_list => DataType::Float64,
            Kind::Number if self.number.rounded().is_some() => CONFLICT,
            Kind::Number => self.number.data_type(),
            Kind::List => {
                let elements = self.elements.as_ref().map_or(DataType::Null, |elements| elements.data_type(true));
                // All lists are empty, so every element type fits. Lists of floats may be vectors.
                let elements = if elements == DataType::Null { DataType::Float64 } else { elements };
                DataType::List(Arc::new(Field::new_list_field(elements, true)))
            }
            Kind::Object if self.fields.fields.is_empty() => DataType::Null,
            Kind::Object => DataType::Struct(self.columns()),
        }
    }

    fn note(&mut self, kind: Kind, line: u64) {
        match self.first {
            None => self.first = Some((kind, line)),
            // Only the first conflict is recorded, since the message names just one line for each of two types.
            Some((first, _)) if first != kind => self.other = self.other.or(Some((kind, line))),
            Some(_) => {}
        }
    }
}

/// Visitor of the value of a line, which must be an object.
struct Row<'a> {
    seen: &'a mut Seen,
    count: &'a mut Count,
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.seen.fields.read(map, self.count, NAMES_BYTES_MAX)
    }
}

/// Visitor of any value.
struct Value<'a> {
    seen: &'a mut Seen,
    count: &'a mut Count,
}

impl Value<'_> {
    fn note_inexact(&mut self, value: i128) {
        // Some integers above 2^53 have no exact f64.
        if value as f64 as i128 != value {
            self.seen.number.inexact.get_or_insert(self.count.line);
        }
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.count.values += 1;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.seen.note(Kind::Boolean, self.count.line);
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.seen.note(Kind::Number, self.count.line);
        self.seen.number.is_negative |= value < 0;
        self.note_inexact(value.into());
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.seen.note(Kind::Number, self.count.line);
        self.seen.number.is_large |= i64::try_from(value).is_err();
        self.note_inexact(value.into());
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.seen.note(Kind::Number, self.count.line);
        self.seen.number.is_fraction = true;
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.seen.note(Kind::Text, self.count.line);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { seen, count } = self;
        seen.note(Kind::List, count.line);
        let of = seen.elements.get_or_insert_default();
        while elements.next_element_seed(Value { seen: of, count })?.is_some() {
            seen.element_count += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.seen.note(Kind::Object, self.count.line);
        self.seen.fields.read(map, self.count, NAMES_BYTES_MAX / 2)
    }
}

impl Keys {
    fn read<'de, A: MapAccess<'de>>(&mut self, mut map: A, count: &mut Count, bytes_max: u64) -> Result<(), A::Error> {
        let mut expected = 0;
        while let Some(place) = map.next_key_seed(Key { keys: self, count, expected, bytes_max })? {
            count.values += 1;
            let Some(place) = place else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            expected = place + 1;
            map.next_value_seed(Value { seen: &mut self.fields[place].1, count })?;
        }
        Ok(())
    }

    /// Returns the index of a name. It is probably `expected`. A new name is added unless all names together would
    /// then take more than `bytes_max` bytes. In that case, returns `None`.
    fn place(&mut self, name: &str, expected: usize, bytes_max: u64, count: &mut Count) -> Option<usize> {
        // Most lines have the same names in the same order.
        if self.fields.get(expected).is_some_and(|(at, _)| at == name) {
            return Some(expected);
        }
        if let Some(place) = self.places.get(name) {
            return Some(*place);
        }
        // The name is in memory twice: in the list of fields and as a key of the map.
        let bytes = COLUMN_BYTES + 2 * name.len() as u64;
        if count.names_bytes + bytes > bytes_max {
            self.is_cut = true;
            return None;
        }
        count.names_bytes += bytes;
        let place = self.fields.len();
        self.places.insert(name.to_owned(), place);
        self.fields.push((name.to_owned(), Seen::default()));
        Some(place)
    }
}

/// Visitor of the name of a field. It returns the index of the field, or `None` if the field is left out.
struct Key<'a> {
    keys: &'a mut Keys,
    count: &'a mut Count,
    expected: usize,
    bytes_max: u64,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        // A visitor can compare the name without copying it.
        struct Name<'a>(Key<'a>);

        impl Visitor<'_> for Name<'_> {
            type Value = Option<usize>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
                Ok(self.0.keys.place(name, self.0.expected, self.0.bytes_max, self.0.count))
            }
        }
        deserializer.deserialize_str(Name(self))
    }
}
