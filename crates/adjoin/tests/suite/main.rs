//! Integration tests across modules, in one binary: one module per property.

#![allow(clippy::unwrap_used)] // also in helpers, where a failed unwrap is a failed test

mod append;
mod at_once;
mod budget;
mod build_parts;
mod changes;
mod collection;
mod cross;
mod damage;
mod datasets;
mod estimate;
mod examples;
mod faults;
mod filtered_joins;
mod filters;
mod groups;
mod grown;
mod hard;
mod harness;
mod index;
mod invariance;
mod model;
mod opened;
mod oracle;
mod parts;
mod plan_golden;
mod plans;
mod radii;
mod real;
mod recall;
mod relayout;
mod resumed;
mod search;
mod serve;
mod shared_budget;
mod sorted;
mod stops;
mod temporary;
mod tidy;
mod traces;
mod verify;
