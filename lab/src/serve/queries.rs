//! Queries in a file, and the buckets that they probe.

use adjoin::{
    Context, Element, Result, Store,
    kernels::{Kernel, Panel},
    lab::{load::Buckets, source},
};

/// Reads all vectors of a file as floats.
pub(crate) fn read(context: &Context, file: &str) -> Result<Vec<Vec<f32>>> {
    let opened = source::open(context, &[file.to_owned()], &Default::default())?;
    let vectors = opened.info().vectors;
    let mut scan = opened.scan(1 << 20)?;
    let mut all = Vec::new();
    while let Some(batch) = scan.next_batch()? {
        all.extend(batch.bytes.chunks_exact(vectors.bytes()).map(|stored| floats(vectors.element, stored)));
    }
    Ok(all)
}

fn floats(element: Element, stored: &[u8]) -> Vec<f32> {
    match element {
        Element::F32 => stored.chunks_exact(4).map(|of| f32::from_le_bytes(of.try_into().expect("four"))).collect(),
        Element::F16 => stored.chunks_exact(2).map(|of| half::f16::from_le_bytes([of[0], of[1]]).to_f32()).collect(),
        Element::U8 => stored.iter().map(|&byte| byte.into()).collect(),
        Element::I8 => stored.iter().map(|&byte| byte.cast_signed().into()).collect(),
    }
}

/// Returns the `nprobe` nearest buckets of each query, nearest first. Distances are computed in plain floats.
pub(crate) fn lists(store: &Store, queries: &[Vec<f32>], nprobe: usize) -> Result<Vec<Vec<u32>>> {
    let buckets = Buckets::of(store);
    let centers: Vec<Vec<f32>> = match store.manifest().vectors.element {
        Element::U8 => rows(&buckets.centers::<u8>()?, |&x| x.into()),
        _ => rows(&buckets.centers::<f32>()?, |&x| x),
    };
    let kernel = Kernel::detect();
    let of = |query: &Vec<f32>| {
        let mut near: Vec<(f32, u32)> = centers
            .iter()
            .zip(0..)
            .map(|(center, bucket)| (kernel.squared_distance_near(query, center), bucket))
            .collect();
        near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.into_iter().take(nprobe).map(|(_, bucket)| bucket).collect()
    };
    Ok(queries.iter().map(of).collect())
}

fn rows<T>(panel: &Panel<T>, number: impl Fn(&T) -> f32) -> Vec<Vec<f32>>
where
    T: adjoin::lab::geometry::Coordinate,
{
    (0..panel.rows()).map(|row| panel.row(row)[..panel.dimensions()].iter().map(&number).collect()).collect()
}
