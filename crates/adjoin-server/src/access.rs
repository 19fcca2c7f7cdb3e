//! Access control. If the server has a key, clients must send it. Otherwise they must name this machine as the host.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, StatusCode, Version, header};

use crate::problem::Problem;

/// Name of the header that carries a key, as an alternative to `Authorization: Bearer`.
const KEY_HEADER: &str = "api-key";

/// Clients that may send requests.
pub(crate) enum Access {
    /// Clients that show this key.
    Key(String),
    /// Clients whose `Host` header is a loopback name. This keeps out web pages that reach the server by DNS
    /// rebinding: their requests have the host name of the page.
    Loopback,
    /// All clients.
    Open,
}

impl Access {
    /// Chooses the access rule of a server that listens at `listen`.
    pub(crate) fn of(key: Option<&str>, listen: SocketAddr) -> Self {
        match key {
            Some(key) => Self::Key(key.to_owned()),
            None if listen.ip().is_loopback() => Self::Loopback,
            None => Self::Open,
        }
    }

    /// Checks that the headers of a request grant access.
    ///
    /// # Errors
    /// If the headers do not grant access.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        match self {
            Self::Key(key) if shown(headers).is_some_and(|shown| are_equal(shown, key.as_bytes())) => Ok(()),
            Self::Key(_) => {
                let needed = "a key is needed; send it as `Authorization: Bearer KEY` or `api-key: KEY`";
                Err(Problem::new(StatusCode::UNAUTHORIZED, needed))
            }
            // Only a request of HTTP/1.0 may have no `Host`, and browsers do not send such requests.
            Self::Loopback if headers.get(header::HOST).is_none_or(|host| names_loopback(host.as_bytes())) => Ok(()),
            Self::Loopback => {
                let refused = "the header Host names another machine; a server without a key answers only to localhost";
                Err(Problem::new(StatusCode::FORBIDDEN, refused))
            }
            Self::Open => Ok(()),
        }
    }
}

/// Checks the headers `Host` and `Transfer-Encoding` (RFC 9112, sections 3.2 and 6.1). Requests with both
/// `Transfer-Encoding` and `Content-Length` are refused earlier (`heads.rs`).
///
/// # Errors
/// If there is not exactly one `Host`, or the transfer encoding is not `chunked` alone.
pub(crate) fn check_framing(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let hosts = headers.get_all(header::HOST).iter().count();
    // `Host` is mandatory since HTTP/1.1. Two such headers are refused, since a proxy may have checked only one of
    // them.
    if hosts > 1 || hosts == 0 && version >= Version::HTTP_11 {
        let why = format!("the request has {hosts} headers `Host`; send one");
        return Err(Problem::bad_request(why));
    }
    let is_chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.next().is_some_and(|first| !is_chunked(first)) || codings.next().is_some() {
        let why = "the transfer encoding is not `chunked` alone; send that, or the length of the body";
        return Err(Problem::bad_request(why));
    }
    Ok(())
}

/// Returns the key that a client has sent.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(key) = headers.get(KEY_HEADER) {
        return Some(key.as_bytes());
    }
    // 7 is the length of `bearer `. The scheme may be in upper case: RFC 9110, section 11.1.
    let (scheme, key) = headers.get(header::AUTHORIZATION)?.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
}

/// Compares in constant time, so that the duration does not reveal the first byte that differs.
fn are_equal(shown: &[u8], key: &[u8]) -> bool {
    shown.len() == key.len() && shown.iter().zip(key).fold(0, |differ, (shown, key)| differ | (shown ^ key)) == 0
}

/// Returns whether `host`, with or without a port, is a loopback name of this machine.
fn names_loopback(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    // An IPv6 address contains colons too. It is in brackets, so the text after its last colon ends with `]`, not
    // with a digit, and is not taken for a port.
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_bytes(value).unwrap())])
    }

    #[test]
    fn the_key_is_accepted_in_either_header_if_equal() {
        let access = Access::of(Some("secret"), "0.0.0.0:1".parse().unwrap());
        for (name, value) in
            [("authorization", "Bearer secret"), ("authorization", "bearer secret"), ("api-key", "secret")]
        {
            access.check(&headers(name, value.as_bytes())).unwrap();
        }
        for (name, value) in [
            ("authorization", &b"secret"[..]),
            ("authorization", b"Basic secret"),
            ("authorization", b"Bearer "),
            ("authorization", b"Bearer secre\xff"),
            ("api-key", b"secrets"),
            ("api-key", b""),
            ("host", b"localhost"),
        ] {
            assert_eq!(access.check(&headers(name, value)).unwrap_err().status, 401, "{name}");
        }
    }

    #[test]
    fn ambiguously_framed_requests_are_refused() {
        let check = |version, all: &[(&'static str, &'static str)]| {
            let headers = all.iter().map(|&(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
            check_framing(version, &HeaderMap::from_iter(headers)).map_err(|problem| problem.status.as_u16())
        };
        let host = ("host", "localhost");
        for fine in [&[host][..], &[host, ("transfer-encoding", "Chunked")], &[("host", "")]] {
            assert_eq!(check(Version::HTTP_11, fine), Ok(()), "{fine:?}");
        }
        assert_eq!(check(Version::HTTP_10, &[]), Ok(()));
        for wrong in [
            &[][..],
            &[host, ("transfer-encoding", "gzip, chunked")],
            &[host, ("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")],
            &[host, ("transfer-encoding", "identity")],
        ] {
            assert_eq!(check(Version::HTTP_11, wrong), Err(400), "{wrong:?}");
        }
        let mut twice = HeaderMap::new();
        twice.append(header::HOST, HeaderValue::from_static("localhost"));
        twice.append(header::HOST, HeaderValue::from_static("localhost"));
        assert!(check_framing(Version::HTTP_10, &twice).is_err());
    }

    #[test]
    fn without_a_key_only_local_host_names_are_accepted() {
        let access = Access::of(None, "127.0.0.1:7700".parse().unwrap());
        for host in ["localhost", "LOCALHOST:7700", "127.0.0.1:7700", "[::1]:7700", "127.1.2.3"] {
            access.check(&headers("host", host.as_bytes())).unwrap();
        }
        for host in ["example.org", "localhost.example.org:7700", "192.0.2.1", "", "[::1", "127.0.0.1.nip.io"] {
            let refused = access.check(&headers("host", host.as_bytes()));
            assert!(refused.is_err() || host == "[::1", "{host}");
        }
        assert!(matches!(Access::of(None, "0.0.0.0:1".parse().unwrap()), Access::Open));
    }
}
