//! Stores: vectors on disk, grouped into buckets so that near vectors are stored together.
//!
//! A store is a folder. [`Store::build`] writes it once, and a [`Store`] reads it many times. It does not depend on a
//! threshold, recall, sink, thread count or budget. `docs/format.md` describes its bytes.

mod append;
mod assign;
mod attribute_rows;
mod attributes;
mod bad_rows;
mod blocks;
mod bucket_file;
mod buckets;
mod buckets_check;
mod centers;
mod checkpoint;
mod draw;
mod files;
mod filter_bitmap;
mod folder;
pub(crate) mod format;
mod gathered_columns;
mod held;
mod ids;
mod intake;
mod kind;
mod learning;
mod manifest;
mod memory;
mod options;
mod ordinals;
mod partitions;
mod parts;
mod publish;
mod reader;
mod record_runs;
mod records;
mod replaced_folder;
mod result_columns;
mod shuffle;
mod sorting;
mod tree;
mod verify;
mod writer;

pub use crate::base::row_numbers::RowSet;
pub(crate) use append::check_new_ids;
pub use append::{Append, AppendReport};
pub(crate) use assign::{TwoLevel, memory_bytes as assigning_bytes};
pub(crate) use attribute_rows::AttributeRows;
pub(crate) use attributes::Reordering;
pub(crate) use bad_rows::fault_of_vector;
pub(crate) use buckets::{extent_rows_max, row_bytes};
pub(crate) use buckets_check::BucketsCheck;
pub use centers::default_buckets;
pub(crate) use centers::{TrainingSample, build_distances, coding_bytes, train, training_bytes};

pub(crate) use draw::Draw;
pub use files::{FileFacts, Files, Role};
pub(crate) use filter_bitmap::FilterBitmap;
pub(crate) use filter_bitmap::{
    AttributeFile, CHECKING_BYTES, FetchingBytes, StoredColumns, columns_bytes, required_columns,
};
pub(crate) use folder::FolderFiles;
pub(crate) use gathered_columns::{ColumnGathering, GATHERED_LINE_BYTES, GatheredColumns};
pub(crate) use ids::{IdCheck, check_one_kind, check_same_kind, hash_of};
pub(crate) use intake::{
    Intake, Scanned, UsableRows, batch_bytes, fix, fix_or_skip, read_all, read_all_bytes, scan_bytes, tell,
};
pub(crate) use kind::{find_manifest, has_manifest, refuse_remote};
pub(crate) use learning::NoUsableRow;
pub use manifest::{FolderKind, StoreManifest};
pub(crate) use manifest::{
    NO_CHECKSUM, is_longest, is_other_manifest, is_replaced, named_files, read_manifest, read_manifest_bytes, sealed,
    unsealed,
};
pub(crate) use memory::{BuildInput, BuildMemory};
pub use options::{BuildOptions, OnBad, OnDuplicateId};
pub(crate) use partitions::{BLOCK_BYTES_MAX, PartitionSizes, Partitions, Records};
pub use parts::BuildPlan;
pub(crate) use publish::{Drafts, check_replaceable, check_target, is_file_of_ours, is_ours};
pub use reader::Store;
pub(crate) use replaced_folder::{REPLACED_MARK, ReplacedFolder};
pub(crate) use result_columns::{ColumnNeeds, ResultColumns, kept_needs, places_of};
pub use verify::{Damage, DamagedPart, StoreVerifyReport};
pub(crate) use writer::BuildReport;
pub use writer::TemporaryStore;
