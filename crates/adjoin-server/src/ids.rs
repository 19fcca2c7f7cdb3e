//! Ids in requests.

use std::fmt;

use adjoin::Ids;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Ids as a request gives them: all integers or all texts.
#[derive(Debug, PartialEq)]
pub(crate) struct GivenIds(pub(crate) Ids);

impl Default for GivenIds {
    fn default() -> Self {
        Self(Ids::None)
    }
}

impl<'de> Deserialize<'de> for GivenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_seq(AllIds)
    }
}

struct AllIds;

/// One id of a request.
enum Id<'a> {
    Int64(i64),
    Text(std::borrow::Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Id<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(OneId)
    }
}

struct OneId;

impl<'de> Visitor<'de> for OneId {
    type Value = Id<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an id: an integer or a text")
    }

    fn visit_i64<E>(self, id: i64) -> std::result::Result<Id<'de>, E> {
        Ok(Id::Int64(id))
    }

    fn visit_u64<E: serde::de::Error>(self, id: u64) -> std::result::Result<Id<'de>, E> {
        id.try_into()
            .map(Id::Int64)
            .map_err(|_| E::custom(format!("the id {id} is beyond 64-bit integers with a sign")))
    }

    fn visit_borrowed_str<E>(self, id: &'de str) -> std::result::Result<Id<'de>, E> {
        Ok(Id::Text(id.into()))
    }

    fn visit_str<E>(self, id: &str) -> std::result::Result<Id<'de>, E> {
        Ok(Id::Text(id.to_owned().into()))
    }
}

impl<'de> Visitor<'de> for AllIds {
    type Value = GivenIds;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of ids, all integers or all texts")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> std::result::Result<GivenIds, A::Error> {
        let mut ids = Ids::None;
        while let Some(id) = all.next_element::<Id<'_>>()? {
            match (&mut ids, id) {
                (none @ Ids::None, Id::Int64(id)) => *none = Ids::Int64(vec![id]),
                (none @ Ids::None, Id::Text(id)) => *none = std::iter::once(&*id).collect(),
                (Ids::Int64(ids), Id::Int64(id)) => ids.push(id),
                (Ids::Utf8(texts), Id::Text(id)) => texts.push(id.as_bytes()),
                _ => return Err(A::Error::custom("some ids are integers and some texts; give ids of one kind")),
            }
        }
        Ok(GivenIds(ids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::problem::Problem;

    fn ids(text: &str) -> std::result::Result<Ids, Problem> {
        json::parse::<GivenIds>(text.as_bytes()).map(|ids| ids.0)
    }

    #[test]
    fn ids_are_all_integers_or_all_texts() {
        assert_eq!(ids("[3, -7]").unwrap(), Ids::Int64(vec![3, -7]));
        let Ids::Utf8(texts) = ids(r#"["a", "é\n"]"#).unwrap() else { panic!("not texts") };
        assert_eq!([texts.get(0), texts.get(1)], [b"a", "é\n".as_bytes()]);
        for (text, words) in [
            ("[1, \"a\"]", "ids of one kind"),
            ("[18446744073709551615]", "beyond 64-bit integers"),
            ("[1.5]", "an integer or a text"),
            ("[null]", "an integer or a text"),
            ("7", "a list of ids"),
        ] {
            let problem = ids(text).unwrap_err();
            assert!(problem.detail.contains(words), "{text}: {}", problem.detail);
        }
    }
}
