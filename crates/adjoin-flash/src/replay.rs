//! Estimates how long the reads of a trace would take on a device.

use crate::device::{Device, Geometry, Ps, seconds};
use crate::error::FlashError;
use crate::machine::{Machine, PageAddress, PageRead, Usage};
use crate::place::Place;
use crate::platform::Platform;
use crate::report::{Counts, Energy, Use};
use crate::schedule::{Schedule, TraceRead};
use crate::timeline::{Span, Timeline};

/// How consecutive pages of the address space are assigned to LUNs, planes and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Consecutive pages are on different LUNs, across all channels first. The next round uses the next plane of each
    /// LUN (MQSim's CWDP).
    Channels,
    /// Consecutive pages are on the planes of one LUN, with the same page number, and then on the next LUN (NDSearch,
    /// Figure 11).
    Planes,
    /// A whole block of consecutive pages is on one LUN, the next block on the next LUN.
    Blocks,
}

impl Spread {
    /// All mappings.
    pub const ALL: [Self; 3] = [Self::Channels, Self::Planes, Self::Blocks];

    /// Returns the mapping's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Channels => "channels",
            Self::Planes => "planes",
            Self::Blocks => "blocks",
        }
    }

    /// Returns the address of a page. The page must be on the device.
    fn address(self, geometry: &Geometry, page: u64) -> PageAddress {
        let [luns, planes, pages] = [geometry.luns(), geometry.planes_per_lun, geometry.pages_per_block].map(u64::from);
        // LUN, plane in the LUN, and page in the plane.
        let (lun, plane, of_plane) = match self {
            Self::Channels => (page % luns, page / luns % planes, page / luns / planes),
            Self::Planes => (page / planes % luns, page % planes, page / planes / luns),
            Self::Blocks => {
                let block = page / pages;
                (block % luns, block / luns % planes, block / luns / planes * pages + page % pages)
            }
        };
        let (page, block) = ((of_plane % pages) as u32, (of_plane / pages) as u32);
        PageAddress { lun: lun as u32, page, block, plane: plane as u32 }
    }
}

/// Options of a replay.
#[derive(Debug, Clone, Copy)]
pub struct ReplayOptions {
    /// Maximum number of reads in flight, at least 1.
    pub depth: usize,
    /// Where the bytes are compared. [`Place::Host`] stands for an ordinary disk.
    pub place: Place,
    /// How long one unit at `place` takes to compare a byte of the trace, in picoseconds.
    pub compute_ps_per_byte: f64,
    /// Bytes of results per page, if the page is compared within the device.
    pub result_bytes: u32,
    /// Number of units that compare, if the place is the FPGA or the host.
    pub units: u32,
    /// Power of all active components, in watts.
    pub watts: f64,
    /// How consecutive pages are assigned to the device.
    pub spread: Spread,
    /// Maximum number of timeline spans to keep.
    pub spans: usize,
}

/// Bytes of the results per page that is compared within the device.
const RESULT_BYTES: u32 = 8;
/// Number of elements of a comparison from which the time per byte is derived. It is so large that rounding up to
/// whole cycles does not matter.
const ELEMENTS: u32 = 1 << 20;

impl ReplayOptions {
    /// Creates options for a trace whose bytes are compared at the place of `platform`. `depth` is the maximum number
    /// of reads in flight. `comparisons` is the number of elements that each byte is compared with.
    pub fn comparing(device: &Device, platform: Platform, depth: usize, comparisons: f64) -> Self {
        let per_byte = platform.comparison(device, ELEMENTS) as f64 / f64::from(ELEMENTS);
        Self {
            depth,
            place: platform.place(),
            compute_ps_per_byte: comparisons * per_byte,
            result_bytes: if comparisons > 0.0 { RESULT_BYTES } else { 0 },
            units: platform.units(device),
            watts: platform.watts(device),
            spread: Spread::Channels,
            spans: 0,
        }
    }
}

impl Default for ReplayOptions {
    /// Returns options for reads from an ordinary disk, without comparisons.
    fn default() -> Self {
        Self {
            depth: 32,
            place: Place::Host,
            compute_ps_per_byte: 0.0,
            result_bytes: 0,
            units: 1,
            watts: 0.0,
            spread: Spread::Channels,
            spans: 0,
        }
    }
}

/// Result of a replay.
#[derive(Debug, Clone)]
pub struct ReplayReport {
    /// Seconds from the start of the first read to the end of the last one.
    pub seconds: f64,
    /// Number of reads of the trace.
    pub reads: u64,
    /// Number of bytes that these reads asked for.
    pub bytes: u64,
    /// Mean latency of a read, in seconds.
    pub latency_mean: f64,
    /// Maximum latency of a read, in seconds.
    pub latency_max: f64,
    /// Counts of the device's operations.
    pub counts: Counts,
    /// Busy times of resources.
    pub uses: Vec<Use>,
    /// Energy that the replay takes.
    pub energy: Energy,
    /// The first spans of the timeline.
    pub spans: Vec<Span>,
}

/// Replays reads in the order that their dependencies allow. Offsets beyond the end of the device wrap around. Holds
/// only reads that are in flight, and a window of reads that wait.
///
/// # Errors
/// If `reads` returns an error.
pub fn replay(
    device: &Device,
    reads: impl Iterator<Item = Result<TraceRead, FlashError>>,
    options: &ReplayOptions,
) -> Result<ReplayReport, FlashError> {
    let usage = Usage { place: options.place, multi_plane: true, units: options.units.max(1) };
    let mut machine = Machine::new(device, usage, Timeline::of(options.spans));
    // The schedule takes reads, not results. An error therefore ends the reads, and is returned after the loop.
    let mut failed = None;
    let reads = reads.map_while(|read| read.map_err(|error| failed = Some(error)).ok());
    let mut schedule = Schedule::new(reads, options.depth);
    let mut began: Vec<Ps> = Vec::new();
    let (mut now, mut latency, mut latency_max) = (0, 0, 0);
    let (mut count, mut bytes) = (0, 0);
    loop {
        while let Some((slot, read)) = schedule.next_read() {
            began.resize(began.len().max(slot as usize + 1), 0);
            let begins = now.max(read.at);
            began[slot as usize] = begins;
            (count, bytes) = (count + 1, bytes + read.bytes);
            machine.submit(begins, slot.into(), pages(device, read, options));
        }
        let Some((end, slot)) = machine.next_end() else { break };
        let took = end - began[slot as usize];
        (latency, latency_max) = (latency + took, latency_max.max(took));
        now = end;
        schedule.ended(slot as u32);
    }
    // Dropped, because it borrows `failed`.
    drop(schedule);
    if let Some(error) = failed {
        return Err(error);
    }
    let counts = machine.counts;
    Ok(ReplayReport {
        seconds: seconds(now),
        reads: count,
        bytes,
        latency_mean: seconds(latency) / count.max(1) as f64,
        latency_max: seconds(latency_max),
        counts,
        uses: machine.uses(),
        energy: Energy::of(device, &counts, now, options.watts),
        spans: machine.into_spans(),
    })
}

/// Returns the pages of a read, with the number of bytes to transfer of each.
fn pages<'a>(
    device: &'a Device,
    TraceRead { offset, bytes, .. }: TraceRead,
    options: &'a ReplayOptions,
) -> impl Iterator<Item = PageRead> + 'a {
    let page_bytes = u64::from(device.geometry.page_bytes);
    let sector = u64::from(device.sector_bytes);
    let end = offset + bytes.max(1);
    (offset / page_bytes..end.div_ceil(page_bytes)).map(move |page| {
        let (from, to) = (offset.max(page * page_bytes), end.min((page + 1) * page_bytes));
        let wanted = to - from;
        // A disk transfers whole sectors, even for a read of a few bytes.
        let moved = (to.div_ceil(sector) - from / sector) * sector;
        let is_compared_inside = options.place < Place::Fpga;
        PageRead {
            address: options.spread.address(&device.geometry, page % device.geometry.pages()),
            in_bytes: 0,
            page_bytes: moved as u32,
            out_bytes: if is_compared_inside { options.result_bytes } else { 0 },
            compute: (wanted as f64 * options.compute_ps_per_byte).round() as Ps,
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Config;
    use crate::ecc::mixed;

    fn device(changes: &[(&str, f64)]) -> Device {
        let mut config = Config::preset("mqsim").unwrap();
        // The dies are independent, commands take priority, and pages are transferred as a whole.
        let plain = [("geometry.luns_per_chip", 2.0), ("timing.data_first", 0.0), ("controller.sector", 8_192.0)];
        plain.iter().chain(changes).for_each(|(name, value)| config.set(name, *value, "test").unwrap());
        Device::new(&config).unwrap()
    }

    fn free(offset: u64, bytes: u64) -> Result<TraceRead, FlashError> {
        Ok(TraceRead { offset, bytes, ..TraceRead::default() })
    }

    fn run(device: &Device, reads: Vec<Result<TraceRead, FlashError>>, depth: usize) -> ReplayReport {
        replay(device, reads.into_iter(), &ReplayOptions { depth, ..ReplayOptions::default() }).unwrap()
    }

    #[test]
    fn the_latency_of_a_single_read_is_the_sum_of_its_stages() {
        let device = device(&[("controller.request", 2.0), ("ecc.hard", 1.0)]);
        let reads = (0..1_000).map(|k| free(mixed(k) % (1 << 30) / 8_192 * 8_192, 8_192)).collect();
        let report = run(&device, reads, 1);
        // In microseconds: request 2, command 0.29, sensing 75, channel 8192 / 333, decoding 1, DRAM 8192 / 12800,
        // link 8192 / 3282, latency 0.2.
        let microseconds = 2.0 + 0.29 + 75.0 + 8_192.0 / 333.0 + 1.0 + 8_192.0 / 12_800.0 + 8_192.0 / 3_282.0 + 0.2;
        assert!(
            (report.latency_mean * 1e6 / microseconds - 1.0).abs() < 0.01,
            "{} {microseconds}",
            report.latency_mean * 1e6
        );
        assert!((report.seconds / (1_000.0 * report.latency_mean) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_bottleneck_limits_the_rate_of_saturated_devices() {
        let rate = |changes: &[(&str, f64)]| {
            let device = device(changes);
            // The run is so long that its start and end do not matter. Pages of different blocks are never sensed
            // together.
            let report = run(&device, (0..120_000).map(|page| free(page * 8_192, 8_192)).collect(), 1_024);
            report.reads as f64 / report.seconds
        };
        let close = |rate: f64, expected: f64| assert!((rate / expected - 1.0).abs() < 0.02, "{rate} {expected}");
        // The 8 channels limit the rate.
        close(rate(&[("link.host", 1e6), ("controller.dram", 1e6)]), 8.0 / (0.29e-6 + 8_192.0 / 333e6));
        // The link limits the rate.
        close(rate(&[("timing.read", 1.0), ("timing.channel", 4_000.0), ("link.host", 1_000.0)]), 1e9 / 8_192.0);
        // The cores limit the rate.
        close(rate(&[("controller.request", 100.0)]), 4.0 / 100e-6);
        // The LUNs limit the rate. They have one plane each.
        let slow = [("timing.read", 2_000.0), ("geometry.planes_per_lun", 1.0)];
        close(rate(&slow), 64.0 / (2_000e-6 + 0.29e-6 + 8_192.0 / 333e6));
    }

    #[test]
    fn every_page_has_its_own_address() {
        let small = [("geometry.channels", 2.0), ("geometry.blocks_per_plane", 3.0), ("geometry.pages_per_block", 4.0)];
        let geometry = *device(&small).geometry();
        for spread in Spread::ALL {
            let all: std::collections::HashSet<_> =
                (0..geometry.pages()).map(|page| spread.address(&geometry, page)).collect();
            assert_eq!(all.len() as u64, geometry.pages(), "{spread:?}");
            let fits = |at: &PageAddress| at.lun < geometry.luns() && at.plane < 2 && at.block < 3 && at.page < 4;
            assert!(all.iter().all(fits), "{spread:?}");
        }
    }

    #[test]
    fn timed_reads_start_at_their_time() {
        let device = device(&[]);
        let alone = run(&device, vec![free(0, 8_192)], 1);
        let at = |k: u64| free(k * 8_192, 8_192).map(|read| TraceRead { at: k * 1_000_000_000, ..read });
        let timed = run(&device, (0..100).map(at).collect(), 1_024);
        assert!(
            (timed.latency_mean - alone.latency_mean).abs() < 1e-12,
            "{} {}",
            timed.latency_mean,
            alone.latency_mean
        );
        assert!((timed.seconds - 99e-3 - alone.seconds).abs() < 1e-12, "{}", timed.seconds);
        // With a depth of 1, each read starts when the previous one ends.
        let crowded = run(&device, (0..50).map(|k| at(k / 5)).collect(), 1);
        assert!((crowded.seconds - 9e-3 - 5.0 * alone.seconds).abs() < 1e-12, "{}", crowded.seconds);
    }

    #[test]
    fn an_error_of_the_trace_ends_the_replay() {
        let device = device(&[]);
        let wrong = FlashError::Input("line 3".into());
        let reads = vec![free(0, 1), Err(wrong.clone()), free(1, 1)];
        assert_eq!(replay(&device, reads.into_iter(), &ReplayOptions::default()).unwrap_err(), wrong);
    }

    proptest! {
        #[test]
        fn replay_reports_are_consistent_for_all_traces_and_places(
            reads in prop::collection::vec((0u64..1 << 24, 1u64..100_000, 0u64..5, prop::option::of(0u64..5)), 1..60),
            depth in 1usize..40,
            place in prop::sample::select(vec![Place::Lun, Place::Chip, Place::Channel, Place::Fpga, Place::Host]),
            fails in 0.0f64..1.0,
            spread in prop::sample::select(Spread::ALL.to_vec()),
        ) {
            let device = device(&[("geometry.channels", 2.0), ("ecc.hard_fails", fails), ("ecc.hard", 1.0), ("controller.sector", 2_048.0)]);
            let reads: Vec<_> = reads.into_iter().map(|(offset, bytes, step, after)| {
                Ok(TraceRead { step: Some(step), after: after.filter(|&after| after < step), offset, bytes, ..TraceRead::default() })
            }).collect();
            let options = ReplayOptions {
                depth, place, compute_ps_per_byte: 50.0, result_bytes: 8, units: 3, watts: 1.0, spread, spans: 100,
            };
            let report = replay(&device, reads.iter().cloned(), &options).unwrap();
            // The result is deterministic.
            let again = replay(&device, reads.iter().cloned(), &options).unwrap();
            prop_assert_eq!(format!("{report:?}"), format!("{again:?}"));
            // Every page and every byte is counted once.
            let reads: Vec<TraceRead> = reads.into_iter().map(Result::unwrap).collect();
            let page = 8_192u64;
            let pages: u64 = reads.iter().map(|read| (read.offset + read.bytes).div_ceil(page) - read.offset / page).sum();
            prop_assert_eq!(report.counts.page_reads + report.counts.buffer_hits, pages);
            prop_assert_eq!((report.reads, report.bytes), (reads.len() as u64, reads.iter().map(|read| read.bytes).sum()));
            let sectors: u64 = reads.iter().map(|read| ((read.offset + read.bytes).div_ceil(2_048) - read.offset / 2_048) * 2_048).sum();
            let soft = if place <= Place::Chip { 2 * page * report.counts.soft_decodes } else { 0 };
            let (channel, pins, link) = match place {
                Place::Lun => (8 * pages + soft, 0, 0),
                Place::Chip => (8 * pages + soft, sectors, 0),
                Place::Channel => (sectors, 0, 0),
                Place::Fpga | Place::Host => (sectors, 0, sectors),
            };
            prop_assert_eq!(report.counts.channel_bytes, channel);
            prop_assert_eq!((report.counts.pin_bytes, report.counts.link_bytes), (pins, link));
            // The elapsed time is at least the busy time of the busiest resource, and at most the sum of all busy
            // times and delays.
            let elapsed = (report.seconds * 1e12).round() as u64;
            for of in &report.uses {
                prop_assert!(of.busiest <= elapsed + 1, "{} {} {elapsed}", of.name, of.busiest);
                prop_assert!(of.share(elapsed) <= 1.0 + 1e-9);
            }
            let waits = report.reads * device.latency + pages * device.hard;
            let all: u64 = report.uses.iter().map(|of| of.busy).sum::<u64>() + waits;
            prop_assert!(elapsed <= all + 1, "{elapsed} {all}");
        }
    }
}
