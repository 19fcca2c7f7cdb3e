//! Failures of shards, and the problem that a client gets for them.

use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use crate::answer::ShardFailure;
use crate::problem::Problem;

/// Maximum number of characters of a shard's own message.
const DETAIL_CHARS_MAX: usize = 400;

/// Statuses of failed shards, the one that a client must know first: what it may not repeat, then what it may.
const PRECEDENCE: [StatusCode; 5] = [
    StatusCode::INSUFFICIENT_STORAGE,
    StatusCode::BAD_GATEWAY,
    StatusCode::SERVICE_UNAVAILABLE,
    StatusCode::GATEWAY_TIMEOUT,
    StatusCode::TOO_MANY_REQUESTS,
];

/// Failure of a request to one shard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Failure {
    /// The shard does not answer, or not as it should. Answers of other shards may be used without it.
    Shard(Problem),
    /// The request is invalid, or the coordinator lacks memory: answers of other shards do not help.
    Request(Problem),
}

impl Failure {
    /// Returns the failure of a shard that cannot be reached, or shuts down.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::Shard(Problem::unavailable(detail))
    }

    /// Returns the failure of a shard that answers otherwise than a server of adjoin.
    pub(crate) fn unreadable(detail: impl Into<String>) -> Self {
        Self::Shard(Problem::new(StatusCode::BAD_GATEWAY, detail))
    }

    /// Returns the failure of a shard that did not answer in time.
    pub(crate) fn late() -> Self {
        Self::Shard(Problem::new(StatusCode::GATEWAY_TIMEOUT, "no answer before the deadline of the request"))
    }

    /// Returns the failure for an answer of the shard at `url` with another status than 200.
    pub(crate) fn of_status(url: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Details {
            detail: String,
        }
        let detail = serde_json::from_slice::<Details>(body).map(|details| details.detail).unwrap_or_default();
        let detail: String = detail.chars().take(DETAIL_CHARS_MAX).flat_map(char::escape_debug).collect();
        let retry_after = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        match status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
                Self::Request(Problem::new(status, format!("{url}: {detail}")))
            }
            StatusCode::UNAUTHORIZED => Self::unreadable(
                "it needs a key, or another one; set ADJOIN_SHARD_KEY or --shard-key-file of the coordinator",
            ),
            _ if PRECEDENCE.contains(&status) => Self::Shard(Problem { status, detail, retry_after }),
            _ => Self::unreadable(format!("it answered with status {}: {detail}", status.as_u16())),
        }
    }

    /// Returns the problem.
    pub(crate) fn problem(&self) -> &Problem {
        match self {
            Self::Shard(problem) | Self::Request(problem) => problem,
        }
    }
}

/// Failed shards of a request.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<(String, Problem)>);

impl Failures {
    pub(crate) fn push(&mut self, url: &str, problem: Problem) {
        self.0.push((url.to_owned(), problem));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the failures as an answer names them, ordered by shard.
    pub(crate) fn reported(&self) -> Vec<ShardFailure> {
        let mut all: Vec<_> = self.0.iter().map(|(shard, problem)| reported(shard, problem)).collect();
        all.sort_by(|one, other| one.shard.cmp(&other.shard));
        all
    }

    /// Returns the problem of a request to `total` shards that fails because of these. `may_be_partial` tells whether
    /// the client accepts partial answers already.
    pub(crate) fn problem(&self, total: usize, may_be_partial: bool) -> Problem {
        let status = PRECEDENCE.into_iter().find(|status| self.0.iter().any(|(_, problem)| problem.status == *status));
        let all: Vec<String> =
            self.reported().iter().map(|ShardFailure { shard, detail, .. }| format!("{shard}: {detail}")).collect();
        let remedy = if may_be_partial || self.len() == total {
            ""
        } else {
            "; repair them, or set partial to true for the hits of the others"
        };
        let detail = format!("{} of {total} shards failed: {}{remedy}", self.len(), all.join("; "));
        let retry_after = self.0.iter().filter_map(|(_, problem)| problem.retry_after).max();
        Problem { retry_after, ..Problem::new(status.unwrap_or(StatusCode::BAD_GATEWAY), detail) }
    }
}

fn reported(shard: &str, problem: &Problem) -> ShardFailure {
    ShardFailure { shard: shard.to_owned(), status: problem.status.as_u16(), detail: problem.detail.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_problem_names_all_failed_shards_and_the_gravest_status() {
        let mut failures = Failures::default();
        failures.push("http://b", Failure::late().problem().clone());
        failures.push("http://a", Failure::unreadable("garbage").problem().clone());
        let problem = failures.problem(3, false);
        assert_eq!(problem.status, StatusCode::BAD_GATEWAY);
        assert!(problem.detail.starts_with("2 of 3 shards failed: http://a: garbage; http://b: "), "{problem:?}");
        assert!(problem.detail.contains("set partial to true"));
        assert!(!failures.problem(3, true).detail.contains("partial") && failures.reported().len() == 2);
    }

    #[test]
    fn statuses_of_shards_distinguish_faults_of_the_request() {
        let of = |status: u16, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            Failure::of_status("http://a", status, &HeaderMap::new(), body.as_bytes())
        };
        let refused = of(400, r#"{"detail": "no column b"}"#);
        assert_eq!(refused, Failure::Request(Problem::bad_request("http://a: no column b")));
        for (status, seen) in [(401, 502), (404, 502), (429, 429), (500, 502), (503, 503), (504, 504), (507, 507)] {
            let failure = of(status, "<html>");
            assert!(matches!(failure, Failure::Shard(_)) && failure.problem().status == seen, "{status}: {failure:?}");
        }
        assert!(!of(401, r#"{"detail": "x"}"#).problem().detail.contains('x'));
        let long = of(500, &format!(r#"{{"detail": "{}"}}"#, "a\\u0001".repeat(10_000)));
        assert!(long.problem().detail.len() < 10 * DETAIL_CHARS_MAX);
    }
}
