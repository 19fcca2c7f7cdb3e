//! Reads a `.u8bin` file as vectors and held-out queries, and computes the true neighbors of the queries. Used in
//! experiments on graphs in memory.

use adjoin::{Context, Error, Result, kernels::Panel, lab::workers::map_items};

/// Number of vectors at the end of a file that are used as queries.
pub(crate) const QUERIES: usize = 1_000;

/// Reads a file. Returns its vectors except the last [`QUERIES`], and these as queries.
///
/// # Errors
/// If the file cannot be read or has too few vectors.
pub(crate) fn read(file: &str) -> Result<(Panel<u8>, Panel<u8>)> {
    let bytes = std::fs::read(file).map_err(|error| Error::input(format!("{file}: {error}")))?;
    let (header, elements) = bytes.split_at_checked(8).ok_or_else(|| Error::input(format!("{file}: too short")))?;
    let [rows, dimensions] = [0, 4].map(|at| header[at..at + 4].iter().rev().fold(0, |n, &b| n << 8 | usize::from(b)));
    if elements.len() != rows * dimensions || rows <= QUERIES {
        return Err(Error::input(format!("{file}: not a u8bin file of more than {QUERIES} vectors")));
    }
    let panel = |first: usize, count: usize| {
        let mut panel = Panel::zeroed(count, dimensions);
        for row in 0..count {
            panel.row_mut(row).copy_from_slice(&elements[(first + row) * dimensions..][..dimensions]);
        }
        panel
    };
    Ok((panel(0, rows - QUERIES), panel(rows - QUERIES, QUERIES)))
}

/// Returns, for each query, the squared distances of its `K` nearest vectors in ascending order. A vector counts as
/// found if it is not farther than the last one.
///
/// # Errors
/// If there are fewer than `K` vectors.
pub(crate) fn truth<const K: usize>(context: &Context, base: &Panel<u8>, queries: &Panel<u8>) -> Result<Vec<[u32; K]>> {
    let distances = || vec![0; base.rows()];
    map_items(context.threads, QUERIES, &context.cancel, distances, |distances, query| {
        if base.rows() < K {
            return Err(Error::input(format!("{} vectors; give at least {K}", base.rows())));
        }
        context.kernel.one_to_many(queries.row(query), base, distances);
        distances.select_nth_unstable(K - 1);
        let mut nearest = [0; K];
        nearest.copy_from_slice(&distances[..K]);
        nearest.sort_unstable();
        Ok(nearest)
    })
}
