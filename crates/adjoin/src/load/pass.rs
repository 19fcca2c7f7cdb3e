//! One pass over all buckets.

use adjoin_kernels::Panel;

use super::bucket::LoadedBucket;
use super::buckets::Buckets;
use super::kept::KeptBuckets;
use super::read_ahead::{ReadAhead, StoredBucket};
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

/// A bucket of a pass.
enum PassBucket {
    /// A bucket that an earlier pass has loaded.
    Kept(u32),
    Stored(StoredBucket),
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

    /// As [`Self::run`], but does not read buckets that are in `kept`. Others are added to `kept` if it has room.
    ///
    /// # Errors
    /// Fails as [`Self::run`] does.
    pub(crate) fn run_keeping<S, R: Send>(
        &self,
        kept: &KeptBuckets<T>,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, u32, &LoadedBucket<T>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let (buckets, first) = (self.buckets, kept.first());
        let ready = first.as_ref().map_or(0, |first| first.ready(buckets));
        let mut here = (0..ready).filter(|&number| buckets.members(number) > 0);
        let loads = Load::each(buckets.count());
        let mut ahead = self.ahead(loads.filter(|load| load.bucket >= ready && buckets.members(load.bucket) > 0))?;
        ahead.begin()?;
        let next = || match here.next() {
            Some(number) => {
                self.context.progress.advance(number.into());
                self.context.cancel.check().map(|()| Some(PassBucket::Kept(number)))
            }
            None => Ok(self.next_stored(&mut ahead)?.map(PassBucket::Stored)),
        };
        map_stream(self.context.threads, next, state, |state, bucket| {
            let (number, bucket) = match bucket {
                PassBucket::Kept(number) => {
                    let kept = first.as_ref().and_then(|first| first.get(number));
                    return work(state, number, kept.expect("the bucket is ready"));
                }
                PassBucket::Stored(stored) => (stored.number(), self.load(stored)?),
            };
            match first.as_ref().and_then(|first| first.place(number)) {
                Some(place) => work(state, number, place.get_or_init(|| bucket)),
                None => work(state, number, &bucket),
            }
        })
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
        let mut ahead = self.ahead(loads)?;
        let next = || self.next_stored(&mut ahead);
        map_stream(self.context.threads, next, state, |state, stored| {
            let number = stored.number();
            work(state, number, &self.load(stored)?)
        })
    }

    fn ahead<'b>(&'b self, loads: impl Iterator<Item = Load> + 'b) -> Result<ReadAhead<'b>> {
        let Self { context, buckets, phase, read_ahead, .. } = *self;
        context.progress.begin(phase, "buckets", buckets.count().into());
        Ok(ReadAhead::new(context, phase, buckets, false, read_ahead, loads, &context.cancel)?.in_parts())
    }

    fn next_stored(&self, ahead: &mut ReadAhead<'_>) -> Result<Option<StoredBucket>> {
        self.context.cancel.check()?;
        let stored = ahead.next_bucket()?;
        stored.iter().for_each(|stored| self.context.progress.advance(stored.number().into()));
        Ok(stored)
    }

    fn load(&self, stored: StoredBucket) -> Result<LoadedBucket<T>> {
        LoadedBucket::load(self.buckets, self.context.kernel, self.centers, stored)
    }

    /// Returns the memory in bytes of all workers. Each holds one bucket, which may be the largest.
    pub(crate) fn bytes(threads: usize, buckets: &Buckets<'_>) -> u64 {
        let of = |number| LoadedBucket::<T>::memory_bytes(buckets, number, false);
        let largest = (0..buckets.count()).map(of).max().unwrap_or(0);
        threads.max(1) as u64 * (largest + LoadedBucket::<T>::loading_bytes(buckets, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::tests::store;

    /// Returns the bytes that each of three passes requests, if `bytes` bytes are free. The memory of the kept buckets
    /// is taken before the last pass.
    fn requested(bytes: u64) -> [u64; 3] {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path());
        let (buckets, context) = (&Buckets::of(&store), &Context::default().with_reserved(bytes, "passes").unwrap());
        let centers = &buckets.centers::<u8>().unwrap();
        let read_ahead = crate::load::least_read_ahead(buckets.extents(), false);
        let pass = BucketPass { context, buckets, centers, phase: "pass", read_ahead };
        let rows_of = |_: &mut (), number: u32, bucket: &LoadedBucket<u8>| {
            Ok((number, (0..bucket.len() as u32).map(|member| bucket.row(member)).collect::<Vec<_>>()))
        };
        let expected = pass.run(|| (), rows_of).unwrap();
        let kept = KeptBuckets::none();
        kept.make_room(context, buckets);
        let mut before = buckets.read_counts().bytes_requested;
        [false, false, true].map(|is_taken| {
            let _taken = is_taken.then(|| context.reserve(bytes, "other work").unwrap());
            assert_eq!(pass.run_keeping(&kept, || (), rows_of).unwrap(), expected);
            let now = buckets.read_counts().bytes_requested;
            now - std::mem::replace(&mut before, now)
        })
    }

    #[test]
    fn kept_buckets_are_read_once_until_other_work_takes_their_memory() {
        let [all, again, taken] = requested(100 << 20);
        assert!(all > 0);
        assert_eq!((again, taken), (0, all));
        // A bucket takes a few kilobytes. Half of the memory is enough for some of the 20 buckets.
        let [all, again, taken] = requested(64 << 10);
        assert!(again > 0 && again < all && taken == all, "{again} of {all}");
        assert_eq!(requested(2 << 10), [all; 3], "too few to be worthwhile");
    }
}
