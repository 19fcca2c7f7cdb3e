//! A server of objects for tests, with faults. It speaks as much of S3 as reading and writing whole objects needs.

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
    /// As if another writer had replaced the object just before.
    Replace,
    /// As always, and then another writer replaces the object.
    ReplaceAfter,
}

/// A request, as the plan of faults sees it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    /// Number of the request, from 0.
    pub(crate) number: usize,
    /// First byte and end of the range that is asked for.
    pub(crate) range: Option<(usize, usize)>,
}

type Faults = Box<dyn FnMut(&Request) -> Option<Fault> + Send>;

struct Object {
    version: usize,
    bytes: Vec<u8>,
}

struct State {
    objects: BTreeMap<String, Object>,
    versions: usize,
    /// Parts of unfinished objects by their numbers, by the id of the upload.
    uploads: BTreeMap<String, BTreeMap<usize, Vec<u8>>>,
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
        let (objects, uploads) = (BTreeMap::new(), BTreeMap::new());
        let state = State { objects, versions: 0, uploads, requests: Vec::new(), faults };
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
        self.state.lock().unwrap().put(key, bytes.to_owned());
    }

    /// Returns the bytes of all objects, by their keys.
    pub(crate) fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.lock().unwrap();
        state.objects.iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
    }

    /// Returns the number of objects that were begun and neither completed nor given up.
    pub(crate) fn unfinished(&self) -> usize {
        self.state.lock().unwrap().uploads.len()
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

impl Object {
    fn tag(&self) -> String {
        format!("\"{}-{}\"", self.version, self.bytes.len())
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
            state.requests.push(Request { body: Vec::new(), ..request.clone() });
            // A refused request writes nothing.
            let is_refused = matches!(fault, Some(Fault::SlowDown | Fault::Deny));
            if fault == Some(Fault::Replace) {
                state.replace(&request);
            }
            let answer = if is_refused { Answer::refused("", "") } else { state.answer(&request) };
            if fault == Some(Fault::ReplaceAfter) {
                state.replace(&request);
            }
            (answer, fault)
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
    let length = headers.get("content-length").map_or(0, |length: &String| length.parse().unwrap());
    let mut body = vec![0; length];
    lines.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let range = headers.get("range").and_then(|range: &String| {
        let (start, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((start.parse().ok()?, last.parse::<usize>().ok()? + 1))
    });
    Some(Request { method, path: decoded(path), query: decoded(query), headers, body, number: 0, range })
}

fn decoded(text: &str) -> String {
    text.replace("%2F", "/").replace("%20", " ").replace("%3D", "=")
}

impl Request {
    fn parameter(&self, name: &str) -> Option<String> {
        let all = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        all.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
    }
}

impl State {
    fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        self.versions += 1;
        let object = Object { version: self.versions, bytes };
        let tag = object.tag();
        self.objects.insert(key.to_owned(), object);
        tag
    }

    /// Gives an object another version with the same bytes.
    fn replace(&mut self, request: &Request) {
        let key = request.path.splitn(3, '/').nth(2).unwrap();
        let bytes = self.objects[key].bytes.clone();
        self.put(key, bytes);
    }

    /// Answers a request that writes.
    fn written(&mut self, request: &Request, key: &str) -> Answer {
        let ok = |headers: Vec<String>, body: String| Answer { status: "200 OK", headers, body: body.into_bytes() };
        let xml = |text: &str| format!("<?xml version=\"1.0\"?>{text}");
        let upload = request.parameter("uploadId");
        match (&*request.method, upload) {
            ("POST", None) => {
                self.versions += 1;
                let id = format!("upload-{}", self.versions);
                self.uploads.insert(id.clone(), BTreeMap::new());
                let started =
                    format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>");
                ok(Vec::new(), xml(&started))
            }
            ("DELETE", None) => {
                self.objects.remove(key);
                Answer { status: "204 No Content", headers: Vec::new(), body: Vec::new() }
            }
            (_, None) => {
                if request.headers.contains_key("if-none-match") && self.objects.contains_key(key) {
                    return Answer::refused("412 Precondition Failed", "PreconditionFailed");
                }
                let tag = self.put(key, request.body.clone());
                ok(vec![format!("ETag: {tag}")], String::new())
            }
            (_, Some(id)) if !self.uploads.contains_key(&id) => Answer::refused("404 Not Found", "NoSuchUpload"),
            ("PUT", Some(id)) => {
                let number = request.parameter("partNumber").unwrap().parse().unwrap();
                self.uploads.get_mut(&id).unwrap().insert(number, request.body.clone());
                ok(vec![format!("ETag: \"{id}-{number}\"")], String::new())
            }
            ("DELETE", Some(id)) => {
                self.uploads.remove(&id);
                Answer { status: "204 No Content", headers: Vec::new(), body: Vec::new() }
            }
            (_, Some(id)) => {
                let parts = self.uploads.remove(&id).unwrap();
                let lengths: Vec<usize> = parts.values().map(Vec::len).collect();
                // As a store refuses them: short parts before the last, and parts of different lengths.
                let (last, others) = lengths.split_last().unwrap();
                if others.iter().any(|len| *len < 5 << 20 || len != &others[0] || last > len) {
                    return Answer::refused("400 Bad Request", "EntityTooSmall");
                }
                let tag = self.put(key, parts.into_values().flatten().collect());
                let done = format!("<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>");
                ok(Vec::new(), xml(&done))
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Answer {
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
        if !["GET", "HEAD"].contains(&&*request.method) {
            return self.written(request, key);
        }
        let Some(object) = self.objects.get(key) else { return Answer::refused("404 Not Found", "NoSuchKey") };
        let (tag, bytes) = (object.tag(), &object.bytes);
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
        let prefix = request.parameter("prefix").unwrap_or_default();
        // Two names a page, so that clients have to ask for more.
        let after = request.parameter("continuation-token").unwrap_or_default();
        let is_flat = request.parameter("delimiter").is_some();
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
                Some(Object { bytes, .. }) => format!(
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
