//! Measures the recall of a graph in memory that grows by inserts and deletes. This is FreshDiskANN's experiment of its
//! Figures 9 and 10.
//!
//! `growth FILE [NAME=VALUE ...]` uses the last 1,000 vectors of a `.u8bin` file as queries. First builds a graph of all
//! others at once, and prints its record. Then begins with a few vectors; each cycle deletes some of the present ones, and
//! inserts others. Deleted vectors are inserted again after all others. Prints a record every few cycles. Names and their
//! defaults:
//!
//! - `first=0.1`: fraction of the vectors that are present at first; `inserts=0.012` and `deletes=0.01`: fraction of all
//!   vectors that a cycle inserts and deletes
//! - `cycles=450`; `every=45`: number of cycles between two records
//! - `rows=0`: number of vectors to use, 0 for all; `threads=2`
//!
//! All recalls are measured with one list length: the shortest one with a 5-recall@5 of 0.95 in the graph that was
//! built at once. Seconds of a record are sums since the last record.

use std::collections::VecDeque;

use crate::deletes::{DeleteRule, delete};
use crate::held_out::{FIVE, HeldOut, RECALL};
use crate::updates::number;
use adjoin::{
    Context, Error, GraphOptions, Random, Result,
    lab::{graph::Graph, report::Stopwatch},
};
use serde_json::{Value, json};

/// Options of the experiment.
struct Asked {
    first: f64,
    inserts: f64,
    deletes: f64,
    cycles: usize,
    every: usize,
    rows: usize,
    threads: usize,
}

/// The vectors, and which of them are present.
struct Growth {
    context: Context,
    held: HeldOut<u8>,
    options: GraphOptions,
    graph: Graph,
    present: Vec<u32>,
    /// Vectors that are not present, in the order in which they are inserted.
    absent: VecDeque<u32>,
    random: Random,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (file, named) = arguments.split_first().ok_or_else(|| Error::input("give a u8bin file"))?;
    let asked = Asked::of(named)?;
    let context = Context::default().with_resources(Some("8GiB"), Some(asked.threads))?;
    let (held, options) = (HeldOut::<u8>::read(&context, file, asked.rows)?, GraphOptions::default());
    let watch = Stopwatch::start();
    let whole = Graph::build(&context, &held.base, &options)?;
    let seconds = watch.seconds();
    let list = held.shortest_list(FIVE, RECALL, |list| held.search(&context, &whole, list));
    let mut record = held.search(&context, &whole, list).record();
    record["build_seconds"] = json!(seconds);
    print("at once", held.base.rows(), list, record);
    drop(whole);

    let count = |share: f64| (share * held.base.rows() as f64).round() as usize;
    let (first, inserts, deletes) = (count(asked.first).max(1), count(asked.inserts), count(asked.deletes));
    let mut growth = Growth::begin(context, held, options, first)?;
    let (mut insert_seconds, mut delete_seconds) = (0.0, 0.0);
    for cycle in 1..=asked.cycles {
        let watch = Stopwatch::start();
        growth.delete(deletes)?;
        let deleted = watch.seconds();
        growth.insert(inserts)?;
        delete_seconds += deleted;
        insert_seconds += watch.seconds() - deleted;
        if cycle % asked.every == 0 {
            let mut record = growth.record(list)?;
            record["insert_seconds"] = json!(std::mem::take(&mut insert_seconds));
            record["delete_seconds"] = json!(std::mem::take(&mut delete_seconds));
            print(&format!("cycle {cycle}"), growth.present.len(), list, record);
        }
    }
    growth.graph.verify()
}

impl Asked {
    fn of(named: &[String]) -> Result<Self> {
        let mut asked = Self { first: 0.1, inserts: 0.012, deletes: 0.01, cycles: 450, every: 45, rows: 0, threads: 2 };
        for argument in named {
            match argument.split_once('=').ok_or_else(|| Error::option(format!("{argument}: give NAME=VALUE")))? {
                ("first", value) => asked.first = number(value)?,
                ("inserts", value) => asked.inserts = number(value)?,
                ("deletes", value) => asked.deletes = number(value)?,
                ("cycles", value) => asked.cycles = number(value)?,
                ("every", value) => asked.every = number(value)?,
                ("rows", value) => asked.rows = number(value)?,
                ("threads", value) => asked.threads = number(value)?,
                (name, _) => return Err(Error::option(format!("there is nothing named {name}"))),
            }
        }
        let shares = [asked.first, asked.inserts, asked.deletes];
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) || asked.every == 0 {
            return Err(Error::option("give fractions of 0 to 1, and every=1 or more"));
        }
        Ok(asked)
    }
}

impl Growth {
    /// Inserts the first vectors of a random order.
    fn begin(context: Context, held: HeldOut<u8>, options: GraphOptions, first: usize) -> Result<Self> {
        let mut random = Random::new(1, "growth");
        let mut order: Vec<u32> = (0..held.base.rows() as u32).collect();
        random.shuffle(&mut order);
        let graph = Graph::empty(&context, order.len(), &options)?;
        let mut growth = Self { context, held, options, graph, present: Vec::new(), absent: order.into(), random };
        growth.insert(first)?;
        Ok(growth)
    }

    /// Deletes some of the vectors, but not the last one.
    fn delete(&mut self, count: usize) -> Result<()> {
        let count = count.min(self.present.len().saturating_sub(1));
        if count == 0 {
            return Ok(());
        }
        self.random.shuffle(&mut self.present);
        let deleted = self.present.split_off(self.present.len() - count);
        delete(&self.context, &mut self.graph, &self.held.base, &deleted, DeleteRule::Neighbors)?;
        self.absent.extend(deleted);
        Ok(())
    }

    /// Inserts some of the absent vectors, or all if there are fewer.
    fn insert(&mut self, count: usize) -> Result<()> {
        let inserted: Vec<u32> = self.absent.drain(..count.min(self.absent.len())).collect();
        self.graph.insert(&self.context, &self.held.base, &inserted)?;
        self.present.extend(inserted);
        Ok(())
    }

    /// Returns recalls and costs of searches among the present vectors. Also inserts these vectors into an empty graph, at
    /// once and in random order, and adds its 5-recall@5.
    fn record(&mut self, list: usize) -> Result<Value> {
        let graph = &self.graph;
        self.held.compare_with(&self.context, |row| graph.is_live(row))?;
        let mut record = self.held.search(&self.context, graph, list).record();
        let mut fresh = Graph::empty(&self.context, graph.vertices(), &self.options)?;
        fresh.insert(&self.context, &self.held.base, &self.present)?;
        record["recall_at_5_of_fresh"] = json!(self.held.search(&self.context, &fresh, list).recalls[FIVE]);
        Ok(record)
    }
}

/// Prints a record with its phase, the number of vectors that are present, and the list length.
fn print(phase: &str, rows: usize, list: usize, mut record: Value) {
    record["phase"] = json!(phase);
    record["rows"] = json!(rows);
    record["list"] = json!(list);
    println!("{record}");
}
