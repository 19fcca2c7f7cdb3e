//! The `adjoin` command.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: adjoin::device::MappedBlocks = adjoin::device::MappedBlocks;

fn main() -> ExitCode {
    adjoin::device::spare_memory();
    ExitCode::from(adjoin_cli::run(std::env::args_os()))
}
