//! Flags of `adjoin man` and `adjoin completions` as typed.

use std::path::PathBuf;

use clap::{Args, ValueHint};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin man join | man -l -\n  adjoin man -o /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Command whose page is printed, e.g. join or index build [default: all pages]
    #[arg(value_name = "COMMAND", conflicts_with = "output")]
    pub(crate) command: Vec<String>,
    /// Folder of the pages, one file each, e.g. adjoin-join.1; existing pages are replaced [default: standard output]
    #[arg(short, long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  adjoin completions bash > ~/.local/share/bash-completion/completions/adjoin\n  \
    adjoin completions zsh > \"${fpath[1]}/_adjoin\"")]
pub(crate) struct Completions {
    /// Shell to complete commands for
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}
