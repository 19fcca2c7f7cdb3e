//! The commands of the flash device model.

mod calibrate;
mod disk;
mod run;
mod workload;

use std::io::Write;
use std::path::Path;

use adjoin::{
    Context, Result, Target,
    flash_model::{Span, Track},
};
use serde_json::{Value, json};

use crate::Outcome;
use crate::args::Flash;
use crate::print::print;
use crate::resolve::check_outputs;
use crate::signals::Stopped;

pub(crate) fn flash(command: &Flash, stopped: &Stopped) -> Result<Outcome> {
    match command {
        Flash::Run(arguments) => run::run(arguments, stopped),
        Flash::Sweep(arguments) => run::sweep(arguments, stopped),
        Flash::Calibrate(arguments) => calibrate::calibrate(arguments, stopped),
    }
}

/// Refuses results that would replace inputs, each other, or existing files.
fn check_results(context: &Context, read: &[String], results: &[(&str, &Path)], force: bool) -> Result<()> {
    check_outputs(context, read, results)?;
    results.iter().try_for_each(|(_, path)| Target::check_free(&*context.device, path, force))
}

/// Writes text to a file, or to standard output if `output` is `None`.
fn write_text(context: &Context, output: Option<&Path>, force: bool, text: &str) -> Result<()> {
    match output {
        Some(path) => Target::write_file(context, path, force, |out| out.write_all(text.as_bytes())),
        None => print(text),
    }
}

/// Formats results as CSV, one line per result. The names of nested figures are joined by dots. All results must have
/// the same figures.
fn as_csv(results: &[Value]) -> String {
    let mut rows: Vec<Vec<(String, String)>> = Vec::new();
    for result in results {
        let mut row = Vec::new();
        flatten("", result, &mut row);
        rows.push(row);
    }
    let line = |cells: &mut dyn Iterator<Item = &String>| cells.cloned().collect::<Vec<_>>().join(",") + "\n";
    let head = rows.first().map(|row| line(&mut row.iter().map(|cell| &cell.0)));
    head.into_iter().chain(rows.iter().map(|row| line(&mut row.iter().map(|cell| &cell.1)))).collect()
}

fn flatten(name: &str, value: &Value, cells: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(field, value)| {
            // A field with an empty name adds the fields of its object without a prefix.
            let dot = if name.is_empty() || field.is_empty() { "" } else { "." };
            let name = format!("{name}{dot}{field}");
            flatten(&name, value, cells);
        }),
        // Texts are quoted as in RFC 4180.
        Value::String(text) if text.contains([',', '"']) => {
            cells.push((name.to_owned(), format!("\"{}\"", text.replace('"', "\"\""))));
        }
        Value::String(text) => cells.push((name.to_owned(), text.clone())),
        other => cells.push((name.to_owned(), other.to_string())),
    }
}

/// Writes spans in the format of ui.perfetto.dev: one track per LUN and channel, in microseconds.
fn as_perfetto(spans: &[Span], out: &mut dyn Write) -> std::io::Result<()> {
    // In this format, a track is a thread, and the tracks of one kind are a process.
    let of = |track: Track| match track {
        Track::Batch => (0, 0, "batch".to_owned()),
        Track::Link => (0, 1, "link".to_owned()),
        Track::Channel(channel) => (1, channel, format!("channel {channel}")),
        Track::Lun(lun) => (2, lun, format!("LUN {lun}")),
    };
    let mut tracks: Vec<Track> = spans.iter().map(|span| span.track).collect();
    tracks.sort_unstable();
    tracks.dedup();
    let names = tracks.into_iter().map(|track| {
        let (process, thread, name) = of(track);
        json!({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": name}})
    });
    let events = spans.iter().map(|span| {
        let (process, thread, _) = of(span.track);
        // The model counts picoseconds.
        let (begins, takes) = (span.begins as f64 / 1e6, (span.ends - span.begins) as f64 / 1e6);
        json!({"ph": "X", "name": span.name, "pid": process, "tid": thread, "ts": begins, "dur": takes})
    });
    out.write_all(b"[")?;
    for (k, event) in names.chain(events).enumerate() {
        out.write_all(if k == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, &event)?;
    }
    out.write_all(b"\n]\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_results_become_csv_columns() {
        let results = [json!({"a": 1, "b": {"c": 2.5, "d": "x"}}), json!({"a": 3, "b": {"c": 4, "d": "y, \"z\""}})];
        assert_eq!(as_csv(&results), "a,b.c,b.d\n1,2.5,x\n3,4,\"y, \"\"z\"\"\"\n");
        assert_eq!(as_csv(&[]), "");
    }

    #[test]
    fn perfetto_traces_name_tracks_and_time_spans() {
        let spans = [
            Span { track: Track::Lun(3), name: "sense", begins: 1_000_000, ends: 3_500_000 },
            Span { track: Track::Channel(3), name: "page", begins: 0, ends: 1 },
        ];
        let mut text = Vec::new();
        as_perfetto(&spans, &mut text).unwrap();
        let events: Vec<Value> = serde_json::from_slice(&text).unwrap();
        let names: Vec<_> = events.iter().filter_map(|event| event["args"]["name"].as_str()).collect();
        assert_eq!(names, ["channel 3", "LUN 3"]);
        assert_eq!((events[2]["ts"].as_f64(), events[2]["dur"].as_f64()), (Some(1.0), Some(2.5)));
    }
}
