//! A shard: its properties, its availability, and requests to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use adjoin::{Choice, IdKind, Metric, Result, VectorType, device::MemoryBudget};
use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::link::{ExchangeError, Link, Reply, Sender, ShardAddress, ShardRequest};
use crate::problem::Problem;

/// Time limit to connect to a shard and read its properties.
const PROBE_TIME: Duration = Duration::from_secs(5);
/// Maximum size of the properties of a shard.
const INFO_BYTES_MAX: u64 = 1 << 20;

/// Column of the rows of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnFacts {
    pub(crate) name: String,
    pub(crate) r#type: serde_json::Value,
}

/// Properties of a shard, as `/v1/info` reports them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ShardFacts {
    pub(crate) kind: String,
    pub(crate) rows: u64,
    #[serde(flatten)]
    pub(crate) vectors: VectorType,
    pub(crate) metric: Metric,
    pub(crate) ids: IdKind,
    #[serde(default)]
    pub(crate) columns: Vec<ColumnFacts>,
}

/// Properties in which all shards agree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommonFacts {
    pub(crate) vectors: VectorType,
    pub(crate) metric: Metric,
    pub(crate) ids: IdKind,
    /// Address of the shard that they are from.
    pub(crate) from: String,
}

impl CommonFacts {
    pub(crate) fn of(from: &str, facts: &ShardFacts) -> Self {
        let ShardFacts { vectors, metric, ids, .. } = *facts;
        Self { vectors, metric, ids, from: from.to_owned() }
    }

    /// Checks the properties of another shard.
    ///
    /// # Errors
    /// If its hits cannot be merged with the hits of other shards: returns the reason, without the shard's address.
    pub(crate) fn check(&self, facts: &ShardFacts) -> std::result::Result<(), String> {
        if facts.ids == IdKind::None {
            return Err("its rows have no ids, so hits of different shards could not be distinguished; build it with \
                        --id-column"
                .into());
        }
        let pairs = [
            ("dimensions", facts.vectors.dimensions.to_string(), self.vectors.dimensions.to_string()),
            ("the metric", facts.metric.name().to_owned(), self.metric.name().to_owned()),
            ("elements of type", facts.vectors.element.name().to_owned(), self.vectors.element.name().to_owned()),
            ("ids of kind", facts.ids.name().to_owned(), self.ids.name().to_owned()),
        ];
        match pairs.into_iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((what, found, expected)) => Err(format!(
                "it has {what} {found}, but {} has {expected}; serve shards that agree in these",
                self.from
            )),
        }
    }
}

/// Availability of a shard.
#[derive(Default)]
struct State {
    /// Properties when it was last available.
    facts: Option<ShardFacts>,
    /// Why it is not available.
    down: Option<Problem>,
}

/// Requests by outcome.
#[derive(Default)]
pub(crate) struct OutcomeCounts {
    pub(crate) answered: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// A server with some of the rows.
pub(crate) struct Shard {
    link: Link,
    state: Mutex<State>,
    pub(crate) counts: OutcomeCounts,
}

impl Shard {
    /// Creates a shard that has not been asked yet.
    ///
    /// # Errors
    /// If the key cannot be sent.
    pub(crate) fn new(address: ShardAddress, key: Option<&str>) -> Result<Self> {
        Ok(Self { link: Link::new(address, key)?, state: Mutex::default(), counts: OutcomeCounts::default() })
    }

    pub(crate) fn url(&self) -> &str {
        &self.link.address.url
    }

    /// Returns the properties when the shard was last available.
    pub(crate) fn facts(&self) -> Option<ShardFacts> {
        self.lock().facts.clone()
    }

    /// Returns why the shard is not available, if it is not.
    pub(crate) fn down(&self) -> Option<Problem> {
        self.lock().down.clone()
    }

    /// Reads the properties of the shard on a new or an idle connection, and records whether it is available.
    ///
    /// # Errors
    /// If it does not answer, or disagrees with `common`.
    pub(crate) async fn probe(
        &self,
        common: &OnceLock<CommonFacts>,
        clients: &MemoryBudget,
    ) -> std::result::Result<ShardFacts, Failure> {
        let probed = tokio::time::timeout(PROBE_TIME, async {
            if let Some(mut sender) = self.link.take_idle() {
                match self.link.exchange(&mut sender, &info_request(), clients).await {
                    Err(ExchangeError::Lost(_)) => self.link.close_idle(),
                    Err(ExchangeError::Failed(failure)) => return Err(failure),
                    Ok(reply) => {
                        let facts = self.facts_of(&reply, common)?;
                        self.link.keep(sender);
                        return Ok(facts);
                    }
                }
            }
            let (sender, facts) = self.connect(common, clients).await?;
            self.link.keep(sender);
            Ok(facts)
        });
        let late = |_| Failure::unavailable(format!("/v1/info was not answered in {} s", PROBE_TIME.as_secs()));
        let probed = probed.await.unwrap_or_else(|elapsed| Err(late(elapsed)));
        match &probed {
            Ok(facts) => self.record(Ok(facts.clone())),
            Err(Failure::Shard(problem)) => self.record(Err(problem.clone())),
            Err(Failure::Request(_)) => {} // the coordinator lacks memory, which says nothing about the shard
        }
        probed
    }

    /// Sends a request to the shard. New connections are used only if the server at their end agrees with `common`,
    /// since another server may have been started at the address.
    ///
    /// # Errors
    /// If the shard is not available, or answers with another status than 200.
    pub(crate) async fn ask(
        &self,
        request: &ShardRequest,
        common: &OnceLock<CommonFacts>,
        clients: &MemoryBudget,
    ) -> std::result::Result<Reply, Failure> {
        // The probe finds out when the shard is available again, so that requests need not wait for its connection.
        if let Some(problem) = self.down() {
            return Err(Failure::Shard(problem));
        }
        if let Some(mut sender) = self.link.take_idle() {
            match self.link.exchange(&mut sender, request, clients).await {
                Err(ExchangeError::Lost(_)) => self.link.close_idle(),
                Err(ExchangeError::Failed(failure)) => return Err(failure),
                Ok(reply) => {
                    self.link.keep(sender);
                    return self.accepted(reply);
                }
            }
        }
        let mut sender = match self.connect(common, clients).await {
            Ok((sender, _)) => sender,
            Err(failure) => {
                if let Failure::Shard(problem) = &failure {
                    self.record(Err(problem.clone()));
                }
                return Err(failure);
            }
        };
        let reply = self.link.exchange(&mut sender, request, clients).await.map_err(failure_of)?;
        self.link.keep(sender);
        self.accepted(reply)
    }

    /// Opens a connection, and reads the properties of the server at its end.
    async fn connect(
        &self,
        common: &OnceLock<CommonFacts>,
        clients: &MemoryBudget,
    ) -> std::result::Result<(Sender, ShardFacts), Failure> {
        let mut sender = self.link.connect().await?;
        let reply = self.link.exchange(&mut sender, &info_request(), clients).await.map_err(failure_of)?;
        Ok((sender, self.facts_of(&reply, common)?))
    }

    fn accepted(&self, reply: Reply) -> std::result::Result<Reply, Failure> {
        match reply.status {
            StatusCode::OK => Ok(reply),
            status => Err(Failure::of_status(self.url(), status, &reply.headers, &reply.body.bytes)),
        }
    }

    fn facts_of(&self, reply: &Reply, common: &OnceLock<CommonFacts>) -> std::result::Result<ShardFacts, Failure> {
        if reply.status != StatusCode::OK {
            return Err(match Failure::of_status(self.url(), reply.status, &reply.headers, &reply.body.bytes) {
                Failure::Request(problem) => Failure::unreadable(problem.detail),
                failure => failure,
            });
        }
        let unreadable = |_| Failure::unreadable("it does not answer /v1/info as a server of adjoin");
        let facts: ShardFacts = serde_json::from_slice(&reply.body.bytes).map_err(unreadable)?;
        let checked = common.get().map_or(Ok(()), |common| common.check(&facts));
        checked.map(|()| facts).map_err(Failure::unreadable)
    }

    /// Records whether the shard is available, and logs a change.
    fn record(&self, found: std::result::Result<ShardFacts, Problem>) {
        let mut state = self.lock();
        // The first outcome is reported by the start of the server, which it may end.
        let is_first = state.facts.is_none() && state.down.is_none();
        match found {
            Ok(facts) => {
                state.facts = Some(facts);
                if state.down.take().is_some() {
                    tracing::info!("{} is available", self.url());
                }
            }
            Err(problem) => {
                if !is_first && state.down.as_ref().is_none_or(|before| before.detail != problem.detail) {
                    tracing::warn!("{} is not available: {}", self.url(), problem.detail);
                }
                state.down = Some(problem);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutcomeCounts {
    /// Counts the outcome of a request; `None` if it was answered.
    pub(crate) fn add(&self, failure: Option<&Failure>) {
        let count = match failure.map(|failure| failure.problem().status) {
            None => &self.answered,
            Some(StatusCode::GATEWAY_TIMEOUT) => &self.late,
            Some(_) => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

fn failure_of(error: ExchangeError) -> Failure {
    match error {
        ExchangeError::Failed(failure) => failure,
        ExchangeError::Lost(error) if error.is_parse() => Failure::unreadable("it does not answer in HTTP"),
        ExchangeError::Lost(error) => Failure::unavailable(format!("the connection was lost: {error}")),
    }
}

fn info_request() -> ShardRequest {
    ShardRequest {
        method: Method::GET,
        path: "/v1/info".into(),
        content_type: None,
        accept: None,
        answer_bytes_max: INFO_BYTES_MAX,
        answered_bytes: Arc::default(),
        body: Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use adjoin::Element;

    use super::*;

    fn facts() -> ShardFacts {
        let text = r#"{"kind": "store", "rows": 7, "element": "f32", "dimensions": 2, "metric": "l2", "ids": "int64",
                       "buckets": 3, "columns": [{"name": "year", "type": "int64"}], "limits": {}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn shards_must_agree_in_all_that_merging_needs() {
        let common = CommonFacts::of("http://a", &facts());
        assert_eq!(common.check(&ShardFacts { rows: 9, kind: "index".into(), columns: Vec::new(), ..facts() }), Ok(()));
        let vectors = facts().vectors;
        for (other, words) in [
            (ShardFacts { vectors: VectorType { dimensions: 3, ..vectors }, ..facts() }, "dimensions 3"),
            (ShardFacts { vectors: VectorType { element: Element::U8, ..vectors }, ..facts() }, "elements of type u8"),
            (ShardFacts { metric: Metric::Cosine, ..facts() }, "the metric cosine, but http://a has l2"),
            (ShardFacts { ids: IdKind::Utf8, ..facts() }, "ids of kind text"),
            (ShardFacts { ids: IdKind::None, ..facts() }, "--id-column"),
        ] {
            let refused = common.check(&other).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
