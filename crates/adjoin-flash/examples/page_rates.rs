//! Prints for each preset how many pages per second the device reads, and how many page reads the model simulates per
//! second: `page_rates [READS [DEPTH]]`.

use std::time::Instant;

use adjoin_flash::{Config, Device, FlashError, Place, ReplayOptions, TraceRead, replay};

fn main() -> Result<(), FlashError> {
    let number = |place: usize, usual: u64| std::env::args().nth(place).and_then(|n| n.parse().ok()).unwrap_or(usual);
    let (reads, depth) = (number(1, 2_000_000), number(2, 256));
    println!("{:14} {:>8} {:>14} {:>16}", "device", "place", "reads/s there", "simulated a s");
    for name in Config::presets() {
        for place in [Place::Lun, Place::Host] {
            let device = Device::new(&Config::preset(name)?)?;
            let pages = device.geometry().pages();
            let bytes = u64::from(device.geometry().page_bytes);
            let read = |k: u64| TraceRead {
                offset: k.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * bytes,
                bytes,
                ..TraceRead::default()
            };
            let options = ReplayOptions { depth: depth as usize, place, ..ReplayOptions::default() };
            let begun = Instant::now();
            let report = replay(&device, (0..reads).map(read).map(Ok), &options)?;
            let (there, here) = (reads as f64 / report.seconds, reads as f64 / begun.elapsed().as_secs_f64());
            println!("{name:14} {:>8} {there:14.0} {here:16.0}", format!("{place:?}"));
        }
    }
    Ok(())
}
