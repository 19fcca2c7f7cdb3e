//! Reads JSON lines files. Each line has an object, and the names in the objects are columns.
//!
//! Opening a file reads all of it, to find the number of rows, the longest line, and the types of the columns. So the
//! types depend on all rows and on nothing else. Blank lines are not rows.

use std::path::Path;
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema};

use super::columns::{ColumnScan, Holding, TableColumns, Tables};
use super::facts::{Facts, ScanMemory};
use super::foreign::guarded;
use super::json_types::{CONFLICT, Conflict, Count, LineFacts, Seen};
use super::lines::Lines;
use super::nested::{ColumnPlace, Flattening};
use super::options::{IdChoice, ScanOptions, SourceOptions};
use super::vectors::VectorScan;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Memory for decoding, per byte of text and per value. Arrays that grow are in memory twice, in two sizes.
const DECODED_BYTES_A_BYTE: u64 = 5;
const DECODED_BYTES_A_VALUE: u64 = 80;
/// Maximum length of a parser's message, in characters. The message quotes the line.
const FAULT_CHARACTERS_MAX: usize = 200;

/// Reads all of a file and returns facts about its contents.
pub(super) fn inspect(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
) -> Result<Facts> {
    let (facts, seen) = read_through(context, path, file.clone())?;
    if facts.rows == 0 {
        return Ok(Facts::of_nothing(Arc::new(facts)));
    }
    let columns = TableColumns::choose(path, &facts.schema, options);
    let columns = columns.map_err(|error| conflict_of(path, &facts, options).unwrap_or(error))?;
    let elements = seen.element_count(columns.vector().0.way());
    // The tree of all names is not needed any more, since `facts` has everything for reading.
    drop(seen);
    let facts = Arc::new(facts);
    let memory = ScanMemory::claimed(facts.held_bytes(), 0);
    let tables = || Ok(Box::new(Rows::new(path, file, &facts, &columns.places(), 0)?) as Tables);
    Ok(Facts { lines: Some(facts.clone()), ..columns.facts(context, facts.rows, elements, memory, tables)? })
}

/// Starts a scan of a file.
pub(super) fn scan(
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
    scan: ScanOptions,
    facts: &LineFacts,
) -> Result<Box<dyn VectorScan>> {
    let columns = TableColumns::choose(path, &facts.schema, options)?;
    let tables = Rows::new(path, file, facts, &columns.places(), 0)?;
    Ok(Box::new(ColumnScan::new(columns, scan.vectors, scan.batch_bytes, Box::new(tables))))
}

/// Reads the columns at `places`, from row `first_row` on.
pub(super) fn tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
    first_row: u64,
    facts: &LineFacts,
) -> Result<Tables> {
    let held = context.reserve(facts.held_bytes(), &format!("{}: reading columns", path.display()))?;
    Ok(Box::new(Holding::new(Box::new(Rows::new(path, file, facts, places, first_row)?), held)))
}

/// Reads all of a file to find its columns and the memory for its lines.
pub(super) fn facts(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<LineFacts> {
    Ok(read_through(context, path, file)?.0)
}

fn read_through(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<(LineFacts, Seen)> {
    let mut lines = Lines::of_unknown(context, path, file)?;
    let mut names_memory: Option<Reservation> = None;
    let (mut seen, mut count) = (Seen::default(), Count::default());
    let (mut rows, mut line_bytes_max, mut decoded_bytes_max) = (0, 0, 0);
    while let Some(line) = lines.next_line()? {
        line_bytes_max = line_bytes_max.max(line.bytes.len());
        if line.is_blank() {
            continue;
        }
        rows += 1;
        (count.line, count.values) = (line.number, 0);
        let names_bytes = count.names_bytes;
        let text = line.text();
        seen.line(text, &mut count).map_err(|error| not_an_object(path, line.number, &error))?;
        // If objects are used as maps, with a key per row, the names would take memory without limit.
        if seen.is_cut() {
            return Err(Error::input(format!(
                "{}: the lines up to {} have too many different names for columns; use the same names in all lines",
                path.display(),
                line.number
            )));
        }
        let decoded = DECODED_BYTES_A_BYTE * text.len() as u64 + DECODED_BYTES_A_VALUE * count.values;
        decoded_bytes_max = decoded_bytes_max.max(decoded);
        if count.names_bytes > names_bytes {
            let names =
                context.reserve(2 * (count.names_bytes - names_bytes), &format!("{}: its columns", path.display()))?;
            match &mut names_memory {
                None => names_memory = Some(names),
                Some(memory) => memory.join(names),
            }
        }
        if rows % 1_024 == 0 {
            context.cancel.check()?;
        }
    }
    let schema = Arc::new(Schema::new(seen.columns()));
    let (conflicts, names_bytes) = (seen.conflicts(), count.names_bytes);
    Ok((LineFacts { rows, schema, conflicts, line_bytes_max, decoded_bytes_max, names_bytes }, seen))
}

fn not_an_object(path: &Path, line: u64, error: &serde_json::Error) -> Error {
    let words: String = error.to_string().chars().take(FAULT_CHARACTERS_MAX).collect();
    let words = words.split(" at line ").next().unwrap_or_default();
    Error::input(format!(
        "{}: line {line} is not a JSON object: {words} at byte {}; write one object per line, in UTF-8, with null for \
         NaN and infinity",
        path.display(),
        error.column()
    ))
}

/// Returns the error for a requested column that has values of several types.
pub(super) fn conflict_of(path: &Path, facts: &LineFacts, options: &SourceOptions) -> Option<Error> {
    let id = match &options.ids {
        IdChoice::Column(name) => Some(name.as_str()),
        IdChoice::IfThere => Some("id"),
        IdChoice::RowNumbers => None,
    };
    // A conflict matters only in a requested column. If the user named no column and no other column has vectors, the
    // column with the conflict may be the one with vectors.
    let is_meant = |conflict: &&Conflict| match &options.vector_column {
        Some(name) => *name == conflict.column || id == Some(&conflict.column),
        None => id == Some(&conflict.column) || !has_vectors(facts),
    };
    let Conflict { column, words } = facts.conflicts.iter().find(is_meant)?;
    let at = path.display();
    let said = format!("{at}: column {column} is {words}; write values of one type in all lines, or give ");
    Some(Error::input(match id == Some(column) {
        true => message![said, Argument::IdColumn, " another column, or ", Argument::NoIds, " to use row numbers"],
        false => message![said, Argument::VectorColumn, " another column"],
    }))
}

fn has_vectors(facts: &LineFacts) -> bool {
    let is_list = |field: &FieldRef| matches!(field.data_type(), DataType::List(item) if item.data_type().is_numeric());
    facts.schema.fields().iter().any(is_list)
}

/// Iterator over the rows of a file, as tables.
struct Rows {
    lines: Lines,
    decoder: Decoder,
    flattening: Flattening,
    has_columns: bool,
    rows_at_once: usize,
    /// Number of rows that are still to be skipped at the start.
    skipped: u64,
}

impl Rows {
    fn new(
        path: &Path,
        file: Arc<dyn ReadFile>,
        facts: &LineFacts,
        places: &[ColumnPlace],
        first_row: u64,
    ) -> Result<Self> {
        let ways: Vec<&[usize]> = places.iter().map(ColumnPlace::way).collect();
        // The decoder parses only the fields in its schema. It skips all other fields.
        let fields = pruned(facts.schema.fields(), &ways);
        let conflict = |conflict: &&Conflict| {
            let names = facts.schema.fields();
            places.iter().any(|place| conflict.column.split('.').next() == Some(names[place.top_index()].name()))
        };
        // A conflict matters only if the column is read. Other columns may have any values.
        if let Some(Conflict { column, words }) = facts.conflicts.iter().find(conflict)
            && fields.iter().any(|field| holds_conflict(field))
        {
            return Err(Error::input(format!(
                "{}: column {column} is {words}; write values of one type in all lines",
                path.display()
            )));
        }
        let rows_at_once = facts.rows_at_once();
        let decoder = ReaderBuilder::new(Arc::new(Schema::new(fields))).with_batch_size(rows_at_once).build_decoder();
        let decoder = guarded(path, "its columns", || decoder)?;
        Ok(Self {
            lines: Lines::of(path, file, facts.line_bytes_max),
            decoder,
            flattening: Flattening::of(places),
            has_columns: !places.is_empty(),
            rows_at_once,
            skipped: first_row,
        })
    }

    fn next_table(&mut self) -> Result<Option<RecordBatch>> {
        let (mut rows, path) = (0, self.lines.path.clone());
        while rows < self.rows_at_once {
            let Some(line) = self.lines.next_line()? else { break };
            if line.is_blank() {
                continue;
            }
            if self.skipped > 0 {
                self.skipped -= 1;
                continue;
            }
            rows += 1;
            // If no columns are read, rows are only counted. The lines were parsed when the file was opened.
            if self.has_columns {
                let decode = || self.decoder.decode(line.text()).map(drop);
                guarded(&path, format!("line {}", line.number), decode)?;
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        if !self.has_columns {
            let rows = RecordBatchOptions::new().with_row_count(Some(rows));
            let nothing = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &rows);
            return guarded(&path, "its rows", || nothing).map(Some);
        }
        let place = format!("the lines up to {}", self.lines.number);
        let lacking = || ArrowError::JsonError("there are fewer rows than lines".to_owned());
        guarded(&path, place, || self.flattening.flatten(self.decoder.flush()?.ok_or_else(lacking)?)).map(Some)
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_table().transpose()
    }
}

/// Returns only the fields on the paths `ways`. A path that ends at a struct includes all of its fields.
fn pruned(fields: &[FieldRef], ways: &[&[usize]]) -> Vec<FieldRef> {
    let one = |(index, field): (usize, &FieldRef)| {
        let rest: Vec<&[usize]> = ways.iter().filter(|way| way.first() == Some(&index)).map(|way| &way[1..]).collect();
        match field.data_type() {
            _ if rest.is_empty() => None,
            DataType::Struct(inner) if rest.iter().all(|way| !way.is_empty()) => {
                let inner = DataType::Struct(pruned(inner, &rest).into());
                Some(Arc::new(Field::new(field.name(), inner, true)))
            }
            _ => Some(field.clone()),
        }
    };
    fields.iter().enumerate().filter_map(one).collect()
}

fn holds_conflict(field: &Field) -> bool {
    match field.data_type() {
        DataType::Struct(inner) => inner.iter().any(|field| holds_conflict(field)),
        DataType::List(inner) => holds_conflict(inner),
        other => *other == CONFLICT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, try_read_all};
    use crate::source::{Fault, IdKind, Ids};

    fn options(vector: Option<&str>, id: Option<&str>) -> SourceOptions {
        let ids = IdChoice::new(id, false).unwrap();
        SourceOptions { vector_column: vector.map(Into::into), ids, split: None }
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn json_lines_are_rows_with_any_line_ending_and_batch() {
        let folder = Folder::new();
        let lines = [
            "{\"v\": [1, 0.5], \"id\": \"a\"}",
            "",
            "  \t",
            "{\"id\": \"b\\n\\u00e4\", \"other\": {\"x\": [\"y\", null]}, \"v\": [-2, 1e-3]}  ",
            "{\"v\":[3,4.0],\"id\":\"\"}",
        ];
        let expected = floats(&[1.0, 0.5, -2.0, 1e-3, 3.0, 4.0]);
        for (before, between, after) in [("", "\n", ""), ("\u{feff}", "\r\n", "\r\n\r\n"), ("", "\n", "\n")] {
            folder.write("a.jsonl", format!("{before}{}{after}", lines.join(between)).as_bytes());
            let source = folder.open(&["a.jsonl"]).unwrap();
            assert_eq!((source.info().rows, source.info().vectors.dimensions, source.info().ids), (3, 2, IdKind::Utf8));
            assert!(source.info().rounded_from_f64);
            for batch_bytes in [1, 16, 1 << 20] {
                let all = read_all(source.as_ref(), batch_bytes);
                assert_eq!(all.bytes, expected);
                let Ids::Utf8(ids) = all.ids else { panic!("ids are texts") };
                assert_eq!([0, 1, 2].map(|k| ids.get(k).to_vec()), ["a", "b\nä", ""].map(|id| id.as_bytes().to_vec()));
            }
        }
    }

    #[test]
    fn json_nulls_are_faults_and_object_fields_are_columns() {
        let folder = Folder::new();
        let lines =
            "{\"s\":{\"v\":[1,2],\"n\":7}}\n{}\n{\"s\":null}\n{\"s\":{\"v\":[1,null],\"n\":8}}\n{\"s\":{\"v\":[]}}\n";
        folder.write("a.ndjson", lines.as_bytes());
        let source = folder.open_with(&["a.ndjson"], &options(Some("s.v"), None)).unwrap();
        let all = read_all(source.as_ref(), 1 << 20);
        assert_eq!(all.bytes, floats(&[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
        let faults = [(1, Fault::Null), (2, Fault::Null), (3, Fault::NullElement { at: 1 }), (4, Fault::Length(0))];
        assert_eq!(all.faults, faults);
        let message = error_of(folder.open(&["a.ndjson"]));
        assert!(message.contains("except inside a struct") && message.contains("s.v"), "{message}");
        let with_ids = folder.open_with(&["a.ndjson"], &options(Some("s.v"), Some("s.n"))).unwrap();
        let message = error_of(try_read_all(with_ids.as_ref(), 1 << 20));
        assert!(message.contains("row 1 has a null id"), "{message}");
    }

    /// Checks that types depend on all rows, and neither on the first rows alone nor on the division into batches.
    #[test]
    fn json_types_depend_on_all_lines() {
        let folder = Folder::new();
        let many: String = (0..10_000).map(|row| format!("{{\"id\":{row},\"v\":[{row},0],\"w\":null}}\n")).collect();
        folder.write("a.jsonl", format!("{many}{{\"id\":-1,\"v\":[0.5,1],\"w\":\"x\"}}\n").as_bytes());
        let source = folder.open(&["a.jsonl"]).unwrap();
        assert_eq!((source.info().rows, source.info().ids), (10_001, IdKind::Int64));
        let all = read_all(source.as_ref(), 1 << 16);
        assert_eq!(all.bytes[80_000..], floats(&[0.5, 1.0]));
        assert!(matches!(all.ids, Ids::Int64(ids) if ids[9_999..] == [9_999, -1]));
    }

    #[test]
    fn json_faults_name_their_line_and_a_remedy() {
        let folder = Folder::new();
        let deep = format!("{{\"v\":{}1{}}}", "[".repeat(500), "]".repeat(500));
        let names: String = (0..4_000).map(|k| format!("\"name{k}\":1,")).collect();
        let cases: [(&[u8], &str); 17] = [
            (
                b"{\"id\":9007199254740993,\"v\":[9007199254740993,2]}\n{\"id\":0.5,\"v\":[1,2]}",
                "column id is numbers that only a 64-bit float holds and, in line 1, an integer that it rounds",
            ),
            (b"{\"v\":[1,2]}\n\n{\"v\":[1,2", "line 3 is not a JSON object: EOF while parsing a list at byte 9"),
            (b"{\"v\":[1,1e400]}", "line 1 is not a JSON object: number out of range"),
            (b"{\"v\":[1,NaN]}", "line 1 is not a JSON object: expected value at byte 9"),
            (b"{\"v\":[1,2],\"t\":\"\xff\"}", "line 1 is not a JSON object: invalid unicode"),
            (b"{\"v\":[1,2]}{\"v\":[1,2]}", "line 1 is not a JSON object: trailing characters"),
            (
                b"[{\"v\":[1,2]},\n{\"v\":[1,2]}]",
                "line 1 is not a JSON object: invalid type: sequence, expected an object",
            ),
            (b"{\"v\":[1,2]}\n\"x\"", "line 2 is not a JSON object: invalid type: string"),
            (b"\xff\xfe{\x00\"\x00", "line 1 is not a JSON object"),
            (deep.as_bytes(), "line 1 is not a JSON object: recursion limit"),
            (b"{\"v\":[1,2]}\n{\"v\":\"s\"}", "column v is a list in line 1 and a text in line 2"),
            (
                b"{\"v\":[1,2]}\n{\"v\":[3,true]}",
                "column v is a list that has a number in line 1 and true or false in line 2",
            ),
            (
                b"{\"id\":1,\"v\":[1,2]}\n{\"id\":\"x\",\"v\":[1,2]}",
                "column id is a number in line 1 and a text in line 2",
            ),
            (b"{\"id\":1.5,\"v\":[1,2]}", "column id is Float64, but ids must be integers or text"),
            (b"{\"w\":[1,2],\"v\":[1,2]}", "several columns hold vectors; pass vector-column NAME (one of: w, v)"),
            (b"{\"w\":1}", "no column holds vectors"),
            (b"\n\n", "no row has a vector"),
        ];
        for (bytes, words) in cases {
            folder.write("a.jsonl", bytes);
            let message = error_of(folder.open(&["a.jsonl"]));
            assert!(message.contains(words) && message.contains("a.jsonl"), "{message}");
        }
        folder.write("a.jsonl", format!("{{{names}\"v\":[1,2]}}").as_bytes());
        assert!(error_of(folder.open(&["a.jsonl"])).contains("too many different names"));
        // Columns that contain neither vectors nor ids may have any values.
        folder.write(
            "a.jsonl",
            format!("{{\"m\":{{{names}\"x\":1}},\"t\":1,\"v\":[1,2]}}\n{{\"t\":[2],\"v\":[1,2]}}").as_bytes(),
        );
        assert_eq!(read_all(folder.open(&["a.jsonl"]).unwrap().as_ref(), 100).bytes, floats(&[1.0, 2.0, 1.0, 2.0]));
    }

    #[test]
    fn long_lines_are_read_if_the_budget_suffices() {
        let folder = Folder::new();
        let line = |row: usize, text: usize| format!("{{\"t\":\"{}\",\"v\":[{row},1]}}\n", "x".repeat(text));
        folder.write("a.jsonl", [line(0, 3 << 20), line(1, 10), line(2, 1 << 20)].concat().as_bytes());
        let source = folder.open(&["a.jsonl"]).unwrap();
        assert_eq!(read_all(source.as_ref(), 100).bytes, floats(&[0.0, 1.0, 1.0, 1.0, 2.0, 1.0]));
        assert!(source.scan_bytes(100) > 3 << 20);
        let refused = folder.open_within(&["a.jsonl"], &SourceOptions::default(), 23 << 20).err().unwrap().to_string();
        assert!(refused.contains("a.jsonl: line 1") && refused.contains("MB"), "{refused}");
    }

    #[test]
    fn files_without_rows_are_compatible_with_all_others() {
        let folder = Folder::new();
        folder.write("0.jsonl", b"");
        folder.write("1.jsonl", b"{\"id\":\"a\",\"v\":[1,2]}\n");
        folder.write("2.jsonl", b"\n");
        let source = folder.open(&[""]).unwrap();
        assert_eq!((source.info().rows, source.info().ids), (1, IdKind::Utf8));
        assert_eq!(read_all(source.as_ref(), 100).bytes, floats(&[1.0, 2.0]));
    }
}
