//! ClusterJoin (Das Sarma, He and Chaudhuri, PVLDB 7(12), 2014) on one machine. It finds all pairs. Centers are
//! randomly sampled rows. The home of a row is the nearest center. A row is also sent to every center that may be the
//! home of a row within the threshold. This is decided by the distance of the row to the bisector of both centers.
//! The rows of two homes are compared at only one of the centers, which the parity of their numbers decides.

use adjoin::{
    Random, Result,
    kernels::{HitMask, Panel},
    lab::workers::map_items,
};

use super::{Counts, Joined, Options};

/// Number of rows that are compared at once.
const SENT: usize = 4_096;

/// The center whose partition is the home of a row, and the squared distance of the row to that center.
#[derive(Debug, Clone, Copy)]
struct Home {
    center: u32,
    squared: u32,
}

pub(crate) fn join(joined: &Joined<'_>, options: &Options<'_>) -> Result<Counts> {
    let rows = joined.rows.rows();
    let count = (options.value("partitions", (rows as f64).sqrt())? as usize).clamp(1, rows);
    let seed = options.value("seed", 1.0)? as u64;
    let drawn = Random::new(seed, "centers of ClusterJoin").ascending_sample(count as u64, rows as u64);
    let mut centers = Panel::zeroed(count, joined.rows.dimensions());
    for (center, &row) in drawn.iter().enumerate() {
        centers.row_mut(center).copy_from_slice(&joined.rows.row(row as usize)[..joined.rows.dimensions()]);
    }
    let homes = homes(joined, &centers)?;
    let partitions = Partitions { joined, centers: &centers, homes: &homes };
    let parts = map_items(
        joined.context.threads,
        count,
        &joined.context.cancel,
        || (),
        |(), center| Ok(partitions.join(center as u32)),
    )?;
    let mut counts = Counts { pairs: 0, distances: (rows * count) as u64 };
    parts.into_iter().for_each(|part| counts += part);
    Ok(counts)
}

fn homes(joined: &Joined<'_>, centers: &Panel<u8>) -> Result<Vec<Home>> {
    let distances = || vec![0; centers.rows()];
    map_items(joined.context.threads, joined.rows.rows(), &joined.context.cancel, distances, |distances, row| {
        joined.context.kernel.one_to_many(joined.rows.row(row), centers, distances);
        let center = joined.context.kernel.first_least::<u8>(distances);
        Ok(Home { center: center as u32, squared: distances[center] })
    })
}

struct Partitions<'a> {
    joined: &'a Joined<'a>,
    centers: &'a Panel<u8>,
    homes: &'a [Home],
}

impl Partitions<'_> {
    /// Joins the rows of a home with each other, and with the rows that are sent there.
    fn join(&self, center: u32) -> Counts {
        let Joined { context, rows, limit, .. } = *self.joined;
        let at_home: Vec<u32> =
            (0..rows.rows() as u32).filter(|&row| self.homes[row as usize].center == center).collect();
        let columns = context.kernel.pack(rows, &at_home);
        let all = at_home.len() as u32;
        let mut hits = Vec::new();
        // Compares each row of the home with the earlier ones. A tile computes some pairs with later rows too.
        let before: Vec<u32> = (0..all).collect();
        let mut distances = context.kernel.within(rows, &at_home, &columns, &before, limit, &mut hits);
        let of_earlier = |mask: &HitMask| mask.columns().filter(|&column| column < mask.row).count() as u64;
        let mut pairs: u64 = hits.iter().map(of_earlier).sum();
        for some in self.sent(center).chunks(SENT) {
            hits.clear();
            distances += context.kernel.within(rows, some, &columns, &vec![all; some.len()], limit, &mut hits);
            pairs += hits.iter().map(|mask| u64::from(mask.count())).sum::<u64>();
        }
        Counts { pairs, distances }
    }

    /// Returns the rows with other homes that are to be compared here. Each may be within the threshold of a row of
    /// this home.
    fn sent(&self, center: u32) -> Vec<u32> {
        let Joined { context, rows, eps, .. } = *self.joined;
        let own = self.centers.row(center as usize);
        let mut to_centers = vec![0; self.centers.rows()];
        context.kernel.one_to_many(own, self.centers, &mut to_centers);
        let meets_here = |other: u32| other != center && (other + center).is_multiple_of(2) == (other < center);
        let may_be_near = |row: u32, home: Home| {
            // This distance was counted when the homes were computed. It is computed again to save memory.
            let squared = context.kernel.distance(rows.row(row as usize), own);
            let apart = f64::from(to_centers[home.center as usize]).sqrt();
            f64::from(squared - home.squared) <= 2.0 * eps * apart
        };
        let homes = (0..).zip(self.homes).filter(|(_, home)| meets_here(home.center));
        homes.filter(|&(row, &home)| may_be_near(row, home)).map(|(row, _)| row).collect()
    }
}
