//! A running server, and clients that send raw bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::place::Place;

/// Time limit for bytes that never arrive. It is so long that it is not reached on a slow machine.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// A running server. It is killed when this is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the detail of the response. The response must be a problem with this status.
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let problem = self.json();
        assert_eq!(problem["status"], status);
        problem["detail"].as_str().unwrap().to_owned()
    }
}

impl Serving {
    /// Starts `adjoin serve` with these arguments on a free port, and waits until it listens.
    pub(crate) fn start(place: &Place, arguments: &str) -> Self {
        Self::start_at(place, "127.0.0.1:0", arguments, &[])
    }

    /// Starts `adjoin serve` with these arguments and environment variables at an address.
    pub(crate) fn start_at(place: &Place, listen: &str, arguments: &str, variables: &[(&str, &str)]) -> Self {
        let words = format!("serve --listen {listen} {arguments}");
        let words: Vec<&str> = words.split(' ').collect();
        let mut command = place.command(&words);
        command.envs(variables.iter().copied());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.trim().strip_prefix("http://") else {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{arguments}: it does not listen: {said}");
        };
        Self { address: address.parse().unwrap(), child }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request on a new connection, and returns the response.
    pub(crate) fn ask(&self, head: &str, body: &[u8]) -> Response {
        self.ask_under("localhost", head, body)
    }

    /// Sends a request with `host` as the name of the server, and returns the response.
    pub(crate) fn ask_under(&self, host: &str, head: &str, body: &[u8]) -> Response {
        let mut stream = self.connect();
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let headers: String = headers.lines().map(|header| format!("{header}\r\n")).collect();
        let length = body.len();
        let text = format!(
            "{line} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        let _ = stream.write_all(body); // fails if the server refuses before it has read the whole body
        response(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask(&format!("GET {path}"), b"")
    }

    /// Sends a POST request with a JSON body.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.ask(&format!("POST {path}\ncontent-type: application/json"), body.to_string().as_bytes())
    }

    /// Returns the value of a metric in `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.get("/metrics").body).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Sends SIGTERM to the server.
    pub(crate) fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    /// Ends the server and waits for it. Returns its exit code and messages.
    pub(crate) fn end(self) -> (Option<i32>, String) {
        self.terminate();
        self.wait()
    }

    /// Waits until a server that shuts down has ended. Returns its exit code and messages.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill(); // fails if it has ended
        let _ = self.child.wait();
    }
}

/// Reads from a connection until the server closes it. Returns the response.
pub(crate) fn response(mut stream: TcpStream) -> Response {
    let mut bytes = Vec::new();
    let ended = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let end = text.find("\r\n\r\n").unwrap_or_else(|| panic!("no response, {ended:?}: {text}"));
    let head = text[..end].to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head, body: bytes[end + 4..].to_vec() }
}
