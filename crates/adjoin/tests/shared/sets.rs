//! Graphs and vectors for unit tests of the engine and of the laboratory, which include this file as a module.

use crate::Random;
use crate::kernels::Panel;

/// A graph as one list of out-neighbors per vertex.
pub(crate) type Lists = Vec<Vec<u32>>;

/// Returns graphs of small degree with their names: with and without edges, with one component and with several.
pub(crate) fn graphs() -> Vec<(&'static str, Lists)> {
    let mut random = Random::new(1, "graphs for layouts");
    let mut drawn = |vertices: u32, degree: usize, reach: u32| -> Lists {
        let of = |vertex: u32, random: &mut Random| {
            let mut list: Vec<u32> = Vec::new();
            for _ in 0..random.below(degree as u64 + 1) {
                let from = vertex.saturating_sub(reach);
                let to = (vertex + reach).min(vertices - 1);
                let neighbor = from + random.below(u64::from(to - from) + 1) as u32;
                if neighbor != vertex && !list.contains(&neighbor) {
                    list.push(neighbor);
                }
            }
            list
        };
        (0..vertices).map(|vertex| of(vertex, &mut random)).collect()
    };
    let near = drawn(500, 9, 12);
    let far = drawn(300, 6, 300);
    let groups: Lists = (0..90u32).map(|v| (v / 9 * 9..v / 9 * 9 + 9).filter(|&n| n != v).collect()).collect();
    let star: Lists = (0..40u32).map(|v| if v == 0 { (1..40).collect() } else { vec![0] }).collect();
    vec![
        ("one vertex", vec![vec![]]),
        ("two vertices", vec![vec![1], vec![]]),
        ("no edges", vec![vec![]; 33]),
        ("groups", groups),
        ("a star", star),
        ("near edges", near),
        ("edges everywhere", far),
    ]
}

/// Computes the overlap ratio OR(G) by its formula: the mean fraction of the other vertices on a vertex's page that
/// are its neighbors.
pub(crate) fn ratio(lists: &Lists, order: &[u32], records: usize) -> f64 {
    let of = |page: &[u32], vertex: u32| {
        let near = page.iter().filter(|&other| lists[vertex as usize].contains(other)).count();
        if page.len() == 1 { 0.0 } else { near as f64 / (page.len() - 1) as f64 }
    };
    let all: f64 = order.chunks(records).flat_map(|page| page.iter().map(move |&vertex| of(page, vertex))).sum();
    all / order.len() as f64
}

/// Returns normally distributed vectors of `hidden` dimensions, embedded in `dimensions` dimensions. If both numbers
/// are equal, the vectors are not transformed.
pub(crate) fn vectors(rows: usize, dimensions: usize, hidden: usize, seed: u64) -> Panel<f32> {
    let (mut random, mut axes) = (Random::new(seed, "vectors"), Random::new(1, "hidden axes"));
    let axes: Vec<f64> = (0..dimensions * hidden).map(|_| axes.normal()).collect();
    let mut panel = Panel::zeroed(rows, dimensions);
    for row in 0..rows {
        let inner: Vec<f64> = (0..hidden).map(|_| random.normal()).collect();
        for (k, to) in panel.row_mut(row).iter_mut().enumerate() {
            let seen = || inner.iter().zip(&axes[k * hidden..]).map(|(x, axis)| x * axis).sum::<f64>();
            *to = 3.0 + if hidden == dimensions { inner[k] } else { seen() } as f32;
        }
    }
    panel
}
