//! The level of the processor as a value (the idea of `diskann-wide` in DiskANN): whoever holds a [`Kernel`] has
//! proof that its instructions exist, so its methods are safe and nothing is looked up inside a loop.

use std::fmt;

use crate::centroids::{Centroids, Short};
use crate::columns::PackedColumns;
use crate::lists::Lists;
use crate::lookup::{CodeRows, Lookup, TABLE_ENTRIES};
use crate::near::Near;
use crate::panel::Panel;
use crate::reference::Reference;
use crate::rounding::{Grid, Rounding};
use crate::tile::{self, HitMask, LeastOfColumn, Tiles};
use crate::wide::Wide;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512};

/// An element of a vector: `u8` or `f32`.
pub trait Scalar: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// A squared distance: `u32` for `u8`, exact; `f32` for `f32`.
    type Distance: Copy + Default + PartialOrd + fmt::Debug + Send + Sync + 'static;

    /// The difference of two squared distances: `i32` or `f32`.
    type Margin: Copy + Default + PartialOrd + Into<f64> + fmt::Debug + Send + Sync + 'static;

    /// No computed distance is larger.
    const FARTHEST: Self::Distance;

    /// No margin is larger.
    const MARGIN_MAX: Self::Margin;

    /// The squared distance to another center less that to the own one.
    fn margin(other: Self::Distance, own: Self::Distance) -> Self::Margin;
}

impl Scalar for u8 {
    type Distance = u32;
    type Margin = i32;
    const FARTHEST: u32 = u32::MAX;
    const MARGIN_MAX: i32 = i32::MAX;

    fn margin(other: u32, own: u32) -> i32 {
        other.wrapping_sub(own).cast_signed() // both are below 2^31
    }
}

impl Scalar for f32 {
    type Distance = f32;
    type Margin = f32;
    const FARTHEST: f32 = f32::INFINITY;
    const MARGIN_MAX: f32 = f32::INFINITY;

    fn margin(other: f32, own: f32) -> f32 {
        other - own
    }
}

#[allow(private_interfaces)] // what `tiles` names cannot be named outside, and neither can `tiles`
mod sealed {
    use super::{Level, Lists, Scalar, Tiles};

    /// Only the elements that every level implements.
    pub trait Sealed: Sized {
        /// The level's functions for this element.
        fn tiles(level: &Level) -> &dyn Tiles<Self>
        where
            Self: Scalar;

        /// The place of the least distance, the first of equal ones.
        fn first_least(lists: &dyn Lists, distances: &[Self::Distance]) -> usize
        where
            Self: Scalar;
    }
}

macro_rules! seal {
    ($scalar:ty, $first_least:ident) => {
        #[allow(private_interfaces)] // as in `sealed`
        impl sealed::Sealed for $scalar {
            fn tiles(level: &Level) -> &dyn Tiles<Self> {
                match level {
                    Level::Reference(token) => token,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2(token) => token,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512(token) => token,
                }
            }

            fn first_least(lists: &dyn Lists, distances: &[<Self as Scalar>::Distance]) -> usize {
                lists.$first_least(distances)
            }
        }
    };
}

seal!(u8, first_least_u32);
seal!(f32, first_least_f32);

/// What a level makes of plain loops.
trait Loops: Lists + Lookup + Near + Rounding + Short + Wide {}

impl<L: Lists + Lookup + Near + Rounding + Short + Wide> Loops for L {}

/// A level and the proof of it.
#[derive(Clone, Copy, Debug)]
enum Level {
    Reference(Reference),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

/// A level of the instruction set that this processor has. All levels give the same distances, bit for bit, and
/// compute the same number of pairs; they differ in speed and in the layout of [`PackedColumns`].
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    level: Level,
}

impl Kernel {
    /// The best level of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx512 = Avx512::detect().map(Level::Avx512);
            if let Some(level) = avx512.or_else(|| Avx2::detect().map(Level::Avx2)) {
                return Self { level };
            }
        }
        Self { level: Level::Reference(Reference) }
    }

    /// The level `reference`, `avx2` or `avx512-vnni`; `None` if there is no such level or the processor lacks it.
    pub fn named(name: &str) -> Option<Self> {
        let level = match name {
            "reference" => Some(Level::Reference(Reference)),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Avx2::detect().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx512-vnni" => Avx512::detect().map(Level::Avx512),
            _ => None,
        };
        level.map(|level| Self { level })
    }

    /// Every level of this processor, slowest first.
    pub fn available() -> Vec<Self> {
        ["reference", "avx2", "avx512-vnni"].into_iter().filter_map(Self::named).collect()
    }

    /// The name that [`Kernel::named`] takes.
    pub fn name(&self) -> &'static str {
        match self.level {
            Level::Reference(_) => "reference",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => "avx512-vnni",
        }
    }

    /// Columns whose vector `k` is `panel.row(order[k])`.
    ///
    /// # Panics
    /// If `order` names a row that the panel lacks.
    pub fn pack<T: Scalar>(&self, panel: &Panel<T>, order: &[u32]) -> PackedColumns<T> {
        let mut columns = PackedColumns::empty(self.name());
        self.pack_into(panel, order, &mut columns);
        columns
    }

    /// Like [`Kernel::pack`], within the memory that `columns` holds already where that suffices. What the columns
    /// were before, their level too, does not matter.
    ///
    /// # Panics
    /// If `order` names a row that the panel lacks.
    pub fn pack_into<T: Scalar>(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>) {
        columns.level = self.name();
        columns.norms.clear();
        T::tiles(&self.level).pack(panel, order, columns);
    }

    /// Squared distances of `x`, a padded row of a panel of the same dimensions, to every row: `out[k]` is that to
    /// `panel.row(k)`.
    ///
    /// # Panics
    /// If `x` has not the panel's stride or `out` not its number of rows.
    pub fn one_to_many<T: Scalar>(&self, x: &[T], panel: &Panel<T>, out: &mut [T::Distance]) {
        assert_eq!(x.len(), panel.stride(), "elements of a padded row");
        assert_eq!(out.len(), panel.rows(), "one distance for each row");
        T::tiles(&self.level).one_to_many(x, panel, out);
    }

    /// Squared distances of `x`, a padded row of a panel of the same dimensions, to some rows that lie apart: `out[k]` is
    /// that to `panel.row(rows[k])`, as [`Kernel::one_to_many`] computes it.
    ///
    /// # Panics
    /// If `x` has not the panel's stride, `out` is not as long as `rows`, or the panel lacks one of them.
    pub fn one_to_some<T: Scalar>(&self, x: &[T], panel: &Panel<T>, rows: &[u32], out: &mut [T::Distance]) {
        assert_eq!(x.len(), panel.stride(), "elements of a padded row");
        assert_eq!(out.len(), rows.len(), "one distance for each row");
        tile::one_to_some(T::tiles(&self.level), x, panel, rows, out);
    }

    /// Squared distance of two padded rows of panels of the same dimensions, as [`Kernel::one_to_many`] computes it.
    ///
    /// # Panics
    /// If their lengths differ.
    pub fn distance<T: Scalar>(&self, x: &[T], y: &[T]) -> T::Distance {
        assert_eq!(x.len(), y.len(), "elements of a padded row");
        T::tiles(&self.level).distance(x, y)
    }

    /// Inner product in f64, within [`crate::wide_error`] of the sum in the order of the elements.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn dot_wide(&self, x: &[f32], y: &[f32]) -> f64 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Wide::dot(self.loops(), x, y)
    }

    /// Squared distance in f64, within [`crate::wide_error`] of the sum in the order of the elements.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn squared_distance_wide(&self, x: &[f32], y: &[f32]) -> f64 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Wide::squared_distance(self.loops(), x, y)
    }

    /// Inner product in f32, within [`crate::near_error`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn dot_near(&self, x: &[f32], y: &[f32]) -> f32 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Near::dot(self.loops(), x, y)
    }

    /// Squared distance in f32, within [`crate::near_error`].
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn squared_distance_near(&self, x: &[f32], y: &[f32]) -> f32 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Near::squared_distance(self.loops(), x, y)
    }

    /// Writes finite halves, as stored, as the equal floats.
    ///
    /// # Panics
    /// If there is no float for each half.
    pub fn halves_as_floats(&self, halves: &[u8], floats: &mut [f32]) {
        assert_eq!(halves.len(), 2 * floats.len(), "a float for each half");
        self.loops().halves_as_floats(halves, floats);
    }

    /// Rounds each coordinate of `vector * scale`, halves up, to the nearest byte of the grid; returns the squared distance
    /// to what that became, in f32 and in the order of the lanes. What is not a number becomes byte 0.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn round_to_bytes(&self, vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 {
        assert_eq!(vector.len(), grid.origin.len(), "coordinates of the origin");
        assert_eq!(vector.len(), bytes.len(), "a byte for each coordinate");
        self.loops().round(vector, scale, grid, bytes)
    }

    /// Place of the least distance, the first of equal ones; 0 where there is none.
    pub fn first_least<T: Scalar>(&self, distances: &[T::Distance]) -> usize {
        T::first_least(self.loops(), distances)
    }

    /// Adds `value << 32 | place` of each value that is at most `most`, in the order of places: sorted as integers, they
    /// are in the order of values, then of places.
    pub fn at_most(&self, values: &[u32], most: u32, found: &mut Vec<u64>) {
        self.loops().at_most(values, most, found);
    }

    /// How many values are at most `most`.
    pub fn count_at_most(&self, values: &[u32], most: u32) -> u64 {
        self.loops().count_at_most(values, most)
    }

    /// Into `out[r]`, the nearest centroid of `points.row(r)` from the coordinate `start` on, the first of equally near ones, and
    /// its squared distance: a sum in f32 in the order of the coordinates. A point of which no distance is finite gets centroid
    /// 0 and infinity.
    ///
    /// # Panics
    /// If there are fewer points than places in `out`, or these end before the last coordinate.
    pub fn nearest_centroids(
        &self,
        (points, start): (&Panel<f32>, usize),
        centroids: &Centroids,
        out: &mut [(u32, f32)],
    ) {
        assert!(out.len() <= points.rows(), "a point for each place");
        assert!(start + centroids.dimensions() <= points.dimensions(), "coordinates of points");
        self.loops().nearest_centroids((points, start), centroids, out);
    }

    /// For each row `rows[k]`, into `out[k]`, the sum of one entry of each table: that of table `j` is picked by byte `j` of
    /// the row's code. Sums are taken in one fixed order, the same on every level.
    ///
    /// # Panics
    /// If `out` is not as long as `rows`, or the codes end before a row that is named.
    pub fn sum_lookups(&self, tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) {
        assert_eq!(rows.len(), out.len(), "one sum for each row");
        self.loops().sum_lookups(tables, codes, rows, out);
    }

    /// The plain loops of the level.
    fn loops(&self) -> &dyn Loops {
        match &self.level {
            Level::Reference(token) => token,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(token) => token,
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(token) => token,
        }
    }

    /// All squared distances: `out[r * columns.len() + c]` is that of `rows.row(order[r])` and column `c`.
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` names a row that the panel lacks, or `out` is
    /// not `order.len() * columns.len()` long.
    pub fn many_to_many<T: Scalar>(
        &self,
        rows: &Panel<T>,
        order: &[u32],
        columns: &PackedColumns<T>,
        out: &mut [T::Distance],
    ) {
        self.check(rows, columns);
        assert_eq!(out.len(), order.len() * columns.len(), "one distance for each pair");
        tile::many_to_many(T::tiles(&self.level), rows, order, columns, out);
    }

    /// Finds the pairs within a squared distance of `limit` and returns how many pairs were computed.
    ///
    /// Rows `rows.row(order[r])` are taken in groups of [`crate::TILE_ROWS`]. A group is compared with the columns
    /// below its largest `reach`, rounded up to a multiple of [`crate::TILE_COLUMNS`] and capped at the number of
    /// columns: those are the computed pairs, also where they lie beyond the reach of their own row. A pair whose
    /// squared distance is not above `limit` (so also one whose float distance is NaN) is a hit; hits are added as
    /// masks. Their order, and how they are spread over masks, is unspecified.
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` and `reach` differ in length or `order` names
    /// a row that the panel lacks.
    pub fn within<T: Scalar>(
        &self,
        rows: &Panel<T>,
        order: &[u32],
        columns: &PackedColumns<T>,
        reach: &[u32],
        limit: T::Distance,
        hits: &mut Vec<HitMask>,
    ) -> u64 {
        self.check(rows, columns);
        assert_eq!(order.len(), reach.len(), "one reach for each row");
        tile::within(T::tiles(&self.level), (rows, order, reach), columns, limit, hits)
    }

    /// Finds the pairs of all rows `rows.row(order[r])` and columns of which each row has a limit of its own, and returns
    /// how many pairs were computed: all. Rows are taken in groups of [`crate::TILE_ROWS`], which share the largest limit of
    /// theirs, so that hits may lie beyond the limit of their own row. Hits are as those of [`Kernel::within`].
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` and `limits` differ in length or `order` names
    /// a row that the panel lacks.
    pub fn within_each<T: Scalar>(
        &self,
        (rows, order, limits): (&Panel<T>, &[u32], &[T::Distance]),
        columns: &PackedColumns<T>,
        hits: &mut Vec<HitMask>,
    ) -> u64 {
        self.check(rows, columns);
        assert_eq!(order.len(), limits.len(), "one limit for each row");
        tile::within_each(T::tiles(&self.level), (rows, order, limits), columns, hits)
    }

    /// The nearest column of each row `rows.row(order[r])`, the first of equally near ones, and its squared distance. A row
    /// whose distances are all NaN or infinite gets column 0 and [`Scalar::FARTHEST`].
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level or none, `order` names a row that the panel lacks, or `out`
    /// is not as long as `order`.
    pub fn nearest<T: Scalar>(
        &self,
        rows: &Panel<T>,
        order: &[u32],
        columns: &PackedColumns<T>,
        out: &mut [(u32, T::Distance)],
    ) {
        self.check(rows, columns);
        assert!(!columns.is_empty(), "a row is near some column");
        assert_eq!(out.len(), order.len(), "one column for each row");
        tile::nearest(T::tiles(&self.level), (rows, order), columns, out);
    }

    /// For each column, the least distances of rows `rows.row(order[r])` and the least margins, which are distances less
    /// `own[r]`. What is not a number is left out.
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` names a row that the panel lacks, `own` is not as
    /// long as `order`, or `out` has not one place for each column.
    pub fn least_of_columns<T: Scalar>(
        &self,
        (rows, order, own): (&Panel<T>, &[u32], &[T::Distance]),
        columns: &PackedColumns<T>,
        out: &mut [LeastOfColumn<T>],
    ) {
        self.check(rows, columns);
        assert_eq!(own.len(), order.len(), "one distance for each row");
        assert_eq!(out.len(), columns.len(), "one place for each column");
        tile::least_of_columns(T::tiles(&self.level), (rows, order, own), columns, out);
    }

    /// The kernels rest on what is asserted here.
    fn check<T: Scalar>(&self, rows: &Panel<T>, columns: &PackedColumns<T>) {
        assert_eq!(rows.dimensions(), columns.dimensions(), "dimensions of rows and columns");
        assert_eq!(columns.level, self.name(), "level that the columns are packed for");
    }
}
