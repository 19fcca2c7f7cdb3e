//! The vocabulary that every module may use: resources of a run, errors, options, and data structures that work within
//! any memory.

#[cfg(test)]
pub(crate) mod allocated;
pub(crate) mod checkpoint;
pub(crate) mod choice;
pub(crate) mod context;
pub(crate) mod error;
pub(crate) mod frames;
pub(crate) mod geometry;
pub(crate) mod locks;
pub(crate) mod message;
pub(crate) mod mutex;
pub(crate) mod options;
pub(crate) mod output;
pub(crate) mod part_files;
pub(crate) mod predicate;
pub(crate) mod random;
pub(crate) mod report;
pub(crate) mod row_numbers;
pub(crate) mod sealed;
pub(crate) mod shared_rows;
pub(crate) mod sorter;
pub(crate) mod upload;
pub(crate) mod workers;
