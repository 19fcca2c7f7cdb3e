//! Sends a request to all shards at once, and gathers their answers until a deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Coordinator;
use super::failure::{Failure, Failures};
use super::link::ShardRequest;
use super::shard::Shard;
use crate::body_limits::BodyBytes;
use crate::exchange::{apart, unwritable};
use crate::problem::Problem;

/// Time for merging and sending an answer: one part in this number of the time of the request, at most the limit.
const MERGE_PART: u32 = 10;
const MERGE_TIME_MAX: Duration = Duration::from_millis(100);

/// Reads the answer of a shard; the error is the reason why that is impossible.
pub(crate) type ReadAnswer<T> = dyn Fn(BodyBytes) -> Result<T, String> + Send + Sync;

/// Answers of shards in the order of the shards, and the failed shards.
pub(crate) struct Gathered<T> {
    pub(crate) answers: Vec<(usize, T)>,
    pub(crate) failures: Failures,
}

/// Returns until when shards may answer, so that the client has the merged answer by `deadline`.
pub(crate) fn gather_until(deadline: Instant, now: Instant) -> Instant {
    let left = deadline.saturating_duration_since(now);
    now + left.saturating_sub((left / MERGE_PART).min(MERGE_TIME_MAX))
}

/// Sends a request to all shards, and gathers their answers until `until`. Unless the answer `may_be_partial`, the
/// first failure ends the request; shards that still work on it notice that their connection is closed.
///
/// # Errors
/// If the request is invalid, no shard answers, or one fails and the answer may not be partial.
pub(crate) async fn scatter<T: Send + 'static>(
    coordinator: &Arc<Coordinator>,
    request: ShardRequest,
    until: Instant,
    may_be_partial: bool,
    read: Arc<ReadAnswer<T>>,
) -> Result<Gathered<T>, Problem> {
    let (request, mut running) = (Arc::new(request), JoinSet::new());
    for number in 0..coordinator.shards.len() {
        let (coordinator, request, read) = (coordinator.clone(), request.clone(), read.clone());
        running.spawn(async move {
            let shard = &coordinator.shards[number];
            let asked = tokio::time::timeout_at(until.into(), ask(&coordinator, shard, &request, &*read));
            let answer = asked.await.unwrap_or_else(|_| Err(Failure::late()));
            shard.counts.add(answer.as_ref().err());
            (number, answer)
        });
    }
    let mut gathered = Gathered { answers: Vec::new(), failures: Failures::default() };
    while let Some(ended) = running.join_next().await {
        let (number, answer) = ended.map_err(unwritable)?;
        match answer {
            Ok(answer) => gathered.answers.push((number, answer)),
            Err(Failure::Request(problem)) => return Err(problem),
            Err(Failure::Shard(problem)) => gathered.failures.push(coordinator.shards[number].url(), problem),
        }
        if !gathered.failures.is_empty() && !may_be_partial {
            add_ended(&mut gathered.failures, &mut running, coordinator);
            break;
        }
    }
    if gathered.answers.is_empty() || !gathered.failures.is_empty() && !may_be_partial {
        return Err(gathered.failures.problem(coordinator.shards.len(), may_be_partial));
    }
    gathered.answers.sort_unstable_by_key(|&(number, _)| number);
    Ok(gathered)
}

/// Outcome of a request to the shard with a number.
type Ended<T> = (usize, Result<T, Failure>);

/// Adds the failures of requests that have ended already, so that the problem names all shards that are down.
fn add_ended<T: 'static>(failures: &mut Failures, running: &mut JoinSet<Ended<T>>, coordinator: &Coordinator) {
    while let Some(ended) = running.try_join_next() {
        if let Ok((number, Err(failure))) = ended {
            failures.push(coordinator.shards[number].url(), failure.problem().clone());
        }
    }
}

async fn ask<T>(
    coordinator: &Coordinator,
    shard: &Shard,
    request: &ShardRequest,
    read: &ReadAnswer<T>,
) -> Result<T, Failure> {
    let reply = shard.ask(request, &coordinator.common, &coordinator.clients).await?;
    let bytes = reply.body.bytes.len();
    apart(bytes, || read(reply.body)).map_err(Failure::unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_leave_time_to_merge() {
        let now = Instant::now();
        for (left_ms, gathered_ms) in [(0, 0), (10, 9), (500, 450), (2_000, 1_900), (600_000, 599_900)] {
            let until = gather_until(now + Duration::from_millis(left_ms), now);
            assert_eq!((until - now).as_millis(), gathered_ms);
        }
        assert_eq!(gather_until(now, now + Duration::from_secs(1)) - now, Duration::from_secs(1));
    }
}
