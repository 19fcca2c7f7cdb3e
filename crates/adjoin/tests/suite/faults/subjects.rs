//! Work that creates a result or replaces an old one, on a simulated device: builds, appends, joins and searches.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin::{
    Append, BuildOptions, Condition, Context, Element, Folder, FolderKind, HitWriter, IdKind, Ids, Index, IndexOptions,
    KeepRule, Metric, OnBad, OnDuplicateId, PairSchema, PairSink, PairWriter, Predicate, QueryTarget, Result,
    SearchEffort, SearchOptions, SearchQueries, SourceOptions, Store, Target,
    device::{Device, FaultPlan, FileKind, Keep as KeepChanges, LoggedOperation, Operation, SimulatedDevice},
    lab::{
        GivenOrder,
        buckets::{hit_schema, search},
        index,
        query::QuerySources,
        relayout_in_order,
        sink::Keep,
        source,
    },
};
use arrow_array::builder::{FixedSizeListBuilder, Float32Builder};
use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use parquet::arrow::ArrowWriter;

use crate::datasets::{Shape, make};
use crate::harness::{Set, Setup};

/// Files by path. A folder has `None`.
pub(crate) type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// State of the result. Both fields are true if the old and the new result are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// Whether the old result is in place. If there was none, whether there is no result.
    pub(crate) before: bool,
    /// Whether the new result is in place.
    pub(crate) after: bool,
}

/// Work with a result that must be complete or absent.
pub(crate) trait Subject: Sync {
    /// Returns a device in the state before the work.
    fn device(&self) -> SimulatedDevice;

    /// Runs the work.
    fn work(&self, device: Arc<dyn Device>, force: bool) -> Result<()>;

    /// Returns the state of the result, or an error if it is neither the old nor the new one.
    fn found(&self, device: &SimulatedDevice) -> std::result::Result<Found, String>;

    /// Returns the folder that contains the result.
    fn folder(&self) -> &Path;

    /// Returns the name of the draft. Renaming it publishes the result.
    fn draft(&self) -> &str;

    /// Returns whether the work replaces an old result.
    fn force(&self) -> bool;

    /// Returns whether this operation publishes the result.
    fn is_publishing(&self, operation: &LoggedOperation) -> bool {
        operation.operation == Operation::Rename && operation.path.ends_with(self.draft())
    }
}

/// Returns all files and folders on a device as programs see them. This does not count as operations.
pub(crate) fn tree(device: &SimulatedDevice) -> Tree {
    let seen = device.after_crash(KeepChanges::Everything);
    let mut tree = Tree::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(folder) = waiting.pop() {
        for name in seen.list(&folder).unwrap() {
            let path = folder.join(name);
            if seen.kind(&path).unwrap() == Some(FileKind::Folder) {
                waiting.push(path.clone());
            }
            tree.insert(path.clone(), seen.bytes(&path));
        }
    }
    tree
}

/// Returns a device with these files and one unrelated file.
fn device_with(files: &Tree) -> SimulatedDevice {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/unrelated", b"stays");
    files.iter().for_each(|(path, bytes)| device.put(path, bytes.as_ref().unwrap()));
    device
}

/// A build of a set.
pub(crate) struct Build {
    pub(crate) name: &'static str,
    set: Set,
    setup: Setup,
    old: Option<Tree>,
    new: Tree,
}

impl Build {
    const STORE: &str = "data/store";

    /// Creates a build of a set into a new folder, or over the store that the build `old` created.
    pub(crate) fn new(name: &'static str, set: Set, setup: Setup, old: Option<&Self>) -> Self {
        let mut subject = Self { name, set, setup, old: old.map(|old| old.new.clone()), new: Tree::new() };
        let device = subject.device();
        subject.work(Arc::new(device.clone()), subject.force()).unwrap();
        subject.new = Self::store_files(&device).unwrap();
        let attributes = if subject.setup.build.sort_by.is_some() { 2 } else { 0 };
        assert!(subject.new.len() == 4 + attributes, "{name}: {:?}", subject.new.keys());
        subject
    }

    pub(crate) fn context(&self, device: Arc<dyn Device>) -> Context {
        self.setup.context_on(device)
    }

    /// Returns the files of a store by name.
    fn store_files(device: &SimulatedDevice) -> std::result::Result<Tree, String> {
        let context = Setup::default().context_on(Arc::new(device.clone()));
        let store = Store::open(&context, Path::new(Self::STORE)).map_err(|error| error.to_string())?;
        let report = Store::verify(&context, Path::new(Self::STORE)).map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("the store is damaged: {:?}", report.damages));
        }
        let files = store.manifest().files.iter().map(|(_, facts)| &*facts.name);
        let paths = files.chain([Folder::MANIFEST_FILE]).map(|name| Path::new(Self::STORE).join(name));
        Ok(paths.map(|path| (path.clone(), device.bytes(&path))).collect())
    }
}

impl Subject for Build {
    fn device(&self) -> SimulatedDevice {
        device_with(self.old.as_ref().unwrap_or(&Tree::new()))
    }

    fn work(&self, device: Arc<dyn Device>, force: bool) -> Result<()> {
        let options = adjoin::BuildOptions { force, ..self.setup.build.clone() };
        Store::build(&self.context(device), &self.set, Path::new(Self::STORE), &options).map(|_| ())
    }

    fn found(&self, device: &SimulatedDevice) -> std::result::Result<Found, String> {
        let context = self.context(Arc::new(device.clone()));
        if FolderKind::of(&context, Path::new(Self::STORE)).map_err(|error| error.to_string())?.is_none() {
            return match (&self.old, Store::open(&context, Path::new(Self::STORE))) {
                (None, Err(error)) if error.to_string().contains("is not a store") => {
                    Ok(Found { before: true, after: false })
                }
                (None, opened) => Err(format!("no store, but: {:?}", opened.err().map(|error| error.to_string()))),
                (Some(_), _) => Err("the old store is gone".into()),
            };
        }
        let files = Self::store_files(device)?;
        let found = Found { before: Some(&files) == self.old.as_ref(), after: files == self.new };
        if found.before || found.after { Ok(found) } else { Err(format!("another store: {:?}", files.keys())) }
    }

    fn folder(&self) -> &Path {
        Path::new(Self::STORE)
    }

    fn draft(&self) -> &str {
        Folder::MANIFEST_FILE
    }

    fn force(&self) -> bool {
        self.old.is_some()
    }
}

/// An append to the store of a build, with deletes.
pub(crate) struct Growth {
    old: Tree,
    coming: Set,
    setup: Setup,
    new: Tree,
}

impl Growth {
    /// Creates an append of `coming` to the store of a build. The append uses the budget of `setup`.
    pub(crate) fn new(store: &Build, coming: Set, setup: Setup) -> Self {
        let mut subject = Self { old: store.new.clone(), coming, setup, new: Tree::new() };
        let device = subject.device();
        subject.work(Arc::new(device.clone()), true).unwrap();
        subject.new = Build::store_files(&device).unwrap();
        assert!(subject.new.len() == 4 && subject.new != subject.old, "{:?}", subject.new.keys());
        subject
    }
}

impl Subject for Growth {
    fn device(&self) -> SimulatedDevice {
        device_with(&self.old)
    }

    fn work(&self, device: Arc<dyn Device>, _force: bool) -> Result<()> {
        let context = self.setup.context_on(device);
        let folder = Path::new(Build::STORE);
        let manifest = Store::open(&context, folder)?.manifest().clone();
        // The rows were appended already. A second run would append them again.
        if manifest.built_rows.is_some() {
            return Ok(());
        }
        let gone = match manifest.ids {
            IdKind::None => Ids::Int64((3..9).collect()),
            _ => (3..9).map(|row| format!("{row:>128}")).collect(),
        };
        let (on_bad, on_duplicate_id) = (OnBad::Error, OnDuplicateId::Error);
        let wanted = Append { new: Some(&self.coming), delete: Some(&gone), on_bad, on_duplicate_id };
        let report = Store::append(&context, folder, &wanted)?;
        assert_eq!((report.new_rows, report.removed_rows), (self.coming.rows(), 6));
        Ok(())
    }

    fn found(&self, device: &SimulatedDevice) -> std::result::Result<Found, String> {
        let files = Build::store_files(device)?;
        let found = Found { before: files == self.old, after: files == self.new };
        if found.before || found.after { Ok(found) } else { Err(format!("another store: {:?}", files.keys())) }
    }

    fn folder(&self) -> &Path {
        Path::new(Build::STORE)
    }

    fn draft(&self) -> &str {
        Folder::MANIFEST_FILE
    }

    fn force(&self) -> bool {
        true
    }
}

/// Returns a Parquet file of vectors. A column states whether the row is in the first or the second half.
fn parquet_with_halves(rows: usize) -> Vec<u8> {
    let mut vectors = FixedSizeListBuilder::new(Float32Builder::new(), 2);
    for row in 0..rows {
        vectors.values().append_slice(&[(row * 7 % rows) as f32, (row % 5) as f32]);
        vectors.append(true);
    }
    let halves: Int32Array = (0..rows).map(|row| Some((row % 2) as i32)).collect();
    let columns: [(&str, ArrayRef); 2] = [("vector", Arc::new(vectors.finish())), ("half", Arc::new(halves))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), None).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    bytes
}

/// Returns the files of a store of rows with the column `half`.
fn store_with_halves() -> Tree {
    let device = SimulatedDevice::new(FaultPlan::None);
    device.put("data/set.parquet", &parquet_with_halves(60));
    let setup = Setup::default().with_buckets(4);
    let context = setup.context_on(Arc::new(device.clone()));
    let source = source::open(&context, &["data/set.parquet".into()], &SourceOptions::default()).unwrap();
    let options = BuildOptions { attributes: vec!["half".into()], ..setup.build.clone() };
    Store::build(&context, &*source, Path::new(Build::STORE), &options).unwrap();
    Build::store_files(&device).unwrap()
}

/// A build of an index from a store, or a change of the layout of an index.
pub(crate) struct IndexBuild {
    backwards: bool,
    store: Tree,
    old: Option<Tree>,
    new: Tree,
}

impl IndexBuild {
    const INDEX: &str = "data/index";

    /// Creates a build of an index from a store, into a new folder or over the index that the build `old` created.
    pub(crate) fn new(store: &Build, old: Option<&Self>) -> Self {
        Self::made(false, store.new.clone(), old.map(|old| old.new.clone()))
    }

    /// Creates a build of an index from a store with a column, into a new folder.
    pub(crate) fn with_halves() -> Self {
        Self::made(false, store_with_halves(), None)
    }

    /// Creates a change of the layout of an index, in place: the order of the vertices is reversed.
    pub(crate) fn backwards(old: &Self) -> Self {
        Self::made(true, Tree::new(), Some(old.new.clone()))
    }

    fn made(backwards: bool, store: Tree, old: Option<Tree>) -> Self {
        let mut subject = Self { backwards, store, old, new: Tree::new() };
        let device = subject.device();
        subject.work(Arc::new(device.clone()), subject.force()).unwrap();
        subject.new = Self::index_files(&device).unwrap();
        let has_halves = |tree: &Tree| tree.keys().any(|path| path.to_string_lossy().contains("/attributes-"));
        let of_halves = has_halves(&subject.store) || backwards && subject.old.as_ref().is_some_and(has_halves);
        assert!(has_halves(&subject.new) == of_halves && subject.new.len() == 8 + usize::from(of_halves));
        subject
    }

    /// Returns the files of an index by name.
    fn index_files(device: &SimulatedDevice) -> std::result::Result<Tree, String> {
        let context = Setup::default().context_on(Arc::new(device.clone()));
        let folder = Path::new(Self::INDEX);
        let report = Index::verify(&context, folder).map_err(|error| error.to_string())?;
        if !report.is_sound() {
            return Err(format!("the index is damaged: {:?}", report.damages));
        }
        let index = Index::open(&context, folder).map_err(|error| error.to_string())?;
        let files = index.facts().files.iter().map(|(_, facts)| &*facts.name);
        let paths = files.chain([Folder::MANIFEST_FILE]).map(|name| folder.join(name));
        Ok(paths.map(|path| (path.clone(), device.bytes(&path))).collect())
    }
}

impl Subject for IndexBuild {
    fn device(&self) -> SimulatedDevice {
        let mut files = self.store.clone();
        files.extend(self.old.clone().unwrap_or_default());
        device_with(&files)
    }

    fn work(&self, device: Arc<dyn Device>, force: bool) -> Result<()> {
        let context = Setup { threads: 1, ..Setup::default() }.context_on(device);
        let folder = Path::new(Self::INDEX);
        if !self.backwards {
            let store = Store::open(&context, Path::new(Build::STORE))?;
            return Index::build(&context, &store, folder, &IndexOptions::default(), force).map(|_| ());
        }
        // The layout was changed already. A second change would reverse the order again.
        let facts = Index::open(&context, folder)?.facts().clone();
        if facts.layout == "backwards" {
            return Ok(());
        }
        let order: Vec<u32> = (0..facts.vertices).rev().collect();
        let given = GivenOrder { name: "backwards", order: &order };
        relayout_in_order(&context, folder, None, given, force).map(|_| ())
    }

    fn found(&self, device: &SimulatedDevice) -> std::result::Result<Found, String> {
        let context = Setup::default().context_on(Arc::new(device.clone()));
        if FolderKind::of(&context, Path::new(Self::INDEX)).map_err(|error| error.to_string())?.is_none() {
            return match self.old {
                None => Ok(Found { before: true, after: false }),
                Some(_) => Err("the old index is gone".into()),
            };
        }
        let files = Self::index_files(device)?;
        let found = Found { before: Some(&files) == self.old.as_ref(), after: files == self.new };
        if found.before || found.after { Ok(found) } else { Err(format!("another index: {:?}", files.keys())) }
    }

    fn folder(&self) -> &Path {
        Path::new(Self::INDEX)
    }

    fn draft(&self) -> &str {
        Folder::MANIFEST_FILE
    }

    fn force(&self) -> bool {
        self.old.is_some()
    }
}

/// What a join or a search computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Pairs,
    /// Rows to remove.
    Keep,
    /// The nearest rows of each row.
    Hits,
    /// The nearest rows that pass a filter, found in an index for some queries.
    Filtered,
}

/// A join or a search of a store, or a search of an index. The result is a file.
pub(crate) struct Join {
    searched: Tree,
    wanted: Wanted,
    setup: Setup,
    output: PathBuf,
    old: Option<Vec<u8>>,
    new: Vec<u8>,
}

impl Join {
    /// Creates a join or a search of the store of a build. The result is a new file or replaces the bytes `old`.
    pub(crate) fn new(store: &Build, wanted: Wanted, output: &str, old: Option<&[u8]>) -> Self {
        Self::made(store.new.clone(), wanted, output, old)
    }

    /// Creates a filtered search of an index with a column.
    pub(crate) fn filtered(index: &IndexBuild, output: &str, old: Option<&[u8]>) -> Self {
        Self::made(index.new.clone(), Wanted::Filtered, output, old)
    }

    fn made(searched: Tree, wanted: Wanted, output: &str, old: Option<&[u8]>) -> Self {
        let setup = Setup { threads: 1, memory: 67 << 20, ..Setup::default() };
        let output = PathBuf::from(output);
        let mut subject = Self { searched, wanted, setup, output, old: old.map(<[u8]>::to_vec), new: Vec::new() };
        let device = subject.device();
        subject.work(Arc::new(device.clone()), subject.force()).unwrap();
        subject.new = device.bytes(&subject.output).unwrap();
        subject
    }

    fn join(&self, context: &Context, target: &Target) -> Result<()> {
        let options = self.setup.join_options(Predicate::L2 { eps: 1.0 });
        let store = Store::open(context, Path::new(Build::STORE))?;
        let schema = PairSchema { ids: [store.manifest().ids; 2], metric: Metric::L2, of_two_sets: false };
        let sink: Box<dyn PairSink> = match self.wanted {
            Wanted::Keep => Box::new(Keep::create(context, &store, KeepRule::Greedy, Some(target), None, 0)?),
            _ => Box::new(PairWriter::create(context, target, schema)?),
        };
        let prepared = options.prepare(context, &store, sink.wants_ids())?;
        let statistics = prepared.run(context, &store, sink)?;
        assert!(statistics.join.pairs > 20, "a result that says something");
        Ok(())
    }
}

/// Finds the nearest rows of each row of a store, exactly.
fn search_rows(context: &Context, store: &Store, target: &Target) -> Result<()> {
    let sink = HitWriter::new(context, target, hit_schema(store, SearchQueries::default()));
    let options = SearchOptions::new(QueryTarget::Nearest(2), SearchEffort::Exact, 1);
    let statistics = search(context, store, SearchQueries::default(), &options, Box::new(sink))?;
    assert!(statistics.search.hits > 20, "a result that says something");
    Ok(())
}

/// Searches for some queries in one half of the rows of an index.
fn search_half(context: &Context, target: &Target) -> Result<()> {
    let index = Index::open(context, Path::new(IndexBuild::INDEX))?;
    let queries = make(Shape::Clustered, Element::F32, 20, 2, 3);
    let sink = HitWriter::new(context, target, index::hit_schema(index.facts(), &queries));
    let condition = Some(Condition::parse("half = 1")?);
    let options =
        SearchOptions { filter: condition, ..SearchOptions::new(QueryTarget::Nearest(2), SearchEffort::List(8), 1) };
    let statistics = index::search(context, &index, QuerySources::new(&queries), &options, Box::new(sink))?;
    assert!(statistics.search.hits > 20 && statistics.search.passing_rows == Some(30), "a result that says something");
    Ok(())
}

impl Subject for Join {
    fn device(&self) -> SimulatedDevice {
        let device = device_with(&self.searched);
        self.old.iter().for_each(|old| device.put(&self.output, old));
        device
    }

    fn work(&self, device: Arc<dyn Device>, force: bool) -> Result<()> {
        let context = &self.setup.context_on(device);
        let target = &Target::File { path: self.output.clone(), force };
        match self.wanted {
            Wanted::Filtered => search_half(context, target),
            Wanted::Hits => search_rows(context, &Store::open(context, Path::new(Build::STORE))?, target),
            Wanted::Pairs | Wanted::Keep => self.join(context, target),
        }
    }

    fn found(&self, device: &SimulatedDevice) -> std::result::Result<Found, String> {
        let bytes = device.bytes(&self.output);
        let found = Found { before: bytes == self.old, after: bytes.as_ref() == Some(&self.new) };
        if found.before || found.after {
            return Ok(found);
        }
        Err(format!("a file of {:?} bytes, {} were written", bytes.map(|bytes| bytes.len()), self.new.len()))
    }

    fn folder(&self) -> &Path {
        Path::new("data")
    }

    fn draft(&self) -> &str {
        "result"
    }

    fn force(&self) -> bool {
        self.old.is_some()
    }
}
