//! The command line of adjoin as a library, so that a Python console script can call it too.
//!
//! `args` has the flags as typed, `resolve` interprets them, and `commands` does the work. `report` writes the page of
//! `adjoin report`.

#[macro_use] // before the modules that print
mod print;

mod args;
mod commands;
mod progress;
mod remote_results;
mod report;
mod resolve;
mod signals;
mod usage;

use std::ffi::OsString;

pub use commands::read_statistics;
pub use report::{Names, Page, PageNames, PageSources, write_page};

use adjoin::{Argument, Error, ErrorKind, Mention};

use args::{Arguments, Command};
use remote_results::Uploads;

/// Exit code of a run that did not keep a promise.
const NOT_KEPT: u8 = 1;
/// Exit code of a run with wrong input or a wrong environment.
const WRONG: u8 = 2;

/// Outcome of a command that finished without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    PromiseNotKept,
}

/// Runs the command line `arguments`, which begins with the program's name. Returns the exit code: 0 if done, 1 if a
/// promise was not kept, 2 for wrong input or environment, 129, 130 or 143 if interrupted.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = arguments.into_iter().collect();
    let Arguments { mut command } = match usage::parse::<Arguments>(&words) {
        Ok(arguments) => arguments,
        Err(error) => return usage::refuse(error, words.get(1).and_then(|word| word.to_str())),
    };
    silence_caught_panics();
    let stopped = match signals::watch() {
        Ok(stopped) => stopped,
        Err(error) => return say_error(&error, &signals::Stopped::default()),
    };
    let result = Uploads::begin(&mut command, &stopped).and_then(|uploads| {
        let outcome = execute(command, &stopped)?;
        uploads.map_or(Ok(()), |uploads| uploads.finish(&stopped)).map(|()| outcome)
    });
    match result {
        Ok(Outcome::Done) => 0,
        Ok(Outcome::PromiseNotKept) => NOT_KEPT,
        Err(error) => say_error(&error, &stopped),
    }
}

fn execute(command: Command, stopped: &signals::Stopped) -> Result<Outcome, Error> {
    match command {
        Command::Build(arguments) => commands::build(&arguments, stopped),
        Command::Append(arguments) => commands::append(&arguments, stopped),
        Command::Join(arguments) => commands::join(&arguments, stopped),
        Command::Plan(arguments) => commands::plan(&arguments, stopped),
        Command::PlanBuild(arguments) => commands::plan_build(&arguments, stopped),
        Command::RunPart(arguments) => commands::run_part(&arguments, stopped),
        Command::Merge(arguments) => commands::merge(&arguments, stopped),
        Command::Dedupe(arguments) => commands::dedupe(&arguments, stopped),
        Command::Explain(arguments) => commands::explain(&arguments, stopped),
        Command::Info(arguments) => commands::info(&arguments),
        Command::Verify(arguments) => commands::verify(&arguments, stopped),
        Command::Copy(arguments) => commands::copy(&arguments, stopped),
        Command::Gen(arguments) => commands::generate(&arguments, stopped),
        Command::Search(arguments) => commands::search(&arguments, stopped),
        Command::Get(arguments) => commands::get(&arguments, stopped),
        Command::Index(arguments) => commands::index(&arguments, stopped),
        Command::Collection(arguments) => commands::collection(&arguments, stopped),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => commands::serve(&arguments, stopped),
        #[cfg(feature = "serve")]
        Command::BenchServe(arguments) => commands::bench_serve(&arguments, stopped),
        Command::Groundtruth(arguments) => commands::groundtruth(&arguments, stopped),
        Command::Report(arguments) => commands::report(&arguments, stopped),
        Command::Flash(arguments) => commands::flash(&arguments, stopped),
        Command::Man(arguments) => commands::man(&arguments),
        Command::Completions(arguments) => commands::completions(&arguments),
    }
}

/// Silences panics of third-party readers, which damaged files can cause. They are caught and become errors. Other
/// panics are still printed.
fn silence_caught_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !Error::replaces_panic() {
            print(panic);
        }
    }));
}

/// Formats an option as it is typed.
fn as_flag(Mention { argument, value }: &Mention) -> String {
    let flag = match argument {
        // The long name of this option is `--neighbors`, not `--k`.
        Argument::K => "-k ".to_owned(),
        _ if value.is_some() => format!("--{} ", argument.name()),
        _ => format!("--{}", argument.name()),
    };
    flag + value.as_deref().unwrap_or_default()
}

fn say_error(error: &Error, stopped: &signals::Stopped) -> u8 {
    let reader_gone = error.kind() == ErrorKind::ReaderGone;
    // Ctrl-C ends a whole pipeline, so a write may first fail because its reader has exited.
    if error.kind() == ErrorKind::Cancelled || (reader_gone && stopped.cancel.is_cancelled()) {
        let kept = error.says_what_is_kept().then(|| error.to_string());
        eprintln!("adjoin: interrupted; {}", kept.as_deref().unwrap_or("temporary files are removed"));
        return stopped.exit_code();
    }
    if reader_gone {
        return 0; // as with `| head`: the reader has all that it wanted
    }
    eprintln!("adjoin: {}", error.spelled(as_flag));
    WRONG
}
