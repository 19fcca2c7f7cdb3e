//! Queries of a search request: in JSON, as raw vectors, or as a table.

use adjoin::{
    ArrowTable, Context, Ids, VectorType,
    device::{MemoryBudget, Reservation},
};
use axum::body::Body;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::HeaderMap;

use crate::body;
use crate::body_limits::{BodyBytes, Limits};
use crate::exchange::{ARROW, JSON, JSON_TIMES, RAW, RAW_TIMES, apart, content_type, reserve};
use crate::json::{self, Members, Vectors};
use crate::problem::Problem;
use crate::request::{element_of, names_of, queries_count, queries_of, raw};

/// Queries of a request.
pub(crate) enum Queries {
    Vectors(Vectors, Reservation),
    /// Vectors of the rows with these ids.
    Names(Ids),
}

/// Reader of search requests.
pub(crate) struct QueryReader<'a> {
    pub(crate) context: &'a Context,
    /// Memory held for clients.
    pub(crate) clients: &'a MemoryBudget,
    /// Type of the served vectors.
    pub(crate) vectors: VectorType,
    /// Maximum size of a body in bytes.
    pub(crate) body_bytes: u64,
}

impl QueryReader<'_> {
    /// Reads a request. Its members are in the body if that is JSON, and otherwise in `query`.
    ///
    /// # Errors
    /// If the body is of another type, invalid or too large, or memory does not suffice for it.
    pub(crate) async fn read(
        &self,
        headers: &HeaderMap,
        query: Result<Query<Members>, QueryRejection>,
        body: Body,
    ) -> Result<(Members, Queries), Problem> {
        let kind = content_type(headers, &[JSON, RAW, ARROW])?;
        let in_address = query.map_err(|refused| Problem::bad_request(refused.body_text()))?.0;
        // Members in both places might contradict each other.
        if kind == JSON && in_address != Members::default() {
            return Err(Problem::bad_request(
                "a request in JSON has all its members in the body; leave out those after `?`",
            ));
        }
        let times = if kind == JSON { JSON_TIMES } else { RAW_TIMES };
        let limits = Limits { bytes: self.body_bytes, times, clients: self.clients };
        let held = body::read(headers, body, &limits).await?;
        match kind {
            JSON => apart(held.bytes.len(), || of_json(held)),
            ARROW => apart(held.bytes.len(), || self.of_arrow(held, in_address)),
            _ => self.of_raw(held, in_address),
        }
    }

    fn of_raw(&self, held: BodyBytes, members: Members) -> Result<(Members, Queries), Problem> {
        let BodyBytes { bytes, memory } = held;
        let mut vectors = self.vectors;
        vectors.element = element_of(members.element.as_deref(), vectors.element)?;
        let rows = raw(vectors, &bytes)?;
        Ok((members, Queries::Vectors(Vectors { rows, kind: vectors, stored: bytes }, memory)))
    }

    fn of_arrow(&self, held: BodyBytes, members: Members) -> Result<(Members, Queries), Problem> {
        let BodyBytes { bytes, mut memory } = held;
        if members.element.is_some() {
            return Err(Problem::bad_request("element is for raw bodies; a table states its own types"));
        }
        let table = ArrowTable::open(self.context, "the body", bytes)?;
        let (kind, rows) = (table.vectors(), queries_count(table.rows())?);
        let needed = rows as u64 * kind.bytes() as u64 + table.reading_bytes();
        memory.join(reserve(self.clients, needed, memory.bytes())?);
        let stored = table.read()?;
        drop(table);
        Ok((members, Queries::Vectors(Vectors { rows, kind, stored }, memory)))
    }
}

fn of_json(held: BodyBytes) -> Result<(Members, Queries), Problem> {
    let BodyBytes { bytes, memory } = held;
    let mut members: Members = json::object(&bytes, Members::EXAMPLE)?;
    drop(bytes);
    if members.element.is_some() {
        return Err(Problem::bad_request("element is for raw bodies; numbers in JSON are f32"));
    }
    let queries = match (members.queries.take(), members.like.take()) {
        (Some(_), Some(_)) => return Err(Problem::bad_request("queries and like are both given; give one of them")),
        (None, Some(like)) => Queries::Names(names_of("like", like)?),
        (queries, None) => Queries::Vectors(queries_of(queries)?, memory),
    };
    Ok((members, queries))
}
