//! Habits of language that make text hard to read, in comments of Rust and Python, in messages, and in documents.
//!
//! [`BANNED`] lists phrases that no line may contain. [`STARTS`] lists words that must not start a doc comment, since
//! a reader sees the comment alone in an editor. [`RATES`] lists words that are sometimes right but must be rare.

use super::Finding;

/// Phrases that must not occur, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("so many", "the number or its letter: the K nearest, `limit` bytes"),
    ("so much", "the number or its letter"),
    ("so few", "the number or its letter"),
    ("whoever", "the caller, the thread, the user"),
    ("anew", "again"),
    ("told apart", "distinguished"),
    ("where there is", "if there is"),
    ("where there are", "if there are"),
    ("neighbour", "neighbor"),
    ("neighbours", "neighbors"),
    ("centre", "center"),
    ("centres", "centers"),
    ("behaviour", "behavior"),
    ("colour", "color"),
    ("licence", "license"),
    ("licences", "licenses"),
];

/// Words that must not start a doc comment, because the comment could then not be understood without its neighbors.
const STARTS: &[&str] = &["The same", "Of", "That of", "Those", "Such", "Whose"];

/// Words that are rare in clear text, with their maximum number per 1,000 words and what to write instead.
const RATES: &[(&[&str], f64, &str)] = &[
    (&["where"], 1.0, "if, when, unless; where is for places"),
    (&["told", "tell", "tells", "says", "said", "say"], 0.4, "reports, prints, returns, states"),
    (&["comes", "goes", "gone", "came", "come", "went"], 0.5, "is inserted, arrives, is deleted, is kept"),
    (&["who", "whose"], 1.0, "the caller, the thread, the user"),
    (&["beside", "behind"], 0.4, "next to, in addition to, compared with, after"),
    (&["the same"], 1.5, "name the thing again"),
];

/// Number of words, and number of occurrences of the words of [`RATES`], in lines of text.
#[derive(Default)]
pub(crate) struct Counts {
    words: usize,
    hits: [usize; RATES.len()],
}

impl Counts {
    /// Adds the words of one file.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        for (_, line) in prose(path, text) {
            let line = Words::new(line);
            self.words += line.count();
            for (hits, (words, _, _)) in self.hits.iter_mut().zip(RATES) {
                *hits += words.iter().map(|word| line.occurrences(word)).sum::<usize>();
            }
        }
    }

    /// Returns findings for words that occur too often.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let rate = |hits: usize| 1_000.0 * hits as f64 / self.words.max(1) as f64;
        let too_often = self.hits.iter().zip(RATES).filter(|(hits, (_, most, _))| rate(**hits) > *most);
        let finding = |(hits, (words, most, instead)): (&usize, &(&[&str], f64, &str))| {
            let words = words.join(", ");
            let what = format!("{words}: {:.2} of 1,000 words, at most {most} are clear", rate(*hits));
            Finding::new("(all text)", 0, what, *instead)
        };
        too_often.map(finding).collect()
    }
}

/// Returns findings for banned phrases in one file.
pub(crate) fn banned(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose(path, text).into_iter().chain(messages(path, text)) {
        let words = Words::new(line);
        for (phrase, instead) in BANNED.iter().filter(|(phrase, _)| words.occurrences(phrase) > 0) {
            findings.push(Finding::new(path, number, format!("\"{phrase}\""), *instead));
        }
    }
    findings
}

/// Returns findings for doc comments of Rust that start with words of [`STARTS`].
pub(crate) fn dependent_starts(path: &str, text: &str) -> Vec<Finding> {
    let is_doc = |line: &str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
    let mut findings = Vec::new();
    let mut follows_text = false;
    for (number, line) in text.lines().enumerate() {
        let body = if is_doc(line) { line.trim_start()[3..].trim() } else { "" };
        let start = STARTS.iter().find(|start| {
            body.strip_prefix(**start).is_some_and(|rest| rest.starts_with(|next: char| !next.is_alphanumeric()))
        });
        if let (Some(start), false) = (start, follows_text) {
            let what = format!("a doc comment starts with \"{start}\"");
            findings.push(Finding::new(path, number + 1, what, "start with a verb or a noun that stands alone"));
        }
        follows_text = !body.is_empty();
    }
    findings
}

/// Returns the lines of text for readers, with their numbers: comments of Rust and Python, and documents without code
/// blocks and tables.
fn prose<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let is_document = path.ends_with(".md");
    let comment = if path.ends_with(".rs") { "//" } else { "#" };
    let mut in_block = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        in_block ^= is_document && line.starts_with("```");
        let is_text = if is_document { !in_block && !line.starts_with('|') } else { line.starts_with(comment) };
        if is_text {
            lines.push((number + 1, line));
        }
    }
    lines
}

/// Returns the string literals of product code in Rust, with their line numbers. Literals that start with `--` are
/// left out, since options accept other spellings. A literal with escaped quotes is split.
fn messages<'a>(path: &str, text: &'a str) -> Vec<(usize, &'a str)> {
    let is_product = path.ends_with(".rs") && path.contains("/src/");
    let code = text.lines().enumerate().filter(|(_, line)| is_product && !line.trim_start().starts_with("//"));
    let literals =
        |(number, line): (usize, &'a str)| line.split('"').skip(1).step_by(2).map(move |literal| (number + 1, literal));
    code.flat_map(literals).filter(|(_, literal)| !literal.starts_with("--")).collect()
}

/// A line as lower-case words with one space around each.
struct Words(String);

impl Words {
    fn new(line: &str) -> Self {
        let words =
            line.split(|letter: char| !letter.is_alphanumeric() && letter != '\'').filter(|word| !word.is_empty());
        Self(words.fold(String::from(" "), |text, word| text + &word.to_lowercase() + " "))
    }

    fn count(&self) -> usize {
        self.0.split_whitespace().count()
    }

    fn occurrences(&self, phrase: &str) -> usize {
        self.0.matches(&format!(" {phrase} ")).count()
    }
}

#[test]
fn canary_banned_phrases_are_found() {
    let rust =
        "//! Reads.\n\n/// Bytes of so many rows.\nfn a() {} // fine\n\n/// Of rows.\n/// The same line goes on.\n";
    assert_eq!(banned("a.rs", rust).iter().map(|found| found.line).collect::<Vec<_>>(), [3]);
    assert_eq!(dependent_starts("a.rs", rust).iter().map(|found| found.line).collect::<Vec<_>>(), [6]);
    assert_eq!(banned("crates/a/src/a.rs", "fn a() { fail(\"build it anew\") }\n").len(), 1);
    let document = "Built anew.\n```\nanew\n```\n| anew |\n";
    assert_eq!(banned("a.md", document).iter().map(|found| found.line).collect::<Vec<_>>(), [1]);
    let mut counts = Counts::default();
    counts.add("a.py", "# It is told where it is told.\nwhere = told\n");
    assert_eq!(counts.findings().len(), 2);
}
