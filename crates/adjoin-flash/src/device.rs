//! A device in the form that the model uses: whole numbers, and times in picoseconds.

use crate::config::Config;
use crate::error::FlashError;

/// A time in picoseconds. It is an integer, so sums do not depend on the order of the terms.
pub type Ps = u64;

/// Picoseconds per second.
pub const SECOND: Ps = 1_000_000_000_000;

/// Dimensions of a device. A channel connects several chips to the controller. A LUN is the smallest unit that
/// executes commands independently. Its planes can sense pages at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of buses between controller and chips.
    pub channels: u32,
    /// Number of chips per channel.
    pub chips_per_channel: u32,
    /// Number of LUNs per chip.
    pub luns_per_chip: u32,
    /// Number of planes per LUN. Each has a page buffer.
    pub planes_per_lun: u32,
    /// Number of blocks per plane.
    pub blocks_per_plane: u32,
    /// Number of pages per block.
    pub pages_per_block: u32,
    /// Size of a page in bytes.
    pub page_bytes: u32,
}

impl Geometry {
    /// Returns the number of LUNs of the device.
    pub fn luns(&self) -> u32 {
        self.channels * self.chips_per_channel * self.luns_per_chip
    }

    /// Returns the number of chips of the device.
    pub fn chips(&self) -> u32 {
        self.channels * self.chips_per_channel
    }

    /// Returns the number of planes of the device.
    pub fn planes(&self) -> u64 {
        u64::from(self.luns()) * u64::from(self.planes_per_lun)
    }

    /// Returns the number of pages of the device.
    pub fn pages(&self) -> u64 {
        self.planes() * u64::from(self.blocks_per_plane) * u64::from(self.pages_per_block)
    }

    /// Returns the size of all pages, in bytes.
    pub fn bytes(&self) -> u64 {
        self.pages() * u64::from(self.page_bytes)
    }

    /// Returns the channel of a LUN. LUNs with consecutive numbers are on different channels, and then on different
    /// chips of a channel, so neighbors do not share a bus.
    pub(crate) fn channel_of(&self, lun: u32) -> u32 {
        lun % self.channels
    }

    /// Returns the chip of a LUN. Chips are numbered across all channels.
    pub(crate) fn chip_of(&self, lun: u32) -> u32 {
        let of_channel = lun / self.channels % self.chips_per_channel;
        self.channel_of(lun) * self.chips_per_channel + of_channel
    }
}

/// A device, with the figures of a [`Config`] in the form that the model uses.
#[derive(Debug, Clone)]
pub struct Device {
    pub(crate) config: Config,
    pub(crate) geometry: Geometry,
    pub(crate) read: Ps,
    pub(crate) command: Ps,
    pub(crate) channel: Rate,
    pub(crate) data_first: bool,
    pub(crate) cores: u32,
    pub(crate) request: Ps,
    pub(crate) gather: Ps,
    pub(crate) dram: Rate,
    pub(crate) sector_bytes: u32,
    pub(crate) host_link: Rate,
    pub(crate) fpga_link: Rate,
    pub(crate) latency: Ps,
    pub(crate) hard: Ps,
    pub(crate) soft: Ps,
}

/// Transfer time in picoseconds per byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    ps_per_byte: f64,
}

impl Rate {
    fn megabytes(per_second: f64) -> Self {
        // One MB/s is one byte per microsecond, and a microsecond is 1e6 ps.
        Self { ps_per_byte: 1e6 / per_second }
    }

    pub(crate) fn time(self, bytes: u64) -> Ps {
        (bytes as f64 * self.ps_per_byte).round() as Ps
    }
}

impl Device {
    /// Creates the device that a configuration describes.
    ///
    /// # Errors
    /// If its figures are inconsistent.
    pub fn new(config: &Config) -> Result<Self, FlashError> {
        let count = |name: &str| config.count(name) as u32;
        let geometry = Geometry {
            channels: count("geometry.channels"),
            chips_per_channel: count("geometry.chips_per_channel"),
            luns_per_chip: count("geometry.luns_per_chip"),
            planes_per_lun: count("geometry.planes_per_lun"),
            blocks_per_plane: count("geometry.blocks_per_plane"),
            pages_per_block: count("geometry.pages_per_block"),
            page_bytes: count("geometry.page"),
        };
        // A layout stores the number of a LUN in 16 bits; see `LunCsr`.
        let luns = [geometry.channels, geometry.chips_per_channel, geometry.luns_per_chip].map(u64::from);
        if luns.iter().product::<u64>() > u64::from(u16::MAX) {
            let why = format!("makes {} LUNs; give numbers that make at most 65535", luns.iter().product::<u64>());
            return Err(FlashError::figure("geometry.channels", &why));
        }
        let blocks = config.count("geometry.blocks_per_plane") * config.count("geometry.planes_per_lun");
        if blocks > 1 << 22 {
            return Err(FlashError::figure(
                "geometry.blocks_per_plane",
                "makes more than 4194304 blocks per LUN; give fewer",
            ));
        }
        let sector_bytes = count("controller.sector");
        if !geometry.page_bytes.is_multiple_of(sector_bytes) {
            let why = format!("is {sector_bytes} B, which does not divide the page of {} B", geometry.page_bytes);
            return Err(FlashError::figure("controller.sector", &why));
        }
        // Conversions from microseconds and nanoseconds to picoseconds.
        let us = |name: &str| (config.value(name) * 1e6).round() as Ps;
        let ns = |name: &str| (config.value(name) * 1e3).round() as Ps;
        let rate = |name: &str| Rate::megabytes(config.value(name));
        Ok(Self {
            geometry,
            read: us("timing.read"),
            command: ns("timing.command"),
            channel: rate("timing.channel"),
            data_first: count("timing.data_first") == 1,
            cores: count("controller.cores"),
            request: us("controller.request"),
            gather: ns("controller.gather"),
            dram: rate("controller.dram"),
            sector_bytes,
            host_link: rate("link.host"),
            fpga_link: rate("link.fpga"),
            latency: us("link.latency"),
            hard: us("ecc.hard"),
            soft: us("ecc.soft"),
            config: config.clone(),
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn rate(&self, name: &str) -> Rate {
        Rate::megabytes(self.config.value(name))
    }
}

/// Converts a time to seconds.
pub(crate) fn seconds(time: Ps) -> f64 {
    time as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ndsearch_device_has_512_gib() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        assert_eq!(device.geometry().bytes(), 512 << 30);
        assert_eq!((device.geometry().luns(), device.geometry().planes()), (256, 512));
    }

    #[test]
    fn luns_are_mapped_to_chips_and_channels() {
        let geometry = *Device::new(&Config::preset("ndsearch").unwrap()).unwrap().geometry();
        let mut of_chip = vec![Vec::new(); geometry.chips() as usize];
        (0..geometry.luns()).for_each(|lun| of_chip[geometry.chip_of(lun) as usize].push(lun));
        assert!(of_chip.iter().all(|luns| luns.len() == geometry.luns_per_chip as usize));
        for (chip, luns) in (0..).zip(of_chip) {
            assert!(luns.iter().all(|&lun| geometry.channel_of(lun) == chip / geometry.chips_per_channel));
        }
    }

    #[test]
    fn refuses_inconsistent_device_figures() {
        let with = |name: &str, value: f64| {
            let mut config = Config::preset("ndsearch").unwrap();
            config.set(name, value, "test").unwrap();
            Device::new(&config).unwrap_err().to_string()
        };
        assert!(with("geometry.chips_per_channel", 4_096.0).contains("geometry.channels makes 262144 LUNs"));
        assert!(with("controller.sector", 3_000.0).contains("does not divide the page of 16384 B"));
    }
}
