//! `adjoin groundtruth` with the flags of DiskANN's `compute_groundtruth`. Its files are compared byte by byte with
//! the results of plain loops.

use crate::inputs::fbin;
use crate::options::least_budget;
use crate::place::Place;

/// A small set with few distinct values, so that many distances are equal.
struct Set {
    dimensions: usize,
    values: Vec<f64>,
}

impl Set {
    /// Creates integers from -2 to 2 in a fixed pseudorandom order, adds `shift`, and divides by `divisor`. No row
    /// consists of zeros only.
    fn new(rows: usize, dimensions: usize, shift: f64, divisor: f64, seed: u64) -> Self {
        let mut state = seed;
        let mut value = |k: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let small = f64::from((state >> 40) as u32 % 5) - 2.0;
            (if k.is_multiple_of(dimensions) && small == 0.0 { 1.0 } else { small } + shift) / divisor
        };
        Self { dimensions, values: (0..rows * dimensions).map(&mut value).collect() }
    }

    /// Returns the set as a file with this element type.
    fn bytes(&self, data_type: &str) -> Vec<u8> {
        let rows = self.values.len() / self.dimensions;
        let mut bytes: Vec<u8> = [rows, self.dimensions].iter().flat_map(|&x| (x as u32).to_le_bytes()).collect();
        for &value in &self.values {
            match data_type {
                "float" => bytes.extend((value as f32).to_le_bytes()),
                "int8" => bytes.push((value as i8).cast_unsigned()),
                _ => bytes.push(value as u8),
            }
        }
        bytes
    }

    fn rows(&self, data_type: &str) -> Vec<Vec<f64>> {
        let stored = |&value: &f64| if data_type == "float" { f64::from(value as f32) } else { value };
        self.values.chunks(self.dimensions).map(|row| row.iter().map(stored).collect()).collect()
    }
}

/// Returns for each query all rows, nearest first. Each has the distance as it is written, and the id.
fn oracle(dist_fn: &str, base: &[Vec<f64>], queries: &[Vec<f64>], id: impl Fn(usize) -> u32) -> Vec<Vec<(f64, u32)>> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).fold(0.0, |sum, (x, y)| sum + x * y);
    // Returns the sort key and the value that is written.
    let measure = |x: &[f64], y: &[f64]| match dist_fn {
        "l2" => {
            let squared = x.iter().zip(y).fold(0.0, |sum, (x, y)| sum + (x - y) * (x - y));
            (squared, squared)
        }
        "mips" => (-dot(x, y), dot(x, y)),
        _ => {
            let cosine = dot(x, y) / (dot(x, x) * dot(y, y)).sqrt();
            (-cosine, (2.0 - 2.0 * cosine).max(0.0))
        }
    };
    let of_query = |query: &Vec<f64>| {
        let mut all: Vec<_> = base.iter().enumerate().map(|(row, y)| (measure(query, y), id(row))).collect();
        all.sort_by(|((a, _), x), ((b, _), y)| (a + 0.0).total_cmp(&(b + 0.0)).then(x.cmp(y)));
        all.into_iter().map(|((_, written), id)| (written + 0.0, id)).collect()
    };
    queries.iter().map(of_query).collect()
}

/// Returns the expected file of the `k` nearest rows.
fn nearest_file(all: &[Vec<(f64, u32)>], k: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = [all.len(), k].iter().flat_map(|&x| (x as i32).to_le_bytes()).collect();
    all.iter().flat_map(|all| &all[..k]).for_each(|(_, id)| bytes.extend(id.to_le_bytes()));
    all.iter().flat_map(|all| &all[..k]).for_each(|(written, _)| bytes.extend((*written as f32).to_le_bytes()));
    bytes
}

/// Returns the expected file of all rows with distances that `is_within` accepts.
fn range_file(all: &[Vec<(f64, u32)>], is_within: impl Fn(f64) -> bool, with_distances: bool) -> Vec<u8> {
    let within: Vec<Vec<_>> =
        all.iter().map(|all| all.iter().filter(|(written, _)| is_within(*written)).collect()).collect();
    let total: usize = within.iter().map(Vec::len).sum();
    let counts = [all.len(), total].into_iter().chain(within.iter().map(Vec::len));
    let mut bytes: Vec<u8> = counts.flat_map(|x| (x as i32).to_le_bytes()).collect();
    within.iter().flatten().for_each(|(_, id)| bytes.extend(id.to_le_bytes()));
    if with_distances {
        within.iter().flatten().for_each(|(written, _)| bytes.extend((*written as f32).to_le_bytes()));
    }
    bytes
}

const FILES: &str = "--base_file base.data --query_file queries.bin --gt_file truth --quiet";

/// Writes more rows, and more queries, than are compared at a time.
fn with_sets(data_type: &str) -> (Place, Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let (shift, divisor) = match data_type {
        "float" => (0.0, 7.0),
        "int8" => (0.0, 1.0),
        _ => (3.0, 1.0),
    };
    let (base, queries) = (Set::new(5_000, 5, shift, divisor, 1), Set::new(70, 5, shift, divisor, 2));
    let place = Place::new();
    place.write("base.data", &base.bytes(data_type));
    place.write("queries.bin", &queries.bytes(data_type));
    (place, base.rows(data_type), queries.rows(data_type))
}

#[test]
fn ground_truth_equals_brute_force_for_every_type_and_distance() {
    for data_type in ["float", "int8", "uint8"] {
        let (place, base, queries) = with_sets(data_type);
        for dist_fn in ["l2", "mips", "cosine"] {
            let truth = oracle(dist_fn, &base, &queries, |row| row as u32);
            let line = format!("groundtruth {FILES} --data_type {data_type} --dist_fn {dist_fn} --force");
            for resources in ["--threads 1", "--threads 3 --memory 40MB", "--kernel reference"] {
                place.done(&format!("{line} --K 7 {resources}"));
                assert!(place.read("truth") == nearest_file(&truth, 7), "{line} {resources}");
            }
            place.done(&format!("{line} --K 5000"));
            assert!(place.read("truth") == nearest_file(&truth, 5_000), "{line}");
        }
    }
}

#[test]
fn ground_truth_uses_tags_as_ids_if_given() {
    let (place, base, queries) = with_sets("float");
    // The order of the tags is not the order of the rows. 0 is a valid tag.
    let tag = |row: usize| (row as u32).wrapping_mul(2_654_435_761) ^ 2_654_435_761;
    assert_eq!(tag(1), 0);
    let tags: Vec<u8> = [5_000, 1].into_iter().chain((0..5_000).map(tag)).flat_map(u32::to_le_bytes).collect();
    place.write("tags", &tags);
    let truth = oracle("l2", &base, &queries, tag);
    place.done(&format!("groundtruth {FILES} --data_type float --dist_fn l2 --K 9 --tags_file tags"));
    assert!(place.read("truth") == nearest_file(&truth, 9));
}

#[test]
fn range_ground_truth_can_be_written_in_both_formats() {
    for (dist_fn, threshold) in [("l2", 4.0), ("mips", 9.0), ("cosine", 0.5)] {
        let (place, base, queries) = with_sets("uint8");
        let truth = oracle(dist_fn, &base, &queries, |row| row as u32);
        let is_within = |written: f64| if dist_fn == "mips" { written >= threshold } else { written <= threshold };
        let line = format!("groundtruth {FILES} --data_type uint8 --dist_fn {dist_fn} --range_threshold {threshold}");
        let with_distances = range_file(&truth, is_within, true);
        assert!(with_distances.len() > 10_000, "{line}");
        place.done(&line);
        assert!(place.read("truth") == with_distances, "{line}");
        place.done(&format!("{line} --range_form diskann --force --threads 2 --memory 60MB"));
        assert!(place.read("truth") == range_file(&truth, is_within, false), "{line}");
    }
    // A row at exactly the threshold is a result. A query without results has count 0.
    let place = Place::new();
    place.write("base.data", &fbin(1, &[0.0, 2.0, 5.0]));
    place.write("queries.bin", &fbin(1, &[100.0, 2.0]));
    place.done(&format!("groundtruth {FILES} --data_type float --dist_fn l2 --range_threshold 4"));
    let numbers: Vec<u8> = [2i32, 2, 0, 2, 1, 0].into_iter().flat_map(i32::to_le_bytes).collect();
    let distances: Vec<u8> = [0f32, 4.0].into_iter().flat_map(f32::to_le_bytes).collect();
    assert_eq!(place.read("truth"), [numbers, distances].concat());
}

#[test]
fn refuses_inconsistent_ground_truth_options() {
    let place = Place::new();
    place.write("base.data", &fbin(2, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    place.write("queries.bin", &fbin(2, &[0.0, 1.0]));
    place.write("wide.bin", &fbin(3, &[0.0, 1.0, 2.0]));
    place.write("none.bin", &fbin(2, &[]));
    place.write("nan.bin", &fbin(2, &[1.0, f32::NAN]));
    place.write("zero.bin", &fbin(2, &[0.0, 0.0]));
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    place.write("two.tags", &numbers(&[2, 1, 7, 8]));
    place.write("pairs.tags", &numbers(&[3, 2, 7, 8, 9, 7, 8, 9]));
    place.write("short.tags", &numbers(&[3, 1, 7, 8]));
    place.write("stub.tags", &[3, 0, 0]);
    place.write("old", b"mine");
    let l2 = "--data_type float --dist_fn l2";
    let with = |base: &str, queries: &str, rest: &str| {
        format!("groundtruth --base_file {base} --query_file {queries} --gt_file truth {rest}")
    };
    let plain = |rest: &str| with("base.data", "queries.bin", rest);
    for (line, words) in [
        (plain(&format!("{l2} --K 4")), &["base.data: K is 4, but there are 3 rows", "smaller K"][..]),
        (plain(&format!("{l2} --K 0")), &["K is 0"]),
        (plain(l2), &["--K", "--range_threshold"]),
        (plain(&format!("{l2} --K 1 --range_threshold 2")), &["--K", "--range_threshold", "cannot be used with"]),
        (plain(&format!("{l2} --range_threshold -1")), &["range threshold is -1", "at least 0"]),
        (plain(&format!("{l2} --range_threshold nan")), &["NaN", "finite"]),
        (plain(&format!("{l2} --K 1 --range_form diskann")), &["--K", "cannot be used with"]),
        (
            plain("--data_type uint8 --dist_fn l2 --K 1"),
            &["base.data", "3 rows of 2 u8, so 14 bytes expected, found 32"],
        ),
        (plain("--data_type half --dist_fn l2 --K 1"), &["half", "float, int8, uint8"]),
        (plain("--data_type float --dist_fn l1 --K 1"), &["l1", "l2, mips, cosine"]),
        (plain("--data_type float --K 1"), &["--dist_fn", "required"]),
        (
            with("base.data", "wide.bin", &format!("{l2} --K 1")),
            &["wide.bin: queries have 3 dimensions", "base.data have 2"],
        ),
        (with("none.bin", "queries.bin", &format!("{l2} --K 1")), &["none.bin has no rows"]),
        (with("base.data", "nan.bin", &format!("{l2} --K 1")), &["nan.bin: the vector of row 0 has NaN at element 1"]),
        (with("nan.bin", "queries.bin", &format!("{l2} --K 1")), &["nan.bin: the vector of row 0 has NaN"]),
        (with("base.data", "zero.bin", "--data_type float --dist_fn cosine --K 1"), &["zero.bin", "all zeros"]),
        (with("gone.data", "queries.bin", &format!("{l2} --K 1")), &["gone.data"]),
        (plain(&format!("{l2} --K 1 --tags_file two.tags")), &["two.tags: has 2 tags, but base.data has 3 rows"]),
        (plain(&format!("{l2} --K 1 --tags_file pairs.tags")), &["pairs.tags", "2 tags per row"]),
        (plain(&format!("{l2} --K 1 --tags_file short.tags")), &["short.tags", "20 bytes expected, found 16"]),
        (plain(&format!("{l2} --K 1 --tags_file stub.tags")), &["stub.tags: 3 bytes long"]),
        (plain(&format!("{l2} --K 1 --eps 1")), &["--eps", "cannot be used with"]),
        (plain(&format!("{l2} --K 1 -o pairs.csv")), &["cannot be used with"]),
        (plain(&format!("{l2} --K 1 --id-column key")), &["cannot be used with"]),
        ("groundtruth set.fbin --eps 1 -o pairs.csv --K 3".into(), &["--base_file"]),
        (
            plain(&format!("{l2} --K 1")).replace("--gt_file truth", "--force --gt_file base.data"),
            &["base.data is an input"],
        ),
        (plain(&format!("{l2} --K 1")).replace("--gt_file truth", "--gt_file old"), &["old exists already", "--force"]),
        (
            plain(&format!("{l2} --K 1")).replace("--gt_file truth", "--gt_file nowhere/truth"),
            &["nowhere does not exist"],
        ),
    ] {
        place.refused(&line, words);
    }
}

#[test]
fn a_refused_budget_names_a_sufficient_one() {
    let (place, base, queries) = with_sets("float");
    let truth = oracle("l2", &base, &queries, |row| row as u32);
    let line = format!("groundtruth {FILES} --data_type float --dist_fn l2 --threads 1 --force");
    for (sought, expected) in [
        ("--K 5000", nearest_file(&truth, 5_000)),
        ("--range_threshold 1", range_file(&truth, |written| written <= 1.0, true)),
    ] {
        let mut budget = "1MB".to_owned();
        loop {
            let ran = place.run(&format!("{line} {sought} --memory {budget}"));
            if ran.code == Some(0) {
                break;
            }
            assert_eq!((ran.code, ran.said.lines().count()), (Some(2), 1), "{}", ran.said);
            budget = least_budget(&ran.said);
        }
        assert!(place.read("truth") == expected, "{sought}");
    }
}
