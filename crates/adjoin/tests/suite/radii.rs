//! The radius of a bucket is the distance of its farthest vector from its center.

use adjoin::{
    Element,
    lab::store::{
        Role,
        format::{BucketFacts, decode_bucket},
    },
};

use crate::datasets::{Shape, make};
use crate::harness::{Built, Setup};

/// Returns the coordinates of stored vectors.
fn coordinates(element: Element, stored: &[u8]) -> Vec<f64> {
    match element {
        Element::U8 => stored.iter().map(|&byte| f64::from(byte)).collect(),
        _ => stored.as_chunks().0.iter().map(|&float| f64::from(f32::from_le_bytes(float))).collect(),
    }
}

/// Returns the recorded radius of each bucket, and the distance of its farthest vector from its center.
fn radii(built: &Built, element: Element) -> Vec<(f64, f64)> {
    let manifest = built.store.manifest();
    let read = |role| std::fs::read(built.path().join(&manifest.files[role].name)).unwrap();
    let (centers, file) = (read(Role::Centers), read(Role::Vectors));
    let ids = manifest.ids;
    let facts = BucketFacts { vectors: manifest.vectors, ids, source_rows: manifest.source_rows, is_sorted: false };
    let bytes = manifest.vectors.bytes();
    let radius = |(number, center): (usize, &[u8])| {
        let extent = built.store.extents()[number];
        let body = &file[extent.offset as usize..][..extent.body_bytes as usize];
        let vectors = decode_bucket(number as u32, &facts, &extent, body).unwrap().vectors;
        let center = coordinates(element, center);
        let distance = |vector: &[u8]| {
            let pairs = coordinates(element, vector).into_iter().zip(&center);
            pairs.map(|(x, c)| (x - c).powi(2)).sum::<f64>().sqrt()
        };
        (extent.radius.into(), body[vectors].chunks_exact(bytes).map(distance).fold(0.0, f64::max))
    };
    centers.chunks_exact(bytes).enumerate().map(radius).collect()
}

#[test]
fn radii_are_the_distances_of_the_farthest_vectors() {
    for element in [Element::U8, Element::F32] {
        let setup = Setup::default().with_buckets(12);
        let built = setup.build(&make(Shape::Clustered, element, 900, 20, 3)).unwrap();
        let radii = radii(&built, element);
        assert!(radii.len() >= 12);
        for (number, (recorded, farthest)) in radii.into_iter().enumerate() {
            // Bytes are exact but for the last rounding. Floats are compared as bytes; rounding them widens the radius.
            let most = if element == Element::U8 { 1.0 + 1e-6 } else { 1.05 };
            assert!(recorded >= farthest && recorded <= most * farthest, "{element:?} {number}: {recorded} {farthest}");
        }
    }
}
