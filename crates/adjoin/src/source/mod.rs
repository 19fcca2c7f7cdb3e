//! Reads vectors from files. Each format has a [`VectorSource`].
//!
//! [`open`] turns files, folders and globs into one source. Rows are counted from 0, in messages too.
//!
//! `Format` in `open.rs` lists the formats. Each has a module that inspects and scans its files, and one in `without/`
//! that writes them without some rows. CSV is not among them: `table_file.rs` reads tables without vectors.

mod ahead;
mod arrow;
mod arrow_table;
mod attributes;
mod columns;
mod csv;
mod dense;
mod digest;
mod elements;
mod facts;
mod file;
#[cfg(test)]
mod fixtures;
mod folder;
mod foreign;
mod generate;
mod generate_model;
mod id_column;
mod json_lines;
mod json_types;
mod named;
mod nested;
mod npy;
mod npz;
mod objects;
mod open;
mod parquet;
mod parquet_footer;
mod parquet_pages;
mod parquet_schema;
mod parquet_texts;
mod raw;
mod shards;
mod split;
mod table_file;
mod table_formats;
mod vectors;
mod window;
mod without;

use std::path::{Path, PathBuf};

use arrow_schema::Schema;

use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::output::Target;
pub use arrow_table::ArrowTable;
pub(crate) use attributes::{Attributes, NumberedTables, kept_schema, kept_tables, kept_tables_bytes, slice_bytes};
pub(crate) use columns::columns_read;
pub(crate) use file::SourceFile;
pub(crate) use file::facts_of_files;
pub(crate) use foreign::is_guarded;
pub use generate::Generated;
pub(crate) use generate::generate;
pub(crate) use id_column::IdColumn;
pub(crate) use named::Named;
pub(crate) use nested::ColumnPlace;
pub(crate) use objects::{check_remote, is_glob};
pub use open::{IdChoice, SourceOptions, open};
pub(crate) use open::{expand, open_counted, open_nonempty};
pub use table_file::TableFile;
pub use vectors::{
    AttributeTables, Fault, IdKind, IdType, Ids, SourceAttributes, SourceInfo, TextIds, VectorBatch, VectorScan,
    VectorSource,
};

impl Generated {
    /// Writes vectors to a `.fbin`, `.u8bin` or `.i8bin` file, according to the element type, or to a `.npy` file. Returns
    /// the bytes written.
    ///
    /// # Errors
    /// Fails if the sizes or the file's extension are invalid, the file exists, or the disk refuses.
    pub fn write(&self, context: &Context, target: &Target) -> Result<u64> {
        generate(context, self, target)
    }
}

impl SourceOptions {
    /// Returns the indices of the columns to read from a table with this schema, ascending: the vectors, the ids, if any,
    /// and `attributes`. For a field of a struct, it is the index of the outermost struct. `path` is for messages.
    ///
    /// # Errors
    /// Fails if a column does not exist or the choice is ambiguous.
    pub fn columns_read(&self, path: &Path, schema: &Schema, attributes: &[String]) -> Result<Vec<usize>> {
        columns_read(path, schema, self, attributes)
    }

    /// Returns the files that a name of a source stands for, in order, without opening them.
    ///
    /// # Errors
    /// Fails if a folder or glob has no files, or cannot be read.
    pub fn expand(source: &str) -> Result<Vec<PathBuf>> {
        expand(source)
    }
}

impl Error {
    /// Returns whether this thread runs a third-party reader. Its panics become errors. A panic hook can call this, so as
    /// not to print the same text as the error.
    pub fn replaces_panic() -> bool {
        is_guarded()
    }
}
