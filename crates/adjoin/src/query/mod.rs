//! Code shared by all searches: the target and effort of a query, and the delivery of its hits to a sink.
//!
//! Stores (`crate::buckets`), graph indexes (`crate::index`) and collections (`crate::collection`) differ in how they
//! find the hits of a batch of queries. This module has the other parts of a search:
//!
//! - `options.rs` defines the options of a search.
//! - `source_queries.rs` reads queries.
//! - `run.rs` answers them batch by batch.
//! - `halves.rs` splits a batch if its hits do not fit in memory.
//! - `delivery.rs` passes hits to a sink, with the ids that `naming.rs` looks up and the columns that `hit_columns.rs`
//!   gathers.

mod delivery;
mod halves;
mod hit_columns;
mod id_room;
mod naming;
mod options;
mod run;
mod source_queries;

pub(crate) use self::halves::{in_halves, too_many_hits};
pub(crate) use self::id_room::IdRoom;
pub(crate) use self::naming::{HitLookup, NamedHits, Naming, ids_of, name_places, naming_bytes};
pub use self::options::{EffortOptions, QueryTarget, SearchEffort, SearchOptions};
pub(crate) use self::options::{SearchGoal, bytes_for_all_hits};
pub(crate) use self::run::{BatchSearch, QueryVectors, RanSearch, SearchRun, SearchWork, StoredQueries};
pub use self::source_queries::QuerySources;
pub(crate) use self::source_queries::{
    Gathering, QueryBatch, QueryRow, SourceQueries, gathering_bytes, query_as_stored,
};
