//! A server of objects for tests, with faults. It speaks as much of S3 as reading needs.

#![allow(clippy::disallowed_methods)] // its threads end with the process of the tests

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The key that the server accepts.
pub(crate) const KEY_ID: &str = "AKIDTESTONLY";
/// The only bucket.
pub(crate) const BUCKET: &str = "bucket";

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// With 503 and the code `SlowDown`.
    SlowDown,
    /// With 403, as for a key that has expired.
    Deny,
    /// With the first half of the body, before the connection is closed.
    Drop,
    /// With the head and one byte of the body, and nothing more.
    Stall,
}

/// A request, as the plan of faults sees it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    query: String,
    headers: BTreeMap<String, String>,
    /// Number of the request, from 0.
    pub(crate) number: usize,
    /// First byte and end of the range that is asked for.
    pub(crate) range: Option<(usize, usize)>,
}

type Faults = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

struct State {
    objects: BTreeMap<String, Vec<u8>>,
    versions: usize,
    requests: Vec<Request>,
    faults: Faults,
}

pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let faults: Faults = Box::new(|_| None);
        let state = State { objects: BTreeMap::new(), versions: 0, requests: Vec::new(), faults };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), shared.clone());
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn put(&self, key: &str, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap();
        state.versions += 1;
        state.objects.insert(key.to_owned(), bytes.to_owned());
    }

    pub(crate) fn set_faults(&self, faults: impl FnMut(&Request) -> Option<Fault> + Send + 'static) {
        self.state.lock().unwrap().faults = Box::new(faults);
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    /// Returns the variables with which clients reach it.
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![
            variable("AWS_ENDPOINT_URL", &self.url()),
            variable("AWS_ALLOW_HTTP", "true"),
            variable("AWS_ACCESS_KEY_ID", KEY_ID),
            variable("AWS_SECRET_ACCESS_KEY", "never-shown"),
            variable("AWS_REGION", "us-east-1"),
        ]
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

struct Answer {
    status: &'static str,
    headers: Vec<String>,
    body: Vec<u8>,
}

impl Answer {
    fn refused(status: &'static str, code: &str) -> Self {
        let body = format!(
            "<?xml version=\"1.0\"?>\n<Error><Code>{code}</Code><AWSAccessKeyId>{KEY_ID}</AWSAccessKeyId></Error>"
        );
        Self { status, headers: Vec::new(), body: body.into_bytes() }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut out = stream.try_clone().unwrap();
    let mut lines = BufReader::new(stream);
    while let Some(mut request) = read_request(&mut lines) {
        let (answer, fault) = {
            let mut state = state.lock().unwrap();
            request.number = state.requests.len();
            let fault = (state.faults)(&request);
            state.requests.push(request.clone());
            (state.answer(&request), fault)
        };
        let answer = match fault {
            Some(Fault::SlowDown) => Answer::refused("503 Slow Down", "SlowDown"),
            Some(Fault::Deny) => Answer::refused("403 Forbidden", "ExpiredToken"),
            _ => answer,
        };
        let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
        let has_length = answer.headers.iter().any(|line| line.starts_with("Content-Length"));
        let length = (!has_length).then(|| format!("Content-Length: {}", answer.body.len()));
        for line in answer.headers.iter().chain(length.iter()) {
            head += &format!("{line}\r\n");
        }
        let body = if request.method == "HEAD" { &[][..] } else { &answer.body };
        let sent = match fault {
            Some(Fault::Drop) => &body[..body.len() / 2],
            Some(Fault::Stall) => &body[..body.len().min(1)],
            _ => body,
        };
        let written = out.write_all(format!("{head}\r\n").as_bytes()).and_then(|()| out.write_all(sent));
        match fault {
            Some(Fault::Drop) => return out.shutdown(std::net::Shutdown::Both).unwrap_or(()),
            // Until the client gives up.
            Some(Fault::Stall) => return drop(lines.read(&mut [0])),
            _ if written.is_err() => return,
            _ => {}
        }
    }
}

fn read_request(lines: &mut impl BufRead) -> Option<Request> {
    let mut read_line = || {
        let mut line = String::new();
        lines.read_line(&mut line).ok().filter(|bytes| *bytes > 0).map(|_| line.trim_end().to_owned())
    };
    let first = read_line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = read_line()?.split_once(": ") {
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let range = headers.get("range").and_then(|range: &String| {
        let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
    });
    Some(Request { method, path: decoded(path), query: decoded(query), headers, number: 0, range })
}

fn decoded(text: &str) -> String {
    text.replace("%2F", "/").replace("%20", " ").replace("%3D", "=")
}

impl State {
    fn answer(&self, request: &Request) -> Answer {
        // Plain web requests are not signed.
        let signed = request.headers.get("authorization");
        if signed.is_some_and(|signed| !signed.contains(KEY_ID)) {
            return Answer::refused("403 Forbidden", "InvalidAccessKeyId");
        }
        let (bucket, key) = request.path[1..].split_once('/').unwrap_or((&request.path[1..], ""));
        if bucket != BUCKET {
            return Answer::refused("404 Not Found", "NoSuchBucket");
        }
        if request.query.contains("list-type=2") {
            return self.listing(request);
        }
        let Some(bytes) = self.objects.get(key) else { return Answer::refused("404 Not Found", "NoSuchKey") };
        let tag = format!("\"{}-{}\"", self.versions, bytes.len());
        if request.headers.get("if-match").is_some_and(|wanted| *wanted != tag) {
            return Answer::refused("412 Precondition Failed", "PreconditionFailed");
        }
        let mut headers = vec![format!("ETag: {tag}"), "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT".to_owned()];
        match request.range {
            Some((start, end)) if request.method == "GET" => {
                headers.push(format!("Content-Range: bytes {start}-{}/{}", end - 1, bytes.len()));
                Answer { status: "206 Partial Content", headers, body: bytes[start..end].to_vec() }
            }
            _ => {
                headers.push(format!("Content-Length: {}", bytes.len()));
                Answer { status: "200 OK", headers, body: bytes.clone() }
            }
        }
    }

    fn listing(&self, request: &Request) -> Answer {
        let parameter = |name: &str| {
            let all = request.query.split('&').filter_map(|pair| pair.split_once('='));
            all.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
        };
        let prefix = parameter("prefix").unwrap_or_default();
        // Two names a page, so that clients have to ask for more.
        let after = parameter("continuation-token").unwrap_or_default();
        let is_flat = parameter("delimiter").is_some();
        // A key, or the part of several keys up to the next slash after the prefix.
        let name_of = |key: &String| {
            let slash = key[prefix.len()..].find('/').filter(|_| is_flat);
            slash.map_or_else(|| key.clone(), |at| key[..=prefix.len() + at].to_owned())
        };
        let names: BTreeSet<String> = self
            .objects
            .keys()
            .filter(|key| key.starts_with(&prefix))
            .map(name_of)
            .filter(|name| *name > after)
            .collect();
        let mut body = String::from("<?xml version=\"1.0\"?><ListBucketResult>");
        for name in names.iter().take(2) {
            body += &match self.objects.get(name) {
                None => format!("<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
                Some(bytes) => format!(
                    "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>\
                     <Size>{}</Size></Contents>",
                    bytes.len()
                ),
            };
        }
        if let Some(last) = names.iter().nth(1).filter(|_| names.len() > 2) {
            body += &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{last}</NextContinuationToken>");
        }
        Answer { status: "200 OK", headers: Vec::new(), body: (body + "</ListBucketResult>").into_bytes() }
    }
}
