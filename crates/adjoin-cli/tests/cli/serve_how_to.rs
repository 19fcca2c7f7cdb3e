//! Runs all commands of the how-to about the server in one shell, in their order.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use crate::inputs::sample;
use crate::place::{Place, skip};

/// Ports in the how-to. They are replaced by free ports.
const PORTS: [u16; 6] = [7700, 7701, 7702, 7703, 7704, 7705];

#[test]
fn the_how_to_about_the_server_runs() {
    for program in ["curl", "python3", "openssl"] {
        if !Command::new(program).arg("--help").output().is_ok_and(|output| output.status.success()) {
            return skip(program, &format!("{program} is not there"));
        }
    }
    let place = Place::new();
    fs::copy(sample(), place.path("embeddings.parquet")).unwrap();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to-serve.md")).unwrap();
    let mut script = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n".to_owned();
    let mut blocks = 0;
    for block in text.split("\n```").skip(1).step_by(2) {
        let (language, lines) = block.split_once('\n').unwrap();
        script += &match language {
            "sh" => format!("{lines}\n"),
            "python" => format!("python3 - <<'END OF PYTHON'\n{lines}\nEND OF PYTHON\n"),
            _ => panic!("a block of {language}"),
        };
        blocks += 1;
    }
    assert!(blocks >= 8, "{blocks} blocks");
    // All listeners are kept until all ports are chosen, so that the ports differ.
    let free = PORTS.map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = free.each_ref().map(|free| free.local_addr().unwrap().port());
    let default = "adjoin serve embeddings.store --memory 256MB";
    script = script.replace(&format!("{default} &"), &format!("{default} --listen 127.0.0.1:{} &", PORTS[0]));
    for (port, free) in PORTS.iter().zip(ports) {
        script = script.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{free}"));
    }
    drop(free);
    let programs = Path::new(env!("CARGO_BIN_EXE_adjoin")).parent().unwrap().display();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    let ran = bash.args(["-c", &script]).env("PATH", path).current_dir(place.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{:?}: {}\n{said}", ran.status, String::from_utf8_lossy(&ran.stdout));
    let out = String::from_utf8_lossy(&ran.stdout);
    for words in [
        "\"similarity\":",
        "queries have 2 dimensions",
        "answered (",
        "\"id\":\"first\",\"distance\":1",
        "\"deleted\":1",
    ] {
        assert!(out.contains(words), "{words} is not in {out}");
    }
}
