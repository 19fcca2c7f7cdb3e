//! Finds the files of vectors in a folder, and lists what else it contains.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::format::{ENDINGS, Format, unsupported};
use super::split;
use super::table_formats::{refuse_table_at, refuse_tables, saved_files};
use crate::base::error::{Error, Result};

/// Maximum number of files that a message names.
const FILES_NAMED: usize = 5;
/// Extensions of compressed files. `x.parquet.gz` also counts as data, since the extension before it is one of data.
const COMPRESSED: [&str; 8] = ["gz", "zst", "zstd", "bz2", "xz", "lz4", "snappy", "zip"];

/// Contents of a folder and its subfolders.
#[derive(Default)]
pub(super) struct FolderFiles {
    /// Files of one format, sorted by the bytes of their paths.
    pub(super) files: Vec<(PathBuf, Format)>,
    /// All other files and folders: documentation, marker files of programs, hidden files and folders.
    left_out: Vec<PathBuf>,
}

impl FolderFiles {
    /// Searches a folder for files of vectors. If `split` is given, keeps only the files of that split. Follows links,
    /// since Hugging Face's cache consists of links.
    ///
    /// # Errors
    /// Fails if the folder cannot be read, has no data or no data of that split, or has data of several formats.
    pub(super) fn read(folder: &Path, split: Option<&str>) -> Result<Self> {
        refuse_tables(&[folder.to_owned()])?;
        let mut found = Self::default();
        found.walk(folder, &mut Vec::new())?;
        found.of_one_format(folder, split)
    }

    /// Sorts `files`, the objects below the prefix `folder`, in the same way as [`FolderFiles::read`] sorts the files
    /// of a folder.
    ///
    /// # Errors
    /// Fails as [`FolderFiles::read`] does.
    pub(super) fn of_objects(folder: &Path, files: Vec<PathBuf>, split: Option<&str>) -> Result<Self> {
        let mut found = Self::default();
        for path in files {
            let within = path.strip_prefix(folder).unwrap_or(&path);
            let hidden = within.ancestors().filter(|part| !part.as_os_str().is_empty() && is_left_out(part)).last();
            if let Some(hidden) = hidden {
                found.left_out.push(folder.join(hidden));
            } else if let Some(format) = Format::of(&path) {
                found.files.push((path, format));
            } else if is_compressed_data(&path) {
                return Err(unsupported(&path));
            } else {
                found.left_out.push(path);
            }
        }
        found.left_out.dedup(); // a hidden folder is named once; its objects follow each other
        found.of_one_format(folder, split)
    }

    /// Sorts the files and checks that there are some and that they have one format. Keeps only the files of `split`,
    /// if given.
    fn of_one_format(self, folder: &Path, split: Option<&str>) -> Result<Self> {
        let mut found = self;
        // The order of a folder's entries depends on the file system, but row numbers must not depend on it.
        found.files.sort_by(|(a, _), (b, _)| by_bytes(a, b));
        found.left_out.sort_by(|a, b| by_bytes(a, b));
        let within = |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let Some((first, format)) = found.files.first() else {
            let there = found.in_words(folder).map_or_else(String::new, |names| format!("; it holds {names}"));
            return Err(Error::input(format!(
                "{}: the folder holds no files of vectors ({ENDINGS}){there}; name one that does",
                folder.display()
            )));
        };
        let first = (first.clone(), *format);
        let (first, format) = found.take_split(folder, split)?.unwrap_or(first);
        let ending = first.extension().unwrap_or_default().to_string_lossy();
        let glob = first.with_file_name(format!("*.{ending}"));
        match found.files.iter().find(|(_, other)| *other != format) {
            None => Ok(found),
            Some((other, _)) => Err(Error::input(format!(
                "{}: the folder holds files of several formats, {} and {}; name those to read by a glob such as {}",
                folder.display(),
                within(&first),
                within(other),
                glob.display()
            ))),
        }
    }

    /// Keeps only the files of a split and returns the first of them. Returns `None` if no split is given.
    fn take_split(&mut self, folder: &Path, split: Option<&str>) -> Result<Option<(PathBuf, Format)>> {
        let Some(wanted) = split else { return Ok(None) };
        split::check(folder, wanted, self.within(folder))?;
        self.files.retain(|(file, _)| split::is_of(file.strip_prefix(folder).unwrap_or(file), wanted));
        Ok(self.files.first().cloned())
    }

    /// Returns the paths of the files relative to the folder.
    fn within<'a>(&'a self, folder: &'a Path) -> impl Iterator<Item = &'a Path> + Clone {
        self.files.iter().map(move |(file, _)| file.strip_prefix(folder).unwrap_or(file))
    }

    /// Returns a note about splits that are read as one set, if there are several.
    pub(super) fn note_of_splits(&self, folder: &Path) -> Option<String> {
        split::note(folder, self.within(folder))
    }

    /// Returns a note about files that are left out, if any.
    pub(super) fn note(&self, folder: &Path) -> Option<String> {
        let names = self.in_words(folder)?;
        Some(format!("{}: ignored files of other types: {names}", folder.display()))
    }

    fn in_words(&self, folder: &Path) -> Option<String> {
        let named = self.left_out.iter().take(FILES_NAMED);
        let named = named.map(|path| path.strip_prefix(folder).unwrap_or(path).display().to_string());
        let named = named.collect::<Vec<_>>().join(", ");
        match self.left_out.len() {
            0 => None,
            count if count <= FILES_NAMED => Some(named),
            count => Some(format!("{named} and {} more", count - FILES_NAMED)),
        }
    }

    /// Searches a folder recursively. `way` holds the folders above it, so that cycles of links are detected.
    fn walk(&mut self, folder: &Path, way: &mut Vec<PathBuf>) -> Result<()> {
        let cannot_list =
            |error: io::Error| Error::device(format!("cannot list {}: {error}", folder.display())).caused_by(error);
        // Only real paths reveal a cycle, because each pass through a link makes the path longer.
        let place = folder.canonicalize().map_err(cannot_list)?;
        if way.contains(&place) {
            return Err(Error::input(format!(
                "{}: it is a link to a folder that contains it; remove it, or name the files to read by a glob",
                folder.display()
            )));
        }
        way.push(place);
        refuse_table_at(folder)?;
        // Folders of the datasets library also contain cached results of operations. These are not part of the set.
        let saved = saved_files(folder)?;
        let is_cache = |path: &Path| saved.as_ref().is_some_and(|files| !files.iter().any(|file| file == path));
        for entry in fs::read_dir(folder).map_err(cannot_list)? {
            let path = entry.map_err(cannot_list)?.path();
            if is_left_out(&path) {
                self.left_out.push(path);
            } else if path.is_dir() {
                self.walk(&path, way)?;
            } else if let Some(format) = Format::of(&path).filter(|_| !is_cache(&path)) {
                self.files.push((path, format));
            } else if is_compressed_data(&path) {
                return Err(unsupported(&path));
            } else {
                self.left_out.push(path);
            }
        }
        way.pop();
        Ok(())
    }
}

/// Returns whether a file is not data because it is hidden, or is a marker file of a program, such as `_SUCCESS`.
pub(super) fn is_left_out(path: &Path) -> bool {
    // Hadoop and Spark also mark files that are not data in this way.
    matches!(path.file_name().unwrap_or_default().as_encoded_bytes().first(), Some(b'.' | b'_'))
}

/// Compares paths by their bytes, which is the order of files in a set.
pub(super) fn by_bytes(a: &Path, b: &Path) -> std::cmp::Ordering {
    a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes())
}

/// Returns whether a file would be data if it were decompressed. If it were left out, its rows would be lost silently.
fn is_compressed_data(path: &Path) -> bool {
    let ending = path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase);
    let compressed = ending.is_some_and(|ending| COMPRESSED.contains(&ending.as_str()));
    compressed && Format::of(&path.with_extension("")).is_some()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use crate::source::fixtures::{Folder, error_of, read_all, u8bin};

    /// Creates a folder as `hf download` would leave it.
    fn of_hugging_face() -> Folder {
        let folder = Folder::new();
        for name in ["data/en", ".cache/huggingface", "data/.git"] {
            std::fs::create_dir_all(folder.path(name)).unwrap();
        }
        for (name, first) in [("data/train-00001.u8bin", 2), ("data/train-00000.u8bin", 1), ("data/en/x.u8bin", 0)] {
            folder.write(name, &u8bin(2, &[first, 0]));
        }
        for name in ["README.md", ".gitattributes", "dataset_infos.json", "data/_SUCCESS", "z.csv", ".cache/a.u8bin"] {
            folder.write(name, b"no vectors");
        }
        folder
    }

    #[test]
    fn nested_folders_are_read_and_skipped_files_are_listed() {
        let folder = of_hugging_face();
        let source = folder.open(&[""]).unwrap();
        assert_eq!(read_all(source.as_ref(), 1 << 20).bytes, [0, 0, 1, 0, 2, 0]);
        let notes = source.notes();
        let names = ".cache, .gitattributes, README.md, data/.git, data/_SUCCESS and 2 more";
        assert!(notes.len() == 1 && notes[0].ends_with(&format!("ignored files of other types: {names}")), "{notes:?}");
        assert_eq!(folder.open(&["data/en"]).unwrap().notes(), [""; 0]);
    }

    #[test]
    fn links_are_followed_unless_cyclic() {
        let folder = of_hugging_face();
        let blobs = Folder::new();
        blobs.write("5f3a", &u8bin(2, &[9, 0]));
        symlink(blobs.path("5f3a"), folder.path("data/train-00002.u8bin")).unwrap();
        assert_eq!(read_all(folder.open(&[""]).unwrap().as_ref(), 100).bytes, [0, 0, 1, 0, 2, 0, 9, 0]);
        symlink(folder.path("data"), folder.path("data/en/up")).unwrap();
        let message = error_of(folder.open(&[""]));
        assert!(message.contains("data/en/up: it is a link to a folder that contains it"), "{message}");
    }

    #[test]
    fn folders_without_data_or_with_compressed_data_are_refused() {
        let folder = Folder::new();
        folder.write("README.md", b"");
        let message = error_of(folder.open(&[""]));
        assert!(
            message.contains("no files of vectors (.parquet, ") && message.contains("holds README.md"),
            "{message}"
        );
        folder.write("a.u8bin", &u8bin(2, &[1, 0]));
        folder.write("b.u8bin.GZ", b"");
        let message = error_of(folder.open(&[""]));
        assert!(message.contains("b.u8bin.GZ: the extension .gz is not supported"), "{message}");
    }
}
