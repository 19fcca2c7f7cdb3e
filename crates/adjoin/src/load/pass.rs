//! One pass over all buckets.

use adjoin_kernels::Panel;

use super::bucket::LoadedBucket;
use super::buckets::Buckets;
use super::read_ahead::ReadAhead;
use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::geometry::Coordinate;
use crate::base::workers::map_stream;
use crate::plan::Load;

/// A pass over all buckets. Workers load and process the buckets.
pub(crate) struct BucketPass<'a, T: Coordinate> {
    pub(crate) context: &'a Context,
    pub(crate) buckets: &'a Buckets<'a>,
    pub(crate) centers: &'a Panel<T>,
    /// Name of the pass in progress reports and traces: one word.
    pub(crate) phase: &'static str,
    /// Bytes for read-ahead.
    pub(crate) read_ahead: u64,
}

impl<T: Coordinate> BucketPass<'_, T> {
    /// Calls `work` with each bucket that has filtered members, on several threads. Returns the results in bucket
    /// order.
    ///
    /// # Errors
    /// Fails if the device fails, bytes are damaged, or `work` fails.
    pub(crate) fn run<S, R: Send>(
        &self,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u32, &LoadedBucket<T>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let loads = Load::each(self.buckets.count());
        self.run_over(loads.filter(|load| self.buckets.members(load.bucket) > 0), state, work)
    }

    /// Calls `work` with the buckets in `loads`, whose numbers must ascend. See [`Self::run`].
    ///
    /// # Errors
    /// Fails as [`Self::run`] does.
    pub(crate) fn run_over<S, R: Send>(
        &self,
        loads: impl Iterator<Item = Load>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u32, &LoadedBucket<T>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let Self { context, buckets, centers, phase, read_ahead } = *self;
        context.progress.begin(phase, "buckets", buckets.count().into());
        let mut ahead = ReadAhead::new(context, phase, buckets, false, read_ahead, loads, &context.cancel)?.in_parts();
        let next = || {
            context.cancel.check()?;
            let stored = ahead.next_bucket()?;
            stored.iter().for_each(|stored| context.progress.advance(stored.number().into()));
            Ok(stored)
        };
        map_stream(context.threads, next, state, |state, stored| {
            let number = stored.number();
            let bucket = LoadedBucket::load(buckets, context.kernel, centers, stored)?;
            work(state, number, &bucket)
        })
    }

    /// Returns the memory in bytes of all workers. Each holds one bucket, which may be the largest.
    pub(crate) fn bytes(threads: usize, buckets: &Buckets<'_>) -> u64 {
        let of = |number| LoadedBucket::<T>::memory_bytes(buckets, number, false);
        let largest = (0..buckets.count()).map(of).max().unwrap_or(0);
        threads.max(1) as u64 * (largest + LoadedBucket::<T>::loading_bytes(buckets, false))
    }
}
