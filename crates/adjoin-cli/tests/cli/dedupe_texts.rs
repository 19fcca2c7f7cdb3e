//! `adjoin dedupe --text`: near-duplicates of texts, without vectors.

use std::collections::BTreeSet;
use std::sync::Arc;

use adjoin::Random;
use arrow_array::{ArrayRef, StringArray};
use serde_json::Value;

use crate::inputs::write_columns;
use crate::options::least_budget;
use crate::place::Place;

const MIN_JACCARD: f64 = 0.6;

/// Returns texts, most of which are variants of earlier ones with some other words.
fn texts(count: usize, seed: u64) -> Vec<String> {
    let mut random = Random::new(seed, "texts");
    let mut all: Vec<Vec<u64>> = Vec::new();
    for _ in 0..count {
        let copied = (!all.is_empty() && random.below(3) > 0).then(|| random.below(all.len() as u64) as usize);
        let mut words = match copied {
            Some(earlier) => all[earlier].clone(),
            None => (0..3 + random.below(40)).map(|_| random.below(500)).collect(),
        };
        if copied.is_some() {
            for _ in 0..random.below(4) {
                let at = random.below(words.len() as u64) as usize;
                words[at] = random.below(500);
            }
        }
        all.push(words);
    }
    let text = |words: &Vec<u64>| words.iter().map(|word| format!("Word{word}")).collect::<Vec<_>>().join("  ");
    all.iter().map(text).collect()
}

/// Writes JSON lines with the columns `id` and `text`.
fn write(place: &Place, name: &str, texts: &[String]) {
    let line = |(id, text): (usize, &String)| format!("{}\n", serde_json::json!({ "id": id, "text": text }));
    place.write(name, texts.iter().enumerate().map(line).collect::<String>().as_bytes());
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    place.text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the removed rows in the file `name`, each with the kept row and the similarity.
fn removed(place: &Place, name: &str) -> Vec<(u64, u64, f64)> {
    let row = |line: Value| {
        assert_eq!(line["reason"], "similar");
        (line["id"].as_u64().unwrap(), line["kept_id"].as_u64().unwrap(), line["similarity"].as_f64().unwrap())
    };
    let mut rows: Vec<_> = lines(place, name).into_iter().map(row).collect();
    rows.sort_by_key(|&(id, ..)| id);
    rows
}

/// Removes rows by the definition: a row is removed if an earlier row that is kept has at least the least similarity.
/// The kept row of a removed row is the nearest one, or the first of several.
fn oracle(texts: &[String]) -> Vec<(u64, u64, f64)> {
    let shingles = |text: &String| {
        let text = text.to_lowercase();
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(3.min(words.len())).map(|shingle| shingle.join(" ")).collect::<BTreeSet<String>>()
    };
    let sets: Vec<BTreeSet<String>> = texts.iter().map(shingles).collect();
    let (mut kept, mut removed) = (Vec::<usize>::new(), Vec::new());
    for (row, set) in sets.iter().enumerate() {
        let mut nearest: Option<(usize, f64)> = None;
        for &other in &kept {
            let common = set.intersection(&sets[other]).count() as f64;
            let similarity = common / (set.len() as f64 + sets[other].len() as f64 - common);
            if similarity >= MIN_JACCARD && nearest.is_none_or(|(_, known)| similarity > known) {
                nearest = Some((other, similarity));
            }
        }
        match nearest {
            Some((other, similarity)) => removed.push((row as u64, other as u64, similarity)),
            None => kept.push(row),
        }
    }
    removed
}

#[test]
fn exact_removals_equal_the_definition_for_any_budget_and_thread_count() {
    let place = Place::new();
    let all = texts(3_000, 1);
    write(&place, "texts.jsonl", &all);
    let expected = oracle(&all);
    assert!(expected.len() > 300, "{}", expected.len());
    for more in ["", " --memory 64MB", " --threads 1"] {
        let line = format!(
            "dedupe texts.jsonl --text text --min-jaccard {MIN_JACCARD} --exact -o kept.jsonl --removed removed.jsonl \
             --force --quiet{more}"
        );
        place.done(&line);
        let found = removed(&place, "removed.jsonl");
        assert_eq!(found.len(), expected.len(), "{more}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((found.0, found.1), (expected.0, expected.1), "{more}");
            assert!((found.2 - expected.2).abs() < 1e-6, "{found:?} {expected:?}");
        }
        let gone: BTreeSet<u64> = expected.iter().map(|&(id, ..)| id).collect();
        let source = place.text("texts.jsonl");
        let kept = source.lines().enumerate().filter(|(row, _)| !gone.contains(&(*row as u64)));
        assert_eq!(place.text("kept.jsonl"), kept.map(|(_, line)| format!("{line}\n")).collect::<String>());
    }
}

#[test]
fn an_approximate_run_removes_only_near_rows_and_reaches_its_recall() {
    let place = Place::new();
    let all = texts(3_000, 2);
    write(&place, "texts.jsonl", &all);
    let line = format!(
        "dedupe texts.jsonl --text text --min-jaccard {MIN_JACCARD} --recall 0.8 -o kept.jsonl --removed r.jsonl"
    );
    let ran = place.done(&format!("{line} --stats stats.json"));
    assert!(ran.said.contains("recall: "), "{}", ran.said);
    let found = removed(&place, "r.jsonl");
    assert!(found.iter().all(|&(_, _, similarity)| similarity >= MIN_JACCARD));
    // A pair above the threshold is found more often than one at it, so this is far below what is expected.
    assert!(found.len() as f64 >= 0.7 * oracle(&all).len() as f64, "{}", found.len());
    let statistics: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    assert!(statistics["dedupe"]["text"]["promised_recall"].as_f64().unwrap() >= 0.8);
}

#[test]
fn empty_and_missing_texts_are_kept() {
    let place = Place::new();
    let rows = [
        r#"{"id": 1, "text": "one two three four"}"#,
        r#"{"id": 2, "text": " ONE  two three four"}"#,
        r#"{"id": 3, "text": ""}"#,
        r#"{"id": 4, "text": "  "}"#,
        r#"{"id": 5, "text": null}"#,
        r#"{"id": 6}"#,
        r#"{"id": 7, "text": "one"}"#,
        r#"{"id": 8, "text": "One"}"#,
    ];
    place.write("texts.jsonl", rows.join("\n").as_bytes());
    place.done("dedupe texts.jsonl --text text -o kept.jsonl --removed removed.jsonl --columns text");
    assert_eq!(removed(&place, "removed.jsonl"), [(2, 1, 1.0), (8, 7, 1.0)]);
    let first = &lines(&place, "removed.jsonl")[0];
    assert_eq!((&first["text"], &first["kept_text"]), (&" ONE  two three four".into(), &"one two three four".into()));
    let kept: Vec<u64> = lines(&place, "kept.jsonl").iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(kept, [1, 3, 4, 5, 6, 7]);
}

#[test]
fn keep_by_and_decisions_apply_to_texts() {
    let place = Place::new();
    let variants = ["a b c d e f g h", "a b c d e f g h i", "a b c d e f g h i j"];
    write(&place, "texts.jsonl", &variants.map(str::to_owned));
    let line = "dedupe texts.jsonl --text text --min-jaccard 0.7 --removed removed.jsonl --force -o kept.jsonl";
    let mut words: Vec<&str> = line.split(' ').collect();
    words.extend(["--keep-by", "length(text) desc"]);
    assert_eq!(place.run_words(&words).code, Some(0));
    assert_eq!(removed(&place, "removed.jsonl").iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    place.write("decisions.jsonl", b"{\"id\": 1, \"decision\": \"keep\"}\n");
    place.done(&format!("{line} --decisions decisions.jsonl"));
    assert_eq!(removed(&place, "removed.jsonl").iter().map(|row| (row.0, row.1)).collect::<Vec<_>>(), [(0, 1), (2, 1)]);
}

#[test]
fn wrong_options_of_texts_are_refused() {
    let place = Place::new();
    place.write("texts.jsonl", b"{\"id\": 1, \"text\": \"a b c\"}\n");
    place.write("empty.jsonl", b"");
    place.refused("dedupe texts.jsonl --text id -o out.jsonl", &["column id is Int64, not texts"]);
    place.refused("dedupe texts.jsonl --text body -o out.jsonl", &["there is no column body for --text"]);
    place.refused("dedupe empty.jsonl --text text -o out.jsonl", &["empty.jsonl has no rows"]);
    place.refused("dedupe texts.jsonl --text text --min-jaccard 0 -o out.jsonl", &["give a number above 0"]);
    place.refused("dedupe texts.jsonl --text text --shingle-size 0 -o out.jsonl", &["--shingle-size"]);
    for option in ["--min-jaccard 0.5", "--shingles words", "--shingle-size 2"] {
        place.refused(
            &format!("dedupe texts.jsonl --min-similarity 0.9 {option} -o out.jsonl"),
            &["cannot be used with"],
        );
    }
    assert!(!place.path("out.jsonl").exists());
}

/// Checks long texts in a single row group. The first budget that a refusal names must suffice, and be kept.
#[test]
fn the_first_named_budget_suffices_for_long_texts() {
    let place = Place::on_disk();
    let mut random = Random::new(7, "long texts");
    let mut text = |words: u64| (0..words).map(|_| format!("{} ", random.below(1 << 40))).collect::<String>();
    let many: Vec<String> = (0..600).map(|_| text(800)).collect();
    let one: Vec<String> = (0..500).map(|row| text(if row == 321 { 60_000 } else { 30 })).collect();
    for (name, texts) in [("many", many), ("one", one)] {
        let column: ArrayRef = Arc::new(texts.iter().map(Some).collect::<StringArray>());
        write_columns(&place.path(&format!("{name}.parquet")), &[("text", column)]);
        write(&place, &format!("{name}.jsonl"), &texts);
        for ending in ["parquet", "jsonl"] {
            let line = format!(
                "dedupe {name}.{ending} --text text --min-jaccard 0.8 --removed gone.csv -o clean.{ending} --force \
                 --stats stats.json"
            );
            for options in ["", "--exact", "--shingles characters"] {
                for budget in ["24MB", "32MB", "40MB"] {
                    let ran = place.run(&format!("{line} {options} --memory {budget}"));
                    if ran.code == Some(0) {
                        continue;
                    }
                    let named = least_budget(&ran.said);
                    let again = place.run(&format!("{line} {options} --memory {named}"));
                    assert_eq!(again.code, Some(0), "{line} {options}: {budget}: {} then {}", ran.said, again.said);
                    let stats: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
                    assert_eq!(stats["memory"]["kept"], true, "{line} {options} in {named}: {}", stats["memory"]);
                }
            }
        }
    }
}
