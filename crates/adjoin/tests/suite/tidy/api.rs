//! The public interface of the engine, which consists of the names at the root of its crate.

use super::scan::{blank, heads, line_of, words};
use super::{Finding, PRODUCTS, PUBLIC_NAMES_MAX};

/// The file that lists the interface in `pub use`.
pub(crate) const ROOT: &str = "crates/adjoin/src/lib.rs";

/// Returns findings for public modules other than `lab`, and for too many public names.
pub(crate) fn oversized(source: &str) -> Vec<Finding> {
    let code = blank(source);
    let modules = words(&code, "pub mod").filter(|at| !code[*at..].starts_with("pub mod lab;")).map(|at| {
        let instead = "make it private, and list what users need in a `pub use`";
        Finding::new(ROOT, line_of(&code, at), "a public module", instead)
    });
    let count = public_names(source).len();
    let too_many = (count > PUBLIC_NAMES_MAX).then(|| {
        let what = format!("{count} public names, at most {PUBLIC_NAMES_MAX}");
        Finding::new(ROOT, 1, what, "make a method of a function, or give the name to its only user")
    });
    modules.chain(too_many).collect()
}

/// Returns the names that `pub use` brings to the root, as users write them.
pub(crate) fn public_names(source: &str) -> Vec<String> {
    let code = blank(source);
    let mut names = Vec::new();
    for start in words(&code, "pub use") {
        let end = start + code[start..].find(';').expect("a `use` ends");
        let paths = code[start + "pub use".len()..end].split(['{', '}', ',']).map(str::trim);
        let last = |path: &str| path.rsplit([' ', ':']).next().unwrap_or(path).to_owned();
        names.extend(paths.filter(|path| !path.is_empty() && !path.ends_with("::")).map(last));
    }
    names
}

/// Returns names that none of `users` contains.
pub(crate) fn unused<'a>(names: &'a [String], users: &[String]) -> Vec<&'a str> {
    let is_used = |name: &&str| users.iter().any(|code| words(code, name).next().is_some());
    names.iter().map(String::as_str).filter(|name| !is_used(name)).collect()
}

/// Returns uses of `adjoin::lab` in a product.
pub(crate) fn uses_of_lab(path: &str, source: &str) -> Vec<Finding> {
    if !PRODUCTS.iter().any(|product| path.starts_with(product)) {
        return Vec::new();
    }
    let code = blank(source);
    let named = words(&code, "adjoin").flat_map(|at| heads(&code, at + "adjoin".len()));
    let instead = "use the root of the crate; if it lacks what is needed, add a method there";
    let uses = named.filter(|(_, name)| *name == "lab");
    uses.map(|(at, _)| Finding::new(path, line_of(&code, at), "a product uses `adjoin::lab`", instead)).collect()
}

#[test]
fn canary_public_modules_and_names_are_found() {
    let source = "mod a;\npub mod lab;\npub mod b;\n// pub mod c;\npub use a::{A, inner::B as C};\npub use a::d;\n";
    assert_eq!(public_names(source), ["A", "C", "d"]);
    assert_eq!(oversized(source).iter().map(|finding| finding.line).collect::<Vec<_>>(), [3]);
    let many: String = (0..=PUBLIC_NAMES_MAX).map(|k| format!("pub use a::N{k};\n")).collect();
    assert_eq!(oversized(&many).len(), 1);
}

#[test]
fn canary_names_without_a_user_are_found() {
    let names = ["Store".to_owned(), "Stores".to_owned()];
    assert_eq!(unused(&names, &["use adjoin::Stores;".to_owned()]), ["Store"]);
}

#[test]
fn canary_uses_of_lab_in_products_are_found() {
    let lines = |path: &str| {
        let source = "use adjoin::lab::plan::Rule;\nuse adjoin::{Store, lab::{x, y}};\n// adjoin::lab\nlab::run();\n";
        uses_of_lab(path, source).iter().map(|finding| finding.line).collect::<Vec<_>>()
    };
    assert_eq!(lines("python/src/lib.rs"), [1, 2]);
    assert_eq!(lines("lab/src/main.rs"), [0usize; 0]);
}
