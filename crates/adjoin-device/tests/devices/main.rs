//! Every device under the same tests, and the simulated one against a real folder.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod conformance;
mod faults;
mod full_disk;
mod harness;
mod model;
mod queue;
mod traces;
