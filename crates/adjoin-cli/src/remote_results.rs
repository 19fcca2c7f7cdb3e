//! Results in object stores. A command writes each result to a temporary file first. The file is uploaded when the
//! command is done.
//!
//! A result cannot be uploaded while it is written: the number of parts of an object is limited, so the length of a
//! part must be chosen by the length of the result. That is known only at the end.

use std::fs;
use std::path::{Path, PathBuf};

use adjoin::device::Location;
use adjoin::{Error, OwnFolder, Result, TableFormat, Target, format_bytes};

use crate::args::{Collection, Command, MemoryOption, Quiet, Resources};
use crate::signals::Stopped;
use crate::{print, resolve};

/// Environment variable of the folder for temporary files.
const TEMPORARY: &str = "ADJOIN_TEMPORARY";

/// The name of a result, as it was typed.
enum Name<'a> {
    Text(&'a mut String),
    Path(&'a mut PathBuf),
}

impl Name<'_> {
    fn get(&self) -> &Path {
        match self {
            Self::Text(name) => name.as_ref(),
            Self::Path(path) => path,
        }
    }

    fn set(&mut self, path: &Path) {
        match self {
            Self::Text(name) => path.display().to_string().clone_into(name),
            Self::Path(name) => path.clone_into(name),
        }
    }
}

/// Results of a command that can be in object stores, and the options that apply to them.
struct Results<'a> {
    names: Vec<Name<'a>>,
    temporary: Option<PathBuf>,
    force: bool,
    limit: MemoryOption,
    quiet: Quiet,
}

/// Returns the results of a command; `None` if it writes none that can be uploaded.
fn results(command: &mut Command) -> Result<Option<Results<'_>>> {
    let of = |resources: &Resources| (resources.limit.clone(), resources.quiet.clone());
    let (names, temporary, force, (limit, quiet)): (_, Option<PathBuf>, bool, (MemoryOption, Quiet)) = match command {
        Command::Join(join) => {
            let output = &mut join.output;
            let temporary = join.temporary.temporary.clone();
            if output.resume && output.file.as_deref().is_some_and(|file| Location::is_remote(Path::new(file))) {
                return Err(Error::option("--resume saves checkpoints next to the result; name a local file"));
            }
            let texts = [&mut output.file, &mut output.kept].into_iter().flatten().map(Name::Text);
            let names = texts.chain(output.statistics.stats.iter_mut().map(Name::Path)).collect();
            (names, temporary, output.replace.force, of(&join.resources))
        }
        // The data set is uploaded by the engine.
        Command::Dedupe(dedupe) => {
            let texts = dedupe.removed.iter_mut().map(Name::Text);
            let names = texts.chain(dedupe.statistics.stats.iter_mut().map(Name::Path)).collect();
            (names, dedupe.temporary.temporary.clone(), dedupe.force, of(&dedupe.resources))
        }
        Command::Search(search) => {
            let stats = search.statistics.stats.iter_mut().map(Name::Path);
            let names = [Name::Text(&mut search.output)].into_iter().chain(stats).collect();
            (names, None, search.replace.force, of(&search.resources))
        }
        Command::Plan(plan) => {
            let stats = plan.statistics.stats.iter_mut().map(Name::Path);
            let names = [Name::Path(&mut plan.output)].into_iter().chain(stats).collect();
            (names, None, plan.replace.force, of(&plan.resources))
        }
        Command::PlanBuild(plan) => {
            let stats = plan.statistics.stats.iter_mut().map(Name::Path);
            let names = [Name::Path(&mut plan.output)].into_iter().chain(stats).collect();
            (names, plan.temporary.temporary.clone(), plan.replace.force, of(&plan.resources))
        }
        // The result of a part is uploaded by the engine.
        Command::RunPart(part) => {
            let names = part.statistics.stats.iter_mut().map(Name::Path).collect();
            (names, part.temporary.temporary.clone(), part.force, of(&part.resources))
        }
        Command::Merge(merge) => {
            // The result of a build is a folder, which is not uploaded.
            let table = merge.file.as_mut().filter(|file| TableFormat::of(Path::new(file.as_str())).is_ok());
            let stats = merge.statistics.stats.iter_mut().map(Name::Path);
            let names = table.into_iter().map(Name::Text).chain(stats).collect();
            (names, merge.temporary.temporary.clone(), merge.replace.force, of(&merge.resources))
        }
        Command::Get(get) => (vec![Name::Path(&mut get.output)], None, get.replace.force, of(&get.resources)),
        Command::Groundtruth(truth) => {
            (truth.output.iter_mut().map(Name::Text).collect(), None, truth.replace.force, of(&truth.resources))
        }
        Command::Collection(Collection::Snapshot(snapshot)) => {
            (vec![Name::Path(&mut snapshot.output)], None, snapshot.replace.force, of(&snapshot.resources))
        }
        Command::Report(report) => (
            vec![Name::Path(&mut report.output)],
            None,
            report.replace.force,
            (report.limit.clone(), report.quiet.clone()),
        ),
        _ => return Ok(None),
    };
    Ok(Some(Results { names, temporary, force, limit, quiet }))
}

/// Returns the names of the files and folders that a command reads.
fn inputs(command: &Command) -> Vec<String> {
    let text = |path: &PathBuf| path.display().to_string();
    match command {
        Command::Join(join) => [&join.inputs[..], &join.other.with, &join.other.new].concat(),
        Command::Dedupe(dedupe) => dedupe.sources.iter().cloned().chain(dedupe.decisions.iter().map(text)).collect(),
        Command::Search(search) => {
            let other = search.calibrate_with.iter().cloned().chain([text(&search.folder)]);
            search.queries.iter().cloned().chain(other).collect()
        }
        Command::Plan(plan) => vec![text(&plan.store)],
        Command::PlanBuild(plan) => plan.sources.clone(),
        Command::RunPart(part) => part.store.iter().chain([&part.plan]).map(text).collect(),
        Command::Merge(merge) => merge.store.iter().chain([&merge.plan, &merge.folder]).map(text).collect(),
        Command::Get(get) => vec![text(&get.folder), get.ids.clone()],
        Command::Groundtruth(truth) => truth.sources.clone(),
        Command::Collection(Collection::Snapshot(snapshot)) => vec![text(&snapshot.folder)],
        Command::Report(report) => {
            let names = report.names.iter().chain(&report.with_names).cloned();
            report.stats.iter().chain([&report.result]).map(text).chain(names).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the data set that a command writes, if the engine uploads it.
fn data_set(command: &Command) -> Option<PathBuf> {
    match command {
        Command::Dedupe(dedupe) => Some(dedupe.output.clone()).filter(|output| Location::is_remote(output)),
        _ => None,
    }
}

/// Refuses results that would replace an input, a part of the data set or each other. Local results are compared by
/// the identity of their files, which objects do not have.
fn check_urls(urls: &[&Path], inputs: &[String], data_set: Option<&Path>) -> Result<()> {
    for (number, url) in urls.iter().enumerate() {
        let at = url.display();
        let is_read = |input: &&String| {
            let matches = glob::Pattern::new(input).is_ok_and(|glob| glob.matches_path(url));
            matches || url.starts_with(input.as_str())
        };
        if let Some(input) = inputs.iter().find(is_read) {
            return Err(Error::option(format!(
                "{input} is an input, so no result can be written to {at}; choose another name"
            )));
        }
        if let Some(output) = data_set.filter(|output| url.starts_with(output)) {
            let output = output.display();
            return Err(Error::option(format!(
                "-o writes the data set to {output}, so no other result can be written to {at}; choose another name"
            )));
        }
        if urls[..number].contains(url) {
            return Err(Error::option(format!("{at} is named for two results; name two objects")));
        }
    }
    Ok(())
}

/// Results that are uploaded when the command is done.
pub(crate) struct Uploads {
    /// Each temporary file, and its URL.
    files: Vec<(PathBuf, PathBuf)>,
    folder: OwnFolder,
    force: bool,
    limit: MemoryOption,
    quiet: Quiet,
}

impl Uploads {
    /// Replaces the URLs of results by temporary files. Returns `None` if there are none.
    ///
    /// # Errors
    /// If an object exists at a URL, a bucket cannot be reached, or the budget is too small for an upload.
    pub(crate) fn begin(command: &mut Command, stopped: &Stopped) -> Result<Option<Self>> {
        let (inputs, data_set) = (inputs(command), data_set(command));
        let Some(Results { mut names, temporary, force, limit, quiet }) = results(command)? else { return Ok(None) };
        names.retain(|name| Location::is_remote(name.get()));
        if names.is_empty() {
            return Ok(None);
        }
        let context = resolve::limited_context(&limit, None, &quiet, stopped)?;
        if !context.device.reads_object_stores() {
            return Ok(None);
        }
        Target::check_upload_memory(&context)?;
        names.iter().try_for_each(|name| Target::check_object(&context, name.get(), force))?;
        check_urls(&names.iter().map(Name::get).collect::<Vec<_>>(), &inputs, data_set.as_deref())?;
        let place = temporary.or_else(|| std::env::var_os(TEMPORARY).map(PathBuf::from));
        let folder = OwnFolder::create(&context.device, &place.unwrap_or_else(std::env::temp_dir), "upload")?;
        let mut files = Vec::new();
        for (number, name) in names.iter_mut().enumerate() {
            // The temporary file keeps its name, since the extension decides the format. Each file has a folder of
            // its own, since two results may have the same name.
            let within = folder.path().join(number.to_string());
            context.device.create_folder(&within)?;
            let url = name.get().to_owned();
            let file = within.join(url.file_name().unwrap_or_default());
            name.set(&file);
            files.push((file, url));
        }
        print::set_uploads(&files);
        Ok(Some(Self { files, folder, force, limit, quiet }))
    }

    /// Uploads the results of a command that is done.
    ///
    /// # Errors
    /// If an object store refuses a result. That result and the ones after it are then kept on this machine.
    pub(crate) fn finish(self, stopped: &Stopped) -> Result<()> {
        let context = resolve::limited_context(&self.limit, None, &self.quiet, stopped)?;
        let mut done = Vec::new();
        for (number, (file, url)) in self.files.iter().enumerate() {
            // Some results are written only with certain options.
            if context.device.kind(file)?.is_none() {
                continue;
            }
            match Target::upload(&context, file, url, self.force) {
                Ok(bytes) => done.push(format!("{}: uploaded, {}", url.display(), format_bytes(bytes))),
                Err(error) => return Err(self.keep(number, &error)),
            }
        }
        drop(context); // ends the progress bar
        if !self.quiet.quiet {
            done.iter().for_each(|line| eprintln!("{line}"));
        }
        Ok(())
    }

    /// Moves the results from number `from` on out of the temporary folder. Returns the `error` of an upload with
    /// their new paths.
    fn keep(&self, from: usize, error: &Error) -> Error {
        let place = Target::parent_of(self.folder.path());
        let kept: Vec<String> = self.files[from..].iter().filter_map(|(file, _)| keep(file, place)).collect();
        Error::device(format!("{error}; the result is kept as {}", kept.join(" and ")))
    }
}

impl Drop for Uploads {
    fn drop(&mut self) {
        print::set_uploads(&[]);
    }
}

/// Moves a file to a folder, under a name that is free. Returns its path; `None` if it was not moved.
fn keep(file: &Path, folder: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let path = (0..).map(|number| folder.join(format!("{number}-{name}"))).find(|path| !path.exists())?;
    fs::rename(file, &path).ok()?;
    Some(path.display().to_string())
}
