use std::path::Path;

use adjoin::{Error, Result};
use clap::{Command, CommandFactory};

use crate::Outcome;
use crate::args::{Arguments, Completions, Man};
use crate::print::print;

/// Prints the manual page of a command, or the pages of all commands. If a folder is given, writes each page to a
/// file.
pub(crate) fn man(arguments: &Man) -> Result<Outcome> {
    let mut command = Arguments::command();
    command.build(); // passes global names on to the subcommands
    match (&arguments.output, &arguments.command[..]) {
        (Some(folder), _) => write_pages(&command, folder)?,
        (None, []) => print(&pages(&command)?.into_iter().map(|page| page.text).collect::<String>())?,
        (None, words) => print(&page(find(&command, words)?)?.text)?,
    }
    Ok(Outcome::Done)
}

/// A manual page.
struct Page {
    /// Name of its file.
    name: String,
    text: String,
}

/// Returns the page of a command, without the pages of its subcommands.
fn page(command: &Command) -> Result<Page> {
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut text);
    rendered.map_err(|error| Error::device(format!("cannot write the manual page: {error}")))?;
    // The display name contains the names of the parent commands, e.g. `adjoin-index-build`.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    Ok(Page { name: format!("{name}.1"), text: String::from_utf8_lossy(&text).into_owned() })
}

/// Returns the pages of a command and of its subcommands at every depth.
fn pages(command: &Command) -> Result<Vec<Page>> {
    let mut all = vec![page(command)?];
    // clap adds the command `help`, which needs no page.
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        all.append(&mut pages(command)?);
    }
    Ok(all)
}

/// Returns the subcommand with a name of several words, such as `index build`.
fn find<'a>(command: &'a Command, words: &[String]) -> Result<&'a Command> {
    words.iter().try_fold(command, |command, word| {
        command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = command.get_subcommands().map(Command::get_name).collect();
            let give =
                if names.is_empty() { "leave it out".to_owned() } else { format!("give one of {}", names.join(", ")) };
            Error::option(format!("{} has no command {word}; {give}", command.get_name()))
        })
    })
}

fn write_pages(command: &Command, folder: &Path) -> Result<()> {
    for Page { name, text } in pages(command)? {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .map_err(|error| Error::device(format!("cannot write {}: {error}", path.display())).caused_by(error))?;
    }
    Ok(())
}

pub(crate) fn completions(arguments: &Completions) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "adjoin", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}
