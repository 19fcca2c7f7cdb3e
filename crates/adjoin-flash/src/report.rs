//! Results of a run of the model.

use crate::device::{Device, Ps, seconds};
use crate::place::Place;

/// Counts of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of requests.
    pub requests: u64,
    /// Number of pages that were sensed.
    pub page_reads: u64,
    /// Number of pages that needed no sensing because they were still in their buffer.
    pub buffer_hits: u64,
    /// Number of sensing operations. Sensing in several planes by one command counts once.
    pub senses: u64,
    /// Bytes transferred over the channels.
    pub channel_bytes: u64,
    /// Bytes transferred over the pins of the chips. They are counted only if vectors are compared at chips.
    pub pin_bytes: u64,
    /// Bytes transferred over the link to the host or the FPGA.
    pub link_bytes: u64,
    /// Number of pages with a failed hard decision. A core decoded them.
    pub soft_decodes: u64,
    /// Time of comparisons, summed over all units, in picoseconds.
    pub compute: Ps,
}

/// Busy time of one kind of resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Name of the resource.
    pub name: &'static str,
    /// Number of servers.
    pub servers: u32,
    /// Busy time in picoseconds, summed over the servers.
    pub busy: Ps,
    /// Busy time of the busiest server, in picoseconds.
    pub busiest: Ps,
}

impl Use {
    /// Returns the fraction of `elapsed` for which a server was busy, averaged over the servers.
    pub fn share(&self, elapsed: Ps) -> f64 {
        self.busy as f64 / (f64::from(self.servers.max(1)) * elapsed.max(1) as f64)
    }
}

/// Energy in joules, by where it is used.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Energy {
    /// Energy of sensing pages.
    pub sensing: f64,
    /// Energy of the buses between controller and chips.
    pub buses: f64,
    /// All other energy: the power of the active components times the duration of the run.
    pub running: f64,
}

impl Energy {
    /// Computes the energy of a run. It took `elapsed`, and its components have a power of `watts`.
    pub(crate) fn of(device: &Device, counts: &Counts, elapsed: Ps, watts: f64) -> Self {
        let figure = |name: &str| device.config.value(name);
        // The current is in milliamperes, hence the factor 1e-3.
        let page = figure("power.read") * 1e-3 * figure("power.supply") * seconds(device.read);
        Self {
            sensing: page * counts.page_reads as f64,
            buses: figure("power.bus") * 1e-9 * (counts.channel_bytes + counts.pin_bytes) as f64,
            running: watts * seconds(elapsed),
        }
    }

    /// Returns the total.
    pub fn total(&self) -> f64 {
        self.sensing + self.buses + self.running
    }
}

/// Returns the storage density of a device in gigabits per square millimeter. The flash has the configured density.
/// Logic on the chips takes additional area. Logic elsewhere does not reduce the density.
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
    fn the_storage_density_matches_the_ndsearch_paper() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        let density = storage_density(&device, Place::Lun);
        assert!((density - 5.64).abs() < 0.01, "{density}");
        assert_eq!(storage_density(&device, Place::Host), 6.0);
    }

    #[test]
    fn the_energy_of_a_page_read_follows_from_its_current() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        let counts = Counts { page_reads: 2, channel_bytes: 1_000, ..Counts::default() };
        let energy = Energy::of(&device, &counts, crate::device::SECOND, 3.0);
        assert!((energy.sensing - 2.0 * 25e-3 * 3.3 * 40e-6).abs() < 1e-12);
        assert!((energy.buses - 0.17e-6).abs() < 1e-12);
        assert!((energy.total() - 3.0 - energy.sensing - energy.buses).abs() < 1e-12);
    }
}
