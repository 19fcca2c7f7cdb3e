//! Equal vectors share a vertex: of many, all but one would be pruned away, and searches would spend their lists on them.

use xxhash_rust::xxh3::xxh3_64;

use crate::context::Context;
use crate::error::Result;

/// Which rows of a set each vertex stands for. Vertices are numbered by their first rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vertices {
    /// The vertex of each row.
    of_row: Vec<u32>,
    /// Where the rows of each vertex begin, and the number of rows.
    starts: Vec<u32>,
    /// Rows by vertex, ascending within it.
    rows: Vec<u32>,
}

impl Vertices {
    /// Those of vectors of so many bytes, end to end: rows are of one vertex where all bytes are equal.
    ///
    /// # Errors
    /// Where memory does not suffice.
    ///
    /// # Panics
    /// If there are more rows than a u32 counts.
    pub fn of(context: &Context, stored: &[u8], vector_bytes: usize) -> Result<Self> {
        let count = u32::try_from(stored.len() / vector_bytes).expect("a graph in memory has fewer rows");
        let bytes = u64::from(count) * (size_of::<(u64, u32)>() as u64 + 4 * size_of::<u32>() as u64);
        let _reserved = context.reserve(bytes, "finding equal vectors")?;
        let vector = |row: u32| &stored[row as usize * vector_bytes..][..vector_bytes];
        let first_rows = first_rows(count, vector);
        let mut of_row: Vec<u32> = Vec::with_capacity(count as usize);
        let mut vertices = 0;
        for (row, &first) in (0..count).zip(&first_rows) {
            // A first row comes before all that equal it.
            of_row.push(if first == row { vertices } else { of_row[first as usize] });
            vertices += u32::from(first == row);
        }
        Ok(Self::by_vertex(of_row, vertices))
    }

    /// Sorts rows by vertex, by counting.
    fn by_vertex(of_row: Vec<u32>, vertices: u32) -> Self {
        let mut starts = vec![0; vertices as usize + 1];
        of_row.iter().for_each(|&vertex| starts[vertex as usize + 1] += 1);
        for vertex in 0..vertices as usize {
            starts[vertex + 1] += starts[vertex];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; of_row.len()];
        for (row, &vertex) in (0..).zip(&of_row) {
            rows[next[vertex as usize] as usize] = row;
            next[vertex as usize] += 1;
        }
        Self { of_row, starts, rows }
    }

    /// Number of vertices.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The vertex of a row.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn of_row(&self, row: u32) -> u32 {
        self.of_row[row as usize]
    }

    /// The rows of a vertex, ascending, at least one.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn rows(&self, vertex: u32) -> &[u32] {
        &self.rows[self.starts[vertex as usize] as usize..self.starts[vertex as usize + 1] as usize]
    }
}

/// For each row the first that equals it.
fn first_rows<'a>(count: u32, vector: impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    let mut hashes: Vec<(u64, u32)> = (0..count).map(|row| (xxh3_64(vector(row)), row)).collect();
    hashes.sort_unstable();
    let mut first_rows: Vec<u32> = (0..count).collect();
    for same_hash in hashes.chunk_by(|a, b| a.0 == b.0) {
        // Rows of one hash are nearly always equal: then this is one row.
        let mut different: Vec<u32> = Vec::new();
        for &(_, row) in same_hash {
            match different.iter().find(|&&first| vector(first) == vector(row)) {
                Some(&first) => first_rows[row as usize] = first,
                None => different.push(row),
            }
        }
    }
    first_rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn equal_vectors_share_a_vertex() {
        let mut random = Random::new(1, "equal vectors");
        for (rows, values) in [(0, 1), (1, 1), (5, 1), (300, 3), (300, 200)] {
            let stored: Vec<[u8; 2]> = (0..rows).map(|_| [random.below(values) as u8, random.below(3) as u8]).collect();
            let vertices = Vertices::of(&Context::default(), stored.as_flattened(), 2).unwrap();
            let mut firsts: Vec<[u8; 2]> = Vec::new();
            for (row, vector) in stored.iter().enumerate() {
                if !firsts.contains(vector) {
                    firsts.push(*vector);
                }
                let expected = firsts.iter().position(|first| first == vector).unwrap() as u32;
                assert_eq!(vertices.of_row(row as u32), expected);
            }
            assert_eq!((vertices.len(), vertices.is_empty()), (firsts.len(), rows == 0));
            for (vertex, first) in firsts.iter().enumerate() {
                let expected: Vec<u32> = (0..rows as u32).filter(|&row| stored[row as usize] == *first).collect();
                assert_eq!(vertices.rows(vertex as u32), expected);
            }
        }
    }
}
