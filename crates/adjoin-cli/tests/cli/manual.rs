//! The manual page and the shell completions, which are generated from the flags.

use crate::place::Place;

#[test]
fn the_manual_page_has_every_command_and_option() {
    let page = Place::new().done("man").out;
    assert!(page.contains(".TH") && page.matches(".SH NAME").count() > 8, "{page}");
    for words in [
        "join",
        "\\-\\-min\\-similarity",
        "\\-\\-keep\\-rule",
        "groundtruth",
        "\\-\\-stats",
        "2GiB or 80% of the machine or cgroup [default: 50%]",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn each_command_has_a_page_of_its_own() {
    let place = Place::new();
    let page = place.done("man index build").out;
    assert!(page.contains(".TH") && page.contains("\\-\\-degree") && page.matches(".SH NAME").count() == 1, "{page}");
    place.refused("man index split", &["index", "no command split", "build, relayout"]);
    std::fs::create_dir(place.path("man1")).unwrap();
    place.done("man -o man1");
    for name in ["adjoin.1", "adjoin-join.1", "adjoin-index-build.1", "adjoin-collection-write.1", "adjoin-flash-run.1"]
    {
        let page = place.text(&format!("man1/{name}"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}");
    }
    place.refused("man -o nowhere", &["nowhere", "cannot write"]);
}

#[test]
fn options_with_files_complete_files_and_choices_their_values() {
    let script = Place::new().done("completions zsh").out;
    assert!(script.contains("_files") && script.contains("pairs counts clusters removed kept"), "{script}");
}

#[test]
fn defaults_can_be_set_in_the_environment() {
    let place = Place::new();
    place.done("gen --rows 100 --dimensions 4 -o set.fbin --quiet");
    let refused = |words: &[&str], name: &str, value: &str| {
        let output = place.command(words).env(name, value).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let join = ["join", "set.fbin", "--eps", "1"];
    let (code, said) = refused(&join, "ADJOIN_MEMORY", "lots");
    assert!(code == Some(2) && said.contains("lots is not a size"), "{said}");
    let (code, said) = refused(&join, "ADJOIN_THREADS", "many");
    assert!(code == Some(2) && said.contains("--threads"), "{said}");
    let given = ["join", "set.fbin", "--eps", "1", "--memory", "100MB", "--threads", "1"];
    let (code, said) = refused(&given, "ADJOIN_MEMORY", "lots");
    assert!(code == Some(0) && said.contains("the budget is 100.0 MB"), "{said}");
}

#[test]
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Place::new().done(&format!("completions {shell}")).out;
        assert!(script.contains("groundtruth") && script.contains("keep-rule"), "{shell}: {script}");
    }
    Place::new().refused("completions dos", &["dos", "bash"]);
}
