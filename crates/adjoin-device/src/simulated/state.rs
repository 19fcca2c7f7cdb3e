//! State of the simulated device: both images, the changes between them, and the log of operations.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::change::Change;
use super::faults::{Coins, FaultPlan, Keep, LoggedOperation, SECTOR_BYTES};
use super::image::{Image, Name, Node, ROOT};
use crate::device::FileKind;
use crate::error::Operation;

/// Free bytes reported by a device of unlimited size.
const UNLIMITED_BYTES: u64 = 1 << 50;

#[derive(Default)]
pub(super) struct State {
    live: Image,
    durable: Image,
    /// Changes of the live image that the durable image lacks, in order.
    unsynced: Vec<Change>,
    pub(super) log: Vec<LoggedOperation>,
    pub(super) plan: FaultPlan,
    crashed: bool,
    capacity_bytes: Option<u64>,
    nodes: u64,
    /// For each file that is being written, the number of its first bytes that readers see. The rest is in the buffer
    /// of the writer, as with a real file.
    visible: BTreeMap<u64, u64>,
    /// Number of writes so far, and for each file the number of its last write.
    writes: u64,
    last_write: BTreeMap<u64, u64>,
    /// Files with a held lock; none after a loss of power.
    locked: BTreeSet<u64>,
    pub(super) refuses_locks: bool,
}

/// Outcome of an attempt to take a lock.
pub(super) enum Locked {
    /// The lock of the file with this number was taken.
    Ours(u64),
    Others,
    Unsupported,
}

/// Outcome of an operation that does not fail at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    /// Only the first half is transferred, then the operation fails.
    Half,
    /// Only this number of bytes reaches the disk, then the power is lost.
    Torn(u64),
}

impl State {
    pub(super) fn new(plan: FaultPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    /// Logs an operation under the next number, and determines its outcome.
    pub(super) fn begin(&mut self, operation: Operation, path: &Path, bytes: u64) -> io::Result<Fate> {
        if self.crashed {
            return Err(power_is_gone());
        }
        let number = self.log.len() as u64;
        // Operations that fail are logged too, so that a number means the same operation in each run.
        self.log.push(LoggedOperation { number, operation, path: path.to_owned(), bytes });
        match self.plan {
            FaultPlan::Fail { at, kind } if at == number => Err(kind.into()),
            FaultPlan::Short { at } if at == number => Ok(Fate::Half),
            FaultPlan::Torn { at, sectors } if at == number && operation == Operation::Write => {
                Ok(Fate::Torn(sectors.saturating_mul(SECTOR_BYTES).min(bytes)))
            }
            FaultPlan::Torn { at, .. } | FaultPlan::Crash { at } if at == number => {
                self.crashed = true;
                Err(power_is_gone())
            }
            _ => Ok(Fate::Whole),
        }
    }

    pub(super) fn crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.live);
        self.unsynced.push(change);
    }

    fn new_node(&mut self) -> u64 {
        self.nodes += 1;
        ROOT + self.nodes
    }

    pub(super) fn open(&self, path: &Path) -> io::Result<u64> {
        match self.live.find(path)? {
            Node::File(file) => Ok(file),
            Node::Folder(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// Returns the time at which a file was last written, in ticks. The clock ticks with each write.
    pub(super) fn written_at(&self, file: u64) -> i128 {
        self.last_write.get(&file).copied().unwrap_or(0).into()
    }

    fn tick(&mut self, file: u64) {
        self.writes += 1;
        self.last_write.insert(file, self.writes);
    }

    /// Returns all bytes of a file, including bytes that readers cannot see yet.
    pub(super) fn written(&self, file: u64) -> &[u8] {
        self.live.bytes(file)
    }

    /// Returns the bytes of a file that readers can see.
    pub(super) fn readable(&self, file: u64) -> &[u8] {
        let bytes = self.live.bytes(file);
        let visible = self.visible.get(&file).map_or(bytes.len(), |visible| bytes.len().min(*visible as usize));
        &bytes[..visible]
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<u64> {
        let name = match self.live.find(path) {
            Ok(Node::Folder(_)) => return Err(ErrorKind::IsADirectory.into()),
            _ => self.live.name(path)?,
        };
        let file = match self.live.named(&name) {
            Some(Node::File(file)) => {
                self.change(Change::Truncate { file, len: 0 });
                file
            }
            _ => {
                let file = self.new_node();
                self.change(Change::Link(name, Node::File(file)));
                file
            }
        };
        self.show(file, 0);
        self.tick(file);
        Ok(file)
    }

    /// Truncates an existing file to `len` bytes, for appending.
    pub(super) fn continue_file(&mut self, path: &Path, len: u64) -> io::Result<u64> {
        let file = self.open(path)?;
        if (self.readable(file).len() as u64) < len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.change(Change::Truncate { file, len });
        self.show(file, len);
        self.tick(file);
        Ok(file)
    }

    /// Appends bytes to a file. Fails if the disk becomes full.
    pub(super) fn write(&mut self, file: u64, offset: u64, bytes: &[u8], fate: Fate) -> io::Result<()> {
        let wanted = match fate {
            Fate::Whole => bytes.len(),
            Fate::Half => bytes.len() / 2,
            Fate::Torn(reached) => {
                self.crashed = true;
                // A disk writes whole sectors, so a torn write ends at the end of a sector.
                self.durable.write(file, offset, &bytes[..reached as usize]);
                return Err(power_is_gone());
            }
        };
        // A full disk accepts the bytes for which it has space, as real file systems do.
        let room = usize::try_from(self.free_bytes()).unwrap_or(usize::MAX);
        let written = wanted.min(room);
        if written > 0 {
            self.tick(file);
            self.change(Change::Write { file, offset, bytes: bytes[..written].to_vec() });
        }
        match (written < wanted, fate) {
            (true, _) => Err(ErrorKind::StorageFull.into()),
            (false, Fate::Half) => Err(ErrorKind::WriteZero.into()),
            (false, _) => Ok(()),
        }
    }

    /// Makes the first `bytes` bytes of a file visible to readers while the file is being written.
    pub(super) fn show(&mut self, file: u64, bytes: u64) {
        self.visible.insert(file, bytes);
    }

    /// Makes all bytes of a file visible to readers, because its writer was dropped.
    pub(super) fn show_all(&mut self, file: u64) {
        self.visible.remove(&file);
    }

    /// Makes changes durable. `meant` has their numbers in ascending order.
    fn make_durable(&mut self, meant: &[usize]) {
        let mut number = 0;
        self.unsynced.retain(|change| {
            let is_meant = meant.binary_search(&number).is_ok();
            // Applied in their order, because a change may rely on an earlier one.
            if is_meant {
                change.apply(&mut self.durable);
            }
            number += 1;
            !is_meant
        });
    }

    pub(super) fn sync_file(&mut self, file: u64) {
        let numbered = self.unsynced.iter().enumerate();
        let meant: Vec<_> =
            numbered.filter(|(_, change)| change.file() == Some(file)).map(|(number, _)| number).collect();
        self.make_durable(&meant);
    }

    /// Makes the changes of names in a folder durable. A rename from another folder relies on earlier changes there,
    /// so these become durable too.
    pub(super) fn sync_folder(&mut self, path: &Path) -> io::Result<()> {
        let mut folders = vec![self.live.find_folder(path)?];
        let mut meant = Vec::new();
        for (number, change) in self.unsynced.iter().enumerate().rev() {
            let touched = change.folders();
            if touched.iter().any(|folder| folders.contains(folder)) {
                folders.extend(touched);
                meant.push(number);
            }
        }
        meant.reverse();
        self.make_durable(&meant);
        Ok(())
    }

    /// Takes the lock of a file if it is free. Creates the file if it is missing.
    pub(super) fn lock(&mut self, path: &Path) -> io::Result<Locked> {
        if self.refuses_locks {
            return Ok(Locked::Unsupported);
        }
        let file = match self.live.find(path) {
            Ok(Node::File(file)) => file,
            Ok(Node::Folder(_)) => return Err(ErrorKind::IsADirectory.into()),
            Err(_) => {
                let file = self.create(path)?;
                self.show_all(file);
                file
            }
        };
        Ok(if self.locked.insert(file) { Locked::Ours(file) } else { Locked::Others })
    }

    pub(super) fn unlock(&mut self, file: u64) {
        self.locked.remove(&file);
    }

    pub(super) fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        if self.live.find(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let name = self.live.name(path)?;
        let folder = self.new_node();
        self.change(Change::Link(name, Node::Folder(folder)));
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.live.name(from)?, self.live.name(to)?);
        let node = self.live.named(&from).ok_or(ErrorKind::NotFound)?;
        let replaced = self.live.named(&to);
        match (node, replaced) {
            (Node::Folder(folder), _) if folder == to.folder || self.live.holds(folder, to.folder) => {
                return Err(ErrorKind::InvalidInput.into());
            }
            (_, Some(Node::Folder(folder))) if self.live.holds(folder, from.folder) => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            // If both names refer to one file, a rename does nothing (POSIX).
            (_, Some(there)) if there == node => return Ok(()),
            (Node::Folder(_), Some(Node::File(_))) => return Err(ErrorKind::NotADirectory.into()),
            (Node::File(_), Some(Node::Folder(_))) => return Err(ErrorKind::IsADirectory.into()),
            (_, Some(Node::Folder(folder))) if self.live.entries(folder).next().is_some() => {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
            _ => {}
        }
        self.change(Change::Rename { from, to, node });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let file = self.open(path)?;
        let name = self.live.name(path)?;
        self.change(Change::Unlink(name, Node::File(file)));
        Ok(())
    }

    pub(super) fn remove_folder(&mut self, path: &Path) -> io::Result<()> {
        let folder = self.live.find_folder(path)?;
        let name = self.live.name(path)?;
        // Each name is a separate change, so any part of the folder may remain after a loss of power.
        for (inner, node) in self.live.below(folder) {
            self.change(Change::Unlink(inner, node));
        }
        self.change(Change::Unlink(name, Node::Folder(folder)));
        Ok(())
    }

    pub(super) fn kind(&self, path: &Path) -> Option<FileKind> {
        self.live.find(path).ok().map(|node| match node {
            Node::File(_) => FileKind::File,
            Node::Folder(_) => FileKind::Folder,
        })
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
        let folder = self.live.find_folder(path)?;
        Ok(self.live.entries(folder).map(|(name, _)| name.clone()).collect())
    }

    pub(super) fn free_bytes(&self) -> u64 {
        self.capacity_bytes.map_or(UNLIMITED_BYTES, |capacity| capacity.saturating_sub(self.live.used_bytes()))
    }

    pub(super) fn set_free_bytes(&mut self, bytes: u64) {
        self.capacity_bytes = Some(self.live.used_bytes().saturating_add(bytes));
    }

    /// Stores a file durably. Creates missing folders.
    pub(super) fn put(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.put_folder(path.parent().unwrap_or(Path::new("")))?;
        let name = self.live.name(path)?;
        let file = match self.live.named(&name) {
            Some(Node::File(file)) => file,
            Some(Node::Folder(_)) => return Err(ErrorKind::IsADirectory.into()),
            None => self.new_node(),
        };
        self.place(&name, Node::File(file));
        self.tick(file);
        for image in [&mut self.live, &mut self.durable] {
            image.truncate(file, 0);
            image.write(file, 0, bytes);
        }
        Ok(())
    }

    pub(super) fn put_folder(&mut self, path: &Path) -> io::Result<()> {
        if path.file_name().is_none() || self.live.find_folder(path).is_ok() {
            return Ok(());
        }
        self.put_folder(path.parent().unwrap_or(Path::new("")))?;
        let name = self.live.name(path)?;
        if self.live.named(&name).is_some() {
            return Err(ErrorKind::NotADirectory.into());
        }
        let folder = self.new_node();
        self.place(&name, Node::Folder(folder));
        Ok(())
    }

    fn place(&mut self, name: &Name, node: Node) {
        self.live.link(name, node);
        self.durable.link(name, node);
    }

    /// Returns the device as it would be found if the power were lost now.
    pub(super) fn after_crash(&self, keep: Keep) -> Self {
        let mut found = self.durable.clone();
        let mut coins = Coins(if let Keep::Seeded { seed, .. } = keep { seed } else { 0 });
        for (number, change) in self.unsynced.iter().enumerate() {
            let kept = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::AllBut(lost) => number != lost,
                Keep::Only(kept) => number == kept,
                Keep::Names => change.file().is_none(),
                Keep::Data => change.file().is_some(),
                Keep::Seeded { pieces, .. } => {
                    // The system writes cached pages in any order, so any subset of the pieces may survive.
                    let survivors = change.pieces(pieces.bytes()).into_iter().filter(|_| coins.next() & 1 == 1);
                    survivors.for_each(|piece| piece.apply(&mut found));
                    continue;
                }
            };
            if kept {
                change.apply(&mut found);
            }
        }
        let Self { capacity_bytes, nodes, refuses_locks, writes, .. } = *self;
        let (live, last_write) = (found.clone(), self.last_write.clone());
        Self { live, durable: found, capacity_bytes, nodes, refuses_locks, writes, last_write, ..Self::default() }
    }
}

fn power_is_gone() -> io::Error {
    io::Error::other("the simulated device has lost its power")
}
