//! Workloads of a modeled device: a trace, or searches of a graph.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Choice, Context, Error, GraphOptions, Result, Searches, SourceOptions, TraceReads, VectorSource,
    flash_model::{
        Config, Counts, Device, Energy, Mapping, Platform, ReplayOptions, ReplayReport, SearchOptions, SearchReport,
        Span, Use, bandwidth, replay, search,
    },
    open_source,
};
use serde_json::{Value, json};

use crate::args::{FlashRun, ModelOptions, PageMapping, SearchedSet};

/// Returns the device that the options describe.
pub(super) fn config(model: &ModelOptions) -> Result<Config> {
    // If a preset has this name, a file of the name is ignored.
    let mut config = match Config::presets().any(|name| name == model.model) {
        true => Config::preset(&model.model)?,
        false => read_config(&model.model)?,
    };
    for set in &model.set {
        let (name, value) = set
            .split_once('=')
            .and_then(|(name, value)| Some((name, value.parse().ok()?)))
            .ok_or_else(|| Error::option(format!("--set {set}: give FIGURE=VALUE, such as timing.read=77.5")))?;
        config.set(name, value, "--set").map_err(|error| Error::option(format!("--set {set}: {error}")))?;
    }
    Ok(config)
}

fn read_config(path: &str) -> Result<Config> {
    let presets = || Config::presets().collect::<Vec<_>>().join(", ");
    if !Path::new(path).exists() {
        let said = format!("--model {path} is neither a file nor a known device; the devices are {}", presets());
        return Err(Error::option(said));
    }
    let text = std::fs::read_to_string(path).map_err(|error| Error::device(format!("cannot read {path}: {error}")))?;
    Config::parse(&text).map_err(|error| Error::input(format!("{path}: {error}")))
}

/// Returns the names of all inputs.
pub(super) fn read_by(model: &ModelOptions, searched: &SearchedSet, traces: &[PathBuf]) -> Vec<String> {
    let is_file = |name: &&String| Path::new(name).exists();
    // A preset is not a file, so no output can replace it.
    let model = Some(&model.model).filter(is_file).cloned();
    let traces = traces.iter().map(|path| path.display().to_string());
    searched.inputs.iter().chain(&searched.queries).cloned().chain(model).chain(traces).collect()
}

/// Reads the vectors and builds their graph.
fn searches(context: &Context, searched: &SearchedSet) -> Result<Searches> {
    if searched.inputs.is_empty() || searched.queries.is_empty() {
        return Err(Error::option("nothing to run; give vectors and --queries, or --trace"));
    }
    let open =
        |names: &[String]| -> Result<Arc<dyn VectorSource>> { open_source(context, names, &SourceOptions::default()) };
    let (base, queries) = (open(&searched.inputs)?, open(&searched.queries)?);
    let usual = GraphOptions::default();
    // With a list shorter than the degree, a vertex could not get all of its neighbors.
    let build_list = usual.build_list.max(searched.degree);
    let options = GraphOptions { degree: searched.degree, build_list, ..usual };
    Searches::load(context, &*base, &*queries, searched.graph, &options)
}

/// Converts the options of a search.
fn search_options(searched: &SearchedSet, platform: Platform, dimensions: u32) -> SearchOptions {
    SearchOptions {
        platform,
        list: searched.list,
        k: searched.k,
        batch: searched.batch,
        dimensions,
        multi_plane: searched.mapping == PageMapping::MultiPlane,
        allocating: !searched.no_allocating,
        speculating: !searched.no_speculating,
        memory_share: searched.memory_share,
        spans: 0,
    }
}

/// Returns the mapping of pages to planes.
fn mapping(searched: &SearchedSet) -> Mapping {
    match searched.mapping {
        PageMapping::MultiPlane => Mapping::MultiPlane,
        PageMapping::Linear => Mapping::Linear,
    }
}

/// A workload.
pub(super) enum Workload {
    Trace(PathBuf),
    Searches(Box<Searches>),
}

impl Workload {
    pub(super) fn of(context: &Context, arguments: &FlashRun) -> Result<Self> {
        match &arguments.trace {
            Some(path) => Ok(Self::Trace(path.clone())),
            None => Ok(Self::Searches(Box::new(searches(context, &arguments.searched)?))),
        }
    }

    /// Runs the workload. Returns its figures, and at most `spans_max` spans.
    pub(super) fn run(
        &self,
        context: &Context,
        arguments: &FlashRun,
        config: &Config,
        spans_max: usize,
    ) -> Result<(Value, Vec<Span>)> {
        let device = Device::new(config)?;
        let usual = if matches!(self, Self::Trace(_)) { Platform::Cpu } else { Platform::NdSearch };
        let platform = arguments.platform.unwrap_or(usual);
        match self {
            Self::Trace(path) => {
                let FlashRun { depth, comparisons, .. } = *arguments;
                let options = ReplayOptions {
                    spans: spans_max,
                    ..ReplayOptions::comparing(&device, platform, depth, comparisons)
                };
                let report = replay(&device, TraceReads::open(path)?.timed(arguments.as_timed), &options)?;
                Ok((of_replay(&device, platform, &report), report.spans))
            }
            Self::Searches(searches) => {
                let searched = &arguments.searched;
                let layout = searched.layout;
                let laid = searches.lay_out(context, device.geometry(), layout, mapping(searched))?;
                let options =
                    SearchOptions { spans: spans_max, ..search_options(searched, platform, searches.dimensions()) };
                let report = search(&device, &laid.layout, &laid, searches.queries(), &options)?;
                // The counts are valid only if the modeled device finds the neighbors that a search in memory finds.
                laid.check(&report, &searches.nearest_of_each(options.list, options.k));
                let mut figures = of_search(&device, platform, &report);
                figures["layout"] = json!({"name": layout.name(), "bandwidth": bandwidth(&laid.layout)});
                Ok((figures, report.spans))
            }
        }
    }
}

fn of_replay(device: &Device, platform: Platform, report: &ReplayReport) -> Value {
    json!({
        "model": device.config().name(),
        "platform": platform.name(),
        "seconds": report.seconds,
        "reads": report.reads,
        "bytes": report.bytes,
        "reads_per_second": report.reads as f64 / report.seconds.max(f64::MIN_POSITIVE),
        "latency_us": {"mean": report.latency_mean * 1e6, "max": report.latency_max * 1e6},
        "counts": of_counts(&report.counts),
        "busy": of_uses(&report.uses, report.seconds),
        "joules": of_energy(&report.energy),
    })
}

fn of_search(device: &Device, platform: Platform, report: &SearchReport) -> Value {
    let stages = report.stages;
    let share = |time: u64| time as f64 / 1e12;
    json!({
        "model": device.config().name(),
        "platform": platform.name(),
        "seconds": report.seconds,
        "queries": report.hits.len(),
        "queries_per_second": report.queries_per_second(),
        "distances": report.wanted,
        "distances_in_memory": report.in_memory,
        "distances_speculated": report.speculated,
        "speculations": report.speculations,
        "page_access_ratio": report.page_access_ratio(),
        "steps": report.steps,
        "rounds": report.rounds,
        "luns_touched": report.luns_touched,
        "stage_seconds": {
            "io": share(stages.io), "allocating": share(stages.allocating), "searching": share(stages.searching),
            "gathering": share(stages.gathering), "sorting": share(stages.sorting),
        },
        "counts": of_counts(&report.counts),
        "busy": of_uses(&report.uses, report.seconds),
        "joules": of_energy(&report.energy),
    })
}

fn of_counts(counts: &Counts) -> Value {
    json!({
        "page_reads": counts.page_reads, "buffer_hits": counts.buffer_hits, "senses": counts.senses,
        "channel_bytes": counts.channel_bytes, "pin_bytes": counts.pin_bytes, "link_bytes": counts.link_bytes,
        "soft_decodes": counts.soft_decodes,
    })
}

/// Returns, for each resource, the fraction of the time during which it was busy.
fn of_uses(uses: &[Use], seconds: f64) -> Value {
    uses.iter().map(|of| (of.name.to_owned(), json!(of.share((seconds * 1e12) as u64)))).collect()
}

fn of_energy(energy: &Energy) -> Value {
    json!({"sensing": energy.sensing, "buses": energy.buses, "running": energy.running, "total": energy.total()})
}
