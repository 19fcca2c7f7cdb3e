//! The two types of elements that vectors consist of.

use std::fmt;

/// An element of a vector: `u8` or `f32`.
pub trait Number: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// Type of a squared distance: `u32` for `u8`, which is exact, and `f32` for `f32`.
    type Distance: Copy + Default + PartialOrd + fmt::Debug + Send + Sync + 'static;

    /// Type of the difference of two squared distances: `i32` for `u8`, and `f32` for `f32`.
    type Margin: Copy + Default + PartialOrd + Into<f64> + fmt::Debug + Send + Sync + 'static;

    /// The largest distance that a kernel returns.
    const FARTHEST: Self::Distance;

    /// The largest margin.
    const MARGIN_MAX: Self::Margin;

    /// Returns the margin: the squared distance `other` to another center minus the squared distance `own` to the own
    /// center.
    fn margin(other: Self::Distance, own: Self::Distance) -> Self::Margin;
}

impl Number for u8 {
    type Distance = u32;
    type Margin = i32;
    const FARTHEST: u32 = u32::MAX;
    const MARGIN_MAX: i32 = i32::MAX;

    fn margin(other: u32, own: u32) -> i32 {
        other.wrapping_sub(own).cast_signed() // both are below 2^31
    }
}

impl Number for f32 {
    type Distance = f32;
    type Margin = f32;
    const FARTHEST: f32 = f32::INFINITY;
    const MARGIN_MAX: f32 = f32::INFINITY;

    fn margin(other: f32, own: f32) -> f32 {
        other - own
    }
}

mod sealed {
    /// Prevents other types from being numbers: views of aligned storage need types for which every bit pattern is
    /// valid.
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for f32 {}
}
