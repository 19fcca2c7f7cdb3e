//! Stores: vectors on disk, grouped into buckets so that near vectors are stored together.
//!
//! A store is a folder that [`build`] writes once and [`Store`] reads many times. It does not depend on a threshold,
//! recall, sink, thread count or budget. `docs/format.md` describes its bytes.

mod append;
mod assign;
mod attribute_rows;
mod attributes;
mod bad_rows;
mod blocks;
mod buckets;
mod centers;
mod checkpoint;
mod draw;
mod files;
mod filter_bitmap;
mod folder;
pub(crate) mod format;
mod ids;
mod intake;
mod kind;
mod manifest;
mod memory;
mod ordinals;
mod partitions;
mod publish;
mod reader;
mod tree;
mod verify;
mod writer;

use std::path::Path;

use crate::base::context::Context;
use crate::base::error::Result;
use crate::base::message::Mention;
pub use crate::base::row_numbers::RowSet;
use crate::source::VectorSource;
pub(crate) use append::check_new_ids;
pub use append::{Append, AppendReport};
pub(crate) use append::{append, context_of_append};
pub(crate) use assign::{TwoLevel, memory_bytes as assigning_bytes};
pub(crate) use attribute_rows::AttributeRows;
pub(crate) use attributes::Reordering;
pub(crate) use bad_rows::fault_of_vector;
pub(crate) use buckets::{extent_rows_max, row_bytes};
pub use centers::default_buckets;
pub(crate) use centers::{TrainingSample, build_distances, coding_bytes, train, training_bytes};

pub(crate) use draw::Draw;
pub use files::{FileFacts, Files, Role};
pub(crate) use filter_bitmap::FilterBitmap;
pub(crate) use filter_bitmap::{AttributeFile, CHECKING_BYTES, StoredColumns, columns_bytes, required_columns};
pub(crate) use folder::FolderFiles;
pub(crate) use ids::{IdCheck, check_same_kind, hash_of};
pub(crate) use intake::{
    Intake, Scanned, UsableRows, batch_bytes, fix, fix_or_skip, read_all, read_all_bytes, scan_bytes, tell,
};
pub(crate) use kind::{find_manifest, has_manifest};
pub(crate) use kind::{kind_of, refuse_remote, sole_store};
pub use manifest::{Kind, Manifest};
pub(crate) use manifest::{NO_CHECKSUM, is_longest, is_replaced, read_manifest, read_manifest_bytes, sealed, unsealed};
pub(crate) use memory::{BuildInput, BuildMemory};
pub(crate) use partitions::{BLOCK_BYTES_MAX, PartitionSizes, Partitions, Records};
pub(crate) use publish::{Drafts, check_target, is_ours};
pub use reader::Store;
pub(crate) use verify::verify;
pub use verify::{Damage, DamagedPart, VerifyReport};
pub(crate) use writer::NoUsableRow;
pub(crate) use writer::build;
pub use writer::{BuildOptions, BuildReport, OnBad, OnDuplicateId, TemporaryStore};

impl Store {
    /// Builds a store in the folder `store` from a source, which is scanned twice.
    ///
    /// # Errors
    /// Fails if the source has unusable rows or ids, the budget is too small, something exists at `store` already, or the
    /// disk refuses. The folder is then unchanged.
    pub fn build(
        context: &Context,
        source: &dyn VectorSource,
        store: &Path,
        options: &BuildOptions,
    ) -> Result<BuildReport> {
        build(context, source, store, options)
    }

    /// Publishes the next generation of the store in a folder. Open readers keep the old one.
    ///
    /// # Errors
    /// Fails, and leaves the store unchanged, if
    /// - the folder holds no store,
    /// - the new rows do not match its rows,
    /// - more rows were appended since the store was built than it had then,
    /// - no row would be left, or
    /// - the budget is too small or the disk refuses.
    pub fn append(context: &Context, folder: &Path, changes: &Append<'_>) -> Result<AppendReport> {
        append(context, folder, changes)
    }

    /// Returns a context that names, in refusals, the memory that an append to the store in a folder needs, as far as its
    /// manifest determines it.
    ///
    /// # Errors
    /// Fails if the manifest cannot be read.
    pub fn append_context(context: &Context, folder: &Path) -> Result<Context> {
        context_of_append(context, folder)
    }

    /// Reads every file of a store and lists every damaged part. Needs little memory, whatever the store's size: a piece of
    /// a file at a time, and the bucket table.
    ///
    /// # Errors
    /// Fails if the folder holds no store, the store is of a newer version, the budget does not hold the bucket table, or
    /// the caller cancels. Damage is not an error: it is listed in the report.
    pub fn verify(context: &Context, folder: &Path) -> Result<VerifyReport> {
        verify(context, folder)
    }

    /// Returns the store among the inputs of a join; `None` if all inputs are sources, which collections are too. A store
    /// must be the only input, and options that apply only to builds (`only_for_builds`) must be absent.
    ///
    /// # Errors
    /// Fails if the store is not the only input, such an option is given, an input is an index, or [`Kind::of`] fails.
    pub fn sole_input<'a>(
        context: &Context,
        inputs: &'a [String],
        only_for_builds: Option<Mention>,
    ) -> Result<Option<&'a Path>> {
        sole_store(context, inputs, only_for_builds)
    }
}

impl Kind {
    /// Returns the kind of a folder; `None` if it has no manifest or is not a folder.
    ///
    /// # Errors
    /// Fails if the manifest is damaged or of a kind that only a later version knows, or the device does not allow access.
    pub fn of(context: &Context, folder: &Path) -> Result<Option<Kind>> {
        kind_of(context, folder)
    }
}
