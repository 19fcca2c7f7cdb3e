//! How the program is linked.

/// At a fixed address: else the loader writes to every page of its tables of addresses, some megabytes of memory that the smallest
/// budgets feel. Libraries, stacks and heap still lie where chance puts them.
fn main() {
    let is = |key: &str, value: &str| std::env::var(key).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
