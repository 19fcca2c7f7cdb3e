//! The resources of a run: device, memory, threads, kernel and progress. They are passed as an argument and are never
//! global.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use adjoin_device::{
    BudgetExceeded, Creator, Device, FileKind, FileSystem, LimitedBy, Location, MappedBlocks, MemoryBudget,
    MemoryLimit, Reservation, current_resident_bytes, forget_peak_resident_bytes, memory_limit, peak_resident_bytes,
};
use adjoin_kernels::Kernel;

use crate::base::error::{Error, Result};
use crate::base::locks::{OwnFolder, check_opened_here};
use crate::base::message::{Argument, Mention, message};
use crate::base::options::{MemorySize, format_bytes, parse_memory};
use crate::base::report::{
    Cancel, CommonStatistics, IoStatistics, MemoryStatistics, Progress, STATISTICS_VERSION, Silent,
};
use crate::base::workers::default_threads;

/// Bytes that every budget leaves for the program itself: code, stacks, library tables, and freed memory that the
/// allocator keeps.
pub const RUNTIME_BYTES: u64 = 18_000_000;
/// A budget of more than this many bytes leaves more memory for freed blocks: the fraction 1 / `KEPT_SHARE` of the
/// excess, up to `KEPT_BYTES_MAX` bytes.
const KEPT_BEYOND: u64 = 32 << 20;
const KEPT_SHARE: u64 = 8;
const KEPT_BYTES_MAX: u64 = 32 << 20;
/// Memory that the program itself needs, in addition to the memory that was resident before its work.
const RUNTIME_GROWTH_BYTES: u64 = 6 << 20;
/// Maximum difference between the resident memory of two processes at their start, in bytes, since different pages of
/// the code may be resident. A budget that an error names must be sufficient despite this difference.
const RUNTIME_VARIES_BYTES: u64 = 1 << 20;
/// Budget if the caller sets none, in bytes.
pub(crate) const DEFAULT_MEMORY_BYTES: u64 = 2 << 30;
/// Default budget, as a fraction of the memory of the machine or cgroup.
pub(crate) const DEFAULT_MEMORY_SHARE: f64 = 0.5;

/// Maximum number of threads. It is more than any current machine can run at the same time.
const THREADS_MAX: usize = 4_096;

impl Context {
    /// Returns the resident memory of the process, in bytes, and starts a new measurement of its peak. If several runs
    /// are concurrent, each of them also counts the memory of the others.
    pub fn resident_from_now_on() -> u64 {
        forget_peak_resident_bytes();
        current_resident_bytes()
    }

    /// Fails in a forked child of the process that created `what`.
    ///
    /// # Errors
    /// Fails in every process except the creator.
    pub fn check_opened_here(creator: Creator, what: impl Display) -> Result<()> {
        check_opened_here(creator, what)
    }
}

/// The resources of a run.
#[derive(Clone)]
pub struct Context {
    /// File access. Unless the caller sets another device, it is the file system of the machine, through io_uring if
    /// allowed.
    pub device: Arc<dyn Device>,
    /// Number of compute threads.
    pub threads: usize,
    /// The distance kernels.
    pub kernel: Kernel,
    /// Cancels the work.
    pub cancel: Cancel,
    /// Receives progress.
    pub progress: Arc<dyn Progress>,
    memory_bytes: u64,
    /// The fraction and the limit from which `memory_bytes` was computed, if it was.
    share: Option<(f64, MemoryLimit)>,
    runtime_bytes: u64,
    /// By how much `runtime_bytes` may be larger in another process like this one.
    runtime_varies_bytes: u64,
    /// Resident bytes before the run, if the budget applies only to the growth of the process.
    before_bytes: Option<u64>,
    /// Bytes that other work in this process takes.
    others_bytes: Arc<AtomicU64>,
    /// Minimum number of bytes for buffers in a budget that an error message names.
    named_bytes_min: u64,
    budget: MemoryBudget,
    /// Whether caches may hold free memory between runs.
    keeps_caches: bool,
    /// Folder for temporary files, if the caller has set one.
    temporary: Option<PathBuf>,
}

impl Default for Context {
    fn default() -> Self {
        let budget = MemoryBudget::new(DEFAULT_MEMORY_BYTES - RUNTIME_BYTES);
        Self {
            device: Arc::new(FileSystem::detect().0),
            threads: default_threads(),
            kernel: Kernel::detect(),
            cancel: Cancel::default(),
            progress: Arc::new(Silent),
            memory_bytes: DEFAULT_MEMORY_BYTES,
            share: None,
            runtime_bytes: RUNTIME_BYTES,
            runtime_varies_bytes: 0,
            before_bytes: None,
            others_bytes: Arc::default(),
            named_bytes_min: 0,
            budget,
            keeps_caches: false,
            temporary: None,
        }
    }
}

impl Context {
    /// Sets a budget of `memory_bytes` for the whole process.
    #[must_use]
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        let beyond = memory_bytes.saturating_sub(KEPT_BEYOND);
        // The allocator keeps freed blocks for reuse. They are resident without a reservation, so the budget must
        // include them.
        let kept = (beyond / KEPT_SHARE).clamp(MappedBlocks::KEPT_AT_FIRST, KEPT_BYTES_MAX);
        MappedBlocks::keep(kept);
        let runtime = self.runtime_bytes + (kept - MappedBlocks::KEPT_AT_FIRST);
        let budget = MemoryBudget::new(memory_bytes.saturating_sub(runtime));
        Self { memory_bytes, share: None, budget, ..self }
    }

    /// Accounts for the `resident_bytes` that the process already holds. Must be called before the budget is set. A
    /// command in the process of an interpreter starts with more resident memory than a command in its own process.
    #[must_use]
    pub fn in_process_of(self, resident_bytes: u64) -> Self {
        let runtime_bytes = RUNTIME_BYTES.max(resident_bytes + RUNTIME_GROWTH_BYTES);
        Self { runtime_bytes, runtime_varies_bytes: RUNTIME_VARIES_BYTES, ..self }
    }

    /// Sets the budget and the number of threads from user input. The budget is a size or a fraction of the memory of
    /// the machine or cgroup. The default is the fraction [`Self::DEFAULT_MEMORY_SHARE`]. By default, there are as
    /// many threads as can run at the same time.
    ///
    /// # Errors
    /// Fails if the budget is invalid, or if the number of threads is out of range.
    pub fn with_resources(self, memory: Option<&str>, threads: Option<usize>) -> Result<Self> {
        let (bytes, share) = budget_of(memory, memory_limit(), self.runtime_bytes)?;
        let threads = threads.unwrap_or(self.threads);
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(Error::option(message![Argument::Threads, format!(" is {threads}; give 1 to {THREADS_MAX}")]));
        }
        Ok(Self { threads, share, ..self.with_memory(bytes) })
    }

    /// Returns a context for work that is one part of a larger task. All of the task needs at least `bytes` bytes for
    /// buffers. Budgets that errors name are sufficient for all of it.
    #[must_use]
    pub fn naming_at_least(&self, bytes: u64) -> Self {
        Self { named_bytes_min: self.named_bytes_min.max(bytes), ..self.clone() }
    }

    /// Returns a context for work that is one part of a larger task. All of the task needs `bytes` bytes in addition
    /// to those that are reserved now. Budgets that errors name are sufficient for all of it.
    pub(crate) fn naming_more(&self, bytes: u64) -> Self {
        self.naming_at_least(self.budget.reserved().saturating_add(bytes))
    }

    /// Lets searches on this context keep pages in the free memory for later searches. Other work takes that memory when
    /// it needs it.
    #[must_use]
    pub fn keeping_caches(self) -> Self {
        Self { keeps_caches: true, ..self }
    }

    /// Returns whether caches may hold free memory between runs.
    pub(crate) fn keeps_caches(&self) -> bool {
        self.keeps_caches
    }

    /// Returns a context that divides a reservation. It ends with a run, so it keeps no caches for later ones.
    fn within(&self, reservation: Reservation) -> Self {
        Self { budget: MemoryBudget::within(reservation), keeps_caches: false, ..self.clone() }
    }

    /// Returns a context with another number of threads.
    pub(crate) fn with_threads(&self, threads: usize) -> Self {
        Self { threads, ..self.clone() }
    }

    /// Returns a context that `cancel` cancels.
    pub(crate) fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self.clone() }
    }

    /// Applies the budget only to the growth of the process beyond `before_bytes` and beyond `others_bytes`, the bytes
    /// of other work in the process. `before_bytes` is a result of [`Self::resident_from_now_on`].
    #[must_use]
    pub fn beside(self, before_bytes: u64, others_bytes: Arc<AtomicU64>) -> Self {
        Self { before_bytes: Some(before_bytes), others_bytes, ..self }
    }

    /// Sets the folder for temporary files. They are stores that are built for one join, and data that does not fit in
    /// memory.
    ///
    /// # Errors
    /// Fails if the folder does not exist or cannot be written.
    pub fn with_temporary(self, folder: &Path) -> Result<Self> {
        let named = || Argument::Temporary.with(folder.display());
        match self.device.kind(folder)? {
            Some(FileKind::Folder) => {}
            Some(_) => return Err(Error::device(message![named(), " is not a folder; name one"])),
            None => return Err(Error::device(message![named(), " does not exist; create that folder first"])),
        }
        // Tries to write to the folder, since permissions alone do not show whether the disk accepts files.
        if let Err(error) = OwnFolder::create(&self.device, folder, "trial") {
            let refused = message![named(), format!(" cannot be written; name another folder ({error})")];
            return Err(Error::device(refused).caused_by(error));
        }
        Ok(Self { temporary: Some(folder.to_owned()), ..self })
    }

    /// Sets the folder for temporary files, unless one is set already or `folder` is in an object store.
    #[must_use]
    pub fn or_temporary(mut self, folder: &Path) -> Self {
        if !Location::is_remote(folder) {
            self.temporary.get_or_insert_with(|| folder.to_owned());
        }
        self
    }

    /// Returns the folder for temporary files of work on files in `folder`. It is the folder that the caller set.
    /// Otherwise it is `folder`, since the disk of the result must have free space in any case. Without `folder`, or if
    /// it is in an object store, it is the system's temporary folder.
    pub fn temporary(&self, folder: Option<&Path>) -> PathBuf {
        let folder = folder.filter(|folder| !Location::is_remote(folder));
        self.temporary.as_deref().or(folder).map_or_else(std::env::temp_dir, Path::to_owned)
    }

    /// Returns the peak resident memory so far and the budget.
    pub fn memory(&self) -> MemoryStatistics {
        let (budget_bytes, peak_bytes) = (self.memory_bytes, peak_resident_bytes());
        let before_bytes = self.before_bytes.map(|before| before + self.others_bytes.load(Ordering::Relaxed));
        // Memory that the process held before the run, such as that of an interpreter, does not count.
        let kept = peak_bytes.map(|peak| peak.saturating_sub(before_bytes.unwrap_or(0)) <= budget_bytes);
        let limit = self.share.map(|(_, limit)| limit);
        MemoryStatistics {
            budget_bytes,
            share: self.share.map(|(share, _)| share),
            share_of_bytes: limit.map(|limit| limit.bytes),
            share_of: limit.map(|limit| match limit.by {
                LimitedBy::Machine => "machine",
                LimitedBy::Cgroup => "cgroup",
            }),
            peak_bytes,
            before_bytes,
            kept,
            over_time: None,
        }
    }

    /// Returns the statistics that every command reports. The caller adds those of its input.
    pub(crate) fn statistics(&self, command: &'static str) -> CommonStatistics {
        CommonStatistics {
            version: STATISTICS_VERSION,
            command,
            memory: self.memory(),
            io: IoStatistics { device: self.device.name().into(), ..IoStatistics::default() },
            threads: self.threads,
            kernel: self.kernel.name(),
            ..CommonStatistics::default()
        }
    }

    /// Returns the budget of the whole process, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Returns the budget for buffers, which is a part of the budget of the process.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns a context for a separate run with all memory that is free, but at least `least` bytes. If necessary,
    /// waits until other runs on this context have ended. The memory is returned when the budget of the run is
    /// dropped. A run must not begin inside another run on this context, since it would wait for itself. It must use
    /// the context of that other run.
    ///
    /// # Errors
    /// Fails if `least` bytes would not even be free after other runs end. The error then names the minimum budget.
    /// Also fails if the work is cancelled.
    pub fn for_run(&self, least: u64, purpose: &str) -> Result<Self> {
        self.check_creator()?;
        let waiting = || self.progress.note("waiting for memory that another run holds");
        match self.budget.reserve_for_run(least, || self.cancel.check().is_err(), waiting) {
            Ok(Some(reservation)) => Ok(self.within(reservation)),
            Ok(None) => Err(self.cancel.check().err().unwrap_or_else(Error::cancelled)),
            Err(BudgetExceeded { wanted, free, total }) => Err(self.too_small(wanted + total - free, purpose)),
        }
    }

    /// Returns a context with `bytes` bytes of the free memory. Does not wait for other runs.
    ///
    /// # Errors
    /// Fails if `bytes` bytes are not free. The error names the minimum budget.
    pub fn with_reserved(&self, bytes: u64, purpose: &str) -> Result<Self> {
        Ok(self.within(self.reserve(bytes, purpose)?))
    }

    /// Returns a context for long work next to other runs. It has three quarters of the free memory, but at least
    /// `enough` bytes. The memory is returned when the last clone of the context is dropped.
    ///
    /// # Errors
    /// Fails as [`Context::for_run`] does.
    pub(crate) fn for_long_run(&self, enough: u64, purpose: &str) -> Result<Self> {
        let run = self.for_run(enough, purpose)?;
        // All free memory is reserved first, since only then is it known how much is free.
        run.budget.shrink((run.budget.total() / 4 * 3).max(enough));
        Ok(run)
    }

    /// Reserves `bytes` for `purpose`.
    ///
    /// # Errors
    /// Fails if `bytes` bytes are not free. The error names the minimum budget.
    pub fn reserve(&self, bytes: u64, purpose: &str) -> Result<Reservation> {
        self.check_creator()?;
        let reserved = self.budget.reserve(bytes);
        reserved.map_err(|BudgetExceeded { wanted, free, total }| self.too_small(wanted + total - free, purpose))
    }

    /// Reserves `bytes` for `purpose`. If necessary, waits until other runs on this context have ended.
    ///
    /// # Errors
    /// Fails as [`Context::for_run`] does.
    pub fn reserve_between_runs(&self, bytes: u64, purpose: &str) -> Result<Reservation> {
        self.check_creator()?;
        loop {
            if let Ok(reserved) = self.budget.reserve(bytes) {
                return Ok(reserved);
            }
            // Waits until other runs have ended. Another thread may reserve the memory first, so the loop tries again.
            drop(self.for_run(bytes, purpose)?);
        }
    }

    /// Fails in a forked child. There, a lock of the budget might never be released.
    fn check_creator(&self) -> Result<()> {
        check_opened_here(self.budget.creator(), "the memory budget")
    }

    /// Grows a reservation to `bytes`, for `purpose`.
    ///
    /// # Errors
    /// Fails as [`Context::reserve`] does.
    pub(crate) fn grow(&self, reservation: &mut Reservation, bytes: u64, purpose: &str) -> Result<()> {
        let more = self.reserve(bytes.saturating_sub(reservation.bytes()), purpose)?;
        reservation.join(more);
        Ok(())
    }

    /// Returns the error for a budget that does not leave `least` bytes for buffers. The budget that it names also
    /// includes the program itself and other work.
    pub(crate) fn too_small(&self, least: u64, purpose: &str) -> Error {
        // Users set the budget of the whole process, so the message must not name the part for buffers.
        let least = self.whole_budget(least);
        let (needed, budget) = (format_bytes(least), format_bytes(self.memory_bytes));
        Error::budget(message![
            format!("{purpose} needs at least {needed} of memory, the budget is {budget}; give "),
            Self::memory_of(least),
            " or more"
        ])
    }

    /// Returns a mention of the option that sets a budget of `bytes` bytes.
    pub(crate) fn memory_of(bytes: u64) -> Mention {
        Argument::Memory.with(format!("{}MB", bytes.div_ceil(1_000_000)))
    }

    /// Returns the minimum budget with which a run of its own in this process has `least` bytes for buffers.
    pub(crate) fn least_budget(&self, least: u64) -> u64 {
        let least = least + self.runtime_bytes + self.runtime_varies_bytes;
        least + least.saturating_sub(KEPT_BEYOND) / (KEPT_SHARE - 1)
    }

    /// Returns the minimum budget of the whole process that leaves `least` bytes for buffers next to the work of this
    /// context.
    pub(crate) fn whole_budget(&self, least: u64) -> u64 {
        let least = least + (self.memory_bytes - self.budget.total().min(self.memory_bytes)).max(self.runtime_bytes);
        let least = least.max(self.named_bytes_min.saturating_add(self.runtime_bytes)) + self.runtime_varies_bytes;
        // A larger budget leaves more memory for freed blocks.
        least + least.saturating_sub(self.memory_bytes.max(KEPT_BEYOND)) / (KEPT_SHARE - 1)
    }
}

/// Parses the budget of a process that needs `runtime_bytes` bytes for itself. Returns the budget, and the fraction
/// and the limit from which it was computed, if it was.
fn budget_of(
    memory: Option<&str>,
    limit: Option<MemoryLimit>,
    runtime_bytes: u64,
) -> Result<(u64, Option<(f64, MemoryLimit)>)> {
    let share_of = |share: f64, limit: MemoryLimit| (limit.bytes as f64 * share) as u64;
    let Some(text) = memory else {
        let Some(limit) = limit else { return Ok((DEFAULT_MEMORY_BYTES, None)) };
        let bytes = share_of(DEFAULT_MEMORY_SHARE, limit);
        // On a machine with little memory, half of it may be too small for the program itself.
        let starts = bytes > runtime_bytes;
        let least = (runtime_bytes.div_ceil(1_000_000) + 1) * 1_000_000;
        return Ok(if starts { (bytes, Some((DEFAULT_MEMORY_SHARE, limit))) } else { (least, None) });
    };
    let (bytes, share) = match (parse_memory(text)?, limit) {
        (MemorySize::Bytes(bytes), _) => (bytes, None),
        (MemorySize::Share(share), Some(limit)) => (share_of(share, limit), Some((share, limit))),
        (MemorySize::Share(_), None) => {
            let named = Argument::Memory.with(text);
            let why = " is a fraction of the memory, but the system does not report how much there is; give ";
            return Err(Error::option(message![named, why, Argument::Memory, " as a size, such as 2GiB"]));
        }
    };
    // The budget may be too small even for the program. Then the first reservation fails, and its error names a larger
    // one.
    Ok((bytes, share))
}

impl Context {
    /// Default budget, as a fraction of the memory of the machine or cgroup.
    pub const DEFAULT_MEMORY_SHARE: f64 = DEFAULT_MEMORY_SHARE;
}

#[cfg(test)]
mod tests {
    use super::*;

    const CGROUP: MemoryLimit = MemoryLimit { bytes: 300_000_000, by: LimitedBy::Cgroup };

    #[test]
    fn the_default_budget_is_half_of_memory_and_enough_to_start() {
        let without = |limit| budget_of(None, limit, RUNTIME_BYTES).unwrap();
        assert_eq!(without(Some(CGROUP)), (150_000_000, Some((0.5, CGROUP))));
        assert_eq!(without(Some(MemoryLimit { bytes: 20_000_000, ..CGROUP })), (19_000_000, None));
        assert_eq!(without(Some(MemoryLimit { bytes: 0, ..CGROUP })), (19_000_000, None));
        assert_eq!(without(None), (DEFAULT_MEMORY_BYTES, None));
    }

    #[test]
    fn a_budget_is_a_size_or_a_fraction() {
        let of = |text, limit| budget_of(Some(text), limit, RUNTIME_BYTES);
        assert_eq!(of("80%", Some(CGROUP)).unwrap(), (240_000_000, Some((0.8, CGROUP))));
        assert_eq!(of("4GiB", Some(CGROUP)).unwrap(), (4 << 30, None));
        assert_eq!(of("4GiB", None).unwrap(), (4 << 30, None));
        // A budget that is too small for the program is refused by the first work, which knows what it needs.
        assert_eq!(of("5%", Some(CGROUP)).unwrap(), (15_000_000, Some((0.05, CGROUP))));
        assert_eq!(of("1KB", None).unwrap(), (1_000, None));
        for (text, limit, words) in [
            ("80%", None, "give memory as a size, such as 2GiB"),
            ("800%", Some(CGROUP), "800% is not a fraction of the memory"),
        ] {
            let refused = of(text, limit).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
