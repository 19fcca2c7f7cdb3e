//! `adjoin dedupe`. Kept rows must be unchanged in every column, and must keep their order.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::inputs::{fbin, npy};
use crate::place::Place;

const GROUP_ROWS: usize = 64;

/// Returns rows with columns of many types. Every third row is a near copy of the previous one. `first` is the id of
/// the first row.
fn shard(first: i64, rows: usize) -> RecordBatch {
    let ids = Int64Array::from_iter_values(first..first + rows as i64);
    let group = |row: usize| row - usize::from(row % 3 == 2);
    let vector = |row: usize| {
        let of = |k: usize| ((group(row) + first as usize) * 31 + k * 17) % 101;
        let wobble = if row % 3 == 2 { 0.001 } else { 0.0 };
        Some((0..6).map(|k| Some(of(k) as f32 + wobble)).collect::<Vec<_>>())
    };
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..rows).map(vector), 6);
    let text = |row: usize| (row % 7 != 3).then(|| format!("{} row {}", "long ".repeat(row % 5), group(row)));
    let texts: StringArray = (0..rows).map(text).collect();
    let languages: DictionaryArray<arrow_array::types::Int8Type> =
        (0..rows).map(|row| Some(["en", "de", "fr"][row % 3])).collect();
    let mut tags = ListBuilder::new(StringBuilder::new());
    for row in 0..rows {
        (0..row % 4).for_each(|k| tags.values().append_option((k != 1).then(|| format!("tag {k}"))));
        tags.append(row % 5 != 0);
    }
    let times =
        TimestampMicrosecondArray::from_iter((0..rows).map(|row| (row % 6 != 1).then_some(row as i64 * 1_000_003)));
    let flags: BooleanArray = (0..rows).map(|row| (row % 4 != 0).then_some(row % 2 == 0)).collect();
    let (times, flags): (ArrayRef, ArrayRef) = (Arc::new(times), Arc::new(flags));
    let inner = StructArray::from(vec![
        (Arc::new(Field::new("time", times.data_type().clone(), true)), times),
        (Arc::new(Field::new("flag", DataType::Boolean, true)), flags),
    ]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("text", Arc::new(texts)),
        ("id", Arc::new(ids)),
        ("language", Arc::new(languages)),
        ("tags", Arc::new(tags.finish())),
        ("embedding", Arc::new(vectors)),
        ("inner", Arc::new(inner)),
    ];
    let fields: Vec<Field> =
        columns.iter().map(|(name, column)| Field::new(*name, column.data_type().clone(), true)).collect();
    let about = [("huggingface".to_owned(), "{\"info\": 1}".to_owned())].into();
    RecordBatch::try_new(
        Arc::new(Schema::new_with_metadata(fields, about)),
        columns.into_iter().map(|(_, c)| c).collect(),
    )
    .unwrap()
}

fn write(path: &Path, table: &RecordBatch) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_column_dictionary_enabled("id".into(), false)
        .build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), table.schema(), Some(properties)).unwrap();
    writer.write(table).unwrap();
    writer.close().unwrap();
}

/// Reads a Parquet file. Returns its rows, and the number of rows of each row group.
fn read(path: &Path) -> (RecordBatch, Vec<usize>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let groups = builder.metadata().row_groups().iter().map(|group| group.num_rows() as usize).collect();
    let schema = builder.schema().clone();
    let batches: Vec<RecordBatch> = builder.with_batch_size(1 << 20).build().unwrap().map(Result::unwrap).collect();
    let table = match batches.as_slice() {
        [] => RecordBatch::new_empty(schema),
        several => arrow_select::concat::concat_batches(&schema, several).unwrap(),
    };
    (table, groups)
}

fn ids_of(table: &RecordBatch, column: &str) -> Vec<i64> {
    table.column_by_name(column).unwrap().as_primitive::<Int64Type>().values().to_vec()
}

/// Returns the rows with ids that are not in `gone`.
fn without(table: &RecordBatch, gone: &BTreeSet<i64>) -> RecordBatch {
    let stays: BooleanArray = ids_of(table, "id").iter().map(|id| Some(!gone.contains(id))).collect();
    arrow_select::filter::filter_record_batch(table, &stays).unwrap()
}

/// Returns the ids of the rows that a join would remove.
fn to_remove(place: &Place, threshold: &str) -> BTreeSet<i64> {
    place.done(&format!("join data {threshold} --result removed -o keep.parquet --quiet --force"));
    ids_of(&read(&place.path("keep.parquet")).0, "id").into_iter().collect()
}

/// Writes a data set of three files in the layout of Hugging Face. Returns the rows of each file.
fn data_set(place: &Place) -> [RecordBatch; 3] {
    let shards = [shard(0, 200), shard(200, 1), shard(201, 150)];
    let names = ["train-00000.parquet", "train-00001.parquet", "more/train-00002.parquet"];
    for (name, table) in names.iter().zip(&shards) {
        write(&place.path("data").join(name), table);
    }
    place.write("data/README.md", b"about");
    [
        read(&place.path("data/train-00000.parquet")).0,
        shards[1].clone(),
        read(&place.path("data/more/train-00002.parquet")).0,
    ]
}

#[test]
fn dedupe_preserves_all_columns_of_kept_rows_by_shard() {
    let place = Place::new();
    let shards = data_set(&place);
    let gone = to_remove(&place, "--eps 0.01");
    assert!(gone.len() > 50, "{}", gone.len());
    let said = place.done("dedupe data -o out --eps 0.01 --removed removed.parquet --memory 64MB").said;
    assert!(
        said.contains(&format!("of 351 rows {} are near a kept row; {} are kept", gone.len(), 351 - gone.len())),
        "{said}"
    );
    assert!(
        said.contains("such as row ")
            && said.contains("row 145\" for row 145 \"row 145\"")
            && said.contains("ignored files of other types: README.md"),
        "{said}"
    );
    for (name, before) in ["train-00000.parquet", "train-00001.parquet"].iter().zip(&shards) {
        let (after, groups) = read(&place.path("out").join(name));
        let expected = without(before, &gone);
        assert_eq!(after.schema(), read(&place.path("data").join(name)).0.schema(), "with its metadata");
        assert_eq!(after, expected, "{name}");
        let of_group = |group: &[i64]| group.iter().filter(|id| !gone.contains(id)).count();
        let expected: Vec<usize> =
            ids_of(before, "id").chunks(GROUP_ROWS).map(of_group).filter(|rows| *rows > 0).collect();
        assert_eq!(groups, expected, "{name}");
    }
    assert!(!place.path("out/README.md").exists());
    let (removed, _) = read(&place.path("removed.parquet"));
    assert_eq!(ids_of(&removed, "id").into_iter().collect::<BTreeSet<_>>(), gone);
    let (kept_for, _) = read(&place.path("keep.parquet"));
    assert_eq!(ids_of(&removed, "kept_id"), ids_of(&kept_for, "kept_id"));
    assert_eq!(removed.column_by_name("distance").unwrap(), kept_for.column_by_name("distance").unwrap());
    assert!(
        removed.column_by_name("reason").unwrap().as_string::<i32>().iter().all(|reason| reason == Some("similar"))
    );
    place.refused("dedupe data -o out --eps 0.01", &["out exists already"]);
    let not_forced = ["out exists already, and --force does not replace folders; remove it"];
    place.refused("dedupe data -o out --eps 0.01 --force", &not_forced);
}

#[test]
fn keep_by_decides_which_row_is_kept() {
    let place = Place::new();
    let shards = data_set(&place);
    place.done("dedupe data -o plain --eps 0.01 --removed plain.parquet --quiet");
    // The order keeps the later one of two rows, which is the near copy.
    let line = [
        "dedupe",
        "data",
        "-o",
        "out",
        "--eps",
        "0.01",
        "--keep-by",
        "id desc",
        "--removed",
        "removed.parquet",
        "--quiet",
    ];
    assert_eq!(place.run_words(&line).code, Some(0));
    let (plain, _) = read(&place.path("plain.parquet"));
    let (removed, _) = read(&place.path("removed.parquet"));
    let gone: BTreeSet<i64> = ids_of(&removed, "id").into_iter().collect();
    let kept: BTreeSet<i64> = ids_of(&removed, "kept_id").into_iter().collect();
    assert!(
        gone.is_disjoint(&kept)
            && ids_of(&removed, "id").iter().zip(ids_of(&removed, "kept_id")).all(|(id, kept)| *id < kept)
    );
    assert_eq!(gone.len(), plain.num_rows());
    assert_eq!(read(&place.path("out/train-00000.parquet")).0, without(&shards[0], &gone));
    place.refused(
        "dedupe data -o no --eps 0.01 --keep-by nothing",
        &["there is no column nothing; choose from text, id, language"],
    );
    place.refused("dedupe data -o no --eps 0.01 --keep-by id;id", &["cannot read \"id;id\""]);
}

#[test]
fn equal_texts_are_removed_before_vectors_are_compared() {
    let place = Place::new();
    let texts = ["One  two", "one two!", "One  two", "three", "", "", "x", "y"].map(Some);
    let texts: StringArray = texts.into_iter().chain([None, None]).collect();
    // Only the vectors of rows 6 and 7 are near each other.
    let vectors =
        (0..10).map(|row: i32| Some(vec![Some(if row == 7 { 600.01 } else { 100.0 * row as f32 }), Some(1.0)]));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    crate::inputs::write_columns(&place.path("a.parquet"), &[("text", Arc::new(texts)), ("v", Arc::new(vectors))]);
    let removed = |line: &str| {
        let said =
            place.done(&format!("dedupe a.parquet -o out.parquet --eps 0.1 --removed r.csv --force {line}")).said;
        (place.text("r.csv"), said)
    };
    let (listed, said) = removed("--exact-text text");
    assert_eq!(listed, "id,kept_id,distance,reason\n2,0,,equal text\n5,4,,equal text\n7,6,0.010009766,similar\n");
    assert!(said.contains("of 10 rows 2 equal another in text, 1 are near a kept row; 7 are kept"), "{said}");
    let (listed, _) = removed("--exact-text normalize(text)");
    assert!(listed.contains("\n1,0,,equal text\n2,0,,equal text\n5,4,"), "{listed}");
    // Among rows with equal texts, the last one is kept. Among rows with near vectors, the first one is kept.
    let words = [
        "dedupe",
        "a.parquet",
        "-o",
        "out.parquet",
        "--eps",
        "250",
        "--removed",
        "r.csv",
        "--force",
        "--exact-text",
        "text",
        "--keep-by",
        "text = '' desc, v is null",
        "--quiet",
    ];
    assert_eq!(place.run_words(&words).code, Some(0));
    let listed = place.text("r.csv");
    let kept: BTreeSet<&str> = listed.lines().skip(1).map(|line| line.split(',').nth(1).unwrap()).collect();
    let gone: BTreeSet<&str> = listed.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(kept.is_disjoint(&gone), "who stays for others stays: {listed}");
}

#[test]
fn dedupe_preserves_the_format_of_files() {
    let place = Place::new();
    let rows: Vec<f32> = (0..40).flat_map(|row| [row as f32 * 10.0, if row % 4 == 3 { -10.0 } else { 0.0 }]).collect();
    let rows: Vec<f32> = rows
        .chunks(2)
        .enumerate()
        .flat_map(|(k, row)| if k % 4 == 3 { [rows[2 * k - 2], 0.5] } else { [row[0], row[1]] })
        .collect();
    let expected: Vec<f32> =
        rows.chunks(2).enumerate().filter(|(k, _)| k % 4 != 3).flat_map(|(_, row)| row.to_vec()).collect();
    let bytes = |rows: &[f32]| rows.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let counted = |rows: &[f32]| {
        rows.chunks(2).flat_map(|row| [&2i32.to_le_bytes()[..], &bytes(row)].concat()).collect::<Vec<u8>>()
    };
    let header = |rows: usize| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 2), }}");
    let tensor = |rows: usize| {
        let text = format!(r#"{{"v":{{"data_offsets":[0,{}],"dtype":"F32","shape":[{rows},2]}}}}"#, rows * 8);
        let padded = format!("{text:<0$}", text.len().next_multiple_of(8));
        [&(padded.len() as u64).to_le_bytes()[..], padded.as_bytes()].concat()
    };
    for (name, before, after) in [
        ("a.safetensors", [tensor(40), bytes(&rows)].concat(), [tensor(30), bytes(&expected)].concat()),
        ("a.fbin", fbin(2, &rows), fbin(2, &expected)),
        ("a.npy", npy(&header(40), &bytes(&rows)), npy(&header(30), &bytes(&expected))),
        ("a.fvecs", counted(&rows), counted(&expected)),
    ] {
        place.write(name, &before);
        place.done(&format!("dedupe {name} -o out-{name} --eps 1 --quiet"));
        assert_eq!(place.read(&format!("out-{name}")), after, "{name}");
        place.refused(&format!("dedupe {name} -o no-{name} --eps 1 --keep-by x"), &[name, "has no columns"]);
    }
    let two = r#"{"a":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]},"b":{"dtype":"I64","shape":[2],"data_offsets":[2,18]}}"#;
    place.write("two.safetensors", &[&(two.len() as u64).to_le_bytes()[..], two.as_bytes(), &[0; 18]].concat());
    place.refused("dedupe two.safetensors -o out.safetensors --eps 1", &[r#"has the tensors "a", "b""#]);
    place.refused("dedupe a.fbin -o out.npy --eps 1", &["the output has the format of a.fbin", "name it .fbin"]);
    place.refused("dedupe a.fbin -o out-a.fbin --eps 1", &["out-a.fbin exists already", "--force"]);
    place.refused("dedupe a.fbin a.fbin -o out --eps 1", &["would both be called a.fbin"]);
    place.refused("dedupe a.fbin -o a.fbin --eps 1 --force", &["a.fbin is an input"]);
    place.refused("dedupe a.fbin -o - --eps 1", &["-o writes to a file"]);
    place.done("build a.fbin -o store --quiet");
    place.refused("dedupe store -o out --eps 1", &["store is a store", "name the data set"]);
    place.done("dedupe a.fbin -o out-a.fbin --eps 1 --quiet --force");
    // Several input files give a folder, which appears as a whole.
    fs::create_dir(place.path("set")).unwrap();
    place.write("set/a.fbin", &fbin(2, &rows));
    place.write("set/b.fbin", &fbin(2, &[]));
    place.done("dedupe set -o sets --eps 1 --quiet");
    assert_eq!((place.read("sets/a.fbin"), place.read("sets/b.fbin")), (fbin(2, &expected), fbin(2, &[])));
}

#[test]
fn arrow_files_and_streams_keep_their_columns_and_compression() {
    use arrow_ipc::reader::{FileReader, StreamReader};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    let place = Place::new();
    let table = shard(0, 100);
    let batches = [table.slice(0, 40), table.slice(40, 60)];
    for compression in [None, Some(arrow_ipc::CompressionType::LZ4_FRAME), Some(arrow_ipc::CompressionType::ZSTD)] {
        let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
        let mut file = FileWriter::try_new_with_options(
            File::create(place.path("a.arrow")).unwrap(),
            &table.schema(),
            options.clone(),
        )
        .unwrap();
        let mut stream =
            StreamWriter::try_new_with_options(File::create(place.path("b.arrow")).unwrap(), &table.schema(), options)
                .unwrap();
        batches.iter().for_each(|batch| {
            file.write(batch).unwrap();
            stream.write(batch).unwrap();
        });
        file.finish().unwrap();
        stream.finish().unwrap();
        drop((file, stream));
        for name in ["a.arrow", "b.arrow"] {
            let words = format!("dedupe {name} -o out-{name} --eps 0.01 --removed removed.parquet --quiet --force");
            place.done(&words);
            let gone = ids_of(&read(&place.path("removed.parquet")).0, "id").into_iter().collect();
            let out = File::open(place.path(&format!("out-{name}"))).unwrap();
            let after: Vec<RecordBatch> = match name {
                "a.arrow" => FileReader::try_new(out, None).unwrap().map(Result::unwrap).collect(),
                _ => StreamReader::try_new(out, None).unwrap().map(Result::unwrap).collect(),
            };
            let expected: Vec<RecordBatch> = batches.iter().map(|batch| without(batch, &gone)).collect();
            assert_eq!(after, expected, "{name} {compression:?}");
            let (before, after) = (place.read(name).len(), place.read(&format!("out-{name}")).len());
            assert!(after < before, "{name} {compression:?}: {after} of {before}");
        }
    }
}

#[test]
fn dedupe_keeps_skipped_rows_without_a_vector() {
    let place = Place::new();
    let vectors = [Some([0.0, 0.0]), None, Some([0.0, 0.1]), Some([5.0, 0.0])];
    let keys = ["a", "b", "c", "d"];
    let rows: Vec<_> = keys.into_iter().zip(vectors).collect();
    crate::inputs::write_parquet(&place.path("a.parquet"), &rows);
    place.refused("dedupe a.parquet -o out.parquet --eps 1", &["a.parquet", "row 1", "--on-bad skip"]);
    place.done(
        "dedupe a.parquet -o out.parquet --eps 1 --on-bad skip --removed r.csv --id-column key --stats s.json --quiet",
    );
    let (after, _) = read(&place.path("out.parquet"));
    let kept: Vec<_> = after.column(0).as_string::<i32>().iter().map(Option::unwrap).collect();
    assert_eq!(kept, ["a", "b", "d"]);
    assert_eq!(place.text("r.csv"), "id,kept_id,distance,reason\nc,a,0.1,similar\n");
    let statistics: serde_json::Value = serde_json::from_str(&place.text("s.json")).unwrap();
    assert_eq!((&statistics["command"], &statistics["skipped_rows"]), (&"dedupe".into(), &1.into()));
    let counts = ["source_rows", "equal_rows", "near_rows", "kept_rows", "pairs"].map(|key| &statistics["dedupe"][key]);
    assert_eq!(counts, [4, 0, 1, 3, 1]);
    assert_eq!(statistics["io"]["bytes_written"], place.read("out.parquet").len());
    let said = place.done("dedupe a.parquet -o out.parquet --eps 1 --on-bad skip --force").said;
    assert!(said.contains("kept without a comparison: 1 row without a usable vector"), "{said}");
}

/// Returns rows of [`shard`] as JSON lines. Line endings differ, and some lines are blank.
fn json_lines(table: &RecordBatch) -> Vec<u8> {
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    writer.write(table).unwrap();
    let lines = String::from_utf8(writer.into_inner()).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let line = |(row, line): (usize, &&str)| match row {
        _ if row + 1 == lines.len() => (*line).to_owned(),
        _ if row % 7 == 0 => format!("  {line}\r\n\n"),
        _ => format!("{line}\n"),
    };
    lines.iter().enumerate().map(line).collect::<String>().into_bytes()
}

#[test]
fn dedupe_copies_kept_json_lines_byte_by_byte() {
    let place = Place::new();
    let table = shard(0, 200);
    write(&place.path("data/a.parquet"), &table);
    let gone = to_remove(&place, "--eps 0.01");
    place.write("a.jsonl", &json_lines(&table));
    let pairs = |source: &str| {
        let out = place.done(&format!("join {source} --eps 0.01 --exact -o - --quiet")).out;
        out.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    assert_eq!(pairs("a.jsonl"), pairs("data/a.parquet"));
    for memory in ["--memory 60MB --threads 1", "--memory 1GB"] {
        place.done(&format!("dedupe a.jsonl -o out.jsonl --eps 0.01 --removed removed.jsonl --force --quiet {memory}"));
        let mut row = 0;
        let stays = |line: &&[u8]| {
            let is_row = !line.trim_ascii().is_empty();
            row += i64::from(is_row);
            !is_row || !gone.contains(&(row - 1))
        };
        let before = place.read("a.jsonl");
        let expected: Vec<u8> =
            before.split_inclusive(|byte| *byte == b'\n').filter(stays).flatten().copied().collect();
        assert!(place.read("out.jsonl") == expected, "{memory}");
    }
    // The column of the order has integers in one file and fractions in another. A third file has no rows.
    fs::create_dir(place.path("set")).unwrap();
    place.write("set/0.jsonl", b"");
    place.write("set/1.jsonl", b"{\"v\":[1,0],\"score\":10}\n{\"v\":[5,0],\"score\":2}\n");
    place.write("set/2.jsonl", b"{\"v\":[1,0],\"score\":9.5}\n{\"v\":[5,0],\"score\":2.5}");
    let words = ["dedupe", "set", "-o", "sets", "--eps", "0.1", "--keep-by", "score desc", "--quiet"];
    assert_eq!(place.run_words(&words).code, Some(0));
    assert_eq!(place.text("sets/1.jsonl"), "{\"v\":[1,0],\"score\":10}\n");
    assert_eq!(place.text("sets/2.jsonl"), "{\"v\":[5,0],\"score\":2.5}");
    assert_eq!(place.text("sets/0.jsonl"), "");
    place.write("mixed.jsonl", b"{\"v\":[1,0],\"a\":1}\n{\"v\":[1,0],\"a\":\"x\"}\n");
    place.refused(
        "dedupe mixed.jsonl -o no.jsonl --eps 1 --keep-by a",
        &["mixed.jsonl: column a is a number in line 1 and a text in line 2"],
    );
    place.done("dedupe mixed.jsonl -o yes.jsonl --eps 1 --quiet");
}

/// Kills a run at many moments. It must leave the complete data set or nothing, and the next run must succeed.
#[test]
fn a_killed_dedupe_leaves_all_or_nothing() {
    let place = Place::new();
    data_set(&place);
    let words = ["dedupe", "data", "-o", "out", "--eps", "0.01", "--quiet"];
    place.done("dedupe data -o expected --eps 0.01 --quiet");
    let names = |folder: &str| {
        let mut names: Vec<_> = place
            .listing()
            .into_iter()
            .filter(|(path, _)| path.starts_with(place.path(folder)) || path.starts_with(folder))
            .collect();
        names.iter_mut().for_each(|(path, _)| {
            *path = path.components().skip_while(|part| part.as_os_str() != folder).skip(1).collect()
        });
        names
    };
    let expected = names("expected");
    for moment in 0..20 {
        let mut child = place.command(&words).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2 * moment));
        child.kill().unwrap();
        child.wait().unwrap();
        if place.path("out").exists() {
            assert_eq!(names("out"), expected, "{moment}");
            fs::remove_dir_all(place.path("out")).unwrap();
        }
    }
    place.done("dedupe data -o out --eps 0.01 --quiet");
    assert_eq!(names("out"), expected);
    let left: Vec<_> =
        place.listing().into_iter().filter(|(path, _)| path.to_string_lossy().contains(".adjoin-")).collect();
    assert_eq!(left, [], "what killed runs left is removed");
}

#[test]
fn removed_rows_without_ids_are_listed_by_row_number() {
    let place = Place::new();
    place.write("a.fbin", &fbin(1, &[0.0, 10.0, 0.1, 20.0, 10.1]));
    place.done("dedupe a.fbin -o out.fbin --eps 1 --removed r.parquet --quiet");
    let (removed, _) = read(&place.path("r.parquet"));
    let rows = |name: &str| removed.column_by_name(name).unwrap().as_primitive::<UInt64Type>().values().to_vec();
    assert_eq!((rows("id"), rows("kept_id")), (vec![2, 4], vec![0, 1]));
}

/// Checks a column `id` with a type that ids cannot have. `--no-ids` ignores the column.
#[test]
fn no_ids_lists_removed_rows_by_row_number() {
    let place = Place::new();
    let vectors = [[0.0, 0.0], [0.5, 0.0], [9.0, 9.0]].map(|vector| Some(vector.map(Some)));
    let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
    let ids: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
    crate::inputs::write_columns(&place.path("set.parquet"), &[("embedding", Arc::new(vectors)), ("id", ids)]);
    let line = "dedupe set.parquet -o kept.parquet --eps 1 --removed removed.csv";
    place.refused(line, &["column id is ", "--no-ids"]);
    place.done(&format!("{line} --no-ids"));
    assert_eq!(place.text("removed.csv").lines().nth(1).unwrap().split(',').take(2).collect::<Vec<_>>(), ["1", "0"]);
}

#[test]
fn dedupe_keeps_rows_of_a_set_without_any_vector() {
    let place = Place::new();
    let lines = "{\"v\":[null,1],\"t\":\"a\"}\n{\"t\":\"a\"}\n{\"v\":null,\"t\":\"b\"}\n";
    place.write("a.jsonl", lines.as_bytes());
    place.refused("dedupe a.jsonl -o out.jsonl --eps 1", &["a.jsonl", "row 0", "--on-bad skip"]);
    place.done("dedupe a.jsonl -o out.jsonl --eps 1 --on-bad skip --removed r.csv --stats s.json --quiet");
    assert_eq!(place.text("out.jsonl"), lines);
    assert_eq!(place.text("r.csv"), "id,kept_id,distance,reason\n");
    let statistics: serde_json::Value = serde_json::from_str(&place.text("s.json")).unwrap();
    let dedupe = ["source_rows", "near_rows", "kept_rows", "pairs"].map(|key| &statistics["dedupe"][key]);
    assert_eq!((&statistics["skipped_rows"], dedupe), (&3.into(), [&3.into(), &0.into(), &3.into(), &0.into()]));
    place.done("dedupe a.jsonl -o out.jsonl --eps 1 --on-bad skip --exact-text t --removed r.jsonl --force --quiet");
    assert_eq!(place.text("out.jsonl"), "{\"v\":[null,1],\"t\":\"a\"}\n{\"v\":null,\"t\":\"b\"}\n");
    assert_eq!(place.text("r.jsonl"), "{\"id\":1,\"kept_id\":0,\"distance\":null,\"reason\":\"equal text\"}\n");
    place.refused("join a.jsonl --eps 1 --on-bad skip", &["no row of the source has a usable vector"]);
}

#[test]
fn dedupe_counts_duplicate_ids() {
    let place = Place::new();
    let row = |id: &str, x: f32| format!("{{\"id\":\"{id}\",\"v\":[{x},0]}}\n");
    place.write("a.jsonl", [row("a", 0.0), row("b", 0.1), row("a", 9.0), row("a", 5.0)].concat().as_bytes());
    let line = "dedupe a.jsonl -o out.jsonl --eps 1 --removed r.csv --stats s.json --force";
    let said = place.done(line).said;
    assert!(said.contains("r.csv: 2 rows with the id of an earlier row"), "{said}");
    assert!(place.text("s.json").contains("\"duplicate_ids\": 2"));
    let said = place.done(&format!("{line} --no-ids")).said;
    assert!(!said.contains("the id of an"), "{said}");
}

#[test]
fn refuses_unwritable_outputs_before_the_work() {
    let place = Place::new();
    place.write("a.fbin", &fbin(1, &[0.0, 10.0]));
    fs::create_dir(place.path("folder")).unwrap();
    for line in ["dedupe a.fbin -o out.fbin --eps 1 --stats", "join a.fbin --eps 1 -o out.csv --stats"] {
        place.refused(&format!("{line} nowhere/s.json"), &["nowhere does not exist"]);
        place.refused(&format!("{line} folder"), &["folder is a folder"]);
        place.refused(&format!("{line} a.fbin/s.json"), &["a.fbin is not a folder"]);
        // No user can create files in this folder.
        place.refused(&format!("{line} /proc/s.json"), &["/proc"]);
        assert!(!place.path("out.fbin").exists() && !place.path("out.csv").exists(), "{line}");
    }
}

#[test]
fn outputs_of_a_glob_keep_their_path_below_the_first_wildcard() {
    let place = Place::new();
    for (name, first) in [("set/a/en/x.fbin", 0.0), ("set/a/de/x.fbin", 0.1), ("set/b/de/x.fbin", 50.0)] {
        fs::create_dir_all(place.path(name).parent().unwrap()).unwrap();
        place.write(name, &fbin(1, &[first, first + 100.0]));
    }
    for (glob, out) in [("set/a/*/x.fbin", "one"), ("./set/?/*/*.fbin", "two"), ("set/*/de/x.fbin", "three")] {
        assert_eq!(place.run_words(&["dedupe", glob, "-o", out, "--eps", "1", "--quiet"]).code, Some(0), "{glob}");
    }
    assert_eq!(place.read("one/de/x.fbin"), fbin(1, &[0.1, 100.1]));
    assert_eq!(place.read("one/en/x.fbin"), fbin(1, &[]));
    assert_eq!(place.read("two/b/de/x.fbin"), fbin(1, &[50.0, 150.0]));
    assert_eq!(place.read("three/a/de/x.fbin"), fbin(1, &[0.1, 100.1]));
    // A folder that is named by a URL is a folder, even if it has only one file.
    let url = format!("file://{}", place.path("set/b/de").display());
    assert_eq!(place.run_words(&["dedupe", &url, "-o", "four", "--eps", "1", "--quiet"]).code, Some(0));
    assert_eq!(place.read("four/x.fbin"), fbin(1, &[50.0, 150.0]));
    // Files that are named one by one are written under their file names, without their folders.
    place.done("dedupe set/b/de/x.fbin -o x.fbin --eps 1 --quiet");
    place.refused("dedupe set/b/de/x.fbin set/a/de/x.fbin -o no --eps 1", &["would both be called x.fbin"]);
}

#[test]
fn keep_by_sorts_all_null_columns_as_nulls() {
    let place = Place::new();
    place.write("a.jsonl", b"{\"v\":[1],\"c\":null,\"n\":1}\n{\"v\":[1],\"c\":null,\"n\":2}\n");
    let words = ["--eps", "1", "--keep-by", "length(c), upper(c) desc, n desc", "--quiet"];
    assert_eq!(place.run_words(&[&["dedupe", "a.jsonl", "-o", "out.jsonl"], &words[..]].concat()).code, Some(0));
    assert_eq!(place.text("out.jsonl"), "{\"v\":[1],\"c\":null,\"n\":2}\n");
}
