use adjoin::error::{Error, Result};
use clap::CommandFactory;

use crate::Outcome;
use crate::args::{Arguments, Completions};
use crate::print::print;

/// Prints the manual page: the command, then each of its subcommands.
pub(crate) fn man() -> Result<Outcome> {
    let mut command = Arguments::command();
    command.build(); // passes global names on to the subcommands
    let mut page = Vec::new();
    let all = std::iter::once(&command).chain(command.get_subcommands().filter(|command| command.get_name() != "help"));
    for command in all {
        let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
        rendered.map_err(|error| Error::device(format!("cannot write the manual page: {error}")))?;
    }
    print(&String::from_utf8_lossy(&page))?;
    Ok(Outcome::Done)
}

pub(crate) fn completions(arguments: &Completions) -> Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "adjoin", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Done)
}
