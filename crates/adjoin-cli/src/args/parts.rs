//! Flags of `adjoin plan`, `adjoin plan-build`, `adjoin run-part` and `adjoin merge` as typed.

use std::path::PathBuf;

use adjoin::{KeepRule, Metric, ResultKind};
use clap::builder::NonEmptyStringValueParser as NonEmpty;
use clap::{ArgGroup, Args, ValueHint};

use super::choices::choice;
use super::groups::{
    CacheSize, INPUT, KeptColumns, OUTPUT, RecallMeaning, RecallOptions, Replace, Resources, Seed, StatisticsOutput,
    StoreOptions, TemporaryPlace, Threshold,
};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").args(["eps", "min_similarity"]).required(true))]
#[command(after_help = "Examples:\n  \
    adjoin plan docs.store --min-similarity 0.9 --parts 8 -o docs.plan\n  \
    adjoin plan docs.store --eps 0.4 --recall 0.99 --parts 256 --result clusters --memory 16GB -o docs.plan\n\n\
    Then run each part with `adjoin run-part`, in any order, and unite them with `adjoin merge`.")]
pub(crate) struct Plan {
    /// The store to join with itself, at a path that all machines can read
    #[arg(value_name = "STORE", value_hint = ValueHint::DirPath)]
    pub(crate) store: PathBuf,
    #[command(flatten)]
    pub(crate) threshold: Threshold,
    #[command(flatten)]
    pub(crate) wanted: RecallOptions,
    #[command(flatten)]
    pub(crate) meaning: RecallMeaning,
    /// Number of parts, with about equal work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = OUTPUT)]
    pub(crate) parts: u32,
    /// Result to merge the parts to; parts for pairs suffice for every result, other parts are smaller
    #[arg(long, value_name = "KIND", default_value_t = ResultKind::Pairs, value_parser = choice::<ResultKind>(),
        help_heading = OUTPUT)]
    pub(crate) result: ResultKind,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// File of the plan
    #[arg(short, long, value_name = "PLAN", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) cache: CacheSize,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    adjoin plan-build embeddings/ --id-column name --metric cosine --parts 4 -o docs.plan\n  \
    adjoin plan-build s3://bucket/embeddings --columns text --parts 64 --memory 16GB -o /shared/docs.plan\n\n\
    Then run parts 1 to N with `adjoin run-part`, in any order, after them parts N+1 to 2N, and unite them with \
    `adjoin merge`.")]
pub(crate) struct PlanBuild {
    /// Files, folders or globs, as of `adjoin build`, at paths or URLs that all machines can read
    #[arg(required = true, value_name = "SOURCE", value_parser = NonEmpty::new(), value_hint = ValueHint::AnyPath)]
    pub(crate) sources: Vec<String>,
    /// Number of parts that read rows, and of parts that write buckets: 2N parts in all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = OUTPUT)]
    pub(crate) parts: u32,
    /// File of the plan
    #[arg(short, long, value_name = "PLAN", value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    /// Metric of joins and searches; ip (inner product) is for searches only
    #[arg(long, value_name = "METRIC", default_value_t = Metric::L2, value_parser = choice::<Metric>())]
    pub(crate) metric: Metric,
    #[command(flatten)]
    pub(crate) columns: KeptColumns,
    /// Not supported in parts; refused with the remedy, since `adjoin build` has it
    #[arg(long, value_name = "COLUMN", hide = true)]
    pub(crate) sort_by: Option<String>,
    #[command(flatten)]
    pub(crate) store: StoreOptions,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    for i in $(seq 8); do adjoin run-part docs.plan --part $i/8 -o parts/; done\n  \
    adjoin run-part docs.plan --part $SLURM_ARRAY_TASK_ID/256 -o /shared/parts/ --memory 16GB\n\n\
    A part that was killed can be run again; a part that is done is not run again.")]
pub(crate) struct RunPart {
    /// Plan that `adjoin plan` or `adjoin plan-build` has written
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) plan: PathBuf,
    /// Part to run, and the number of parts, e.g. 3/256
    #[arg(long, value_name = "I/N", value_parser = NonEmpty::new(), help_heading = INPUT)]
    pub(crate) part: String,
    /// The store, if this machine has it at another path than the plan
    #[arg(long, value_name = "STORE", value_hint = ValueHint::DirPath, help_heading = INPUT)]
    pub(crate) store: Option<PathBuf>,
    /// Folder of the results of all parts, created if it is missing
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath, help_heading = OUTPUT)]
    pub(crate) output: PathBuf,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    /// Run the part even if its result exists, and replace existing files
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    adjoin merge docs.plan parts/ -o pairs.parquet\n  \
    adjoin merge docs.plan parts/ --result removed -o removed.parquet\n  \
    adjoin merge build.plan parts/ -o docs.store\n\n\
    Exit code 1 means that the merge finished but recall or memory missed its target; see --stats.")]
pub(crate) struct Merge {
    /// Plan that `adjoin plan` or `adjoin plan-build` has written
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub(crate) plan: PathBuf,
    /// Folder with the results of all parts
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
    /// The store, if this machine has it at another path than the plan
    #[arg(long, value_name = "STORE", value_hint = ValueHint::DirPath, help_heading = INPUT)]
    pub(crate) store: Option<PathBuf>,
    /// Result, as of `adjoin join` [default: the result that was planned for]
    #[arg(long, value_name = "KIND", value_parser = choice::<ResultKind>(), help_heading = OUTPUT)]
    pub(crate) result: Option<ResultKind>,
    /// File of the result: .parquet, .csv or .jsonl, or - for standard output [default: summary only]; for a build, the
    /// folder of the store
    #[arg(short = 'o', long = "output", value_name = "FILE", value_parser = NonEmpty::new(),
        value_hint = ValueHint::FilePath, help_heading = OUTPUT)]
    pub(crate) file: Option<String>,
    /// Columns to add to pairs and removed rows (of both rows) and to clusters, e.g. text,url; the store must keep them
    #[arg(long, value_name = "C,...", value_delimiter = ',', value_parser = NonEmpty::new(), help_heading = OUTPUT)]
    pub(crate) columns: Vec<String>,
    /// With --result removed or kept: remove rows within the threshold of a kept row (greedy), or all but the first of
    /// each cluster (cluster)
    #[arg(long, value_name = "RULE", default_value_t = KeepRule::Greedy, value_parser = choice::<KeepRule>(),
        help_heading = OUTPUT)]
    pub(crate) keep_rule: KeepRule,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
    #[command(flatten)]
    pub(crate) temporary: TemporaryPlace,
    #[command(flatten)]
    pub(crate) resources: Resources,
}
