//! Files of an index as they are written, before they have their names.

use adjoin_device::WriteFile;
use xxhash_rust::xxh3::Xxh3;

use crate::context::Context;
use crate::error::Result;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Files, Role};

/// Files that are written once all of their bytes are in memory.
pub(super) type Contents = Vec<(Role, Vec<u8>)>;

/// A file that is being written, and the checksum of what was.
pub(super) struct Draft {
    role: Role,
    file: Box<dyn WriteFile>,
    hash: Xxh3,
    bytes: u64,
}

/// A file that is there and durable.
pub(super) struct Drafted {
    role: Role,
    bytes: u64,
    checksum: u64,
}

impl Draft {
    /// # Errors
    /// Where the disk refuses.
    pub(super) fn new(context: &Context, drafts: &Drafts<'_>, role: Role) -> Result<Self> {
        Ok(Self { role, file: context.device.create(&drafts.path(role.file()))?, hash: Xxh3::new(), bytes: 0 })
    }

    /// # Errors
    /// Where the disk refuses.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(self.file.append(bytes)?)
    }

    /// # Errors
    /// Where the disk refuses.
    pub(super) fn finish(mut self) -> Result<Drafted> {
        self.file.sync()?;
        Ok(Drafted { role: self.role, bytes: self.bytes, checksum: self.hash.digest() })
    }
}

/// Writes the rest of the files of an index, beside those that are there; returns what a manifest says of all but the
/// calibration.
///
/// # Errors
/// Where the disk refuses.
pub(super) fn write_rest(drafts: &Drafts<'_>, contents: &Contents, drafted: &[Drafted]) -> Result<Files> {
    contents.iter().try_for_each(|(role, contents)| drafts.write(role.file(), contents))?;
    Ok(files(contents, drafted))
}

/// What a manifest says of the files of an index but its calibration: all have one tag, which changes with the contents of any.
fn files(contents: &Contents, drafted: &[Drafted]) -> Files {
    let in_memory = contents.iter().map(|(role, bytes)| (*role, bytes.len() as u64, checksum(bytes)));
    let written = drafted.iter().map(|drafted| (drafted.role, drafted.bytes, drafted.checksum));
    let all: Vec<(Role, u64, u64)> = in_memory.chain(written).collect();
    let of = |role: Role| all.iter().find(|(with, ..)| *with == role).expect("every role has a file");
    let roles: Vec<Role> = Role::INDEX.into_iter().filter(|role| !role.is_optional()).collect();
    let checksums: Vec<u8> = roles.iter().flat_map(|&role| of(role).2.to_le_bytes()).collect();
    let tag = checksum(&checksums);
    Files::new(&roles, |role| {
        let &(_, bytes, checksum) = of(role);
        // Pages and blocks have checksums of their own, so that some can be read without the others.
        let whole = !matches!(role, Role::Pages | Role::Ids);
        FileFacts::new(&role.file_of(tag), bytes, whole.then_some(checksum))
    })
}
