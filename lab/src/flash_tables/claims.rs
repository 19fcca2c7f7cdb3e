//! Claims of the paper, for different values of figures that it does not give. The most important of these figures is
//! the time to sense a page. It decides how much is gained by logic inside the chips.

use adjoin::{
    Result,
    flash_model::{Config, Platform},
};

use super::{Bench, Way, head, number, row};
use crate::page_orders::PageOrder;

/// Times to sense a page of current flash, in microseconds, from Z-NAND to the slow pages of TLC.
const SENSING_US: [f64; 6] = [5.0, 20.0, 40.0, 56.5, 77.5, 106.0];
/// Largest fraction of hard decisions that fail in Figure 18.
const FAILING: f64 = 0.3;
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

/// A claim: the largest value in the paper, and the value of the model.
struct Claim {
    what: &'static str,
    paper: f64,
    model: f64,
}

impl Bench<'_> {
    /// Returns a table of all claims, with one column per sensing time.
    pub(super) fn claims(&self) -> Result<String> {
        let title = "Claims over the time of sensing a page, which the paper does not give";
        let times = SENSING_US.map(|time| format!("{time} us"));
        let times: Vec<&str> = times.iter().map(String::as_str).collect();
        let mut text = head(title, &[&["", "paper, at most"][..], &times[..], &["holds at, us"][..]].concat());
        let all: Result<Vec<Vec<Claim>>> =
            SENSING_US.into_iter().map(|time| self.of_all(&self.with("timing.read", time)?)).collect();
        let all = all?;
        for place in 0..all[0].len() {
            let Claim { what, paper, .. } = all[0][place];
            let values: Vec<f64> = all.iter().map(|claims| claims[place].model).collect();
            let cells: Vec<String> = values.iter().copied().map(number).collect();
            let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
            text += &row(&[&[what, &number(paper)][..], &cells[..], &[&*where_it_holds(paper, &values)][..]].concat());
        }
        Ok(text)
    }

    /// Returns the claims for a device.
    fn of_all(&self, config: &Config) -> Result<Vec<Claim>> {
        let of = |way: Way| self.run_on(config, way);
        let best = of(self.small(Platform::NdSearch))?;
        let mut claims = Vec::new();
        let mut claim = |what, paper, model| claims.push(Claim { what, paper, model });
        for (platform, what, paper, by_energy, paper_energy) in [
            (Platform::Cpu, "over cpu", 31.7, "over cpu, energy", 178.7),
            (Platform::Gpu, "over gpu", 14.6, "over gpu, energy", 120.9),
            (Platform::SmartSsd, "over smartssd", 7.44, "over smartssd, energy", 30.06),
            (Platform::DeepStoreChip, "over deepstore-chip", 2.94, "over deepstore-chip, energy", 3.48),
        ] {
            let other = of(self.small(platform))?;
            claim(what, paper, other.seconds / best.seconds);
            claim(by_energy, paper_energy, other.energy.total() / best.energy.total());
        }
        let [alone, shared] = [2, 3].map(|switches| of(self.with_switches(switches)));
        let (alone, shared) = (alone?, shared?);
        claim("dynamic allocating", 2.67, alone.seconds / shared.seconds);
        claim(
            "its pages saved, %",
            73.0,
            100.0 * (1.0 - shared.counts.page_reads as f64 / alone.counts.page_reads as f64),
        );
        claim("speculation", 1.27, shared.seconds / best.seconds);
        let failing = self.run_on(&changed(config, "ecc.hard_fails", FAILING)?, self.small(Platform::NdSearch))?;
        claim("slower where 30 % of hard decisions fail", 1.66, failing.seconds / best.seconds);
        let by_rows = of(Way { layout: PageOrder::Rows, ..self.small(Platform::NdSearch) })?;
        claim("reordering", 1.17, by_rows.seconds / best.seconds);
        let bare = of(self.with_switches(0))?;
        claim("all techniques over Bare", 4.1, bare.seconds / best.seconds);
        Ok(claims)
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

/// Returns the sensing time at which a claim holds. Interpolates between two consecutive times if the model is above
/// the claim at one of them and below it at the other.
fn where_it_holds(claim: f64, values: &[f64]) -> String {
    let crossing =
        values.windows(2).zip(SENSING_US.windows(2)).find(|(two, _)| (two[0] - claim) * (two[1] - claim) <= 0.0);
    match crossing {
        Some((two, times)) if two[0] != two[1] => {
            let share = (claim - two[0]) / (two[1] - two[0]);
            format!("{:.1}", times[0] + share * (times[1] - times[0]))
        }
        Some((_, times)) => format!("{:.1}", times[0]),
        None if values.iter().all(|&value| value > claim) => "more everywhere".to_owned(),
        None => "nowhere".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hold_between_interpolated_times() {
        assert_eq!(where_it_holds(3.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), "30.0");
        assert_eq!(where_it_holds(9.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), "5.0");
        assert_eq!(where_it_holds(10.0, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), "nowhere");
        assert_eq!(where_it_holds(0.5, &[9.0, 4.0, 2.0, 1.0, 1.0, 1.0]), "more everywhere");
    }
}
