//! Recognizes files that have a meaning only together with a log. These are tables of Delta, Iceberg, Hudi, Lance and
//! DuckLake, with files that contain deleted and replaced rows, and data sets of Hugging Face, with caches next to the
//! data.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::base::error::{Error, Result};

/// Maximum number of bytes to read from `state.json`.
const STATE_BYTES_MAX: u64 = 8 << 20;

/// A table format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableFormat {
    Delta,
    Iceberg,
    Hudi,
    Lance,
    DuckLake,
}

impl TableFormat {
    /// Returns the format of the table in a folder. Returns `None` if the folder is not a table.
    fn of(folder: &Path) -> Option<Self> {
        // A folder that cannot be listed is not a table. Reading it later reports the error.
        let has = |name: &str, ending: &str| {
            let names = fs::read_dir(folder.join(name)).into_iter().flatten().flatten().map(|entry| entry.file_name());
            names.into_iter().any(|name| name.as_encoded_bytes().ends_with(ending.as_bytes()))
        };
        if folder.join("_delta_log").is_dir() {
            Some(Self::Delta)
        } else if folder.join(".hoodie").is_dir() {
            Some(Self::Hudi)
        } else if has("metadata", ".metadata.json") || folder.join("metadata/version-hint.text").is_file() {
            Some(Self::Iceberg)
        } else if has("_versions", ".manifest") {
            Some(Self::Lance)
        } else {
            None
        }
    }

    /// Returns the format and the folder of a table in an object store, if there is one. `files` are all files below
    /// `folder`.
    fn of_files<'a>(folder: &Path, files: &'a [PathBuf]) -> Option<(&'a Path, Self)> {
        files.iter().find_map(|file| {
            let name = file.file_name()?.to_str()?;
            let within = file.parent()?;
            let format = match within.file_name()?.to_str()? {
                "_delta_log" => Self::Delta,
                ".hoodie" => Self::Hudi,
                "metadata" if name.ends_with(".metadata.json") || name == "version-hint.text" => Self::Iceberg,
                "_versions" if name.ends_with(".manifest") => Self::Lance,
                _ => return None,
            };
            within.starts_with(folder).then_some((within.parent()?, format))
        })
    }

    /// Returns the name of the format, and a Python expression that reads the current rows of a table.
    fn in_words(self) -> (&'static str, &'static str) {
        match self {
            Self::Delta => ("a Delta table", "deltalake.DeltaTable(PATH).to_pyarrow_dataset()"),
            Self::Iceberg => ("an Iceberg table", "table.scan().to_arrow() of pyiceberg"),
            Self::Hudi => ("a Hudi table", "pyarrow.Table.from_batches(hudi.HudiTable(PATH).read_snapshot())"),
            Self::Lance => ("a Lance table", "lance.dataset(PATH)"),
            Self::DuckLake => ("a DuckLake table", "duckdb.sql('FROM LAKE.TABLE').to_arrow_table()"),
        }
    }
}

/// Checks that none of the files or folders is a table or a part of one. Follows links.
///
/// # Errors
/// Fails if one of them is. The error names the table and tells how to read its current rows.
pub(super) fn refuse_tables(paths: &[PathBuf]) -> Result<()> {
    let mut sound: HashSet<PathBuf> = HashSet::new();
    for path in paths {
        // Links are resolved, so that they cannot hide that a file belongs to a table.
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        for folder in place.ancestors().skip_while(|folder| folder.is_file()) {
            // If a folder was checked, the folders above it were checked, too.
            if !sound.insert(folder.to_owned()) {
                break;
            }
            if let Some(format) = TableFormat::of(folder) {
                return Err(refused(path, (folder != place).then_some(folder), format));
            }
        }
    }
    Ok(())
}

/// Checks that a folder is not a table.
///
/// # Errors
/// Fails if the folder is a table.
pub(super) fn refuse_table_at(folder: &Path) -> Result<()> {
    TableFormat::of(folder).map_or(Ok(()), |format| Err(refused(folder, None, format)))
}

/// Checks that a folder of an object store is not a table and contains none. `files` are all files below `folder`.
///
/// # Errors
/// Fails if there is a table.
pub(super) fn refuse_tables_of(folder: &Path, files: &[PathBuf]) -> Result<()> {
    TableFormat::of_files(folder, files).map_or(Ok(()), |(table, format)| Err(refused(table, None, format)))
}

/// Checks that none of the files has the name of a data file of DuckLake: the log of such a table is a database that
/// may be anywhere, so only the names tell.
///
/// # Errors
/// Fails if one of them has.
pub(super) fn refuse_files_of_tables<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let is_ducklake = |file: &&Path| {
        let name = file.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with("ducklake-") && name.ends_with(".parquet"))
    };
    match files.into_iter().find(is_ducklake) {
        None => Ok(()),
        Some(file) => Err(refused(file, file.parent(), TableFormat::DuckLake)),
    }
}

fn refused(path: &Path, table: Option<&Path>, format: TableFormat) -> Error {
    let (name, rows) = format.in_words();
    let place = table.map_or_else(|| format!("is {name}"), |table| format!("is inside {name}, {}", table.display()));
    Error::input(format!(
        "{}: {place}, whose files also hold deleted and replaced rows; read only the current rows in Python: pass \
         {rows} to adjoin as the source",
        path.display()
    ))
}

/// Contents of `state.json`, which `save_to_disk` of Hugging Face's `datasets` writes next to its files.
#[derive(Deserialize)]
struct SavedState {
    _data_files: Vec<SavedFile>,
}

#[derive(Deserialize)]
struct SavedFile {
    filename: PathBuf,
}

/// Returns the files of a data set that `save_to_disk` of Hugging Face's `datasets` wrote to a folder. Returns `None`
/// for other folders. All other files in the folder are caches that were computed from the data set.
///
/// # Errors
/// Fails if a file of the data set is missing, or if `state.json` cannot be read.
pub(super) fn saved_files(folder: &Path) -> Result<Option<Vec<PathBuf>>> {
    let state = folder.join("state.json");
    if !state.is_file() || !folder.join("dataset_info.json").is_file() {
        return Ok(None);
    }
    let cannot_read = |error| Error::device(format!("cannot read {}: {error}", state.display())).caused_by(error);
    let mut text = Vec::new();
    let file = fs::File::open(&state).map_err(cannot_read)?;
    // The size is limited, since any program may have written a file with this name.
    file.take(STATE_BYTES_MAX).read_to_end(&mut text).map_err(cannot_read)?;
    // If another program wrote this file, the folder is read like any other folder.
    let Ok(SavedState { _data_files: files }) = serde_json::from_slice(&text) else { return Ok(None) };
    let files: Vec<PathBuf> = files.into_iter().map(|file| folder.join(file.filename)).collect();
    match files.iter().find(|file| !file.is_file()) {
        None => Ok(Some(files)),
        Some(missing) => Err(Error::input(format!(
            "{}: it names {}, which does not exist; save the data set again, or name the files to read by a glob",
            state.display(),
            missing.display()
        ))),
    }
}

/// Returns whether a file is a cache next to the files of a saved data set.
pub(super) fn is_cache_of_saved(path: &Path) -> bool {
    let is_cache = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"cache-"));
    let saved = || path.parent().and_then(|folder| saved_files(folder).ok().flatten());
    is_cache && saved().is_some_and(|files| !files.iter().any(|file| file == path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, u8bin};

    fn folder_with(files: &[(&str, &[u8])]) -> Folder {
        let folder = Folder::new();
        for (name, bytes) in files {
            fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
            folder.write(name, bytes);
        }
        folder
    }

    #[test]
    fn refuses_tables_with_a_transaction_log() {
        let rows = u8bin(2, &[1, 0]);
        for (log, name, rows_of) in [
            ("_delta_log/00000000000000000000.json", "Delta table", "DeltaTable(PATH).to_pyarrow_dataset()"),
            ("metadata/v1.metadata.json", "Iceberg table", "to_arrow()"),
            ("metadata/version-hint.text", "Iceberg table", "to_arrow()"),
            (".hoodie/hoodie.properties", "Hudi table", "read_snapshot()"),
            ("_versions/1.manifest", "Lance table", "lance.dataset(PATH)"),
        ] {
            let folder =
                folder_with(&[(&format!("t/{log}"), b"{}"), ("t/a.u8bin", &rows), ("t/data/k=1/b.u8bin", &rows)]);
            for (source, is_within) in [
                ("t", false),
                ("", false),
                ("t/data", true),
                ("t/data/k=1", true),
                ("t/a.u8bin", true),
                ("t/*.u8bin", true),
                ("t/data/k=1/b.u8bin", true),
                ("*/data/*/b.u8bin", true),
            ] {
                let message = error_of(folder.open(&[source]));
                assert!(message.contains(name) && message.contains(rows_of), "{source}: {message}");
                assert_eq!(message.contains("is inside"), is_within, "{source}: {message}");
            }
            std::os::unix::fs::symlink(folder.path("t/a.u8bin"), folder.path("link.u8bin")).unwrap();
            assert!(error_of(folder.open(&["link.u8bin"])).contains(name));
            fs::copy(folder.path("t/a.u8bin"), folder.path("copy.u8bin")).unwrap();
            assert_eq!(read_all(folder.open(&["copy.u8bin"]).unwrap().as_ref(), 9).bytes, [1, 0]);
        }
    }

    #[test]
    fn refuses_files_with_names_of_ducklake() {
        let folder = folder_with(&[
            ("t/main/b/ducklake-0197a1a2-7c4d-7cf3.parquet", b""),
            ("t/main/b/ducklake-0197a1a2-7c4d-7d01-delete.parquet", b""),
            ("s/about-ducklake-1.parquet", b""),
            ("s/ducklake-1.u8bin", &u8bin(2, &[1, 0])),
        ]);
        for source in ["t", "t/main/b", "t/*/*/*.parquet", "t/main/b/ducklake-0197a1a2-7c4d-7cf3.parquet"] {
            let message = error_of(folder.open(&[source]));
            assert!(message.contains("is inside a DuckLake table") && message.contains("duckdb.sql("), "{message}");
        }
        assert_eq!(read_all(folder.open(&["s/ducklake-1.u8bin"]).unwrap().as_ref(), 9).bytes, [1, 0]);
        assert!(!error_of(folder.open(&["s/about-ducklake-1.parquet"])).contains("DuckLake"));
    }

    #[test]
    fn folders_with_names_of_table_metadata_are_read() {
        let rows = u8bin(2, &[1, 0]);
        let folder =
            folder_with(&[("s/metadata/about.json", b"{}"), ("s/_versions/notes.txt", b""), ("s/a.u8bin", &rows)]);
        assert_eq!(read_all(folder.open(&["s"]).unwrap().as_ref(), 9).bytes, [1, 0]);
    }

    #[test]
    fn a_saved_data_set_reads_only_its_listed_files() {
        let state: &[u8] = br#"{"_data_files": [{"filename": "data-0.u8bin"}], "_fingerprint": "9"}"#;
        let [data, cache, other] = [1, 2, 3].map(|first| u8bin(2, &[first, 0]));
        let folder = folder_with(&[
            ("d/train/state.json", state),
            ("d/train/dataset_info.json", b"{}"),
            ("d/train/data-0.u8bin", &data),
            ("d/train/cache-5f.u8bin", &cache),
            ("d/test/cache-0.u8bin", &other),
        ]);
        for (source, bytes) in [
            ("d", &[3, 0, 1, 0][..]),
            ("d/train", &[1, 0]),
            ("d/train/*.u8bin", &[1, 0]),
            ("d/train/cache-5f.u8bin", &[2, 0]),
        ] {
            let source = folder.open(&[source]).unwrap();
            assert_eq!(read_all(source.as_ref(), 9).bytes, bytes);
        }
        assert!(folder.open(&["d/train"]).unwrap().notes()[0].contains("cache-5f.u8bin"));
        fs::remove_file(folder.path("d/train/data-0.u8bin")).unwrap();
        assert!(error_of(folder.open(&["d"])).contains("data-0.u8bin, which does not exist; save the data set again"));
        folder.write("d/train/state.json", b"{\"mine\": 1}");
        assert_eq!(read_all(folder.open(&["d/train"]).unwrap().as_ref(), 9).bytes, [2, 0]);
    }
}
