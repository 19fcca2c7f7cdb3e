//! Flags of `adjoin report` as typed.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{Args, ValueHint};

use super::groups::{INPUT, MemoryOption, OUTPUT, Quiet, Replace};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin report removed.parquet --stats stats.json -o removed.html\n  \
    adjoin report pairs.parquet --names embeddings/ --id-column name -o pairs.html\n  \
    adjoin report leaks.parquet --names test.parquet --with-names train.parquet -o leaks.html")]
pub(crate) struct Report {
    /// Pairs, removed rows, clusters or neighbors of a join, or hits of a search: .parquet, .csv or .jsonl. The page shows
    /// the columns that they carry (--columns of join, dedupe and search)
    #[arg(value_name = "RESULT", value_hint = ValueHint::FilePath)]
    pub(crate) result: PathBuf,
    /// Statistics of the run that wrote RESULT, from its --stats
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = INPUT)]
    pub(crate) stats: Option<PathBuf>,
    /// Table of ids with names or texts, for a RESULT without columns: a .parquet, .csv or .jsonl file, a folder of shards
    /// or a glob; with two sets, of the left rows; with hits, of the queries
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath, help_heading = INPUT)]
    pub(crate) names: Option<String>,
    /// Column of the ids in NAMES [default: `id`, if present, else row numbers]
    #[arg(long, value_name = "C", help_heading = INPUT)]
    pub(crate) id_column: Option<String>,
    /// Column of the texts in NAMES [default: the first text column other than the ids]
    #[arg(long, value_name = "C", help_heading = INPUT)]
    pub(crate) name_column: Option<String>,
    /// With a result of `join --with`, or with hits: the table of the right rows, which may be the same one
    #[arg(long, value_name = "NAMES", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath, help_heading = INPUT, requires = "names")]
    pub(crate) with_names: Option<String>,
    /// Column of the ids in the table of --with-names; default as for --id-column
    #[arg(long, value_name = "C", requires = "with_names", help_heading = INPUT)]
    pub(crate) with_id_column: Option<String>,
    /// Column of the texts in the table of --with-names; default as for --name-column
    #[arg(long, value_name = "C", requires = "with_names", help_heading = INPUT)]
    pub(crate) with_name_column: Option<String>,
    /// File of the page, with any extension, e.g. report.html
    #[arg(short, long, value_name = "FILE.html", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) quiet: Quiet,
    #[command(flatten)]
    pub(crate) limit: MemoryOption,
}
