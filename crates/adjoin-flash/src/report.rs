//! What a run of the model comes to.

use crate::device::{Device, Ps, seconds};
use crate::machine::Place;

/// What was done, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that were made.
    pub requests: u64,
    /// Pages that were sensed.
    pub page_reads: u64,
    /// Pages that were in their buffer still.
    pub buffer_hits: u64,
    /// Sensings: those of several planes at once are one.
    pub senses: u64,
    /// Bytes over all channels.
    pub channel_bytes: u64,
    /// Bytes over the pins of all chips, where these compare.
    pub pin_bytes: u64,
    /// Bytes to host or FPGA.
    pub link_bytes: u64,
    /// Pages whose hard decision failed.
    pub soft_decodes: u64,
    /// Time of comparing, of all units together, in picoseconds.
    pub compute: Ps,
}

/// How long resources of a kind were busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// What they are called.
    pub name: &'static str,
    /// How many there are.
    pub servers: u32,
    /// Picoseconds that they were busy, added up.
    pub busy: Ps,
    /// Picoseconds of the busiest.
    pub busiest: Ps,
}

impl Use {
    /// The share of a time that they were busy, on average.
    pub fn share(&self, elapsed: Ps) -> f64 {
        self.busy as f64 / (f64::from(self.servers.max(1)) * elapsed.max(1) as f64)
    }
}

/// Energy in joules, by what took it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Energy {
    /// Sensing pages.
    pub sensing: f64,
    /// Buses between controller and chips.
    pub buses: f64,
    /// Everything else: the power of what is switched on, for as long as the run took.
    pub running: f64,
}

impl Energy {
    /// Of a run that took so long on so much power.
    pub(crate) fn of(device: &Device, counts: &Counts, (elapsed, watts): (Ps, f64)) -> Self {
        let figure = |name: &str| device.config.value(name);
        let page = figure("power.read") * 1e-3 * figure("power.supply") * seconds(device.read);
        Self {
            sensing: page * counts.page_reads as f64,
            buses: figure("power.bus") * 1e-9 * (counts.channel_bytes + counts.pin_bytes) as f64,
            running: watts * seconds(elapsed),
        }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.sensing + self.buses + self.running
    }
}

/// Gigabits a square millimetre of a device whose flash has `device`'s density and whose logic takes its area: the logic of
/// places outside the chips costs no density of flash.
pub fn storage_density(device: &Device, place: Place) -> f64 {
    let figure = |name: &str| device.config.value(name);
    let gigabits = device.geometry.bytes() as f64 * 8.0 / f64::from(1u32 << 30);
    let logic = if place == Place::Lun { figure("area.logic") } else { 0.0 };
    gigabits / (gigabits / figure("area.density") + logic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_density_is_that_of_the_paper() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        let density = storage_density(&device, Place::Lun);
        assert!((density - 5.64).abs() < 0.01, "{density}");
        assert_eq!(storage_density(&device, Place::Host), 6.0);
    }

    #[test]
    fn a_page_takes_what_its_current_says() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        let counts = Counts { page_reads: 2, channel_bytes: 1_000, ..Counts::default() };
        let energy = Energy::of(&device, &counts, (crate::device::SECOND, 3.0));
        assert!((energy.sensing - 2.0 * 25e-3 * 3.3 * 40e-6).abs() < 1e-12);
        assert!((energy.buses - 0.17e-6).abs() < 1e-12);
        assert!((energy.total() - 3.0 - energy.sensing - energy.buses).abs() < 1e-12);
    }
}
