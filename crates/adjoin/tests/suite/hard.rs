//! Joins of sets and thresholds that are edge cases.

use std::sync::{Arc, Mutex};

use adjoin::{Element, ErrorKind, Ids, Metric, OnDuplicateId, PairBatch, PairSink, Predicate, Result, Written};

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup, assert_same, error_of, join};

const ELEMENTS: [Element; 4] = [Element::F32, Element::F16, Element::U8, Element::I8];

fn l2(eps: f64) -> Predicate {
    Predicate::l2(eps).unwrap()
}

fn cosine(min_similarity: f64) -> Predicate {
    Predicate::cosine(min_similarity).unwrap()
}

/// Returns `packed` vectors that are close together, and `scattered` vectors that are far from all others.
pub(crate) fn clump(element: Element, packed: usize, scattered: usize, dimensions: usize) -> Set {
    let mut random = adjoin::Random::new(3, "clump");
    let mut values: Vec<f64> = (0..packed * dimensions).map(|_| 100.0 + random.below(3) as f64).collect();
    values.extend((0..scattered * dimensions).map(|_| random.below(128) as f64));
    Set::of(element, dimensions, &values)
}

#[test]
fn one_vector_has_no_pair() {
    for element in ELEMENTS {
        let set = Set::of(element, 3, &[1.0, 2.0, 3.0]);
        let setup = Setup::default();
        for predicate in [l2(0.0), l2(1e300), cosine(-1.0)] {
            let joined = join(&set, &setup, predicate).unwrap();
            let (rows, edges) = (joined.statistics.common.rows, joined.statistics.join.edges);
            assert_eq!((joined.pairs.len(), rows, edges), (0, 1, 0));
        }
    }
}

/// Checks vectors with a length that has a subnormal reciprocal or one above f32. The codes that exclude pairs must
/// not depend on the reciprocal.
#[test]
fn vectors_of_any_length_are_compared_under_cosine() {
    let mut random = adjoin::Random::new(5, "lengths");
    let (rows, dimensions) = (120, 33);
    let lengths = [1e-44, 1e-39, 1e-30, 1.0, 1e30, 1e37];
    let values = (0..rows * dimensions).map(|k| random.normal() * lengths[k / dimensions % lengths.len()]);
    let set = Set::of(Element::F32, dimensions, &values.collect::<Vec<_>>());
    for buckets in [1, 10] {
        let setup = Setup::default().with_buckets(buckets);
        assert_eq!(join(&set, &setup, cosine(-1.0)).unwrap().pairs.len(), rows * (rows - 1) / 2);
    }
}

#[test]
fn equal_vectors_are_all_pairs() {
    let dimensions = 5;
    for element in ELEMENTS {
        let values: Vec<f64> = (0..500).flat_map(|_| [3.0, 0.0, 7.0, 1.0, 9.0]).collect();
        let set = Set::of(element, dimensions, &values);
        let all: Vec<(u64, u64)> = (0..500).flat_map(|x| (x + 1..500).map(move |y| (x, y))).collect();
        for (predicate, value) in [(l2(0.0), 0.0), (l2(1e-300), 0.0), (cosine(1.0), 1.0), (cosine(0.5), 1.0)] {
            for buckets in [1, 10, 500] {
                let setup = Setup::default().with_buckets(buckets);
                let wanted: Vec<_> = all.iter().map(|&(x, y)| (x, y, value)).collect();
                let found = join(&set, &setup, predicate).unwrap().pairs;
                assert_same(&found, &wanted, &format!("{element} {predicate:?} {buckets}"));
            }
        }
    }
}

#[test]
fn distance_zero_finds_the_duplicates_and_nothing_else() {
    for element in ELEMENTS {
        for shape in [Shape::Repeated, Shape::Uniform] {
            let set = make(shape, element, 1000, 16, 21);
            let wanted = set.true_pairs(l2(0.0));
            assert_eq!(wanted.is_empty(), shape == Shape::Uniform);
            let alike = set.true_pairs(cosine(1.0));
            assert!(alike.len() >= wanted.len());
            let setup = Setup::default();
            assert_same(&join(&set, &setup, l2(0.0)).unwrap().pairs, &wanted, "eps 0");
            assert_same(&join(&set, &setup, cosine(1.0)).unwrap().pairs, &alike, "cosine 1");
        }
    }
}

#[test]
fn one_bucket_may_have_almost_all_rows() {
    for element in ELEMENTS {
        let set = clump(element, 2000, 100, 4);
        let near = l2(2.0);
        let wanted = set.true_pairs(near);
        assert!(wanted.len() > 500_000);
        for buckets in [2, 40] {
            let setup = Setup::default().with_buckets(buckets);
            let found = join(&set, &setup, near).unwrap().pairs;
            assert_same(&found, &wanted, &format!("{element} in {buckets} buckets"));
        }
    }
}

#[test]
fn the_number_of_buckets_is_at_most_that_of_rows() {
    for element in ELEMENTS {
        let set = make(Shape::Uniform, element, 20, 6, 2);
        let built = Setup::default().with_buckets(1000).build(&set).unwrap();
        assert!(built.store.extents().len() <= 20);
        for eps in [0.0, 0.5, 50.0, 200.0] {
            let found = built.join(&Setup::default(), l2(eps)).unwrap().pairs;
            assert_same(&found, &set.true_pairs(l2(eps)), "20 rows");
        }
    }
}

#[test]
fn thresholds_beyond_every_distance_give_every_pair() {
    for element in ELEMENTS {
        let set = make(Shape::Clustered, element, 300, 7, 6);
        for predicate in [l2(1e6), l2(1e30), l2(1e200), l2(f64::MAX), cosine(-1.0)] {
            let setup = Setup::default().with_buckets(30);
            let found = join(&set, &setup, predicate).unwrap().pairs;
            assert_same(&found, &set.true_pairs(predicate), &format!("{element} {predicate:?}"));
            assert_eq!(found.len(), 300 * 299 / 2);
        }
    }
}

#[test]
fn opposite_vectors_have_similarity_minus_one() {
    let values: Vec<f64> = (0..50)
        .flat_map(|k| [f64::from(k % 7 + 1), f64::from(k % 5)].map(|x| x * [1.0, -1.0][k as usize % 2]))
        .collect();
    for element in [Element::F32, Element::F16, Element::I8] {
        let set = Set::of(element, 2, &values);
        for s in [-1.0, (-1f64).next_up(), -0.999, 0.0, 1f64.next_down(), 1.0] {
            let found = join(&set, &Setup::default().with_buckets(9), cosine(s)).unwrap().pairs;
            assert_same(&found, &set.true_pairs(cosine(s)), &format!("{element} {s}"));
        }
    }
}

/// Row and id on the left, row and id on the right.
type NamedPair = (u64, String, u64, String);

/// Sink that collects rows and ids of pairs.
#[derive(Clone, Default)]
struct CollectIds(Arc<Mutex<Vec<NamedPair>>>);

impl PairSink for CollectIds {
    fn wants_ids(&self) -> bool {
        true
    }

    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        let pair = |k| {
            let (left, right) = (batch.left_rows[k], batch.right_rows[k]);
            (left, batch.left_ids.display(k, left), right, batch.right_ids.display(k, right))
        };
        self.0.lock().unwrap().extend((0..batch.len()).map(pair));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        Ok(Written::default())
    }
}

#[test]
fn pairs_have_the_ids_of_their_rows() {
    let rows = 400;
    let plain = make(Shape::Clustered, Element::F16, rows, 8, 4);
    let numbers: Vec<i64> = (0..rows as i64).map(|row| i64::MIN + row * 7_919).collect();
    let texts: Vec<String> = (0..rows).map(|row| "ä".repeat(row % 40) + &row.to_string()).collect();
    let wanted = plain.true_pairs(l2(1.0));
    assert!(wanted.len() > 1000);
    let id_texts = |ids: Ids| (0..rows).map(|row| ids.display(row, row as u64)).collect::<Vec<_>>();
    for (set, ids) in [
        (plain.clone(), id_texts(Ids::None)),
        (plain.clone().with_ids(&numbers), id_texts(Ids::Int64(numbers.clone()))),
        (plain.clone().with_text_ids(&texts), texts.clone()),
    ] {
        let sink = CollectIds::default();
        let built = Setup::default().with_buckets(25).build(&set).unwrap();
        built.join_into(&Setup::default(), l2(1.0), Box::new(sink.clone())).unwrap();
        let mut found = sink.0.lock().unwrap().clone();
        found.sort();
        assert!(found.iter().map(|pair| (pair.0, pair.2)).eq(wanted.iter().map(|pair| (pair.0, pair.1))));
        assert!(found.iter().all(|pair| pair.1 == ids[pair.0 as usize] && pair.3 == ids[pair.2 as usize]));
        assert_same(&built.join(&Setup::default(), l2(1.0)).unwrap().pairs, &wanted, "without ids");
    }
}

#[test]
fn duplicate_ids_are_refused_or_kept() {
    let plain = make(Shape::Clustered, Element::U8, 30, 4, 4);
    let numbers: Vec<i64> = (0..30).map(|row| if row == 17 || row == 25 { 3 } else { row }).collect();
    let texts: Vec<String> = numbers.iter().map(|id| format!("document {id}")).collect();
    for (set, id) in [(plain.clone().with_ids(&numbers), "3"), (plain.clone().with_text_ids(&texts), "document 3")] {
        let error = error_of(Setup::default().build(&set).map(|_| ()));
        assert_eq!(error.kind(), ErrorKind::Input);
        let message = error.to_string();
        for part in ["set.in.memory", &format!("the id {id} of row 17"), "2 such rows", "on-duplicate-id keep"] {
            assert!(message.contains(part), "{message}");
        }
        let mut keeping = Setup::default();
        keeping.build.on_duplicate_id = OnDuplicateId::Keep;
        let joined = join(&set, &keeping, l2(50.0)).unwrap();
        assert_eq!(joined.statistics.common.duplicate_ids, Some(2));
        assert_same(&joined.pairs, &plain.true_pairs(l2(50.0)), "with duplicate ids");
    }
}

/// Returns a set in which four of ten rows are good, and the numbers of the good rows. Bad rows are null or not
/// finite. If the metric requires it, zero vectors are bad too.
fn spoilt(element: Element, metric: Metric) -> (Set, Vec<u64>) {
    let rows = 200u32;
    let mut values: Vec<f64> = (0..rows * 3).map(|k| f64::from(k * 37 % 50 + 1)).collect();
    let mut bad = Vec::new();
    let mut missing = Vec::new();
    for row in 0..u64::from(rows) {
        let vector = &mut values[row as usize * 3..][..3];
        let floats = !element.is_integer();
        match row % 10 {
            1 => missing.push(row),
            3 if floats => vector[2] = f64::NAN,
            4 if floats => vector[0] = f64::INFINITY,
            6 if floats => vector[1] = f64::NEG_INFINITY,
            9 => vector.fill(0.0),
            _ => continue,
        }
        if row % 10 != 9 || metric == Metric::Cosine {
            bad.push(row);
        }
    }
    (Set::of(element, 3, &values).with_missing(&missing).in_batches_of(200), bad)
}

#[test]
fn bad_rows_are_reported_or_skipped_and_counted() {
    for element in ELEMENTS {
        for predicate in [l2(20.0), cosine(0.95)] {
            let metric = predicate.metric();
            let (set, bad) = spoilt(element, metric);
            let error = error_of(join(&set, &Setup::default(), predicate));
            assert_eq!(error.kind(), ErrorKind::Input);
            let message = error.to_string();
            for row in &bad[..5] {
                let fault = match (row % 10, element.is_integer()) {
                    (1, _) => "is null",
                    (3, false) => "has NaN at element 2",
                    (4, false) => "has inf at element 0",
                    (6, false) => "has -inf at element 1",
                    _ => "is all zeros",
                };
                let part = format!("set.in.memory: the vector of row {row} {fault}");
                assert!(message.contains(&part), "{message}\nlacks {part}");
            }
            assert!(message.contains("and more; fix the rows, or give on-bad skip"), "{message}");

            let joined = join(&set, &Setup::default().with_buckets(20).skipping_bad_rows(), predicate).unwrap();
            assert_eq!(
                (joined.statistics.common.skipped_rows, joined.statistics.common.rows),
                (bad.len() as u64, 200 - bad.len() as u64)
            );
            let mut wanted = set.true_pairs(predicate);
            wanted.retain(|pair| !bad.contains(&pair.0) && !bad.contains(&pair.1));
            assert!(!wanted.is_empty());
            assert_same(&joined.pairs, &wanted, &format!("{element} {metric}: skipped rows"));
        }
    }
}

#[test]
fn sets_without_a_usable_row_are_refused() {
    for element in ELEMENTS {
        let error = error_of(join(&Set::of(element, 3, &[]), &Setup::default(), l2(1.0)));
        assert_eq!((error.kind(), error.to_string().contains("no rows")), (ErrorKind::Input, true), "{error}");
        let set = Set::of(element, 2, &[1.0; 10]).with_missing(&[0, 1, 2, 3, 4]);
        let error = error_of(join(&set, &Setup::default().skipping_bad_rows(), l2(1.0)));
        assert_eq!((error.kind(), error.to_string().contains("usable")), (ErrorKind::Input, true), "{error}");
    }
}

#[test]
fn a_store_of_the_other_metric_is_refused() {
    let set = make(Shape::Clustered, Element::F32, 60, 3, 4);
    for (metric, predicate, remedy) in
        [(Metric::L2, cosine(0.9), "give eps"), (Metric::Cosine, l2(1.0), "give min-similarity")]
    {
        let built = Setup::default().with_metric(metric).build(&set).unwrap();
        let error = error_of(built.join(&Setup::default(), predicate));
        assert_eq!((error.kind(), error.to_string().contains(remedy)), (ErrorKind::Option, true), "{error}");
    }
}
