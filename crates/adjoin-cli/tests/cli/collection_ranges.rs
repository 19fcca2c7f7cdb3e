//! `adjoin search` of a collection within a radius, compared with the formula. Rows are on disk, in memory, and
//! deleted.

use std::collections::BTreeMap;

use crate::place::Place;

const ROWS: usize = 600;
const DIMENSIONS: usize = 6;

/// Vectors by their ids.
type Rows = BTreeMap<usize, Vec<f64>>;

/// Decodes the vectors in an `.fbin` file.
fn rows_of(bytes: &[u8]) -> Vec<Vec<f64>> {
    let floats: Vec<f64> = bytes[8..].as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes).into()).collect();
    floats.chunks_exact(DIMENSIONS).map(<[f64]>::to_vec).collect()
}

/// Returns the distance of two vectors, or their negated similarity.
fn far(metric: &str, a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    match metric {
        "l2" => a.iter().zip(b).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt(),
        _ => -dot(a, b) / (dot(a, a) * dot(b, b)).sqrt(),
    }
}

/// Checks that a search finds exactly the rows within the threshold of each query. Returns the number of hits.
fn check(place: &Place, metric: &str, threshold: f64, rows: &Rows, queries: &[Vec<f64>]) -> usize {
    let (option, most) = if metric == "l2" { ("--radius", threshold) } else { ("--min-similarity", -threshold) };
    let asked = format!("search set.live --queries queries.fbin {option} {threshold} -L {ROWS} --quiet");
    let out = place.done(&asked).out;
    let mut found: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for line in out.lines().skip(1) {
        let words: Vec<&str> = line.split(',').collect();
        let value: f64 = words[3].parse().unwrap();
        let value = if metric == "l2" { value } else { -value };
        assert_eq!(found.insert((words[0].parse().unwrap(), words[2].parse().unwrap()), value), None, "{line} twice");
    }
    for (number, query) in queries.iter().enumerate() {
        for (&id, row) in rows {
            let wanted = far(metric, query, row);
            match found.remove(&(number, id)) {
                Some(value) => assert!((value - wanted).abs() < 1e-5, "query {number}, {id}: {value}, {wanted}"),
                None => assert!(wanted > most - 1e-6, "query {number} does not find {id}: {wanted}"),
            }
            assert!(wanted < most + 1e-6 || !found.contains_key(&(number, id)));
        }
    }
    assert!(found.is_empty(), "what is not there is found: {found:?}");
    out.lines().count() - 1
}

#[test]
fn range_search_finds_rows_in_memory_and_on_disk() {
    for (metric, thresholds) in [("l2", [0.0, 0.8, 1.5]), ("cosine", [0.999, 0.95, 0.6])] {
        let place = Place::new();
        place.done(&format!("gen --rows {ROWS} --dimensions {DIMENSIONS} -o set.fbin --quiet"));
        place.done(&format!("gen --rows 20 --dimensions {DIMENSIONS} --seed 2 -o queries.fbin --quiet"));
        let (all, queries) = (rows_of(&place.read("set.fbin")), rows_of(&place.read("queries.fbin")));
        place.done(&format!("collection create set.live --dimensions {DIMENSIONS} --metric {metric}"));
        place.done("collection write set.live --insert set.fbin --quiet");
        let mut rows: Rows = all.into_iter().enumerate().collect();
        let mut counts = Vec::new();
        for round in 0..3 {
            counts.push(thresholds.map(|threshold| check(&place, metric, threshold, &rows, &queries)));
            place.done("collection merge set.live --quiet");
            if round == 1 {
                // Deletes a third of the rows on disk, replaces some rows, and inserts some near the queries.
                let gone: String = (0..ROWS).step_by(3).map(|id| format!("{id}\n")).collect();
                place.write("gone", gone.as_bytes());
                rows.retain(|id, _| id % 3 != 0);
                let near = queries.iter().enumerate().flat_map(|(k, query)| [(3 * k + 1, query), (ROWS + k, query)]);
                let near: Rows = near.map(|(id, query)| (id, query.iter().map(|x| x + 0.01).collect())).collect();
                let line = |(id, row): (&usize, &Vec<f64>)| format!("{{\"id\": {id}, \"v\": {row:?}}}\n");
                place.write("new.jsonl", near.iter().map(line).collect::<String>().as_bytes());
                place.done("collection write set.live --delete gone --upsert new.jsonl --quiet");
                rows.extend(near);
            }
        }
        assert!(counts[2][1] >= 40 && counts[0][2] > counts[0][1], "{counts:?}");
    }
}
