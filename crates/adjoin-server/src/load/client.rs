//! Minimal HTTP/1.1 client. It only sends requests and reads status codes, so that it uses little processor time.

use std::io::{BufRead, BufReader, Error as IoError, ErrorKind, Read, Write, copy, sink};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use adjoin::{Error, Result};

/// Time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum number of bytes of the head of an answer.
const HEAD_BYTES_MAX: u64 = 64 << 10;

/// Address of the requests.
pub(super) struct Target {
    address: SocketAddr,
    /// First lines of each request.
    head: String,
}

/// A connection that is reused until it is closed.
pub(super) struct Client<'a> {
    target: &'a Target,
    stream: Option<BufReader<TcpStream>>,
}

impl Target {
    /// Parses an address such as `http://127.0.0.1:7700/v1/search`.
    ///
    /// # Errors
    /// If the address has another form, or its host is unknown.
    pub(super) fn of(url: &str, key: Option<&str>) -> Result<Self> {
        let wrong = || {
            Error::option(format!(
                "{url} is not a valid address; write it like \
                                              http://127.0.0.1:7700/v1/search"
            ))
        };
        let rest = url.strip_prefix("http://").ok_or_else(wrong)?;
        let at = rest.find('/').ok_or_else(wrong)?;
        let (host, path) = rest.split_at(at);
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !is_plain(rest) || !key.is_none_or(is_plain) {
            return Err(wrong());
        }
        let named = if host.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) {
            host.to_owned()
        } else {
            format!("{host}:80")
        };
        let unknown = |error: IoError| {
            Error::device(format!(
                "{url}: {host} cannot be resolved: \
        {error}"
            ))
            .caused_by(error)
        };
        let address = named.to_socket_addrs().map_err(unknown)?.next().ok_or_else(wrong)?;
        let key = key.map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"));
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{key}content-type: application/json\r\n");
        Ok(Self { address, head })
    }

    /// Returns the bytes of a request with a body.
    pub(super) fn request(&self, body: &[u8]) -> Vec<u8> {
        let mut bytes = format!("{}content-length: {}\r\n\r\n", self.head, body.len()).into_bytes();
        bytes.extend_from_slice(body);
        bytes
    }
}

impl<'a> Client<'a> {
    /// Creates a client that is not connected yet.
    pub(super) fn none(target: &'a Target) -> Self {
        Self { target, stream: None }
    }

    /// Creates a client and connects it.
    ///
    /// # Errors
    /// If no server listens.
    pub(super) fn connect(target: &'a Target) -> Result<Self> {
        let mut client = Self::none(target);
        let refused = |error: IoError| Error::device(format!("{}: {error}", target.address)).caused_by(error);
        client.stream = Some(client.connected().map_err(refused)?);
        Ok(client)
    }

    fn connected(&self) -> std::io::Result<BufReader<TcpStream>> {
        let stream = TcpStream::connect_timeout(&self.target.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(stream))
    }

    /// Sends a request, reads the answer and returns its status. Opens a new connection if the server has closed the
    /// old one, which it may do at any time.
    pub(super) fn ask(&mut self, request: &[u8]) -> std::io::Result<u16> {
        let (mut stream, is_old) = match self.stream.take() {
            Some(stream) => (stream, true),
            None => (self.connected()?, false),
        };
        let mut asked = exchange(&mut stream, request);
        // If a reused connection fails, the server may have closed it while it was idle, so a new connection is tried
        // once.
        if asked.is_err() && is_old {
            stream = self.connected()?;
            asked = exchange(&mut stream, request);
        }
        let (status, stays) = asked?;
        self.stream = stays.then_some(stream);
        Ok(status)
    }
}

/// Sends a request. Returns the status of the answer, and whether the connection can be reused.
fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> std::io::Result<(u16, bool)> {
    stream.get_mut().write_all(request)?;
    answer(stream)
}

fn answer(from: &mut impl BufRead) -> std::io::Result<(u16, bool)> {
    let broken = |why: &str| IoError::new(ErrorKind::InvalidData, why.to_owned());
    let (mut status, mut length, mut stays) = (None, None, true);
    // A server that sends an endless head must not fill the memory of the client.
    let mut head = Read::take(&mut *from, HEAD_BYTES_MAX);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line)? == 0 {
            return Err(IoError::new(ErrorKind::UnexpectedEof, "the connection was closed before the answer"));
        }
        let line = line.trim_end().to_ascii_lowercase();
        if status.is_none() {
            let code = line.split(' ').nth(1).and_then(|code| code.parse().ok());
            status = Some(code.ok_or_else(|| broken("the answer has no status"))?);
        } else if line.is_empty() {
            break;
        } else if let Some(bytes) = line.strip_prefix("content-length:") {
            length = Some(bytes.trim().parse().map_err(|_| broken("the answer has no length"))?);
        } else if line.strip_prefix("connection:").is_some_and(|said| said.trim() == "close") {
            stays = false;
        }
    }
    let length: u64 = length.ok_or_else(|| broken("the answer has no length"))?;
    // The body must be read to its end before the connection can be used for the next request.
    if copy(&mut from.take(length), &mut sink())? < length {
        return Err(IoError::new(ErrorKind::UnexpectedEof, "the answer is incomplete"));
    }
    Ok((status.unwrap_or_default(), stays))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_to_their_end() {
        let mut bytes = &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 503 X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"[..];
        assert_eq!(answer(&mut bytes).unwrap(), (200, true));
        assert_eq!(answer(&mut bytes).unwrap(), (503, false));
        for text in
            ["", "HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"]
        {
            assert!(answer(&mut text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_host_and_a_path() {
        let target = Target::of("http://127.0.0.1:7700/v1/search", Some("secret")).unwrap();
        let text = String::from_utf8(target.request(b"{}")).unwrap();
        assert!(
            text.starts_with("POST /v1/search HTTP/1.1\r\nhost: 127.0.0.1:7700\r\nauthorization: Bearer secret\r\n")
        );
        assert!(text.ends_with("content-length: 2\r\n\r\n{}"));
        for url in ["127.0.0.1:7700/x", "https://127.0.0.1/x", "http://127.0.0.1:7700", "http:///x", "http://a b/x"] {
            assert!(Target::of(url, None).is_err(), "{url}");
        }
    }
}
