//! Random sets. Each shape is difficult in one way.

use adjoin::{Element, Random};

use crate::harness::Set;

/// Distribution of the vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// Independent, uniformly distributed elements.
    Uniform,
    /// A few clusters of different density.
    Clustered,
    /// Small integers, so that many distances are equal and sums are exact.
    Lattice,
    /// Clusters in which three of ten rows repeat an earlier row.
    Repeated,
    /// Clusters at this distance from the origin, so that coordinates differ only in their last bits.
    Offset(f64),
    /// Clusters with elements of this magnitude.
    Scaled(f64),
}

/// Returns the shapes that an element type can represent.
pub(crate) fn shapes(element: Element) -> &'static [Shape] {
    use Shape::{Clustered, Lattice, Offset, Repeated, Scaled, Uniform};
    match element {
        Element::U8 | Element::I8 => &[Uniform, Clustered, Lattice, Repeated],
        Element::F16 => &[Uniform, Clustered, Lattice, Repeated, Offset(1000.0), Scaled(1e-7), Scaled(1e4)],
        // At 1e-30 and 1e-22, squares underflow. At 1e30 they overflow, and at 1e19 some do.
        Element::F32 => &[
            Uniform,
            Clustered,
            Lattice,
            Repeated,
            Offset(1e6),
            Scaled(1e-30),
            Scaled(1e-22),
            Scaled(1e19),
            Scaled(1e30),
        ],
    }
}

/// Returns a random set of a shape.
pub(crate) fn make(shape: Shape, element: Element, rows: usize, dimensions: usize, seed: u64) -> Set {
    let mut random = Random::new(seed, "datasets");
    let values = match shape {
        Shape::Uniform => (0..rows * dimensions).map(|_| random.uniform() * 2.0 - 1.0).collect(),
        Shape::Lattice => (0..rows * dimensions).map(|_| random.below(5) as f64 - 2.0).collect(),
        Shape::Clustered | Shape::Offset(_) | Shape::Scaled(_) => clusters(&mut random, rows, dimensions),
        Shape::Repeated => repeated(clusters(&mut random, rows, dimensions), dimensions, &mut random),
    };
    let placed: Vec<f64> = values.iter().map(|value| placed(*value, shape, element)).collect();
    Set::of(element, dimensions, &placed).in_batches_of(1 + random.below(100) as usize)
}

/// Maps a value from about -2 to 2 to the range of the shape and the element type.
fn placed(value: f64, shape: Shape, element: Element) -> f64 {
    match (shape, element) {
        (Shape::Lattice, Element::U8) => value + 2.0,
        (Shape::Lattice, _) => value,
        (_, Element::U8) => (value * 60.0 + 128.0).clamp(0.0, 255.0),
        (_, Element::I8) => (value * 60.0).clamp(-128.0, 127.0),
        (Shape::Offset(offset), _) => value + offset,
        (Shape::Scaled(scale), _) => value * scale,
        _ => value,
    }
}

fn clusters(random: &mut Random, rows: usize, dimensions: usize) -> Vec<f64> {
    let count = 1 + rows / 20;
    let centers: Vec<f64> = (0..count * dimensions).map(|_| random.uniform() * 2.0 - 1.0).collect();
    let mut values = Vec::with_capacity(rows * dimensions);
    for _ in 0..rows {
        let cluster = random.below(count as u64) as usize;
        let spread = 0.3 / (1 + cluster % 7) as f64;
        values.extend(centers[cluster * dimensions..][..dimensions].iter().map(|c| c + spread * random.normal()));
    }
    values
}

fn repeated(mut values: Vec<f64>, dimensions: usize, random: &mut Random) -> Vec<f64> {
    for row in 1..values.len() / dimensions {
        if random.below(10) < 3 {
            let earlier = random.below(row as u64) as usize * dimensions;
            values.copy_within(earlier..earlier + dimensions, row * dimensions);
        }
    }
    values
}
