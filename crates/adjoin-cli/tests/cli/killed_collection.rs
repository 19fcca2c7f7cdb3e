//! Kills processes at random moments while they write to a collection or merge it. After that, all ways to read must
//! return the acknowledged rows and no deleted ones, and the next process must be able to continue.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::Duration;

use adjoin::{Collection, Context, Ids, Random};

use crate::inputs::fbin;
use crate::place::Place;

/// Ids are below this number. A source with this number of rows is split into more than one write.
const IDS: usize = 2_500;
const DIMENSIONS: usize = 112;
/// Number of processes to kill: by default, and with `ADJOIN_EVERY_FAULT`.
const KILLS: (usize, usize) = (8, 500);

/// For each id, the number of the write that its row is from; `None` if there is no row.
type Versions = Vec<Option<usize>>;

/// Work of a process.
enum Task {
    /// Deletes rows, and then inserts or replaces the rows with ids below `rows`.
    Write {
        deleted: BTreeSet<usize>,
        rows: usize,
    },
    Merge,
}

impl Task {
    fn draw(random: &mut Random) -> Self {
        if random.below(3) == 0 {
            return Self::Merge;
        }
        let deleted = (0..random.below(200)).map(|_| random.below(IDS as u64) as usize).collect();
        Self::Write { deleted, rows: random.below(IDS as u64 + 1) as usize }
    }

    /// Writes the input files of the command, and returns its words.
    fn words(&self, place: &Place, version: usize, random: &mut Random) -> Vec<&'static str> {
        let Self::Write { deleted, rows } = self else { return vec!["collection", "merge", "set.live", "--quiet"] };
        place.write("gone", deleted.iter().map(|id| format!("{id}\n")).collect::<String>().as_bytes());
        place.write("rows.fbin", &fbin(DIMENSIONS, &(0..*rows).flat_map(|id| vector(id, version)).collect::<Vec<_>>()));
        let durability = if random.below(2) == 0 { "group" } else { "buffered" };
        let mut words =
            vec!["collection", "write", "set.live", "--delete", "gone", "--durability", durability, "--quiet"];
        if *rows > 0 {
            words.extend(["--upsert", "rows.fbin"]);
        }
        words
    }

    /// Checks the rows after the task. If it was acknowledged, all of its changes are there. Otherwise, it may have
    /// been cut off at the end of one of its writes.
    fn check(&self, before: &Versions, found: &Versions, version: usize, is_acknowledged: bool) {
        let mut wanted = before.clone();
        let done = found.iter().take_while(|of| **of == Some(version)).count();
        match self {
            Self::Write { .. } if !is_acknowledged && found == before => return,
            Self::Write { deleted, rows } => {
                deleted.iter().for_each(|&id| wanted[id] = None);
                wanted[..done].fill(Some(version));
                assert!(done == *rows || !is_acknowledged, "{done} of {rows} rows of an acknowledged write are there");
            }
            Self::Merge => {}
        }
        let differing: Vec<_> =
            (0..IDS).filter(|&id| found[id] != wanted[id]).map(|id| (id, found[id], wanted[id])).collect();
        assert!(differing.is_empty(), "{} rows, of which the first {:?}", differing.len(), differing[0]);
    }
}

fn vector(id: usize, version: usize) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS];
    (vector[0], vector[1]) = (id as f32, version as f32);
    vector
}

/// Returns the rows of the collection, looked up by id. Checks that an exhaustive search by distance finds the same
/// rows.
fn found(place: &Place) -> Versions {
    let collection = Collection::open_read_only(&Context::default(), &place.path("set.live")).unwrap();
    let got = collection.get(&Ids::Int64((0..IDS as i64).collect())).unwrap();
    let of_row = |(id, bytes): (usize, Option<Vec<u8>>)| {
        let floats: Vec<f32> = bytes?.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four)).collect();
        assert_eq!(floats, vector(id, floats[1] as usize));
        Some(floats[1] as usize)
    };
    let found: Versions = got.into_iter().enumerate().map(of_row).collect();
    let mut near: Vec<(f64, usize)> =
        (0..IDS).filter_map(|id| Some(((id as f64).hypot(found[id]? as f64), id))).collect();
    assert_eq!(collection.facts().rows, near.len() as u64);
    near.sort_by(|a, b| a.partial_cmp(b).unwrap());
    if !near.is_empty() {
        let line = format!("search set.live --queries query.fbin -k {IDS} -L {IDS} --quiet");
        let hits = place.done(&line).out;
        let hit = |line: &str| {
            let words: Vec<&str> = line.split(',').collect();
            (words[3].parse::<f64>().unwrap(), words[2].parse::<usize>().unwrap())
        };
        let hits: Vec<_> = hits.lines().skip(1).map(hit).collect();
        assert_eq!(hits.iter().map(|hit| hit.1).collect::<BTreeSet<_>>(), near.iter().map(|near| near.1).collect());
        assert_eq!(hits.len(), near.len(), "a row is found twice");
        for (hit, near) in hits.iter().zip(&near) {
            assert!((hit.0 - near.0).abs() <= 1e-4 * (1.0 + near.0), "{hit:?}, {near:?}");
        }
    }
    found
}

/// Runs a command, and kills it after `after` unless it has ended. Returns whether it was killed, and whether its
/// work was acknowledged.
fn killed(place: &Place, words: &[&str], after: Duration) -> (bool, bool) {
    let mut child = place.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    let _ = child.kill();
    let ended = child.wait_with_output().unwrap();
    let is_killed = ended.status.code().is_none();
    assert!(is_killed || ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    (is_killed, !is_killed || ended.stdout.ends_with(b"\n"))
}

#[test]
fn a_killed_process_loses_no_acknowledged_write() {
    let place = Place::on_disk();
    place.done(&format!("collection create set.live --dimensions {DIMENSIONS}"));
    place.write("query.fbin", &fbin(DIMENSIONS, &[0.0; DIMENSIONS]));
    let (mut random, mut there) = (Random::new(1, "kills"), vec![None; IDS]);
    let wanted = if std::env::var_os("ADJOIN_EVERY_FAULT").is_some() { KILLS.1 } else { KILLS.0 };
    // Maximum duration so far of commands that write and of commands that merge. The initial values are guesses.
    let mut longest = [Duration::from_millis(50), Duration::from_millis(300)];
    let (mut kills, mut ended) = ([0; 2], 0);
    for version in 1.. {
        let task = Task::draw(&mut random);
        let words = task.words(&place, version, &mut random);
        let kind = usize::from(matches!(task, Task::Merge));
        let after = longest[kind].mul_f64(random.uniform());
        let (is_killed, is_acknowledged) = killed(&place, &words, after);
        let found = found(&place);
        task.check(&there, &found, version, is_acknowledged);
        there = found;
        kills[kind] += usize::from(is_killed);
        ended += usize::from(!is_killed);
        longest[kind] = longest[kind].mul_f64(if is_killed { 1.1 } else { 0.8 });
        if kills[0] + kills[1] == wanted {
            break;
        }
    }
    let sound = place.done("verify set.live").out;
    assert!(sound.starts_with("sound: "), "{sound}");
    println!("{} processes killed while they wrote, {} while they merged; {ended} ended before", kills[0], kills[1]);
}
