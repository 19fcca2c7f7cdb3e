//! Platforms that can run the searches, and the assumptions about each.

use crate::device::{Device, Ps};
use crate::place::Place;

/// A platform that runs searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Platform {
    /// Processors. Vectors that are not in memory are read from a disk.
    Cpu,
    /// Processors with all vectors in memory (CPU-T in NDSearch).
    CpuDram,
    /// Processors that load shards of the set into memory and search there (NDSearch, section VII-A).
    CpuShards,
    /// A graphics processor. Vectors that are not in its memory are read from a disk.
    Gpu,
    /// A graphics processor that loads shards of the set into its memory and searches there.
    GpuShards,
    /// An FPGA next to the disk.
    SmartSsd,
    /// DeepStore with one accelerator per channel.
    DeepStoreChannel,
    /// DeepStore with one accelerator per chip.
    DeepStoreChip,
    /// NDSearch: one accelerator per LUN.
    NdSearch,
}

impl Platform {
    /// All platforms. The first one is the baseline of the paper.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::CpuDram,
        Self::CpuShards,
        Self::Gpu,
        Self::GpuShards,
        Self::SmartSsd,
        Self::DeepStoreChannel,
        Self::DeepStoreChip,
        Self::NdSearch,
    ];

    /// Returns the platform's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuDram => "cpu-dram",
            Self::CpuShards => "cpu-shards",
            Self::Gpu => "gpu",
            Self::GpuShards => "gpu-shards",
            Self::SmartSsd => "smartssd",
            Self::DeepStoreChannel => "deepstore-channel",
            Self::DeepStoreChip => "deepstore-chip",
            Self::NdSearch => "ndsearch",
        }
    }

    /// Returns the platform with this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|platform| platform.name() == name)
    }

    /// Returns a text with the assumptions that the model makes about the platform.
    pub fn assumptions(self) -> &'static str {
        match self {
            Self::Cpu => {
                "all queries of a batch in step, all their reads under way at once, each query reading for itself; the \
                 vertices nearest to the entry are in memory, as many as fit; the graph is in memory; vectors on disk \
                 without their neighbors; reads of whole sectors over the host link; all threads compare"
            }
            Self::CpuDram => {
                "as cpu with all vectors in memory: a miss of the cache for each vertex, all threads compare"
            }
            Self::CpuShards => {
                "as cpu-dram, but the set is loaded over the host link in equal shards of consecutive vertices, each with its vectors and \
                 its part of the graph; a batch loads each shard that holds a vertex of its walks, once (shards.reload: again in \
                 each step, if memory has replaced it); nothing is compared while shards are loaded; walks are those of the whole graph, \
                 so searches of separate graphs of shards take no more steps"
            }
            Self::GpuShards => "as cpu-shards, with the comparisons, launches and power of gpu",
            Self::Gpu => {
                "as cpu, but a page that several queries of a batch want is read once, and each step starts a kernel; \
                 its host takes no time and no power"
            }
            Self::SmartSsd => {
                "as cpu, over the private link of the FPGA, with no vertices in memory; its logic as fast as all of NDSearch's"
            }
            Self::DeepStoreChannel => {
                "whole pages leave over the channel, each query reading for itself; NDSearch's logic divided among channels"
            }
            Self::DeepStoreChip => {
                "whole pages leave a LUN over the pins of its chip, one at a time, at the rate of a channel; dynamic allocating as \
                 NDSearch has; NDSearch's logic divided among chips"
            }
            Self::NdSearch => {
                "queries go to each LUN that holds a wanted vertex, once a step; planes of a LUN sense together where \
                 addresses allow; all queries of a batch in step"
            }
        }
    }

    /// Returns the place at which the platform compares vectors.
    pub fn place(self) -> Place {
        match self {
            Self::Cpu | Self::CpuDram | Self::CpuShards | Self::Gpu | Self::GpuShards => Place::Host,
            Self::SmartSsd => Place::Fpga,
            Self::DeepStoreChannel => Place::Channel,
            Self::DeepStoreChip => Place::Chip,
            Self::NdSearch => Place::Lun,
        }
    }

    /// Returns whether all queries can use a page that was read for one of them.
    pub(crate) fn can_allocate(self) -> bool {
        matches!(self, Self::Gpu | Self::DeepStoreChip | Self::NdSearch)
    }

    /// Returns whether the platform loads shards of the set into memory, instead of single vectors.
    pub(crate) fn loads_shards(self) -> bool {
        matches!(self, Self::CpuShards | Self::GpuShards)
    }

    /// Returns whether each step starts a kernel of a graphics processor.
    pub(crate) fn launches(self) -> bool {
        matches!(self, Self::Gpu | Self::GpuShards)
    }

    /// Returns the power of all active components, in watts.
    pub fn watts(self, device: &Device) -> f64 {
        let [disk, logic, fpga] = ["disk", "logic", "sorter"].map(|of| device.config.value(&format!("power.{of}")));
        match self {
            Self::Cpu | Self::CpuShards => device.config.value("power.cpu") + disk,
            Self::CpuDram => device.config.value("power.cpu"),
            Self::Gpu | Self::GpuShards => device.config.value("power.gpu") + disk,
            Self::SmartSsd => disk + fpga,
            Self::DeepStoreChannel | Self::DeepStoreChip | Self::NdSearch => disk + logic + fpga,
        }
    }

    /// Returns the number of units that compare vectors if the place is the FPGA or the host; otherwise 1.
    pub fn units(self, device: &Device) -> u32 {
        match self {
            Self::Cpu | Self::CpuDram | Self::CpuShards => device.config.count("cpu.threads") as u32,
            Self::Gpu | Self::GpuShards => (device.config.count("gpu.lanes") / GPU_UNIT_LANES).max(1) as u32,
            Self::SmartSsd => (logic_lanes(device) / FPGA_UNIT_LANES).max(1) as u32,
            _ => 1,
        }
    }

    /// Returns how long one unit takes to compare a vector of `elements` elements.
    pub fn comparison(self, device: &Device, elements: u32) -> Ps {
        let figure = |name: &str| device.config.value(name);
        // Returns the duration in picoseconds if `lanes` elements are processed per cycle of a clock in MHz.
        let cycles = |lanes: u64, clock: f64| u64::from(elements).div_ceil(lanes.max(1)) as f64 * 1e6 / clock;
        let logic = logic_lanes(device);
        let ps = match self {
            // The figures are in nanoseconds. A walk jumps through memory, so each vector costs a cache miss.
            Self::Cpu | Self::CpuDram | Self::CpuShards => {
                1e3 * (figure("cpu.miss") + figure("cpu.element") * f64::from(elements))
            }
            Self::Gpu | Self::GpuShards => cycles(GPU_UNIT_LANES, figure("gpu.clock")),
            // The FPGA that compares also contains the sorter, so this uses the sorter's clock.
            Self::SmartSsd => cycles(FPGA_UNIT_LANES, figure("sorter.clock")),
            Self::DeepStoreChannel => cycles(logic / u64::from(device.geometry.channels), figure("search.clock")),
            Self::DeepStoreChip => cycles(logic / u64::from(device.geometry.chips()), figure("search.clock")),
            Self::NdSearch => cycles(device.config.count("search.lanes"), figure("search.clock")),
        };
        ps.round() as Ps
    }

    /// Returns how long a step takes for `vertices` vertices in memory. Their vectors take `bytes` bytes. For
    /// processors, it is the time to compare them on all units or the time to read them from memory, whichever is
    /// longer. For other platforms, it is the time to read them.
    pub(crate) fn in_memory(self, device: &Device, elements: u32, vertices: u64, bytes: u64) -> Ps {
        let compared = vertices * self.comparison(device, elements) / u64::from(self.units(device));
        let read = match self {
            Self::Cpu | Self::CpuDram | Self::CpuShards => device.rate("cpu.dram").time(bytes),
            Self::Gpu | Self::GpuShards => device.rate("gpu.dram").time(bytes),
            _ => device.dram.time(bytes),
        };
        if self.place() == Place::Host { compared.max(read) } else { read }
    }
}

/// Number of lanes of a warp, which compares one vector.
const GPU_UNIT_LANES: u64 = 32;
/// Number of lanes of the FPGA that compare one vector.
const FPGA_UNIT_LANES: u64 = 64;

/// Returns the number of lanes of all planes together. Every accelerator platform has this number (NDSearch, section
/// VII-A: equal budgets).
fn logic_lanes(device: &Device) -> u64 {
    device.config.count("search.lanes") * device.geometry.planes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn every_platform_has_a_name_and_lists_its_assumptions() {
        for platform in Platform::ALL {
            assert_eq!(Platform::named(platform.name()), Some(platform));
            assert!(platform.assumptions().len() > 40);
        }
        assert_eq!(Platform::named("tpu"), None);
    }

    #[test]
    fn accelerators_share_the_same_logic() {
        let device = Device::new(&Config::preset("ndsearch").unwrap()).unwrap();
        let rate =
            |platform: Platform, accelerators: u64| accelerators as f64 / platform.comparison(&device, 128) as f64;
        let all = [
            rate(Platform::NdSearch, device.geometry.planes()),
            rate(Platform::DeepStoreChip, device.geometry.chips().into()),
            rate(Platform::DeepStoreChannel, device.geometry.channels.into()),
        ];
        assert!(all.iter().all(|rate| (rate / all[0] - 1.0).abs() < 1e-9), "{all:?}");
    }
}
