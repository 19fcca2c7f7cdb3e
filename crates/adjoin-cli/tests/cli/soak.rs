//! A server under mixed load: writers, searchers, large, malformed and slow requests, restarts and kills. When the
//! load ends, the server must answer each cheap request. It must keep all acknowledged writes, never answer 500, and
//! stay within its budget.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use adjoin::{Collection, Context, Ids, Random};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::place::Place;
use crate::serve_fuzzed::mutate::mutate;
use crate::serving::Serving;

const DIMENSIONS: usize = 24;
/// Number of rows of each writer, so ids are below `WRITERS * ROWS`. The smallest budget suffices for all rows.
const ROWS: u64 = 300;
const WRITERS: u64 = 3;
const SEARCHERS: u64 = 3;
/// Budgets of the server. Rounds use them in turn.
const BUDGETS: [(&str, u64); 3] = [("64MB", 64_000_000), ("256MB", 256_000_000), ("2GB", 2_000_000_000)];
/// Number of requests of each client in a round.
const REQUESTS: usize = 25;
/// Number of rounds of a short run. They use every budget, and end the server both orderly and by a kill.
const ROUNDS: u64 = 3;
/// Time limit for a cheap request after the load has ended. It is checked only in a long run.
const RECOVERY: Duration = Duration::from_secs(5);
/// Time limit for a server that never recovers. In a short run, it is reached only then.
const PATIENCE: Duration = Duration::from_secs(600);

/// For each id, the versions that its row may have; version 0 means that there is no row. After a write without an
/// answer, several versions are possible.
type Versions = BTreeMap<u64, Vec<u64>>;

/// State that all clients of a round share.
struct Round {
    address: SocketAddr,
    pid: u32,
    seed: u64,
    /// Number of requests until the server is killed; `u64::MAX` if it is not killed.
    kill_after: Mutex<u64>,
    statuses: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Round {
    /// Sends a request. Returns its status and body, or `None` if the server died.
    fn ask(&self, client: &'static str, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.count_down();
        let answer = self.try_ask(head, body);
        if let Some((status, body)) = &answer {
            assert_ne!(*status, 500, "{client}: {head}: {}", String::from_utf8_lossy(body));
            *self.statuses.lock().unwrap().entry((client, *status)).or_default() += 1;
        }
        answer
    }

    fn try_ask(&self, head: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let head = format!("{head}\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), body].concat()); // fails if the server refuses before it has read the body
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let status = String::from_utf8_lossy(&bytes[..end]).split(' ').nth(1)?.parse().ok()?;
        Some((status, bytes.split_off(end + 4)))
    }

    fn post(&self, client: &'static str, path: &str, body: &Value) -> Option<(u16, Vec<u8>)> {
        let head = format!("POST {path} HTTP/1.1\r\ncontent-type: application/json");
        self.ask(client, &head, body.to_string().as_bytes())
    }

    fn count_down(&self) {
        let mut left = self.kill_after.lock().unwrap();
        *left = left.saturating_sub(1);
        if *left == 0 {
            let _ = kill_process(Pid::from_raw(self.pid as i32).unwrap(), Signal::KILL); // it may have ended
        }
    }

    /// Inserts, replaces and deletes rows of one writer. Records which versions each row may have afterwards.
    fn write(&self, writer: u64, requests: usize, versions: &mut Versions) {
        let mut random = Random::new(self.seed, &format!("writer {writer}"));
        for number in 0..requests {
            let version = self.seed * 1_000_000 + number as u64 + 1;
            let first = random.below(ROWS);
            let ids: Vec<u64> = (first..ROWS.min(first + 1 + random.below(150))).map(|id| writer * ROWS + id).collect();
            let durability = if random.below(4) == 0 { "buffered" } else { "group" };
            let is_delete = random.below(5) == 0;
            let answer = if is_delete {
                self.post("writer", "/v1/vectors/delete", &json!({"ids": ids, "durability": durability}))
            } else {
                let vectors: Vec<Vec<u64>> = ids.iter().map(|&id| vector(id, version)).collect();
                self.post("writer", "/v1/vectors", &json!({"ids": ids, "vectors": vectors, "durability": durability}))
            };
            let new = if is_delete { 0 } else { version };
            let status = answer.map(|(status, _)| status);
            for id in ids {
                let may_be = versions.entry(id).or_insert_with(|| vec![0]);
                match status {
                    Some(200) => *may_be = vec![new],
                    Some(413 | 429 | 503 | 507) => {}
                    Some(504) | None => may_be.push(new),
                    Some(other) => panic!("a write was answered with {other}"),
                }
            }
        }
    }

    fn search(&self, searcher: u64, requests: usize) {
        let mut random = Random::new(self.seed, &format!("searcher {searcher}"));
        for _ in 0..requests {
            let query = vector(random.below(WRITERS * ROWS), random.below(1_000_000));
            let body = json!({"queries": [query], "k": 1 + random.below(20)});
            let answer = self.post("searcher", "/v1/search", &body);
            assert!(answer.is_none_or(|(status, _)| [200, 429, 503, 504, 507].contains(&status)));
        }
    }

    /// Sends expensive requests: many queries, a large K, or a large radius. Also requests metrics.
    fn ask_much(&self, requests: usize) {
        let mut random = Random::new(self.seed, "large");
        for _ in 0..requests {
            let queries: Vec<Vec<u64>> =
                (0..1 + random.below(100)).map(|_| vector(random.below(WRITERS * ROWS), 1)).collect();
            let body = match random.below(3) {
                0 => json!({"queries": queries, "k": 1 + random.below(5_000), "deadline_ms": 2_000}),
                1 => json!({"queries": queries, "radius": 1e9, "deadline_ms": 2_000}),
                _ => json!({"queries": queries[..1], "k": 10_000}),
            };
            let answer = self.post("large", "/v1/search", &body);
            assert!(answer.is_none_or(|(status, _)| [200, 413, 429, 503, 504, 507].contains(&status)));
            self.ask("metrics", "GET /metrics HTTP/1.1", b"");
        }
    }

    fn send_garbage(&self, requests: usize) {
        let mut random = Random::new(self.seed, "garbage");
        let search = json!({"queries": [vector(1, 2)], "k": 3}).to_string().into_bytes();
        for _ in 0..requests {
            let mut body = search.clone();
            mutate(&mut random, &mut body, std::slice::from_ref(&search));
            self.ask("garbage", "POST /v1/search HTTP/1.1\r\ncontent-type: application/json", &body);
        }
    }

    /// Opens connections that stop in the middle of a request. They stay open until the returned value is dropped.
    fn hold_connections(&self) -> Vec<TcpStream> {
        let starts: [&[u8]; 3] =
            [b"", b"GET /live", b"POST /v1/search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"];
        let open = |k: usize| {
            let mut stream = TcpStream::connect(self.address).ok()?;
            stream.write_all(starts[k % starts.len()]).ok()?;
            Some(stream)
        };
        (0..30).filter_map(open).collect()
    }

    /// Runs all clients at the same time, until each has sent its requests.
    fn run(&self, requests: usize, versions: &mut [Versions]) {
        let held = self.hold_connections();
        std::thread::scope(|scope| {
            for (writer, versions) in (0..).zip(versions) {
                scope.spawn(move || self.write(writer, requests, versions));
            }
            for searcher in 0..SEARCHERS {
                scope.spawn(move || self.search(searcher, requests));
            }
            scope.spawn(|| self.ask_much(requests / 3));
            scope.spawn(|| self.send_garbage(requests));
        });
        drop(held);
    }

    /// Repeats each cheap request until it succeeds. Returns the time that the slowest one took.
    fn recover(&self, versions: &mut [Versions]) -> Duration {
        let (begun, id) = (Instant::now(), 0);
        let (version, json) = (self.seed * 1_000_000 + 999_999, "content-type: application/json");
        let search = json!({"queries": [vector(id, version)], "k": 1}).to_string();
        let write = json!({"ids": [id], "vectors": [vector(id, version)]}).to_string();
        for (head, body) in [
            ("GET /livez HTTP/1.1".to_owned(), ""),
            ("GET /readyz HTTP/1.1".to_owned(), ""),
            ("GET /v1/info HTTP/1.1".to_owned(), ""),
            ("GET /metrics HTTP/1.1".to_owned(), ""),
            (format!("POST /v1/search HTTP/1.1\r\n{json}"), search.as_str()),
            (format!("POST /v1/vectors HTTP/1.1\r\n{json}"), write.as_str()),
            (format!("POST /v1/search HTTP/1.1\r\n{json}"), search.as_str()),
        ] {
            while let Some((status, answer)) = self.ask("cheap", &head, body.as_bytes())
                && status != 200
            {
                let said = String::from_utf8_lossy(&answer);
                assert!(begun.elapsed() < PATIENCE, "{head} never recovers: {status} {said}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        versions[0].insert(id, vec![version]);
        begun.elapsed()
    }
}

/// Returns a vector that contains its id and version. Thus a row shows which write it is from.
fn vector(id: u64, version: u64) -> Vec<u64> {
    let mut vector = vec![0; DIMENSIONS];
    (vector[0], vector[1], vector[2]) = (id, version / 1_000_000, version % 1_000_000);
    vector[3 + id as usize % (DIMENSIONS - 3)] = id % 97;
    vector
}

/// Compares the rows of the closed collection with the acknowledged writes. Replaces possible versions by the actual
/// ones.
fn check_rows(place: &Place, folder: &str, all: &mut [Versions]) {
    let collection = Collection::open_read_only(&Context::default(), &place.path(folder)).unwrap();
    for versions in all {
        let ids: Vec<u64> = versions.keys().copied().collect();
        let got = collection.get(&Ids::Int64(ids.iter().map(|&id| id as i64).collect())).unwrap();
        for (id, bytes) in ids.into_iter().zip(got) {
            let found = bytes.map_or(0, |bytes| {
                let floats: Vec<u64> =
                    bytes.as_chunks().0.iter().map(|&four| f32::from_le_bytes(four) as u64).collect();
                let version = floats[1] * 1_000_000 + floats[2];
                assert_eq!(floats, vector(id, version), "row {id}");
                version
            });
            let may_be = versions.get_mut(&id).unwrap();
            assert!(may_be.contains(&found), "row {id} has version {found}, acknowledged: {may_be:?}");
            *may_be = vec![found];
        }
    }
}

fn resident_bytes_max(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Returns the duration of a long run, if `ADJOIN_SOAK_SECONDS` sets one.
fn long_run() -> Option<Duration> {
    let seconds = std::env::var("ADJOIN_SOAK_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("ADJOIN_SOAK_SECONDS is a number of seconds")))
}

#[test]
fn a_server_recovers_from_combined_faults_without_loss() {
    let place = Place::on_disk();
    // Each budget has a collection of its own, because unmerged rows that fit in a large budget need not fit in a
    // small one.
    for (memory, _) in BUDGETS {
        place.done(&format!("collection create {memory}.live --dimensions {DIMENSIONS}"));
    }
    let (long, begun) = (long_run(), Instant::now());
    let requests = if long.is_some() { 20 * REQUESTS } else { REQUESTS };
    let mut versions = BUDGETS.map(|_| vec![Versions::new(); WRITERS as usize]);
    let mut statuses = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    let mut rounds = 0;
    for seed in 1.. {
        let budget = (seed - 1) as usize % BUDGETS.len();
        let ((memory, bytes), versions) = (BUDGETS[budget], &mut versions[budget]);
        let folder = format!("{memory}.live");
        let serving = Serving::start(&place, &format!("{folder} --memory {memory} --log error"));
        let is_killed = seed % 2 == 0; // the number of budgets is odd, so each budget is used with and without a kill
        let kill_after = if is_killed { Random::new(seed, "kill").below(8 * requests as u64) + 1 } else { u64::MAX };
        let round = Round {
            address: serving.address,
            pid: serving.pid(),
            seed,
            kill_after: Mutex::new(kill_after),
            statuses: Mutex::new(std::mem::take(&mut statuses)),
        };
        round.run(requests, versions);
        if is_killed {
            drop(serving);
        } else {
            slowest = slowest.max(round.recover(versions));
            let peak = resident_bytes_max(serving.pid());
            assert!(peak <= bytes, "round {seed}: {peak} of {memory}");
            let (code, said) = serving.end();
            assert_eq!(code, Some(0), "round {seed}: {said}");
        }
        statuses = round.statuses.into_inner().unwrap();
        check_rows(&place, &folder, versions);
        rounds = seed;
        if long.map_or(seed >= ROUNDS, |long| begun.elapsed() > long) {
            break;
        }
    }
    eprintln!("{rounds} rounds, recovered after at most {slowest:.2?}; requests by status: {statuses:?}");
    assert!(long.is_none() || slowest <= RECOVERY, "recovered after {slowest:?}");
}
