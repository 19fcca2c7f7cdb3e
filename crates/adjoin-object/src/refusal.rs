//! Error messages about object stores.

use std::error::Error as _;
use std::io;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// Address of the service that gives credentials to programs on a cloud machine.
const METADATA_SERVICE: &str = "169.254.169.254";

/// Returns the error of a request to a store of this scheme, with a remedy. The text of the library is not quoted: it
/// has several lines, and the server's answer in it may repeat the key of the user.
pub(crate) fn refusal(scheme: &str, error: &Error) -> io::Error {
    let text = error.to_string();
    let (status, code) = (status_of(&text), code_of(&text));
    let is = |kind: io::ErrorKind, why: String| io::Error::new(kind, why);
    match (error, status) {
        // For a missing bucket, a listing returns a general error, which is recognized by its status.
        (Error::NotFound { .. }, _) | (_, Some("404")) => match code {
            Some("NoSuchBucket" | "ContainerNotFound") => {
                is(io::ErrorKind::NotFound, "there is no such bucket; check its name and the endpoint".into())
            }
            _ => is(io::ErrorKind::NotFound, "there is no such object; check the path".into()),
        },
        (Error::PermissionDenied { .. } | Error::Unauthenticated { .. }, _) | (_, Some("401" | "403"))
            if !text.contains(METADATA_SERVICE) =>
        {
            let why = format!("access is denied ({}); {}", answer(status.unwrap_or("403"), code), credentials(scheme));
            is(io::ErrorKind::PermissionDenied, why)
        }
        (Error::Precondition { .. }, _) => changed(),
        (Error::AlreadyExists { .. }, _) => is(io::ErrorKind::AlreadyExists, "it already exists".into()),
        _ if text.contains(METADATA_SERVICE) => {
            is(io::ErrorKind::PermissionDenied, format!("there are no credentials; {}", credentials(scheme)))
        }
        _ if text.contains("Received redirect without LOCATION") => {
            io::Error::other("the bucket is in another region; set AWS_REGION to it")
        }
        (_, Some(status)) => {
            let is_busy = status.starts_with('5') || status == "429";
            let remedy = if is_busy { "run again later" } else { "check the URL and the endpoint" };
            io::Error::other(format!("the store answers {}, even after retries; {remedy}", answer(status, code)))
        }
        (_, None) => broken(error),
    }
}

/// Returns the error of an object that has changed since it was opened.
pub(crate) fn changed() -> io::Error {
    let why = "it has changed since it was opened; run again when nothing writes to it";
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, why)
}

/// Returns the error for a request that got no answer, or for a store that cannot be set up.
fn broken(error: &Error) -> io::Error {
    let mut next: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(cause) = next {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return match http.kind() {
                HttpErrorKind::Connect => {
                    io::Error::new(io::ErrorKind::NotConnected, "no connection; check the network and the endpoint")
                }
                HttpErrorKind::Timeout => io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the store is too slow, even after retries; run again later",
                ),
                _ => io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the connection is lost, even after retries; check the network",
                ),
            };
        }
        next = cause.source();
    }
    match error {
        Error::Generic { .. } => io::Error::other("the store gives no usable answer; check the URL and the endpoint"),
        _ => io::Error::new(io::ErrorKind::Unsupported, "the store does not support this"),
    }
}

fn credentials(scheme: &str) -> &'static str {
    match scheme {
        "s3" => "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set AWS_SKIP_SIGNATURE=true for a public bucket",
        "gs" => "check GOOGLE_APPLICATION_CREDENTIALS, or set GOOGLE_SKIP_SIGNATURE=true for a public bucket",
        "az" => "check AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        _ => "name a file that is public",
    }
}

fn answer(status: &str, code: Option<&str>) -> String {
    code.map_or_else(|| status.to_owned(), |code| format!("{status} {code}"))
}

/// Returns the error code in the server's answer, if it consists of letters only.
fn code_of(text: &str) -> Option<&str> {
    let code = text.split_once("<Code>")?.1.split_once("</Code>")?.0;
    (code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphabetic())).then_some(code)
}

fn status_of(text: &str) -> Option<&str> {
    let status = text.split_once("status code: ")?.1.get(..3)?;
    status.bytes().all(|byte| byte.is_ascii_digit()).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_servers_are_named_and_not_quoted() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <?xml?>\n<Error><Code>InvalidAccessKeyId</Code>\
                    <AWSAccessKeyId>AKIASECRET</AWSAccessKeyId></Error>";
        let error = Error::PermissionDenied { path: "a".into(), source: body.into() };
        let refused = refusal("s3", &error);
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let said = refused.to_string();
        assert!(said.starts_with("access is denied (403 InvalidAccessKeyId); check AWS_"), "{said}");
        assert!(!said.contains("AKIASECRET") && !said.contains('\n'), "{said}");
        let error = Error::Generic { store: "S3", source: "status code: 503: <Code>SlowDown</Code>".into() };
        let said = refusal("s3", &error).to_string();
        assert_eq!(said, "the store answers 503 SlowDown, even after retries; run again later");
        let listing = Error::Generic { store: "S3", source: "status code: 404: <Code>NoSuchBucket</Code>".into() };
        let refused = refusal("s3", &listing);
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert_eq!(refused.to_string(), "there is no such bucket; check its name and the endpoint");
        let alone = "PUT http://169.254.169.254/latest/api/token: status code: 403 Forbidden";
        let said = refusal("s3", &Error::Generic { store: "S3", source: alone.into() }).to_string();
        assert!(said.starts_with("there are no credentials; check AWS_"), "{said}");
        let error = Error::Generic { store: "S3", source: "<Code>a b</Code>".into() };
        assert!(!refusal("s3", &error).to_string().contains("a b"));
    }
}
