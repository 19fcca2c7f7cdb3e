//! Items that only tests, fuzzing and the laboratory (`lab/`) use. They are not part of the interface of the crate.

pub use crate::flash::breadth_first;
pub use crate::graph::{Pruner, Vectors};
pub use crate::index::layout::{
    Edges, Filling, ROUNDS_MAX, Room, Tie, grown, overlap_ratio, swapped, weight, whole_order, windows,
};
pub use crate::index::{
    Entry, GivenOrder, PageGraph, VertexVectors, WalkStrategy, build_with_graph, relayout_in_order, vertex_vectors,
};
pub use crate::quantize::{Axes, Principal};
pub use crate::store::default_buckets;
pub use crate::truth::{Certification, PairSample, ROWS_MIN, RowSample, rows_to_draw};

// Further items, by the module that defines them.

pub mod buckets {
    pub use crate::buckets::{NearestOptions, hit_schema, nearest, search};
}

pub mod collection {
    pub use crate::collection::{MergeMethod, MergerOptions, Put, open_rows, start_merger};
}

pub mod context {
    pub use crate::base::context::RUNTIME_BYTES;
}

pub mod flash {
    pub use crate::flash::LaidOut;
}

pub mod geometry {
    pub use crate::base::geometry::{Coordinate, Space, Threshold};
}

pub mod graph {
    pub use crate::graph::{Graph, GreedySearch};
}

pub mod index {
    pub use crate::index::{IndexManifest, hit_schema, search};
}

pub mod join {
    pub use crate::join::{Done, JoinPlan, JoinSide, Prepared, RowFilter, Sets, least_memory, resume, run};
}

pub mod load {
    pub use crate::load::{Buckets, ReadAhead, least_read_ahead, most_read_ahead};
}

pub mod plan {
    pub use crate::plan::{BucketGraph, CacheStart, Lead, Load, Order, Policy, Rule, Step, Steps, Task, sort_tasks};

    pub mod batch {
        pub use crate::plan::batch::{BatchCounts, BatchPlan, BatchStep, BucketCosts, NEVER, Residency, plan_batch};
    }
}

pub mod quantize {
    pub use crate::quantize::{Quantizer, Table};
}

pub mod query {
    pub use crate::query::QuerySources;
}

pub mod report {
    pub use crate::base::report::{JoinCounts, LatencyStatistics, Notes, SearchCounts, Silent, Stopwatch};
}

pub mod serve {
    pub use crate::serve::{CacheOptions, NewPlanner, usual_planner};
}

pub mod sink {
    pub use crate::sink::{Clusters, Counts, Discard, Keep};
}

pub mod source {
    pub use crate::source::{AttributeTables, Fault, open};
}

pub mod sql {
    pub use crate::sql::PairCondition;
}

pub mod store {
    pub use crate::store::{
        Damage, DamagedPart, FileFacts, Files, Role, RowSet, StoreManifest, StoreVerifyReport, TemporaryStore,
    };

    pub mod format {
        pub use crate::store::format::{
            BLOCK_BYTES, BucketFacts, EXTENT_ALIGNMENT, Extent, HEADER_BYTES, SORTED_VERSION, checksum, decode_bucket,
            decode_table,
        };
    }
}

pub mod truth {
    pub use crate::truth::{NeighborSample, Recalls};
}

pub mod workers {
    pub use crate::base::workers::map_items;
}
