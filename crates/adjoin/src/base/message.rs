//! Messages to users. Options in their text are data, since an option is a flag on the command line and an argument in
//! Python.

use std::fmt::{self, Display, Formatter};

/// An option of the engine, as named in messages.
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
    /// Whether rows have no ids and are identified by their numbers.
    NoIds,
    /// The split of a folder to read.
    Split,
    /// The columns kept with vectors.
    Columns,
    /// The column by which rows are sorted within buckets.
    SortBy,
    /// The set to join with.
    With,
    /// The names of the rows of the set given as `With`.
    WithNames,
    /// New rows to join with a set.
    New,
    /// The ids of the rows to delete.
    Delete,
    /// The filter on the rows to search or join.
    Where,
    /// The filter on the rows of the set to join with.
    WhereOther,
    /// The filter on pairs.
    WherePair,
    /// The filter that selects rows to delete.
    DeleteWhere,
    /// The number of buckets.
    Buckets,
    /// How rows without a usable vector are handled.
    OnBad,
    /// How duplicate ids are handled.
    OnDuplicateId,
    /// How ids that no row has are handled.
    OnMissing,
    /// Whether an existing output is replaced.
    Force,
    /// Whether a run continues from a checkpoint.
    Resume,
    /// The metric of a store.
    Metric,
    /// The size of a vector's code, in bytes.
    CodeBytes,
    /// The number of vectors in the navigation graph.
    Navigation,
    /// The size of a page, in bytes.
    Page,
    /// The order of vectors on pages.
    Layout,
    /// The method that builds the graph of an index.
    Graph,
    /// The number of candidates that a graph search keeps.
    List,
    /// The number of nearest vectors to find for each query.
    K,
    /// The maximum distance between a query and a hit.
    Radius,
    /// The maximum distance between a row and its nearest neighbors.
    Within,
    /// The number of buckets that a query probes.
    Nprobe,
    /// The query vectors.
    Queries,
    /// The maximum distance of a pair.
    Eps,
    /// The minimum similarity of a pair.
    MinSimilarity,
    /// The column of texts to compare.
    Text,
    /// The minimum Jaccard similarity of two texts.
    MinJaccard,
    /// The unit of shingles.
    Shingles,
    /// The number of units of a shingle.
    ShingleSize,
    /// The target recall of pairs.
    Recall,
    /// What the target recall is a fraction of.
    RecallOf,
    /// Whether every pair must be found.
    Exact,
    /// The maximum out-degree of a vertex.
    Degree,
    /// The number of candidates that a search keeps while a graph is built.
    BuildList,
    /// The factor by which a detour must be shorter than an edge to replace it.
    Alpha,
    /// The number of parts of a join.
    Parts,
    /// The part of a join to run.
    Part,
    /// Whether to write a result even if disk space seems insufficient.
    Yes,
}

impl Argument {
    /// Returns the option's name: lower-case words joined by dashes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Threads => "threads",
            Self::Temporary => "temporary",
            Self::VectorColumn => "vector-column",
            Self::IdColumn => "id-column",
            Self::NoIds => "no-ids",
            Self::Split => "split",
            Self::Columns => "columns",
            Self::SortBy => "sort-by",
            Self::With => "with",
            Self::WithNames => "with-names",
            Self::New => "new",
            Self::Delete => "delete",
            Self::Where => "where",
            Self::WhereOther => "where-other",
            Self::WherePair => "where-pair",
            Self::DeleteWhere => "delete-where",
            Self::Buckets => "buckets",
            Self::OnBad => "on-bad",
            Self::OnDuplicateId => "on-duplicate-id",
            Self::OnMissing => "on-missing",
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
            Self::Text => "text",
            Self::MinJaccard => "min-jaccard",
            Self::Shingles => "shingles",
            Self::ShingleSize => "shingle-size",
            Self::Recall => "recall",
            Self::RecallOf => "recall_of",
            Self::Exact => "exact",
            Self::Degree => "degree",
            Self::BuildList => "build-list",
            Self::Alpha => "alpha",
            Self::Parts => "parts",
            Self::Part => "part",
            Self::Yes => "yes",
        }
    }

    /// Returns whether the option is a switch without a value.
    pub fn is_switch(self) -> bool {
        matches!(self, Self::NoIds | Self::Force | Self::Resume | Self::Exact | Self::Yes)
    }

    /// Returns a mention of the option with a value.
    pub fn with(self, value: impl Display) -> Mention {
        Mention { argument: self, value: Some(value.to_string()) }
    }
}

/// An option in a message, optionally with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mention {
    /// The option.
    pub argument: Argument,
    /// The value.
    pub value: Option<String>,
}

/// Formats the mention as words of a sentence, such as `on-bad skip`.
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

/// A message of one line, in which options are data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message(Vec<Piece>);

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self(vec![Piece::Text(Message::one_line(text))])
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Mention> for Message {
    fn from(Mention { argument, value }: Mention) -> Self {
        Self(vec![Piece::Mention(Mention { argument, value: value.map(Message::one_line) })])
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
    /// Returns the message. `spell` formats each option in it.
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

/// Builds a [`Message`] from texts and options: `message!["give ", Argument::OnBad.with("skip"), " to leave them
/// out"]`.
macro_rules! message {
    ($($part:expr),+ $(,)?) => {
        [$($crate::base::message::Message::from($part)),+].into_iter().collect::<$crate::base::message::Message>()
    };
}
pub(crate) use message;

impl Message {
    /// Replaces control characters, so that the text has one line. Names of columns and files and ids may contain any
    /// character.
    pub fn one_line(message: String) -> String {
        if !message.contains(char::is_control) {
            return message;
        }
        let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        message.chars().map(escaped).collect()
    }
}

/// Returns a text as one line of at most `characters_max` characters, followed by dots if it is cut.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_spell_options_for_the_caller() {
        let message = message!["row 3 is bad; give ", Argument::OnBad.with("skip"), format!(" or {}", "fix it")];
        assert_eq!(message.to_string(), "row 3 is bad; give on-bad skip or fix it");
        let flag = |Mention { argument, value }: &Mention| format!("--{}={}", argument.name(), value.as_ref().unwrap());
        assert_eq!(message.spelled(flag), "row 3 is bad; give --on-bad=skip or fix it");
    }

    #[test]
    fn messages_escape_control_characters() {
        let message = message!["column a\nb; give ", Argument::IdColumn.with("c\x1b[2J")];
        assert_eq!(message.to_string(), "column a\\nb; give id-column c\\u{1b}[2J");
    }
}
