//! Measures random reads per second for each device, read size and queue depth: `cargo run --release --example
//! read_rates [FOLDER]`.
//!
//! Writes a file of 1 GiB into the folder and removes it at the end. The default is the system's folder for temporary
//! files.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use adjoin_device::{AlignedBuffer, Cause, Device, FileSystem};

const FILE_BYTES: u64 = 1 << 30;
const SPENT: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("adjoin-read-rates-{}", std::process::id()));
    let (best, refused) = FileSystem::detect();
    refused.iter().for_each(|note| println!("{note}"));
    let measured = write(&best, &path).and_then(|()| table(&path, best));
    best.remove(&path)?;
    measured
}

fn write(device: &FileSystem, path: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let begun = Instant::now();
    let mut file = device.create(path)?;
    let piece = vec![7; 1 << 20];
    for _ in 0..FILE_BYTES / piece.len() as u64 {
        file.append(&piece)?;
    }
    file.sync()?;
    println!("written at {:.0} MB/s", FILE_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64());
    Ok(())
}

fn table(path: &std::path::Path, best: FileSystem) -> Result<(), Box<dyn Error>> {
    let mut devices = vec![FileSystem::pread(), best];
    devices.dedup();
    println!("{:9} {:>8} {:>6} {:>10} {:>8}", "device", "bytes", "depth", "reads/s", "MB/s");
    for bytes in [4_096, 65_536, 1 << 20] {
        for depth in [1, 4, 16, 64] {
            for device in &devices {
                let rate = rate(device, path, bytes, depth)?;
                let megabytes = rate * bytes as f64 / 1e6;
                println!("{:9} {bytes:8} {depth:6} {rate:10.0} {megabytes:8.0}", device.name());
            }
        }
    }
    Ok(())
}

fn rate(device: &FileSystem, path: &std::path::Path, bytes: usize, depth: usize) -> Result<f64, Box<dyn Error>> {
    let file = device.open(path)?;
    let mut queue = device.read_queue(depth)?;
    let begun = Instant::now();
    let (mut place, mut reads) = (1u64, 0);
    for token in 0..depth as u64 {
        queue.submit(token, Cause::UNKNOWN, &file, token * bytes as u64, AlignedBuffer::zeroed(bytes))?;
    }
    while let Some(done) = queue.wait() {
        done.result?;
        reads += 1;
        if begun.elapsed() < SPENT {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (place >> 20) % (FILE_BYTES / bytes as u64) * bytes as u64;
            queue.submit(done.token, Cause::UNKNOWN, &file, offset, done.buffer)?;
        }
    }
    Ok(f64::from(reads) / begun.elapsed().as_secs_f64())
}
