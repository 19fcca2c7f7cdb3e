//! An open index has its codes and the navigation graph in memory. Pages and ids are read from disk.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use arrow_schema::{Schema, SchemaRef};

use super::blocks::Unreadable;
use super::cache::KeptPages;
use super::calibration::{Calibration, NOTED};
use super::delete_list::DeleteList;
use super::manifest::IndexManifest;
use super::navigation::{self, Navigation};
use super::options::IndexParameters;
use super::page::Page;
use super::promised::{Promise, Promises};
use super::rows::{Duplicates, IdReader, least_id_bytes};
use super::scan::NoPage;
use super::walk_strategy::WalkStrategy;
use crate::base::context::Context;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::geometry::Space;
use crate::base::message::Argument;
use crate::buckets::CALIBRATION_VECTORS;
use crate::quantize::Quantizer;
use crate::source::{IdKind, Ids};
use crate::sql::Condition;
use crate::store::{
    AttributeFile, ColumnNeeds, FilterBitmap, FolderFiles, FolderKind, ResultColumns, Role, StoredColumns,
    has_manifest, is_replaced, refuse_remote, required_columns,
};

const PURPOSE: &str = "opening the index";
/// Bytes per calibration query of an index that is not built yet: the entries and the lists of its hits, for drawn rows
/// and for as many inserted rows.
const BYTES_OF_CALIBRATION_QUERY: u64 = 2 * NOTED as u64 * (size_of::<u32>() as u64 + 1);
/// Largest number of bytes that a row takes if it is a further row of a vertex ([`Duplicates`]).
const FURTHER_ROW_BYTES_MAX: usize = 2 * size_of::<u64>();
/// Bytes that an open index takes in addition, whatever its size: its manifest, paths, and tables of chosen methods.
const FIXED_BYTES: u64 = 64 << 10;
const PURPOSE_IDS: &str = "reading the ids of the index";
/// Largest number of ids that are read at once when all ids are read.
const IDS_AT_ONCE: u64 = 4_096;
/// Approximate limit on the bytes of these ids.
const ID_BYTES_AT_ONCE: u64 = 1 << 20;
/// Bytes for looking up an id, in addition to the id itself. They hold its entry, its position, and its rank in the
/// order.
const BYTES_OF_LOOK_UP: u64 = 48;

/// Returns how many ids are read at once when all ids are read, and the bytes that this takes.
pub(super) fn ids_at_once(manifest: &IndexManifest) -> (usize, u64) {
    let of_id = manifest.id_bytes();
    let at_once = (ID_BYTES_AT_ONCE / of_id.max(1)).clamp(1, IDS_AT_ONCE);
    (at_once as usize, at_once * (2 * of_id + BYTES_OF_LOOK_UP))
}

/// Returns the bytes held while all columns of the index in a folder are read.
///
/// # Errors
/// If their file cannot be read.
pub(crate) fn columns_reading_bytes(context: &Context, folder: &Path, manifest: &IndexManifest) -> Result<u64> {
    bytes_of_columns(context, folder, manifest, |columns| columns.reading_bytes())
}

/// Applies `bytes` to the columns of the index in a folder and returns the result. Returns the default if there are
/// none.
pub(super) fn bytes_of_columns<B: Default>(
    context: &Context,
    folder: &Path,
    manifest: &IndexManifest,
    bytes: impl FnOnce(StoredColumns<'_>) -> Result<B>,
) -> Result<B> {
    let files = FolderFiles { folder, kind: FolderKind::Index, files: &manifest.files };
    let file = AttributeFile::open(context, files)?;
    file.map_or_else(|| Ok(B::default()), |file| bytes(file.columns(files, manifest.rows)))
}

/// Returns the schema and memory of the columns `names` of the index in a folder. Returns `None` if there are no names.
///
/// # Errors
/// If the index does not have one of the columns, if a name is given twice, or if their file cannot be read.
pub(crate) fn column_needs(
    context: &Context,
    folder: &Path,
    manifest: &IndexManifest,
    names: &[String],
) -> Result<Option<ColumnNeeds>> {
    if names.is_empty() {
        return Ok(None);
    }
    let files = FolderFiles { folder, kind: FolderKind::Index, files: &manifest.files };
    let file = AttributeFile::open(context, files)?;
    let columns = file.as_ref().map(|file| file.columns(files, manifest.rows));
    ResultColumns::of(columns, folder, manifest.rows, names)?.map(|columns| columns.needs()).transpose()
}

/// Returns the bytes of those parts of an open index that do not depend on all rows.
fn small_bytes(vertices: u64, space: Space<'_>, options: &IndexParameters) -> u64 {
    let quantizer = Quantizer::bytes_max(space.dimensions(), options.code_bytes);
    FIXED_BYTES + quantizer + navigation::open_bytes(vertices, space, options)
}

/// An index, open for searches from any thread.
pub struct Index {
    folder: PathBuf,
    manifest: IndexManifest,
    pub(super) pages: Arc<dyn ReadFile>,
    ids: Arc<dyn ReadFile>,
    pub(super) attributes: Option<AttributeFile>,
    pub(super) codes: Vec<u8>,
    pub(super) quantizer: Quantizer,
    pub(super) navigation: Navigation,
    pub(super) duplicates: Duplicates,
    /// Calibration of the walks, if the index was published with one.
    pub(super) calibration: Option<Calibration>,
    /// Pages that searches have read.
    pub(super) kept_pages: Arc<KeptPages>,
    /// Methods that keep promised recalls, as chosen since the index was opened.
    pub(super) promises: Promises,
    /// Parameters of the walks of searches.
    pub(super) strategy: WalkStrategy,
    /// Memory of the index.
    _memory: Reservation,
}

impl Index {
    /// Opens the index in a folder. Verifies all files except pages, ids and columns, which are verified when they are
    /// read. The open index does not change if another index replaces it in the folder.
    ///
    /// # Errors
    /// If there is no index, if it is damaged or has a newer version, or if the budget does not hold its codes.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        Self::open_read(context, folder, Self::manifest(context, folder)?)
    }

    /// Opens the index in a folder, given its manifest, which the caller has just read.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(crate) fn open_read(context: &Context, folder: &Path, mut manifest: IndexManifest) -> Result<Self> {
        refuse_remote(FolderKind::Index, folder)?;
        loop {
            let opened = Self::of_manifest(context, folder, &manifest);
            // If another process replaced the index between two reads, some files are missing. In this case the new
            // index is opened.
            if opened.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                return opened;
            }
            context.cancel.check()?;
            manifest = Self::manifest(context, folder)?;
        }
    }

    /// Returns the index with another strategy of walks for its searches.
    #[doc(hidden)]
    #[must_use]
    pub fn walking_by(self, strategy: WalkStrategy) -> Self {
        Self { strategy, ..self }
    }

    /// Reads the manifest of the index in a folder.
    ///
    /// # Errors
    /// If there is no index, or if the manifest is damaged or has a newer version.
    pub fn manifest(context: &Context, folder: &Path) -> Result<IndexManifest> {
        if !has_manifest(context, folder)? {
            let at = folder.display();
            return Err(Error::input(format!("{at} is not a graph index; create one with: adjoin index build")));
        }
        IndexManifest::read(context, folder)
    }

    /// Returns the bytes of opening an index and of the open index.
    pub fn memory_bytes(manifest: &IndexManifest) -> u64 {
        let bytes = |role| manifest.files.get(role).map_or(0, |facts| facts.bytes);
        let decoded = [Role::Codebook, Role::Navigation, Role::Duplicates, Role::Calibration];
        let largest = decoded.into_iter().map(bytes).max().unwrap_or(0);
        // Decoded further rows and calibrations take about the bytes of their files. Codes are read last, when the
        // other files are no longer in memory.
        small_bytes(manifest.vertices.into(), manifest.space(), &manifest.parameters())
            + bytes(Role::Duplicates)
            + bytes(Role::Calibration)
            + bytes(Role::Codes).max(largest)
    }

    /// Predicts the bytes of opening an index of `rows` rows that is not built yet, and of the open index.
    pub(crate) fn foreseen_memory_bytes(rows: u64, space: Space<'_>, options: &IndexParameters) -> u64 {
        let vectors = rows.max(1);
        // If rows have equal vectors, most have no code. Each then takes at most 16 bytes of the further rows.
        let of_rows = rows * options.code_bytes.max(FURTHER_ROW_BYTES_MAX) as u64;
        let small = small_bytes(vectors, space, options) + rows.min(CALIBRATION_VECTORS) * BYTES_OF_CALIBRATION_QUERY;
        small + of_rows.max(navigation::held_bytes(vectors, space, options))
    }

    /// Opens an index that a build has written into `drafts` but not published. File names in its manifest are replaced
    /// by those of the drafts.
    ///
    /// # Errors
    /// If it cannot be read, or if the budget does not hold it.
    pub(super) fn of_drafts(context: &Context, drafts: &Path, mut manifest: IndexManifest) -> Result<Self> {
        let there: Vec<Role> = Role::INDEX.into_iter().filter(|&role| manifest.files.get(role).is_some()).collect();
        for role in there {
            manifest.files[role].name = role.file().to_owned();
        }
        Self::of_manifest(context, drafts, &manifest)
    }

    fn of_manifest(context: &Context, folder: &Path, manifest: &IndexManifest) -> Result<Self> {
        let files = FolderFiles { folder, kind: FolderKind::Index, files: &manifest.files };
        let vertices = manifest.vertices;
        // The navigation graph reserves its own memory. First everything is reserved at once, so that an error names
        // all of the memory that is needed.
        let all = context.reserve_between_runs(Self::memory_bytes(manifest), PURPOSE)?.bytes();
        let of_graph = navigation::graph_bytes(vertices.into(), &manifest.parameters());
        let memory = context.reserve_between_runs(all - of_graph, PURPOSE)?;
        let damaged = |role| {
            // If memory does not suffice, the file is not damaged.
            move |error: Error| match error.kind() {
                ErrorKind::Budget => error,
                _ => files.damaged(role, &error.to_string()),
            }
        };
        let quantizer =
            Quantizer::from_bytes(&files.read(context, Role::Codebook)?).map_err(damaged(Role::Codebook))?;
        if quantizer.code_bytes() != manifest.code_bytes || quantizer.dimensions() != manifest.space().dimensions() {
            return Err(files.damaged(Role::Codebook, "it does not match the codes of the manifest"));
        }
        // The bytes of a file are dropped before the next file is read.
        let navigation =
            Navigation::from_bytes(context, manifest.space(), vertices, &files.read(context, Role::Navigation)?)
                .map_err(damaged(Role::Navigation))?;
        let duplicates = Duplicates::from_bytes(&files.read(context, Role::Duplicates)?, vertices)
            .filter(|duplicates| u64::from(vertices) + duplicates.len() as u64 == manifest.rows)
            .ok_or_else(|| files.damaged(Role::Duplicates, "its rows and those of the manifest differ"))?;
        let calibration = match manifest.files.get(Role::Calibration) {
            None => None,
            Some(_) => {
                let read = Calibration::from_bytes(&files.read(context, Role::Calibration)?, manifest.rows);
                Some(read.ok_or_else(|| files.damaged(Role::Calibration, "it has impossible values"))?)
            }
        };
        let ids = files.open(context, Role::Ids)?;
        // Blocks are verified when they are read. A file that is too short is reported now.
        if ids.len() < least_id_bytes(manifest.ids, manifest.rows) {
            return Err(files.damaged(Role::Ids, "it has fewer ids than there are rows"));
        }
        let pages = files.open(context, Role::Pages)?;
        if !pages.is_direct() {
            context.progress.note("this file system refuses direct reads: pages pass through the page cache");
        }
        let attributes = AttributeFile::open(context, files)?;
        let codes = files.read(context, Role::Codes)?;
        let (folder, manifest) = (folder.to_owned(), manifest.clone());
        Ok(Self {
            folder,
            manifest,
            pages,
            ids,
            attributes,
            codes,
            quantizer,
            navigation,
            duplicates,
            calibration,
            kept_pages: Arc::default(),
            promises: Promises::default(),
            strategy: WalkStrategy::default(),
            _memory: memory,
        })
    }

    /// Returns whether the method is known by which a search for the `k` nearest rows keeps a recall. If it is not, the
    /// first such search takes longer, since it chooses the method and may have to calibrate.
    pub fn is_calibrated(&self, k: u64, recall: f64, seed: u64) -> bool {
        self.promises.contains(Promise { k, recall, seed })
    }

    /// Returns the manifest of the index.
    pub fn facts(&self) -> &IndexManifest {
        &self.manifest
    }

    /// Returns the longest list with which the recall of the index was measured, if it was.
    pub(super) fn longest_list(&self) -> Option<usize> {
        self.calibration.as_ref().and_then(Calibration::longest)
    }

    /// Returns the folder of the index.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the names and types of the columns, in the order in which they were given.
    ///
    /// # Errors
    /// If their file cannot be read.
    pub fn attributes(&self) -> Result<Vec<(String, String)>> {
        self.columns().map_or(Ok(Vec::new()), StoredColumns::names)
    }

    /// Returns the rows that pass a filter, by entry. The entry of a vertex's first row is the number of the vertex.
    /// The entries of further rows follow.
    ///
    /// # Errors
    /// If the index lacks a column of the filter, if types do not match, if the file of columns is damaged, or if
    /// memory does not suffice.
    pub fn passing(&self, context: &Context, condition: &Condition) -> Result<FilterBitmap> {
        self.passing_without(context, condition, None)
    }

    /// Returns the rows that pass a filter and are not deleted, by entry. The filter is not evaluated for deleted
    /// entries.
    ///
    /// # Errors
    /// The errors of [`Self::passing`].
    pub(crate) fn passing_without(
        &self,
        context: &Context,
        condition: &Condition,
        deleted: Option<&DeleteList>,
    ) -> Result<FilterBitmap> {
        let columns = required_columns(self.columns(), &self.folder, self.manifest.rows, Argument::Where)?;
        columns.passing(context, condition, deleted.map(DeleteList::entries))
    }

    /// Returns the schema of the columns, in the order in which they were given.
    ///
    /// # Errors
    /// If their file cannot be read.
    pub(crate) fn attribute_schema(&self) -> Result<SchemaRef> {
        self.columns().map_or_else(|| Ok(Arc::new(Schema::empty())), StoredColumns::schema)
    }

    /// Returns the columns `names` for results, or `None` if there are no names.
    ///
    /// # Errors
    /// If the index does not have one of the columns, if a name is given twice, or if their file cannot be read.
    pub(crate) fn result_columns(&self, names: &[String]) -> Result<Option<ResultColumns<'_>>> {
        ResultColumns::of(self.columns(), &self.folder, self.manifest.rows, names)
    }

    /// Returns the columns, if the index has any.
    pub(crate) fn columns(&self) -> Option<StoredColumns<'_>> {
        self.attributes.as_ref().map(|file| file.columns(self.files(), self.manifest.rows))
    }

    /// Returns the bytes held while all columns are read.
    ///
    /// # Errors
    /// If their file cannot be read.
    pub(crate) fn columns_reading_bytes(&self) -> Result<u64> {
        self.columns().map_or(Ok(0), StoredColumns::reading_bytes)
    }

    pub(super) fn files(&self) -> FolderFiles<'_> {
        FolderFiles { folder: &self.folder, kind: FolderKind::Index, files: &self.manifest.files }
    }

    pub(super) fn id_file(&self) -> &dyn ReadFile {
        &*self.ids
    }

    /// Returns the vertex of an entry. The entry of a first row is its vertex.
    pub(super) fn vertex_of(&self, entry: u32) -> u32 {
        let further = entry.checked_sub(self.manifest.vertices);
        further.map_or(entry, |further| self.duplicates.vertex_of(further as usize))
    }

    /// Returns the entries of the further rows of a vertex.
    pub(super) fn further_entries(&self, vertex: u32) -> Range<u32> {
        let (first, rows) = self.duplicates.of(vertex);
        let start = self.manifest.vertices + first as u32;
        start..start + rows.len() as u32
    }

    /// Reads and verifies consecutive pages, starting at page `first`, until `buffer` is full.
    ///
    /// # Errors
    /// If they cannot be read, or are damaged.
    pub(super) fn read_pages<'b>(&self, first: u32, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let shape = self.manifest.shape();
        self.pages.read_at(u64::from(first) * shape.bytes() as u64, buffer)?;
        for (number, page) in (first..).zip(buffer.chunks_exact(shape.bytes())) {
            Page::check(shape, number, page).ok_or_else(|| self.damaged_page(number, "checksum mismatch"))?;
        }
        Ok(buffer)
    }

    /// Returns the error for a damaged page.
    pub(super) fn damaged_page(&self, page: u32, why: &str) -> Error {
        self.files().damaged(Role::Pages, &format!("page {page}: {why}"))
    }

    /// Returns the error for a page that a scan could not read.
    pub(super) fn no_page(&self, page: u32, why: NoPage) -> Error {
        match why {
            NoPage::Device(error) => error.into(),
            NoPage::Changed => self.damaged_page(page, "checksum mismatch"),
        }
    }

    /// Appends the neighbors of `vertex`, which is at `slot` of `page`, nearest first.
    ///
    /// # Errors
    /// If the page has impossible neighbors.
    pub(super) fn add_neighbors(
        &self,
        vertex: u32,
        page: Page<'_>,
        slot: usize,
        neighbors: &mut Vec<u32>,
    ) -> Result<()> {
        let (start, found) = (neighbors.len(), page.neighbors(slot));
        let fits = found.is_some();
        neighbors.extend(found.into_iter().flatten());
        if fits && neighbors[start..].iter().all(|&neighbor| neighbor < self.manifest.vertices) {
            return Ok(());
        }
        let why = format!("vertex {vertex} has invalid neighbors");
        Err(self.damaged_page(self.manifest.shape().page_of(vertex), &why))
    }

    pub(super) fn code(&self, vertex: u32) -> &[u8] {
        &self.codes[vertex as usize * self.manifest.code_bytes..][..self.manifest.code_bytes]
    }

    /// Returns how many ids are read at once when all ids are read, and the bytes that this takes.
    pub(super) fn ids_at_once(&self) -> (usize, u64) {
        ids_at_once(&self.manifest)
    }

    /// Passes the bytes of the id of each entry ([`Ids::append_bytes_of`]) to `take`, in the order of the entries. Does
    /// nothing if there are no ids.
    ///
    /// # Errors
    /// If ids cannot be read or are damaged, if memory does not suffice, if the work is cancelled, or if `take` fails.
    pub(crate) fn each_id(&self, context: &Context, take: &mut dyn FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        self.each_id_of(context, &mut (0..self.manifest.rows as u32), take)
    }

    /// Passes the bytes of the ids of some entries to `take`, in the order of `entries`. Does nothing if there are no
    /// ids.
    ///
    /// # Errors
    /// The errors of [`Self::each_id`].
    pub(crate) fn each_id_of(
        &self,
        context: &Context,
        entries: &mut dyn Iterator<Item = u32>,
        take: &mut dyn FnMut(u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.manifest.ids == IdKind::None {
            return Ok(());
        }
        let (at_once, bytes) = self.ids_at_once();
        let _memory = context.reserve(bytes, PURPOSE_IDS)?;
        let mut id = Vec::new();
        loop {
            context.cancel.check()?;
            // Some ids are read at a time, so that memory does not grow with the index.
            let entries: Vec<u32> = entries.take(at_once).collect();
            if entries.is_empty() {
                return Ok(());
            }
            let ids = self.ids_of(self.manifest.ids, &entries)?;
            for (k, &entry) in entries.iter().enumerate() {
                id.clear();
                ids.append_bytes_of(k, &mut id);
                take(entry, &id)?;
            }
        }
    }

    /// Returns the ids of entries, in their order.
    ///
    /// # Errors
    /// If they cannot be read, or are damaged.
    pub(crate) fn ids_of(&self, kind: IdKind, entries: &[u32]) -> Result<Ids> {
        self.id_reader(kind).of(entries).map_err(|unreadable| self.unreadable_id(unreadable))
    }

    /// Returns a reader of single ids.
    pub(super) fn id_reader(&self, kind: IdKind) -> IdReader<'_> {
        IdReader::new(kind, self.manifest.rows, &*self.ids)
    }

    /// Returns the error for an id that cannot be read.
    pub(super) fn unreadable_id(&self, why: Unreadable) -> Error {
        match why {
            Unreadable::Device(error) => error,
            Unreadable::Damaged(block) => self.files().damaged(Role::Ids, &format!("block {block}: checksum mismatch")),
            Unreadable::Impossible(entry) => {
                self.files().damaged(Role::Ids, &format!("the id of entry {entry} has an impossible position"))
            }
        }
    }
}
