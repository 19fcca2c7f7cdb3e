//! The figures of NDSearch's evaluation, made again: a table each, the paper's figures beside those of the model.
//!
//! What the paper leaves open is swept: above all how long a page takes to be sensed, which decides what logic inside the chips
//! gains. Figure 21 needs the graphs HCNNG and TOGG, which are not here.

use std::fmt::Write;
use std::path::PathBuf;

use adjoin::context::Context;
use adjoin::error::Result;
use adjoin::flash::Searches;
use adjoin::flash::model::{
    Config, Device, Mapping, Place, Platform, SearchOptions, SearchReport, bandwidth, error_factors, replay, search,
    storage_density,
};
use adjoin::index::Layout;
use adjoin::output::check_free;

use super::trace::Reads;
use super::workload::{check, config, replay_options, search_options, searches};
use super::write_text;
use crate::Outcome;
use crate::args::FlashTables;
use crate::resolve;
use crate::signals::Stopped;

/// Times of sensing a page that flash of today has, in microseconds: Z-NAND to the slow pages of TLC.
const SENSING_US: [f64; 6] = [5.0, 20.0, 40.0, 56.5, 77.5, 106.0];
/// Batches of Figure 19.
const BATCHES: [usize; 6] = [256, 512, 1_024, 2_048, 4_096, 8_192];
/// Shares of hard decisions that fail of Figure 18.
const FAILING: [f64; 4] = [0.01, 0.05, 0.10, 0.30];
/// Share of the vectors that fit in the memory of a processor where a set is larger than that: 24 GB of 500.
const SMALL_MEMORY: f64 = 0.05;
/// Platforms that a trace can run on: those that read from flash.
const JOB_PLATFORMS: [Platform; 5] =
    [Platform::Cpu, Platform::SmartSsd, Platform::DeepStoreChannel, Platform::DeepStoreChip, Platform::NdSearch];
/// Seed of the error rates of planes.
const SEED_OF_ERRORS: u64 = 1;

pub(super) fn tables(arguments: &FlashTables, stopped: &Stopped) -> Result<Outcome> {
    let FlashTables { model, searched, trace, depth, comparisons, output, force, resources } = arguments;
    let context = resolve::context(resources, stopped)?;
    let config = config(model)?;
    if let Some(path) = output {
        check_free(&*context.device, path, *force)?;
    }
    let mut text = String::new();
    if !searched.inputs.is_empty() || trace.is_empty() {
        let searches = searches(&context, searched)?;
        let usual = search_options(searched, Platform::NdSearch, searches.dimensions());
        text = Bench { context: &context, searches: &searches, config, usual }.all()?;
    }
    if !trace.is_empty() {
        text += &jobs(&context, trace, (*depth, *comparisons))?;
    }
    write_text(&context, output.as_deref(), *force, &text)?;
    Ok(Outcome::Done)
}

/// Milliseconds of each trace on each device, by where its vectors are compared.
fn jobs(context: &Context, traces: &[PathBuf], (depth, comparisons): (usize, f64)) -> Result<String> {
    let title = format!(
        "Which device for which job: milliseconds of each trace, {depth} reads under way, each byte compared with \
         {comparisons} elements"
    );
    let names = JOB_PLATFORMS.map(Platform::name);
    let mut text = head(&title, &[&["trace", "device"][..], &names[..], &["fastest"][..]].concat());
    for path in traces {
        for model in Config::presets() {
            let device = Device::new(&Config::preset(model)?)?;
            let mut times = Vec::new();
            for platform in JOB_PLATFORMS {
                context.cancel.check()?;
                let options = replay_options(&device, platform, (depth, comparisons));
                times.push(replay(&device, Reads::open(path)?, &options)?.seconds * 1e3);
            }
            let fastest = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).map_or("", |of| names[of]);
            let trace = path.file_name().unwrap_or_default().to_string_lossy();
            let times: Vec<String> = times.into_iter().map(number).collect();
            let times: Vec<&str> = times.iter().map(String::as_str).collect();
            text += &row(&[&[&*trace, model][..], &times[..], &[fastest][..]].concat());
        }
    }
    Ok(text)
}

/// What the tables are made with.
struct Bench<'a> {
    context: &'a Context,
    searches: &'a Searches,
    config: Config,
    usual: SearchOptions,
}

/// A way to run the searches.
#[derive(Clone, Copy)]
struct Way {
    layout: Layout,
    mapping: Mapping,
    options: SearchOptions,
}

impl Bench<'_> {
    fn all(&self) -> Result<String> {
        let head = format!(
            "# {}: {} vectors of {} elements, {} queries, a Vamana graph, lists of {}\n\nEvery hit of every run below is that \
             of the search in memory.\n",
            self.config.name(),
            self.searches.vertices(),
            self.searches.dimensions(),
            self.searches.queries(),
            self.usual.list,
        );
        let tables: [fn(&Self) -> Result<String>; 11] = [
            Self::locality,
            Self::platforms,
            Self::sensing,
            Self::orders,
            Self::scheduling,
            Self::ablation,
            Self::breakdown,
            Self::errors,
            Self::batches,
            Self::energy,
            Self::power,
        ];
        let parts = tables.into_iter().map(|table| {
            self.context.cancel.check()?;
            table(self)
        });
        Ok(head + &parts.collect::<Result<Vec<String>>>()?.concat())
    }

    /// The best that the platform has.
    fn way(&self, platform: Platform) -> Way {
        let options = SearchOptions { platform, ..self.usual };
        Way { layout: Layout::Degree, mapping: Mapping::MultiPlane, options }
    }

    fn run(&self, way: Way) -> Result<SearchReport> {
        self.run_on(&self.config, way)
    }

    fn run_on(&self, config: &Config, Way { layout, mapping, options }: Way) -> Result<SearchReport> {
        self.context.cancel.check()?;
        let device = Device::new(config)?;
        let laid = self.searches.lay_out(self.context, device.geometry(), (layout, mapping))?;
        let report = search(&device, &laid.layout, &laid, self.searches.queries(), &options)?;
        check(self.searches, &laid, &report, &options)?;
        Ok(report)
    }

    fn with(&self, name: &str, value: f64) -> Result<Config> {
        let mut config = self.config.clone();
        config.set(name, value, "swept")?;
        Ok(config)
    }

    fn locality(&self) -> Result<String> {
        let mut way = Way { layout: Layout::Rows, ..self.way(Platform::NdSearch) };
        way.options.speculating = false;
        let shared = self.run(way)?;
        way.options.allocating = false;
        let alone = self.run(way)?;
        let device = Device::new(&self.config)?;
        let bytes = u64::from(device.geometry().page_bytes) * alone.counts.page_reads;
        let wanted = alone.wanted * u64::from(self.searches.dimensions());
        let mut text = head("Figure 4: pages and LUNs, in the order of the rows", &["", "model", "paper"]);
        text += &row(&["pages read for each distance, a query alone", &number(alone.page_access_ratio()), "high"]);
        text += &row(&["bytes wanted of those read", &number(wanted as f64 / bytes as f64), "low"]);
        text += &row(&["LUNs touched by a batch", &percent(shared.luns_touched), "over 82 %"]);
        Ok(text)
    }

    fn platforms(&self) -> Result<String> {
        let title = "Figures 1, 2 and 13: platforms; of the vectors, 5 % in the memory of processors";
        let mut text =
            head(title, &["platform", "queries/s", "speedup", "busy link", "NDSearch over it", "paper, at most"]);
        let of = |platform: Platform| {
            let mut way = self.way(platform);
            way.options.memory_share = if platform.place() == Place::Host { SMALL_MEMORY } else { 0.0 };
            self.run(way)
        };
        let (cpu, ndsearch) = (of(Platform::Cpu)?, of(Platform::NdSearch)?);
        for platform in Platform::ALL {
            let report = of(platform)?;
            let paper = match platform {
                Platform::Cpu => "31.7",
                Platform::CpuDram => "31.7 / 5.3",
                Platform::Gpu => "14.6",
                Platform::SmartSsd => "7.4",
                Platform::DeepStoreChip => "2.9",
                Platform::DeepStoreChannel | Platform::NdSearch => "",
            };
            let link = report
                .uses
                .iter()
                .find(|of| of.name == "link")
                .map_or(0.0, |of| of.share((report.seconds * 1e12) as u64));
            text += &row(&[
                platform.name(),
                &format!("{:.0}", report.queries_per_second()),
                &number(report.queries_per_second() / cpu.queries_per_second()),
                &percent(link),
                &number(ndsearch.queries_per_second() / report.queries_per_second()),
                paper,
            ]);
        }
        text += "\nWhat is assumed:\n\n";
        Platform::ALL.iter().for_each(|platform| {
            let _ = writeln!(text, "- {}: {}", platform.name(), platform.assumptions());
        });
        Ok(text)
    }

    fn sensing(&self) -> Result<String> {
        let title = "The figure that the paper does not give: how long a page is sensed";
        let mut text =
            head(title, &["tR, us", "ndsearch, queries/s", "over deepstore-chip (2.9)", "over smartssd (7.4)"]);
        let mut gains = Vec::new();
        for sensing in SENSING_US {
            let config = self.with("timing.read", sensing)?;
            let rate = |platform| Ok(self.run_on(&config, self.way(platform))?.queries_per_second());
            let of: Result<Vec<f64>> =
                [Platform::NdSearch, Platform::DeepStoreChip, Platform::SmartSsd].map(rate).into_iter().collect();
            let of = of?;
            gains.push((sensing, of[0] / of[1], of[0] / of[2]));
            text += &row(&[
                &format!("{sensing}"),
                &format!("{:.0}", of[0]),
                &number(of[0] / of[1]),
                &number(of[0] / of[2]),
            ]);
        }
        let reached = |what: &str, claim: f64, gain: fn(&(f64, f64, f64)) -> f64| {
            let crossing = gains.windows(2).find(|two| (gain(&two[0]) - claim) * (gain(&two[1]) - claim) <= 0.0);
            match crossing {
                Some(two) => {
                    let share = (claim - gain(&two[0])) / (gain(&two[1]) - gain(&two[0]));
                    format!(
                        "{what}: the paper's {claim} holds at tR = {:.1} us.\n",
                        two[0].0 + share * (two[1].0 - two[0].0)
                    )
                }
                None => format!("{what}: the paper's {claim} holds nowhere in this range.\n"),
            }
        };
        text += "\n";
        text += &reached("Over DeepStore by chip", 2.9, |gain| gain.1);
        text += &reached("Over SmartSSD", 7.4, |gain| gain.2);
        Ok(text)
    }

    fn orders(&self) -> Result<String> {
        let title = "Figure 14: orders; the paper's saves up to 38 % of the ratio and gains up to 1.17";
        let columns = ["order", "bandwidth", "pages a distance, alone", "saved", "pages a distance, shared", "gain"];
        let mut text = head(title, &columns);
        let device = Device::new(&self.config)?;
        let mut first: Option<(f64, f64)> = None;
        for layout in [Layout::Rows, Layout::Bfs, Layout::Degree, Layout::Grown] {
            let laid = self.searches.lay_out(self.context, device.geometry(), (layout, Mapping::MultiPlane))?;
            let mut way = Way { layout, ..self.way(Platform::NdSearch) };
            way.options.speculating = false;
            let shared = self.run(way)?;
            way.options.allocating = false;
            let alone = self.run(way)?.page_access_ratio();
            let &mut (ratio, seconds) = first.get_or_insert((alone, shared.seconds));
            text += &row(&[
                layout.name(),
                &format!("{:.0}", bandwidth(&laid.layout)),
                &number(alone),
                &percent(1.0 - alone / ratio),
                &number(shared.page_access_ratio()),
                &number(seconds / shared.seconds),
            ]);
        }
        Ok(text)
    }

    fn scheduling(&self) -> Result<String> {
        let title = "Figure 15: dynamic scheduling; the paper saves up to 73 % of the pages and gains up to 2.67, by speculation 1.27";
        let mut text = head(title, &["", "pages read", "of them", "gain", "speculated results used"]);
        let mut first: Option<(u64, f64)> = None;
        for (name, allocating, speculating) in
            [("without", false, false), ("allocating", true, false), ("allocating, speculating", true, true)]
        {
            let mut way = self.way(Platform::NdSearch);
            (way.options.allocating, way.options.speculating) = (allocating, speculating);
            let report = self.run(way)?;
            let &mut (pages, seconds) = first.get_or_insert((report.counts.page_reads, report.seconds));
            text += &row(&[
                name,
                &report.counts.page_reads.to_string(),
                &percent(report.counts.page_reads as f64 / pages as f64),
                &number(seconds / report.seconds),
                &percent(report.speculated as f64 / report.speculations.max(1) as f64),
            ]);
        }
        Ok(text)
    }

    fn ablation(&self) -> Result<String> {
        let title = "Figure 16: ablation; in the paper Bare is over 4 times CPU, and all together 4.1 times Bare";
        let mut text = head(title, &["", "over cpu", "over Bare"]);
        let mut cpu = self.way(Platform::Cpu);
        cpu.options.memory_share = SMALL_MEMORY;
        let cpu = self.run(cpu)?.seconds;
        let mut bare: Option<f64> = None;
        for (number_on, name) in ["Bare", "re", "re, mp", "re, mp, da", "re, mp, da, sp"].into_iter().enumerate() {
            let on = |switch: usize| number_on >= switch;
            let mut way = self.way(Platform::NdSearch);
            way.layout = if on(1) { Layout::Degree } else { Layout::Rows };
            way.mapping = if on(2) { Mapping::MultiPlane } else { Mapping::Linear };
            (way.options.multi_plane, way.options.allocating, way.options.speculating) = (on(2), on(3), on(4));
            let seconds = self.run(way)?.seconds;
            let &mut bare = bare.get_or_insert(seconds);
            text += &row(&[name, &number(cpu / seconds), &number(bare / seconds)]);
        }
        Ok(text)
    }

    fn breakdown(&self) -> Result<String> {
        let report = self.run(self.way(Platform::NdSearch))?;
        let mut text = head("Figure 17: where the time goes, stages one after another", &["stage", "share", "paper"]);
        let stages = report.stages;
        let paper = ["about 6 %", "", "NAND read 24-38 %", "cores and DRAM 20-35 %", "at most 12 %"];
        let names = ["io", "allocating", "searching", "gathering", "sorting"];
        let times = [stages.io, stages.allocating, stages.searching, stages.gathering, stages.sorting];
        let all: u64 = times.iter().sum();
        for ((name, time), paper) in names.into_iter().zip(times).zip(paper) {
            text += &row(&[name, &percent(time as f64 / all as f64), paper]);
        }
        text += "\nResources busy, of all the time:\n\n";
        for of in &report.uses {
            let _ = writeln!(text, "- {}: {}", of.name, percent(of.share((report.seconds * 1e12) as u64)));
        }
        Ok(text)
    }

    fn errors(&self) -> Result<String> {
        let title = "Figure 18: hard decisions that fail; at 30 % the paper is 1.23 to 1.66 times slower";
        let mut text = head(title, &["fail", "slower", "soft decodings"]);
        let mut first = None;
        for share in FAILING {
            let report = self.run_on(&self.with("ecc.hard_fails", share)?, self.way(Platform::NdSearch))?;
            let &mut seconds = first.get_or_insert(report.seconds);
            text +=
                &row(&[&percent(share), &number(report.seconds / seconds), &report.counts.soft_decodes.to_string()]);
        }
        let device = Device::new(&self.config)?;
        let spread = self.config.figures().find(|figure| figure.0 == "ecc.spread").map_or(0.0, |figure| figure.2.value);
        let mut factors = error_factors(device.geometry().planes(), spread, SEED_OF_ERRORS);
        factors.sort_by(f64::total_cmp);
        let at = |share: f64| number(factors[(share * (factors.len() - 1) as f64) as usize]);
        let _ = writeln!(
            text,
            "\nRaw bit errors of planes, relative to the mean: least {}, a quarter below {}, median {}, a quarter above {}, most {}.",
            at(0.0),
            at(0.25),
            at(0.5),
            at(0.75),
            at(1.0)
        );
        Ok(text)
    }

    fn batches(&self) -> Result<String> {
        let title =
            "Figure 19: batches; the paper's gain over DeepStore by chip is small at 256 and falls again from 4096 on";
        let mut text = head(title, &["batch", "ndsearch, queries/s", "deepstore-chip", "gain", "rounds a step"]);
        for batch in BATCHES.into_iter().filter(|&batch| batch <= self.searches.queries() as usize) {
            let of = |platform| {
                let mut way = self.way(platform);
                way.options.batch = batch;
                self.run(way)
            };
            let (ndsearch, chip) = (of(Platform::NdSearch)?, of(Platform::DeepStoreChip)?);
            text += &row(&[
                &batch.to_string(),
                &format!("{:.0}", ndsearch.queries_per_second()),
                &format!("{:.0}", chip.queries_per_second()),
                &number(ndsearch.queries_per_second() / chip.queries_per_second()),
                &number(ndsearch.rounds as f64 / ndsearch.steps as f64),
            ]);
        }
        Ok(text)
    }

    fn energy(&self) -> Result<String> {
        let title = "Figure 20: energy";
        let mut text = head(title, &["platform", "watts", "mJ a query", "NDSearch is better by", "paper, at most"]);
        let device = Device::new(&self.config)?;
        let of = |platform: Platform| -> Result<f64> {
            let mut way = self.way(platform);
            way.options.memory_share = if platform.place() == Place::Host { SMALL_MEMORY } else { 0.0 };
            Ok(self.run(way)?.energy.total() / f64::from(self.searches.queries()))
        };
        let best = of(Platform::NdSearch)?;
        for platform in Platform::ALL {
            let joules = of(platform)?;
            let paper = match platform {
                Platform::Cpu => "178.7",
                Platform::Gpu => "120.9",
                Platform::SmartSsd => "30.1",
                Platform::DeepStoreChip => "3.5",
                _ => "",
            };
            let watts = format!("{:.1}", platform.watts(&device));
            text += &row(&[platform.name(), &watts, &number(joules * 1e3), &number(joules / best), paper]);
        }
        Ok(text)
    }

    fn power(&self) -> Result<String> {
        let device = Device::new(&self.config)?;
        let figure =
            |name: &str| self.config.figures().find(|figure| figure.0 == name).map_or(0.0, |figure| figure.2.value);
        let mut text = head("Table I: power, area, density", &["", "model", "paper"]);
        let density = storage_density(&device, Place::Lun);
        text += &row(&["logic in the flash, W", &number(figure("power.logic")), "18.82"]);
        text += &row(&["with the sorter, W", &number(figure("power.logic") + figure("power.sorter")), "26.32"]);
        text += &row(&["area, mm2", &number(figure("area.logic")), "43.09"]);
        text += &row(&["Gb a mm2", &number(density), "5.64"]);
        text += "\nFigure 21 is left out: it needs the graphs HCNNG and TOGG. HNSW is left out as well: the graph is Vamana's.\n";
        Ok(text)
    }
}

fn head(title: &str, columns: &[&str]) -> String {
    let line = "| --- ".repeat(columns.len());
    format!("\n## {title}\n\n{}{line}|\n", row(columns))
}

fn row(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
