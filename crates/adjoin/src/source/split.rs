//! Splits of a data set in Hugging Face's layout: `data/train-00000-of-00010.parquet`, `train.parquet` or
//! `train/0000.parquet`.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};

/// Usual names of splits. A file or folder with such a name is certainly a split.
const USUAL: [&str; 9] = ["train", "training", "validation", "valid", "val", "dev", "test", "testing", "eval"];
/// File names that do not name a split, only parts of a data set.
const PARTS: [&str; 2] = ["data", "part"];
/// Maximum number of names that a message lists.
const NAMES_LISTED: usize = 20;

/// Checks that at least one of the files belongs to a split. `files` are paths relative to `folder`. A file belongs to
/// a split if one of its folders has the split's name, or if the file itself has that name. A number such as
/// `-00000-of-00010` is not a part of the name.
///
/// # Errors
/// Fails if no file belongs to the split.
pub(super) fn check<'a>(folder: &Path, split: &str, files: impl Iterator<Item = &'a Path> + Clone) -> Result<()> {
    if files.clone().any(|file| is_of(file, split)) {
        return Ok(());
    }
    let names: BTreeSet<String> = files.filter_map(|file| Parts::of(file).likely()).collect();
    let there = match names.len() {
        0 => "there are none".to_owned(),
        count if count > NAMES_LISTED => {
            let first: Vec<String> = names.into_iter().take(NAMES_LISTED).collect();
            format!("the splits are {} and {} more", first.join(", "), count - NAMES_LISTED)
        }
        _ => format!("the splits are {}", names.into_iter().collect::<Vec<_>>().join(", ")),
    };
    Err(Error::input(message![
        format!("{}: there is no split {split}; {there}; give one of these to ", folder.display()),
        Argument::Split,
        ", or leave it out"
    ]))
}

/// Returns whether a file belongs to a split.
pub(super) fn is_of(file: &Path, split: &str) -> bool {
    let Parts { folders, name, .. } = Parts::of(file);
    name == split || folders.contains(&split.to_owned())
}

/// Returns a note that names the splits that are read together. Returns `None` unless there are certainly several
/// splits.
pub(super) fn note<'a>(folder: &Path, files: impl Iterator<Item = &'a Path>) -> Option<String> {
    let names: BTreeSet<String> = files.filter_map(|file| Parts::of(file).sure()).collect();
    let at = folder.display();
    // If there are more names, they are probably not splits.
    (1 < names.len() && names.len() <= NAMES_LISTED).then(|| {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        format!("{at}: all splits are read as one set: {names}; the option split selects one of them")
    })
}

/// Components of a path relative to a folder.
struct Parts {
    folders: Vec<String>,
    /// Name of the file without its extension and its number.
    name: String,
    is_numbered: bool,
}

impl Parts {
    fn of(file: &Path) -> Self {
        let folders = file.parent().into_iter().flat_map(Path::iter).map(|part| part.to_string_lossy().into_owned());
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let unnumbered = without_number(&stem).map(str::to_owned);
        let is_numbered = unnumbered.is_some();
        Self { folders: folders.collect(), name: unnumbered.unwrap_or(stem), is_numbered }
    }

    /// Returns the split to which the file certainly belongs, if any.
    fn sure(&self) -> Option<String> {
        let is_usual = |name: &&String| USUAL.contains(&name.as_str());
        let name = Some(&self.name);
        // The innermost folder has precedence: `test/train/0000.parquet` belongs to `train`.
        let folder = self.folders.iter().rev().find(is_usual);
        let numbered = || name.filter(|name| self.is_numbered && !PARTS.contains(&name.as_str()));
        name.filter(is_usual).or(folder).or_else(numbered).cloned()
    }

    /// Returns the split to which the file may belong.
    fn likely(&self) -> Option<String> {
        let folder = || self.folders.iter().rfind(|folder| !PARTS.contains(&folder.as_str())).cloned();
        self.sure().or_else(folder).or_else(|| Some(self.name.clone()))
    }
}

/// Removes the number from a file name: returns `train` for `train-00000-of-00010`. Returns `None` if there is no
/// number.
fn without_number(stem: &str) -> Option<&str> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (name, number) = rest.rsplit_once('-')?;
    (is_number(count) && is_number(number) && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::source::SourceOptions;
    use crate::source::fixtures::{Folder, error_of, read_all, u8bin};

    /// Creates files with one row each. The row contains the number of the file.
    fn folder_of(names: &[&str]) -> Folder {
        let folder = Folder::new();
        for (row, name) in (0..).zip(names) {
            fs::create_dir_all(folder.path(name).parent().unwrap()).unwrap();
            folder.write(name, &u8bin(2, &[row, 0]));
        }
        folder
    }

    fn split(name: &str) -> SourceOptions {
        SourceOptions { split: Some(name.into()), ..SourceOptions::default() }
    }

    fn rows(folder: &Folder, name: &str) -> Vec<u8> {
        let source = folder.open_with(&[""], &split(name)).unwrap();
        assert_eq!(source.notes(), [""; 0]);
        read_all(source.as_ref(), 1 << 20).bytes.chunks(2).map(|row| row[0]).collect()
    }

    #[test]
    fn splits_are_named_by_files_or_folders() {
        let numbered =
            ["data/test-00000-of-00001.u8bin", "data/train-00000-of-00002.u8bin", "data/train-00001-of-00002.u8bin"];
        let plain = ["test.u8bin", "train.u8bin", "train_extra.u8bin"];
        let folders = ["a/test/0000.u8bin", "a/train/0000.u8bin", "b/train/part-00000-of-00001.u8bin"];
        for (names, train, all) in
            [(numbered, &[1, 2][..], "test, train"), (plain, &[1], "test, train"), (folders, &[1, 2], "test, train")]
        {
            let folder = folder_of(&names);
            assert_eq!(rows(&folder, "train"), train, "{names:?}");
            assert_eq!(rows(&folder, "test"), [0]);
            let notes = folder.open(&[""]).unwrap().notes();
            assert!(notes.len() == 1 && notes[0].contains(&format!("read as one set: {all}; ")), "{notes:?}");
        }
        let folder = folder_of(&["train_sft-00000-of-00001.u8bin", "test_sft-00000-of-00001.u8bin", "x/own/a.u8bin"]);
        assert_eq!(rows(&folder, "train_sft"), [0]);
        assert_eq!(rows(&folder, "own"), [2]);
    }

    #[test]
    fn one_split_and_parts_of_any_name_are_read_without_a_note() {
        for names in [
            ["train-00000-of-00002.u8bin", "train-00001-of-00002.u8bin"],
            ["part-0.u8bin", "part-1.u8bin"],
            ["de/a.u8bin", "en/a.u8bin"],
        ] {
            assert_eq!(folder_of(&names).open(&[""]).unwrap().notes(), [""; 0]);
        }
    }

    #[test]
    fn an_unknown_split_is_refused_with_the_existing_ones() {
        let folder = folder_of(&["data/train-00000-of-00001.u8bin", "data/test-00000-of-00001.u8bin", "more/a.u8bin"]);
        let message = error_of(folder.open_with(&[""], &split("dev")));
        assert!(
            message.contains("there is no split dev; the splits are more, test, train; give one of these to split"),
            "{message}"
        );
        let message = error_of(folder.open_with(&["more/a.u8bin"], &split("train")));
        assert!(
            message.contains("more/a.u8bin: is not a folder, and only folders have splits; leave out split"),
            "{message}"
        );
    }

    #[test]
    fn splits_may_have_different_formats() {
        let folder = folder_of(&["train.u8bin"]);
        folder.write("test.npy", b"");
        assert_eq!(rows(&folder, "train"), [0]);
        assert!(error_of(folder.open(&[""])).contains("several formats"));
    }
}
