//! Files and folders at one moment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

/// The root folder.
pub(super) const ROOT: u64 = 0;

/// A file or a folder, by number. Files and folders are numbered together, and numbers are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    File(u64),
    Folder(u64),
}

/// A name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) folder: u64,
    pub(super) name: OsString,
}

/// Folders with their names, and files with their bytes. A node remains when its last name is removed, as an open
/// file does.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    folders: BTreeMap<u64, BTreeMap<OsString, Node>>,
    files: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    /// Finds the node at a path. Relative paths start at the root.
    pub(super) fn find(&self, path: &Path) -> io::Result<Node> {
        let mut way = vec![Node::Folder(ROOT)];
        for component in path.components() {
            let Some(&Node::Folder(folder)) = way.last() else { return Err(ErrorKind::NotADirectory.into()) };
            match component {
                Component::Normal(name) => way.push(self.at(folder, name).ok_or(ErrorKind::NotFound)?),
                Component::ParentDir if way.len() > 1 => drop(way.pop()),
                _ => {}
            }
        }
        Ok(*way.last().expect("the root is never left"))
    }

    /// Finds the folder at a path.
    pub(super) fn find_folder(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)? {
            Node::Folder(folder) => Ok(folder),
            Node::File(_) => Err(ErrorKind::NotADirectory.into()),
        }
    }

    /// Returns the folder and the last component of a path. The folder must exist, but not the name in it.
    pub(super) fn name(&self, path: &Path) -> io::Result<Name> {
        let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned();
        Ok(Name { folder: self.find_folder(path.parent().unwrap_or(Path::new("")))?, name })
    }

    fn at(&self, folder: u64, name: &OsStr) -> Option<Node> {
        self.folders.get(&folder)?.get(name).copied()
    }

    pub(super) fn named(&self, name: &Name) -> Option<Node> {
        self.at(name.folder, &name.name)
    }

    pub(super) fn entries(&self, folder: u64) -> impl Iterator<Item = (&OsString, Node)> {
        self.folders.get(&folder).into_iter().flatten().map(|(name, node)| (name, *node))
    }

    pub(super) fn bytes(&self, file: u64) -> &[u8] {
        self.files.get(&file).map_or(&[], Vec::as_slice)
    }

    /// Adds a name for a node. A folder that is new has no names.
    pub(super) fn link(&mut self, name: &Name, node: Node) {
        self.folders.entry(name.folder).or_default().insert(name.name.clone(), node);
    }

    /// Removes a name if it refers to `node`. Returns whether it did.
    pub(super) fn unlink(&mut self, name: &Name, node: Node) -> bool {
        let is_there = self.named(name) == Some(node);
        if is_there {
            self.folders.entry(name.folder).or_default().remove(&name.name);
        }
        is_there
    }

    pub(super) fn truncate(&mut self, file: u64, len: u64) {
        match self.files.get_mut(&file) {
            Some(bytes) if len > 0 => bytes.truncate(len as usize),
            _ => drop(self.files.remove(&file)),
        }
    }

    /// Writes bytes at an offset. If the file is shorter than the offset, the gap is filled with zeros.
    pub(super) fn write(&mut self, file: u64, offset: u64, bytes: &[u8]) {
        let held = self.files.entry(file).or_default();
        let range = offset as usize..offset as usize + bytes.len();
        held.resize(held.len().max(range.end), 0);
        held[range].copy_from_slice(bytes);
    }

    /// Returns whether `inner` is `outer` or a descendant of it.
    pub(super) fn holds(&self, outer: u64, inner: u64) -> bool {
        let folders = self.entries(outer).filter_map(|(_, node)| match node {
            Node::Folder(folder) => Some(folder),
            Node::File(_) => None,
        });
        outer == inner || folders.into_iter().any(|folder| self.holds(folder, inner))
    }

    /// Returns every name in a folder and its subfolders. A folder follows the names in it.
    pub(super) fn below(&self, folder: u64) -> Vec<(Name, Node)> {
        let mut found = Vec::new();
        for (name, node) in self.entries(folder) {
            if let Node::Folder(inner) = node {
                found.extend(self.below(inner));
            }
            found.push((Name { folder, name: name.clone() }, node));
        }
        found
    }

    /// Returns the bytes of all files that have a name.
    pub(super) fn used_bytes(&self) -> u64 {
        let bytes = |node| if let Node::File(file) = node { self.bytes(file).len() as u64 } else { 0 };
        self.below(ROOT).into_iter().map(|(_, node)| bytes(node)).sum()
    }
}
