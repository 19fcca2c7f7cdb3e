//! Finds rows whose texts are near each other.

use adjoin_device::Reservation;
use arrow_array::cast::AsArray;
use arrow_array::{Array, StringArray};
use arrow_schema::DataType;

use super::{COMMAND, Found, RowOrder, SORTING_SHARE, Tables};
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::message::{Argument, message};
use crate::base::report::{CommonStatistics, JoinCounts, RecallStatistics, Stopwatch, TextCounts};
use crate::base::row_numbers::RowSet;
use crate::base::sorter::{SORTER_BYTES_MIN, Sorted};
use crate::base::workers::map_items;
use crate::join::JoinEffort;
use crate::sink::RemovedRows;
use crate::source::{self, Attributes, SourceFile, SourceOptions};
use crate::text::{Compared, GreedyTexts, Record, SET_GROWTH, Scheme, ShingleCounts, ShingleUnit, Shingling};

/// Bytes of the texts that a thread converts to sets at a time, unless a single text is longer.
const PIECE_BYTES: usize = 256 << 10;
/// Memory of the sorters that exist at the same time: for texts that are passed, for texts that are passed again, and for
/// removed rows.
const SORTING_BYTES: u64 = 3 * SORTER_BYTES_MIN;
/// Least size of the set for which memory is planned, in bytes, even if all texts are shorter.
const SET_BYTES_MIN: u64 = 64 << 10;
/// Number of rows that are read at a time to find the longest text, so that this takes little memory.
const ROWS_MEASURED: usize = 16;

/// Texts to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct TextOptions {
    /// Column of the texts.
    pub column: String,
    /// Least Jaccard similarity of two near texts.
    pub min_jaccard: f64,
    /// Fraction of the texts at the threshold to find.
    pub aim: JoinEffort,
    /// Unit of shingles.
    pub unit: ShingleUnit,
    /// Number of units of a shingle. `None` for 3 words or 9 characters.
    pub size: Option<usize>,
    /// Seed of the hash functions.
    pub seed: u64,
}

impl TextOptions {
    /// Default of `min_jaccard`.
    pub const MIN_JACCARD: f64 = 0.8;

    /// Creates the options for a column, with default values.
    pub fn new(column: impl Into<String>) -> Self {
        Self {
            column: column.into(),
            min_jaccard: Self::MIN_JACCARD,
            aim: JoinEffort::Unsaid,
            unit: ShingleUnit::default(),
            size: None,
            seed: 1,
        }
    }
}

/// An open column of texts.
pub(super) struct NearTexts<'a> {
    options: &'a TextOptions,
    shingling: Shingling,
    files: Vec<SourceFile>,
    column: Attributes<'static>,
    longest: Longest,
    /// Longest text and largest set for budgets that errors name. It is an upper bound if memory does not suffice to measure
    /// the texts.
    longest_named: Longest,
}

/// The longest text and the largest set for which memory is planned, in bytes.
#[derive(Clone, Copy)]
struct Longest {
    text_bytes: u64,
    set_bytes: u64,
}

impl Longest {
    const LEAST: Self = Self { text_bytes: 0, set_bytes: SET_BYTES_MIN };

    /// Adds a text with a set of at most `set_bytes` bytes.
    fn add(&mut self, text_bytes: u64, set_bytes: u64) {
        self.text_bytes = self.text_bytes.max(text_bytes);
        self.set_bytes = self.set_bytes.max(set_bytes);
    }
}

/// The sets of all texts, in the requested order.
struct Sets {
    sorted: Sorted,
    sorter_bytes: u64,
    _memory: Reservation,
    counts: ShingleCounts,
    /// Size of the largest set, in bytes.
    set_bytes: u64,
    /// Number of rows without a text.
    empty_rows: u64,
}

impl<'a> NearTexts<'a> {
    pub(super) fn open(
        context: &Context,
        inputs: &[String],
        source: &SourceOptions,
        options: &'a TextOptions,
    ) -> Result<Self> {
        let TextOptions { column: name, min_jaccard, .. } = options;
        if source.vector_column.is_some() {
            let both = message![Argument::Text, " compares texts, not vectors; leave out ", Argument::VectorColumn];
            return Err(Error::option(both));
        }
        if !(*min_jaccard > 0.0 && *min_jaccard <= 1.0) {
            let given = Argument::MinJaccard.with(min_jaccard);
            return Err(Error::option(message![given, " is no similarity; give a number above 0 and at most 1"]));
        }
        let shingling = Shingling::new(options.unit, options.size)?;
        // If memory does not suffice even for opening the column, the error names a budget that also suffices later.
        let context = &context.naming_more(Self::foreseen_bytes(context));
        let files = source::open_tables(context, inputs, source.split.as_deref())?;
        let names = std::slice::from_ref(name);
        let column = Attributes::of_files(context, files.clone(), names, &Argument::Text.into())?;
        match column.schema().field(0).data_type() {
            DataType::Utf8 | DataType::Null => {
                let [longest, longest_named] = [Longest::LEAST; 2];
                let texts = Self { options, shingling, files, column, longest, longest_named };
                let [longest, longest_named] = texts.longest(context)?;
                Ok(Self { longest, longest_named, ..texts })
            }
            other => {
                let at = inputs.join(", ");
                let what = format!("{at}: column {name} is {other}, not texts; give ");
                Err(Error::input(message![what, Argument::Text, " a column of texts"]))
            }
        }
    }

    pub(super) fn files(&self) -> Vec<SourceFile> {
        self.files.clone()
    }

    pub(super) fn rows(&self) -> u64 {
        self.files.last().map_or(0, |file| file.first_row + file.rows)
    }

    /// Returns memory that suffices for the search, for the budgets that errors name.
    pub(super) fn least_bytes(&self, context: &Context) -> u64 {
        self.least_bytes_for(context, self.longest_named)
    }

    fn least_bytes_for(&self, context: &Context, longest: Longest) -> u64 {
        let of_rows = RowSet::memory_bytes(self.rows());
        of_rows + SORTING_BYTES + ShingleCounts::memory_bytes() + self.working_bytes(context, longest)
    }

    /// Returns the memory for reading texts, or for comparing them if this takes more. Sorters leave it free.
    fn working_bytes(&self, context: &Context, longest: Longest) -> u64 {
        let pieces = (PIECE_BYTES as u64).max(context.threads as u64 * longest.text_bytes);
        let reading = self.column.reading_bytes().unwrap_or(0) + SET_GROWTH * pieces;
        reading.max(Self::comparing_bytes(context, longest))
    }

    fn comparing_bytes(context: &Context, longest: Longest) -> u64 {
        let kept = GreedyTexts::kept_bytes_least(longest.set_bytes, context.threads);
        kept + GreedyTexts::batch_bytes(longest.set_bytes)
    }

    /// Returns the memory for all work on texts that are not very long, without the memory for reading them.
    fn foreseen_bytes(context: &Context) -> u64 {
        SORTING_BYTES + ShingleCounts::memory_bytes() + Self::comparing_bytes(context, Longest::LEAST)
    }

    /// Returns the largest possible set of a text, in bytes.
    fn set_bytes_max(&self, text_bytes: u64) -> u64 {
        let shingles = match self.shingling.unit {
            ShingleUnit::Words => text_bytes.div_ceil(2),
            ShingleUnit::Characters => text_bytes,
        };
        shingles * size_of::<u64>() as u64
    }

    /// Returns an upper bound on the longest text and on the largest set, for the work and for the budgets that errors
    /// name. The texts are read for it only if memory is scarce. If it does not suffice for this either, the work does not
    /// consider very long texts.
    ///
    /// # Errors
    /// If the work is cancelled, or a file cannot be read.
    fn longest(&self, context: &Context) -> Result<[Longest; 2]> {
        let (mut most, row_bytes) = (Longest::LEAST, self.column.row_bytes_max());
        most.add(row_bytes, self.set_bytes_max(row_bytes));
        if self.least_bytes_for(context, most) <= context.budget().free() {
            return Ok([most; 2]);
        }
        let mut longest = Longest::LEAST;
        let read: Result<()> = self.column.small_tables(context, ROWS_MEASURED)?.try_for_each(|table| {
            let (_, table) = table?;
            let Some(texts) = table.column(0).as_string_opt::<i32>() else { return Ok(()) };
            for text in texts.iter().flatten() {
                let text_bytes = text.len() as u64;
                // Only long texts can have large sets.
                let may_be_large = self.set_bytes_max(text_bytes) > longest.set_bytes;
                let _memory = context.reserve(if may_be_large { SET_GROWTH * text_bytes } else { 0 }, "a long text")?;
                let shingles = if may_be_large { self.shingling.set_of(text).len() } else { 0 };
                longest.add(text_bytes, (shingles * size_of::<u64>()) as u64);
            }
            Ok(())
        });
        match read {
            Err(error) if error.kind() == ErrorKind::Budget => Ok([longest, most]),
            read => read.map(|()| [longest; 2]),
        }
    }

    /// Determines which rows to remove. The rows in `left_out` are not compared.
    pub(super) fn find(self, tables: &Tables<'_>, left_out: Option<&RowSet>, order: &RowOrder) -> Result<Found> {
        let Self { options, .. } = self;
        let (context, mut watch) = (tables.context, Stopwatch::start());
        let counters_memory = context.reserve(ShingleCounts::memory_bytes(), "counting shingles")?;
        let gone_memory = context.reserve(RowSet::memory_bytes(tables.rows), "rows to remove")?;
        let sets = self.sets(tables, left_out, order)?;
        let building_seconds = watch.lap();
        let aim = options.aim;
        let (recall, patience) = (aim.target(), aim.patience());
        let texts = sets.counts.texts;
        let scheme = Scheme::choose(options.min_jaccard, recall, patience, sets.counts, options.seed)?;
        let batch_bytes = GreedyTexts::batch_bytes(sets.set_bytes);
        let least = GreedyTexts::kept_bytes_min(&scheme, sets.set_bytes, context.threads);
        let (mut by_row, memory) = tables.sorter_beside(sets.sorter_bytes + batch_bytes + least, SORTING_SHARE)?;
        let mut gone = RowSet::new(tables.rows);
        let again_memory = context.reserve(sets.sorter_bytes, "comparing texts")?;
        let batch_memory = context.reserve(batch_bytes, "comparing texts")?;
        let kept_bytes = (context.budget().free().saturating_sub(tables.carrying) / 4 * 3).max(least);
        let kept_memory = context.reserve(kept_bytes, "comparing texts")?;
        context.progress.begin("compare", "texts", texts);
        let search = GreedyTexts {
            context,
            at: &context.temporary(None),
            scheme: &scheme,
            min_jaccard: options.min_jaccard,
            never_removed: order.never_removed,
            set_bytes: sets.set_bytes,
            kept_bytes,
            sorter_bytes: sets.sorter_bytes,
        };
        let compared = search.decide(sets.sorted, |row, kept, similarity| {
            gone.insert(row);
            by_row.push((row, kept), &similarity.to_le_bytes())
        })?;
        drop((kept_memory, batch_memory, again_memory, counters_memory));
        let (mut memory, pairs) = (memory, by_row.finish()?);
        memory.join(gone_memory);
        let spilled = compared.spilled + pairs.spilled();
        let removed = RemovedRows { gone, pairs, _memory: memory };
        let mut common = self.statistics(context, &scheme, [tables.rows, sets.empty_rows]);
        common.io.spill_bytes = Some(spilled);
        common.seconds.build = Some(building_seconds);
        common.seconds.execute = Some(watch.seconds());
        Ok(Found { common, join: counts(&compared), text: Some(self.text_counts(&scheme, &compared)), removed })
    }

    fn statistics(&self, context: &Context, scheme: &Scheme, [rows, empty_rows]: [u64; 2]) -> CommonStatistics {
        let target = self.options.aim.target();
        let facts = scheme.facts();
        let recall = match facts.bands {
            Some(_) => RecallStatistics::promised(target),
            None => RecallStatistics::proved_of_pairs(target),
        };
        let mut common = CommonStatistics {
            rows,
            element: "text".to_owned(),
            metric: "jaccard".to_owned(),
            seed: self.options.seed,
            skipped_rows: empty_rows,
            recall: Some(recall),
            ..context.statistics(COMMAND)
        };
        common.strategy.rule = Some(facts.name);
        common
    }

    fn text_counts(&self, scheme: &Scheme, compared: &Compared) -> TextCounts {
        let facts = scheme.facts();
        TextCounts {
            min_jaccard: self.options.min_jaccard,
            shingles: self.shingling.unit.to_string(),
            shingle_size: self.shingling.size as u64,
            bands: facts.bands.map(|[bands, _]| bands),
            hashes_per_band: facts.bands.map(|[_, rows]| rows),
            promised_recall: facts.recall,
            passes: compared.passes,
        }
    }

    /// Reads all texts, and sorts their sets in the requested order.
    fn sets(&self, tables: &Tables<'_>, left_out: Option<&RowSet>, order: &RowOrder) -> Result<Sets> {
        let context = tables.context;
        context.progress.begin("shingles", "rows", tables.rows);
        let working = self.working_bytes(context, self.longest);
        let (mut sorter, memory) = tables.sorter_beside(working, SORTING_SHARE)?;
        let sorter_bytes = memory.bytes();
        let mut counts = ShingleCounts::new(self.options.min_jaccard);
        let (mut set_bytes, mut empty_rows, mut bytes) = (0, 0, Vec::new());
        for table in self.column.tables(context)? {
            let (first, table) = table?;
            let Some(texts) = table.column(0).as_string_opt::<i32>() else {
                empty_rows +=
                    (first..first + table.num_rows() as u64).filter(|&row| is_compared(left_out, row)).count() as u64;
                continue;
            };
            self.each_set(context, texts, |k, set| {
                let row = first + k as u64;
                if !is_compared(left_out, row) {
                    return Ok(());
                }
                if set.is_empty() {
                    empty_rows += 1;
                    return Ok(());
                }
                counts.add(&set);
                set_bytes = set_bytes.max((set.len() * size_of::<u64>()) as u64);
                let place = order.places.as_deref().map_or(row, |places| places.get(row));
                Record::new(place, row, set).push_to(&mut sorter, &mut bytes)
            })?;
            context.progress.advance(first + table.num_rows() as u64);
        }
        Ok(Sets { sorted: sorter.finish()?, sorter_bytes, _memory: memory, counts, set_bytes, empty_rows })
    }

    /// Passes the set of each text to `take`, with the position of the text. Sets are computed on all threads.
    fn each_set(
        &self,
        context: &Context,
        texts: &StringArray,
        mut take: impl FnMut(usize, Vec<u64>) -> Result<()>,
    ) -> Result<()> {
        let length = |k: usize| if texts.is_null(k) { 0 } else { texts.value(k).len() };
        let mut start = 0;
        while start < texts.len() {
            // Each thread gets one piece at a time, which limits the memory.
            let (mut pieces, mut bytes) = (Vec::new(), 0);
            while start < texts.len() && pieces.len() < context.threads {
                let (mut end, mut piece_bytes) = (start + 1, length(start));
                while end < texts.len() && piece_bytes + length(end) <= PIECE_BYTES / context.threads.max(1) {
                    piece_bytes += length(end);
                    end += 1;
                }
                pieces.push(start..end);
                bytes += piece_bytes;
                start = end;
            }
            let _memory = context.reserve(SET_GROWTH * bytes as u64, "the shingles of texts")?;
            let set = |k| if texts.is_null(k) { Vec::new() } else { self.shingling.set_of(texts.value(k)) };
            let work = |(): &mut (), piece: usize| Ok(pieces[piece].clone().map(set).collect::<Vec<_>>());
            let sets = map_items(context.threads, pieces.len(), &context.cancel, || (), work)?;
            for (piece, sets) in pieces.iter().zip(sets) {
                piece.clone().zip(sets).try_for_each(|(k, set)| take(k, set))?;
            }
        }
        Ok(())
    }
}

fn is_compared(left_out: Option<&RowSet>, row: u64) -> bool {
    left_out.is_none_or(|left_out| !left_out.contains(row))
}

fn counts(compared: &Compared) -> JoinCounts {
    JoinCounts {
        pairs: compared.near_pairs,
        candidate_pairs: compared.pairs,
        verified_pairs: compared.pairs,
        exact_checks: compared.pairs,
        ..JoinCounts::default()
    }
}
