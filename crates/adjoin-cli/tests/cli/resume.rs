//! Builds and joins that are killed and continue with `--resume`. Their results must equal the results of an
//! uninterrupted run, and they may repeat only the step that was interrupted.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adjoin::Random;
use arrow_array::{FixedSizeListArray, Float32Array, StringArray};
use arrow_schema::{DataType, Field};
use rustix::process::{Pid, Signal, kill_process};

use crate::inputs::write_columns;
use crate::place::Place;
use crate::signals::{holds, wait_until_begun};

/// Number of processes to kill per command: by default, and with `ADJOIN_EVERY_FAULT`.
const KILLS: (usize, usize) = (10, 200);

fn kills() -> usize {
    if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { KILLS.1 } else { KILLS.0 }
}

/// Runs a command, and kills it after `after`. Returns its messages if it had ended before.
fn said_unless_killed(place: &Place, line: &str, after: Duration) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = place.command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    let _ = child.kill();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let is_killed = ended.status.code().is_none();
    assert!(is_killed || ended.status.success(), "{line}: {said}");
    (!is_killed).then_some(said)
}

/// Runs a command until it has created a file with `part` in its path, and then ends it by a signal. Returns its
/// messages.
fn ended_at(place: &Place, line: &str, part: &str, signal: Signal) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let mut child = place.command(&words).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until_begun(&mut child, || holds(place, part)), "{line} ends too soon");
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert!(!ended.status.success());
    String::from_utf8(ended.stderr).unwrap()
}

fn number(statistics: &serde_json::Value, object: &str, name: &str) -> f64 {
    statistics[object][name].as_f64().unwrap_or_else(|| panic!("{object}.{name} of {statistics}"))
}

/// Measurements of runs that were killed.
#[derive(Default)]
struct Repeated {
    kills: usize,
    /// Fraction of the work of an uninterrupted run that was repeated, at most, per kill.
    shares: Vec<f64>,
}

/// Kills runs of `line` at random moments, one or more times in a row. Checks that `result` equals the result of an
/// uninterrupted run in the end. `share` returns the fraction of the work that a run had to repeat, from its
/// messages.
fn kill_and_resume(place: &Place, line: &str, result: &str, share: impl Fn(&Place, &str) -> f64) -> Repeated {
    let mut random = Random::new(1, "kills");
    let (mut told, begun) = (Repeated::default(), Instant::now());
    place.done(line);
    let (whole, wanted) = (begun.elapsed(), place.tree(result));
    while told.kills < kills() {
        place.removed(result);
        let (in_a_row, mut killed, mut said) = (1 + random.below(3), 0, None);
        while killed < in_a_row as usize && said.is_none() {
            said = said_unless_killed(place, line, whole.mul_f64(random.uniform()));
            killed += usize::from(said.is_none());
        }
        if killed == 0 {
            continue;
        }
        let said = said.unwrap_or_else(|| place.done(line).said);
        assert!(place.tree(result) == wanted, "another result after {killed} kills");
        assert!(!holds(place, ".resume"), "what was kept is removed");
        told.kills += killed;
        told.shares.push(share(place, &said) / killed as f64);
    }
    let mean = told.shares.iter().sum::<f64>() / told.shares.len() as f64;
    let most = told.shares.iter().copied().fold(0.0, f64::max);
    eprintln!("{line}: {} kills in {} trials, a whole run takes {whole:.2?}", told.kills, told.shares.len());
    eprintln!("done again for a kill: {:.2} % of the work on average, at most {:.2} %", 100.0 * mean, 100.0 * most);
    told
}

fn compared_twice(place: &Place, _said: &str) -> f64 {
    let statistics = serde_json::from_slice(&place.read("stats.json")).unwrap();
    number(&statistics, "resume", "verified_pairs_repeated_max") / number(&statistics, "join", "verified_pairs")
}

/// Returns the fraction of the distances to centers that a build computed a second time.
fn computed_twice(_place: &Place, said: &str) -> f64 {
    let Some((_, told)) = said.split_once("assigned before, at most ") else { return 0.0 };
    let mut numbers = told.split(' ').filter_map(|word| word.replace(',', "").parse::<f64>().ok());
    let (again, all) = (numbers.next().unwrap(), numbers.next().unwrap());
    again / all
}

fn assert_little(told: &Repeated) {
    assert!(told.shares.iter().all(|&share| share < 0.25), "a kill costs no more than a leg: {:?}", told.shares);
}

#[test]
fn a_killed_join_resumes_and_writes_the_same_bytes() {
    let place = Place::on_disk();
    place.done("gen --rows 30000 --dimensions 64 -o set.fbin --quiet");
    place.done("build set.fbin -o store --quiet");
    place.done("join store --eps 0.6 --exact -o plain.csv --threads 1 --quiet");
    let line = "join store --eps 0.6 --exact -o pairs.csv --threads 1 --resume --stats stats.json --force --quiet";
    let told = kill_and_resume(&place, line, "pairs.csv", compared_twice);
    assert!(place.read("pairs.csv") == place.read("plain.csv"), "a join that is not kept writes the same");
    assert_little(&told);
}

#[test]
fn a_killed_join_of_a_source_resumes_with_its_store_and_pairs() {
    let place = Place::on_disk();
    place.done("gen --rows 30000 --dimensions 64 -o set.fbin --quiet");
    place.done("join set.fbin --eps 0.6 --recall 0.9 --result removed -o plain.csv --quiet");
    let line =
        "join set.fbin --eps 0.6 --recall 0.9 --result removed -o gone.csv --resume --stats stats.json --force --quiet";
    let told = kill_and_resume(&place, line, "gone.csv", compared_twice);
    assert!(place.read("gone.csv") == place.read("plain.csv"), "a join that is not kept decides the same");
    assert_little(&told);
}

/// Writes the vectors of `set.fbin` to `set.parquet`, with a text for each row.
fn write_with_texts(place: &Place) {
    let bytes = place.read("set.fbin");
    let numbers = bytes.as_chunks::<4>().0;
    let [rows, dimensions] = [0, 1].map(|at| u32::from_le_bytes(numbers[at]));
    let values = Float32Array::from_iter_values(numbers[2..].iter().map(|&value| f32::from_le_bytes(value)));
    let field = Arc::new(Field::new("item", DataType::Float32, true));
    let vectors = FixedSizeListArray::new(field, dimensions as i32, Arc::new(values), None);
    let texts = StringArray::from_iter_values((0..rows).map(|row| format!("text {row}")));
    write_columns(&place.path("set.parquet"), &[("v", Arc::new(vectors)), ("text", Arc::new(texts))]);
}

#[test]
fn a_killed_join_with_columns_resumes() {
    let place = Place::on_disk();
    place.done("gen --rows 30000 --dimensions 64 -o set.fbin --quiet");
    write_with_texts(&place);
    for result in ["pairs", "removed", "clusters"] {
        let join = format!("join set.parquet --eps 0.6 --exact --result {result} --columns text --threads 1");
        place.done(&format!("{join} -o plain.csv --force --quiet"));
        let line = format!("{join} -o lines.csv --resume --stats stats.json --force --quiet");
        assert_little(&kill_and_resume(&place, &line, "lines.csv", compared_twice));
        assert!(
            place.read("lines.csv") == place.read("plain.csv"),
            "{result}: a join that is not kept writes the same"
        );
        place.removed("lines.csv");
        place.removed("stats.json");
        ended_at(&place, &line, ".resume/pairs-0", Signal::KILL);
        let ran = place.run(&line.replace(" --columns text", "").replace(" --force", ""));
        assert!(ran.code == Some(2) && ran.said.contains("the columns of the result"), "{}", ran.said);
        place.done(&line);
    }
}

#[test]
fn a_killed_join_with_new_rows_resumes() {
    let place = Place::on_disk();
    place.done("gen --rows 30000 --dimensions 64 -o set.fbin --quiet");
    place.done("gen --rows 20000 --dimensions 64 --seed 2 -o more.fbin --quiet");
    place.done("build set.fbin -o store --quiet");
    place.done("join store --new more.fbin --eps 0.6 --exact --result counts -o plain.csv --quiet");
    let line = "join store --new more.fbin --eps 0.6 --exact --result counts -o counts.csv --resume --stats stats.json --force --quiet";
    let told = kill_and_resume(&place, line, "counts.csv", compared_twice);
    assert!(place.read("counts.csv") == place.read("plain.csv"), "a join that is not kept counts the same");
    assert_little(&told);
    let other = line.replace("--new", "--with");
    ["counts.csv", "stats.json"].into_iter().for_each(|name| place.removed(name));
    ended_at(&place, line, ".resume/pairs-0", Signal::KILL);
    let other = other.replace(" --force", "");
    let ran = place.run_words(&other.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.code, Some(2), "{}", ran.said);
    for words in ["the joined sets", "one set and new rows", "two sets"] {
        assert!(ran.said.contains(words), "{words}: {}", ran.said);
    }
}

#[test]
fn a_killed_build_resumes_and_writes_the_same_bytes() {
    let place = Place::on_disk();
    place.done("gen --rows 60000 --dimensions 64 -o set.fbin --quiet");
    place.done("build set.fbin -o plain --quiet");
    let line = "build set.fbin -o store --resume --force";
    let told = kill_and_resume(&place, line, "store", computed_twice);
    assert!(
        place.names_and_bytes("store") == place.names_and_bytes("plain"),
        "a build that is not kept writes the same"
    );
    // For such a small set, most of the work is training the centers, which precedes the first checkpoint.
    assert!(told.shares.iter().all(|&share| share <= 1.0), "a kill costs no more than a run: {:?}", told.shares);
}

#[test]
fn joins_of_every_output_resume() {
    let place = Place::new();
    place.done("gen --rows 5000 --dimensions 16 -o set.fbin --quiet");
    place.done("gen --rows 3000 --dimensions 16 --seed 2 -o other.fbin --quiet");
    for (what, result) in [
        ("set.fbin --result counts -o", "counts.csv"),
        ("set.fbin --result clusters -o", "clusters.csv"),
        ("set.fbin --result removed --keep-rule cluster -o gone.csv --kept", "kept.jsonl"),
        ("set.fbin --with other.fbin --result pairs -o", "pairs.csv"),
    ] {
        let line = format!("join {what} {result} --eps 0.6 --exact --threads 1 --quiet --force");
        place.done(&line);
        let wanted = place.read(result);
        place.removed(result);
        ended_at(&place, &format!("{line} --resume"), ".resume/pairs-3", Signal::KILL);
        let ran = place.done(&format!("{} --resume", line.replace(" --quiet", "")));
        assert!(ran.said.contains("run 2 of this join: "), "{}", ran.said);
        assert!(place.read(result) == wanted, "{line}");
    }
}

#[test]
fn an_interrupted_run_prints_how_to_resume() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 64 -o set.fbin --quiet");
    let line = "join set.fbin --eps 0.6 --exact -o pairs.csv --resume --quiet";
    let said = ended_at(&place, line, ".resume/pairs-0", Signal::INT);
    let wanted =
        "adjoin: interrupted; the work so far is kept in .adjoin-pairs.csv.resume; repeat the command to continue\n";
    assert_eq!(said, wanted);
    place.done(line);
    assert!(!holds(&place, ".resume"));
}

#[test]
fn a_changed_source_or_option_is_refused() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 64 -o set.fbin --quiet");
    let line = |eps: &str, more: &str| format!("join set.fbin --eps {eps} --exact -o pairs.csv --resume --quiet{more}");
    ended_at(&place, &line("0.6", ""), ".resume/pairs-0", Signal::KILL);
    let begins = ".adjoin-pairs.csv.resume is the checkpoint of a run that differs in ";
    let ends = "; continue with the same inputs and options, or give --force to start again";
    let threshold = format!("{begins}the threshold (a distance of 0.6 then, a distance of 0.7 now){ends}");
    place.refused(&line("0.7", ""), &[&threshold]);
    place.refused(&line("0.6", " --on-bad skip"), &[begins, "the action on bad rows (Error then", ends]);
    let bytes = place.read("set.fbin");
    place.done("gen --rows 20000 --dimensions 64 --seed 9 -o other.fbin --quiet");
    std::fs::copy(place.path("other.fbin"), place.path("set.fbin")).unwrap();
    place.refused(&line("0.6", ""), &[begins, "the file set.fbin (5120008 bytes written at ", ends]);
    place.done(&line("0.6", " --force"));
    let of_other = place.read("pairs.csv");
    place.write("set.fbin", &bytes);
    place.removed("pairs.csv");
    place.done(&line("0.6", ""));
    assert!(place.read("pairs.csv") != of_other);

    ended_at(&place, "build set.fbin -o store --resume --quiet", "store.resume/rows-3", Signal::KILL);
    let begins = ".adjoin-store.resume is the checkpoint of a run that differs in ";
    place
        .refused("build set.fbin -o store --resume --seed 2", &[begins, "the seed of the build (1 then, 2 now)", ends]);
    let ran = place.done("build set.fbin -o store --resume");
    assert!(ran.said.contains("run 2 of this build: "), "{}", ran.said);
}

/// Checks a source in which bytes have changed, but not the length. The modification time is restored.
#[test]
fn resume_detects_changes_that_preserve_size_and_modification_time() {
    let place = Place::new();
    place.done("gen --rows 20000 --dimensions 64 -o set.fbin --quiet");
    let line = "join set.fbin --eps 0.6 --exact -o pairs.csv --resume --quiet";
    ended_at(&place, line, ".resume/pairs-0", Signal::KILL);
    let written = std::fs::metadata(place.path("set.fbin")).unwrap().modified().unwrap();
    let mut bytes = place.read("set.fbin");
    bytes[9] ^= 1;
    place.write("set.fbin", &bytes);
    std::fs::File::options().write(true).open(place.path("set.fbin")).unwrap().set_modified(written).unwrap();
    place.refused(line, &["the file set.fbin (5120008 bytes written at ", "changed at ", "--force to start again"]);
}

#[test]
fn force_rebuilds_a_checkpoint_store_with_a_missing_file() {
    let place = Place::on_disk();
    place.done("gen --rows 20000 --dimensions 64 -o set.fbin --quiet");
    let line = "join set.fbin --eps 0.6 --exact -o pairs.csv --resume --quiet";
    ended_at(&place, line, ".resume/pairs-0", Signal::KILL);
    let holds_vectors = |path: &std::path::Path| path.to_string_lossy().contains("store-0/vectors-");
    let vectors = place.listing().into_iter().find(|(path, _)| holds_vectors(path)).unwrap().0;
    std::fs::remove_file(vectors).unwrap();
    let ran = place.run(line);
    assert_eq!(ran.code, Some(2), "{}", ran.said);
    assert!(
        ran.said.contains("store-0, from the checkpoint of an earlier run, is damaged")
            && ran.said.contains("give --force")
    );
    place.done(&format!("{line} --force"));
}

#[test]
fn refuses_resume_without_checkpoints() {
    let place = Place::new();
    place.done("gen --rows 100 --dimensions 4 -o set.fbin --quiet");
    place.refused(
        "join set.fbin --eps 0.1 --resume",
        &["--resume keeps checkpoints next to the result, so it needs -o FILE"],
    );
    place.refused("join set.fbin --eps 0.1 --resume -o -", &["--resume keeps checkpoints next to the result"]);
    place.refused("join set.fbin --neighbors 3 --resume -o pairs.csv", &["--resume"]);
}
