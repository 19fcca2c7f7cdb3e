//! Claims of the paper, for different values of figures that it does not give. The most important of these figures is
//! the time to sense a page. It decides how much is gained by logic inside the chips.

use std::collections::HashMap;

use adjoin::{
    Result,
    flash_model::{Config, Platform},
};

use super::{Bench, SMALL_MEMORY, Way, head, number, percent, row};
use crate::page_orders::PageOrder;

/// Times to sense a page of current flash, in microseconds, from Z-NAND to the slow pages of TLC.
pub(super) const SENSING_US: [f64; 6] = [5.0, 20.0, 40.0, 56.5, 77.5, 106.0];
/// Largest fraction of hard decisions that fail in Figure 18.
const FAILING: f64 = 0.3;
/// Bytes of the paper's largest sets, and the rate of its link in MB/s. A slice of the device gets a part of the set that
/// is as large as its part of the link.
const SET_BYTES: f64 = 500e9;
const SET_LINK: f64 = 12_800.0;
/// Sizes of the set for loads of shards, as fractions of the paper's.
const SET_SHARES: [f64; 6] = [0.001, 0.01, 0.05, 0.2, 0.5, 1.0];
/// Figures that are assumed, with the smallest and the largest value of other devices.
const ASSUMED: [(&str, f64, f64); 9] = [
    ("timing.command", 150.0, 1_200.0),
    ("timing.channel", 200.0, 3_600.0),
    ("controller.request", 1.0, 5.0),
    ("controller.gather", 5.0, 100.0),
    ("controller.dram", 3_200.0, 25_600.0),
    ("ecc.hard", 0.1, 5.0),
    ("link.latency", 5.0, 30.0),
    ("cpu.element", 0.05, 1.0),
    ("cpu.miss", 60.0, 150.0),
];

/// Quantities that a claim compares.
#[derive(Clone, Copy)]
enum Compared {
    /// The time of NDSearch with the time of another platform.
    Over(Platform),
    /// The energy of NDSearch with the energy of another platform.
    Energy(Platform),
    /// The time of NDSearch with the time of another way to run it.
    Gain(Change),
    /// Percentage of the pages that allocating saves.
    PagesSaved,
}

/// Another way to run NDSearch.
#[derive(Clone, Copy)]
enum Change {
    /// Without allocating and speculation, compared with allocating alone.
    Allocating,
    /// Without speculation.
    Speculating,
    /// The paper's order of vertices instead of the order of the rows.
    Reordering,
    /// All techniques.
    All,
    /// More failures of hard decisions.
    Failing,
}

/// A figure that may make a claim true.
#[derive(Clone, Copy)]
enum Cause {
    /// A figure of the device. It is multiplied by each of these factors.
    Figure(&'static str, &'static [f64]),
    /// The size of the set for loads of shards.
    Set,
    /// The number of queries per batch.
    Batch,
}

/// A claim: the largest value in the paper, and the figures that may make it true, in addition to the time of sensing.
struct Claim(&'static str, f64, Compared, &'static [Cause]);

const HOST: Cause = Cause::Figure("link.host", &[0.03, 0.1, 0.3, 1.0, 3.0]);
const FPGA: Cause = Cause::Figure("link.fpga", &[0.3, 0.5, 1.0, 2.0, 4.0]);
const CHANNEL: Cause = Cause::Figure("timing.channel", &[0.3, 0.5, 1.0, 2.0, 6.0]);
const GATHER: Cause = Cause::Figure("controller.gather", &[1.0, 5.0, 25.0]);
const SOFT: Cause = Cause::Figure("ecc.soft", &[0.05, 0.2, 1.0]);

const CLAIMS: [Claim; 18] = [
    Claim("over cpu", 31.7, Compared::Over(Platform::Cpu), &[HOST]),
    Claim("over cpu, energy", 178.7, Compared::Energy(Platform::Cpu), &[HOST]),
    Claim("over cpu-shards", 31.7, Compared::Over(Platform::CpuShards), &[Cause::Set, HOST]),
    Claim("over cpu-shards, energy", 178.7, Compared::Energy(Platform::CpuShards), &[Cause::Set, HOST]),
    Claim("over gpu", 14.6, Compared::Over(Platform::Gpu), &[HOST]),
    Claim("over gpu, energy", 120.9, Compared::Energy(Platform::Gpu), &[HOST]),
    Claim("over gpu-shards", 14.6, Compared::Over(Platform::GpuShards), &[Cause::Set, HOST]),
    Claim("over gpu-shards, energy", 120.9, Compared::Energy(Platform::GpuShards), &[Cause::Set, HOST]),
    Claim("over smartssd", 7.44, Compared::Over(Platform::SmartSsd), &[FPGA]),
    Claim("over smartssd, energy", 30.06, Compared::Energy(Platform::SmartSsd), &[FPGA]),
    Claim("over deepstore-chip", 2.94, Compared::Over(Platform::DeepStoreChip), &[CHANNEL, Cause::Batch]),
    Claim("over deepstore-chip, energy", 3.48, Compared::Energy(Platform::DeepStoreChip), &[CHANNEL, Cause::Batch]),
    Claim("dynamic allocating", 2.67, Compared::Gain(Change::Allocating), &[Cause::Batch]),
    Claim("its pages saved, %", 73.0, Compared::PagesSaved, &[Cause::Batch]),
    Claim("speculation", 1.27, Compared::Gain(Change::Speculating), &[GATHER]),
    Claim("slower where 30 % of hard decisions fail", 1.66, Compared::Gain(Change::Failing), &[SOFT]),
    Claim("reordering", 1.17, Compared::Gain(Change::Reordering), &[Cause::Batch]),
    Claim("all techniques over Bare", 4.1, Compared::Gain(Change::All), &[Cause::Batch]),
];

/// Device and batch size for which a claim is computed.
#[derive(Clone)]
struct Setting {
    config: Config,
    batch: usize,
}

/// Results of a run that claims use.
#[derive(Clone, Copy)]
struct Outcome {
    seconds: f64,
    joules: f64,
    pages: u64,
}

/// Runs that claims have in common.
#[derive(Default)]
struct Outcomes(HashMap<String, Outcome>);

impl Outcomes {
    fn of(&mut self, bench: &Bench<'_>, setting: &Setting, mut way: Way) -> Result<Outcome> {
        way.options.batch = setting.batch;
        let key = format!("{way:?} {}", setting.config.to_toml());
        if let Some(&outcome) = self.0.get(&key) {
            return Ok(outcome);
        }
        let queries = bench.searches.queries().min(setting.batch as u32);
        let report = bench.run_queries(&setting.config, way, queries)?;
        let outcome =
            Outcome { seconds: report.seconds, joules: report.energy.total(), pages: report.counts.page_reads };
        self.0.insert(key, outcome);
        Ok(outcome)
    }
}

impl Bench<'_> {
    /// Returns a table of all claims, with one column per sensing time.
    pub(super) fn claims(&self) -> Result<String> {
        let title = "Claims over the time of sensing a page, which the paper does not give";
        let times: Vec<String> = self.sensing.iter().map(|time| format!("{time} us")).collect();
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        let mut text = head(title, &[&["", "paper, at most"][..], &times[..], &["holds at, us"][..]].concat());
        let mut outcomes = Outcomes::default();
        for claim in &CLAIMS {
            let at = |&time: &f64| self.value(&mut outcomes, claim, &self.setting("timing.read", time)?);
            let values = self.sensing.iter().map(at).collect::<Result<Vec<f64>>>()?;
            let cells: Vec<String> = values.iter().copied().map(number).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            let holds = where_it_holds(claim.1, &self.sensing, &values).words();
            text += &row(&[&[claim.0, &number(claim.1)][..], &cells[..], &[&*holds][..]].concat());
        }
        Ok(text)
    }

    /// Returns a table of the figures that make each claim true, one at a time.
    pub(super) fn causes(&self) -> Result<String> {
        let title = "What makes each claim true: one figure is changed, the others are as above";
        let columns = ["", "paper, at most", "model", "figure", "from", "to", "model from", "model to", "holds at"];
        let mut text = head(title, &columns);
        let mut outcomes = Outcomes::default();
        for claim in &CLAIMS {
            let usual =
                self.value(&mut outcomes, claim, &Setting { config: self.config.clone(), batch: self.usual.batch })?;
            for &cause in claim.3 {
                let (name, settings) = self.settings(cause)?;
                let values = settings.iter().map(|(_, setting)| self.value(&mut outcomes, claim, setting));
                let values = values.collect::<Result<Vec<f64>>>()?;
                let figures: Vec<f64> = settings.iter().map(|(figure, _)| *figure).collect();
                let ends = |of: &[f64]| [of[0], of[of.len() - 1]].map(number);
                let ([from, to], [value_from, value_to]) = (ends(&figures), ends(&values));
                let holds = where_it_holds(claim.1, &figures, &values).words();
                let usual = number(usual);
                text += &row(&[claim.0, &number(claim.1), &usual, &name, &from, &to, &value_from, &value_to, &holds]);
            }
        }
        Ok(text)
    }

    /// Returns the name of a cause with its unit, and the settings that it leads to, each with its figure.
    fn settings(&self, cause: Cause) -> Result<(String, Vec<(f64, Setting)>)> {
        let of_figure = |name: &str, value: f64| Ok((value, self.setting(name, value)?));
        match cause {
            Cause::Figure(name, factors) => {
                let usual = self.figure(name);
                let unit = self.config.figures().find(|figure| figure.0 == name).map_or("", |figure| figure.1);
                let settings = factors.iter().map(|factor| of_figure(name, factor * usual)).collect::<Result<_>>()?;
                Ok((format!("{name}, {unit}"), settings))
            }
            Cause::Set => {
                let of_share = |&share: &f64| Ok((100.0 * share, self.with_set(share)?));
                let settings = SET_SHARES.iter().map(of_share).collect::<Result<_>>()?;
                Ok(("size of the set, % of the paper's".to_owned(), settings))
            }
            Cause::Batch => {
                let of_batch = |batch: usize| (batch as f64, Setting { config: self.config.clone(), batch });
                Ok(("batch".to_owned(), self.batch_sizes().into_iter().map(of_batch).collect()))
            }
        }
    }

    fn setting(&self, name: &str, value: f64) -> Result<Setting> {
        Ok(Setting { config: self.with(name, value)?, batch: self.usual.batch })
    }

    /// Returns a setting that loads the shards of a set with `share` of the paper's bytes.
    fn with_set(&self, share: f64) -> Result<Setting> {
        let bytes = share * SET_BYTES * self.figure("link.host") / SET_LINK;
        self.setting("shards.scale", bytes / self.set_bytes())
    }

    /// Returns the bytes of the vectors and the graph.
    fn set_bytes(&self) -> f64 {
        let (graph, vertices) = (self.searches.graph(), self.searches.vertices());
        let edges: usize = (0..vertices).map(|vertex| graph.neighbors(vertex).len()).sum();
        (u64::from(vertices) * (u64::from(self.searches.vector_bytes()) + 8) + 4 * edges as u64) as f64
    }

    /// Returns the value of a claim for a setting.
    fn value(&self, outcomes: &mut Outcomes, claim: &Claim, setting: &Setting) -> Result<f64> {
        let mut of = |way: Way| outcomes.of(self, setting, way);
        let best = self.small(Platform::NdSearch);
        Ok(match claim.2 {
            Compared::Over(platform) => of(self.small(platform))?.seconds / of(best)?.seconds,
            Compared::Energy(platform) => of(self.small(platform))?.joules / of(best)?.joules,
            Compared::PagesSaved => {
                let [alone, shared] = [2, 3].map(|switches| of(self.with_switches(switches)));
                100.0 * (1.0 - shared?.pages as f64 / alone?.pages as f64)
            }
            Compared::Gain(Change::Allocating) => {
                of(self.with_switches(2))?.seconds / of(self.with_switches(3))?.seconds
            }
            Compared::Gain(Change::Speculating) => of(self.with_switches(3))?.seconds / of(best)?.seconds,
            Compared::Gain(Change::All) => of(self.with_switches(0))?.seconds / of(best)?.seconds,
            Compared::Gain(Change::Reordering) => {
                of(Way { layout: PageOrder::Rows, ..best })?.seconds / of(best)?.seconds
            }
            Compared::Gain(Change::Failing) => {
                let seconds = of(best)?.seconds;
                let config = changed(&setting.config, "ecc.hard_fails", FAILING)?;
                outcomes.of(self, &Setting { config, ..*setting }, best)?.seconds / seconds
            }
        })
    }

    /// Returns a table of the gain over processors that load shards, by the size of the set.
    pub(super) fn shards(&self) -> Result<String> {
        let title =
            "Figure 13, processors that load shards, by the size of the set; the paper's largest sets take 500 GB";
        let columns = [
            "set, % of the paper's",
            "cpu-shards, loading",
            "NDSearch over it",
            "loaded again in each step",
            "gpu-shards, loading",
            "NDSearch over it",
            "loaded again in each step",
        ];
        let mut text = head(title, &columns);
        let own = self.set_bytes() / (SET_BYTES * self.figure("link.host") / SET_LINK);
        let best = self.run(self.small(Platform::NdSearch))?.seconds;
        for share in [own].into_iter().chain(SET_SHARES) {
            let mut cells = vec![number(100.0 * share)];
            for platform in [Platform::CpuShards, Platform::GpuShards] {
                let [once, again] = [0.0, 1.0].map(|reload| {
                    let config = changed(&self.with_set(share)?.config, "shards.reload", reload)?;
                    self.run_on(&config, self.small(platform))
                });
                let (once, again) = (once?, again?);
                cells.push(percent(once.stages.io as f64 / (once.seconds * 1e12)));
                cells.extend([once, again].map(|report| number(report.seconds / best)));
            }
            text += &row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
        text += &format!(
            "\nThe first row is the set itself. In the others, the walks are those of this set, and only the bytes of a shard grow. \
             Memory holds {} of the shards. The paper takes 31.7 times as long with cpu and 14.6 with gpu, and reads for up to 75 %.\n",
            percent(SMALL_MEMORY)
        );
        Ok(text)
    }

    /// Returns a table of how other assumed figures affect the results.
    pub(super) fn assumed(&self) -> Result<String> {
        let title = "NDSearch over other platforms, with the lowest and the highest value known for one figure that the paper omits";
        let mut text = head(title, &["figure", "cpu", "gpu", "smartssd", "deepstore-chip"]);
        for (name, least, most) in ASSUMED {
            let [low, high] = [least, most].map(|value| self.over_platforms(&self.with(name, value)?));
            let (low, high) = (low?, high?);
            let cells: Vec<String> = low.iter().zip(high).map(|(low, high)| format!("{low:.2} to {high:.2}")).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            text += &row(&[&[&*format!("{name}, {least} to {most}")][..], &cells[..]].concat());
        }
        Ok(text)
    }

    fn over_platforms(&self, config: &Config) -> Result<Vec<f64>> {
        let best = self.run_on(config, self.small(Platform::NdSearch))?.seconds;
        let platforms = [Platform::Cpu, Platform::Gpu, Platform::SmartSsd, Platform::DeepStoreChip];
        platforms.into_iter().map(|platform| Ok(self.run_on(config, self.small(platform))?.seconds / best)).collect()
    }
}

fn changed(config: &Config, name: &str, value: f64) -> Result<Config> {
    let mut config = config.clone();
    config.set(name, value, "swept")?;
    Ok(config)
}

/// Where a claim holds.
#[derive(Debug, PartialEq)]
enum Holds {
    At(f64),
    MoreEverywhere,
    Nowhere,
}

impl Holds {
    fn words(&self) -> String {
        match self {
            Self::At(figure) if *figure < 0.1 => format!("{figure:.3}"),
            Self::At(figure) => format!("{figure:.1}"),
            Self::MoreEverywhere => "more everywhere".to_owned(),
            Self::Nowhere => "nowhere".to_owned(),
        }
    }
}

/// Returns the figure at which a claim holds. Interpolates between two consecutive figures if the model is above the
/// claim at one of them and below it at the other.
fn where_it_holds(claim: f64, figures: &[f64], values: &[f64]) -> Holds {
    let crossing =
        values.windows(2).zip(figures.windows(2)).find(|(two, _)| (two[0] - claim) * (two[1] - claim) <= 0.0);
    match crossing {
        Some((two, figures)) if two[0] != two[1] => {
            let share = (claim - two[0]) / (two[1] - two[0]);
            Holds::At(figures[0] + share * (figures[1] - figures[0]))
        }
        Some((_, figures)) => Holds::At(figures[0]),
        None if values.iter().all(|&value| value > claim) => Holds::MoreEverywhere,
        None => Holds::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use adjoin::flash_model::{Device, Place, storage_density};

    use super::*;

    #[test]
    fn the_slice_has_the_density_and_power_of_the_whole_device() {
        let slice = Config::parse(include_str!("../../bench/flash_slice.toml")).unwrap();
        let whole = Config::preset("ndsearch").unwrap();
        let density = |config: &Config| storage_density(&Device::new(config).unwrap(), Place::Lun);
        assert!((density(&slice) - density(&whole)).abs() < 1e-3, "{}", density(&slice));
        let power = |config: &Config| config.figures().find(|figure| figure.0 == "power.logic").unwrap().2.value;
        assert!((32.0 * power(&slice) - power(&whole)).abs() < 0.01);
    }

    #[test]
    fn claims_hold_between_interpolated_times() {
        let holds = |claim, values: &[f64; 6]| where_it_holds(claim, &SENSING_US, values);
        assert_eq!(holds(3.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), Holds::At(30.0));
        assert_eq!(holds(9.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), Holds::At(5.0));
        assert_eq!(holds(10.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), Holds::Nowhere);
        assert_eq!(holds(0.5, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), Holds::MoreEverywhere);
    }
}
