//! Checks that new rows do not have the ids of existing rows.

use std::sync::atomic::AtomicU64;

use super::old_rows::{OldRows, read_bucket};
use crate::base::context::Context;
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::format_count;
use crate::source::IdKind;
use crate::store::ids::{IdCheck, hash_of};
use crate::store::reader::Store;

/// Purpose of the memory, for messages.
const PURPOSE: &str = "checking the ids of new rows";
/// Maximum memory for finding duplicate ids, in bytes.
const ID_CHECK_BYTES_MAX: u64 = 64 << 20;

/// Refuses new rows if one of them has the id of a row of `old`. `named` is the name of the new rows in the message.
/// If `is_built` is true, build options apply, and the message suggests one.
///
/// # Errors
/// Fails if there is such a row; the error names the first one. Also fails if a store cannot be read or memory does
/// not suffice.
pub(crate) fn check_new_ids(context: &Context, old: &Store, new: &Store, named: &str, is_built: bool) -> Result<()> {
    if old.manifest().ids == IdKind::None {
        return Ok(());
    }
    let (first_new, rows) = (old.manifest().source_rows, old.manifest().rows + new.manifest().rows);
    let largest = |store: &Store| store.extents().iter().map(OldRows::bytes_read).max().unwrap_or(0);
    // Reserve memory for the buckets first. The check then gets a fraction of the memory that is still free.
    let _buckets = context.reserve(largest(old).max(largest(new)), PURPOSE)?;
    let bytes = IdCheck::wanted_bytes(rows).min(ID_CHECK_BYTES_MAX).min(context.budget().free() / 4);
    let memory = context.reserve(bytes.max(IdCheck::least_bytes()), PURPOSE)?;
    let mut check = IdCheck::new(context, &context.temporary(old.folder().parent()), rows, bytes);
    for (store, first) in [(old, 0), (new, first_new)] {
        each_hash(context, store, &mut |row, hash, _| check.add_hash(hash, first + row))?;
    }
    let found = check.finish(first_new)?;
    drop(memory);
    let Some(row) = found.first.map(|row| row - first_new) else { return Ok(()) };
    let mut id = String::new();
    // The check has only hashes. So the new rows are read again to find the id for the message.
    each_hash(context, new, &mut |number, _, shown| {
        if number == row {
            id = shown();
        }
        Ok(())
    })?;
    let (at, count) = (old.folder().display(), found.coming);
    let all = format_count(count, "such row");
    let said = format!("{named}: the id {id} of row {row} was used by an earlier row ({all} in all); ");
    let remove = format!("remove the rows of {at} that they replace, with adjoin append and ");
    let message = match is_built {
        true => message![said, "give ", Argument::OnDuplicateId.with("keep"), ", or ", remove, Argument::Delete],
        false => message![said, "leave them out, or ", remove, Argument::Delete],
    };
    Err(Error::input(message))
}

/// Function that takes the number of a row, the hash of its id, and a function that returns the id as text.
type TakeHash<'t> = dyn FnMut(u64, u128, &dyn Fn() -> String) -> Result<()> + 't;

/// Passes the hash of each row's id to `take`.
fn each_hash(context: &Context, store: &Store, take: &mut TakeHash<'_>) -> Result<()> {
    let bytes = AtomicU64::new(0);
    context.progress.begin("check", "buckets", store.extents().len() as u64);
    for number in 0..store.extents().len() as u32 {
        context.cancel.check()?;
        read_bucket(store, number, &bytes, |row, _, ids, k| {
            hash_of(ids, k).map_or(Ok(()), |hash| take(row, hash, &|| ids.display(k, row)))
        })?;
        context.progress.advance(u64::from(number) + 1);
    }
    Ok(())
}
