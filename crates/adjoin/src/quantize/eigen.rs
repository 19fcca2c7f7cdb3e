//! Computes eigenvectors of symmetric matrices, by Householder's tridiagonal form and implicit QL steps (Bowdler,
//! Martin, Reinsch, Wilkinson, "The QR and QL algorithms for symmetric matrices", Numerische Mathematik 11, 1968). It
//! uses f64 with a fixed order of operations, so results are equal on every machine.

/// A square matrix, stored row by row.
pub(super) struct Square {
    elements: Vec<f64>,
    side: usize,
}

impl Square {
    pub(super) fn new(elements: Vec<f64>, side: usize) -> Self {
        assert_eq!(elements.len(), side * side, "elements of a square");
        Self { elements, side }
    }

    pub(super) fn identity(side: usize) -> Self {
        let elements = (0..side * side).map(|at| f64::from(u8::from(at / side == at % side))).collect();
        Self { elements, side }
    }

    pub(super) fn row(&self, row: usize) -> &[f64] {
        &self.elements[row * self.side..][..self.side]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.elements[row * self.side..][..self.side]
    }

    /// Returns rows `row` and `row + 1`.
    fn two_rows(&mut self, row: usize) -> (&mut [f64], &mut [f64]) {
        self.elements[row * self.side..][..2 * self.side].split_at_mut(self.side)
    }
}

/// Largest number of steps for an eigenvalue. Two steps are usual.
const STEPS_MAX: usize = 50;

/// Returns the eigenvalues of a symmetric matrix, descending, and their eigenvectors, which are rows of length 1.
pub(super) fn eigenvectors(matrix: Square) -> (Vec<f64>, Square) {
    let side = matrix.side;
    let (mut diagonal, mut beside, mut vectors) = tridiagonal(matrix);
    ql(&mut diagonal, &mut beside, &mut vectors);
    let mut order: Vec<usize> = (0..side).collect();
    order.sort_by(|&a, &b| diagonal[b].total_cmp(&diagonal[a]));
    let elements = order.iter().flat_map(|&k| vectors.row(k).iter().copied()).collect();
    (order.iter().map(|&k| diagonal[k]).collect(), Square { elements, side })
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Adds `factor * from` to `to`.
fn add(to: &mut [f64], factor: f64, from: &[f64]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += factor * from);
}

/// Reduces a symmetric matrix A to the tridiagonal form `Q' A Q`. Returns its diagonal, its off-diagonal, and the
/// columns of Q as rows.
fn tridiagonal(mut matrix: Square) -> (Vec<f64>, Vec<f64>, Square) {
    let side = matrix.side;
    let (mut beside, mut mirrors) = (vec![0.0; side], Vec::new());
    for (k, beside) in beside.iter_mut().enumerate().take(side.saturating_sub(1)) {
        // The reflection maps the rest of the row to a multiple of the first axis, so that only the element next to the
        // diagonal is left.
        let mut mirror = matrix.row(k)[k + 1..].to_vec();
        let length = dot(&mirror, &mirror).sqrt();
        // The sign is chosen such that the next line adds two numbers of equal sign, so that no digits cancel.
        *beside = if mirror[0] > 0.0 { -length } else { length };
        mirror[0] -= *beside;
        let squared = dot(&mirror, &mirror);
        // A row of zeros needs no reflection.
        if squared > 0.0 {
            reflect(&mut matrix, k + 1, &mirror, 2.0 / squared);
        }
        mirrors.push((mirror, if squared > 0.0 { 2.0 / squared } else { 0.0 }));
    }
    let mut vectors = Square::identity(side);
    // Q is the product of all reflections; the last one changes the fewest rows.
    for (k, (mirror, factor)) in mirrors.iter().enumerate().rev() {
        for row in k + 1..side {
            let part = &mut vectors.row_mut(row)[k + 1..];
            let along = factor * dot(part, mirror);
            add(part, -along, mirror);
        }
    }
    let diagonal = (0..side).map(|k| matrix.row(k)[k]).collect();
    (diagonal, beside, vectors)
}

/// Applies a reflection to both sides of a symmetric matrix, to the part that starts at row and column `from`.
fn reflect(matrix: &mut Square, from: usize, mirror: &[f64], factor: f64) {
    let mut along: Vec<f64> = (from..matrix.side).map(|row| factor * dot(&matrix.row(row)[from..], mirror)).collect();
    let half = factor / 2.0 * dot(&along, mirror);
    add(&mut along, -half, mirror);
    // Both sides are updated at once, by a symmetric update of rank two. This takes half the work of two reflections.
    for (row, (&m, &a)) in (from..).zip(mirror.iter().zip(&along)) {
        let part = &mut matrix.row_mut(row)[from..];
        add(part, -m, &along);
        add(part, -a, mirror);
    }
}

/// Reduces the off-diagonal `beside` to zero. Each rotation also rotates two adjacent rows of `vectors`.
fn ql(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut Square) {
    let side = diagonal.len();
    for first in 0..side {
        for _ in 0..STEPS_MAX {
            let negligible = |&k: &usize| beside[k].abs() <= f64::EPSILON * (diagonal[k].abs() + diagonal[k + 1].abs());
            // A negligible element splits the matrix. Only the part before it is reduced further.
            let last = (first..side - 1).find(negligible).unwrap_or(side - 1);
            if last == first {
                break;
            }
            ql_step(diagonal, beside, vectors, first, last);
        }
    }
}

/// Performs a QL step on the rows from `first` to `last`.
fn ql_step(diagonal: &mut [f64], beside: &mut [f64], vectors: &mut Square, first: usize, last: usize) {
    // This is Wilkinson's shift: of the two eigenvalues of the first two rows, the one nearer to the first element. It
    // makes the steps converge fast.
    let slope = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first]);
    let shift = beside[first] / (slope + (slope * slope + 1.0).sqrt().copysign(slope));
    let mut bulge = diagonal[last] - diagonal[first] + shift;
    let (mut sine, mut cosine, mut moved) = (1.0, 1.0, 0.0);
    for k in (first..last).rev() {
        let (over, under) = (sine * beside[k], cosine * beside[k]);
        let length = (over * over + bulge * bulge).sqrt();
        beside[k + 1] = length;
        // The rotation would divide by zero. The matrix has split here, so the next step continues with a smaller part.
        if length == 0.0 {
            diagonal[k + 1] -= moved;
            beside[last] = 0.0;
            return;
        }
        (sine, cosine) = (over / length, bulge / length);
        let kept = diagonal[k + 1] - moved;
        let turned = (diagonal[k] - kept) * sine + 2.0 * cosine * under;
        moved = sine * turned;
        diagonal[k + 1] = kept + moved;
        bulge = cosine * turned - under;
        let (upper, lower) = vectors.two_rows(k);
        for (upper, lower) in upper.iter_mut().zip(lower) {
            (*upper, *lower) = (cosine * *upper - sine * *lower, sine * *upper + cosine * *lower);
        }
    }
    diagonal[first] -= moved;
    (beside[first], beside[last]) = (bulge, 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;

    /// Checks `A v = w v`, that vectors are orthonormal, and that values descend.
    fn check(elements: &[f64], side: usize) {
        let (values, vectors) = eigenvectors(Square::new(elements.to_vec(), side));
        let size = elements.iter().fold(0.0_f64, |most, x| most.max(x.abs())) * side as f64 + 1e-300;
        assert!(values.is_sorted_by(|a, b| a >= b));
        for (k, &value) in values.iter().enumerate() {
            for row in 0..side {
                let image = dot(&elements[row * side..][..side], vectors.row(k));
                assert!((image - value * vectors.row(k)[row]).abs() <= 1e-12 * size, "{side} {k}");
            }
            for other in 0..side {
                let expected = f64::from(u8::from(other == k));
                assert!((dot(vectors.row(k), vectors.row(other)) - expected).abs() < 1e-12, "{side} {k} {other}");
            }
        }
    }

    #[test]
    fn finds_eigenvectors_of_random_matrices() {
        let mut random = Random::new(1, "eigen");
        for side in [1, 2, 3, 17, 60] {
            for scale in [1.0, 1e70, 1e-60] {
                let factors: Vec<f64> = (0..side * side).map(|_| random.normal()).collect();
                let row = |k: usize| &factors[k * side..][..side];
                let product = (0..side * side).map(|at| scale * dot(row(at / side), row(at % side)));
                check(&product.collect::<Vec<_>>(), side);
            }
        }
    }

    #[test]
    fn finds_eigenvectors_of_degenerate_matrices() {
        check(&Square::identity(7).elements, 7);
        check(&[0.0; 25], 5);
        check(&[1.0; 36], 6);
        let mut diagonal = Square::identity(4);
        (0..4).for_each(|k| diagonal.row_mut(k)[k] = [3.0, 0.0, -2.0, 3.0][k]);
        check(&diagonal.elements, 4);
    }
}
