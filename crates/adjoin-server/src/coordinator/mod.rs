//! Searches several servers, the shards, each of which serves some of the rows.
//!
//! A coordinator has no rows. It reads a request like other servers, sends it to all shards at once (`scatter.rs`, in
//! the form of `shard_search.rs`), and merges their hits (`merge.rs`): `link.rs` is the HTTP client, `shard.rs` checks
//! on each new connection that the server at its end fits the others, and `hits.rs` reads its answer without trusting
//! it. `failure.rs` turns failed shards into the problem that the client gets, and `rows.rs` fetches rows by id.
//!
//! Requests and answers are held in the memory for clients, as in other servers.

mod failure;
mod hits;
mod link;
mod merge;
mod metrics;
mod routes;
mod rows;
mod scatter;
mod shard;
mod shard_search;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adjoin::{Cancel, Context, Error, Result, device::MemoryBudget, format_number};
use axum::http::StatusCode;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::failure::Failure;
use self::link::{LINK_BYTES, ShardAddress};
use self::routes::router;
use self::shard::{CommonFacts, Shard, ShardFacts};
use crate::access::Access;
use crate::connections;
use crate::hosting::{Division, files_max, listen, runtime, stopped};
use crate::metrics::Metrics;
use crate::options::{ServerOptions, ShardOptions};

/// Threads that may resolve the names of hosts at the same time.
const RESOLVERS: usize = 4;
/// Maximum number of requests that are sent to the shards at the same time.
const TURNS_MAX: u64 = 256;
/// Fraction of the free memory that is held for clients and for connections to shards; there are no searches in this
/// process.
const CLIENTS_SHARE: (u64, u64) = (3, 4);
/// One part in this number of that is for connections to shards.
const LINKS_PART: u64 = 4;
/// Interval of the checks whether shards are available.
const PROBE_EVERY: Duration = Duration::from_secs(1);
/// Time limit for requests that still run when the server has ended.
const END_TIME: Duration = Duration::from_secs(1);

/// State shared by all requests.
pub(crate) struct Coordinator {
    shards: Vec<Shard>,
    /// Set before the first request.
    common: OnceLock<CommonFacts>,
    context: Context,
    /// Memory held for clients.
    clients: MemoryBudget,
    metrics: Arc<Metrics>,
    access: Arc<Access>,
    /// Maximum size of a body in bytes.
    body_bytes: u64,
    is_draining: AtomicBool,
    /// Permits for requests to the shards.
    turns: Arc<Semaphore>,
}

impl Coordinator {
    /// Returns the properties of all shards.
    fn common(&self) -> &CommonFacts {
        self.common.get().expect("shards are asked before the first request is accepted")
    }
}

/// Serves shards until `stop` is set, then answers all accepted requests and returns.
///
/// # Errors
/// If no shard answers, shards disagree, the budget is too small, or the address is taken.
pub(crate) fn serve(
    context: &Context,
    options: &ServerOptions,
    shards: &ShardOptions,
    stop: &Cancel,
    listening: impl FnOnce(SocketAddr) -> Result<()>,
) -> Result<()> {
    let shards = shards_of(shards)?;
    let all = context.budget().free() / CLIENTS_SHARE.1 * CLIENTS_SHARE.0;
    let turns = turns_max(all, shards.len() as u64);
    let links = (turns + 1) * shards.len() as u64; // one more for the check of availability
    let division = Division::of(all.saturating_sub(links * LINK_BYTES), links);
    let purpose = "serving";
    let _fixed = context.reserve(division.fixed_bytes() + links * LINK_BYTES, purpose)?;
    let clients = MemoryBudget::within(context.reserve(division.clients, purpose)?);
    let runtime = runtime(RESOLVERS)?;
    let common = OnceLock::new();
    let shards = runtime.block_on(check_shards(shards, clients.clone(), &common))?;
    let (listener, address) = listen(&runtime, options.listen)?;
    let coordinator = Arc::new(Coordinator {
        shards,
        common,
        context: context.clone(),
        clients,
        metrics: Arc::default(),
        access: Arc::new(Access::of(options.key.as_deref(), address)),
        body_bytes: division.body,
        is_draining: false.into(),
        turns: Arc::new(Semaphore::new(turns as usize)),
    });
    let rows: u64 = coordinator.shards.iter().filter_map(|shard| shard.facts()).map(|facts| facts.rows).sum();
    let count = coordinator.shards.len();
    tracing::info!("{count} shards of {} rows: listening on http://{address}", format_number(rows));
    let started = listening(address);
    if started.is_ok() {
        let probing = runtime.spawn(probe_shards(coordinator.clone()));
        let draining = || {
            tracing::info!("shutting down: accepted requests are answered");
            coordinator.is_draining.store(true, Ordering::Relaxed);
        };
        let (stop, metrics) = (stopped(stop.clone()), &coordinator.metrics);
        let connections = division.connections as usize;
        runtime.block_on(connections::run(listener, connections, router(&coordinator), metrics, stop, draining));
        probing.abort();
    }
    end(runtime);
    started
}

fn end(runtime: Runtime) {
    runtime.shutdown_timeout(END_TIME);
}

/// Returns the shards at the addresses of `options`.
///
/// # Errors
/// If there are none, an address is invalid, or two are equal.
fn shards_of(options: &ShardOptions) -> Result<Vec<Shard>> {
    let mut shards: Vec<Shard> = Vec::new();
    for url in &options.urls {
        let address = ShardAddress::parse(url)?;
        // Its rows would be found twice.
        if shards.iter().any(|shard| shard.url() == address.url) {
            return Err(Error::option(format!("the shard {} is given twice; give each once", address.url)));
        }
        shards.push(Shard::new(address, options.key.as_deref())?);
    }
    if shards.is_empty() {
        return Err(Error::option("there are no shards; give the address of at least one"));
    }
    Ok(shards)
}

/// Returns how many requests may be sent to `shards` shards at the same time.
fn turns_max(all: u64, shards: u64) -> u64 {
    let by_memory = all / LINKS_PART / (shards * LINK_BYTES);
    let by_files = files_max() / 2 / shards;
    by_memory.min(by_files).clamp(1, TURNS_MAX)
}

/// Asks all shards for their properties, and checks that they agree. Shards that do not answer are logged: they may be
/// available later.
///
/// # Errors
/// If no shard answers, one answers otherwise than a server, or two disagree.
async fn check_shards(shards: Vec<Shard>, clients: MemoryBudget, common: &OnceLock<CommonFacts>) -> Result<Vec<Shard>> {
    let (shards, unchecked) = (Arc::new(shards), Arc::new(OnceLock::new()));
    let mut probes = JoinSet::new();
    for number in 0..shards.len() {
        let (shards, unchecked, clients) = (shards.clone(), unchecked.clone(), clients.clone());
        probes.spawn(async move { (number, shards[number].probe(&unchecked, &clients).await) });
    }
    let mut found = probes.join_all().await;
    found.sort_unstable_by_key(|&(number, _)| number);
    let mut refused = Vec::new();
    for (number, facts) in found {
        check_shard(shards[number].url(), facts, common, &mut refused)?;
    }
    if common.get().is_none() {
        let refused = refused.join("; ");
        return Err(Error::input(format!("no shard answers: {refused}; start the servers of the shards first")));
    }
    refused.iter().for_each(|line| tracing::warn!("{line}; its rows are missing until it answers"));
    Ok(Arc::into_inner(shards).expect("all probes have ended"))
}

/// Checks the properties of a shard, and adds it to `refused` if it does not answer.
fn check_shard(
    url: &str,
    facts: std::result::Result<ShardFacts, Failure>,
    common: &OnceLock<CommonFacts>,
    refused: &mut Vec<String>,
) -> Result<()> {
    match facts {
        Ok(facts) => {
            let agreed = common.get_or_init(|| CommonFacts::of(url, &facts)).check(&facts);
            agreed.map_err(|why| Error::input(format!("{url}: {why}")))
        }
        Err(failure) if failure.problem().status == StatusCode::BAD_GATEWAY => {
            Err(Error::input(format!("{url}: {}", failure.problem().detail)))
        }
        Err(failure) => {
            refused.push(format!("{url}: {}", failure.problem().detail));
            Ok(())
        }
    }
}

/// Checks at intervals whether shards are available.
async fn probe_shards(coordinator: Arc<Coordinator>) {
    loop {
        tokio::time::sleep(PROBE_EVERY).await;
        let mut probes = JoinSet::new();
        for number in 0..coordinator.shards.len() {
            let coordinator = coordinator.clone();
            probes.spawn(async move {
                // The outcome is recorded in the shard.
                let _ = coordinator.shards[number].probe(&coordinator.common, &coordinator.clients).await;
            });
        }
        probes.join_all().await;
    }
}
