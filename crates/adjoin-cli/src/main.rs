//! The `adjoin` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    adjoin::device::spare_memory();
    ExitCode::from(adjoin_cli::run(std::env::args_os()))
}
