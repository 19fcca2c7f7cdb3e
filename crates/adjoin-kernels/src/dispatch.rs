//! The instruction set level of the processor as a value (the idea of `diskann-wide` in DiskANN). A [`Kernel`] is
//! proof that the processor has its instructions. Therefore its methods are safe, and no loop checks for the
//! instructions again.

#[cfg(target_arch = "aarch64")]
use crate::aarch64::{Neon, NeonDot};
use crate::centroids::{Centroids, Short};
use crate::columns::PackedColumns;
use crate::lists::Lists;
use crate::lookup::{CodeRows, Lookup, TABLE_ENTRIES};
use crate::near::Near;
use crate::number::Number;
use crate::panel::Panel;
use crate::reference::Reference;
use crate::rounding::{Grid, Rounding};
use crate::tile::{self, HitMask, LeastOfColumn, LeastRows, Rows, Tiles};
use crate::wide::Wide;
#[cfg(target_arch = "x86_64")]
use crate::x86::{Avx2, Avx512, AvxVnni};

/// An element for which every level has functions: `u8` or `f32`.
pub trait Scalar: Number + sealed::Sealed {}

impl Scalar for u8 {}
impl Scalar for f32 {}

#[allow(private_interfaces)] // code outside of this crate can name neither `tiles` nor the types in its signature
mod sealed {
    use super::{Level, Lists, Number, Tiles};

    /// Limits [`Scalar`](super::Scalar) to the elements that every level implements.
    pub trait Sealed: Number {
        /// Returns the level's functions for this element.
        fn tiles(level: &Level) -> &dyn Tiles<Self>;

        /// Returns the position of the smallest distance, or of the first one if several are equal.
        fn first_least(lists: &dyn Lists, distances: &[Self::Distance]) -> usize;
    }
}

// `base` is given if some levels do not compute distances of this element themselves. It is the method that returns
// the level below, which does.
macro_rules! seal {
    ($scalar:ty, $first_least:ident $(, $base:ident)?) => {
        #[allow(private_interfaces)] // as for `sealed`
        impl sealed::Sealed for $scalar {
            fn tiles(level: &Level) -> &dyn Tiles<Self> {
                match level {
                    Level::Reference(token) => token,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2(token) => token,
                    #[cfg(target_arch = "x86_64")]
                    Level::AvxVnni(token) => token$(.$base())?,
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512(token) => token,
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon(token) => token,
                    #[cfg(target_arch = "aarch64")]
                    Level::NeonDot(token) => token$(.$base())?,
                }
            }

            fn first_least(lists: &dyn Lists, distances: &[<Self as Number>::Distance]) -> usize {
                lists.$first_least(distances)
            }
        }
    };
}

seal!(u8, first_least_u32);
seal!(f32, first_least_f32, base);

/// All plain loops of a level.
trait Loops: Lists + Lookup + Near + Rounding + Short + Wide {}

impl<L: Lists + Lookup + Near + Rounding + Short + Wide> Loops for L {}

/// A level with the proof that the processor has it.
#[derive(Clone, Copy, Debug)]
enum Level {
    Reference(Reference),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    AvxVnni(AvxVnni),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    #[cfg(target_arch = "aarch64")]
    NeonDot(NeonDot),
}

/// An instruction set level that this processor has.
///
/// If all elements are finite, the results of all levels are equal, bit for bit. So are the numbers of pairs that they
/// compute. Levels differ in speed and in the layout of [`PackedColumns`].
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    level: Level,
}

impl Kernel {
    /// Names of all levels. For each kind of processor, slower levels precede faster ones.
    pub const NAMES: [&'static str; 6] = ["reference", "avx2", "avx-vnni", "avx512-vnni", "neon", "neon-dotprod"];

    /// Returns the fastest level of this processor.
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let wide = Avx512::detect().map(Level::Avx512);
            let level = wide.or_else(|| AvxVnni::detect().map(Level::AvxVnni));
            if let Some(level) = level.or_else(|| Avx2::detect().map(Level::Avx2)) {
                return Self { level };
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            let level = NeonDot::detect().map(Level::NeonDot);
            if let Some(level) = level.or_else(|| Neon::detect().map(Level::Neon)) {
                return Self { level };
            }
        }
        Self { level: Level::Reference(Reference) }
    }

    /// Returns the level with a name of [`Kernel::NAMES`]. Returns `None` if there is no such level or the processor
    /// lacks it.
    pub fn named(name: &str) -> Option<Self> {
        let level = match name {
            "reference" => Some(Level::Reference(Reference)),
            #[cfg(target_arch = "x86_64")]
            "avx2" => Avx2::detect().map(Level::Avx2),
            #[cfg(target_arch = "x86_64")]
            "avx-vnni" => AvxVnni::detect().map(Level::AvxVnni),
            #[cfg(target_arch = "x86_64")]
            "avx512-vnni" => Avx512::detect().map(Level::Avx512),
            #[cfg(target_arch = "aarch64")]
            "neon" => Neon::detect().map(Level::Neon),
            #[cfg(target_arch = "aarch64")]
            "neon-dotprod" => NeonDot::detect().map(Level::NeonDot),
            _ => None,
        };
        level.map(|level| Self { level })
    }

    /// Returns all levels of this processor, slowest first.
    pub fn available() -> Vec<Self> {
        Self::NAMES.into_iter().filter_map(Self::named).collect()
    }

    /// Returns the name that [`Kernel::named`] accepts.
    pub fn name(&self) -> &'static str {
        match self.level {
            Level::Reference(_) => "reference",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni(_) => "avx-vnni",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(_) => "avx512-vnni",
            #[cfg(target_arch = "aarch64")]
            Level::Neon(_) => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot(_) => "neon-dotprod",
        }
    }

    /// Packs rows of a panel as columns. Column `k` is `panel.row(order[k])`.
    pub fn pack<T: Scalar>(&self, panel: &Panel<T>, order: &[u32]) -> PackedColumns<T> {
        let mut columns = PackedColumns::empty(self.name());
        self.pack_into(panel, order, &mut columns);
        columns
    }

    /// Packs rows of a panel as [`Kernel::pack`] does, into existing columns. Their memory is reused if it is large
    /// enough. The existing columns may have been packed for any level.
    pub fn pack_into<T: Scalar>(&self, panel: &Panel<T>, order: &[u32], columns: &mut PackedColumns<T>) {
        columns.level = self.name();
        columns.norms.clear();
        columns.head_norms.clear();
        columns.ranges.clear();
        T::tiles(&self.level).pack(panel, order, columns);
    }

    /// Computes the squared distances of `x` to every row of a panel: `out[k]` is the distance to `panel.row(k)`. `x`
    /// is a padded row of a panel of the same dimensions.
    ///
    /// # Panics
    /// If the length of `x` is not the panel's stride, or the length of `out` is not its number of rows.
    pub fn one_to_many<T: Scalar>(&self, x: &[T], panel: &Panel<T>, out: &mut [T::Distance]) {
        assert_eq!(x.len(), panel.stride(), "elements of a padded row");
        assert_eq!(out.len(), panel.rows(), "one distance for each row");
        T::tiles(&self.level).one_to_many(x, panel, out);
    }

    /// Computes the squared distances of `x` to some rows of a panel: `out[k]` is the distance to
    /// `panel.row(rows[k])`, equal to the one that [`Kernel::one_to_many`] computes. `x` is a padded row of a panel
    /// of the same dimensions.
    ///
    /// # Panics
    /// If the length of `x` is not the panel's stride, `out` is not as long as `rows`, or the panel lacks one of the
    /// rows.
    pub fn one_to_some<T: Scalar>(&self, x: &[T], panel: &Panel<T>, rows: &[u32], out: &mut [T::Distance]) {
        assert_eq!(x.len(), panel.stride(), "elements of a padded row");
        assert_eq!(out.len(), rows.len(), "one distance for each row");
        tile::one_to_some(T::tiles(&self.level), x, panel, rows, out);
    }

    /// Computes distances as [`Kernel::one_to_some`] does. This is faster if the rows are in the processor's cache, for
    /// example because they were just compared with another vector.
    ///
    /// # Panics
    /// As [`Kernel::one_to_some`].
    pub fn one_to_some_cached<T: Scalar>(&self, x: &[T], panel: &Panel<T>, rows: &[u32], out: &mut [T::Distance]) {
        assert_eq!(x.len(), panel.stride(), "elements of a padded row");
        assert_eq!(out.len(), rows.len(), "one distance for each row");
        T::tiles(&self.level).one_to_some(x, panel, rows, out);
    }

    /// Returns the squared distance of two padded rows of panels of the same dimensions, equal to the one that
    /// [`Kernel::one_to_many`] computes.
    ///
    /// # Panics
    /// If their lengths differ.
    pub fn distance<T: Scalar>(&self, x: &[T], y: &[T]) -> T::Distance {
        assert_eq!(x.len(), y.len(), "elements of a padded row");
        T::tiles(&self.level).distance(x, y)
    }

    /// Returns the inner product of two vectors in f64. It differs from the sum in the order of the elements by at
    /// most [`crate::wide_error`].
    pub fn dot_wide(&self, x: &[f32], y: &[f32]) -> f64 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Wide::dot(self.loops(), x, y)
    }

    /// Returns the squared distance of two vectors in f64. It differs from the sum in the order of the elements by at
    /// most [`crate::wide_error`].
    pub fn squared_distance_wide(&self, x: &[f32], y: &[f32]) -> f64 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Wide::squared_distance(self.loops(), x, y)
    }

    /// Returns the inner product of two vectors in f32. Its error is at most [`crate::near_error`].
    pub fn dot_near(&self, x: &[f32], y: &[f32]) -> f32 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Near::dot(self.loops(), x, y)
    }

    /// Returns the squared distance of two vectors in f32. Its error is at most [`crate::near_error`].
    pub fn squared_distance_near(&self, x: &[f32], y: &[f32]) -> f32 {
        assert_eq!(x.len(), y.len(), "elements of both");
        Near::squared_distance(self.loops(), x, y)
    }

    /// Converts finite f16 numbers to the equal f32 numbers. `halves` has two bytes per number, in little-endian
    /// order.
    ///
    /// # Panics
    /// If `halves` does not have two bytes for each element of `floats`.
    pub fn halves_as_floats(&self, halves: &[u8], floats: &mut [f32]) {
        assert_eq!(halves.len(), 2 * floats.len(), "a float for each half");
        self.loops().halves_as_floats(halves, floats);
    }

    /// Rounds each coordinate of `vector * scale` to the nearest byte of the grid; ties are rounded up, and NaN
    /// becomes byte 0. Returns the squared distance between the scaled vector and the rounded one. It is summed in
    /// f32 in lanes of 16.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn round_to_bytes(&self, vector: &[f32], scale: f32, grid: Grid<'_>, bytes: &mut [u8]) -> f32 {
        assert_eq!(vector.len(), grid.origin.len(), "coordinates of the origin");
        assert_eq!(vector.len(), bytes.len(), "a byte for each coordinate");
        self.loops().round(vector, scale, grid, bytes)
    }

    /// Returns the position of the smallest distance, or of the first one if several are equal. Returns 0 if there is
    /// none.
    pub fn first_least<T: Scalar>(&self, distances: &[T::Distance]) -> usize {
        T::first_least(self.loops(), distances)
    }

    /// For each value that is at most `most`, appends `value << 32 | position`, in order of position. If the caller
    /// sorts these integers, they are ordered by value and then by position.
    pub fn at_most(&self, values: &[u32], most: u32, found: &mut Vec<u64>) {
        self.loops().at_most(values, most, found);
    }

    /// Returns the number of values that are at most `most`.
    pub fn count_at_most(&self, values: &[u32], most: u32) -> u64 {
        self.loops().count_at_most(values, most)
    }

    /// Finds the nearest centroid of each point. `out[r]` is the centroid for `points.row(r)` and the squared
    /// distance to it.
    ///
    /// Only the coordinates of the point from `start` on are compared, as many as a centroid has. If centroids are
    /// equally near, the first one is taken. The distance is summed in f32 in the order of the coordinates. A point
    /// that has no finite distance to any centroid gets centroid 0 and infinity.
    ///
    /// # Panics
    /// If there are fewer points than elements of `out`, or the points have too few coordinates.
    pub fn nearest_centroids(&self, points: &Panel<f32>, start: usize, centroids: &Centroids, out: &mut [(u32, f32)]) {
        assert!(out.len() <= points.rows(), "a point for each place");
        assert!(start + centroids.dimensions() <= points.dimensions(), "coordinates of points");
        self.loops().nearest_centroids(points, start, centroids, out);
    }

    /// Writes to `out[k]` a sum of one entry of each table. Byte `j` of the code of row `rows[k]` is the index of the
    /// entry in table `j`. The order of the additions is the same on every level.
    ///
    /// # Panics
    /// If `out` is not as long as `rows`, or the codes end before one of the rows.
    pub fn sum_lookups(&self, tables: &[[f32; TABLE_ENTRIES]], codes: CodeRows<'_>, rows: &[u32], out: &mut [f32]) {
        assert_eq!(rows.len(), out.len(), "one sum for each row");
        self.loops().sum_lookups(tables, codes, rows, out);
    }

    /// Returns the plain loops of the level.
    fn loops(&self) -> &dyn Loops {
        match &self.level {
            Level::Reference(token) => token,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2(token) => token,
            #[cfg(target_arch = "x86_64")]
            Level::AvxVnni(token) => token.base(),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512(token) => token,
            #[cfg(target_arch = "aarch64")]
            Level::Neon(token) => token,
            #[cfg(target_arch = "aarch64")]
            Level::NeonDot(token) => token.base(),
        }
    }

    /// Computes the squared distances of all rows and columns: `out[r * columns.len() + c]` is the distance of
    /// `rows.row(order[r])` and column `c`.
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
        tile::many_to_many(T::tiles(&self.level), Rows { panel: rows, order }, columns, out);
    }

    /// Finds the pairs with a squared distance of at most `limit`. Returns how many pairs were computed.
    ///
    /// Rows `rows.row(order[r])` are processed in groups of [`crate::TILE_ROWS`]. A group is compared with the
    /// columns below its largest `reach`, rounded up to a multiple of [`crate::TILE_COLUMNS`] and capped at the
    /// number of columns. All these pairs count as computed, including those beyond the reach of their own row, and
    /// pairs that some elements already prove to be beyond the limit. A pair with a NaN distance is a hit, unless
    /// elements without NaN prove this. Hits are appended as masks. Their order, and how they are distributed over
    /// masks, is unspecified.
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
        tile::within(T::tiles(&self.level), Rows { panel: rows, order }, reach, columns, limit, hits)
    }

    /// Finds the pairs of rows and columns whose squared distance is at most a limit that depends on the row. Returns
    /// how many pairs were computed: the number of rows times the number of columns.
    ///
    /// Rows `rows.row(order[r])` are processed in groups of [`crate::TILE_ROWS`]. A group uses its largest limit, so
    /// hits may be beyond the limit of their own row. Hits are reported as by [`Kernel::within`].
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` and `limits` differ in length or `order` names
    /// a row that the panel lacks.
    pub fn within_each<T: Scalar>(
        &self,
        rows: &Panel<T>,
        order: &[u32],
        limits: &[T::Distance],
        columns: &PackedColumns<T>,
        hits: &mut Vec<HitMask>,
    ) -> u64 {
        self.check(rows, columns);
        assert_eq!(order.len(), limits.len(), "one limit for each row");
        tile::within_each(T::tiles(&self.level), Rows { panel: rows, order }, limits, columns, hits)
    }

    /// Finds the nearest column of each row `rows.row(order[r])`. `out[r]` is that column and the squared distance.
    /// If columns are equally near, the first one is taken. A row whose distances are all NaN or infinite gets column
    /// 0 and [`Number::FARTHEST`].
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level or there are none, `order` names a row that the panel
    /// lacks, or `out` is not as long as `order`.
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
        tile::nearest(T::tiles(&self.level), Rows { panel: rows, order }, columns, out);
    }

    /// Finds the smallest distances of each column to the rows `rows.row(order[r])`, and the smallest margins. The
    /// margin is the distance to row `r` minus `own[r]`. NaN is ignored.
    ///
    /// # Panics
    /// If dimensions differ, the columns are of another level, `order` names a row that the panel lacks, `own` is not
    /// as long as `order`, or `out` does not have one element per column.
    pub fn least_of_columns<T: Scalar>(
        &self,
        rows: &Panel<T>,
        order: &[u32],
        own: &[T::Distance],
        columns: &PackedColumns<T>,
        out: &mut [LeastOfColumn<T>],
    ) {
        self.check(rows, columns);
        assert_eq!(own.len(), order.len(), "one distance for each row");
        assert_eq!(out.len(), columns.len(), "one place for each column");
        let rows = LeastRows { rows: Rows { panel: rows, order }, own };
        tile::least_of_columns(T::tiles(&self.level), rows, columns, out);
    }

    /// Checks that rows and columns have equal dimensions and that the columns are packed for this level.
    fn check<T: Scalar>(&self, rows: &Panel<T>, columns: &PackedColumns<T>) {
        assert_eq!(rows.dimensions(), columns.dimensions(), "dimensions of rows and columns");
        assert_eq!(columns.level, self.name(), "level that the columns are packed for");
    }
}
