//! The two types of elements that vectors consist of.

use std::fmt;

/// An element of a vector: `u8` or `f32`.
pub trait Number: Copy + Default + Send + Sync + 'static + sealed::Sealed {
    /// A squared distance: `u32` for `u8`, exact; `f32` for `f32`.
    type Distance: Copy + Default + PartialOrd + fmt::Debug + Send + Sync + 'static;

    /// The difference of two squared distances: `i32` or `f32`.
    type Margin: Copy + Default + PartialOrd + Into<f64> + fmt::Debug + Send + Sync + 'static;

    /// The largest distance that a kernel returns.
    const FARTHEST: Self::Distance;

    /// The largest margin.
    const MARGIN_MAX: Self::Margin;

    /// Returns the squared distance to another center minus that to the own center.
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
    /// Every bit pattern of these types is a value, which views of aligned storage rely on.
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for f32 {}
}
