//! Error messages of a program that was built without its server.

use adjoin::error::{Error, Result};

use crate::Outcome;
use crate::args::{BenchServe, Serve};
use crate::signals::Stopped;

pub(crate) fn serve(Serve { folder, .. }: &Serve, _stopped: &Stopped) -> Result<Outcome> {
    missing(&format!("serve {}", folder.display()))
}

pub(crate) fn bench_serve(BenchServe { url, .. }: &BenchServe, _stopped: &Stopped) -> Result<Outcome> {
    missing(&format!("bench-serve {url}"))
}

fn missing(command: &str) -> Result<Outcome> {
    Err(Error::option(format!(
        "this adjoin was built without its server; use that of `make build` for: adjoin {command}"
    )))
}
