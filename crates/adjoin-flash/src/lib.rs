//! A model of flash devices. It answers the question: *how long would this workload take on another device?*
//!
//! A [`Device`] is created from a [`Config`], in which each figure has a unit and a source. [`replay()`] estimates
//! how long the reads of a trace would take on the device. [`search()`] takes queries, and a graph that is laid out
//! on the device ([`LunCsr`]). It estimates how long a [`Platform`] would need for the queries. A platform is a
//! machine that reads pages, or logic next to the page buffers as in NDSearch (Wang et al., ISCA 2024).
//!
//! All results are computed, none are measured. The model uses no file, clock or thread, so equal inputs give equal
//! results.
//!
//! `machine.rs` simulates the device with the events of `events.rs`. `search/` drives it with the walks of queries.
//! `replay.rs` drives it with the reads of a trace, in the order of `schedule.rs`.
//!
//! ```
//! use adjoin_flash::{Config, Device, ReplayOptions, TraceRead, replay};
//!
//! let device = Device::new(&Config::preset("z-nand")?)?;
//! // A thousand reads of 4 KiB, each after the previous one.
//! let read = |k: u64| TraceRead {
//!     step: Some(k),
//!     after: k.checked_sub(1),
//!     offset: k << 20,
//!     bytes: 4_096,
//!     ..TraceRead::default()
//! };
//! let report = replay(&device, (0..1_000).map(read).map(Ok), &ReplayOptions::default())?;
//! assert!(report.latency_mean > 5e-6 && report.latency_mean < 50e-6);
//! # Ok::<(), adjoin_flash::FlashError>(())
//! ```
#![forbid(unsafe_code)]

mod config;
mod device;
mod ecc;
mod error;
mod events;
mod layout;
mod machine;
mod place;
mod platform;
mod replay;
mod report;
mod schedule;
mod search;
mod timeline;

pub use config::{Config, Figure};
pub use device::{Device, Geometry, Ps, SECOND};
pub use ecc::error_factors;
pub use error::FlashError;
pub use layout::{LunCsr, Mapping, RefreshTo, bandwidth};
pub use machine::PageAddress;
pub use place::Place;
pub use platform::Platform;
pub use replay::{ReplayOptions, ReplayReport, Spread, replay};
pub use report::{Counts, Energy, Use, storage_density};
pub use schedule::{Schedule, TraceRead};
pub use search::{Distances, Hit, SearchOptions, SearchReport, Stages, Start, search};
pub use timeline::{Span, Track};
