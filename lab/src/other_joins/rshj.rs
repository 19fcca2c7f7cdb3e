//! A join by hashes that only some rows look up, like RSHJ (Yu, Nutanong, Li, Wang and Yuan, IEEE TKDE 29(4), 2017).
//! Rows are stored in tables of locality-sensitive hashes. Representatives are chosen greedily, such that each row is
//! near one of them. Rows that collide with a representative in any table are candidates for all rows that it
//! represents. Collisions take one bit for each pair of rows, which limits the size of the set.

use std::collections::{BinaryHeap, HashMap};

use adjoin::{Error, Random, Result, lab::workers::map_items};

use super::{Counts, Joined, Options};

/// A table with one bit for each pair of rows.
struct Bits {
    words: usize,
    all: Vec<u64>,
}

impl Bits {
    fn new(rows: usize) -> Self {
        let words = rows.div_ceil(64);
        Self { words, all: vec![0; rows * words] }
    }

    fn of(&self, row: usize) -> &[u64] {
        &self.all[row * self.words..][..self.words]
    }

    fn set(&mut self, row: u32, other: u32) {
        self.all[row as usize * self.words + other as usize / 64] |= 1 << (other % 64);
    }

    fn members(words: &[u64]) -> impl Iterator<Item = u32> {
        (0..)
            .zip(words)
            .flat_map(|(word, &bits)| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| 64 * word + bit))
    }
}

pub(crate) fn join(joined: &Joined<'_>, options: &Options<'_>) -> Result<Counts> {
    let rows = joined.rows.rows();
    let (needed, memory) = (rows as f64 * rows as f64 / 8.0, options.value("memory", 16e9)?);
    if 2.0 * needed > memory {
        return Err(Error::budget(format!(
            "bits of pairs take {:.0} GB; {:.0} GB are there",
            2e-9 * needed,
            1e-9 * memory
        )));
    }
    let collide = collisions(joined, options)?;
    let (near, mut distances) = near(joined, &collide, options.value("cover", 0.5)?)?;
    let groups = representatives(&near);
    drop(near);
    let parts = map_items(joined.context.threads, groups.len(), &joined.context.cancel, Vec::new, |hits, group| {
        let (representative, members) = &groups[group];
        let candidates: Vec<u32> = Bits::members(collide.of(*representative as usize)).collect();
        Ok(verify(joined, members, &candidates, hits))
    })?;
    let mut pairs: Vec<(u32, u32)> = Vec::new();
    for (found, computed) in parts {
        pairs.extend(found);
        distances += computed;
    }
    // A pair may have been found from both of its rows.
    pairs.sort_unstable();
    pairs.dedup();
    Ok(Counts { pairs: pairs.len() as u64, distances })
}

/// Returns which rows share a slot of a table. A hash is the product of a vector with normally distributed numbers,
/// divided into steps (Datar et al., SCG 2004).
fn collisions(joined: &Joined<'_>, options: &Options<'_>) -> Result<Bits> {
    let Joined { context, rows, eps, .. } = *joined;
    let (tables, hashes) = (options.value("tables", 10.0)? as usize, options.value("hashes", 4.0)? as usize);
    let (width, seed) = (eps * options.value("width", 4.0)?, options.value("seed", 1.0)? as u64);
    let mut collide = Bits::new(rows.rows());
    let mut random = Random::new(seed, "hashes of RSHJ");
    for _ in 0..tables {
        let mut hash = || {
            let direction: Vec<f32> = (0..rows.dimensions()).map(|_| random.normal() as f32).collect();
            (direction, random.uniform() * width)
        };
        let functions: Vec<(Vec<f32>, f64)> = (0..hashes).map(|_| hash()).collect();
        let slot = |vector: &mut Vec<f32>, row: usize| {
            vector.clear();
            vector.extend(rows.row(row)[..rows.dimensions()].iter().map(|&byte| f32::from(byte)));
            let of = |(direction, offset): &(Vec<f32>, f64)| {
                ((f64::from(context.kernel.dot_near(direction, vector)) + offset) / width).floor() as i32
            };
            Ok(functions.iter().map(of).collect::<Vec<i32>>())
        };
        let slots = map_items(context.threads, rows.rows(), &context.cancel, Vec::new, slot)?;
        let mut table: HashMap<Vec<i32>, Vec<u32>> = HashMap::new();
        (0..).zip(slots).for_each(|(row, slot)| table.entry(slot).or_default().push(row));
        for together in table.values() {
            together.iter().for_each(|&row| together.iter().for_each(|&other| collide.set(row, other)));
        }
    }
    Ok(collide)
}

/// Returns which colliding rows are within `cover` times the threshold, and the number of distances that were
/// computed.
fn near(joined: &Joined<'_>, collide: &Bits, cover: f64) -> Result<(Bits, u64)> {
    let Joined { context, rows, eps, .. } = *joined;
    let limit = (cover * cover * eps * eps) as u32;
    let of_row = |distances: &mut Vec<u32>, row: usize| {
        let others: Vec<u32> = Bits::members(collide.of(row)).collect();
        distances.resize(others.len(), 0);
        context.kernel.one_to_some(rows.row(row), rows, &others, distances);
        let near = others.iter().zip(distances.iter()).filter(|(_, squared)| **squared <= limit);
        Ok((near.map(|(&other, _)| other).collect::<Vec<u32>>(), others.len() as u64))
    };
    let found = map_items(context.threads, rows.rows(), &context.cancel, Vec::new, of_row)?;
    let (mut near, mut computed) = (Bits::new(rows.rows()), 0);
    for (row, (others, distances)) in (0..).zip(found) {
        computed += distances;
        others.into_iter().chain([row]).for_each(|other| near.set(row, other));
    }
    Ok((near, computed))
}

/// Returns the representatives, each with its rows. The next representative is always the row that is near the most
/// rows which have none yet.
fn representatives(near: &Bits) -> Vec<(u32, Vec<u32>)> {
    let rows = near.all.len() / near.words;
    let mut open = vec![u64::MAX; near.words];
    let left = |open: &[u64], row: u32| -> u32 {
        near.of(row as usize).iter().zip(open).map(|(near, open)| (near & open).count_ones()).sum()
    };
    let mut queue: BinaryHeap<(u32, u32)> = (0..rows as u32).map(|row| (left(&open, row), row)).collect();
    let mut groups = Vec::new();
    while let Some((count, row)) = queue.pop() {
        let now = left(&open, row);
        if now < count {
            queue.extend((now > 0).then_some((now, row)));
        } else if now > 0 {
            let mine: Vec<u64> = near.of(row as usize).iter().zip(&open).map(|(near, open)| near & open).collect();
            open.iter_mut().zip(&mine).for_each(|(open, mine)| *open &= !mine);
            groups.push((row, Bits::members(&mine).collect()));
        }
    }
    groups
}

/// Compares the rows of a representative with its candidates. Returns the pairs, and the number of computed
/// distances.
fn verify(
    joined: &Joined<'_>,
    members: &[u32],
    candidates: &[u32],
    hits: &mut Vec<adjoin::kernels::HitMask>,
) -> (Vec<(u32, u32)>, u64) {
    let Joined { context, rows, limit, .. } = *joined;
    let columns = context.kernel.pack(rows, candidates);
    hits.clear();
    let reach = vec![candidates.len() as u32; members.len()];
    let distances = context.kernel.within(rows, members, &columns, &reach, limit, hits);
    let mut pairs = Vec::new();
    for mask in hits.iter() {
        let row = members[mask.row as usize];
        let others = mask.columns().map(|column| candidates[column as usize]).filter(|&other| other != row);
        pairs.extend(others.map(|other| (row.min(other), row.max(other))));
    }
    (pairs, distances)
}
