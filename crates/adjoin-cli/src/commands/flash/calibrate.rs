//! Calibrates a device model to the disk of this machine. Measures random reads of several sizes and queue depths.
//! The figures of the model are fitted to half of the measurements; the other half is used to estimate the error.

use std::path::Path;
use std::sync::Arc;

use adjoin::{
    Context, Error, OwnFolder, Result, Target, TraceReads,
    device::{Device as Files, ReadFile},
    flash_model::{Config, Device, ReplayOptions, replay},
    format_bytes, parse_bytes,
};

use super::check_results;
use super::disk::{Kind, carry_out, random_reads, replay_on_disk, within};
use crate::Outcome;
use crate::args::FlashCalibrate;
use crate::print::print;
use crate::resolve;
use crate::signals::Stopped;

const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const DEPTHS: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Bytes that a measurement reads.
const MEASURED_BYTES: u64 = 64 << 20;
/// Minimum and maximum number of reads of a measurement.
const READS_MIN: u64 = 128;
const READS_MAX: u64 = 4_000;
/// Bytes written at once.
const PIECE_BYTES: usize = 1 << 20;
/// Numbers of servers that the fit tries. A server is a LUN with its own channel.
const SERVERS: [f64; 7] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
/// Factors by which figures are varied during the fit.
const FACTORS: [f64; 4] = [1.5, 1.15, 1.05, 1.02];
/// Maximum number of rounds in which all figures are varied.
const TURNS_MAX: usize = 8;

/// A kind of reads, and the seconds of each of its measurements.
struct Measured {
    kind: Kind,
    reads: u64,
    seconds: Vec<f64>,
}

/// A trace, and the seconds of each of its replays on the disk.
struct Replayed<'a> {
    path: &'a Path,
    seconds: Vec<f64>,
}

pub(super) fn calibrate(arguments: &FlashCalibrate, stopped: &Stopped) -> Result<Outcome> {
    let FlashCalibrate { folder, size, rounds, replay, depth, output, replace, resources } = arguments;
    let context = resolve::context(resources, stopped)?;
    let read: Vec<String> = replay.iter().map(|path| path.display().to_string()).collect();
    check_results(&context, &read, &[("-o", output)], replace.force)?;
    // The size of the file is rounded down to a multiple of every read size.
    let file_bytes = parse_bytes(size)? / PIECE_BYTES as u64 * PIECE_BYTES as u64;
    // In a smaller file, a measurement would read most offsets more than once.
    if file_bytes < MEASURED_BYTES || *rounds == 0 {
        let said = format!("--size {size} and --rounds {rounds}; give at least {} and 1", format_bytes(MEASURED_BYTES));
        return Err(Error::option(said));
    }
    let free = context.device.free_bytes(folder)?;
    if file_bytes > free {
        let (folder, free) = (folder.display(), format_bytes(free));
        return Err(Error::option(format!("--size {size} is more than the free space of {folder}, {free}; give less")));
    }
    // When `own` is dropped, the folder and the file in it are deleted, after an error too.
    let own = OwnFolder::create(&context.device, folder, "calibration")?;
    let path = own.path().join("measured");
    write(&context, &path, file_bytes)?;
    let mut measured: Vec<Measured> =
        kinds().map(|(kind, reads)| Measured { kind, reads, seconds: Vec::new() }).collect();
    let mut replayed: Vec<Replayed> = replay.iter().map(|path| Replayed { path, seconds: Vec::new() }).collect();
    let file = context.device.open(&path)?;
    // Each round measures all kinds, so that a slow moment of the disk does not affect all measurements of one kind.
    for round in 0..*rounds as u64 {
        measure(&context, &file, file_bytes, &mut measured, round)?;
        for of in &mut replayed {
            of.seconds.push(replay_on_disk(&*context.device, of.path, &file, *depth)?);
        }
    }
    // The file is large, so it is deleted before the fit, which may take long.
    drop((file, own));
    let config = fit(&measured, file_bytes)?;
    let text = tell(&config, &measured, file_bytes)? + &tell_replays(&config, file_bytes, &replayed, *depth)?;
    Target::write_file(&context, output, replace.force, |out| out.write_all(config.to_toml().as_bytes()))?;
    print(&text)?;
    Ok(Outcome::Done)
}

/// Returns all kinds of reads, and the number of reads of each.
fn kinds() -> impl Iterator<Item = (Kind, u64)> {
    let kinds = SIZES.into_iter().flat_map(|bytes| DEPTHS.into_iter().map(move |depth| Kind { bytes, depth }));
    kinds.map(|kind| (kind, (MEASURED_BYTES / kind.bytes).clamp(READS_MIN, READS_MAX)))
}

fn write(context: &Context, path: &Path, file_bytes: u64) -> Result<()> {
    let mut file = context.device.create(path)?;
    // All blocks differ, since some disks store equal blocks once.
    let mut piece: Vec<u8> = (0..PIECE_BYTES).map(|k| (k * 31) as u8).collect();
    for number in 0..file_bytes / PIECE_BYTES as u64 {
        piece.chunks_exact_mut(4_096).zip(0u64..).for_each(|(block, k)| {
            block[..8].copy_from_slice(&(number << 32 | k).to_le_bytes());
        });
        context.cancel.check()?;
        file.append(&piece)?;
    }
    // Synced, since blocks might otherwise still be written while reads are measured.
    Ok(file.sync()?)
}

/// Measures each kind once.
fn measure(
    context: &Context,
    file: &Arc<dyn ReadFile>,
    file_bytes: u64,
    measured: &mut [Measured],
    round: u64,
) -> Result<()> {
    if !file.is_direct() {
        context.progress.note("reads use the page cache here, so memory is measured, not the disk");
    }
    for of in measured {
        context.cancel.check()?;
        // Each round reads other offsets, so that the cache of the disk does not hold them yet.
        let reads = random_reads(of.kind, of.reads, file_bytes, round);
        let files: &dyn Files = &*context.device;
        of.seconds.push(carry_out(files, reads, of.kind.depth, |read| Ok((file.clone(), read.offset)))?);
    }
    Ok(())
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the seconds that the model predicts for reads of a kind.
fn predicted(config: &Config, of: &Measured, file_bytes: u64) -> Result<f64> {
    let device = Device::new(config)?;
    let options = ReplayOptions { depth: of.kind.depth, ..ReplayOptions::default() };
    Ok(replay(&device, random_reads(of.kind, of.reads, file_bytes, 0).map(Ok), &options)?.seconds)
}

/// Returns the error of the model, summed over the kinds that are used for the fit. The error of a kind is the
/// absolute logarithm of the predicted time divided by the measured time.
fn error(config: &Config, measured: &[Measured], file_bytes: u64) -> Result<f64> {
    let mut sum = 0.0;
    for (of, _) in measured.iter().zip(0..).filter(|(_, k)| is_fitted(*k)) {
        // With logarithms, a prediction of twice the measured time counts as much as a prediction of half of it.
        sum += (predicted(config, of, file_bytes)? / median(&of.seconds)).ln().abs();
    }
    Ok(sum)
}

/// Returns whether a kind is used to fit the figures. These are every second kind, in a chessboard pattern over sizes
/// and depths.
fn is_fitted(number: usize) -> bool {
    (number / DEPTHS.len() + number % DEPTHS.len()).is_multiple_of(2)
}

/// Fits the figures one after another, repeatedly.
fn fit(measured: &[Measured], file_bytes: u64) -> Result<Config> {
    let rate = |of: &Measured| of.reads as f64 / median(&of.seconds);
    let most = |rate: &dyn Fn(&Measured) -> f64| measured.iter().map(rate).fold(0.0, f64::max);
    // The first kind has the smallest reads at depth 1, so its time is the latency of a read, here in microseconds.
    let latency = measured.first().map_or(1.0, |of| 1e6 / rate(of));
    let mut config = Config::preset("virtual-disk")?;
    config.rename("calibrated");
    let source = "measured by adjoin flash calibrate";
    // Start values: most of the latency is the read of the flash, and the highest measured rates are the limits of
    // the controller and of the link.
    let begin = [
        ("link.latency", latency * 0.3),
        ("timing.read", latency * 0.6),
        ("controller.cores", 1.0),
        ("controller.request", 1e6 / most(&rate)),
        ("link.host", most(&|of| rate(of) * of.kind.bytes as f64 / 1e6)),
    ];
    for (name, value) in begin {
        config.set(name, value, source)?;
    }
    let mut least = f64::MAX;
    // The number of servers decides how the rate grows with the queue depth. There are few values, so all are tried.
    for servers in SERVERS {
        let mut tried = config.clone();
        tried.set("geometry.channels", servers, source)?;
        let error = error(&tried, measured, file_bytes)?;
        if error < least {
            (least, config) = (error, tried);
        }
    }
    // Local search: each figure is multiplied and divided by the factor as long as the error decreases.
    for factor in FACTORS {
        for _ in 0..TURNS_MAX {
            let before = least;
            for name in ["timing.read", "link.host", "controller.request", "link.latency", "timing.channel"] {
                for by in [factor, 1.0 / factor] {
                    let mut tried = config.clone();
                    tried.set(name, figure(&config, name) * by, source)?;
                    let error = error(&tried, measured, file_bytes)?;
                    if error < least {
                        (least, config) = (error, tried);
                    }
                }
            }
            if least == before {
                break;
            }
        }
    }
    Ok(config)
}

fn figure(config: &Config, name: &str) -> f64 {
    config.figures().find(|figure| figure.0 == name).map_or(f64::NAN, |figure| figure.2.value)
}

/// Returns a table of the measurements and the model's predictions.
fn tell(config: &Config, measured: &[Measured], file_bytes: u64) -> Result<String> {
    let mut text = "bytes    depth  reads/s  spread  model    off  used\n".to_owned();
    let mut off = Vec::new();
    for (number, of) in measured.iter().enumerate() {
        let (seconds, model) = (median(&of.seconds), predicted(config, of, file_bytes)?);
        let error = (model / seconds - 1.0).abs();
        // Only kinds that were not used for the fit show the error for other reads.
        if !is_fitted(number) {
            off.push(error);
        }
        text += &format!(
            "{:8} {:5} {:8.0} {:6.1}% {:8.0} {:5.1}%  {}\n",
            of.kind.bytes,
            of.kind.depth,
            of.reads as f64 / seconds,
            100.0 * spread(&of.seconds),
            of.reads as f64 / model,
            100.0 * error,
            if is_fitted(number) { "to fit" } else { "to check" },
        );
    }
    text += &format!("median error of kinds that were not used to fit: {:.1} %\n", 100.0 * median(&off));
    Ok(text)
}

/// Returns the difference between the largest and the smallest value, relative to the median.
fn spread(seconds: &[f64]) -> f64 {
    let (least, most) = seconds.iter().fold((f64::MAX, 0.0f64), |(a, b), &s| (a.min(s), b.max(s)));
    (most - least) / median(seconds)
}

fn tell_replays(config: &Config, file_bytes: u64, replayed: &[Replayed<'_>], depth: usize) -> Result<String> {
    let device = Device::new(config)?;
    let mut text = String::new();
    for Replayed { path, seconds } in replayed {
        let options = ReplayOptions { depth, ..ReplayOptions::default() };
        let reads = TraceReads::open(path)?.map(|read| read.map(|read| within(read, file_bytes)));
        let model = replay(&device, reads, &options)?;
        let took = median(seconds);
        text += &format!(
            "{}: {} reads, {} in {took:.3} s on the disk (spread {:.1} %), {:.3} s in the model: {:.1} % off\n",
            path.display(),
            model.reads,
            format_bytes(model.bytes),
            100.0 * spread(seconds),
            model.seconds,
            100.0 * (model.seconds / took - 1.0).abs(),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measurements that come from a device model lead back to that device, as far as its times determine it.
    #[test]
    fn recovers_device_figures_from_measurements() {
        let mut disk = Config::preset("virtual-disk").unwrap();
        for (name, value) in
            [("timing.read", 70.0), ("link.host", 900.0), ("controller.request", 6.0), ("geometry.channels", 8.0)]
        {
            disk.set(name, value, "test").unwrap();
        }
        let of = |(kind, reads): (Kind, u64)| {
            let reads = reads.min(256);
            let unknown = Measured { kind, reads, seconds: Vec::new() };
            Measured { seconds: vec![predicted(&disk, &unknown, 1 << 29).unwrap()], ..unknown }
        };
        let measured: Vec<Measured> = kinds().filter(|(kind, _)| kind.bytes <= 64 << 10).map(of).collect();
        let found = fit(&measured, 1 << 29).unwrap();
        let off: Vec<f64> =
            measured.iter().map(|of| (predicted(&found, of, 1 << 29).unwrap() / of.seconds[0] - 1.0).abs()).collect();
        assert!(median(&off) < 0.1, "{off:?} {found:?}");
    }
}
