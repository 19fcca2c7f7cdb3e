//! Writes files of an index as drafts, before they get their names.

use adjoin_device::WriteFile;
use xxhash_rust::xxh3::Xxh3;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Files, Role};

/// Files with contents that are in memory, by role.
pub(super) type Contents = Vec<(Role, Vec<u8>)>;

/// File that is being written, with the checksum of the bytes that it has so far.
pub(super) struct Draft {
    role: Role,
    file: Box<dyn WriteFile>,
    hash: Xxh3,
    bytes: u64,
}

/// File that is complete and durable.
pub(super) struct Drafted {
    role: Role,
    bytes: u64,
    checksum: u64,
}

impl Draft {
    /// Creates the file of a role among the drafts.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(super) fn new(context: &Context, drafts: &Drafts<'_>, role: Role) -> Result<Self> {
        Ok(Self { role, file: context.device.create(&drafts.path(role.file()))?, hash: Xxh3::new(), bytes: 0 })
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(self.file.append(bytes)?)
    }

    /// Makes the file durable. Returns the facts about it.
    ///
    /// # Errors
    /// If the file cannot be synced.
    pub(super) fn finish(mut self) -> Result<Drafted> {
        self.file.sync()?;
        Ok(Drafted { role: self.role, bytes: self.bytes, checksum: self.hash.digest() })
    }
}

/// Writes the files in `contents`. Returns the facts for the manifest about these files and the files in `drafted`,
/// which are written already. Together these are all files except the calibration and the columns.
///
/// # Errors
/// If a file cannot be written.
pub(super) fn write_rest(drafts: &Drafts<'_>, contents: &Contents, drafted: &[Drafted]) -> Result<Files> {
    contents.iter().try_for_each(|(role, contents)| drafts.write(role.file(), contents))?;
    Ok(files(contents, drafted))
}

/// Returns the facts for the manifest about all files. All file names have a common tag, which depends on the contents
/// of all files.
fn files(contents: &Contents, drafted: &[Drafted]) -> Files {
    let in_memory = contents.iter().map(|(role, bytes)| (*role, bytes.len() as u64, checksum(bytes)));
    let written = drafted.iter().map(|drafted| (drafted.role, drafted.bytes, drafted.checksum));
    let all: Vec<(Role, u64, u64)> = in_memory.chain(written).collect();
    let of = |role: Role| all.iter().find(|(with, ..)| *with == role).expect("every role has a file");
    let roles: Vec<Role> = Role::INDEX.into_iter().filter(|role| !role.is_optional()).collect();
    let checksums: Vec<u8> = roles.iter().flat_map(|&role| of(role).2.to_le_bytes()).collect();
    // File names change with the contents, so a new index never overwrites a file that the current manifest names.
    let tag = checksum(&checksums);
    Files::new(&roles, |role| {
        let &(_, bytes, checksum) = of(role);
        // Each page and each block has its own checksum, so that parts of these files can be read.
        let whole = !matches!(role, Role::Pages | Role::Ids);
        FileFacts::new(&role.file_of(tag), bytes, whole.then_some(checksum))
    })
}
