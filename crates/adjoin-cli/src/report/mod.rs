//! A page to look at: one file that needs no network, made from the pairs of a join.

mod page;
mod pairs;
mod table;

pub(crate) use page::Page;
pub(crate) use table::names_of;
