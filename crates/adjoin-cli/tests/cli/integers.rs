//! Floats that are all small integers. They must be joined as bytes, with the results of a join of floats.

use adjoin::Random;

use crate::inputs::fbin;
use crate::place::Place;

const DIMENSIONS: usize = 6;

/// Returns random integers from `least` to `least + 23`, as floats.
fn integers(rows: usize, least: i32, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed, "integers");
    (0..rows * DIMENSIONS).map(|_| (least + random.below(24) as i32) as f32).collect()
}

/// Returns a file in the format of `.u8bin` and `.i8bin` with the given values.
fn bytes(values: &[f32]) -> Vec<u8> {
    let counts = [values.len() / DIMENSIONS, DIMENSIONS].map(|count| (count as u32).to_le_bytes()).concat();
    let byte = |&value: &f32| if value < 0.0 { (value as i8).cast_unsigned() } else { value as u8 };
    [counts, values.iter().map(byte).collect()].concat()
}

fn element(place: &Place, statistics: &str) -> String {
    serde_json::from_slice::<serde_json::Value>(&place.read(statistics)).unwrap()["element"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn integers_in_floats_give_the_pairs_of_bytes() {
    let place = Place::new();
    for (name, least) in [("u8", 0), ("u8", 231), ("i8", -128), ("i8", -10)] {
        let values = integers(500, least, 1);
        place.write("floats.fbin", &fbin(DIMENSIONS, &values));
        place.write(&format!("bytes.{name}bin"), &bytes(&values));
        for (metric, limit) in [("l2", "--eps 9"), ("cosine", "--min-similarity 0.99")] {
            let join = |set: &str| {
                let options = format!("{limit} --exact --stats s.json --force -o");
                place.done(&format!("join {set} {options} {set}.csv"));
                let mut pairs: Vec<String> = place.text(&format!("{set}.csv")).lines().map(str::to_owned).collect();
                // The order of the pairs depends on threads.
                pairs.sort();
                (element(&place, "s.json"), pairs)
            };
            let (of_floats, of_bytes) = (join("floats.fbin"), join(&format!("bytes.{name}bin")));
            assert!(of_floats == of_bytes, "{name} {least} {metric}");
            assert_eq!(of_floats.0, name);
            assert!(of_floats.1.len() > 4, "{metric}: {}", of_floats.1.len());
        }
    }
}

/// Checks that two sets are joined as bytes only if the values of both fit in one byte type.
#[test]
fn other_floats_stay_floats() {
    let place = Place::new();
    place.write("set.fbin", &fbin(DIMENSIONS, &integers(300, 0, 1)));
    place.write("negative.fbin", &fbin(DIMENSIONS, &integers(300, -5, 2)));
    place.write("large.fbin", &fbin(DIMENSIONS, &integers(300, 232, 3)));
    for (name, odd) in [("half", 3.5), ("far", 256.0), ("infinite", f32::INFINITY), ("nan", f32::NAN)] {
        let mut values = integers(300, 0, 4);
        values[299 * DIMENSIONS] = odd;
        place.write(&format!("{name}.fbin"), &fbin(DIMENSIONS, &values));
    }
    for (sets, expected) in [
        ("set.fbin", "u8"),
        ("half.fbin", "f32"),
        ("far.fbin", "f32"),
        ("infinite.fbin --on-bad skip", "f32"),
        ("nan.fbin --on-bad skip", "f32"),
        ("set.fbin --with negative.fbin", "i8"),
        ("set.fbin --with large.fbin", "u8"),
        ("negative.fbin --with large.fbin", "f32"),
        ("set.fbin --with half.fbin", "f32"),
    ] {
        place.done(&format!("join {sets} --eps 9 --exact --stats s.json --force -o pairs.csv"));
        assert_eq!(element(&place, "s.json"), expected, "{sets}");
    }
}
