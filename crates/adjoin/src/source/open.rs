//! Resolves the names of a source to files, and file extensions to formats.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{Location, ReadFile};

use super::dense::{DenseFormat, DenseScan};
use super::facts::Facts;
use super::file::changed;
use super::folder::{FolderFiles, by_bytes, is_left_out};
use super::foreign::guarded;
use super::objects::{Objects, remote};
use super::shards::Shards;
use super::table_formats::{is_cache_of_saved, refuse_tables};
use super::vectors::{VectorScan, VectorSource};
use super::{ahead, arrow, json_lines, npz, objects, parquet};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::{Element, VectorType};
use crate::base::output::Target;

/// Options for reading tables. Files without columns accept no column name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// Column of the vectors. If absent, the table must have exactly one column of number lists.
    pub vector_column: Option<String>,
    /// How rows are identified.
    pub ids: IdChoice,
    /// Split to read, of a folder in Hugging Face's layout; all splits if absent.
    pub split: Option<String>,
}

impl SourceOptions {
    /// Describes the columns read, for messages about another run with other columns.
    pub(crate) fn in_words(&self) -> String {
        let Self { vector_column, ids, split } = self;
        let vectors =
            vector_column.as_ref().map_or("the only column of vectors".to_owned(), |name| format!("column {name}"));
        let ids = match ids {
            IdChoice::IfThere => "ids of column id, if present".to_owned(),
            IdChoice::Column(name) => format!("ids of column {name}"),
            IdChoice::RowNumbers => "no ids".to_owned(),
        };
        let split = split.as_ref().map_or(String::new(), |split| format!(", split {split}"));
        format!("{vectors}, {ids}{split}")
    }
}

/// How rows of a table are identified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum IdChoice {
    /// The column `id`, if present, otherwise row numbers.
    #[default]
    IfThere,
    /// The column of this name.
    Column(String),
    /// Row numbers, even if there is a column `id`.
    RowNumbers,
}

impl IdChoice {
    /// Converts a caller's options: the name of a column, or a flag for no ids.
    ///
    /// # Errors
    /// Fails if both are given.
    pub fn new(column: Option<&str>, none: bool) -> Result<Self> {
        match (column, none) {
            (Some(_), true) => Err(Error::option(message![
                Argument::IdColumn,
                " names a column of ids and ",
                Argument::NoIds,
                " wants none; leave one of both out"
            ])),
            (Some(column), false) => Ok(Self::Column(column.to_owned())),
            (None, true) => Ok(Self::RowNumbers),
            (None, false) => Ok(Self::IfThere),
        }
    }
}

/// Opens files as [`open`] does, and refuses a set without rows.
///
/// # Errors
/// Fails as [`open`] does, or if there are no rows.
pub(crate) fn open_nonempty(
    context: &Context,
    sources: &[String],
    options: &SourceOptions,
) -> Result<Arc<dyn VectorSource>> {
    let source = open(context, sources, options)?;
    if source.info().rows == 0 {
        return Err(Error::input(format!("{} has no rows; name a source that has some", sources.join(", "))));
    }
    Ok(source)
}

/// Opens files on the context's device as one set of vectors, in the order given.
///
/// Each of `sources` is a file, a folder of files of one format, or a glob such as `part-*.parquet`. Files of a folder
/// (including its subfolders) or of a glob are sorted by the bytes of their paths. Folders and globs skip hidden files
/// and files whose names start with `_`. Folders also skip files with other extensions, which the notes of the source
/// list.
///
/// The extension determines the format: `.parquet`; `.arrow`, `.feather`, `.ipc`; `.jsonl`, `.ndjson`; `.npy`, `.npz`;
/// `.fbin`, `.u8bin`, `.i8bin`; `.fvecs`, `.bvecs`.
///
/// JSON lines files are read completely. Of other files only headers are read and, if no header states the length of
/// vectors, rows up to the first list that is not empty. If the budget is too small for such rows, the length is
/// estimated from headers. The estimate is good enough to plan the memory of a scan.
///
/// # Errors
/// Fails if
/// - nothing matches, or a folder has no such split,
/// - a file cannot be read or does not match its extension,
/// - files differ in dimensions, element type, kind of ids or name of the vector column, or
/// - the budget is too small for headers.
pub fn open(context: &Context, sources: &[String], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for source in sources {
        let local = local_name(source);
        let source = local.as_deref().unwrap_or(source);
        let path = Path::new(source);
        match find(context, source, options.split.as_deref())? {
            Objects::Folder(found) => {
                notes.extend(found.note(path));
                // If a split is chosen, nothing is read together, so there is nothing to note.
                notes.extend(found.note_of_splits(path).filter(|_| options.split.is_none()));
                let within = |file: &Path| file.strip_prefix(path).unwrap_or(file).to_owned();
                files.extend(found.files.into_iter().map(|(file, format)| (within(&file), file, format)));
            }
            Objects::Files(_) if options.split.is_some() => return Err(no_splits(source)),
            Objects::Files(named) => {
                for path in named {
                    let format = Format::of(&path).ok_or_else(|| unsupported(&path))?;
                    files.push((name_within(source, &path), path, format));
                }
            }
        }
    }
    if files.is_empty() {
        return Err(Error::input("no source is given; name a file, a folder of files, or a glob"));
    }
    Ok(Arc::new(Shards::open(context, files, options, notes)?))
}

/// Returns the path of a source that is named by a `file://` URL.
fn local_name(source: &str) -> Option<String> {
    match Location::of(Path::new(source)) {
        Location::Local(path) if path != Path::new(source) => path.to_str().map(str::to_owned),
        _ => None,
    }
}

/// Finds the files of a source.
fn find(context: &Context, source: &str, split: Option<&str>) -> Result<Objects> {
    if let Some(name) = remote(source) {
        return objects::find(&*context.device, source, name, split);
    }
    let path = Path::new(source);
    if path.is_dir() {
        return FolderFiles::read(path, split).map(Objects::Folder);
    }
    if split.is_some() {
        return Err(no_splits(source));
    }
    named_files(source).map(Objects::Files)
}

/// Opens a file with the layout of `.fbin`, `.u8bin` and `.i8bin` (u32 rows, u32 dimensions, then the rows), whatever
/// its extension. The caller supplies the element type.
///
/// # Errors
/// Fails if the file cannot be read, its length contradicts its header, or it has no rows.
pub(crate) fn open_counted(context: &Context, path: &Path, element: Element) -> Result<Arc<dyn VectorSource>> {
    let file = (path.to_owned(), path.to_owned(), Format::Dense(DenseFormat::CountedFile(element)));
    let source = Shards::open(context, vec![file], &SourceOptions::default(), Vec::new())?;
    if source.info().rows == 0 {
        return Err(Error::input(format!("{} has no rows; name a file that has some", path.display())));
    }
    Ok(Arc::new(source))
}

impl SourceOptions {
    /// Returns the files that a name of a source stands for, in order, without opening them.
    ///
    /// # Errors
    /// Fails if a folder or glob has no files, or cannot be read.
    pub fn expand(source: &str) -> Result<Vec<PathBuf>> {
        let local = local_name(source);
        let source = local.as_deref().unwrap_or(source);
        let path = Path::new(source);
        // Nothing is listed for a name in an object store: callers compare files of this machine.
        if remote(source).is_some() {
            return Ok(vec![path.to_owned()]);
        }
        if path.is_dir() {
            return Ok(FolderFiles::read(path, None)?.files.into_iter().map(|(path, _)| path).collect());
        }
        named_files(source)
    }
}

/// Returns a file's name relative to the named source. For a glob, it is the path after the components before the first
/// wildcard.
fn name_within(source: &str, path: &Path) -> PathBuf {
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(WILDCARDS);
    let named = Path::new(source);
    let fixed = if named == path {
        Target::parent_of(path).to_owned()
    } else {
        named.components().take_while(is_plain).collect()
    };
    // the glob crate drops `./`
    let fixed = [fixed.as_path(), fixed.strip_prefix(".").unwrap_or(&fixed)].into_iter();
    let within = fixed.filter_map(|fixed| path.strip_prefix(fixed).ok()).find(|way| !way.as_os_str().is_empty());
    let is_below = |way: &&Path| way.components().all(|part| matches!(part, Component::Normal(_)));
    within.filter(is_below).map_or_else(|| path.file_name().map(PathBuf::from).unwrap_or_default(), Path::to_owned)
}

fn no_splits(source: &str) -> Error {
    Error::input(message![
        format!("{source}: is no folder, and only a folder has splits; leave out "),
        Argument::Split,
        ", or name the folder"
    ])
}

/// Returns the files of a source that is not a folder.
fn named_files(source: &str) -> Result<Vec<PathBuf>> {
    // a file name may contain wildcard characters
    let path = Path::new(source);
    let is_plain = path.exists() || !source.contains(WILDCARDS);
    let files = if is_plain { vec![path.to_owned()] } else { glob_files(source)? };
    refuse_tables(&files)?;
    Ok(files)
}

fn glob_files(pattern: &str) -> Result<Vec<PathBuf>> {
    // As in a shell, a wildcard does not match a leading dot.
    let options = glob::MatchOptions { require_literal_leading_dot: true, ..glob::MatchOptions::new() };
    let matches = glob::glob_with(pattern, options).map_err(|error| {
        Error::input(format!(
            "{pattern}: is not a glob: {error}; in a glob * and ? stand for any characters, and [ begins a choice"
        ))
    })?;
    // The crate unwraps names that are not UTF-8, so catch its panic.
    let all = || Ok::<_, Error>(matches.collect::<Vec<_>>());
    let all = guarded(Path::new(pattern), "", all).map_err(|_| {
        Error::input(format!(
            "{pattern}: a name that the glob meets is not UTF-8; name the folder in place of the glob, or rename what it holds"
        ))
    })?;
    let mut paths = Vec::new();
    for path in all {
        paths.push(path.map_err(|error| {
            let folder = error.path().display().to_string();
            let error = io::Error::from(error);
            Error::device(format!("cannot list {folder}: {error}")).caused_by(error)
        })?);
    }
    // A pattern that begins like the files to skip asks for them explicitly.
    let asks_for = |start: &str| {
        Path::new(pattern).file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
    };
    let (asks_for_left_out, asks_for_caches) = (is_left_out(Path::new(pattern)), asks_for("cache-"));
    let is_left_out =
        |path: &Path| !asks_for_left_out && is_left_out(path) || !asks_for_caches && is_cache_of_saved(path);
    let is_wanted = |path: &PathBuf| !is_left_out(path) && !path.is_dir();
    let mut files: Vec<PathBuf> = paths.into_iter().filter(is_wanted).collect();
    files.sort_by(|a, b| by_bytes(a, b));
    if files.is_empty() {
        return Err(no_match(pattern));
    }
    Ok(files)
}

pub(super) fn no_match(pattern: &str) -> Error {
    Error::input(format!("{pattern}: no file matches; check the path, and quote the glob for the shell"))
}

pub(super) fn no_such_file(path: &Path) -> Error {
    Error::input(format!("{}: there is no such file or folder; check the path", path.display()))
}

fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Characters that make a path a glob.
pub(super) const WILDCARDS: [char; 3] = ['*', '?', '['];

/// Extensions of readable files.
pub(super) const ENDINGS: &str =
    ".parquet, .arrow, .feather, .ipc, .jsonl, .ndjson, .npy, .npz, .fbin, .u8bin, .i8bin, .fvecs, .bvecs";

pub(super) fn unsupported(path: &Path) -> Error {
    // If the file is missing, its ending is not the problem to report.
    if !Location::is_remote(path) && matches!(path.try_exists(), Ok(false)) {
        return no_such_file(path);
    }
    Error::input(format!(
        "{}: the ending {} is not one that can be read: {ENDINGS}; decompress or convert the file",
        path.display(),
        match ending(path).as_str() {
            "" => "(none)".to_owned(),
            ending => format!(".{ending}"),
        }
    ))
}

/// Options of a file scan.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScanOptions {
    pub(super) vectors: VectorType,
    pub(super) batch_bytes: usize,
    /// Size of the largest page or record batch that was planned for, in bytes.
    pub(super) piece_bytes_max: u64,
}

/// Format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Arrow,
    JsonLines,
    Npz,
    Dense(DenseFormat),
}

impl Format {
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(match ending(path).as_str() {
            "parquet" => Self::Parquet,
            "arrow" | "feather" | "ipc" => Self::Arrow,
            "jsonl" | "ndjson" => Self::JsonLines,
            "npz" => Self::Npz,
            "npy" => Self::Dense(DenseFormat::Npy),
            "fbin" => Self::Dense(DenseFormat::CountedFile(Element::F32)),
            "u8bin" => Self::Dense(DenseFormat::CountedFile(Element::U8)),
            "i8bin" => Self::Dense(DenseFormat::CountedFile(Element::I8)),
            "fvecs" => Self::Dense(DenseFormat::CountedRows(Element::F32)),
            "bvecs" => Self::Dense(DenseFormat::CountedRows(Element::U8)),
            _ => return None,
        })
    }

    /// Reads a file's headers and returns facts about its contents.
    pub(super) fn inspect(
        self,
        context: &Context,
        path: &Path,
        file: Arc<dyn ReadFile>,
        options: &SourceOptions,
    ) -> Result<Facts> {
        match self {
            Self::Parquet => parquet::inspect(context, path, file, options),
            Self::Arrow => arrow::inspect(context, path, file, options),
            Self::JsonLines => json_lines::inspect(context, path, ahead::sequential(file), options),
            Self::Npz => npz::inspect(context, path, file, options),
            Self::Dense(format) => {
                refuse_columns(path, options)?;
                format.layout(path, file.as_ref()).map(|layout| layout.facts())
            }
        }
    }

    /// Starts a scan of a file of this format.
    pub(super) fn scan(
        self,
        path: &Path,
        file: Arc<dyn ReadFile>,
        options: &SourceOptions,
        scan: ScanOptions,
        facts: &Facts,
    ) -> Result<Box<dyn VectorScan>> {
        // Of a Parquet file, only the chunks of some columns are read.
        let file = if self == Self::Parquet { file } else { ahead::sequential(file) };
        match self {
            Self::Parquet => parquet::scan(path, file, options, scan),
            Self::Arrow => arrow::scan(path, file, options, scan),
            Self::JsonLines => {
                let lines = facts.lines.as_deref().ok_or_else(|| changed(path))?;
                json_lines::scan(path, file, options, scan, lines)
            }
            Self::Npz => {
                let arrays = facts.arrays.as_ref().ok_or_else(|| changed(path))?;
                npz::scan(path, file, options, scan, arrays)
            }
            Self::Dense(format) => {
                let layout = format.layout(path, file.as_ref())?;
                Ok(Box::new(DenseScan::new(path.to_owned(), file, layout, scan.batch_bytes)))
            }
        }
    }
}

fn refuse_columns(path: &Path, options: &SourceOptions) -> Result<()> {
    let (option, column) = match (&options.vector_column, &options.ids) {
        (Some(column), _) => (Argument::VectorColumn, column),
        (None, IdChoice::Column(column)) => (Argument::IdColumn, column),
        _ => return Ok(()),
    };
    Err(Error::input(message![
        format!("{}: has no columns, so none called {column}; leave out ", path.display()),
        option,
        ", or give a file of Parquet, Arrow or JSON lines"
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixtures::{Folder, error_of, fbin, read_all, u8bin};
    use crate::source::{IdKind, Ids};

    #[test]
    fn files_of_a_folder_or_glob_are_sorted_and_arguments_are_not() {
        let folder = Folder::new();
        for (name, first) in [("part-10.u8bin", 10), ("part-9.u8bin", 9), ("Part-1.U8BIN", 1)] {
            folder.write(name, &u8bin(2, &[first, 0, first, 1]));
        }
        folder.write("_SUCCESS", b"");
        folder.write(".part-10.u8bin.crc", b"crc");
        let firsts = |sources: &[&str]| -> Vec<u8> {
            let source = folder.open(sources).unwrap();
            read_all(source.as_ref(), 1 << 20).bytes.chunks(4).map(|row| row[0]).collect()
        };
        assert_eq!(firsts(&[""]), [1, 10, 9]);
        assert_eq!(firsts(&["part-*.u8bin"]), [10, 9]);
        assert_eq!(firsts(&["[pP]art-?.*"]), [1, 9]);
        assert_eq!(firsts(&["part-9.u8bin", "*", "part-9.u8bin"]), [9, 1, 10, 9, 9]);
    }

    #[test]
    fn a_glob_over_non_utf8_names_is_refused_but_their_folder_is_read() {
        use std::os::unix::ffi::OsStrExt;
        let folder = Folder::new();
        for name in [&b"a"[..], b"\xff"] {
            let inner = folder.path("s").join(std::ffi::OsStr::from_bytes(name));
            std::fs::create_dir_all(&inner).unwrap();
            std::fs::write(inner.join("v.u8bin"), u8bin(1, &[name[0]])).unwrap();
        }
        let message = error_of(folder.open(&["s/*/v.u8bin"]));
        assert!(message.contains("is not UTF-8; name the folder in place of the glob"), "{message}");
        assert_eq!(read_all(folder.open(&["s"]).unwrap().as_ref(), 1).bytes, [b'a', 0xff]);
    }

    #[test]
    fn a_file_name_may_look_like_a_glob() {
        let folder = Folder::new();
        folder.write("a[1].u8bin", &u8bin(1, &[7]));
        assert_eq!(read_all(folder.open(&["a[1].u8bin"]).unwrap().as_ref(), 1).bytes, [7]);
    }

    #[test]
    fn rows_are_numbered_across_shards_and_located_in_them() {
        let folder = Folder::new();
        folder.write("a.fbin", &fbin(2, &[1.0, 2.0, 3.0, 4.0]));
        folder.write("b.fbin", &fbin(2, &[]));
        folder.write("c.fbin", &fbin(2, &[5.0, 6.0]));
        let source = folder.open(&[""]).unwrap();
        let info = source.info();
        assert_eq!((info.rows, info.ids, info.rounded_from_f64), (3, IdKind::None, false));
        for batch_bytes in [1, 8, 1 << 20] {
            let all = read_all(source.as_ref(), batch_bytes);
            assert_eq!((all.rows, &all.ids), (3, &Ids::None));
            assert_eq!(all.bytes, [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat());
        }
        let places = [0, 1, 2].map(|row| source.locate(row));
        let expected = [("a.fbin", 0), ("a.fbin", 1), ("c.fbin", 0)].map(|(name, row)| (folder.path(name), row));
        assert_eq!(places, expected);
    }

    #[test]
    fn incompatible_shards_are_reported() {
        let folder = Folder::new();
        folder.write("a.fbin", &fbin(2, &[1.0, 2.0]));
        folder.write("b.fbin", &fbin(3, &[1.0, 2.0, 3.0]));
        folder.write("c.u8bin", &u8bin(2, &[1, 2]));
        let message = error_of(folder.open(&["*.fbin"]));
        for word in ["a.fbin", "b.fbin", "differ in dimensions: 2 and 3"] {
            assert!(message.contains(word), "{message}");
        }
        let message = error_of(folder.open(&["a.fbin", "c.u8bin"]));
        assert!(message.contains("differ in elements: f32 and u8"), "{message}");
        let message = error_of(folder.open(&[""]));
        assert!(message.contains("several formats, a.fbin and c.u8bin") && message.contains("glob"), "{message}");
    }

    #[test]
    fn refuses_sources_without_readable_files() {
        let folder = Folder::new();
        assert!(error_of(folder.open(&[""])).contains("holds no files of vectors"));
        assert!(error_of(folder.open(&["*.npy"])).contains("no file matches"));
        assert!(error_of(folder.open(&["x***.npy"])).contains("is not a glob"));
        assert!(error_of(folder.open(&["x.npy"])).contains("cannot open"));
        assert!(error_of(folder.open(&[])).contains("no source is given"));
        for name in ["a.npy.gz", "a.parquet.zst", "a.csv", "a"] {
            folder.write(name, b"");
            let message = error_of(folder.open(&[name]));
            assert!(message.contains("can be read: .parquet, .arrow"), "{message}");
        }
    }

    #[test]
    fn files_without_columns_refuse_column_options() {
        let folder = Folder::new();
        folder.write("a.fbin", &fbin(2, &[1.0, 2.0]));
        let options = SourceOptions { ids: IdChoice::Column("key".into()), ..SourceOptions::default() };
        assert!(error_of(folder.open_with(&["a.fbin"], &options)).contains("has no columns, so none called key"));
    }

    #[test]
    fn changes_of_a_file_between_scans_are_detected() {
        let folder = Folder::new();
        folder.write("a.fbin", &fbin(2, &[1.0, 2.0]));
        let source = folder.open(&["a.fbin"]).unwrap();
        for changed in [fbin(2, &[1.0, 2.0, 3.0, 4.0]), fbin(2, &[]), fbin(1, &[1.0])] {
            folder.write("a.fbin", &changed);
            let message = error_of(source.scan(1 << 20).and_then(|mut scan| scan.next_batch()));
            assert!(message.contains("has changed since it was opened"), "{message}");
        }
    }
}
