//! Tables with lines that name one or two rows each: pairs, removed rows with the rows kept for them, and rows of
//! clusters. Lines may carry columns of these rows.
//!
//! Lines are collected until the columns of many lines can be read together. The rows that these lines name are then
//! read once, in the order in which they are stored. The number of lines is limited by memory.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use adjoin_device::Reservation;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::nullif::nullif;

use super::table::{Ended, TableWriter, WIDE_ROWS_BYTES, add_columns};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::output::Target;
use crate::load::{SetColumns, Sets};
use crate::source::Attributes;
use crate::store::{ColumnGathering, ColumnNeeds, GATHERED_LINE_BYTES, GatheredColumns};

/// Fraction of the free memory for lines that wait for their columns, and its limits.
const WAITING_SHARE: u64 = 16;
const WAITING_BYTES_MIN: u64 = 256 << 10;
const WAITING_BYTES_MAX: u64 = 16 << 20;
/// Bytes of lines that are written at once, unless a single line is longer.
const WRITTEN_BYTES: u64 = 256 << 10;
/// Maximum number of copies of lines that are being written: as columns, and in the buffers of the table.
const WRITTEN_COPIES: u64 = 8;
/// Purpose of the memory in error messages.
const PURPOSE: &str = "the columns of the rows of a result";

/// Columns of rows, found by their numbers.
pub(crate) enum RowColumns<'a> {
    /// Columns that stores keep.
    Kept(SetColumns<'a>),
    /// Columns of the files of a source.
    InFiles(Attributes<'a>),
}

impl RowColumns<'_> {
    fn needs(&self) -> ColumnNeeds {
        match self {
            Self::Kept(columns) => columns.needs().clone(),
            Self::InFiles(columns) => ColumnNeeds {
                schema: columns.schema().clone(),
                reading_bytes: columns.reading_bytes().unwrap_or(0),
                row_bytes: columns.row_bytes_max(),
                row_bytes_max: columns.row_bytes_max(),
            },
        }
    }

    /// Returns the position of a row in the order in which columns are read.
    fn place(&self, row: u64) -> u64 {
        match self {
            Self::Kept(columns) => columns.place(row),
            Self::InFiles(_) => row,
        }
    }

    fn each_of(
        &self,
        context: &Context,
        places: &[u64],
        take: &mut dyn FnMut(RecordBatch) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        match self {
            Self::Kept(columns) => columns.each_of(context, places, take),
            Self::InFiles(columns) => columns.each_of(context, places, take),
        }
    }
}

/// Columns that the lines of a table carry, for the left and, if there is one, for the right row.
pub(crate) struct CarriedColumns<'a> {
    /// The columns of each side, or a single element if the rows of both sides are of one set.
    by_side: Vec<RowColumns<'a>>,
    needs: Vec<ColumnNeeds>,
}

impl<'a> CarriedColumns<'a> {
    /// Opens the columns `names` of the sets of a join. Returns `None` if there are no names.
    ///
    /// # Errors
    /// If a store does not keep one of them, its file cannot be read, or memory does not suffice.
    pub(crate) fn of_sets(context: &Context, sets: Sets<'a>, names: &[String]) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let by_side = sets.columns(context, names)?.into_iter().map(RowColumns::Kept).collect();
        Ok(Some(Self::of(by_side)))
    }

    /// Creates the columns of lines whose left and right rows are both rows of one source.
    pub(crate) fn of_files(columns: Attributes<'a>) -> Self {
        Self::of(vec![RowColumns::InFiles(columns)])
    }

    fn of(by_side: Vec<RowColumns<'a>>) -> Self {
        let needs = by_side.iter().map(RowColumns::needs).collect();
        Self { by_side, needs }
    }

    /// Returns the memory that suffices to carry these columns.
    pub(crate) fn bytes(&self) -> u64 {
        Self::least_bytes(&self.needs)
    }

    /// Returns the memory that suffices to carry columns. `needs` has an element per side, or one for both.
    pub(crate) fn least_bytes(needs: &[ColumnNeeds]) -> u64 {
        let reading = needs.iter().map(|needs| needs.reading_bytes).max().unwrap_or(0);
        WIDE_ROWS_BYTES + WAITING_BYTES_MIN + reading + (1 + WRITTEN_COPIES) * (line_bytes_max(needs) + WRITTEN_BYTES)
    }

    /// Returns the schemas of the columns of the left and of the right rows.
    fn schemas(&self) -> [&SchemaRef; 2] {
        let [left, right] = [&self.needs[0], &self.needs[self.needs.len() - 1]];
        [&left.schema, &right.schema]
    }

    /// Returns the fields of the columns, with the columns of the rows of a line next to each other. `prefixes` has the
    /// prefix of the names for each row of a line.
    fn fields(&self, prefixes: &[&str]) -> Vec<Field> {
        let sides = || prefixes.iter().zip(self.schemas());
        let of_sides = |column| sides().map(move |(prefix, schema)| named(schema.field(column), prefix));
        (0..self.needs[0].schema.fields().len()).flat_map(of_sides).collect()
    }

    /// Reads the columns of lines whose left rows, and right rows if there are any, are `rows`. Returns `None` if the
    /// columns do not fit into `room`.
    fn gather(&self, context: &Context, rows: &[&[u64]], room: &mut Room) -> Result<Option<Gathered>> {
        let lines = rows[0].len();
        if !room.take(context, (rows.len() * lines) as u64 * GATHERED_LINE_BYTES)? {
            return Ok(None);
        }
        let sides: Vec<Vec<&[u64]>> = match self.by_side.len() {
            1 => vec![rows.to_vec()],
            _ => rows.iter().map(|rows| vec![*rows]).collect(),
        };
        let mut by_side = Vec::with_capacity(sides.len());
        for (columns, rows) in self.by_side.iter().zip(sides) {
            let places = rows.into_iter().flatten().map(|&row| columns.place(row)).collect();
            let mut gathering = ColumnGathering::new(places);
            let mut fits = true;
            columns.each_of(context, &gathering.distinct(), &mut |table| {
                fits = room.take(context, table.get_array_memory_size() as u64)?;
                if !fits {
                    return Ok(ControlFlow::Break(()));
                }
                gathering.push(table);
                Ok(ControlFlow::Continue(()))
            })?;
            if !fits {
                return Ok(None);
            }
            by_side.push(gathering.finish());
        }
        Ok(Some(Gathered { by_side, lines, rows_per_line: rows.len() }))
    }
}

fn named(field: &Field, prefix: &str) -> Field {
    field.clone().with_name(format!("{prefix}{}", field.name()))
}

/// Returns the maximum bytes of the columns of a line. `needs` has an element per side, or one for both.
fn line_bytes_max(needs: &[ColumnNeeds]) -> u64 {
    [&needs[0], &needs[needs.len() - 1]].iter().map(|needs| needs.row_bytes_max).sum()
}

/// Memory for the columns of some lines.
struct Room {
    /// Maximum bytes; `None` for a single line, which cannot be split.
    limit: Option<u64>,
    memory: Reservation,
}

impl Room {
    /// Reserves more memory. Returns `false` if the limit would be exceeded.
    fn take(&mut self, context: &Context, bytes: u64) -> Result<bool> {
        let bytes = self.memory.bytes() + bytes;
        if self.limit.is_some_and(|limit| bytes > limit) {
            return Ok(false);
        }
        context.grow(&mut self.memory, bytes, PURPOSE)?;
        Ok(true)
    }
}

/// Columns of some lines.
struct Gathered {
    /// The columns of each side. If there is a single element for both sides, the right rows follow the left rows in
    /// it.
    by_side: Vec<GatheredColumns>,
    lines: usize,
    rows_per_line: usize,
}

impl Gathered {
    /// Returns, for each row of a line, its columns and the index of the first line in them.
    fn sides(&self) -> impl Iterator<Item = (&GatheredColumns, usize)> {
        (0..self.rows_per_line).map(|side| match &self.by_side[..] {
            [all] => (all, side * self.lines),
            by_side => (&by_side[side], 0),
        })
    }

    fn line_bytes(&self, line: usize) -> u64 {
        self.sides().map(|(columns, first)| columns.bytes_of(first + line)).sum()
    }

    /// Returns the columns of some lines, with the columns of the rows of a line next to each other.
    fn columns(&self, schemas: [&SchemaRef; 2], lines: Range<usize>) -> Result<Vec<ArrayRef>> {
        let table = |((columns, first), schema): ((&GatheredColumns, usize), &SchemaRef)| {
            columns.table(schema, first + lines.start..first + lines.end)
        };
        let tables = self.sides().zip(schemas).map(table).collect::<Result<Vec<_>>>()?;
        let columns = 0..tables[0].num_columns();
        Ok(columns.flat_map(|column| tables.iter().map(move |table| table.column(column).clone())).collect())
    }
}

/// Writer of a table with lines that name one or two rows each.
pub(crate) struct LineTable<'a> {
    table: TableWriter,
    carrying: Option<Carrying<'a>>,
}

/// Lines that wait for their columns.
struct Carrying<'a> {
    context: Context,
    columns: CarriedColumns<'a>,
    /// The lines without the carried columns. `rows` are their left rows, and their right rows if they name two.
    arrived: Vec<RecordBatch>,
    schema: SchemaRef,
    rows: Vec<Vec<u64>>,
    bytes: u64,
    /// Number of lines that are likely to fit into memory with their columns.
    at_once: usize,
    waiting: Reservation,
    /// Memory of the table, and of the longest lines that were written.
    writing: Reservation,
    written: WrittenLines,
}

/// Lines written so far.
#[derive(Default)]
struct WrittenLines {
    lines: u64,
    bytes: u64,
    /// Maximum bytes that were written at once.
    at_once: u64,
}

impl WrittenLines {
    /// Counts written lines. Returns the bytes that the table holds.
    fn add(&mut self, lines: u64, bytes: u64, columns: u64) -> u64 {
        self.lines += lines;
        self.bytes += bytes;
        self.at_once = self.at_once.max(bytes);
        let metadata = TableWriter::metadata_bytes(self.lines, self.bytes / self.lines) * columns.div_ceil(3);
        WIDE_ROWS_BYTES + WRITTEN_COPIES * self.at_once + metadata
    }
}

impl<'a> LineTable<'a> {
    /// Creates the table. `schema` has the columns that are passed to [`Self::write`]. The carried columns, if any,
    /// follow. `prefixes` has the prefix of their names for each row of a line. If such a name is taken, it gets the
    /// prefix `columns.`. The ids of lines that name two rows are in the first two columns. If the right id is null,
    /// the line names no right row.
    ///
    /// # Errors
    /// If the table cannot be created ([`TableWriter::create`]), or memory does not suffice for the columns.
    pub(crate) fn create(
        context: &Context,
        target: &Target,
        schema: Schema,
        columns: Option<CarriedColumns<'a>>,
        prefixes: &[&str],
    ) -> Result<Self> {
        let Some(columns) = columns else {
            return Ok(Self { table: TableWriter::create_of(context, target, schema)?, carrying: None });
        };
        drop(context.reserve(columns.bytes(), PURPOSE)?);
        let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
        let mut carried = columns.fields(prefixes);
        // A line without a right row has no values on the right.
        if fields[1].is_nullable() {
            carried.iter_mut().skip(1).step_by(2).for_each(|right| right.set_nullable(true));
        }
        add_columns(&mut fields, &Schema::new(carried));
        let all = Schema::new_with_metadata(fields, schema.metadata().clone());
        let carrying = Carrying {
            context: context.clone(),
            columns,
            arrived: Vec::new(),
            schema: Arc::new(schema),
            rows: vec![Vec::new(); prefixes.len()],
            bytes: 0,
            at_once: usize::MAX,
            waiting: context.reserve(0, PURPOSE)?,
            writing: context.reserve(0, PURPOSE)?,
            written: WrittenLines::default(),
        };
        Ok(Self { table: TableWriter::create_of(context, target, all)?, carrying: Some(carrying) })
    }

    /// Adds lines, given by their columns. `rows` are the numbers of their left rows, and of their right rows if they
    /// name two.
    ///
    /// # Errors
    /// If they cannot be written, or the columns of their rows cannot be read.
    pub(crate) fn write(&mut self, columns: Vec<ArrayRef>, rows: &[&[u64]]) -> Result<()> {
        let Self { table, carrying } = self;
        let Some(carrying) = carrying else { return table.write(columns) };
        carrying.add(columns, rows)?;
        if carrying.is_full() { carrying.write_to(table) } else { Ok(()) }
    }

    /// Completes the table. It appears under its name only when it is published.
    ///
    /// # Errors
    /// If the waiting lines cannot be written.
    pub(crate) fn end(self) -> Result<Ended> {
        let Self { mut table, carrying } = self;
        carrying.map_or(Ok(()), |mut carrying| carrying.write_to(&mut table))?;
        table.end()
    }
}

impl Carrying<'_> {
    fn add(&mut self, columns: Vec<ArrayRef>, rows: &[&[u64]]) -> Result<()> {
        // This memory is reserved when the first line arrives: the table may be created before a join, which needs
        // the memory.
        if self.waiting.bytes() == 0 {
            let waiting = (self.context.budget().free() / WAITING_SHARE).clamp(WAITING_BYTES_MIN, WAITING_BYTES_MAX);
            self.context.grow(&mut self.waiting, waiting, PURPOSE)?;
            self.context.grow(&mut self.writing, WIDE_ROWS_BYTES, PURPOSE)?;
        }
        let lines = RecordBatch::try_new(self.schema.clone(), columns).expect("columns are made for the schema");
        // Twice, since waiting lines are concatenated before they are written.
        self.bytes += 2 * (lines.get_array_memory_size() + rows.len() * size_of_val(rows[0])) as u64;
        self.arrived.push(lines);
        self.rows.iter_mut().zip(rows).for_each(|(all, rows)| all.extend_from_slice(rows));
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.waiting.bytes()
    }

    /// Writes the lines that wait, as many at a time as memory holds with their columns.
    fn write_to(&mut self, table: &mut TableWriter) -> Result<()> {
        let arrived = std::mem::take(&mut self.arrived);
        let lines = concat_batches(&self.schema, &arrived).map_err(refused)?;
        drop(arrived);
        let rows: Vec<Vec<u64>> = self.rows.iter_mut().map(std::mem::take).collect();
        let mut from = 0;
        while from < lines.num_rows() {
            self.context.cancel.check()?;
            let count = self.at_once.min(lines.num_rows() - from);
            let some = from..from + count;
            let mut room = self.room(count)?;
            let named: Vec<&[u64]> = rows.iter().map(|rows| &rows[some.clone()]).collect();
            match self.columns.gather(&self.context, &named, &mut room)? {
                None => self.at_once = count / 2,
                Some(gathered) => {
                    let (bytes, limit) = (room.memory.bytes(), room.limit.unwrap_or(room.memory.bytes()));
                    self.write_some(table, &lines.slice(from, count), &gathered)?;
                    // The next lines are assumed to be as long as these.
                    self.at_once = (limit / bytes.div_ceil(count as u64)).max(1) as usize;
                    from += count;
                }
            }
        }
        self.bytes = 0;
        Ok(())
    }

    /// Returns the memory for the columns of `lines` lines. Enough is left for reading the columns and for writing.
    fn room(&self, lines: usize) -> Result<Room> {
        let reading = self.columns.needs.iter().map(|needs| needs.reading_bytes).max().unwrap_or(0);
        let written = self.writing.bytes() - WIDE_ROWS_BYTES;
        let free = (self.context.budget().free() + written).saturating_sub(reading);
        let limit = (lines > 1).then_some(free / (1 + WRITTEN_COPIES));
        Ok(Room { limit, memory: self.context.reserve(0, PURPOSE)? })
    }

    /// Writes lines with their columns.
    fn write_some(&mut self, table: &mut TableWriter, lines: &RecordBatch, gathered: &Gathered) -> Result<()> {
        let mut from = 0;
        while from < lines.num_rows() {
            let (mut end, mut bytes) = (from, 0);
            while end < lines.num_rows() && (end == from || bytes + gathered.line_bytes(end) <= WRITTEN_BYTES) {
                bytes += gathered.line_bytes(end);
                end += 1;
            }
            let mut columns = lines.slice(from, end - from).columns().to_vec();
            let own = columns.len();
            let all = columns.len() + self.rows.len() * self.columns.schemas()[0].fields().len();
            let held = self.written.add((end - from) as u64, bytes, all as u64);
            if held > self.writing.bytes() {
                self.context.grow(&mut self.writing, held, PURPOSE)?;
            }
            columns.extend(gathered.columns(self.columns.schemas(), from..end)?);
            if columns[1].null_count() > 0 {
                let has_none = null_mask(&columns[1]);
                for right in columns[own..].iter_mut().skip(1).step_by(2) {
                    *right = nullif(right, &has_none).map_err(refused)?;
                }
            }
            table.write(columns)?;
            from = end;
        }
        Ok(())
    }
}

/// Returns which values are null.
fn null_mask(column: &ArrayRef) -> BooleanArray {
    (0..column.len()).map(|row| Some(column.is_null(row))).collect()
}

fn refused(error: ArrowError) -> Error {
    Error::input(error.to_string())
}
