//! Reads vectors from files. Each format has a [`VectorSource`].
//!
//! [`open`] combines files, folders and globs into one source. Row numbers start at 0, in messages, too.
//!
//! `Format` in `format.rs` lists the formats. Each format has a module that inspects and scans its files, and a module
//! in `without/` that copies its files without some rows. CSV is not a format of vectors: `table_file.rs` reads tables
//! without vectors.

mod ahead;
mod arrow;
mod arrow_message;
mod arrow_table;
mod attributes;
mod columns;
mod csv;
mod dense;
mod dense_layout;
mod digest;
mod elements;
mod facts;
mod file;
#[cfg(test)]
mod fixtures;
mod folder;
mod foreign;
mod format;
mod generate;
mod generate_model;
mod globs;
mod id_column;
mod json_lines;
mod json_types;
mod lines;
mod named;
mod narrowed;
mod narrowed_file;
mod nested;
mod npy;
mod npz;
mod npz_arrays;
mod objects;
mod open;
mod options;
mod parquet;
mod parquet_claims;
mod parquet_footer;
mod parquet_pages;
mod parquet_schema;
mod parquet_texts;
mod raw;
mod row_range;
mod safetensors;
mod shards;
mod split;
mod table_file;
mod table_formats;
mod vector_source;
mod vectors;
mod window;
mod without;

pub use arrow_table::ArrowTable;
pub(crate) use attributes::{
    Attributes, NumberedTables, kept_schema, kept_tables, kept_tables_bytes, kept_tables_memory, open_kept_tables,
    slice_bytes,
};
pub(crate) use file::SourceFile;
pub use generate::Generated;
pub(crate) use id_column::IdColumn;
pub(crate) use named::Named;
pub(crate) use narrowed::narrowed;
pub(crate) use nested::ColumnPlace;
pub(crate) use objects::{check_remote, is_glob};
pub use open::open;
pub(crate) use open::{open_counted, open_nonempty, open_tables};
pub use options::{IdChoice, SourceOptions};
pub(crate) use parquet::TablesMemory;
pub(crate) use row_range::RowRange;
pub use table_file::TableFile;
pub(crate) use vector_source::facts_of_files;
pub use vector_source::{AttributeTables, SourceAttributes, SourceInfo, VectorSource};
pub(crate) use vectors::TextIds;
pub use vectors::{Fault, IdKind, Ids, VectorBatch, VectorScan};
