//! Verifies that every byte of an index is as it was written, and that every vertex of its graph is reachable.

use std::fmt;
use std::path::Path;

use super::blocks::BlockReader;
use super::page::{Page, PageShape};
use super::scan::{NoPage, Scan};
use super::{Index, IndexManifest};
use crate::base::context::Context;
use crate::base::error::{ErrorKind, Result};
use crate::base::locks::is_writer_file;
use crate::base::message::Message;
use crate::base::row_numbers::RowSet;
use crate::store::{CHECKING_BYTES, Role, is_ours};

const PURPOSE: &str = "verifying";
/// Largest number of damages that are listed. Further damages are only counted.
const LISTED_MAX: usize = 1_000;

/// A damaged part of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDamage {
    /// Name of the damaged file. `None` if opening the index failed, or if the damage is not in a single file.
    pub file: Option<String>,
    /// Number of the damaged page, if the damage is in a page.
    pub page: Option<u32>,
    /// Description of the damage.
    pub fault: String,
}

/// Prints a single line, even if a file name from the manifest has line breaks.
impl fmt::Display for IndexDamage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.as_ref().map_or(String::new(), |file| format!("{file}: "));
        let page = self.page.map_or(String::new(), |page| format!("page {page}: "));
        out.write_str(&Message::one_line(format!("{file}{page}{}", self.fault)))
    }
}

/// Result of [`Index::verify`](crate::Index::verify).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexVerifyReport {
    /// Number of pages checked.
    pub pages: u64,
    /// Bytes read of pages, ids and columns.
    pub bytes_read: u64,
    /// Damages, at most a thousand.
    pub damages: Vec<IndexDamage>,
    /// Total number of damages.
    pub damage_count: u64,
    /// Files that builds which did not finish left in the folder, at most a thousand. They are harmless.
    pub leftovers: Vec<String>,
    /// Other files and folders that the manifest does not name, at most a thousand. Other programs or users created
    /// them.
    pub strangers: Vec<String>,
}

impl IndexVerifyReport {
    /// Returns whether there is no damage.
    pub fn is_sound(&self) -> bool {
        self.damage_count == 0
    }

    fn add(&mut self, file: Option<&str>, page: Option<u32>, fault: impl Into<String>) {
        self.damage_count += 1;
        if self.damages.len() < LISTED_MAX {
            self.damages.push(IndexDamage { file: file.map(str::to_owned), page, fault: fault.into() });
        }
    }
}

impl Index {
    /// Reads every file of an index. Checks checksums, degrees and neighbors. Also checks that each row exists once and
    /// that each vertex is reachable. Reads the pages several times, and needs a few bits of memory per row.
    ///
    /// # Errors
    /// If there is no index, if it has a newer version, if memory does not suffice, or if the caller cancels. Damage is
    /// not an error; it is in the report.
    pub fn verify(context: &Context, folder: &Path) -> Result<IndexVerifyReport> {
        let mut report = IndexVerifyReport::default();
        // If the manifest cannot be read, opening the index below reports that.
        let context = match IndexManifest::read(context, folder) {
            Ok(facts) => &context.naming_at_least(verifying_bytes(&facts)),
            Err(_) => context,
        };
        match Index::open(context, folder) {
            Ok(index) => Check::new(context, &index, &mut report)?.run()?,
            Err(error) if error.kind() == ErrorKind::Corrupt => report.add(None, None, error.to_string()),
            Err(error) => return Err(error),
        }
        Ok(report)
    }
}

/// Returns the bytes that verifying an index takes, including the open index.
pub(crate) fn verifying_bytes(facts: &IndexManifest) -> u64 {
    let of_columns = if facts.files.get(Role::Attributes).is_some() { CHECKING_BYTES } else { 0 };
    Index::memory_bytes(facts) + working_bytes(facts) + of_columns
}

/// Returns the bytes of the page buffers and of the sets of rows and vertices.
fn working_bytes(facts: &IndexManifest) -> u64 {
    let sets = RowSet::memory_bytes(facts.source_rows) + 2 * RowSet::memory_bytes(facts.vertices.into());
    2 * Scan::memory_bytes(facts.shape()) + sets
}

struct Check<'a> {
    context: &'a Context,
    index: &'a Index,
    report: &'a mut IndexVerifyReport,
    shape: PageShape,
    vertices: u32,
    scan: Scan,
    _memory: adjoin_device::Reservation,
}

impl<'a> Check<'a> {
    fn new(context: &'a Context, index: &'a Index, report: &'a mut IndexVerifyReport) -> Result<Self> {
        let (shape, vertices) = (index.facts().shape(), index.facts().vertices);
        let memory = context.reserve(working_bytes(index.facts()), PURPOSE)?;
        Ok(Self { context, index, report, shape, vertices, scan: Scan::new(shape), _memory: memory })
    }

    fn run(mut self) -> Result<()> {
        self.list_unnamed()?;
        self.ids();
        self.attributes()?;
        self.pages()?;
        // If pages are damaged, it is unknown which vertices are reachable.
        if self.report.is_sound() { self.reach() } else { Ok(()) }
    }

    /// Lists files that the manifest does not name.
    fn list_unnamed(&mut self) -> Result<()> {
        let named = self.index.facts().file_names();
        for name in self.context.device.list(self.index.folder())? {
            let text = name.to_string_lossy().into_owned();
            if is_writer_file(&name) || named.contains(&text) {
                continue;
            }
            let listed = if is_ours(&text) { &mut self.report.leftovers } else { &mut self.report.strangers };
            if listed.len() < LISTED_MAX {
                listed.push(text);
            }
        }
        Ok(())
    }

    fn name(&self, role: Role) -> &'a str {
        &self.index.facts().files[role].name
    }

    /// Reads all columns.
    fn attributes(&mut self) -> Result<()> {
        let Some(columns) = self.index.columns() else { return Ok(()) };
        match columns.check(self.context) {
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            Err(error) => self.report.add(Some(self.name(Role::Attributes)), None, error.to_string()),
            Ok(()) => self.report.bytes_read += self.index.facts().files[Role::Attributes].bytes,
        }
        Ok(())
    }

    /// Reads all ids.
    fn ids(&mut self) {
        let name = self.name(Role::Ids);
        let mut blocks = BlockReader::new(self.index.id_file());
        let mut block = Vec::new();
        for number in 0..blocks.count() {
            block.clear();
            if blocks.read_block(number, &mut block).is_err() {
                self.report.add(Some(name), None, format!("block {number}: unreadable, or checksum mismatch"));
            }
            self.report.bytes_read += block.len() as u64;
        }
    }

    /// Checks all pages.
    fn pages(&mut self) -> Result<()> {
        let facts = self.index.facts();
        let mut rows = RowSet::new(facts.source_rows);
        self.context.progress.begin("verify", "pages", self.shape.pages(self.vertices));
        // Further rows are inserted into the set first, so that a page with one of these rows is reported.
        for row in self.index.duplicates.rows() {
            if *row < facts.source_rows {
                rows.insert(*row);
            }
        }
        let (shape, vertices) = (self.shape, self.vertices);
        let mut neighbors = Vec::new();
        self.each_page(&mut |number, page, report| {
            report.pages += 1;
            for (slot, vertex) in shape.vertices(number, vertices).enumerate() {
                let fault = match page.neighbors(slot) {
                    None => Some("has too many neighbors"),
                    Some(all) => {
                        neighbors.clear();
                        neighbors.extend(all);
                        impossible(&mut neighbors, vertex, vertices)
                    }
                };
                if let Some(fault) = fault {
                    report.add(None, Some(number), format!("vertex {vertex} {fault}"));
                }
                match page.row(slot) {
                    row if row >= facts.source_rows => report.add(
                        None,
                        Some(number),
                        format!(
                            "row {row} does not \
                    exist"
                        ),
                    ),
                    row if rows.contains(row) => report.add(None, Some(number), format!("row {row} occurs twice")),
                    row => rows.insert(row),
                }
            }
        })?;
        // A wrong number of rows is reported only if no other damage explains it.
        if rows.len() != facts.rows && self.report.is_sound() {
            self.report.add(None, None, format!("{} rows instead of {}", rows.len(), facts.rows));
        }
        Ok(())
    }

    /// Follows edges from the entry point. Repeats passes over the pages until a pass reaches no new vertex.
    fn reach(&mut self) -> Result<()> {
        let all = u64::from(self.vertices);
        let (mut reached, mut followed) = (RowSet::new(all), RowSet::new(all));
        reached.insert(self.index.facts().entry.into());
        let (shape, vertices) = (self.shape, self.vertices);
        let mut before = 0;
        // Pages are read in order, so an edge to an earlier page is followed in the next pass.
        while reached.len() > before {
            before = reached.len();
            self.each_page(&mut |number, page, _| {
                for (slot, vertex) in shape.vertices(number, vertices).enumerate() {
                    if reached.contains(vertex.into()) && !followed.contains(vertex.into()) {
                        followed.insert(vertex.into());
                        let neighbors = page.neighbors(slot).into_iter().flatten();
                        neighbors.for_each(|neighbor| reached.insert(neighbor.into()));
                    }
                }
            })?;
        }
        if before != all {
            let fault = format!("{} of {all} vertices cannot be reached from the entry point", all - before);
            self.report.add(Some(self.name(Role::Pages)), None, fault);
        }
        Ok(())
    }

    /// Passes all valid pages to `take`. Reports the other pages as damages.
    fn each_page(&mut self, take: &mut dyn FnMut(u32, Page<'_>, &mut IndexVerifyReport)) -> Result<()> {
        let (name, pages, bytes) = (self.name(Role::Pages), self.shape.pages(self.vertices) as u32, self.shape.bytes());
        let Self { context, index, report, scan, .. } = self;
        scan.each(&context.cancel, &*index.pages, 0..pages, &mut |number, page| {
            match page {
                Err(NoPage::Device(error)) => {
                    report.add(Some(name), Some(number), error.to_string());
                    return Ok(());
                }
                Err(NoPage::Changed) => report.add(Some(name), Some(number), "checksum mismatch"),
                Ok(page) => take(number, page, report),
            }
            report.bytes_read += bytes as u64;
            Ok(())
        })
    }
}

/// Describes what is wrong with the neighbors of a vertex.
fn impossible(neighbors: &mut [u32], vertex: u32, vertices: u32) -> Option<&'static str> {
    neighbors.sort_unstable();
    if neighbors.contains(&vertex) {
        return Some("is its own neighbor");
    }
    if neighbors.windows(2).any(|two| two[0] == two[1]) {
        return Some("has a neighbor twice");
    }
    neighbors.last().is_some_and(|&last| last >= vertices).then_some("has a neighbor that does not exist")
}
