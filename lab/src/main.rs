//! The laboratory. Its experiments compare adjoin with methods of papers, and compute the tables of the documents.
//!
//! `adjoin-lab EXPERIMENT ARGUMENTS` runs one experiment and prints its measurements. Each module documents its
//! arguments. The engine executes plans. The laboratory computes plans that only a table needs.

#![allow(clippy::unwrap_used, reason = "a poisoned lock or a set that cannot be read has no figures")]

mod batches;
mod codes;
mod collection;
mod deletes;
mod flash_tables;
mod growth;
mod held_out;
mod hnsw;
mod index;
mod joins;
mod layouts;
mod nsg;
mod one_query;
mod other_joins;
mod page_orders;
mod product_codes;
mod promises;
mod rabitq;
mod rules;
mod serve;
#[cfg(test)]
#[path = "../../crates/adjoin/tests/shared/sets.rs"]
mod test_sets;
mod updated_graph;
mod updates;
mod vamana;
mod walks;

use std::process::ExitCode;

use adjoin::{Error, Result};
#[cfg(test)]
use adjoin::{Random, kernels};

/// Function that runs an experiment with its arguments.
type Experiment = fn(&[String]) -> Result<()>;

/// Names of all experiments, with the functions that run them.
const EXPERIMENTS: [(&str, Experiment); 16] = [
    ("build", joins::build),
    ("codes", codes::run),
    ("flash-tables", flash_tables::run),
    ("growth", growth::run),
    ("index", index::run),
    ("join", joins::run),
    ("layouts", layouts::run),
    ("live", collection::run),
    ("loads", joins::loads::run),
    ("other-joins", other_joins::run),
    ("promises", promises::run),
    ("relayout", page_orders::run),
    ("search", walks::run),
    ("serve", serve::run),
    ("updates", updates::run),
    ("vamana", vamana::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let name = arguments.first().map_or("", String::as_str);
            eprintln!("adjoin-lab {name}: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    let experiment = arguments.first().and_then(|name| EXPERIMENTS.iter().find(|(known, _)| known == name));
    let Some((_, experiment)) = experiment else {
        let names = EXPERIMENTS.map(|(name, _)| name).join(", ");
        return Err(Error::option(format!("name one of the experiments: {names}")));
    };
    experiment(&arguments[1..])
}
