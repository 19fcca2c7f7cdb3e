//! Flags of `adjoin serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};

use super::groups::{Replace, Resources, Seed, SourceColumns, StatisticsOutput};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin serve docs.collection --memory 4GB --key-file key\n  \
                  adjoin serve --shards http://10.0.0.1:7700,http://10.0.0.2:7700")]
pub(crate) struct Serve {
    /// A store, an index or a collection
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath, required_unless_present = "shards")]
    pub(crate) folder: Option<PathBuf>,
    /// Search other servers instead, each with rows of its own, and merge their hits; addresses like http://HOST:PORT
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "folder")]
    pub(crate) shards: Vec<String>,
    /// File whose first line is the key to send to the shards; by default the variable ADJOIN_SHARD_KEY has the key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) shard_key_file: Option<PathBuf>,
    /// Address and port to listen on; port 0 for any free one, which is printed
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7700")]
    pub(crate) listen: SocketAddr,
    /// File whose first line is the key that clients must send
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
    /// Let other machines search without a key
    #[arg(long, conflicts_with = "key_file")]
    pub(crate) insecure: bool,
    /// Least level of messages on standard error; debug logs every request
    #[arg(long, value_name = "LEVEL", default_value = "info", value_enum, env = "ADJOIN_LOG", hide_env_values = true)]
    pub(crate) log: LogLevel,
    /// Form of these messages; json writes one object per line
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        value_enum,
        env = "ADJOIN_LOG_FORMAT",
        hide_env_values = true
    )]
    pub(crate) log_format: LogForm,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  adjoin bench-serve http://127.0.0.1:7700/v1/search --queries queries.npy --rate 200 --seconds 60"
)]
pub(crate) struct BenchServe {
    /// Address of the search endpoint, e.g. http://127.0.0.1:7700/v1/search
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Queries to send one after the other, repeatedly: any SOURCE that `build` reads
    #[arg(long, required = true, value_name = "SOURCE", value_parser = NonEmptyStringValueParser::new(),
        value_hint = ValueHint::AnyPath)]
    pub(crate) queries: Vec<String>,
    #[command(flatten)]
    pub(crate) columns: SourceColumns,
    /// Other members of each request, a JSON object, e.g. '{"k": 10, "nprobe": 8, "deadline_ms": 500}'
    #[arg(long, value_name = "JSON", default_value = r#"{"k": 10}"#)]
    pub(crate) members: String,
    /// Number of queries per request
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) at_once: usize,
    /// Mean requests per second; one in ten seconds, at random, has three times as many
    #[arg(long, value_name = "R", default_value_t = 100.0)]
    pub(crate) rate: f64,
    /// Duration in seconds
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) seed: Seed,
    /// Most concurrent requests
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) connections: usize,
    /// File whose first line is the key to send
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) statistics: StatisticsOutput,
    #[command(flatten)]
    pub(crate) replace: Replace,
}

/// Form of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    Text,
    Json,
}

/// Least level of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}
