//! Checks that paths in documents exist.
//!
//! The checks cover code spans (in one or more backticks) and relative links, except in fenced blocks. They are
//! applied to documents in the root, under docs/, and to fixtures/README.md.
//!
//! First, `{a,b}` in a code span is expanded, and a line number such as `:12` at its end is removed. The span is a
//! path of the repository if it consists only of letters, digits and `_ . - / *`, and
//!
//! - ends in .rs, .md or .toml, or
//! - has a slash and starts with an entry of the root or with a folder of [`LAYOUT`], or
//! - ends in a slash and is in a document about the tree ([`ABOUT_THE_TREE`]).
//!
//! Thus `repo:src/db.rs`, `I/O`, `text/plain` and a user's `vectors/part-0.parquet` are not such paths. A path exists
//! if it is in the tree, relative to the root or to the document's folder. It also exists if it is the end of a path
//! in the tree: `plan/order.rs` stands for `crates/adjoin/src/plan/order.rs`. If a path has a `*`, the folders before
//! the `*` must exist. A link must lead to a file or folder, relative to the document's folder.

use super::Finding;
use super::tree::Tree;

/// Folders that count as part of the repository even if they do not exist.
const LAYOUT: &[&str] = &[".ci", "bench", "crates", "docs", "fixtures", "fuzz", "python"];

/// Documents in which `name/` is always a folder of the repository.
const ABOUT_THE_TREE: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Returns whether the paths in a file are checked. The changelog is exempt, since it may name deleted files.
pub(crate) fn is_document(path: &str) -> bool {
    path.ends_with(".md")
        && path != "CHANGELOG.md"
        && (!path.contains('/') || path.starts_with("docs/") || path.starts_with("fixtures/"))
}

/// Returns findings for code spans and links of a document that lead to nothing in the tree.
pub(crate) fn dead_paths(tree: &Tree, document: &str, text: &str) -> Vec<Finding> {
    let text = without_fences(text);
    let folder = document.rsplit_once('/').map_or("", |(folder, _)| folder);
    let instead = "name what is there now, or take the name out";
    let (prose, spans) = split_spans(&text);
    let mut found = Vec::new();
    for (at, span) in spans {
        let paths = written_out(span).into_iter().filter(|path| is_path(tree, document, path));
        let dead = paths.filter(|path| !exists(tree, folder, path));
        found.extend(dead.map(|path| (at, format!("`{path}` is not in the tree"), instead)));
    }
    for (at, target) in links(&prose).filter(|(_, target)| !leads_somewhere(tree, folder, target)) {
        found.push((at, format!("the link to {target} leads nowhere"), instead));
    }
    found.sort();
    let line = |at: usize| 1 + text[..at].matches('\n').count();
    found.into_iter().map(|(at, what, instead)| Finding::new(document, line(at), what, instead)).collect()
}

/// Blanks fenced blocks. The numbers of the lines do not change.
fn without_fences(text: &str) -> String {
    let mut fence = None;
    let mut kept = String::new();
    for line in text.lines() {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        let inside = fence.is_some() || mark.is_some();
        if mark.is_some() && (fence.is_none() || fence == mark) {
            fence = if fence.is_none() { mark } else { None };
        }
        kept.push_str(if inside { "" } else { line });
        kept.push('\n');
    }
    kept
}

/// Blanks code spans. Returns the remaining text, and the spans with their offsets. A span ends before a blank line.
fn split_spans(text: &str) -> (String, Vec<(usize, &str)>) {
    let mut prose = text.as_bytes().to_vec();
    let mut spans = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find('`') {
        let start = at + next;
        let ticks = text[start..].bytes().take_while(|&byte| byte == b'`').count();
        let inside = start + ticks;
        let paragraph = inside + text[inside..].find("\n\n").unwrap_or(text.len() - inside);
        let Some(length) = run_of_ticks(&text[inside..paragraph], ticks) else {
            at = inside;
            continue;
        };
        spans.push((start, text[inside..inside + length].trim()));
        at = inside + length + ticks;
        prose[start..at].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
    }
    (String::from_utf8(prose).expect("whole characters were replaced"), spans)
}

/// Returns the offset of the first run of exactly `count` backticks.
fn run_of_ticks(text: &str, count: usize) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = text[at..].find('`') {
        let length = text[at + next..].bytes().take_while(|&byte| byte == b'`').count();
        if length == count {
            return Some(at + next);
        }
        at += next + length;
    }
    None
}

/// Expands a span: `store/{centers,assign}.rs` stands for two paths. A line number such as `:12` at its end is
/// removed.
fn written_out(span: &str) -> Vec<String> {
    let ended = span.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let span = ended.strip_suffix(':').filter(|path| path.len() + 1 < span.len()).unwrap_or(span);
    let braces = span.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    match braces {
        Some((head, (names, tail))) => {
            names.split(',').flat_map(|name| written_out(&[head, name.trim(), tail].concat())).collect()
        }
        None => vec![span.to_owned()],
    }
}

fn is_path(tree: &Tree, document: &str, span: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.-/*".contains(letter);
    if span.is_empty() || span.starts_with('/') || !span.chars().all(is_plain) {
        return false;
    }
    let name = span.rsplit('/').next().unwrap_or_default();
    let is_source = [".rs", ".md", ".toml"].iter().any(|ending| name.len() > ending.len() && name.ends_with(ending));
    let first = span.split_once('/').map(|(first, _)| first);
    let is_ours = first.is_some_and(|first| first != ".." && (LAYOUT.contains(&first) || tree.has(first)));
    is_source || is_ours || (span.ends_with('/') && ABOUT_THE_TREE.contains(&document))
}

fn exists(tree: &Tree, folder: &str, path: &str) -> bool {
    let fixed = match path.find('*') {
        Some(star) => path[..star].rsplit_once('/').map_or("", |(folders, _)| folders),
        None => path,
    };
    let from_here = resolved(folder, fixed);
    fixed.is_empty() || tree.has_ending(fixed) || from_here.is_some_and(|path| tree.has(&path))
}

/// Returns the targets of `[text](target)` and `[name]: target`, with their offsets.
fn links(prose: &str) -> impl Iterator<Item = (usize, &str)> {
    let inline = prose.match_indices("](").filter_map(|(at, mark)| {
        let rest = &prose[at + mark.len()..];
        Some((at, &rest[..rest.find(')')?]))
    });
    let named = prose.match_indices("]: ").filter_map(|(at, mark)| {
        let starts_line = prose[..at].rsplit('\n').next().is_some_and(|head| head.starts_with('['));
        starts_line.then(|| (at, prose[at + mark.len()..].lines().next().unwrap_or_default()))
    });
    inline.chain(named).map(|(at, target)| {
        let target = target.split_whitespace().next().unwrap_or_default();
        (at, target.trim_matches(['<', '>']))
    })
}

fn leads_somewhere(tree: &Tree, folder: &str, target: &str) -> bool {
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    let path = target.split('#').next().unwrap_or_default();
    match path {
        "" => target.starts_with('#'),
        _ => is_elsewhere || resolved(folder, path).is_some_and(|path| tree.has(&path)),
    }
}

/// Resolves `path` in `folder` to a path from the root; `None` if it leaves the root or is empty.
fn resolved(folder: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    let slash = if path.ends_with('/') { "/" } else { "" };
    (!parts.is_empty()).then(|| parts.join("/") + slash)
}

fn example() -> Tree {
    let files = ["README.md", "docs/format.md", "docs/decisions/one.md", "crates/adjoin/src/plan/order.rs", "Makefile"];
    Tree::new(std::path::PathBuf::new(), files.map(str::to_owned))
}

/// Expected result without findings.
const NONE: [usize; 0] = [];

fn lines_found(document: &str, text: &str) -> Vec<usize> {
    dead_paths(&example(), document, text).iter().map(|finding| finding.line).collect()
}

#[test]
fn canary_dead_paths_are_found() {
    let text = "See `plan/order.rs`,\n`plan/cache.rs`, and ``crates/adjoin-gone``.\n\n`order.rs:12` and `plan/{order,\
                cut}.rs`\n`docs/*/x`\n`doc/` `bench/run` `crates/none/*`\n";
    assert_eq!(lines_found("ARCHITECTURE.md", text), [2, 2, 4, 6, 6, 6]);
    assert_eq!(lines_found("README.md", text), [2, 2, 4, 6, 6]);
}

#[test]
fn canary_dead_links_are_found() {
    let text = "[a](format.md#bytes) [b](decisions/) [c](../README.md)\n[d](README.md)\n[e]() [f](../../x.md)\n\
                [g]: decisions/two.md\n[h](https://example.org/x.md) [i](#here)\n";
    assert_eq!(lines_found("docs/format.md", text), [2, 3, 3, 4]);
}

#[test]
fn paths_outside_the_repository_are_ignored() {
    let spans = [
        "I/O",
        "repo:src/db.rs",
        "text/plain",
        "vectors/part-0.parquet",
        "/v1/x.rs",
        ".rs",
        "*.rs",
        "out/",
        "a b/c.rs",
    ];
    for span in spans {
        assert_eq!(lines_found("README.md", &format!("`{span}`")), NONE, "{span}");
    }
    assert_eq!(
        lines_found("README.md", "```sh\ncat `gone.rs` [x](gone.md)\n~~~\n```\n`one` ` `\n\nopen ` tick gone.rs"),
        NONE
    );
    assert_eq!(lines_found("docs/format.md", "`decisions/one.md` `../README.md` `format.md`"), NONE);
}

#[test]
fn documents_are_at_the_root_and_under_docs() {
    assert!(is_document("README.md") && is_document("docs/decisions/one.md") && is_document("fixtures/README.md"));
    assert!(!is_document("crates/adjoin/notes.md") && !is_document("docs/plot.py") && !is_document("CHANGELOG.md"));
}
