//! `--columns` of `adjoin join` and `adjoin dedupe`. Pairs and removed rows must carry the columns of both rows,
//! equal to a lookup by hand.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt64Array};
use arrow_select::take::take;
use serde_json::Value;

use crate::columns::{ROWS, common, further, parquet, write_long_texts, write_rows};
use crate::options::least_budget;
use crate::place::Place;

type Columns<'a> = &'a [(&'a str, ArrayRef)];

/// Looks up the values of the column `name` by hand, for rows with the given ids. Row `k` has the id `3 * k`.
fn by_hand(columns: Columns<'_>, name: &str, ids: &ArrayRef) -> ArrayRef {
    let rows: UInt64Array = ids.as_primitive::<Int64Type>().values().iter().map(|id| Some(*id as u64 / 3)).collect();
    let (_, column) = columns.iter().find(|(other, _)| *other == name).unwrap();
    take(column, &rows, None).unwrap()
}

/// Checks the columns of a result. It must have the columns of `own`, the result without carried columns, with equal
/// lines in any order. After these, it must have the columns of both rows. `names` has the name of each column and
/// its names in the result.
fn check(lines: &RecordBatch, own: &RecordBatch, columns: Columns<'_>, names: &[[&str; 3]], what: &str) {
    let width = own.num_columns();
    let fields: Vec<&str> = lines.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
    let wanted = own.schema_ref().fields().iter().map(|field| field.name().as_str());
    let wanted: Vec<&str> = wanted.chain(names.iter().flat_map(|[_, left, right]| [*left, *right])).collect();
    assert_eq!(fields, wanted, "{what}");
    let sorted = |table: &RecordBatch| {
        let [left, right] = [0, 1].map(|side| table.column(side).as_primitive::<Int64Type>().clone());
        let value = table.column(2).as_primitive::<Float32Type>();
        let lines = (0..table.num_rows())
            .map(|k| (left.value(k), right.value(k), value.is_valid(k).then(|| value.value(k).to_bits())));
        let mut lines: Vec<_> = lines.collect();
        lines.sort_unstable();
        lines
    };
    assert!(sorted(lines) == sorted(own), "{what}: the lines equal the result without columns");
    assert!(lines.num_rows() > 100, "{what}: a result that says something");
    for (k, [name, ..]) in names.iter().enumerate() {
        for side in 0..2 {
            let found = lines.column(width + 2 * k + side);
            assert_eq!(found, &by_hand(columns, name, lines.column(side)), "{what}: {name} of side {side}");
        }
    }
}

/// Returns the name of each column and its names in the result, for the left and the right row. The result has the
/// columns `taken` too.
fn names_of<'a>(columns: Columns<'a>, prefixes: [&str; 2], taken: &[&str]) -> Vec<[&'a str; 3]> {
    let name = |prefix: &str, column: &str| {
        let name = format!("{prefix}{column}");
        let name = if taken.contains(&name.as_str()) { format!("columns.{name}") } else { name };
        &*Box::leak(name.into_boxed_str())
    };
    columns.iter().map(|(column, _)| [*column, name(prefixes[0], column), name(prefixes[1], column)]).collect()
}

/// Returns columns of every type, and one with the name of the column of ids.
fn every_type() -> Vec<(&'static str, ArrayRef)> {
    let ids: ArrayRef = Arc::new((0..ROWS as i64).map(|row| row * 3).collect::<Int64Array>());
    [common(), further(), vec![("id", ids)]].concat()
}

#[test]
fn pairs_and_removed_rows_of_files_and_stores_carry_columns_of_every_type() {
    let place = Place::new();
    let all = every_type();
    write_rows(&place, "set.parquet", &all[..all.len() - 1], 0..ROWS);
    let list = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    place.done(&format!("build set.parquet --columns {list} -o set.store --quiet"));
    let pair_names = names_of(&all, ["left_", "right_"], &["left_id", "right_id", "distance"]);
    let removed_names = names_of(&all, ["", "kept_"], &["id", "kept_id", "distance"]);
    for input in ["set.parquet", "set.store"] {
        let join = format!("join {input} --eps 3 --exact --quiet --force");
        for (result, names) in [("pairs", &pair_names), ("removed", &removed_names)] {
            place.done(&format!("{join} --result {result} -o own.parquet"));
            place.done(&format!("{join} --result {result} --columns {list} -o lines.parquet"));
            let what = format!("{input} {result}");
            check(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &all, names, &what);
        }
        place.done(&format!("{join} --columns whole,text --where whole>0 -o lines.jsonl"));
        for line in place.text("lines.jsonl").lines() {
            let pair: Value = serde_json::from_str(line).unwrap();
            for side in ["left", "right"] {
                let row = pair[format!("{side}_id")].as_u64().unwrap() / 3;
                let whole = (row * 7_919 % 1_000) as i64 - 500;
                assert!(whole > 0 && pair[format!("{side}_whole")] == whole, "{line}");
            }
        }
        let said = place.done(&format!("{join} --columns whole -o -")).out;
        assert!(said.starts_with("left_id,right_id,distance,left_whole,right_whole\n"), "{said:.80}");
    }
}

/// Checks the columns of clusters. They must have the lines of `own`, clusters without carried columns, in the same
/// order, each with the columns of its own row.
fn check_clusters(lines: &RecordBatch, own: &RecordBatch, columns: Columns<'_>, what: &str) {
    let width = own.num_columns();
    assert_eq!(lines.columns()[..width], *own.columns(), "{what}");
    assert!(lines.num_rows() > 100, "{what}: a result that says something");
    assert_eq!(lines.num_columns(), width + columns.len(), "{what}");
    for (k, [name, named, _]) in names_of(columns, ["", ""], &["id", "cluster"]).iter().enumerate() {
        assert_eq!(lines.schema_ref().field(width + k).name(), named, "{what}");
        assert_eq!(lines.column(width + k), &by_hand(columns, name, lines.column(0)), "{what}: {name}");
    }
}

#[test]
fn rows_of_clusters_carry_columns_of_every_type() {
    let place = Place::new();
    let all = every_type();
    write_rows(&place, "set.parquet", &all[..all.len() - 1], 0..ROWS);
    let list = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    place.done(&format!("build set.parquet --columns {list} -o set.store --quiet"));
    for input in ["set.parquet", "set.store"] {
        let join = format!("join {input} --eps 3 --exact --result clusters --quiet --force");
        place.done(&format!("{join} -o own.parquet"));
        place.done(&format!("{join} --columns {list} -o lines.parquet"));
        check_clusters(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &all, input);
        let said = place.done(&format!("{join} --columns whole -o -")).out;
        assert!(said.starts_with("id,cluster,whole\n"), "{said:.80}");
    }
}

#[test]
fn merged_parts_carry_columns() {
    let place = Place::new();
    let all = every_type();
    write_rows(&place, "set.parquet", &all[..all.len() - 1], 0..ROWS);
    let list = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    place.done(&format!("build set.parquet --columns {list} -o set.store --quiet"));
    for planned in ["pairs", "removed"] {
        place.done(&format!("plan set.store --eps 3 --exact --parts 3 --result {planned} -o {planned}.plan --quiet"));
        for part in 1..=3 {
            place.done(&format!("run-part {planned}.plan --part {part}/3 -o {planned}.parts --quiet"));
        }
    }
    let pair_names = names_of(&all, ["left_", "right_"], &["left_id", "right_id", "distance"]);
    let removed_names = names_of(&all, ["", "kept_"], &["id", "kept_id", "distance"]);
    for (result, names) in [("pairs", &pair_names), ("removed", &removed_names)] {
        let merge = format!("merge pairs.plan pairs.parts --result {result} --force --quiet");
        place.done(&format!("{merge} -o own.parquet"));
        place.done(&format!("{merge} --columns {list} -o lines.parquet"));
        check(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &all, names, result);
    }
    let merge = "merge pairs.plan pairs.parts --result clusters --force --quiet";
    place.done(&format!("{merge} -o own.parquet"));
    place.done(&format!("{merge} --columns {list} -o lines.parquet"));
    check_clusters(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &all, "merged");
    for (line, words) in [
        ("removed.plan removed.parts", "plan for pairs"),
        ("pairs.plan pairs.parts --result counts", "is for pairs, removed rows and clusters"),
        ("pairs.plan pairs.parts --columns other", "other"),
    ] {
        place.refused(&format!("merge {line} --columns text -o none.csv"), &[words]);
        assert!(!place.path("none.csv").exists());
    }
}

#[test]
fn pairs_of_two_sets_and_of_new_rows_carry_columns() {
    let place = Place::new();
    let columns = common();
    write_rows(&place, "set.parquet", &columns, 0..ROWS);
    write_rows(&place, "first.parquet", &columns, 0..350);
    write_rows(&place, "second.parquet", &columns, 350..ROWS);
    place.done("build first.parquet --columns text,whole -o first.store --quiet");
    place.done("build second.parquet --columns whole,text -o second.store --quiet");
    let some: Vec<_> = columns.iter().filter(|(name, _)| ["text", "whole"].contains(name)).cloned().collect();
    let pair_names = names_of(&some, ["left_", "right_"], &[]);
    let removed_names = names_of(&some, ["", "kept_"], &[]);
    for sets in [
        "first.parquet --with second.parquet",
        "first.store --with second.parquet",
        "first.store --with second.store",
        "first.store --new second.parquet",
        "first.store --new second.store",
    ] {
        let join = format!("join {sets} --eps 5 --exact --quiet --force");
        for (result, names) in [("pairs", &pair_names), ("removed", &removed_names)] {
            place.done(&format!("{join} --result {result} -o own.parquet"));
            place.done(&format!("{join} --result {result} --columns text,whole -o lines.parquet"));
            let what = format!("{sets} {result}");
            check(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &some, names, &what);
        }
        place.done(&format!("{join} --result clusters -o own.parquet"));
        place.done(&format!("{join} --result clusters --columns text,whole -o lines.parquet"));
        check_clusters(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &some, sets);
    }
}

#[test]
fn columns_of_another_type_in_the_second_set_are_refused_for_clusters() {
    let place = Place::new();
    let columns = common();
    let real = columns.iter().find(|(name, _)| *name == "real").unwrap().1.clone();
    write_rows(&place, "first.parquet", &columns, 0..350);
    write_rows(&place, "second.parquet", &[("whole", real)], 350..ROWS);
    let join = "join first.parquet --with second.parquet --eps 5 --exact --columns whole -o lines.parquet";
    place.refused(&format!("{join} --result clusters"), &["--columns whole is Int64 in one set", "the same type"]);
    assert!(!place.path("lines.parquet").exists());
    // The rows of a pair have columns of their own.
    place.done(join);
}

#[test]
fn rows_that_dedupe_removes_carry_columns() {
    let place = Place::new();
    let all = every_type();
    write_rows(&place, "set.parquet", &all[..all.len() - 1], 0..ROWS);
    let list = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let names = names_of(&all, ["", "kept_"], &["id", "kept_id", "distance"]);
    for options in ["--eps 3", "--eps 3 --exact-text whole", "--eps 3 --keep-by real"] {
        let dedupe = format!("dedupe set.parquet {options} --exact --quiet --force -o clean.parquet");
        place.done(&format!("{dedupe} --removed own.parquet"));
        place.done(&format!("{dedupe} --removed lines.parquet --columns {list}"));
        check(&parquet(&place, "lines.parquet"), &parquet(&place, "own.parquet"), &all, &names, options);
    }
    std::fs::create_dir(place.path("parts")).unwrap();
    for (name, rows) in [("a", 0..100), ("b", 100..101), ("c", 101..ROWS)] {
        write_rows(&place, &format!("parts/{name}.parquet"), &common(), rows);
    }
    place.done("dedupe parts --eps 3 --exact --quiet -o clean --removed parts.parquet");
    place.done("dedupe parts --eps 3 --exact --quiet -o clean2 --removed some.parquet --columns text,moment");
    let some: Vec<_> = common().into_iter().filter(|(name, _)| ["text", "moment"].contains(name)).collect();
    let names = names_of(&some, ["", "kept_"], &[]);
    check(&parquet(&place, "some.parquet"), &parquet(&place, "parts.parquet"), &some, &names, "a folder");
}

#[test]
fn columns_that_a_result_cannot_carry_are_refused_before_any_work() {
    let place = Place::new();
    write_rows(&place, "set.parquet", &common(), 0..ROWS);
    place.done("build set.parquet --columns text,whole -o set.store --quiet");
    place.done("build set.parquet -o bare.store --quiet");
    let pairs = "--eps 3 -o pairs.csv --columns";
    place.refused(&format!("join set.parquet {pairs} text,url"), &["url", "text", "whole", "moment"]);
    place.refused(&format!("join set.store {pairs} url"), &["set.store has no such column; it has text, whole"]);
    place.refused(&format!("join set.parquet {pairs} text,text"), &["--columns text is named twice"]);
    place.refused(&format!("join bare.store {pairs} text"), &["bare.store has no columns, which --columns needs"]);
    place.refused(&format!("join set.parquet {pairs} v"), &["column v is", "must be texts, numbers, dates"]);
    let counts = format!("join set.store {pairs} text --result counts");
    place.refused(&counts, &["--columns is for pairs, removed rows and clusters"]);
    place.refused("join set.store -k 3 -o pairs.csv --columns text", &["--columns", "--neighbors"]);
    let dedupe = "dedupe set.parquet --eps 3 -o clean.parquet --columns";
    place.refused(&format!("{dedupe} text"), &["--removed"]);
    place.refused(&format!("{dedupe} text,url --removed gone.csv"), &["url", "text", "whole", "moment"]);
    let mut names = place.names();
    names.sort();
    assert_eq!(names, ["bare.store", "set.parquet", "set.store"]);
}

/// Checks pairs and removed rows with texts of 1 MB. The first budget that a refusal names must suffice.
#[test]
fn lines_with_texts_of_a_megabyte_fit_the_least_budget() {
    let place = Place::on_disk();
    let texts = write_long_texts(&place, 3);
    place.done("build set.parquet --columns text -o set.store --quiet");
    let columns = [("text", texts)];
    for line in [
        "join set.store --eps 2.5 --exact --columns text -o lines.parquet",
        "join set.store --eps 2.5 --exact --columns text -o lines.csv",
        "join set.store --eps 2.5 --exact --columns text --result removed -o lines.jsonl",
        "join set.store --eps 2.5 --exact --columns text --result clusters -o lines.parquet",
        "join set.store --with set.parquet --eps 2.5 --exact --columns text --result clusters -o lines.parquet",
        "join set.parquet --eps 2.5 --exact --columns text -o lines.parquet",
        "join set.parquet --eps 2.5 --exact --columns text --resume -o lines.parquet",
        "dedupe set.parquet --eps 2.5 --exact --columns text --removed lines.parquet -o clean.parquet",
    ] {
        let line = format!("{line} --force --stats stats.json");
        let refused = place.run(&format!("{line} --memory 20MB"));
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.said);
        let budget = least_budget(&refused.said);
        let ran = place.run(&format!("{line} --memory {budget}"));
        assert_eq!(ran.code, Some(0), "{line} in {budget}: {}", ran.said);
        let stats: Value = serde_json::from_str(&place.text("stats.json")).unwrap();
        assert_eq!(stats["memory"]["kept"], true, "{line} in {budget}: {}", stats["memory"]);
        if line.contains("lines.parquet") {
            let lines = parquet(&place, "lines.parquet");
            let sides = if line.contains("clusters") { 1 } else { 2 };
            let first = lines.num_columns() - sides;
            assert!(lines.num_rows() > 10, "{line}");
            for side in 0..sides {
                assert!(lines.column(first + side) == &by_hand(&columns, "text", lines.column(side)), "{line}");
            }
        }
    }
}
