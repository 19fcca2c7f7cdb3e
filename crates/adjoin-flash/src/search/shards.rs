//! Shards of a set that exceeds the memory of processors (NDSearch, section VII-A). A shard is loaded as a whole, with
//! its vectors and its part of the graph.

use crate::device::{Device, Ps};
use crate::layout::LunCsr;
use crate::search::{NEIGHBOR_BYTES, OFFSET_BYTES, SearchOptions};

/// Shards of a set, and the ones that are in memory.
pub(super) struct Shards {
    vertices: u64,
    count: u64,
    /// Time to load a shard.
    load: Ps,
    /// Bytes of a shard.
    bytes: u64,
    /// Number of shards that memory holds.
    room: usize,
    /// Shards in memory. The one whose last use was longest ago is first.
    held: Vec<u64>,
    /// Whether a shard is loaded at most once per batch.
    once: bool,
}

impl Shards {
    /// Returns the shards that a platform loads; `None` if it loads no shards, or if all of them fit in its memory.
    pub(super) fn of(device: &Device, layout: &LunCsr, options: &SearchOptions) -> Option<Self> {
        let count = device.config.count("shards.count");
        let room = (options.memory_share * count as f64).floor() as usize;
        if !options.platform.loads_shards() || room >= count as usize {
            return None;
        }
        let (vertices, edges) = (u64::from(layout.vertices()), layout.edges());
        let set = vertices * (u64::from(layout.vector_bytes()) + OFFSET_BYTES) + edges * NEIGHBOR_BYTES;
        let bytes = (set as f64 * device.config.value("shards.scale") / count as f64).round() as u64;
        let once = device.config.count("shards.reload") == 0;
        let room = if once { count as usize } else { room.max(1) };
        Some(Self { vertices, count, load: device.host_link.time(bytes), bytes, room, held: Vec::new(), once })
    }

    pub(super) fn begin_batch(&mut self) {
        if self.once {
            self.held.clear();
        }
    }

    /// Loads the shards that hold the vertices of `wanted` and are not in memory. Returns their number.
    pub(super) fn load(&mut self, wanted: &[(u32, u32)]) -> u64 {
        let shard = |&(_, vertex): &(u32, u32)| u64::from(vertex) * self.count / self.vertices;
        let mut shards: Vec<u64> = wanted.iter().map(shard).collect();
        shards.sort_unstable();
        shards.dedup();
        // Shards in memory are used before others are loaded, since a load may replace them.
        let (held, missing): (Vec<u64>, Vec<u64>) = shards.iter().partition(|shard| self.held.contains(shard));
        let loads = missing.len() as u64;
        self.held.retain(|shard| !held.contains(shard));
        self.held.extend(held.into_iter().chain(missing));
        self.held.drain(..self.held.len().saturating_sub(self.room));
        loads
    }

    /// Returns the time and the bytes of loads.
    pub(super) fn cost(&self, loads: u64) -> (Ps, u64) {
        (loads * self.load, loads * self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::layout::Mapping;
    use crate::platform::Platform;

    fn shards(platform: Platform, reload: bool, memory_share: f64) -> Option<Shards> {
        let mut config = Config::preset("ndsearch").unwrap();
        let figures = [("shards.count", 10.0), ("shards.scale", 3.0), ("shards.reload", f64::from(u8::from(reload)))];
        figures.into_iter().for_each(|(name, value)| config.set(name, value, "test").unwrap());
        let device = Device::new(&config).unwrap();
        let layout = LunCsr::new(device.geometry(), 100, 0, |_| &[1, 2, 3], 128, Mapping::Linear).unwrap();
        let options = SearchOptions {
            platform,
            list: 1,
            k: 1,
            batch: 1,
            dimensions: 128,
            multi_plane: false,
            allocating: false,
            speculating: false,
            memory_share,
            spans: 0,
        };
        Shards::of(&device, &layout, &options)
    }

    #[test]
    fn a_shard_has_its_vectors_and_its_part_of_the_graph() {
        let shards = shards(Platform::CpuShards, false, 0.2).unwrap();
        // 10 of 100 vertices, three times: 128 bytes of coordinates, 8 of the offset, 4 for each of 3 neighbors.
        let bytes = 3 * 10 * (128 + 8 + 3 * 4);
        assert_eq!((shards.bytes, shards.cost(2).1), (bytes, 2 * bytes));
    }

    #[test]
    fn only_platforms_with_too_little_memory_load_shards() {
        assert!(shards(Platform::GpuShards, false, 0.9).is_some());
        assert!(shards(Platform::GpuShards, false, 1.0).is_none());
        assert!(shards(Platform::Gpu, false, 0.1).is_none());
    }

    #[test]
    fn shards_are_loaded_once_a_batch_or_if_they_were_replaced() {
        let loads = |mut shards: Shards| {
            let steps: [&[u32]; 4] = [&[0, 1, 10], &[5, 25], &[11], &[0, 99]];
            steps.map(|step| shards.load(&step.iter().map(|&vertex| (0, vertex)).collect::<Vec<_>>()))
        };
        assert_eq!(loads(shards(Platform::CpuShards, false, 0.2).unwrap()), [2, 1, 0, 1]);
        // Two shards fit. The second step replaces shard 1, the third one shard 0.
        assert_eq!(loads(shards(Platform::CpuShards, true, 0.2).unwrap()), [2, 1, 1, 2]);
    }
}
