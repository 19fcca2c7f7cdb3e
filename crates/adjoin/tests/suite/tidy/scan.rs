//! Scans Rust source. Comments and literals are blanked byte for byte first, so that offsets stay the same.

use std::ops::Range;

use super::{FILE_LINES_MAX, FUNCTION_LINES_MAX, Finding, TEST_FILE_LINES_MAX, UNSAFE_HOMES};

/// Words that an item may start with.
const ITEM_WORDS: &[&str] = &[
    "async",
    "const",
    "enum",
    "extern",
    "fn",
    "impl",
    "macro_rules",
    "mod",
    "pub",
    "static",
    "struct",
    "trait",
    "type",
    "unsafe",
    "use",
];

/// A function and its number of lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) lines: usize,
}

/// Returns findings for functions that are longer than the limit, including tests.
pub(crate) fn long_functions(path: &str, source: &str) -> Vec<Finding> {
    let long = functions(&blank(source)).into_iter().filter(|function| function.lines > FUNCTION_LINES_MAX);
    long.map(|function| {
        let what = format!("{} lines in fn {}, at most {FUNCTION_LINES_MAX}", function.lines, function.name);
        Finding::new(path, function.line, what, "give its steps names of their own")
    })
    .collect()
}

/// Returns a finding if a file is longer than the limit. Tests in a source file do not count.
pub(crate) fn long_file(path: &str, source: &str) -> Option<Finding> {
    let whole = blank(source);
    let test_lines: usize = test_items(&whole).into_iter().map(|item| whole[item].lines().count()).sum();
    let lines = source.lines().count() - test_lines;
    let max = if path.contains("/tests/") { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
    let what = format!("{lines} lines without tests, at most {max}");
    (lines > max).then(|| Finding::new(path, 1, what, "split it where it changes its subject"))
}

/// Sorts findings by the number at the start of their text, largest first.
pub(crate) fn worst_first(mut findings: Vec<Finding>) -> Vec<Finding> {
    let number = |finding: &Finding| finding.what.split(' ').next().and_then(|word| word.parse::<usize>().ok());
    findings.sort_by_key(|finding| std::cmp::Reverse(number(finding)));
    findings
}

/// Returns findings for uses of `unsafe` in a file that may not contain it.
pub(crate) fn unsafe_outside_its_homes(path: &str, source: &str) -> Vec<Finding> {
    if UNSAFE_HOMES.iter().any(|home| path.starts_with(home)) {
        return Vec::new();
    }
    let code = blank(source);
    let instead = format!("put a safe function into {}", UNSAFE_HOMES.join(" or "));
    words(&code, "unsafe").map(|at| Finding::new(path, line_of(&code, at), "`unsafe`", instead.as_str())).collect()
}

/// Replaces comments, strings and characters by spaces. Line breaks are kept.
pub(crate) fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        erase(&mut code, at..end.unwrap_or(at));
        at = end.unwrap_or(at + 1);
    }
    String::from_utf8(code).expect("whole characters were replaced")
}

/// Blanks the items under `#[cfg(test)]` in blanked code.
pub(crate) fn without_tests(code: &str) -> String {
    let mut kept = code.as_bytes().to_vec();
    for item in test_items(code) {
        erase(&mut kept, item);
    }
    String::from_utf8(kept).expect("whole characters were replaced")
}

/// Returns the functions with a body, in order, in blanked code.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    let function = |at: usize| {
        let start = skip_space(code, at + 2);
        let name = &code[start..identifier_end(code, start)];
        let end = item_end(code, start + name.len())?;
        let lines = code[at..end].lines().count();
        let has_body = !name.is_empty() && code[..end].ends_with('}');
        has_body.then(|| Function { name: name.to_owned(), line: line_of(code, at), lines })
    };
    words(code, "fn").filter_map(function).collect()
}

/// Returns the name after the `::` that follows `at`. If a group follows, returns the first name of each of its
/// members.
pub(crate) fn heads(code: &str, at: usize) -> Vec<(usize, &str)> {
    let at = skip_space(code, at);
    if !code[at..].starts_with("::") {
        return Vec::new();
    }
    let at = skip_space(code, at + 2);
    if !code[at..].starts_with('{') {
        return vec![head(code, at)];
    }
    let end = closing(code, at) - 1;
    let mut found = Vec::new();
    let mut member = at + 1;
    while member < end {
        member = skip_space(code, member);
        if member < end {
            found.push(head(code, member));
        }
        member = member_end(code, member, end) + 1;
    }
    found
}

/// Returns the offsets at which `word` occurs as a separate word.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let alone = move |at: &usize| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    };
    code.match_indices(word).map(|(at, _)| at).filter(alone)
}

/// Returns the ranges inside the braces of all inline modules, in blanked code.
pub(crate) fn inline_modules(code: &str) -> Vec<Range<usize>> {
    let inside = |at: usize| {
        let name = skip_space(code, at + 3);
        let open = skip_space(code, identifier_end(code, name));
        code[open..].starts_with('{').then(|| open..closing(code, open))
    };
    words(code, "mod").filter_map(inside).collect()
}

/// Returns the number of the line that contains `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count()
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn erase(code: &mut [u8], range: Range<usize>) {
    code[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
}

/// Returns the end of the comment or literal that starts at `at`. Returns `None` if none starts there.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        let length = rest.iter().position(|&byte| byte == b'\n');
        return Some(length.map_or(bytes.len(), |length| at + length));
    }
    if rest.starts_with(b"/*") {
        return Some(block_comment_end(bytes, at));
    }
    match rest[0] {
        b'"' => Some(string_end(bytes, at)),
        b'\'' => character_end(bytes, at),
        b'r' | b'b' | b'c' => raw_string_end(bytes, at),
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    bytes.len().min(at + 1)
}

/// Returns the end of a character literal. Returns `None` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    let first = *bytes.get(at + 1)?;
    if first == b'\\' {
        // The search starts after the escaped character, which may be a quote.
        let quote = bytes.get(at + 3..)?.iter().position(|&byte| byte == b'\'')?;
        return Some(at + 3 + quote + 1);
    }
    let width = match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    };
    (bytes.get(at + 1 + width) == Some(&b'\'')).then_some(at + width + 2)
}

/// Returns the end of a literal such as `r"..."` or `br#"..."#`. Returns `None` for a name such as `r#type`.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let inside_a_name = start > 0 && (bytes[start - 1].is_ascii_alphanumeric() || bytes[start - 1] == b'_');
    let marker = start + usize::from(bytes[start] != b'r');
    if inside_a_name || bytes.get(marker) != Some(&b'r') {
        return None;
    }
    let hashes = bytes[marker + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let open = marker + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let close = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let length = bytes[open + 1..].windows(close.len()).position(|window| window == close);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + close.len()))
}

/// Returns the ranges of items under `#[cfg(test)]` or `#[cfg(all(test, ...))]` in blanked code, including the
/// attribute.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = code[at..].find("#[") {
        let start = at + next;
        at = closing(code, start + 1);
        let attribute: String = code[start..at].split_whitespace().collect();
        let of_tests = attribute == "#[cfg(test)]" || attribute.starts_with("#[cfg(all(test,");
        let item = skip_attributes(code, at);
        let word = &code[item..identifier_end(code, item)];
        if let (true, Some(end)) = (of_tests && ITEM_WORDS.contains(&word), item_end(code, item)) {
            found.push(start..end);
            at = end;
        }
    }
    found
}

fn skip_attributes(code: &str, at: usize) -> usize {
    let mut at = skip_space(code, at);
    while code[at..].starts_with("#[") {
        at = skip_space(code, closing(code, at + 1));
    }
    at
}

/// Returns the end of an item, given an offset in its head: its semicolon, or the brace that closes its first block.
fn item_end(code: &str, mut at: usize) -> Option<usize> {
    while let Some(&byte) = code.as_bytes().get(at) {
        match byte {
            b'(' | b'[' => at = closing(code, at),
            b'{' => return Some(closing(code, at)),
            b';' => return Some(at + 1),
            b')' | b']' | b'}' => return None,
            _ => at += 1,
        }
    }
    None
}

/// Returns the offset after the bracket that closes the bracket at `open`, or the end of the code.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Returns the offset of the comma that ends the member of a group that begins at `start`, or the end of the group.
fn member_end(code: &str, start: usize, end: usize) -> usize {
    let mut at = start;
    while at < end && code.as_bytes()[at] != b',' {
        at = if code.as_bytes()[at] == b'{' { closing(code, at) } else { at + 1 };
    }
    at.min(end)
}

fn head(code: &str, at: usize) -> (usize, &str) {
    let end = if code[at..].starts_with('*') { at + 1 } else { identifier_end(code, at) };
    (at, &code[at..end])
}

fn skip_space(code: &str, at: usize) -> usize {
    let rest = code.get(at..).unwrap_or_default();
    code.len() - rest.trim_start().len()
}

fn identifier_end(code: &str, at: usize) -> usize {
    let rest = &code[at..];
    at + rest.find(|letter| !is_name(letter) && letter != '$').unwrap_or(rest.len())
}

/// Returns a function of `lines` lines.
fn function_of(lines: usize) -> String {
    format!("fn long(&self) {{\n{}}}\n", "    step();\n".repeat(lines - 2))
}

#[test]
fn canary_a_function_of_71_lines_is_found() {
    let source = format!("// first\n\nimpl X {{\n{}}}", function_of(71));
    let found = long_functions("a.rs", &source);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].what.as_str()), (4, "71 lines in fn long, at most 70"));
    assert_eq!(long_functions("a.rs", &function_of(70)), []);
    let worst = worst_first(long_functions("a.rs", &[function_of(71), function_of(120)].concat()));
    assert!(worst[0].what.starts_with("120 lines"), "{worst:?}");
}

#[test]
fn canary_a_file_of_601_lines_is_found_and_tests_do_not_count() {
    let line = "const A: u8 = 1;\n";
    let tests = format!("#[cfg(test)]\n#[allow(dead_code)]\nmod tests {{\n{}}}\n", line.repeat(500));
    assert_eq!(long_file("a.rs", &(line.repeat(600) + &tests)), None);
    let found = long_file("a.rs", &(line.repeat(601) + &tests)).expect("one line too many");
    assert_eq!(found.what, "601 lines without tests, at most 600");
    assert_eq!(long_file("crates/a/tests/b.rs", &line.repeat(800)), None);
    assert!(long_file("crates/a/tests/b.rs", &line.repeat(801)).is_some());
}

#[test]
fn canary_unsafe_is_found_only_outside_the_allowed_crates() {
    let source = "#![forbid(unsafe_code)]\n// unsafe\nlet a = \"unsafe\";\nunsafe { go() }\n";
    let found = unsafe_outside_its_homes("crates/adjoin/src/lib.rs", source);
    assert_eq!(found.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    assert_eq!(unsafe_outside_its_homes("crates/adjoin-kernels/src/x86.rs", source), []);
}

#[test]
fn only_literals_and_comments_are_blanked() {
    let cases = [
        ("a // fn\nb", "a      \nb"),
        ("a /* x /* y */ z\n */ b", "a                \n    b"),
        ("a\"\\\"{\"b", "a     b"),
        ("a r#\"}\"{\"# b", "a           b"),
        ("br\"\\\"+r#type", "     +r#type"),
        ("f('{', '\\'', b'\\\\', 'é', '\\u{7d}')", "f(   ,     , b    ,     ,         )".trim_end()),
        ("fn f<'a>(x: &'a str) {'l: loop {}}", "fn f<'a>(x: &'a str) {'l: loop {}}"),
        ("for\"x\"", "for   "),
        ("é\"é\"é", "é    é"),
    ];
    for (source, code) in cases {
        let blanked = blank(source);
        assert_eq!(blanked.len(), source.len(), "{source}");
        assert_eq!(blanked.split_whitespace().collect::<Vec<_>>(), code.split_whitespace().collect::<Vec<_>>());
    }
    for open in ["\"never closed \\", "r#\"never closed\"", "/* never closed", "'", "'\\", "b'"] {
        assert_eq!(blank(open).len(), open.len(), "{open}");
    }
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let source = "trait T { fn none(&self, a: [u8; 2]); }\ntype F = fn(u8) -> u8;\nconst fn one() -> [u8; 1] { [1] }\n\
                  fn three<const N: usize>(a: [u8; N])\nwhere T: X {\n}\nmacro_rules! m { () => { fn $name() {} } }\n";
    let found = functions(&blank(source));
    let found: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
    assert_eq!(found, [("one", 3, 1), ("three", 4, 3), ("$name", 7, 1)]);
}

#[test]
fn skips_test_items_of_every_kind() {
    let source = "use a;\n#[cfg(test)]\nuse b::{c, d};\n#[cfg(all(test, unix))]\n#[inline]\nfn e() { f[0] }\n\
                  #[cfg(not(test))]\nfn g() {}\n#[cfg(test)]\nmod h;\nfn i() {}\n";
    let kept: Vec<_> = without_tests(source).split_whitespace().map(str::to_owned).collect();
    assert_eq!(kept.join(" "), "use a; ; #[cfg(not(test))] fn g() {} fn i() {}");
}

#[test]
fn heads_of_use_groups_are_found() {
    let code = "use crate::{ error::{Error, Result}, plan :: order,\n store::*, };";
    let names: Vec<_> = heads(code, 9).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["error", "plan", "store"]);
    assert_eq!(heads("crate :: * ;", 5), [(9, "*")]);
    assert_eq!(heads("pub(crate) fn", 9), []);
}
