//! The first scan of the source: checks every row and samples some.

use super::memory::Sizes;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::geometry::{Coding, Space};
use crate::base::options::VectorType;
use crate::base::random::Random;
use crate::base::report::Stopwatch;
use crate::source::VectorSource;
use crate::store::{
    BuildOptions, Draw, Intake, PartitionSizes, Partitions, Scanned, TrainingSample, UsableRows, fix_or_skip, tell,
};

/// Result of the first scan.
pub(super) struct Survey {
    pub(super) scanned: Scanned,
    /// Stored vectors of the rows that are compared with all rows. `places` are their positions among the usable
    /// rows, ascending.
    pub(super) compared: Vec<u8>,
    pub(super) places: Vec<u64>,
    /// Rows on which centers are trained.
    pub(super) training: TrainingSample,
    /// Bytes of all ids.
    pub(super) id_bytes: u64,
    /// Seconds of a scan.
    pub(super) scan_seconds: f64,
}

/// A source that is scanned several times.
#[derive(Clone, Copy)]
pub(super) struct Scans<'a> {
    pub(super) context: &'a Context,
    pub(super) source: &'a dyn VectorSource,
    pub(super) options: &'a BuildOptions,
    pub(super) sizes: &'a Sizes,
}

impl Scans<'_> {
    pub(super) fn vectors(&self) -> VectorType {
        self.source.info().vectors
    }

    /// Passes all usable rows to `take`, in order. Fails if [`Intake::scan`] fails.
    pub(super) fn scan(&self, phase: &str, take: impl FnMut(UsableRows) -> Result<()>) -> Result<Scanned> {
        let Self { context, source, options, sizes } = *self;
        context.progress.begin(phase, "rows", source.info().rows);
        let (metric, on_bad, batch_bytes) = (options.metric, options.on_bad, sizes.batch);
        Intake { context, source, metric, on_bad, left_out: None, remedy: fix_or_skip, batch_bytes }.scan(take)
    }

    /// Checks all rows and samples some.
    ///
    /// # Errors
    /// If rows are invalid or cannot be read, or if fewer than two are usable.
    pub(super) fn survey(&self) -> Result<Survey> {
        tell(self.context, self.source);
        let watch = Stopwatch::start();
        let mut id_bytes = 0;
        let mut draws = Draws::new(self, self.source.info().rows);
        let scanned = self.scan("check", |usable| {
            id_bytes += usable.ids.bytes();
            draws.take(&usable)
        })?;
        let scan_seconds = watch.seconds();
        match scanned.usable_rows {
            0 => return Err(Error::input("no row of the source has a usable vector")),
            1 => return Err(Error::input("the source has only one usable row, so no pairs; give more rows")),
            _ if scanned.skipped_rows > 0 => {
                // The sample was drawn for the number of all rows, but some rows are not usable. So the sample is
                // drawn again for the number of usable rows.
                draws = Draws::new(self, scanned.usable_rows);
                self.scan("draw", |usable| draws.take(&usable))?;
            }
            _ => {}
        }
        let Draws { compared, training, places } = draws;
        let compared = compared.finish()?.stored(self.vectors())?;
        Ok(Survey { scanned, compared, places, training: training.finish()?, id_bytes, scan_seconds })
    }
}

impl Survey {
    /// Returns the coding that rounds floats to bytes for comparisons, if bytes suffice.
    ///
    /// # Errors
    /// If the sampled rows cannot be read.
    pub(super) fn coding(&self, scans: &Scans<'_>) -> Result<Option<Coding>> {
        let plain = Space::plain(scans.vectors(), scans.options.metric);
        self.training.fit_coding(scans.context.kernel, plain, scans.options.seed)
    }
}

struct Draws {
    compared: Draw,
    training: Draw,
    places: Vec<u64>,
}

impl Draws {
    /// Chooses the samples among `rows` usable rows.
    fn new(scans: &Scans<'_>, rows: u64) -> Self {
        let Scans { context, options, sizes, .. } = *scans;
        // Each sample has its own stream of random numbers, so the samples are independent.
        let pick = |purpose, count: u64| Random::new(options.seed, purpose).ascending_sample(count.min(rows), rows);
        let draw = |picked, name, bytes| {
            let sizes = PartitionSizes::within(bytes, 1);
            Draw::new(picked, Partitions::new(context, &context.temporary(None), name, sizes))
        };
        let places = pick("estimate", sizes.compared);
        let training = pick("training sample", sizes.training);
        Self {
            compared: draw(places.clone(), "compared", sizes.compared_bytes),
            training: draw(training, "sample", sizes.training_bytes),
            places,
        }
    }

    fn take(&mut self, usable: &UsableRows) -> Result<()> {
        self.compared.take(usable)?;
        self.training.take(usable)
    }
}
