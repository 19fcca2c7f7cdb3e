//! An open index: codes and the navigation graph in memory, pages and ids on disk.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{AlignedBuffer, ReadFile, Reservation};
use adjoin_kernels::Panel;
use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};

use super::blocks::Unreadable;
use super::calibration::Calibration;
use super::manifest::IndexManifest;
use super::navigation::{self, Navigation};
use super::options::IndexOptions;
use super::page::Page;
use super::promised::Promises;
use super::rows::{Duplicates, IdReader, least_id_bytes};
use super::scan::NoPage;
use crate::context::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Space;
use crate::quantize::Quantizer;
use crate::row_numbers::RowSet;
use crate::source::{IdKind, Ids};
use crate::sql::Condition;
use crate::store::{AttributeFile, FilterBitmap, FolderFiles, Kind, Role, has_manifest, is_replaced, passing};

const PURPOSE: &str = "opening the index";
/// What is taken for a calibration that is still to be written.
const CALIBRATION_BYTES: u64 = 256 << 10;
const PURPOSE_IDS: &str = "reading the ids of the index";
/// Ids that are read at once where all are, at most, and about how many bytes of them.
const IDS_AT_ONCE: u64 = 4_096;
const ID_BYTES_AT_ONCE: u64 = 1 << 20;
/// Bytes that it takes to look up an id, beside its own: its entry, where it lies, and in which order.
const BYTES_OF_LOOK_UP: u64 = 48;

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
    /// What is known of the recall of its walks, where that was published.
    pub(super) calibration: Option<Calibration>,
    /// What was derived of it since the index was opened.
    pub(super) promises: Promises,
    /// Of all that is in memory.
    _memory: Reservation,
}

impl Index {
    /// Opens the index in a folder and checks everything but pages and ids, which are checked as they are read. It stays the
    /// one that was opened, whatever takes its place in the folder.
    ///
    /// # Errors
    /// Where there is none, it is damaged or of a newer version, or the budget does not hold its codes.
    pub fn open(context: &Context, folder: &Path) -> Result<Self> {
        loop {
            let manifest = Self::manifest(context, folder)?;
            let opened = Self::of_manifest(context, folder, &manifest);
            // Where a build has replaced it between two files, some are gone; then it is the new one that is opened.
            if opened.is_ok() || !is_replaced(context, folder, &manifest.manifest_xxh3) {
                return opened;
            }
            context.cancel.check()?;
        }
    }

    /// Reads what the index in a folder says of itself.
    ///
    /// # Errors
    /// If there is none, or it is damaged or of a newer version.
    pub fn manifest(context: &Context, folder: &Path) -> Result<IndexManifest> {
        if !has_manifest(context, folder)? {
            let at = folder.display();
            return Err(Error::input(format!("{at} is not a graph index; make one with: adjoin index build")));
        }
        IndexManifest::read(context, folder)
    }

    /// Bytes that an open index takes.
    pub fn memory_bytes(manifest: &IndexManifest) -> u64 {
        let small = [Role::Codebook, Role::Navigation, Role::Duplicates, Role::Calibration];
        let small: u64 = small.iter().filter_map(|&role| manifest.files.get(role)).map(|facts| facts.bytes).sum();
        let (space, options) = (manifest.space(), manifest.options());
        manifest.files[Role::Codes].bytes
            + 4 * small
            + navigation::memory_bytes(manifest.vertices.into(), space, &options)
    }

    /// Bytes that an open index of so many rows takes that is still to be built, about.
    pub(crate) fn foreseen_memory_bytes(rows: u64, space: Space<'_>, options: &IndexOptions) -> u64 {
        let vectors = rows.max(1);
        let codes = rows * options.code_bytes.min(space.vectors.dimensions) as u64;
        let codebook = 4 * Panel::<f32>::bytes_for(256, space.dimensions());
        let navigation = navigation::memory_bytes(vectors, space, options);
        codes + codebook + 4 * navigation::held_bytes(vectors, space, options) + navigation + CALIBRATION_BYTES
    }

    /// What a build has written into `drafts`, before anybody else can open it; its manifest has no names of files yet.
    ///
    /// # Errors
    /// Where that cannot be read, or the budget does not hold it.
    pub(super) fn of_drafts(context: &Context, drafts: &Path, mut manifest: IndexManifest) -> Result<Self> {
        let there: Vec<Role> = Role::INDEX.into_iter().filter(|&role| manifest.files.get(role).is_some()).collect();
        for role in there {
            manifest.files[role].name = role.file().to_owned();
        }
        Self::of_manifest(context, drafts, &manifest)
    }

    fn of_manifest(context: &Context, folder: &Path, manifest: &IndexManifest) -> Result<Self> {
        let files = FolderFiles { folder, kind: Kind::Index, files: &manifest.files };
        let vertices = manifest.vertices;
        // The graph reserves what it takes itself; whether all fits is said at once.
        let all = context.reserve_between_runs(Self::memory_bytes(manifest), PURPOSE)?.bytes();
        let of_graph = navigation::graph_bytes(vertices.into(), &manifest.options());
        let memory = context.reserve_between_runs(all - of_graph, PURPOSE)?;
        let damaged = |role| {
            move |error: Error| match error.kind() {
                ErrorKind::Budget => error,
                _ => files.damaged(role, &error.to_string()),
            }
        };
        let quantizer =
            Quantizer::from_bytes(&files.read(context, Role::Codebook)?).map_err(damaged(Role::Codebook))?;
        if quantizer.code_bytes() != manifest.code_bytes || quantizer.dimensions() != manifest.space().dimensions() {
            return Err(files.damaged(Role::Codebook, "it is for other codes than the manifest says"));
        }
        let navigation = files.read(context, Role::Navigation)?;
        let navigation = Navigation::from_bytes(context, manifest.space(), vertices, &navigation);
        let navigation = navigation.map_err(damaged(Role::Navigation))?;
        let duplicates = Duplicates::from_bytes(&files.read(context, Role::Duplicates)?, vertices)
            .filter(|duplicates| u64::from(vertices) + duplicates.len() as u64 == manifest.rows)
            .ok_or_else(|| files.damaged(Role::Duplicates, "its rows and those of the manifest differ"))?;
        let calibration = match manifest.files.get(Role::Calibration) {
            None => None,
            Some(_) => {
                let read = Calibration::from_bytes(&files.read(context, Role::Calibration)?, manifest.rows);
                Some(read.ok_or_else(|| files.damaged(Role::Calibration, "it says what cannot be"))?)
            }
        };
        let ids = files.open(context, Role::Ids)?;
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
            promises: Promises::default(),
            _memory: memory,
        })
    }

    /// Whether a search for the `k` nearest rows with a recall knows how long its walks must be; otherwise the first one derives
    /// that, or learns it, which takes longer.
    pub fn is_calibrated(&self, k: u64, recall: f64, seed: u64) -> bool {
        self.promises.contains((k, recall, seed))
    }

    /// What the index says of itself.
    pub fn facts(&self) -> &IndexManifest {
        &self.manifest
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Names and types of its attributes, in the order in which they were named.
    ///
    /// # Errors
    /// Where their file cannot be read.
    pub fn attributes(&self) -> Result<Vec<(String, String)>> {
        self.attributes.as_ref().map_or(Ok(Vec::new()), |attributes| attributes.names(self.files()))
    }

    /// The rows that meet a condition on their attributes, by entry: those of first rows of vertices have the numbers of these,
    /// the others follow.
    ///
    /// # Errors
    /// Where it has no attributes or not those that are asked for, types do not go together, their file is damaged, or memory
    /// does not suffice.
    pub fn passing(&self, context: &Context, condition: &Condition) -> Result<FilterBitmap> {
        self.passing_without(context, condition, None)
    }

    /// The same without entries that were deleted, of which nothing is asked.
    ///
    /// # Errors
    /// As [`Self::passing`].
    pub(crate) fn passing_without(
        &self,
        context: &Context,
        condition: &Condition,
        deleted: Option<&RowSet>,
    ) -> Result<FilterBitmap> {
        passing(context, (self.attributes.as_ref(), self.files()), (condition, deleted), self.manifest.rows)
    }

    /// The columns of its attributes, in the order in which they were named.
    ///
    /// # Errors
    /// Where their file cannot be read.
    pub(crate) fn attribute_schema(&self) -> Result<SchemaRef> {
        self.attributes.as_ref().map_or_else(|| Ok(Arc::new(Schema::empty())), |file| file.schema(self.files()))
    }

    /// Hands over the attributes of some entries, ascending: a table, and which of its rows is that of the entry at a place.
    ///
    /// # Errors
    /// Where their file cannot be read or is not as written, memory does not suffice, or `take` fails.
    pub(crate) fn each_attributes(
        &self,
        context: &Context,
        entries: &[u32],
        take: &mut dyn FnMut(usize, &RecordBatch, usize) -> Result<()>,
    ) -> Result<()> {
        let Some(attributes) = &self.attributes else { return Ok(()) };
        attributes.each_of(context, self.files(), entries, take)
    }

    pub(super) fn files(&self) -> FolderFiles<'_> {
        FolderFiles { folder: &self.folder, kind: Kind::Index, files: &self.manifest.files }
    }

    pub(super) fn id_file(&self) -> &dyn ReadFile {
        &*self.ids
    }

    /// The vertex of an entry: that itself, or the one whose vector the entry has too.
    pub(super) fn vertex_of(&self, entry: u32) -> u32 {
        let further = entry.checked_sub(self.manifest.vertices);
        further.map_or(entry, |further| self.duplicates.vertex_of(further as usize))
    }

    /// The entries of a vertex beyond its first.
    pub(super) fn further_entries(&self, vertex: u32) -> Range<u32> {
        let (first, rows) = self.duplicates.of(vertex);
        let start = self.manifest.vertices + first as u32;
        start..start + rows.len() as u32
    }

    /// Reads pages into `buffer`, from one on, and checks them.
    ///
    /// # Errors
    /// Where they cannot be read, or are not as written.
    pub(super) fn read_pages<'b>(&self, first: u32, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let shape = self.manifest.shape();
        self.pages.read_at(u64::from(first) * shape.bytes() as u64, buffer)?;
        for (number, page) in (first..).zip(buffer.chunks_exact(shape.bytes())) {
            Page::check(shape, number, page).ok_or_else(|| self.damaged_page(number, "checksum mismatch"))?;
        }
        Ok(buffer)
    }

    /// The error of a page that is not as written.
    pub(super) fn damaged_page(&self, page: u32, why: &str) -> Error {
        self.files().damaged(Role::Pages, &format!("page {page}: {why}"))
    }

    /// The error of a page that a scan could not have.
    pub(super) fn no_page(&self, page: u32, why: NoPage) -> Error {
        match why {
            NoPage::Device(error) => error.into(),
            NoPage::Changed => self.damaged_page(page, "checksum mismatch"),
        }
    }

    /// Adds the neighbors of a vertex, which lies in a slot of a page, nearest first.
    ///
    /// # Errors
    /// Where they cannot be.
    pub(super) fn add_neighbors(
        &self,
        vertex: u32,
        (page, slot): (Page<'_>, usize),
        neighbors: &mut Vec<u32>,
    ) -> Result<()> {
        let (start, found) = (neighbors.len(), page.neighbors(slot));
        let fits = found.is_some();
        neighbors.extend(found.into_iter().flatten());
        if fits && neighbors[start..].iter().all(|&neighbor| neighbor < self.manifest.vertices) {
            return Ok(());
        }
        let why = format!("vertex {vertex} has neighbors that cannot be");
        Err(self.damaged_page(self.manifest.shape().page_of(vertex), &why))
    }

    /// The code of a vertex.
    pub(super) fn code(&self, vertex: u32) -> &[u8] {
        &self.codes[vertex as usize * self.manifest.code_bytes..][..self.manifest.code_bytes]
    }

    /// The vector of an entry, as it is stored.
    ///
    /// # Errors
    /// Where its page cannot be read, or is not as it was written.
    pub(crate) fn vector(&self, entry: u32) -> Result<Vec<u8>> {
        let (shape, vertex) = (self.manifest.shape(), self.vertex_of(entry));
        let number = shape.page_of(vertex);
        let mut buffer = AlignedBuffer::zeroed(shape.bytes());
        let page = Page::of_checked(shape, self.read_pages(number, &mut buffer)?);
        let (bytes, slot) = (self.manifest.vectors.bytes(), shape.vertices(number, self.manifest.vertices).start);
        let slot = (vertex - slot) as usize;
        Ok(page.vectors(slot + 1)[slot * bytes..].to_vec())
    }

    /// How many ids are read at once where all are, and bytes that this takes.
    pub(super) fn ids_at_once(&self) -> (usize, u64) {
        let of_id = self.manifest.files[Role::Ids].bytes.div_ceil(self.manifest.rows);
        let at_once = (ID_BYTES_AT_ONCE / of_id.max(1)).clamp(1, IDS_AT_ONCE);
        (at_once as usize, at_once * (2 * of_id + BYTES_OF_LOOK_UP))
    }

    /// Hands over the bytes of the id of each entry ([`Ids::append_bytes_of`]), in the order of the entries; nothing where
    /// there are no ids.
    ///
    /// # Errors
    /// Where they cannot be read, or are not as written, memory does not suffice, the work is cancelled, or `take` fails.
    pub(crate) fn each_id(&self, context: &Context, take: &mut dyn FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        self.each_id_of(context, &mut (0..self.manifest.rows as u32), take)
    }

    /// The same of some entries.
    ///
    /// # Errors
    /// As [`Self::each_id`].
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

    /// The ids of entries, in their order.
    ///
    /// # Errors
    /// Where they cannot be read, or are not as written.
    pub(crate) fn ids_of(&self, kind: IdKind, entries: &[u32]) -> Result<Ids> {
        self.id_reader(kind).of(entries).map_err(|unreadable| self.unreadable_id(unreadable))
    }

    /// Reads ids one by one.
    pub(super) fn id_reader(&self, kind: IdKind) -> IdReader<'_> {
        IdReader::new(kind, self.manifest.rows, &*self.ids)
    }

    /// The error of an id that cannot be read.
    pub(super) fn unreadable_id(&self, why: Unreadable) -> Error {
        match why {
            Unreadable::Device(error) => error,
            Unreadable::Damaged(block) => self.files().damaged(Role::Ids, &format!("block {block}: checksum mismatch")),
            Unreadable::Impossible(entry) => {
                self.files().damaged(Role::Ids, &format!("the id of entry {entry} lies where none can be"))
            }
        }
    }
}
