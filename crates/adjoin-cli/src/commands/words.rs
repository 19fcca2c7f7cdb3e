//! Words about folders of every kind.

use adjoin::{Error, IdKind, Result};
use serde::Serialize;

/// Formats a manifest as JSON.
pub(super) fn manifest_as_json(manifest: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(manifest);
    Ok(escaped(&text.map_err(|error| Error::corrupt(error.to_string()))?) + "\n")
}

/// Escapes the control characters that the JSON writer does not escape, so that a name in a file cannot control the
/// terminal.
pub(super) fn escaped(json: &str) -> String {
    let escaped = |c: char| match c {
        // Escaped as in JSON, so that the text is still valid JSON with the same names.
        c if c.is_control() && c != '\n' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    json.chars().map(escaped).collect()
}

/// Names a kind of ids.
pub(super) fn kind_of_ids(ids: IdKind) -> &'static str {
    match ids {
        IdKind::None => "none",
        IdKind::Int64 => "int64",
        IdKind::Utf8 => "utf8",
    }
}

/// Returns a line about the columns, if there are any.
pub(super) fn columns_in_words(attributes: &[(String, String)]) -> String {
    let all: Vec<String> = attributes.iter().map(|(name, kind)| format!("{name} ({kind})")).collect();
    if all.is_empty() { String::new() } else { format!("columns      {}\n", escaped(&all.join(", "))) }
}
