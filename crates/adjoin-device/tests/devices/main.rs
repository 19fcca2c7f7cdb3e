//! Runs the same tests on every device, and compares the simulated device with a real folder.

#![allow(clippy::unwrap_used)] // a test fails by panicking

mod conformance;
mod faults;
mod full_disk;
mod harness;
mod model;
mod queue;
mod traces;
