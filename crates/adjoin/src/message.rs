//! What is said to a user: text in which options are data, since a flag of the command line is an argument in Python.

use std::fmt::{self, Display, Formatter};

/// An option of the engine that a message speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Argument {
    /// The memory budget.
    Memory,
    /// The number of threads.
    Threads,
    /// The folder of temporary files.
    Temporary,
    /// The column of vectors.
    VectorColumn,
    /// The column of ids.
    IdColumn,
    /// That rows go by their numbers.
    NoIds,
    /// The split of a folder that is read.
    Split,
    /// The columns that are kept to filter searches by.
    Attributes,
    /// The attribute that rows are sorted by within buckets.
    SortBy,
    /// The set that another is joined with.
    With,
    /// The rows that come to those of a set.
    New,
    /// The ids of the rows that go.
    Delete,
    /// What must be true of the rows that are found or joined.
    Where,
    /// The same of the rows of the set that another is joined with.
    WhereOther,
    /// What must be true of pairs.
    WherePair,
    /// What must be true of the rows that are deleted.
    DeleteWhere,
    /// The number of buckets.
    Buckets,
    /// How centers are chosen.
    Centers,
    /// What becomes of rows without a usable vector.
    OnBad,
    /// What becomes of ids that occur twice.
    OnDuplicateId,
    /// That what is there is replaced.
    Force,
    /// That a run goes on where an earlier one was ended.
    Resume,
    /// The metric of a store.
    Metric,
    /// The bytes of the code of a vector.
    CodeBytes,
    /// The vectors of the navigation graph.
    Navigation,
    /// The bytes of a page.
    Page,
    /// The order of vectors on pages.
    Layout,
    /// How the graph of an index is made.
    Graph,
    /// The number of candidates that a search of a graph keeps.
    List,
    /// The number of nearest vectors of a query.
    K,
    /// The largest distance of a vector to its query.
    Radius,
    /// The threshold of the nearest neighbours.
    Within,
    /// The number of buckets that a query looks into.
    Nprobe,
    /// The vectors that are looked for.
    Queries,
    /// The largest distance of a pair.
    Eps,
    /// The least similarity of a pair.
    MinSimilarity,
    /// The share of the pairs that is promised.
    Recall,
    /// That every pair is found.
    Exact,
    /// The most out-neighbours of a vertex.
    Degree,
    /// The candidates that a search of a graph's build keeps.
    BuildList,
    /// By how much a detour must be shorter to replace an edge.
    Alpha,
    /// That a result is tried which the disk seems to have no room for.
    Yes,
}

impl Argument {
    /// Its name: lower-case words with dashes between them.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Temporary => "temporary",
            Self::VectorColumn => "vector-column",
            Self::IdColumn => "id-column",
            Self::NoIds => "no-ids",
            Self::Split => "split",
            Self::Attributes => "attributes",
            Self::SortBy => "sort-by",
            Self::With => "with",
            Self::New => "new",
            Self::Delete => "delete",
            Self::Where => "where",
            Self::WhereOther => "where-other",
            Self::WherePair => "where-pair",
            Self::DeleteWhere => "delete-where",
            Self::Buckets => "buckets",
            Self::Centers => "centers",
            Self::OnBad => "on-bad",
            Self::OnDuplicateId => "on-duplicate-id",
            Self::Force => "force",
            Self::Resume => "resume",
            Self::Metric => "metric",
            Self::CodeBytes => "code-bytes",
            Self::Navigation => "navigation",
            Self::Page => "page",
            Self::Layout => "layout",
            Self::Graph => "graph",
            Self::List => "list",
            Self::K => "k",
            Self::Radius => "radius",
            Self::Within => "within",
            Self::Nprobe => "nprobe",
            Self::Queries => "queries",
            Self::Eps => "eps",
            Self::MinSimilarity => "min-similarity",
            Self::Recall => "recall",
            Self::Exact => "exact",
            Self::Degree => "degree",
            Self::BuildList => "build-list",
            Self::Alpha => "alpha",
            Self::Yes => "yes",
        }
    }

    /// Whether it is said or not, and has no value.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::NoIds | Self::Force | Self::Resume | Self::Exact | Self::Yes)
    }

    /// The option with a value.
    pub fn with(self, value: impl Display) -> Mention {
        Mention { argument: self, value: Some(value.to_string()) }
    }
}

/// An option, and the value that a message speaks of, where it speaks of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The option.
    pub argument: Argument,
    /// The value.
    pub value: Option<String>,
}

/// As the words of a sentence: `on-bad skip`.
impl Display for Mention {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.argument.name())?;
        self.value.as_ref().map_or(Ok(()), |value| write!(formatter, " {value}"))
    }
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Mention(Mention),
}

/// One line in which options are data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Vec<Piece>);

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(vec![Piece::Text(one_line(text))])
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Mention> for Message {
    fn from(Mention { argument, value }: Mention) -> Self {
        Self(vec![Piece::Mention(Mention { argument, value: value.map(one_line) })])
    }
}

impl From<Argument> for Message {
    fn from(argument: Argument) -> Self {
        Mention { argument, value: None }.into()
    }
}

impl FromIterator<Self> for Message {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        Self(parts.into_iter().flat_map(|part| part.0).collect())
    }
}

impl Message {
    /// The line, with each option as `spell` has it.
    pub fn spelled(&self, spell: impl Fn(&Mention) -> String) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Mention(mention) => spell(mention),
        };
        self.0.iter().map(piece).collect()
    }
}

impl Display for Message {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.spelled(Mention::to_string))
    }
}

/// Joins text and options to a [`Message`]: `message!["give ", Argument::OnBad.with("skip"), " to leave them out"]`.
macro_rules! message {
    ($($part:expr),+ $(,)?) => {
        [$($crate::message::Message::from($part)),+].into_iter().collect::<$crate::message::Message>()
    };
}
pub(crate) use message;

/// Text as one line that steers no terminal: names of columns, files and ids come from outside.
pub fn one_line(message: String) -> String {
    if !message.contains(char::is_control) {
        return message;
    }
    let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    message.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelled_as_the_reader_knows_them() {
        let message = message!["row 3 is bad; give ", Argument::OnBad.with("skip"), format!(" or {}", "fix it")];
        assert_eq!(message.to_string(), "row 3 is bad; give on-bad skip or fix it");
        let flag = |Mention { argument, value }: &Mention| format!("--{}={}", argument.name(), value.as_ref().unwrap());
        assert_eq!(message.spelled(flag), "row 3 is bad; give --on-bad=skip or fix it");
    }

    #[test]
    fn nothing_from_outside_breaks_the_line() {
        let message = message!["column a\nb; give ", Argument::IdColumn.with("c\x1b[2J")];
        assert_eq!(message.to_string(), "column a\\nb; give id-column c\\u{1b}[2J");
    }
}
