//! Failures of requests, as problem details (RFC 9457) with the message of the engine.

use adjoin::{Argument, Error, ErrorKind, Mention};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Supported encodings of bodies, as in the header `Accept-Encoding`.
pub(crate) const ENCODINGS: &str = "gzip, zstd";

/// Media type of the body.
pub(crate) const KIND: &str = "application/problem+json";

/// A refusal or a failure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// One line that describes the problem and its remedy.
    pub(crate) detail: String,
    /// Seconds after which a retry makes sense.
    pub(crate) retry_after: Option<u64>,
}

/// Members of a problem document (RFC 9457). The type is `about:blank`, which means that the status identifies the
/// problem.
#[derive(Serialize)]
struct Details<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), retry_after: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// Returns the problem of a request that passed its deadline.
    pub(crate) fn late() -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "the deadline of the request passed before it was answered")
    }

    /// Returns the problem of a request that the server has no capacity for now.
    pub(crate) fn crowded(detail: impl Into<String>, retry_after: u64) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::TOO_MANY_REQUESTS, detail) }
    }

    /// Returns the problem of a request to a server that is shutting down.
    pub(crate) fn draining() -> Self {
        Self::unavailable("the server is shutting down; use another one")
    }

    /// Returns the problem of a request whose worker thread has ended.
    pub(crate) fn failed() -> Self {
        Self::unavailable("the thread that answers this has ended because of a bug in the server; restart the server")
    }

    /// Returns the problem of a request that the server cannot accept now.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// Returns the body of the response.
    pub(crate) fn body(&self) -> Vec<u8> {
        let Self { status, detail, .. } = self;
        let title = status.canonical_reason().unwrap_or_default();
        let details = Details { r#type: "about:blank", title, status: status.as_u16(), detail };
        serde_json::to_vec(&details).unwrap_or_default() // cannot fail for strings and a number
    }
}

/// Returns the name of an option as a member of requests, or as a flag if only the command line sets it.
fn as_member(Mention { argument, value }: &Mention) -> String {
    let name = argument.name();
    let (flag, member) = (format!("--{name}"), name.replace('-', "_"));
    match (argument, value) {
        // These options are flags of the command, not members of requests.
        (Argument::Memory | Argument::Threads, None) => flag,
        (Argument::Memory | Argument::Threads, Some(value)) => format!("{flag} {value}"),
        (_, None) => member,
        (_, Some(value)) if value.parse::<f64>().is_ok() => format!("{member} {value}"),
        (_, Some(value)) => format!("{member:?}: {value:?}"),
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Input | ErrorKind::Option => StatusCode::BAD_REQUEST,
            ErrorKind::Budget => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Late => StatusCode::GATEWAY_TIMEOUT,
            ErrorKind::Overloaded => return Self::crowded(error.spelled(as_member), 1),
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, error.spelled(as_member))
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, KIND)], self.body()).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // The header names the encodings that the client may use: RFC 9110, section 12.5.3.
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            response.headers_mut().insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ENCODINGS));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use adjoin::QueryTarget;

    use super::*;

    #[test]
    fn errors_spell_options_as_request_members() {
        let refused = QueryTarget::of(Some(0), None, None).unwrap_err();
        assert_eq!(Problem::from(&refused), Problem::bad_request("k 0 asks for nothing; give at least 1"));
        let refused = QueryTarget::of(None, None, None).unwrap_err();
        assert!(Problem::from(refused).detail.ends_with("either k, radius or min_similarity"));
        let memory = Mention { argument: Argument::Memory, value: Some("31MB".into()) };
        assert_eq!(as_member(&memory), "--memory 31MB");
    }

    #[test]
    fn problems_have_a_retry_after_header() {
        let response = Problem::crowded("too many wait", 2).into_response();
        assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"2".parse().unwrap()));
        assert_eq!(response.headers()["content-type"], "application/problem+json");
    }
}
