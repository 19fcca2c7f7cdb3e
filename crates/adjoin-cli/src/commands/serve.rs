use std::path::Path;

use adjoin::{Cancel, Error, Result, Target, VectorSource, format_number};
use adjoin_server::{
    Level, LoadLatency, LoadOptions, LoadReport, LogFormat, ServedData, ServerOptions, ShardOptions, load,
};
use serde_json::{Map, Value, json};

use super::memory::{memory_verdict, print_memory};
use crate::Outcome;
use crate::args::{BenchServe, LogForm, LogLevel, Serve};
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

/// Environment variable with the key to send to shards.
const SHARD_KEY: &str = "ADJOIN_SHARD_KEY";
/// Maximum number of distinct queries. If more are sent, the queries repeat.
const QUERIES_MAX: usize = 10_000;

/// Serves until a signal arrives, then answers the accepted requests. This is the regular end of a server.
pub(crate) fn serve(arguments: &Serve, stopped: &Stopped) -> Result<Outcome> {
    let Serve { listen, insecure, log, resources, .. } = arguments;
    let key = arguments.key_file.as_deref().map(key_of).transpose()?;
    let level = match log {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log_format = match arguments.log_format {
        LogForm::Text => LogFormat::Text,
        LogForm::Json => LogFormat::Json,
    };
    let (data, listen, insecure) = (data_of(arguments)?, *listen, *insecure);
    let options = ServerOptions { data, listen, key, insecure, level, log_format };
    let mut context = resolve::context(resources, stopped)?;
    context.cancel = Cancel::default(); // a signal ends the server, not the running searches
    adjoin_server::serve(&context, &options, &stopped.cancel, |address| print(&format!("http://{address}\n")))?;
    let memory = context.memory();
    // The summary is a line of text, so it is not printed among JSON lines.
    if !resources.quiet.quiet && log_format == LogFormat::Text {
        print_memory(&memory);
    }
    Ok(memory_verdict(&memory))
}

/// Returns the folder or the shards to serve.
fn data_of(arguments: &Serve) -> Result<ServedData> {
    let Serve { folder, shards, shard_key_file, .. } = arguments;
    if let Some(folder) = folder {
        // The parser does not check this, since FOLDER and --shards exclude each other.
        if shard_key_file.is_some() {
            return Err(Error::option("--shard-key-file is for shards; give --shards, or leave it out"));
        }
        return Ok(ServedData::Folder(folder.clone()));
    }
    let key = match shard_key_file {
        Some(file) => Some(key_of(file)?),
        None => std::env::var(SHARD_KEY).ok().filter(|key| !key.is_empty()),
    };
    Ok(ServedData::Shards(ShardOptions { urls: shards.clone(), key }))
}

/// Returns the key on the first line of a file.
fn key_of(file: &Path) -> Result<String> {
    let at = file.display();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::input(format!("{at}: the key cannot be read: {error}")).caused_by(error))?;
    let key = text.lines().next().unwrap_or_default().trim_end();
    // Other characters may not pass through a header unchanged; for example, blanks at its ends are removed.
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::option(format!(
            "{at}: its first line is not a key; write visible ASCII characters without blanks, such as the output of \
             `openssl rand -hex 24`"
        )));
    }
    Ok(key.to_owned())
}

pub(crate) fn bench_serve(arguments: &BenchServe, stopped: &Stopped) -> Result<Outcome> {
    let mut context = resolve::own_context();
    context.cancel = stopped.cancel.clone();
    let stats = arguments.statistics.stats.as_deref();
    if let Some(stats) = stats {
        Target::check_free(&*context.device, stats, arguments.replace.force)?;
    }
    let source = resolve::source(&context, &arguments.queries, &arguments.columns)?;
    let bodies = bodies(&*source, members_of(&arguments.members)?, arguments.at_once)?;
    let key = arguments.key_file.as_deref().map(key_of).transpose()?;
    let BenchServe { url, rate, seconds, seed, connections, .. } = arguments;
    let options = LoadOptions {
        url: url.clone(),
        key,
        rate: *rate,
        seconds: *seconds,
        seed: seed.seed,
        connections: *connections,
    };
    let report = load(&options, &bodies, &stopped.cancel)?;
    if let Some(stats) = stats {
        let written = serde_json::to_vec_pretty(&report).map_err(std::io::Error::from);
        let written = written.and_then(|text| std::fs::write(stats, text));
        written.map_err(|error| Error::device(format!("{}: {error}", stats.display())).caused_by(error))?;
    }
    print(&told(&report))?;
    // An interrupted run prints its measurements, and then still fails.
    stopped.cancel.check()?;
    // Single failures are part of the measurement. If all requests fail, the address or the members are wrong.
    if let Some(failure) = report.failure.as_ref().filter(|_| report.failed == report.requests) {
        let failed = format_number(report.failed);
        return Err(Error::input(format!(
            "all {failed} requests failed, the first with {failure}; send one with curl to see why"
        )));
    }
    Ok(Outcome::Done)
}

/// Parses the members that each request has in addition to its queries.
fn members_of(text: &str) -> Result<Map<String, Value>> {
    let wrong = |error| Error::option(format!("--members {text}: {error}; give an object such as {{\"k\": 10}}"));
    serde_json::from_str(text).map_err(wrong)
}

/// Returns the bodies of requests with the queries of a source; each body has `at_once` queries.
fn bodies(source: &dyn VectorSource, members: Map<String, Value>, at_once: usize) -> Result<Vec<Vec<u8>>> {
    let vectors = source.info().vectors;
    let (mut queries, mut scan) = (Vec::new(), source.scan(1 << 20)?);
    while let Some(batch) = scan.next_batch()?.filter(|_| queries.len() < QUERIES_MAX) {
        let numbers = |stored: &[u8]| -> Vec<f64> { vectors.element.values(stored).collect() };
        let left = QUERIES_MAX - queries.len();
        queries.extend(batch.bytes.chunks_exact(vectors.bytes()).take(left).map(numbers));
    }
    let body = |queries: &[Vec<f64>]| {
        let mut members = members.clone();
        members.insert("queries".to_owned(), json!(queries));
        Value::Object(members).to_string().into_bytes()
    };
    Ok(queries.chunks(at_once.max(1)).map(body).collect())
}

/// Formats the figures, one per line.
fn told(report: &LoadReport) -> String {
    let LoadReport { requests, answered, refused, late, failed, .. } = *report;
    let [requests, answered, refused, late, failed] = [requests, answered, refused, late, failed].map(format_number);
    let mut text = format!(
        "requests: {requests} in {:.1} s; {answered} answered ({:.1} a second), {refused} refused, {late} late, {failed} failed\n",
        report.seconds, report.answered_per_second
    );
    let times = [("answers", &report.latency_ms), ("refusals", &report.refusal_ms)];
    for (what, latency) in times.iter().filter_map(|(what, latency)| Some((what, latency.as_ref()?))) {
        let LoadLatency { mean, p50, p95, p99, max } = latency;
        text += &format!("{what}, ms: mean {mean:.2}, p50 {p50:.2}, p95 {p95:.2}, p99 {p99:.2}, max {max:.2}\n");
    }
    if let Some(failure) = &report.failure {
        text += &format!("the first failure: {failure}\n");
    }
    text + &format!("sent at most {:.2} ms after the intended moment\n", report.sent_late_ms_max)
}
