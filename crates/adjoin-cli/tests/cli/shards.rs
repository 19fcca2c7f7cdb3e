//! Servers with parts of a set, and servers that only pretend to be such.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Int64Array, StringArray};
use serde_json::{Value, json};

use crate::inputs::write_columns;
use crate::place::Place;
use crate::serving::{Response, Serving};

/// Rows of the whole set, and of each shard.
pub(crate) const ROWS: usize = 300;
pub(crate) const OF_SHARD: usize = 100;
/// Memory of each server of the tests.
pub(crate) const MEMORY: &str = "--memory 96MB";

/// Returns the vector of a row. Some rows of different shards have equal vectors, so that their order is tested.
pub(crate) fn vector(row: usize) -> [f32; 4] {
    let row = row % 140;
    [3, 7, 11, 13].map(|factor| ((row * factor * factor + row) % 17) as f32)
}

/// Writes rows as a Parquet file, with ids, two columns and vectors.
pub(crate) fn write_rows(place: &Place, name: &str, rows: Range<usize>) {
    let vectors = rows.clone().map(|row| Some(vector(row).map(Some)));
    let columns: [(&str, ArrayRef); 4] = [
        ("key", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| 1_000 + row as i64)))),
        (
            "year",
            Arc::new(Int64Array::from_iter(rows.clone().map(|row| (row % 5 > 0).then_some(2_000 + row as i64 % 7)))),
        ),
        ("rank", Arc::new(StringArray::from_iter_values(rows.map(|row| format!("row\n{row}"))))),
        ("embedding", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 4))),
    ];
    write_columns(&place.path(name), &columns);
}

/// Builds a store of all rows, `all.store`, and one of each third of them, `0.store` to `2.store`.
pub(crate) fn stores() -> Place {
    let place = Place::new();
    let build = |name: &str, rows| {
        write_rows(&place, &format!("{name}.parquet"), rows);
        let options = "--id-column key --vector-column embedding --columns year,rank --quiet";
        place.done(&format!("build {name}.parquet -o {name}.store {options}"));
    };
    build("all", 0..ROWS);
    (0..3).for_each(|shard| build(&shard.to_string(), shard * OF_SHARD..(shard + 1) * OF_SHARD));
    place
}

/// Starts a server for each of the stores of thirds.
pub(crate) fn serve_thirds(place: &Place) -> Vec<Serving> {
    (0..3).map(|shard| Serving::start(place, &format!("{shard}.store {MEMORY}"))).collect()
}

/// Returns addresses as the option `--shards` takes them.
pub(crate) fn urls(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(",")
}

pub(crate) fn addresses(shards: &[Serving]) -> Vec<SocketAddr> {
    shards.iter().map(|shard| shard.address).collect()
}

/// Starts a coordinator of shards.
pub(crate) fn coordinate(place: &Place, addresses: &[SocketAddr]) -> Serving {
    Serving::start(place, &format!("--shards {} {MEMORY}", urls(addresses)))
}

/// Returns the hits of a response, which must be complete.
pub(crate) fn hits(response: &Response) -> Value {
    assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
    response.json()["hits"].take()
}

/// Returns the properties of a shard of the rows of this module.
pub(crate) fn properties() -> Value {
    json!({"kind": "store", "rows": 5, "element": "f32", "dimensions": 4, "metric": "l2", "ids": "int64",
        "columns": []})
}

/// Starts a server that reports `properties` as `/v1/info`. It answers any other request with `answer` and closes the
/// connection, or keeps it open without an answer. It runs until the process ends.
#[expect(clippy::disallowed_methods, reason = "the server outlives the call")]
pub(crate) fn pretend(properties: &Value, answer: Option<&[u8]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (info, answer) = (properties.to_string().into_bytes(), answer.map(<[u8]>::to_vec));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (info, answer) = (info.clone(), answer.clone());
            std::thread::spawn(move || converse(stream, &info, answer.as_deref()));
        }
    });
    address
}

/// Answers the requests of a connection.
fn converse(mut stream: TcpStream, info: &[u8], answer: Option<&[u8]>) {
    while let Some(head) = read_request(&mut stream) {
        let is_info = head.starts_with("GET /v1/info ");
        let sent = match answer {
            _ if is_info => stream.write_all(&ok("application/json", info)),
            Some(answer) => {
                let _ = stream.write_all(answer);
                return;
            }
            None => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Returns a response with this body.
pub(crate) fn ok(kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Reads a request, and returns its head; `None` if the connection is closed.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    let head = String::from_utf8(head).ok()?.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; length]).ok()?;
    Some(head.replacen("get ", "GET ", 1))
}
