//! Files of an index as they are written, before they have their names.

use std::path::Path;

use adjoin_device::{Reservation, WriteFile};
use xxhash_rust::xxh3::Xxh3;

use super::blocks::BlockWriter;
use crate::context::Context;
use crate::error::Result;
use crate::source::IdKind;
use crate::store::format::checksum;
use crate::store::{Drafts, FileFacts, Files, PartitionSizes, Partitions, Role};

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

/// What a manifest says of the files of an index: all have one tag, which changes with the contents of any.
pub(super) fn files(contents: &Contents, drafted: &[Drafted]) -> Files {
    let in_memory = contents.iter().map(|(role, bytes)| (*role, bytes.len() as u64, checksum(bytes)));
    let written = drafted.iter().map(|drafted| (drafted.role, drafted.bytes, drafted.checksum));
    let all: Vec<(Role, u64, u64)> = in_memory.chain(written).collect();
    let of = |role: Role| all.iter().find(|(with, ..)| *with == role).expect("every role has a file");
    let checksums: Vec<u8> = Role::INDEX.iter().flat_map(|&role| of(role).2.to_le_bytes()).collect();
    let tag = checksum(&checksums);
    Files::new(&Role::INDEX, |role| {
        let &(_, bytes, checksum) = of(role);
        // Pages and blocks have checksums of their own, so that some can be read without the others.
        let whole = !matches!(role, Role::Pages | Role::Ids);
        FileFacts::new(&role.file_of(tag), bytes, whole.then_some(checksum))
    })
}

/// The file of ids, to which they come by entry (`rows.rs` says what lies where).
pub(super) struct IdDraft {
    blocks: BlockWriter,
    /// Texts, which lie behind where all of them end.
    texts: Option<(Partitions, u64)>,
    _memory: Reservation,
}

impl IdDraft {
    /// Holds about `memory` bytes of texts.
    ///
    /// # Errors
    /// Where the disk refuses, or memory does not suffice.
    pub(super) fn new(
        context: &Context,
        (drafts, temporary): (&Drafts<'_>, &Path),
        (kind, memory): (IdKind, u64),
        purpose: &str,
    ) -> Result<Self> {
        let sizes = PartitionSizes::within(memory, 1);
        let memory = context.reserve(if kind == IdKind::Utf8 { sizes.memory_bytes() } else { 0 }, purpose)?;
        let texts = (kind == IdKind::Utf8).then(|| (Partitions::new(context, temporary, "adjoin-ids", sizes), 0));
        Ok(Self { blocks: BlockWriter::new(Draft::new(context, drafts, Role::Ids)?), texts, _memory: memory })
    }

    /// Takes the bytes of the id of the next entry; none where there are no ids.
    ///
    /// # Errors
    /// Where the disk refuses.
    pub(super) fn push(&mut self, id: &[u8]) -> Result<()> {
        match &mut self.texts {
            None => self.blocks.append(id),
            Some((texts, end)) => {
                *end += id.len() as u64;
                texts.push(0, &[id])?;
                self.blocks.append(&end.to_le_bytes())
            }
        }
    }

    /// # Errors
    /// Where the disk refuses.
    pub(super) fn finish(mut self) -> Result<Drafted> {
        if let Some((texts, _)) = self.texts {
            texts.finish()?.read(0, |block| self.blocks.append(block))?;
        }
        self.blocks.finish()
    }
}
