//! Output generated from the flags: the manual page and shell completions.

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
fn shells_complete_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Place::new().done(&format!("completions {shell}")).out;
        assert!(script.contains("groundtruth") && script.contains("keep-rule"), "{shell}: {script}");
    }
    Place::new().refused("completions dos", &["dos", "bash"]);
}
