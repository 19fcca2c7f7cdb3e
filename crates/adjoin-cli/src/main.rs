//! The `adjoin` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjoin_cli::run(std::env::args_os())
}
