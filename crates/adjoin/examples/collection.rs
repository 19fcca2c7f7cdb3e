//! Inserts, updates and deletes rows of a collection, and searches it.

use std::sync::Arc;

use adjoin::{
    Collect, Collection, CollectionOptions, Context, Durability, Element, Folder, IdKind, Ids, IndexOptions, Metric,
    QueryTarget, Result, SearchEffort, SearchOptions, SearchQueries, SourceOptions, VectorType, Write, open_source,
};

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);
    let path = folder.path().join("rows.collection");
    let options = CollectionOptions {
        vectors: VectorType { element: Element::F32, dimensions: 2 },
        metric: Metric::L2,
        ids: IdKind::Int64,
        attributes: Vec::new(),
        index: IndexOptions::default(),
    };
    Collection::create(&context, &path, &options)?;

    // New rows come from any source, such as a file with the columns `id` and `vector`.
    let line = |k: usize| format!("{{\"id\": {k}, \"vector\": [{k}, 0.5]}}\n");
    let file = folder.path().join("rows.jsonl");
    std::fs::write(&file, (0..100).map(line).collect::<String>()).expect("a small file");
    let rows = open_source(&context, &[file.display().to_string()], &SourceOptions::default())?;

    // `Group` returns once the write is durable. Within a write, deletes are applied before inserts.
    let collection = Arc::new(Collection::open(&context, &path)?);
    collection.write(&Write { insert: Some(&*rows), ..Write::default() }, Durability::Group)?;
    collection.write(&Write { delete: Some(&Ids::Int64(vec![7, 8])), ..Write::default() }, Durability::Group)?;
    println!("{} rows", collection.facts().rows);

    // A merge moves the rows to the index on disk. Searches see the same rows before and after it.
    collection.merge(&context)?;
    let queries = SearchQueries::new(&*rows);
    let search = SearchOptions::new(QueryTarget::Nearest(2), SearchEffort::Exact, 1);
    let hits = Collect::default();
    Folder::Collection(collection).search(&context, queries, &search, Box::new(hits.clone()))?;
    println!("nearest to row 7, which is deleted: {:?}", hits.hits()[7]);
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
