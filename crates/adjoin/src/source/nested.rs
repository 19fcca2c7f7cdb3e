//! Nested columns: fields of structs. They are named by their path, such as `meta.id`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema};
use arrow_select::nullif::nullif;

/// Place of a column in a schema. For a top-level column, it is the index of the column. For a field of a struct, it
/// is the list of the indexes on the path to the field. The order of places is the order in which files list their
/// columns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnPlace(Vec<usize>);

impl ColumnPlace {
    /// Creates the place of a top-level column.
    pub(crate) fn top(index: usize) -> Self {
        Self(vec![index])
    }

    /// Finds the column `name`. If there is no such column, finds the field to which the dotted name leads.
    pub(super) fn find<'a>(fields: &'a Fields, name: &str) -> Option<(Self, &'a FieldRef)> {
        // The exact name is tried first, since the name of a column may contain dots.
        if let Some(index) = fields.iter().position(|field| field.name() == name) {
            return Some((Self::top(index), &fields[index]));
        }
        fields.iter().enumerate().find_map(|(index, field)| {
            let DataType::Struct(inner) = field.data_type() else { return None };
            let rest = name.strip_prefix(field.name().as_str())?.strip_prefix('.')?;
            let (Self(mut way), found) = Self::find(inner, rest)?;
            way.insert(0, index);
            Some((Self(way), found))
        })
    }

    /// Returns the field at this place of a schema with the columns `fields`.
    pub(super) fn field<'a>(&self, fields: &'a Fields) -> &'a FieldRef {
        let (mut field, rest) = (&fields[self.0[0]], &self.0[1..]);
        for step in rest {
            let DataType::Struct(inner) = field.data_type() else { return field };
            field = &inner[*step];
        }
        field
    }

    /// Returns the index of the top-level column that this column is, or in which it is nested.
    pub(super) fn top_index(&self) -> usize {
        self.0[0]
    }

    /// Returns the indexes on the path. There is at least one.
    pub(super) fn way(&self) -> &[usize] {
        &self.0
    }
}

/// Returns the dotted names of all fields of structs for which `is_wanted` returns true, at any depth.
pub(super) fn fields_of_structs(fields: &Fields, is_wanted: &impl Fn(&Field) -> bool) -> Vec<String> {
    let mut names = Vec::new();
    for field in fields {
        let DataType::Struct(inner) = field.data_type() else { continue };
        let own = inner.iter().filter(|field| is_wanted(field)).map(|field| field.name().clone());
        let deeper = fields_of_structs(inner, is_wanted);
        names.extend(own.chain(deeper).map(|name| format!("{}.{name}", field.name())));
    }
    names
}

/// Extracts nested columns from a table. The table contains only these columns: structs on their paths have no other
/// fields. The places of the columns are in ascending order.
pub(super) struct Flattening(Vec<Vec<usize>>);

impl Flattening {
    pub(super) fn of(places: &[ColumnPlace]) -> Self {
        // Computes the position of a field within its pruned struct: the number of fields before it that are also
        // read.
        let among = |way: &[usize], depth: usize| {
            let siblings = places.iter().filter(|other| other.0.len() > depth && other.0[..depth] == way[..depth]);
            let mut before: Vec<usize> =
                siblings.map(|other| other.0[depth]).filter(|other| *other < way[depth]).collect();
            before.sort_unstable();
            before.dedup();
            before.len()
        };
        Self(places.iter().map(|place| (0..place.0.len()).map(|depth| among(&place.0, depth)).collect()).collect())
    }

    pub(super) fn flatten(&self, table: RecordBatch) -> Result<RecordBatch, ArrowError> {
        if self.0.iter().all(|way| way.len() == 1) {
            return Ok(table);
        }
        let other_type = || ArrowError::SchemaError("the type of a struct differs from that in the schema".into());
        let column = |way: &Vec<usize>| {
            let mut column = table.columns().get(way[0]).ok_or_else(other_type)?;
            let mut above = None;
            // A field is null if a struct around it is null, regardless of its own validity.
            for step in &way[1..] {
                let outer = column.as_struct_opt().ok_or_else(other_type)?;
                above = NullBuffer::union(above.as_ref(), outer.nulls());
                column = outer.columns().get(*step).ok_or_else(other_type)?;
            }
            without(column, above)
        };
        table_of(self.0.iter().map(column).collect::<Result<_, _>>()?, table.num_rows())
    }
}

/// Sets a column to null in all rows in which a struct around it is null.
fn without(column: &ArrayRef, above: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
    match above.filter(|above| above.null_count() > 0) {
        Some(above) => nullif(column, &BooleanArray::new(!above.inner(), None)),
        None => Ok(column.clone()),
    }
}

fn table_of(columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let fields =
        columns.iter().enumerate().map(|(k, column)| Field::new(k.to_string(), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new_with_options(schema, columns, &RecordBatchOptions::new().with_row_count(Some(rows)))
}

/// A schema in which structs around requested columns are separate columns. Such a column has no fields, and precedes
/// the columns of its fields. An Arrow message lists the parts of columns in depth-first order, so this schema
/// describes the same bytes as the original schema. With this schema, a decoder can skip fields that are not
/// requested.
pub(super) struct Expanded {
    pub(super) schema: Arc<Schema>,
    /// For each column of `schema`, its path in the file.
    ways: Vec<Vec<usize>>,
    /// Indexes of the columns to read, ascending: the requested columns and the structs around them.
    pub(super) read: Vec<usize>,
    /// For each requested column: the positions in `read` of the structs around it, followed by its own position in
    /// `read`.
    chains: Vec<Vec<usize>>,
}

impl Expanded {
    /// Expands a schema for the columns at `places`, which ascend.
    pub(super) fn new(schema: &Schema, places: &[ColumnPlace]) -> Self {
        let mut columns = Vec::new();
        expand(schema.fields(), &mut Vec::new(), places, &mut columns);
        let (ways, fields): (Vec<Vec<usize>>, Vec<FieldRef>) = columns.into_iter().unzip();
        let is_read = |way: &Vec<usize>| places.iter().any(|place| place.0.starts_with(way));
        let read: Vec<usize> = (0..ways.len()).filter(|column| is_read(&ways[*column])).collect();
        let chain = |place: &ColumnPlace| {
            let within = read.iter().enumerate().filter(|(_, column)| place.0.starts_with(&ways[**column]));
            within.map(|(k, _)| k).collect()
        };
        let chains = places.iter().map(chain).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
        Self { schema, ways, read, chains }
    }

    /// Returns the index in the expanded schema of the column at a requested place.
    pub(super) fn column(&self, place: &ColumnPlace) -> Option<usize> {
        self.ways.iter().position(|way| *way == place.0)
    }

    /// Returns whether the item at the end of a path is read.
    pub(super) fn is_read(&self, way: &[usize]) -> bool {
        self.read.iter().any(|column| way.starts_with(&self.ways[*column]) && !self.is_bare(*column))
    }

    /// Returns whether a column is a struct whose fields are separate columns.
    fn is_bare(&self, column: usize) -> bool {
        // Columns are in depth-first order, so the fields of a struct directly follow it.
        self.ways.get(column + 1).is_some_and(|next| next.len() > self.ways[column].len())
    }

    /// Extracts the requested columns from a table of the columns in `read`.
    pub(super) fn flatten(&self, table: RecordBatch) -> Result<RecordBatch, ArrowError> {
        if self.chains.iter().all(|chain| chain.len() == 1) {
            return Ok(table);
        }
        let column = |chain: &Vec<usize>| {
            let (last, around) = chain.split_last().map_or((0, &[][..]), |(last, around)| (*last, around));
            let nulls = around.iter().fold(None, |above: Option<NullBuffer>, outer| {
                NullBuffer::union(above.as_ref(), table.column(*outer).nulls())
            });
            without(table.column(last), nulls)
        };
        table_of(self.chains.iter().map(column).collect::<Result<_, _>>()?, table.num_rows())
    }
}

fn expand(fields: &Fields, way: &mut Vec<usize>, places: &[ColumnPlace], columns: &mut Vec<(Vec<usize>, FieldRef)>) {
    for (index, field) in fields.iter().enumerate() {
        way.push(index);
        // A field of a struct is null if the struct is null.
        let field = if way.len() > 1 { Arc::new(field.as_ref().clone().with_nullable(true)) } else { field.clone() };
        // A struct is expanded only if one of its fields is requested.
        let leads_on = places.iter().any(|place| place.0.len() > way.len() && place.0.starts_with(way));
        match field.data_type() {
            DataType::Struct(inner) if leads_on => {
                let bare = field.as_ref().clone().with_data_type(DataType::Struct(Fields::empty()));
                columns.push((way.clone(), Arc::new(bare)));
                expand(inner, way, places, columns);
            }
            _ => columns.push((way.clone(), field)),
        }
        way.pop();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use arrow_array::builder::{ListBuilder, UInt8Builder};
    use arrow_array::types::Int8Type;
    use arrow_array::{DictionaryArray, Int64Array, StringArray, StructArray};
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};

    use super::*;
    use crate::source::fixtures::{Folder, TABLE_FORMATS, error_of, read_all, table, try_read_all, write_tables};
    use crate::source::{Fault, IdChoice, Ids, SourceOptions};

    const ROWS: u8 = 5;

    fn vectors(first: u8) -> ArrayRef {
        let mut lists = ListBuilder::new(UInt8Builder::new());
        (0..ROWS).for_each(|row| lists.append_value([Some(first + row), Some(1)]));
        Arc::new(lists.finish())
    }

    fn structure(fields: &[(&str, ArrayRef)], nulls: Option<NullBuffer>) -> ArrayRef {
        let named = |(name, column): &(&str, ArrayRef)| Field::new(*name, column.data_type().clone(), true);
        let columns = fields.iter().map(|(_, column)| column.clone()).collect();
        Arc::new(StructArray::new(fields.iter().map(named).collect(), columns, nulls))
    }

    fn texts(text: &str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("{text}{row}"))))
    }

    /// Creates a table with fields of every kind around the requested ones, and with a struct that is null in row 3.
    fn nested() -> RecordBatch {
        let coded: DictionaryArray<Int8Type> = ["e", "d", "c", "b", "a"].into_iter().collect();
        let inner = [("other", texts("sibling")), ("id", texts("x")), ("v", vectors(10)), ("n", texts("sibling"))];
        let outer = [("deep", structure(&inner, None)), ("coded", Arc::new(coded) as ArrayRef), ("v", vectors(20))];
        let nulls = NullBuffer::from_iter((0..ROWS).map(|row| row != 3));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(ROWS)));
        table(&[("first", texts("sibling")), ("s", structure(&outer, Some(nulls))), ("number", numbers)])
    }

    fn options(vector: &str, id: Option<&str>) -> SourceOptions {
        let ids = IdChoice::new(id, id.is_none()).unwrap();
        SourceOptions { vector_column: Some(vector.into()), ids, split: None }
    }

    fn bytes(first: u8) -> Vec<u8> {
        (0..ROWS).flat_map(|row| if row == 3 { [0, 0] } else { [first + row, 1] }).collect()
    }

    #[test]
    fn struct_fields_can_be_vectors_with_ids() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[nested().slice(0, 2), nested().slice(2, 3)]);
            for (vector, first) in [("s.v", 20), ("s.deep.v", 10)] {
                let source = folder.open_with(&[name], &options(vector, Some("number"))).unwrap();
                for batch_bytes in [1, 1 << 20] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert_eq!((all.bytes, all.faults), (bytes(first), vec![(3, Fault::Null)]), "{name}");
                    assert_eq!(all.ids, Ids::Int64((0..5).collect()));
                }
            }
        }
    }

    #[test]
    fn struct_fields_can_be_ids() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[nested().slice(0, 3)]);
            for (id, expected) in [("s.deep.id", ["x0", "x1", "x2"]), ("s.coded", ["e", "d", "c"])] {
                let source = folder.open_with(&[name], &options("s.deep.v", Some(id))).unwrap();
                let Ids::Utf8(ids) = read_all(source.as_ref(), 1 << 20).ids else { panic!("{name}: {id} is text") };
                let ids: Vec<&[u8]> = (0..3).map(|row| ids.get(row)).collect();
                assert_eq!(ids, expected.map(str::as_bytes), "{name} {id}");
            }
            write_tables(&folder, name, &[nested()]);
            let source = folder.open_with(&[name], &options("s.v", Some("s.deep.id"))).unwrap();
            let message = error_of(try_read_all(source.as_ref(), 1 << 20));
            assert!(message.contains("row 3 has a null id in column s.deep.id"), "{message}");
        }
    }

    #[test]
    fn other_fields_are_not_read() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[nested().slice(0, 3)]);
            let mut stored = fs::read(folder.path(name)).unwrap();
            let places: Vec<usize> =
                stored.windows(7).enumerate().filter(|(_, text)| text == b"sibling").map(|(k, _)| k).collect();
            assert!(places.len() >= 9, "{name}");
            places.iter().for_each(|place| stored[*place..place + 7].fill(0xff)); // not UTF-8
            folder.write(name, &stored);
            let source = folder.open_with(&[name], &options("s.deep.v", Some("s.deep.id"))).unwrap();
            assert_eq!(read_all(source.as_ref(), 1 << 20).bytes, bytes(10)[..6]);
            let source = folder.open_with(&[name], &options("s.v", Some("s.deep.other")));
            let message = error_of(source.and_then(|source| try_read_all(source.as_ref(), 1 << 20)));
            assert!(message.contains("the file is damaged"), "{message}");
        }
    }

    #[test]
    fn compressed_batches_are_read_by_field() {
        let folder = Folder::new();
        let settings = IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD)).unwrap();
        let mut stored = Vec::new();
        let mut writer = FileWriter::try_new_with_options(&mut stored, &nested().schema(), settings).unwrap();
        writer.write(&nested()).unwrap();
        writer.finish().unwrap();
        folder.write("a.arrow", &stored);
        let source = folder.open_with(&["a.arrow"], &options("s.v", None)).unwrap();
        assert_eq!(read_all(source.as_ref(), 1 << 20).bytes, bytes(20));
    }

    #[test]
    fn a_column_with_dots_in_its_name_precedes_struct_fields() {
        let folder = Folder::new();
        let columns = [("s", structure(&[("v", vectors(10))], None)), ("s.v", vectors(20))];
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[table(&columns)]);
            let source = folder.open_with(&[name], &options("s.v", None)).unwrap();
            assert_eq!(read_all(source.as_ref(), 1 << 20).bytes[0], 20);
            write_tables(&folder, name, &[table(&[("a.b", structure(&[("c.d", vectors(30))], None))])]);
            let source = folder.open_with(&[name], &options("a.b.c.d", None)).unwrap();
            assert_eq!(read_all(source.as_ref(), 1 << 20).bytes[0], 30);
        }
    }

    #[test]
    fn errors_suggest_vector_columns_within_structs() {
        let folder = Folder::new();
        for name in TABLE_FORMATS {
            write_tables(&folder, name, &[nested()]);
            let message = error_of(folder.open(&[name]));
            assert!(
                message.contains("except inside a struct; pass vector-column NAME (one of: s.v, s.deep.v)"),
                "{message}"
            );
            let message = error_of(folder.open_with(&[name], &options("s.w", None)));
            assert!(message.contains("there is no column s.w"), "{message}");
            let message = error_of(folder.open_with(&[name], &options("s.deep", None)));
            assert!(message.contains("column s.deep is Struct"), "{message}");
        }
    }
}
