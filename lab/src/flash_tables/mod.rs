//! Reproduces the figures of NDSearch's evaluation. Prints a table for each, with the values of the paper and of the
//! model.
//!
//! Figures that the paper does not give are swept. The most important of these is the time to sense a page, which
//! decides how much is gained by logic inside the chips. Figure 21 is missing, since it needs the graphs HCNNG and
//! TOGG.

mod claims;
mod jobs;

use std::cell::RefCell;
use std::fmt::Write;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

use adjoin::{
    Cancel, Context, Error, GraphKind, GraphOptions, Result, Searches, SourceOptions,
    flash_model::{
        Config, Device, Hit, Mapping, Place, Platform, SearchOptions, SearchReport, bandwidth, error_factors, search,
        storage_density,
    },
    lab::{Edges, ROUNDS_MAX, flash::LaidOut, whole_order},
    open_source,
};

use self::{claims::SENSING_US, jobs::Jobs};
use crate::page_orders::PageOrder;

/// Batch sizes of Figure 19, in eighths of the default size. They are 256 to 8192 if the default is 2048.
const BATCHES: [usize; 6] = [1, 2, 4, 8, 16, 32];
/// Fractions of hard decisions that fail in Figure 18.
const FAILING: [f64; 4] = [0.01, 0.05, 0.10, 0.30];
/// Fraction of the vectors that are in the memory of a processor if the set is larger than memory: 24 GB of 500 GB.
const SMALL_MEMORY: f64 = 0.05;
/// Number of queries for which exact neighbors are computed, to measure the recall of searches.
const RECALL_QUERIES: u32 = 100;
/// Seed of the error rates of planes.
const SEED_OF_ERRORS: u64 = 1;

/// Arguments: files of vectors and queries, and words of the form NAME=VALUE.
struct Asked<'a> {
    sets: &'a [String],
    named: &'a [String],
}

impl<'a> Asked<'a> {
    fn of(arguments: &'a [String]) -> Self {
        let sets = arguments.iter().take_while(|word| !word.contains('=')).count();
        let (sets, named) = arguments.split_at(sets);
        Self { sets, named }
    }

    /// Returns all values given for a name.
    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.named.iter().filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn value<N: FromStr>(&self, name: &str, usual: N) -> Result<N> {
        let Some(text) = self.all(name).next() else { return Ok(usual) };
        text.parse().map_err(|_| Error::option(format!("{name}={text} is no value of that")))
    }

    /// Returns the values of a list that is separated by commas.
    fn list<N: FromStr>(&self, name: &str) -> Result<Vec<N>> {
        let refuse = |text: &str| Error::option(format!("{name}={text} is no value of that"));
        let texts = self.all(name).flat_map(|text| text.split(','));
        texts.map(|text| text.parse().map_err(|_| refuse(text))).collect()
    }

    /// Returns the configuration of the modeled device, which is a preset or a TOML file.
    fn config(&self) -> Result<Config> {
        let name = self.all("model").next().unwrap_or("ndsearch");
        if Config::presets().any(|preset| preset == name) {
            return Ok(Config::preset(name)?);
        }
        let text = std::fs::read_to_string(name).map_err(|error| Error::device(format!("{name}: {error}")))?;
        Ok(Config::parse(&text)?)
    }

    /// Reads the vectors and builds their graph. Also returns the name of the graph.
    fn searches(&self, context: &Context) -> Result<(Searches, &'a str)> {
        let [base, queries] = self.sets else { return Err(Error::option("give vectors and queries, or trace=FILE")) };
        let open = |name: &String| open_source(context, std::slice::from_ref(name), &SourceOptions::default());
        let usual = GraphOptions::default();
        let degree = self.value("degree", 32)?;
        let options = GraphOptions { degree, build_list: usual.build_list.max(degree), ..usual };
        let graph = self.all("graph").next().unwrap_or("vamana");
        let kind = if graph == "hnsw" { GraphKind::Hnsw } else { GraphKind::Vamana };
        Ok((Searches::load(context, &*open(base)?, &*open(queries)?, kind, &options)?, graph))
    }

    fn search_options(&self, dimensions: u32) -> Result<SearchOptions> {
        Ok(SearchOptions {
            platform: Platform::NdSearch,
            list: self.value("list", 64)?,
            k: self.value("k", 10)?,
            batch: self.value("batch", 2_048)?,
            dimensions,
            multi_plane: true,
            allocating: true,
            speculating: true,
            memory_share: 0.0,
            spans: 0,
        })
    }
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let asked = Asked::of(arguments);
    let context = Context::default().with_resources(asked.all("memory").next(), None)?;
    let traces: Vec<PathBuf> = asked.all("trace").map(PathBuf::from).collect();
    if !asked.sets.is_empty() || traces.is_empty() {
        let (searches, graph) = asked.searches(&context)?;
        let usual = asked.search_options(searches.dimensions())?;
        let mut bench = Bench::new(&context, &searches, asked.config()?, usual);
        bench.without = asked.list("without")?;
        if asked.all("sensing").next().is_some() {
            bench.sensing = asked.list("sensing")?;
        }
        print!("{}", bench.all(graph)?);
    }
    if !traces.is_empty() {
        let jobs = Jobs {
            context: &context,
            depth: asked.value("depth", 32)?,
            comparisons: asked.value("comparisons", 16.0)?,
        };
        print!("{}", jobs.tables(&traces)?);
    }
    Ok(())
}

/// What the tables are computed from.
struct Bench<'a> {
    context: &'a Context,
    searches: &'a Searches,
    config: Config,
    usual: SearchOptions,
    /// Names of tables to leave out.
    without: Vec<String>,
    /// Times to sense a page, in microseconds, for which claims are computed.
    sensing: Vec<f64>,
    /// Hits of all queries, from a search in memory.
    expected: Vec<Vec<Hit>>,
    /// The graph as it was laid out last.
    last: RefCell<Option<Laid<'a>>>,
}

/// Computes a table.
type Table<'a> = fn(&Bench<'a>) -> Result<String>;

/// A page order and a mapping, and the graph that is laid out by them.
type Laid<'a> = ((PageOrder, Mapping), Rc<LaidOut<'a>>);

/// How searches are run.
#[derive(Debug, Clone, Copy)]
struct Way {
    layout: PageOrder,
    mapping: Mapping,
    options: SearchOptions,
}

impl<'a> Bench<'a> {
    fn new(context: &'a Context, searches: &'a Searches, config: Config, usual: SearchOptions) -> Self {
        let expected = searches.nearest_of_each(usual.list, usual.k);
        Self {
            context,
            searches,
            config,
            usual,
            without: Vec::new(),
            sensing: SENSING_US.to_vec(),
            expected,
            last: RefCell::default(),
        }
    }

    fn all(&self, graph: &str) -> Result<String> {
        let head = format!(
            "# {}: {} vectors of {} elements, {} queries, graph {graph}, lists of {}: recall@{} {}\n\nEvery run below \
             finds the hits of the search in memory. Figures of the paper are from its text.\n",
            self.config.name(),
            self.searches.vertices(),
            self.searches.dimensions(),
            self.searches.queries(),
            self.usual.list,
            self.usual.k,
            percent(self.recall()),
        );
        let tables: [(&str, Table<'a>); 16] = [
            ("link", Self::link),
            ("locality", Self::locality),
            ("platforms", Self::platforms),
            ("in-memory", Self::in_memory),
            ("shards", Self::shards),
            ("claims", Self::claims),
            ("causes", Self::causes),
            ("assumed", Self::assumed),
            ("orders", Self::orders),
            ("scheduling", Self::scheduling),
            ("ablation", Self::ablation),
            ("breakdown", Self::breakdown),
            ("errors", Self::errors),
            ("batches", Self::batches),
            ("energy", Self::energy),
            ("power", Self::power),
        ];
        let parts = tables.into_iter().filter(|(name, _)| !self.without.iter().any(|left_out| left_out == name)).map(
            |(_, table)| {
                self.context.cancel.check()?;
                table(self)
            },
        );
        Ok(head + &parts.collect::<Result<Vec<String>>>()?.concat())
    }

    /// Returns the recall of searches, measured on the first queries.
    fn recall(&self) -> f64 {
        let queries = self.searches.queries().min(RECALL_QUERIES);
        let found = |query: u32| {
            let exact = self.searches.nearest_of_all(query, self.usual.k);
            let farthest = exact.last().map_or(f64::NEG_INFINITY, |hit| hit.distance);
            self.expected[query as usize].iter().filter(|hit| hit.distance <= farthest).count()
        };
        (0..queries).map(found).sum::<usize>() as f64 / (queries as usize * self.usual.k) as f64
    }

    /// Returns the batch sizes that do not exceed the number of queries.
    fn batch_sizes(&self) -> Vec<usize> {
        let sizes = BATCHES.into_iter().map(|eighths| self.usual.batch * eighths / 8);
        sizes.filter(|&size| size > 0 && size <= self.searches.queries() as usize).collect()
    }

    /// Returns the best way to run searches on a platform.
    fn way(&self, platform: Platform) -> Way {
        let options = SearchOptions { platform, ..self.usual };
        Way { layout: PageOrder::Degree, mapping: Mapping::MultiPlane, options }
    }

    fn run(&self, way: Way) -> Result<SearchReport> {
        self.run_on(&self.config, way)
    }

    /// Runs one batch of the default size.
    fn run_on(&self, config: &Config, way: Way) -> Result<SearchReport> {
        let queries = self.searches.queries().min(self.usual.batch as u32);
        self.run_queries(config, way, queries)
    }

    fn run_queries(&self, config: &Config, way: Way, queries: u32) -> Result<SearchReport> {
        self.context.cancel.check()?;
        let device = Device::new(config)?;
        let laid = self.laid_out(&device, way.layout, way.mapping)?;
        let report = search(&device, &laid.layout, &*laid, queries, &way.options)?;
        laid.check(&report, &self.expected);
        Ok(report)
    }

    fn laid_out(&self, device: &Device, order: PageOrder, mapping: Mapping) -> Result<Rc<LaidOut<'a>>> {
        if let Some((_, laid)) = self.last.borrow().as_ref().filter(|(of, _)| *of == (order, mapping)) {
            return Ok(laid.clone());
        }
        self.last.take();
        let (searches, geometry) = (self.searches, device.geometry());
        let of_window = |cancel: &Cancel, edges: &Edges, room| order.of_window(cancel, edges, None, room, ROUNDS_MAX);
        let places = match order {
            PageOrder::Rows => (0..searches.vertices()).collect(),
            _ => whole_order(self.context, searches.graph(), searches.vectors_of_page(geometry), of_window)?,
        };
        let laid = Rc::new(searches.lay_out_in_order(self.context, geometry, places, mapping)?);
        *self.last.borrow_mut() = Some(((order, mapping), laid.clone()));
        Ok(laid)
    }

    /// Returns the best way to run searches on a platform if the set is larger than its memory.
    fn small(&self, platform: Platform) -> Way {
        let mut way = self.way(platform);
        way.options.memory_share = if platform.place() == Place::Host { SMALL_MEMORY } else { 0.0 };
        way
    }

    fn with(&self, name: &str, value: f64) -> Result<Config> {
        let mut config = self.config.clone();
        config.set(name, value, "swept")?;
        Ok(config)
    }

    /// Returns a table of the fraction of time that processors spend on reads, and of the utilization of their link.
    fn link(&self) -> Result<String> {
        let title = "Figures 1 and 2(a): processors that read; the paper reads for up to 75 % of the time, its link is busy to \
                     83 % from a batch of 1024 on (that share is its rate here: 100 % busy is 83 % of PCIe)";
        let mut text = head(title, &["batch", "reading, of the time", "busy link", "queries/s"]);
        for batch in self.batch_sizes() {
            let of = |platform: Platform| {
                let mut way = self.small(platform);
                way.options.batch = batch;
                self.run_queries(&self.config, way, self.searches.queries())
            };
            let (reading, in_memory) = (of(Platform::Cpu)?, of(Platform::CpuDram)?);
            text += &row(&[
                &batch.to_string(),
                &percent(1.0 - in_memory.seconds / reading.seconds),
                &percent(busy(&reading, "link")),
                &format!("{:.0}", reading.queries_per_second()),
            ]);
        }
        text += &self.roofline()?;
        Ok(text)
    }

    /// Returns a table of the maximum throughput at each level of the device.
    fn roofline(&self) -> Result<String> {
        let device = Device::new(&self.config)?;
        let (figure, geometry) = (|name: &str| self.figure(name), device.geometry());
        let channels = f64::from(geometry.channels) * figure("timing.channel") / 1e3;
        let buffers = geometry.planes() as f64 * f64::from(geometry.page_bytes) / figure("timing.read") / 1e3;
        Ok(format!(
            "\nFigure 2(b), the roofs in GB/s: link of the host {:.1}, channels {channels:.1}, page buffers {buffers:.1} at {} \
             us a page.\n",
            figure("link.host") / 1e3,
            figure("timing.read"),
        ))
    }

    fn figure(&self, name: &str) -> f64 {
        self.config.figures().find(|figure| figure.0 == name).map_or(f64::NAN, |figure| figure.2.value)
    }

    fn locality(&self) -> Result<String> {
        let mut way = Way { layout: PageOrder::Rows, ..self.way(Platform::NdSearch) };
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
        let title = "Figure 13: platforms; of the vectors, 5 % in the memory of processors";
        let columns = ["platform", "queries/s", "speedup", "busy link", "NDSearch over it", "paper, at most"];
        let mut text = head(title, &columns);
        let (cpu, ndsearch) = (self.run(self.small(Platform::Cpu))?, self.run(self.small(Platform::NdSearch))?);
        for platform in Platform::ALL {
            let report = self.run(self.small(platform))?;
            let paper = match platform {
                Platform::Cpu => "31.7",
                Platform::CpuDram => "31.7 / 5.3",
                Platform::CpuShards => "31.7",
                Platform::Gpu | Platform::GpuShards => "14.6",
                Platform::SmartSsd => "7.4",
                Platform::DeepStoreChip => "2.9",
                Platform::DeepStoreChannel | Platform::NdSearch => "",
            };
            text += &row(&[
                platform.name(),
                &format!("{:.0}", report.queries_per_second()),
                &number(report.queries_per_second() / cpu.queries_per_second()),
                &percent(busy(&report, "link")),
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

    /// Returns a table for sets that fit in memory, such as the paper's glove-100 and fashion-mnist.
    fn in_memory(&self) -> Result<String> {
        let title = "Figure 13, sets that fit in the memory of processors";
        let mut text = head(title, &["platform", "queries/s", "NDSearch over it", "paper, at most"]);
        let ndsearch = self.run(self.small(Platform::NdSearch))?;
        for (platform, paper) in [(Platform::Cpu, "5.06"), (Platform::Gpu, "2.12")] {
            let mut way = self.way(platform);
            way.options.memory_share = 1.0;
            let rate = self.run(way)?.queries_per_second();
            text +=
                &row(&[platform.name(), &format!("{rate:.0}"), &number(ndsearch.queries_per_second() / rate), paper]);
        }
        Ok(text)
    }

    fn orders(&self) -> Result<String> {
        let title = "Figure 14: orders; the paper's saves up to 38 % of the ratio and gains up to 1.17";
        let columns = ["order", "bandwidth", "pages a distance, alone", "saved", "pages a distance, shared", "gain"];
        let mut text = head(title, &columns);
        let device = Device::new(&self.config)?;
        let mut first: Option<(f64, f64)> = None;
        for layout in [PageOrder::Rows, PageOrder::Bfs, PageOrder::Degree, PageOrder::Grown] {
            let laid = self.laid_out(&device, layout, Mapping::MultiPlane)?;
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
        let mut text = head(title, &["", "pages read", "of the first", "gain", "speculated results used"]);
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
        let cpu = self.run(self.small(Platform::Cpu))?.seconds;
        let mut bare: Option<f64> = None;
        for (number_on, name) in ["Bare", "re", "re, mp", "re, mp, da", "re, mp, da, sp"].into_iter().enumerate() {
            let seconds = self.run(self.with_switches(number_on))?.seconds;
            let &mut bare = bare.get_or_insert(seconds);
            text += &row(&[name, &number(cpu / seconds), &number(bare / seconds)]);
        }
        Ok(text)
    }

    /// Returns the way to run NDSearch with the first `number_on` of its techniques. They are reordering, multi-plane
    /// mapping, dynamic allocating and speculation.
    fn with_switches(&self, number_on: usize) -> Way {
        let on = |switch: usize| number_on >= switch;
        let mut way = self.way(Platform::NdSearch);
        way.layout = if on(1) { PageOrder::Degree } else { PageOrder::Rows };
        way.mapping = if on(2) { Mapping::MultiPlane } else { Mapping::Linear };
        (way.options.multi_plane, way.options.allocating, way.options.speculating) = (on(2), on(3), on(4));
        way
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
        let mut factors = error_factors(device.geometry().planes(), self.figure("ecc.spread"), SEED_OF_ERRORS);
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
        for batch in self.batch_sizes() {
            let of = |platform| {
                let mut way = self.way(platform);
                way.options.batch = batch;
                self.run_queries(&self.config, way, self.searches.queries())
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
            let report = self.run(self.small(platform))?;
            Ok(report.energy.total() / report.hits.len() as f64)
        };
        let best = of(Platform::NdSearch)?;
        for platform in Platform::ALL {
            let joules = of(platform)?;
            let paper = match platform {
                Platform::Cpu | Platform::CpuShards => "178.7",
                Platform::Gpu | Platform::GpuShards => "120.9",
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
        let figure = |name: &str| self.figure(name);
        let mut text = head("Table I: power, area, density", &["", "model", "paper"]);
        let density = storage_density(&device, Place::Lun);
        text += &row(&["logic in the flash, W", &number(figure("power.logic")), "18.82"]);
        text += &row(&["with the sorter, W", &number(figure("power.logic") + figure("power.sorter")), "26.32"]);
        text += &row(&["area, mm2", &number(figure("area.logic")), "43.09"]);
        text += &row(&["Gb a mm2", &number(density), "5.64"]);
        text += "\nFigure 21 is left out: it needs the graphs HCNNG and TOGG.\n";
        Ok(text)
    }
}

/// Returns the fraction of time for which resources of a kind were busy.
fn busy(report: &SearchReport, name: &str) -> f64 {
    let elapsed = (report.seconds * 1e12) as u64;
    report.uses.iter().find(|of| of.name == name).map_or(0.0, |of| of.share(elapsed))
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
