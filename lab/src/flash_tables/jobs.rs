//! The best device for each job. Runs traces on all devices, with vectors compared at several places.

use std::path::{Path, PathBuf};

use adjoin::{
    Context, Result, TraceReads,
    flash_model::{Config, Device, Platform, ReplayOptions, ReplayReport, Spread, replay},
};

use super::{head, number, row};

/// Platforms that can run a trace, since they read from flash.
const PLATFORMS: [Platform; 5] =
    [Platform::Cpu, Platform::SmartSsd, Platform::DeepStoreChannel, Platform::DeepStoreChip, Platform::NdSearch];

/// Options for running traces.
pub(super) struct Jobs<'a> {
    pub(super) context: &'a Context,
    /// Maximum number of reads in flight.
    pub(super) depth: usize,
    /// Number of elements that each byte is compared with.
    pub(super) comparisons: f64,
}

impl Jobs<'_> {
    /// Returns the tables of some traces.
    pub(super) fn tables(&self, traces: &[PathBuf]) -> Result<String> {
        Ok(self.devices(traces)? + &self.spreads(traces)?)
    }

    fn run(&self, trace: &Path, device: &Device, platform: Platform, spread: Spread) -> Result<ReplayReport> {
        self.context.cancel.check()?;
        let usual = ReplayOptions::comparing(device, platform, self.depth, self.comparisons);
        let options = ReplayOptions { spread, ..usual };
        Ok(replay(device, TraceReads::open(trace)?, &options)?)
    }

    /// Returns a table of the milliseconds of each trace on each device, for each place of the comparisons.
    fn devices(&self, traces: &[PathBuf]) -> Result<String> {
        let Self { depth, comparisons, .. } = self;
        let title = format!(
            "Which device for which job: milliseconds of each trace, {depth} reads under way, each byte compared with \
             {comparisons} elements"
        );
        let names = PLATFORMS.map(Platform::name);
        let mut text = head(&title, &[&["trace", "device"][..], &names[..], &["fastest", "least energy"][..]].concat());
        for path in traces {
            for model in Config::presets() {
                let device = Device::new(&Config::preset(model)?)?;
                let run = |platform| self.run(path, &device, platform, Spread::Channels);
                let reports: Vec<ReplayReport> = PLATFORMS.into_iter().map(run).collect::<Result<_>>()?;
                let least = |of: &dyn Fn(&ReplayReport) -> f64| {
                    let least = (0..names.len()).min_by(|&a, &b| of(&reports[a]).total_cmp(&of(&reports[b])));
                    least.map_or("", |place| names[place])
                };
                let best = [least(&|report| report.seconds), least(&|report| report.energy.total())];
                let times: Vec<String> = reports.iter().map(|report| number(report.seconds * 1e3)).collect();
                let times: Vec<&str> = times.iter().map(String::as_str).collect();
                text += &row(&[&[&*name(path), model][..], &times[..], &best[..]].concat());
            }
        }
        Ok(text)
    }

    /// Returns a table of the milliseconds of each trace if LUNs compare, for each mapping of consecutive bytes to
    /// LUNs.
    fn spreads(&self, traces: &[PathBuf]) -> Result<String> {
        let title = "How bytes that follow one another should lie, compared in the LUNs: milliseconds";
        let names = Spread::ALL.map(Spread::name);
        let mut text = head(title, &[&["trace"][..], &names[..], &["best"][..]].concat());
        let device = Device::new(&Config::preset("ndsearch")?)?;
        for path in traces {
            let run = |spread| Ok(self.run(path, &device, Platform::NdSearch, spread)?.seconds);
            let times: Vec<f64> = Spread::ALL.into_iter().map(run).collect::<Result<_>>()?;
            let best = (0..times.len()).min_by(|&a, &b| times[a].total_cmp(&times[b])).map_or("", |place| names[place]);
            let times: Vec<String> = times.into_iter().map(|seconds| number(seconds * 1e3)).collect();
            let times: Vec<&str> = times.iter().map(String::as_str).collect();
            text += &row(&[&[&*name(path)][..], &times[..], &[best][..]].concat());
        }
        Ok(text)
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
