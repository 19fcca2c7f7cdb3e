//! Executes the steps of a join from disk, with all pairs of two buckets compared, as DiskJoin does.
//!
//! One thread reads buckets ahead, and the calling thread compares them.

use adjoin::{
    Context, Predicate, Result, Store,
    kernels::{HitMask, PackedColumns, Panel},
    lab::{
        geometry::{Coordinate, Space, Threshold},
        load::{Buckets, ReadAhead, most_read_ahead},
        plan::{Load, Step, Task},
    },
};

use super::Found;

/// Executes steps. The cache holds the buckets that were loaded and not evicted.
///
/// # Errors
/// If a bucket cannot be read.
///
/// # Panics
/// If a step compares a bucket that is not in the cache.
pub(crate) fn execute(context: &Context, store: &Store, predicate: Predicate, steps: &[Step]) -> Result<Found> {
    match Buckets::of(store).space().is_of_bytes() {
        true => execute_on::<u8>(context, store, predicate, steps),
        false => execute_on::<f32>(context, store, predicate, steps),
    }
}

fn execute_on<T: Coordinate>(context: &Context, store: &Store, predicate: Predicate, steps: &[Step]) -> Result<Found> {
    let buckets = Buckets::of(store);
    let threshold = Threshold::new(predicate, buckets.space());
    let load = |(step, at): (&Step, u64)| match *step {
        Step::Load(bucket) => Some(Load { bucket, step: at }),
        _ => None,
    };
    let loads = steps.iter().zip(0..).filter_map(load);
    let bytes = most_read_ahead(buckets.extents(), false);
    let mut ahead = ReadAhead::new(context, "rules", &buckets, false, bytes, loads, &context.cancel)?;
    let found = Found { of_rows: vec![0; store.manifest().source_rows as usize], ..Found::default() };
    let mut run = Run { context, threshold: &threshold, hits: Vec::new(), found };
    let mut held: Vec<Option<HeldBucket<T>>> = (0..buckets.count()).map(|_| None).collect();
    for step in steps {
        match *step {
            Step::Load(bucket) => {
                context.cancel.check()?;
                let stored = ahead.next_bucket()?.expect("the reader reads the bucket of each load");
                let decoded = stored.decode(&buckets)?;
                let vectors = &stored.bytes()[decoded.vectors];
                held[bucket as usize] = Some(HeldBucket::new(context, buckets.space(), vectors, decoded.rows));
            }
            Step::Evict(bucket) => held[bucket as usize] = None,
            Step::Verify(task) => {
                let [a, b] = [task.0, task.1].map(|bucket| held[bucket as usize].as_ref());
                run.compare(task, a.expect("the bucket is held"), b.expect("the bucket is held"));
            }
        }
    }
    Ok(run.found)
}

/// A bucket in the cache.
struct HeldBucket<T: Coordinate> {
    panel: Panel<T>,
    columns: PackedColumns<T>,
    /// Number of each row in its source.
    numbers: Vec<u64>,
    /// Numbers of the rows of `panel`.
    all: Vec<u32>,
}

impl<T: Coordinate> HeldBucket<T> {
    fn new(context: &Context, space: Space<'_>, stored: &[u8], numbers: Vec<u64>) -> Self {
        let mut panel = Panel::zeroed(numbers.len(), space.dimensions());
        T::load(space, context.kernel, stored, &mut panel);
        let all: Vec<u32> = (0..numbers.len() as u32).collect();
        Self { columns: context.kernel.pack(&panel, &all), panel, numbers, all }
    }
}

/// State of a run.
struct Run<'a> {
    context: &'a Context,
    threshold: &'a Threshold,
    hits: Vec<HitMask>,
    found: Found,
}

impl Run<'_> {
    /// Compares all rows of one bucket with all rows of another, or each row of a bucket with those before it.
    fn compare<T: Coordinate>(&mut self, task: Task, a: &HeldBucket<T>, b: &HeldBucket<T>) {
        let is_same = task.0 == task.1;
        let reach = if is_same { a.all.clone() } else { vec![b.all.len() as u32; a.all.len()] };
        self.found.edges += u64::from(!is_same);
        self.found.candidate_pairs += reach.iter().map(|&reach| u64::from(reach)).sum::<u64>();
        self.hits.clear();
        let limit = T::tile_limit(self.threshold);
        let kernel = self.context.kernel;
        self.found.verified_pairs += kernel.within(&a.panel, &a.all, &b.columns, &reach, limit, &mut self.hits);
        for mask in &self.hits {
            for column in mask.columns().filter(|&column| !is_same || column < mask.row) {
                for row in [a.numbers[mask.row as usize], b.numbers[column as usize]] {
                    self.found.of_rows[row as usize] += 1;
                }
                self.found.pairs += 1;
            }
        }
    }
}
