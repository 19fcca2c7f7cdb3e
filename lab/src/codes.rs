//! Ranks vectors by short codes and measures the result. For each kind of code, prints which fraction of the 10
//! nearest vectors of held-out queries is among the first vectors by code distance, and the cost.
//!
//! `codes FILE METRIC BYTES...` takes up to 200,000 rows of FILE, and uses 1,000 of them as queries. METRIC is l2 or
//! cosine.

use std::fmt;

use adjoin::{
    Context, Error, Metric, Random, Result, SourceOptions,
    kernels::{Kernel, Panel},
    lab::{
        geometry::{Coordinate, Space},
        quantize::{Quantizer, Table},
        report::Stopwatch,
        source,
        workers::map_items,
    },
};

use crate::rabitq::{RabitQuantizer, RabitTable};

const ROWS_MAX: u64 = 200_000;
const QUERIES: u64 = 1_000;
const SAMPLE: u64 = 32_768;
/// Number of nearest vectors for which the error of the distances is measured.
const NEAREST: usize = 100;
/// Number of true nearest vectors, and numbers of vectors that are taken by code distance.
const WANTED: usize = 10;
const TAKEN: [usize; 4] = [10, 20, 40, 80];
/// Number of codes for which distances are timed together. A vertex of a graph has as many neighbors.
const TIMED: usize = 64;
const TIMED_ROUNDS: usize = 200;

/// How vectors are encoded.
#[derive(Debug, Clone, Copy)]
enum CodeKind {
    /// Product quantization, as in the engine.
    Product,
    /// RaBitQ: a few bits for each of the leading principal axes, which are rotated at random, and two factors.
    Rabitq,
}

enum Codes {
    Product(Quantizer),
    Rabitq(RabitQuantizer),
}

/// Tables from which the distances of a query to codes are estimated, for both kinds of codes.
#[derive(Default)]
struct Tables(Table, RabitTable);

impl Codes {
    fn train(context: &Context, sample: &Panel<f32>, kind: CodeKind, bytes: usize) -> Result<Self> {
        match kind {
            CodeKind::Product => Ok(Self::Product(Quantizer::train(context, sample, bytes, 1)?)),
            CodeKind::Rabitq => Ok(Self::Rabitq(RabitQuantizer::train(context, sample, bytes, 1)?)),
        }
    }

    fn code_bytes(&self) -> usize {
        match self {
            Self::Product(product) => product.code_bytes(),
            Self::Rabitq(rabitq) => rabitq.code_bytes(),
        }
    }

    fn encode(&self, context: &Context, vectors: &Panel<f32>) -> Result<Vec<u8>> {
        match self {
            Self::Product(product) => product.encode(context, vectors),
            Self::Rabitq(rabitq) => rabitq.encode(context, vectors),
        }
    }

    fn fill_table(&self, kernel: Kernel, query: &[f32], tables: &mut Tables) {
        match self {
            Self::Product(product) => product.fill_table(kernel, query, &mut tables.0),
            Self::Rabitq(rabitq) => rabitq.fill_table(kernel, query, &mut tables.1),
        }
    }

    fn distances(&self, kernel: Kernel, tables: &Tables, codes: &[u8], vertices: &[u32], out: &mut [f32]) {
        match self {
            Self::Product(product) => product.distances(kernel, &tables.0, codes, vertices, out),
            Self::Rabitq(rabitq) => rabitq.distances(kernel, &tables.1, codes, vertices, out),
        }
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Product(product) => product.fmt(out),
            Self::Rabitq(rabitq) => rabitq.fmt(out),
        }
    }
}

/// A set without its queries, and the queries. For each query, `truth` has its nearest rows and their squared
/// distances, nearest first.
struct Setting {
    base: Panel<f32>,
    queries: Panel<f32>,
    truth: Vec<Vec<(f32, u32)>>,
}

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let usage = || Error::option("give FILE l2|cosine BYTES...");
    let [file, metric, sizes @ ..] = arguments else { return Err(usage()) };
    let metric = match metric.as_str() {
        "l2" => Metric::L2,
        "cosine" => Metric::Cosine,
        _ => return Err(usage()),
    };
    let sizes: Vec<usize> = sizes.iter().filter_map(|bytes| bytes.parse().ok()).collect();
    print(file, metric, &sizes)
}

fn print(file: &str, metric: Metric, sizes: &[usize]) -> Result<()> {
    let context = Context::default().with_memory(8 << 30);
    let setting = Setting::open(&context, file, metric)?;
    println!("{file}: {} rows, {} queries, {} dimensions", setting.base.rows(), QUERIES, setting.base.dimensions());
    println!(
        "bytes kind              in 10  in 20  in 40  in 80   bias  error  train s  encode us  table us  ns a distance"
    );
    for &bytes in sizes {
        for kind in [CodeKind::Product, CodeKind::Rabitq] {
            setting.line(&context, kind, bytes)?;
        }
    }
    Ok(())
}

/// Copies rows of a panel into a new panel.
fn gather(from: &Panel<f32>, rows: &[u64]) -> Panel<f32> {
    let mut to = Panel::zeroed(rows.len(), from.dimensions());
    for (at, &row) in rows.iter().enumerate() {
        to.row_mut(at).copy_from_slice(&from.row(row as usize)[..from.dimensions()]);
    }
    to
}

/// Reads the first rows of a file as floats. If the metric is cosine, they are scaled to length 1.
fn read(context: &Context, file: &str, metric: Metric) -> Result<Panel<f32>> {
    let source = source::open(context, &[file.to_owned()], &SourceOptions::default())?;
    let (vectors, rows) = (source.info().vectors, source.info().rows.min(ROWS_MAX) as usize);
    let space = Space::plain(vectors, metric);
    let mut all = Panel::zeroed(rows, vectors.dimensions);
    let (mut scan, mut next) = (source.scan(1 << 20)?, 0);
    while let Some(batch) = scan.next_batch()? {
        let mut floats = Panel::zeroed(batch.rows, vectors.dimensions);
        if space.is_of_bytes() {
            let mut bytes = Panel::<u8>::zeroed(batch.rows, vectors.dimensions);
            u8::load(space, context.kernel, &batch.bytes, &mut bytes);
            for row in 0..batch.rows {
                floats.row_mut(row).iter_mut().zip(bytes.row(row)).for_each(|(to, &x)| *to = x.into());
            }
        } else {
            f32::load(space, context.kernel, &batch.bytes, &mut floats);
        }
        for row in 0..batch.rows.min(rows - next) {
            all.row_mut(next + row).copy_from_slice(&floats.row(row)[..vectors.dimensions]);
        }
        next += batch.rows.min(rows - next);
        if next == rows {
            return Ok(all);
        }
    }
    Err(Error::input(format!("{file} ends early")))
}

impl Setting {
    fn open(context: &Context, file: &str, metric: Metric) -> Result<Self> {
        let all = read(context, file, metric)?;
        let held_out = Random::new(1, "queries").ascending_sample(QUERIES, all.rows() as u64);
        let mut left = held_out.iter().copied().peekable();
        let base: Vec<u64> = (0..all.rows() as u64).filter(|row| left.next_if_eq(row).is_none()).collect();
        let (base, queries) = (gather(&all, &base), gather(&all, &held_out));
        let nearest = |distances: &mut Vec<f32>, query: usize| {
            context.kernel.one_to_many(queries.row(query), &base, distances);
            Ok(first(distances, NEAREST))
        };
        let state = || vec![0.0; base.rows()];
        let truth = map_items(context.threads, QUERIES as usize, &context.cancel, state, nearest)?;
        Ok(Self { base, queries, truth })
    }

    /// Measures one kind of codes and prints the results.
    fn line(&self, context: &Context, kind: CodeKind, bytes: usize) -> Result<()> {
        let rows =
            Random::new(2, "sample").ascending_sample(SAMPLE.min(self.base.rows() as u64), self.base.rows() as u64);
        let sample = gather(&self.base, &rows);
        let mut watch = Stopwatch::start();
        let quantizer = Codes::train(context, &sample, kind, bytes)?;
        let train_s = watch.lap();
        let codes = quantizer.encode(context, &self.base)?;
        let encode_us = watch.lap() * 1e6 / self.base.rows() as f64;
        let vertices: Vec<u32> = (0..self.base.rows() as u32).collect();
        let judge = |(table, distances): &mut (Tables, Vec<f32>), query: usize| {
            quantizer.fill_table(context.kernel, self.queries.row(query), table);
            quantizer.distances(context.kernel, table, &codes, &vertices, distances);
            Ok(self.judge(query, distances))
        };
        let state = || (Tables::default(), vec![0.0; vertices.len()]);
        let judged = map_items(context.threads, self.truth.len(), &context.cancel, state, judge)?;
        let mean = |of: &dyn Fn(&Judged) -> f64| judged.iter().map(of).sum::<f64>() / judged.len() as f64;
        let shares: Vec<String> = (0..TAKEN.len()).map(|k| format!("{:6.3}", mean(&|j| j.shares[k]))).collect();
        let (table_us, distance_ns) = self.times(context, &quantizer, &codes);
        println!(
            "{:5} {:16} {} {:+6.3} {:6.3} {:8.2} {encode_us:10.2} {table_us:9.1} {distance_ns:14.1}",
            quantizer.code_bytes(),
            quantizer.to_string(),
            shares.join(" "),
            mean(&|j| j.bias),
            mean(&|j| j.squared_error).sqrt(),
            train_s,
        );
        Ok(())
    }

    /// Compares the code distances of all vectors to a query with the true nearest vectors.
    fn judge(&self, query: usize, distances: &[f32]) -> Judged {
        let truth = &self.truth[query];
        let by_code = first(distances, TAKEN[TAKEN.len() - 1]);
        let wanted: Vec<u32> = truth[..WANTED].iter().map(|&(_, row)| row).collect();
        let share =
            |taken| by_code[..taken].iter().filter(|(_, row)| wanted.contains(row)).count() as f64 / WANTED as f64;
        // Errors are summed over all nearest vectors before dividing. Otherwise, near-duplicates would dominate.
        let error = |&(distance, row): &(f32, u32)| f64::from(distances[row as usize]) - f64::from(distance);
        let true_sum = |power| truth.iter().map(|&(distance, _)| f64::from(distance).powi(power)).sum::<f64>();
        Judged {
            shares: TAKEN.map(share),
            bias: truth.iter().map(error).sum::<f64>() / true_sum(1),
            squared_error: truth.iter().map(|near| error(near).powi(2)).sum::<f64>() / true_sum(2),
        }
    }

    /// Returns the microseconds to fill a table, and the nanoseconds per distance to codes at random positions.
    fn times(&self, context: &Context, quantizer: &Codes, codes: &[u8]) -> (f64, f64) {
        let mut table = Tables::default();
        let mut watch = Stopwatch::start();
        for query in 0..self.queries.rows() {
            quantizer.fill_table(context.kernel, self.queries.row(query), &mut table);
        }
        let table_us = watch.lap() * 1e6 / self.queries.rows() as f64;
        let mut random = Random::new(3, "vertices");
        let vertices: Vec<u32> = (0..TIMED * 1_000).map(|_| random.below(self.base.rows() as u64) as u32).collect();
        let mut out = [0.0; TIMED];
        // The best of many rounds counts, since other programs disturb some rounds.
        let mut best = f64::INFINITY;
        for _ in 0..TIMED_ROUNDS {
            watch.lap();
            for vertices in vertices.chunks_exact(TIMED) {
                quantizer.distances(context.kernel, &table, codes, vertices, &mut out);
                std::hint::black_box(&mut out);
            }
            best = best.min(watch.lap());
        }
        (table_us, best * 1e9 / vertices.len() as f64)
    }
}

/// Measurements of a code for one query.
struct Judged {
    shares: [f64; TAKEN.len()],
    bias: f64,
    squared_error: f64,
}

/// Returns the `count` smallest distances with their rows, in ascending order.
fn first(distances: &[f32], count: usize) -> Vec<(f32, u32)> {
    let mut all: Vec<(f32, u32)> = distances.iter().copied().zip(0..).collect();
    let by = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    all.select_nth_unstable_by(count - 1, by);
    all.truncate(count);
    all.sort_unstable_by(by);
    all
}
