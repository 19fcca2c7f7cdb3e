//! Metrics of shards, in the text format of Prometheus.

use std::sync::atomic::Ordering;

use super::shard::Shard;
use crate::metrics::family;

/// Returns the metrics of all shards.
pub(crate) fn text(shards: &[Shard]) -> String {
    let mut text = String::new();
    let available = shards.iter().map(|shard| {
        let is_available = shard.facts().is_some() && shard.down().is_none();
        (format!("{{shard=\"{}\"}}", shard.url()), u64::from(is_available))
    });
    family(&mut text, "adjoin_shard_available", "gauge", "Whether the shard answered last.", available);
    let requests = shards.iter().flat_map(|shard| {
        let counts =
            [("answered", &shard.counts.answered), ("late", &shard.counts.late), ("failed", &shard.counts.failed)];
        counts.map(|(outcome, count)| {
            (format!("{{shard=\"{}\",outcome=\"{outcome}\"}}", shard.url()), count.load(Ordering::Relaxed))
        })
    });
    family(&mut text, "adjoin_shard_requests_total", "counter", "Requests to the shard, by outcome.", requests);
    text
}
