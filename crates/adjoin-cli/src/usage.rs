//! Errors about flags, in one line, with advice for likely mistakes.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches};

use crate::WRONG;

/// Commands that compare vectors, and so need a threshold.
const COMPARE: &[&str] = &["join", "dedupe", "explain", "groundtruth"];
/// Commands that write a table in the format of its file extension.
const WRITE_TABLES: &[&str] = &["join", "groundtruth"];
const BUILD: &[&str] = &["build"];
const EVERY: &[&str] = &[];

/// Wrong flags that users are likely to try, the commands for which the advice applies (all if empty), and the
/// advice.
type Guess = (&'static [&'static str], &'static [&'static str], &'static str);

const GUESSES: [Guess; 11] = [
    (
        &["--k", "--top-k", "--nearest", "--neighbours"],
        &["join", "search"],
        "-k K (--neighbors K) finds the K nearest rows",
    ),
    (
        &["--metric"],
        COMPARE,
        "the threshold decides the metric: --eps is a distance (L2), --min-similarity a similarity (cosine)",
    ),
    (
        &["--threshold", "--distance", "--max-distance", "--l2", "--cosine", "--similarity"],
        COMPARE,
        "give --eps for a distance (L2), or --min-similarity for a similarity (cosine)",
    ),
    (
        &["-k", "--k", "--top-k", "--nearest", "--neighbors", "--neighbours"],
        COMPARE,
        "this finds all pairs within a threshold, not the k nearest; explain lists how many neighbors a threshold gives",
    ),
    (
        &["--eps", "--min-similarity", "--threshold", "--recall", "--exact"],
        BUILD,
        "a store serves every threshold and recall; give them to join",
    ),
    (&["--metric"], &["info", "verify"], "a store has one metric, chosen when it was built"),
    (
        &["--out", "--outfile", "--output-file", "--format", "--save"],
        WRITE_TABLES,
        "-o FILE names the result; its extension is the format",
    ),
    (&["--attributes"], EVERY, "--columns C,... names the columns to keep"),
    (&["-j", "--jobs", "-t"], EVERY, "--threads sets the number of compute threads"),
    (&["--overwrite", "-f", "-y"], EVERY, "--force replaces existing output"),
    (&["-q", "--silent"], EVERY, "--quiet prints neither progress nor summary"),
];

/// Parses a command line. A negative number after an option is parsed as its value, not as another option.
///
/// # Errors
/// If the command line is invalid.
pub(crate) fn parse<C: CommandFactory + FromArgMatches>(words: &[OsString]) -> Result<C, clap::Error> {
    let mut command = with_negative_numbers(C::command());
    // The error of clap does not name the word that is not UTF-8.
    let not_text = words.iter().find(|word| word.to_str().is_none());
    let matches = command.try_get_matches_from_mut(words).map_err(|error| match (error.kind(), not_text) {
        (ErrorKind::InvalidUtf8, Some(word)) => {
            clap::Error::raw(ErrorKind::InvalidUtf8, format!("{word:?} is not UTF-8; rename the file or folder"))
        }
        _ => error,
    })?;
    C::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn with_negative_numbers(command: Command) -> Command {
    let option = |argument: Arg| match argument.is_positional() || !argument.get_action().takes_values() {
        true => argument,
        false => argument.allow_negative_numbers(true),
    };
    command.mut_args(option).mut_subcommands(with_negative_numbers)
}

/// Prints an error about the flags of `command` in one line. Prints help and version unchanged. Returns the exit
/// code.
pub(crate) fn refuse(mut error: clap::Error, command: Option<&str>) -> u8 {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return if error.use_stderr() { WRONG } else { 0 };
    }
    advise(&mut error, command.unwrap_or_default());
    let text = error.render().to_string();
    // Messages of adjoin have one line, so the usage that clap adds below its message is cut off.
    let said = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .fold(&*text, |text, end| text.split(end).next().unwrap_or(text));
    let said = said.trim_start_matches("error: ").replace("\n\n", "; ");
    // Replaces messages of the standard library that name no remedy.
    let said = said.replace("invalid digit found in string", "give a whole number, such as 10");
    let said = said.replace("invalid float literal", "give a number, such as 0.95");
    let said = said.replace("'--neighbors <K>'", "'-k <K>, --neighbors <K>'");
    let said = said.replace("number too large to fit in target type", "give a smaller number");
    eprintln!("adjoin: {}; see --help", said.split_whitespace().collect::<Vec<_>>().join(" "));
    WRONG
}

/// Commands that exist only if the program is built with the feature `serve`.
const OF_SERVER: [&str; 2] = ["serve", "bench-serve"];

/// Replaces clap's suggestions, which are based on spelling alone, by our advice if there is one.
fn advise(error: &mut clap::Error, command: &str) {
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand)
        && OF_SERVER.contains(&given.as_str())
    {
        let advice = "this adjoin was built without its server; build one with `make build`";
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
        return;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    let advice = match error.kind() {
        ErrorKind::UnknownArgument => {
            let is_it = |(guesses, commands, _): &&Guess| {
                guesses.contains(&given.as_str()) && (commands.is_empty() || commands.contains(&command))
            };
            GUESSES.iter().find(is_it).map(|(_, _, advice)| *advice)
        }
        ErrorKind::InvalidValue if given.starts_with("--result ") => Some("-o FILE names the result"),
        _ => return,
    };
    error.remove(ContextKind::Suggested); // clap suggests to pass the flag as a value, which no user intends
    if let Some(advice) = advice {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
    }
}
