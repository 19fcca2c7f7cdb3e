//! Parsed search requests, and a source with the queries of several requests.

use std::path::PathBuf;
use std::time::Instant;

use adjoin::{
    Condition, EffortOptions, Element, IdKind, Ids, QueryTarget, Result, SearchEffort, SearchOptions, ServedQuery,
    SourceInfo, VectorBatch, VectorScan, VectorSource, VectorType, device::Reservation,
};

use crate::ids::GivenIds;
use crate::json::{Members, QUERIES_MAX, Vectors};
use crate::problem::Problem;

/// Maximum number of hits per query.
pub(crate) const K_MAX: u64 = 10_000;

/// Seed of calibrations.
pub(crate) const SEED: u64 = 1;

/// Returns the search options in the members of a request. Requests with equal options are searched together.
///
/// # Errors
/// If there is not exactly one target, if there are several efforts, if there are too many hits, or if the filter is not
/// a valid condition.
pub(crate) fn search_options(members: &Members) -> std::result::Result<SearchOptions, Problem> {
    let Members { k, radius, min_similarity, recall, exact, nprobe, list, .. } = *members;
    if let Some(k) = k.filter(|&k| k > K_MAX) {
        return Err(Problem::bad_request(format!("k is {k}; ask for at most {K_MAX}")));
    }
    let target = QueryTarget::of(k, radius, min_similarity)?;
    let effort = SearchEffort::try_from(EffortOptions { recall, exact, probes: nprobe, list })?;
    let filter = members.r#where.as_deref().map(Condition::parse).transpose()?;
    let columns = members.columns.0.clone();
    Ok(SearchOptions { filter, columns, ..SearchOptions::new(target, effort, SEED) })
}

/// A search request.
pub(crate) struct Request {
    pub(crate) search: SearchOptions,
    pub(crate) vectors: VectorType,
    pub(crate) rows: usize,
    /// Queries in one buffer, one after the other, in the layout of their type.
    pub(crate) stored: Vec<u8>,
    pub(crate) deadline: Instant,
    /// Reservation for the queries.
    pub(crate) _memory: Reservation,
}

impl Request {
    /// Returns query `number`.
    pub(crate) fn query(&self, number: usize) -> ServedQuery<'_> {
        let Self { search: SearchOptions { target, effort, .. }, vectors, deadline, .. } = *self;
        let stored = &self.stored[number * vectors.bytes()..][..vectors.bytes()];
        ServedQuery { vectors, stored, target, effort, deadline: Some(deadline) }
    }
}

/// Counts the vectors in a raw little-endian body.
///
/// # Errors
/// If the body is empty, not a whole number of vectors, or has too many.
pub(crate) fn raw(vectors: VectorType, body: &[u8]) -> std::result::Result<usize, Problem> {
    let (bytes, of_one) = (body.len(), vectors.bytes());
    if bytes == 0 || !bytes.is_multiple_of(of_one) {
        return Err(Problem::bad_request(format!(
            "the body has {bytes} bytes; give whole vectors of {} x {}, {of_one} bytes each",
            vectors.dimensions, vectors.element
        )));
    }
    queries_count((bytes / of_one) as u64)
}

/// Converts the number of queries of a request, and refuses too many.
///
/// # Errors
/// If there are too many.
pub(crate) fn queries_count(rows: u64) -> std::result::Result<usize, Problem> {
    match usize::try_from(rows) {
        Ok(rows @ ..=QUERIES_MAX) => Ok(rows),
        _ => Err(Problem::bad_request(format!("{rows} queries; ask for at most {QUERIES_MAX} at once"))),
    }
}

/// Returns the query vectors of a JSON request.
///
/// # Errors
/// If there are none.
pub(crate) fn queries_of(queries: Option<Vectors>) -> std::result::Result<Vectors, Problem> {
    let none =
        || Problem::bad_request("queries is missing or empty; give a list of vectors, or in `like` the ids of rows");
    queries.filter(|queries| queries.rows > 0).ok_or_else(none)
}

/// Checks the number of `ids` in a request and returns them. `member` is the name of the member, for messages.
///
/// # Errors
/// If there are none or too many.
pub(crate) fn names_of(member: &str, ids: GivenIds) -> std::result::Result<Ids, Problem> {
    if ids.0.is_empty() {
        return Err(Problem::bad_request(format!("{member} is empty; give a list of ids")));
    }
    match ids.0.len() {
        ..=QUERIES_MAX => Ok(ids.0),
        count => Err(Problem::bad_request(format!("{count} ids; ask for at most {QUERIES_MAX} at once"))),
    }
}

/// Rows of one or more requests as a source in memory.
pub(crate) struct Together<'a> {
    info: SourceInfo,
    parts: Vec<Part<'a>>,
    /// End of the rows of each part.
    ends: Vec<u64>,
    /// Name of the source in messages.
    name: &'static str,
}

/// Rows of one request.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) rows: usize,
    pub(crate) stored: &'a [u8],
    pub(crate) ids: &'a Ids,
}

impl<'a> Together<'a> {
    /// Creates a source with the queries of several requests, which must have one type.
    pub(crate) fn queries(vectors: VectorType, requests: &[&'a Request]) -> Self {
        let part = |request: &&'a Request| Part { rows: request.rows, stored: &request.stored, ids: &Ids::None };
        Self::new(vectors, IdKind::None, requests.iter().map(part).collect(), "queries")
    }

    /// Creates a source of the rows of some parts, called `name` in messages.
    pub(crate) fn new(vectors: VectorType, ids: IdKind, parts: Vec<Part<'a>>, name: &'static str) -> Self {
        let mut rows = 0;
        let mut end_of = |part: &Part<'_>| {
            rows += part.rows as u64;
            rows
        };
        let ends = parts.iter().map(&mut end_of).collect();
        Self { info: SourceInfo { rows, vectors, ids, rounded_from_f64: false }, parts, ends, name }
    }

    /// Returns the part that contains a row, and the row's number in it.
    pub(crate) fn part_of(&self, row: u64) -> (usize, u64) {
        let part = self.ends.partition_point(|&end| end <= row);
        let before = if part == 0 { 0 } else { self.ends[part - 1] };
        (part, row - before)
    }
}

impl VectorSource for Together<'_> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn scan(&self, batch_bytes: usize) -> Result<Box<dyn VectorScan + '_>> {
        let rows_at_once = (batch_bytes / self.info.vectors.bytes()).max(1);
        Ok(Box::new(Scan { of: self, rows_at_once, part: 0, row: 0, first_row: 0 }))
    }

    fn scan_bytes(&self, _batch_bytes: u64) -> u64 {
        0 // scanning needs no memory in addition to the delivered rows
    }

    fn locate(&self, row: u64) -> (PathBuf, u64) {
        (self.name.into(), self.part_of(row).1)
    }
}

struct Scan<'a> {
    of: &'a Together<'a>,
    rows_at_once: usize,
    part: usize,
    row: usize,
    first_row: u64,
}

impl VectorScan for Scan<'_> {
    fn next_batch(&mut self) -> Result<Option<VectorBatch>> {
        let Some(part) = self.of.parts.get(self.part) else { return Ok(None) };
        let bytes = self.of.info.vectors.bytes();
        let rows = (part.rows - self.row).min(self.rows_at_once);
        let mut ids = Ids::empty(part.ids.kind());
        if ids != Ids::None {
            (self.row..self.row + rows).for_each(|k| ids.push_from(part.ids, k));
        }
        let stored = part.stored[self.row * bytes..(self.row + rows) * bytes].to_vec();
        let batch = VectorBatch { first_row: self.first_row, rows, bytes: stored, faults: Vec::new(), ids };
        (self.row, self.first_row) = (self.row + rows, self.first_row + rows as u64);
        if self.row == part.rows {
            (self.part, self.row) = (self.part + 1, 0);
        }
        Ok(Some(batch))
    }
}

/// Returns the element type of a raw body. The default is the type of the served rows.
///
/// # Errors
/// If there is no type of that name.
pub(crate) fn element_of(said: Option<&str>, served: Element) -> std::result::Result<Element, Problem> {
    said.map_or(Ok(served), |name| name.parse().map_err(Problem::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: VectorType = VectorType { element: Element::U8, dimensions: 2 };

    #[test]
    fn combined_queries_keep_their_order_and_request() {
        let (first, second) = ([0, 1, 2, 3, 4, 5], [6, 7]);
        let part = |rows, stored| Part { rows, stored, ids: &Ids::None };
        let parts = vec![part(3, &first[..]), part(1, &second[..])];
        let source = Together::new(PAIRS, IdKind::None, parts, "queries");
        let mut scan = source.scan(4).unwrap();
        let mut batches = Vec::new();
        while let Some(batch) = scan.next_batch().unwrap() {
            batches.push((batch.first_row, batch.rows, batch.bytes));
        }
        assert_eq!(batches, [(0, 2, vec![0, 1, 2, 3]), (2, 1, vec![4, 5]), (3, 1, vec![6, 7])]);
        assert_eq!([source.part_of(2), source.part_of(3)], [(0, 2), (1, 0)]);
        assert_eq!(source.locate(3), ("queries".into(), 0));
    }

    #[test]
    fn a_raw_body_is_a_whole_number_of_vectors() {
        assert_eq!(raw(PAIRS, &[0; 6]), Ok(3));
        for (bytes, words) in [(0, "0 bytes"), (5, "2 x u8"), (2 * (QUERIES_MAX + 1), "at most 4096")] {
            let problem = raw(PAIRS, &vec![0; bytes]).unwrap_err();
            assert!(problem.detail.contains(words), "{}", problem.detail);
        }
    }

    #[test]
    fn too_large_k_and_invalid_filters_are_refused() {
        let members = Members { k: Some(K_MAX + 1), ..Members::default() };
        assert_eq!(search_options(&members).unwrap_err().detail, "k is 10001; ask for at most 10000");
        let members = Members { k: Some(1), r#where: Some("a =".into()), ..Members::default() };
        assert_eq!(search_options(&members).unwrap_err().status, 400);
    }
}
