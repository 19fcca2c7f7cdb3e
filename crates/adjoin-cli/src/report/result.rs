//! Opens the file of a result, finds its kind, and reads its lines.

use std::path::{Path, PathBuf};

use adjoin::{Context, Error, PairSchema, Result, TableFile, TableFormat};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use serde::Serialize;

use super::table::{column, open, texts_of};

/// Columns of ids in the results of all kinds. A text file does not distinguish ids from numbers.
const ID_COLUMNS: [&str; 6] = ["left_id", "right_id", "id", "kept_id", "cluster", "query"];
/// Columns of values; a result has at most one of them.
const VALUES: [&str; 3] = ["distance", "similarity", "score"];
/// Column of clusters of two sets, and its values for a row of the first and of the second set.
const SIDE: &str = "side";
const SIDES: [&str; 2] = ["left", "right"];
/// Prefix of a carried column if the result itself has a column of that name.
const RENAMED: &str = "columns.";
/// Maximum number of carried columns that a page shows.
const CARRIED_MAX: usize = 16;

/// Kind of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Pairs,
    /// Removed rows, each with the row kept for it.
    Removed,
    Clusters,
    /// Hits of queries, or neighbors of rows.
    Hits,
}

impl Kind {
    /// Pairs are first, since a table with both id columns of pairs has pairs, no matter which other columns it has.
    const ALL: [Self; 4] = [Self::Pairs, Self::Removed, Self::Clusters, Self::Hits];

    /// Returns the columns of the ids on the left and on the right.
    fn id_columns(self) -> [&'static str; 2] {
        match self {
            Self::Pairs => PairSchema::ID_COLUMNS,
            Self::Removed => ["id", "kept_id"],
            Self::Clusters => ["id", "cluster"],
            Self::Hits => ["query", "id"],
        }
    }

    /// Returns the columns of the result itself other than its ids and its value.
    fn further_columns(self) -> &'static [&'static str] {
        match self {
            Self::Pairs | Self::Clusters => &[],
            Self::Removed => &["reason"],
            Self::Hits => &["rank"],
        }
    }

    /// Returns the first two columns of the result.
    fn first_columns(self) -> [&'static str; 2] {
        if self == Self::Hits { ["query", "rank"] } else { self.id_columns() }
    }

    fn of(schema: &Schema) -> Option<Self> {
        let has = |name: &str| schema.index_of(name).is_ok();
        let is_kind = |kind: &Self| kind.id_columns().into_iter().all(has) && (*kind != Self::Hits || has("rank"));
        // A carried column may have a name such as `kept_id`, but it is after the columns of the result itself.
        let is_first = |kind: &Self| {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            names.take(2).eq(kind.first_columns())
        };
        let mut kinds = Self::ALL.into_iter().filter(is_kind);
        kinds.clone().find(is_first).or_else(|| kinds.next())
    }

    /// Returns the names that a column `name` of the rows has in a result, for the left and for the right row.
    fn carried_names(self, name: &str) -> [Option<String>; 2] {
        match self {
            Self::Pairs => ["left", "right"].map(|side| Some(format!("{side}_{name}"))),
            Self::Removed => [Some(name.to_owned()), Some(format!("kept_{name}"))],
            Self::Clusters => [Some(name.to_owned()), None],
            Self::Hits => [None, Some(name.to_owned())],
        }
    }
}

/// A column of the rows that lines carry.
pub(super) struct Carried {
    pub(super) name: String,
    /// Indexes of the column in the table, for the left and the right row.
    places: [Option<usize>; 2],
    pub(super) is_text: bool,
}

/// A line of a result.
pub(super) struct Line {
    pub(super) left: String,
    /// `None` if the line is a removed row without a kept row.
    pub(super) right: Option<String>,
    /// The sets of both rows, 0 or 1.
    pub(super) sets: [usize; 2],
    /// `None` if the result has no values, or if the row was removed because its text is equal.
    pub(super) value: Option<f32>,
}

/// The file of a result.
pub(super) struct ResultFile {
    path: PathBuf,
    table: TableFile,
    pub(super) kind: Kind,
    /// Column of the value; clusters have none.
    value: Option<&'static str>,
    ids: [usize; 2],
    /// The column `side` of clusters of two sets.
    side: Option<usize>,
    pub(super) carried: Vec<Carried>,
}

/// Returns the values of the carried columns of a line, by column and by position of the row in the line.
pub(super) type CarriedValues<'a> = dyn Fn(usize, usize) -> Result<Option<String>> + 'a;

impl ResultFile {
    /// Opens a result of any kind.
    ///
    /// # Errors
    /// If the file cannot be read or is not a result, or memory does not suffice for its header.
    pub(super) fn open(context: &Context, path: &Path) -> Result<Self> {
        let table = open(context, path, &ID_COLUMNS)?;
        let (schema, path) = (table.schema(), path.to_owned());
        if schema.fields().is_empty() {
            // The kind of a JSON file without lines is unknown.
            return Ok(Self {
                path,
                table,
                kind: Kind::Pairs,
                value: Some(VALUES[0]),
                ids: [0; 2],
                side: None,
                carried: Vec::new(),
            });
        }
        let kind = Kind::of(schema).ok_or_else(|| no_result(&path, schema))?;
        let value = VALUES.into_iter().find(|name| schema.index_of(name).is_ok());
        if kind != Kind::Clusters && value.is_none() {
            let at = path.display();
            return Err(Error::input(format!(
                "{at} has no column distance or similarity; name an unchanged result of adjoin"
            )));
        }
        let [left, right] = kind.id_columns();
        let ids = [column(&table, &path, left)?, column(&table, &path, right)?];
        // CSV and JSON lines do not record whether `side` is a column of the result itself or a carried column.
        let is_marked = is_of_two_sets(schema) || !matches!(TableFormat::of(&path), Ok(TableFormat::Parquet));
        let side = schema.index_of(SIDE).ok().filter(|_| kind == Kind::Clusters && is_marked);
        let value = value.filter(|_| kind != Kind::Clusters);
        let carried = carried(kind, value.or(side.map(|_| SIDE)), schema);
        Ok(Self { path, kind, value, ids, side, carried, table })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of the values, such as `distance`; `None` for clusters.
    pub(super) fn value(&self) -> Option<&'static str> {
        self.value
    }

    /// Returns whether larger values are nearer.
    pub(super) fn is_similarity(&self) -> bool {
        self.value.is_some_and(|value| value != "distance")
    }

    /// Returns whether the file records that its rows are of two sets. CSV and JSON lines record it for clusters only.
    pub(super) fn is_marked_of_two_sets(&self) -> bool {
        self.side.is_some() || is_of_two_sets(self.table.schema())
    }

    /// Returns whether lines carry columns of the rows on a side.
    pub(super) fn carries(&self, side: usize) -> bool {
        self.carried.iter().any(|column| column.places[side].is_some())
    }

    /// Returns the columns by which rows are counted in the tables of names too, if the tables have them.
    pub(super) fn counted(&self) -> Vec<&str> {
        let carried = self.carried.iter().filter(|_| self.kind == Kind::Removed);
        carried.map(|column| column.name.as_str()).collect()
    }

    fn is_empty(&self) -> bool {
        self.table.schema().fields().is_empty()
    }

    /// Returns the indexes of the id columns, followed by the index of the column of sides and of values, if any.
    fn columns(&self) -> Result<Vec<usize>> {
        let value = self.value.map(|value| column(&self.table, &self.path, value)).transpose()?;
        Ok(self.ids.into_iter().chain(self.side).chain(value).collect())
    }

    /// Returns the indexes of the id columns, followed by the index of the column of sides, if there is one, and the
    /// indexes of all carried columns.
    fn columns_of_rows(&self) -> Vec<usize> {
        let carried = self.carried.iter().flat_map(|column| column.places).flatten();
        self.ids.into_iter().chain(self.side).chain(carried).collect()
    }

    /// Returns the peak memory, in bytes, for reading the lines and the carried columns.
    pub(super) fn reading_bytes(&self) -> Result<u64> {
        if self.is_empty() {
            return Ok(0);
        }
        let lines = self.table.reading_bytes(&self.columns()?)?;
        if self.carried.is_empty() {
            Ok(lines)
        } else {
            Ok(lines.max(self.table.reading_bytes(&self.columns_of_rows())?))
        }
    }

    /// Returns upper bounds on the number of lines, and on the bytes of all ids as text.
    pub(super) fn size(&self) -> Result<(u64, u64)> {
        if self.is_empty() { Ok((0, 0)) } else { self.table.size(&self.ids) }
    }

    /// Passes the left or the right ids (`column` 0 or 1) to `take`, each with the number of its line and its set. A
    /// missing id is passed as an empty text. This takes less memory than reading whole lines.
    ///
    /// # Errors
    /// If the file cannot be read, memory does not suffice, or `take` fails.
    pub(super) fn each_id(
        &self,
        context: &Context,
        column: usize,
        mut take: impl FnMut(u64, usize, &str),
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let columns: Vec<usize> = std::iter::once(self.ids[column]).chain(self.side).collect();
        self.table.each(context, &columns, |first, batch| {
            let id = texts_of(batch.column(0))?;
            let sets = self.sets(first, batch, 1)?;
            for row in 0..batch.num_rows() {
                take(first + row as u64, sets(row)?[column], &id(row)?);
            }
            Ok(())
        })
    }

    /// Passes each line to `take`.
    ///
    /// # Errors
    /// If the file cannot be read, memory does not suffice, or `take` fails.
    pub(super) fn each(&self, context: &Context, mut take: impl FnMut(Line) -> Result<()>) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.table.each(context, &self.columns()?, |first, batch| {
            let values = self.value.map(|name| self.values(first, batch, name)).transpose()?;
            let (left, right) = (texts_of(batch.column(0))?, texts_of(batch.column(1))?);
            let sets = self.sets(first, batch, 2)?;
            (0..batch.num_rows()).try_for_each(|k| {
                let right = Some(right(k)?).filter(|id| self.kind != Kind::Removed || !id.is_empty());
                take(Line {
                    left: left(k)?,
                    right,
                    sets: sets(k)?,
                    value: values.as_ref().and_then(|values| values[k]),
                })
            })
        })
    }

    /// Passes each line to `take`: its number, its rows as ids and sets, and a function that returns the value of a
    /// carried column for the left or the right row. The function returns `None` if the row has no such column.
    ///
    /// # Errors
    /// If the file cannot be read, memory does not suffice, or `take` fails.
    pub(super) fn each_rows(
        &self,
        context: &Context,
        mut take: impl FnMut(u64, [(usize, &str); 2], &CarriedValues<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.carried.is_empty() {
            return Ok(());
        }
        self.table.each(context, &self.columns_of_rows(), |first, batch| {
            let (left, right) = (texts_of(batch.column(0))?, texts_of(batch.column(1))?);
            let sets = self.sets(first, batch, 2)?;
            // The columns of a batch have the order of `columns_of_rows`.
            let own = self.ids.len() + usize::from(self.side.is_some());
            let columns = batch.columns()[own..].iter().map(|column| texts_of(column)).collect::<Result<Vec<_>>>()?;
            let mut places = 0..;
            let place = |place: &Option<usize>| place.and_then(|_| places.next());
            let places: Vec<Option<usize>> = self.carried.iter().flat_map(|column| &column.places).map(place).collect();
            for k in 0..batch.num_rows() {
                let value = |column: usize, side: usize| places[2 * column + side].map(|at| columns[at](k)).transpose();
                let [set, other_set] = sets(k)?;
                take(first + k as u64, [(set, &left(k)?), (other_set, &right(k)?)], &value)?;
            }
            Ok(())
        })
    }

    /// Returns the sets of the left and of the right row of each line of a batch. The column of sides, if there is one,
    /// is at `place`. The first row of a cluster, whose id names the cluster, is of the first set.
    fn sets<'b>(
        &self,
        first: u64,
        batch: &'b RecordBatch,
        place: usize,
    ) -> Result<impl Fn(usize) -> Result<[usize; 2]> + use<'_, 'b>> {
        let side = self.side.map(|_| texts_of(batch.column(place))).transpose()?;
        Ok(move |row| match &side {
            None => Ok([0, 1]),
            Some(side) => match SIDES.iter().position(|name| side(row).is_ok_and(|side| side == *name)) {
                Some(set) => Ok([set, 0]),
                None => {
                    let (at, row) = (self.path.display(), first + row as u64);
                    Err(Error::input(format!(
                        "{at}: row {row} has neither left nor right in column {SIDE}; write the result again, as .parquet"
                    )))
                }
            },
        })
    }

    fn values(&self, first: u64, batch: &RecordBatch, name: &str) -> Result<Vec<Option<f32>>> {
        let values = batch.column(2); // only clusters have a column of sides, and these have no values
        let floats: Vec<Option<f32>> = match values.data_type() {
            DataType::Float32 => values.as_primitive::<Float32Type>().iter().collect(),
            DataType::Float64 => values.as_primitive::<Float64Type>().iter().map(|x| x.map(|x| x as f32)).collect(),
            DataType::Int64 => values.as_primitive::<Int64Type>().iter().map(|x| x.map(|x| x as f32)).collect(),
            DataType::Null => vec![None; batch.num_rows()],
            _ => Vec::new(),
        };
        // A row that was removed because its text is equal has no value.
        let is_good = |value: &Option<f32>| value.map_or(self.kind == Kind::Removed, f32::is_finite);
        match floats.iter().position(|value| !is_good(value)) {
            None if floats.len() == batch.num_rows() => Ok(floats),
            bad => {
                let (at, row) = (self.path.display(), first + bad.unwrap_or(0) as u64);
                Err(Error::input(format!("{at}: row {row} has no number in column {name}; write the result again")))
            }
        }
    }
}

fn is_of_two_sets(schema: &Schema) -> bool {
    let (key, value) = PairSchema::TWO_SETS;
    schema.metadata().get(key).is_some_and(|sets| sets == value)
}

/// Returns the columns of rows in a result of this kind, in the order of the table. `further` is a column of the result
/// itself: its values, or the sides of clusters.
fn carried(kind: Kind, further: Option<&str>, schema: &Schema) -> Vec<Carried> {
    let own = |name: &str| {
        kind.id_columns().contains(&name)
            || kind.further_columns().contains(&name)
            || further.is_some_and(|own| own == name)
    };
    let place = |name: &str| {
        // If the result itself has a column of this name, the carried column has a prefix.
        let renamed = schema.index_of(&format!("{RENAMED}{name}"));
        renamed.ok().or_else(|| schema.index_of(name).ok().filter(|_| !own(name)))
    };
    let mut carried: Vec<Carried> = Vec::new();
    for field in schema.fields().iter().filter(|field| !own(field.name())) {
        let name = field.name().strip_prefix(RENAMED).unwrap_or(field.name());
        let name = if kind == Kind::Pairs { name.strip_prefix("left_") } else { Some(name) };
        let Some(name) = name.filter(|_| is_shown(field.data_type())) else { continue };
        let names = kind.carried_names(name);
        let places = names.each_ref().map(|name| name.as_deref().and_then(place));
        // If a column must exist for both rows, it counts as carried only if both columns exist.
        let is_whole = names.iter().zip(places).all(|(name, place)| name.is_none() || place.is_some());
        if is_whole && carried.len() < CARRIED_MAX {
            let is_text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
            carried.push(Carried { name: name.to_owned(), places, is_text });
        }
    }
    carried
}

/// Returns whether the page can show values of this type.
fn is_shown(data: &DataType) -> bool {
    !data.is_nested() && !data.is_binary() && *data != DataType::Null
}

/// Returns the error for a table that is not a result, or for a result that has nothing to show.
fn no_result(path: &Path, schema: &Schema) -> Error {
    let at = path.display();
    if schema.index_of("count").is_ok() {
        return Error::input(format!(
            "{at} has counts of neighbors, which a page cannot show; name pairs or another result"
        ));
    }
    Error::input(format!(
        "{at} is not a result that a page can show; name pairs (left_id, right_id, distance or similarity), removed rows (id, \
         kept_id), clusters (id, cluster) or hits (query, rank, id)"
    ))
}
