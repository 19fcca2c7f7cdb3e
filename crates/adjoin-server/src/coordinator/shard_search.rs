//! The request that a coordinator sends to each shard for a search.

use std::fmt::Write;
use std::sync::Arc;

use adjoin::{SearchEffort, SearchOptions};
use axum::body::Bytes;
use axum::http::Method;
use serde::Serialize;
use serde_json::Value;

use super::link::ShardRequest;
use super::merge::recall_of_shard;
use crate::exchange::{ARROW, JSON, RAW};
use crate::json::{Members, Vectors};

/// Path of searches.
const PATH: &str = "/v1/search";
/// Maximum length of the texts in a path; servers limit the head of a request.
const PATH_BYTES_MAX: usize = 4 << 10;

/// Members of the request, as [`Members`] without its queries.
#[derive(Serialize)]
struct SentMembers<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    k: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    radius: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_similarity: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recall: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exact: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    nprobe: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#where: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    columns: &'a [String],
    deadline_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    element: Option<&'static str>,
}

/// Composes the request for each of `shards` shards. The vectors are sent as they are if the other members fit into the
/// path, and as JSON otherwise.
pub(crate) fn request(
    members: &Members,
    search: &SearchOptions,
    vectors: Vectors,
    shards: usize,
    deadline_ms: u64,
) -> Result<ShardRequest, serde_json::Error> {
    let recall = match search.effort {
        SearchEffort::Recall(target) => Some(recall_of_shard(target, shards)),
        _ => None,
    };
    let Members { k, radius, min_similarity, exact, nprobe, list, .. } = *members;
    let columns = members.columns.0.as_slice();
    let mut sent = SentMembers {
        k,
        radius,
        min_similarity,
        recall,
        exact,
        nprobe,
        list,
        r#where: members.r#where.as_deref(),
        columns,
        deadline_ms,
        element: Some(adjoin::Choice::name(vectors.kind.element)),
    };
    let (path, content_type, body) = if needs_json(members) {
        sent.element = None;
        (PATH.to_owned(), JSON, Bytes::from(json_with(&vectors, &sent)?))
    } else {
        (path_with(&serde_json::to_value(&sent)?), RAW, Bytes::from(vectors.stored))
    };
    Ok(ShardRequest {
        method: Method::POST,
        path,
        content_type: Some(content_type),
        accept: Some(ARROW),
        answer_bytes_max: u64::MAX,
        answered_bytes: Arc::default(),
        body,
    })
}

/// Returns whether members do not fit into a path.
fn needs_json(members: &Members) -> bool {
    // In a path, commas separate the names of columns, and a byte of a text may take three.
    3 * text_bytes(members) > PATH_BYTES_MAX || members.columns.0.iter().any(|name| name.contains(','))
}

fn text_bytes(members: &Members) -> usize {
    let names: usize = members.columns.0.iter().map(|name| name.len() + 1).sum();
    names + members.r#where.as_ref().map_or(0, String::len)
}

/// Returns the maximum bytes of a request with `elements` numbers, in addition to its vectors.
pub(crate) fn request_bytes_max(elements: u64, members: &Members) -> u64 {
    // A number has at most 25 characters, and a byte of a text at most 6.
    let of_json = if needs_json(members) { 25 * elements } else { 0 };
    of_json + 6 * text_bytes(members) as u64 + 4_096
}

fn json_with(vectors: &Vectors, members: &SentMembers<'_>) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = b"{\"queries\":[".to_vec();
    for (number, stored) in vectors.stored.chunks_exact(vectors.kind.bytes()).enumerate() {
        text.extend_from_slice(if number == 0 { b"" } else { b"," });
        let values: Vec<f32> = vectors.kind.element.values(stored).map(|value| value as f32).collect();
        serde_json::to_writer(&mut text, &values)?;
    }
    text.extend_from_slice(b"],");
    let members = serde_json::to_vec(members)?;
    text.extend_from_slice(&members[1..]); // members of the same object
    Ok(text)
}

/// Returns the path with the members of an object as a query string.
fn path_with(members: &Value) -> String {
    let mut path = PATH.to_owned();
    for (name, value) in members.as_object().into_iter().flatten() {
        path.push(if path.len() == PATH.len() { '?' } else { '&' });
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            value => value.to_string(),
        };
        path.push_str(name);
        path.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
                _ => drop(write!(path, "%{byte:02X}")), // writing to a text cannot fail
            }
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use adjoin::{Element, VectorType};
    use axum::extract::Query;

    use super::*;
    use crate::json;
    use crate::request::search_options;

    fn sent(text: &str) -> ShardRequest {
        let mut members: Members = json::object(text.as_bytes(), "").unwrap();
        let vectors = members.queries.take().unwrap();
        let search = search_options(&members).unwrap();
        request(&members, &search, vectors, 4, 1_234).unwrap()
    }

    #[test]
    fn vectors_are_sent_raw_with_members_in_the_path() {
        let text = r#"{"queries": [[1, 2]], "k": 3, "where": "a = 'é&b' and c < 1", "columns": ["x y", "z"]}"#;
        let request = sent(text);
        assert_eq!((request.content_type, request.body.len()), (Some(RAW), 8));
        let Query(read) = Query::<Members>::try_from_uri(&request.path.parse().unwrap()).unwrap();
        assert_eq!(read.r#where.as_deref(), Some("a = 'é&b' and c < 1"));
        assert_eq!((read.k, read.recall, read.deadline_ms), (Some(3), Some(0.9875), Some(1_234)));
        assert_eq!((read.columns.0, read.element.as_deref()), (vec!["x y".into(), "z".into()], Some("f32")));
        assert!(!read.exact && !read.partial);
    }

    #[test]
    fn members_that_do_not_fit_into_a_path_are_sent_as_json() {
        let long = format!("a in ({}1)", "1, ".repeat(1_000));
        for (text, filter) in [
            (
                format!(r#"{{"queries": [[1, -2.5], [1e-7, 3]], "k": 3, "exact": true, "where": "{long}"}}"#),
                Some(&*long),
            ),
            (r#"{"queries": [[1, -2.5], [1e-7, 3]], "k": 3, "exact": true, "columns": ["a,b"]}"#.into(), None),
        ] {
            let (mut asked, request) = (json::object::<Members>(text.as_bytes(), "").unwrap(), sent(&text));
            assert_eq!((request.content_type, request.path.as_str()), (Some(JSON), PATH));
            let mut read: Members = json::object(&request.body, "").unwrap();
            assert_eq!(read.r#where.as_deref(), filter);
            assert_eq!((read.queries.take(), read.exact), (asked.queries.take(), true));
            assert!(request.body.len() as u64 <= request_bytes_max(4, &asked));
        }
    }

    #[test]
    fn elements_of_all_types_become_json() {
        for (element, stored) in [(Element::U8, vec![1, 255]), (Element::I8, vec![1, 255])] {
            let vectors = Vectors { rows: 1, kind: VectorType { element, dimensions: 2 }, stored };
            let members =
                Members { k: Some(1), columns: crate::json::ColumnNames(vec![",".into()]), ..Members::default() };
            let search = search_options(&members).unwrap();
            let request = request(&members, &search, vectors, 1, 1).unwrap();
            let text = String::from_utf8(request.body.to_vec()).unwrap();
            let last = if element == Element::U8 { "255.0" } else { "-1.0" };
            assert!(text.starts_with(&format!("{{\"queries\":[[1.0,{last}]],\"k\":1,\"recall\":0.95,")), "{text}");
        }
    }
}
