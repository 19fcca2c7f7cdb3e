//! Finds the files that the user's names of a source stand for, and opens them.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use adjoin_device::Location;

use super::dense::DenseFormat;
use super::file::SourceFile;
use super::folder::FolderFiles;
use super::format::{Format, check_rows, unsupported};
use super::globs::{WILDCARDS, glob_files};
use super::objects::{self, Objects, remote};
use super::options::SourceOptions;
use super::shards::Shards;
use super::table_formats::{refuse_files_of_tables, refuse_tables};
use super::vector_source::VectorSource;
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::Element;
use crate::base::output::Target;

/// Opens files as [`open`] does. Refuses a set that has no rows.
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
        return Err(no_rows(sources));
    }
    Ok(source)
}

fn no_rows(sources: &[String]) -> Error {
    Error::input(format!("{} has no rows; name a source that has some", sources.join(", ")))
}

/// Opens files on the context's device as one set of vectors, in the given order.
///
/// Each of `sources` is a file, a folder with files of one format, or a glob such as `part-*.parquet`. The files of a
/// folder (including its subfolders) or of a glob are sorted by the bytes of their paths. Folders and globs skip
/// hidden files and files with names that start with `_`. Folders also skip files with other extensions; the notes of
/// the source list these files.
///
/// The extension determines the format: `.parquet`; `.arrow`, `.feather`, `.ipc`; `.jsonl`, `.ndjson`; `.npy`, `.npz`;
/// `.safetensors`; `.fbin`, `.u8bin`, `.i8bin`; `.fvecs`, `.bvecs`.
///
/// JSON lines files are read completely. In other files, only headers are read. If no header states the number of
/// dimensions, rows are read up to the first list that is not empty. If the budget is too small for that, the number
/// is estimated from headers. Such an estimate is only used to plan the memory of a scan.
///
/// # Errors
/// Fails if
/// - nothing matches, or a folder has no such split,
/// - a file cannot be read or does not match its extension,
/// - files differ in dimensions, element type, kind of ids or name of the vector column, or
/// - the budget is too small for headers.
pub fn open(context: &Context, sources: &[String], options: &SourceOptions) -> Result<Arc<dyn VectorSource>> {
    let (files, notes) = find_all(context, sources, options.split.as_deref())?;
    Ok(Arc::new(Shards::open(context, files, options, notes)?))
}

/// Opens files as [`open`] does, but as tables that need not have vectors. Prints the notes of the source.
///
/// # Errors
/// Fails if nothing matches, if a file has no columns, cannot be read or does not match its extension, or if there are
/// no rows.
pub(crate) fn open_tables(context: &Context, sources: &[String], split: Option<&str>) -> Result<Vec<SourceFile>> {
    let (files, notes) = find_all(context, sources, split)?;
    notes.iter().for_each(|note| context.progress.note(note));
    let mut tables: Vec<SourceFile> = Vec::with_capacity(files.len());
    for (name, path, format) in files {
        let first_row = tables.last().map_or(0, |before| before.first_row + before.rows);
        let table = SourceFile::of_table(context, name, path, format, first_row)?;
        check_rows(&table.path, first_row.checked_add(table.rows))?;
        tables.push(table);
    }
    if tables.iter().all(|table| table.rows == 0) {
        return Err(no_rows(sources));
    }
    Ok(tables)
}

/// A file: its path relative to the name that the user gave, its path, and its format.
type Named = (PathBuf, PathBuf, Format);

/// Finds the files of all sources. Also returns notes for the user.
fn find_all(context: &Context, sources: &[String], split: Option<&str>) -> Result<(Vec<Named>, Vec<String>)> {
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    for source in sources {
        let local = local_name(source);
        let source = local.as_deref().unwrap_or(source);
        let path = Path::new(source);
        match find(context, source, split)? {
            Objects::Folder(found) => {
                notes.extend(found.note(path));
                // If a split is chosen, no splits are read together, so there is nothing to report.
                notes.extend(found.note_of_splits(path).filter(|_| split.is_none()));
                let within = |file: &Path| file.strip_prefix(path).unwrap_or(file).to_owned();
                files.extend(found.files.into_iter().map(|(file, format)| (within(&file), file, format)));
            }
            Objects::Files(_) if split.is_some() => return Err(no_splits(source)),
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
    refuse_files_of_tables(files.iter().map(|(_, path, _)| path.as_path()))?;
    Ok((files, notes))
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

/// Opens a file with the layout of `.fbin`, `.u8bin` and `.i8bin` files (u32 rows, u32 dimensions, then the rows). The
/// extension of the file does not matter, since the caller states the element type.
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
    /// Returns the files that a name of a source stands for, in order. Does not open them.
    ///
    /// # Errors
    /// Fails if a folder or glob has no files, or cannot be read.
    pub fn expand(source: &str) -> Result<Vec<PathBuf>> {
        let local = local_name(source);
        let source = local.as_deref().unwrap_or(source);
        let path = Path::new(source);
        // Names in an object store are returned as they are, because callers only compare files of this machine.
        if remote(source).is_some() {
            return Ok(vec![path.to_owned()]);
        }
        if path.is_dir() {
            return Ok(FolderFiles::read(path, None)?.files.into_iter().map(|(path, _)| path).collect());
        }
        named_files(source)
    }
}

/// Returns the name of a file relative to the name that the user gave. For a glob, this is the part of the path after
/// the components that precede the first wildcard.
fn name_within(source: &str, path: &Path) -> PathBuf {
    let is_plain = |part: &Component<'_>| !part.as_os_str().to_string_lossy().contains(WILDCARDS);
    let named = Path::new(source);
    let fixed = if named == path {
        Target::parent_of(path).to_owned()
    } else {
        named.components().take_while(is_plain).collect()
    };
    // The glob crate removes a leading `./`.
    let fixed = [fixed.as_path(), fixed.strip_prefix(".").unwrap_or(&fixed)].into_iter();
    let within = fixed.filter_map(|fixed| path.strip_prefix(fixed).ok()).find(|way| !way.as_os_str().is_empty());
    let is_below = |way: &&Path| way.components().all(|part| matches!(part, Component::Normal(_)));
    within.filter(is_below).map_or_else(|| path.file_name().map(PathBuf::from).unwrap_or_default(), Path::to_owned)
}

fn no_splits(source: &str) -> Error {
    Error::input(message![
        format!("{source}: is not a folder, and only folders have splits; leave out "),
        Argument::Split,
        ", or name the folder"
    ])
}

/// Returns the files of a source that is not a folder.
fn named_files(source: &str) -> Result<Vec<PathBuf>> {
    // The name of a file may contain wildcard characters, so an existing file takes precedence.
    let path = Path::new(source);
    let is_plain = path.exists() || !source.contains(WILDCARDS);
    let files = if is_plain { vec![path.to_owned()] } else { glob_files(source)? };
    refuse_tables(&files)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::super::options::IdChoice;
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
        assert!(message.contains("is not UTF-8; name the folder instead of the glob"), "{message}");
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
            assert!(message.contains("supported, only .parquet, .arrow"), "{message}");
        }
    }

    #[test]
    fn files_without_columns_refuse_column_options() {
        let folder = Folder::new();
        folder.write("a.fbin", &fbin(2, &[1.0, 2.0]));
        let options = SourceOptions { ids: IdChoice::Column("key".into()), ..SourceOptions::default() };
        assert!(
            error_of(folder.open_with(&["a.fbin"], &options)).contains("its format has no columns, so no column key")
        );
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
