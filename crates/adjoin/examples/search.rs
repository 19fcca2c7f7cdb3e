//! Builds a graph index, and finds the nearest vectors of some queries.

use adjoin::{
    BuildOptions, Collect, Context, Element, Folder, Generated, Index, IndexOptions, QueryTarget, Result, SearchEffort,
    SearchOptions, SearchQueries, SourceOptions, Store, Target, VectorType, open_source,
};

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);

    let vectors = folder.path().join("vectors.u8bin");
    let generated =
        Generated { rows: 500, vectors: VectorType { element: Element::U8, dimensions: 8 }, hardness: 1.0, seed: 1 };
    generated.write(&context, &Target::File { path: vectors.clone(), force: false })?;
    let source = open_source(&context, &[vectors.display().to_string()], &SourceOptions::default())?;

    // An index is built from a store. Searches can use either of them.
    let (store, index) = (folder.path().join("vectors.store"), folder.path().join("vectors.index"));
    Store::build(&context, &*source, &store, &BuildOptions::default())?;
    Index::build(&context, &Store::open(&context, &store)?, &index, &IndexOptions::default(), false)?;

    // `Folder` opens a store, an index or a collection. In this example, the vectors are also the queries.
    let opened = Folder::open(&context, &index)?;
    let queries = SearchQueries::new(&*source);
    let options = SearchOptions::new(QueryTarget::Nearest(3), SearchEffort::Recall(0.95), 1);
    let hits = Collect::default();
    opened.search(&context, queries, &options, Box::new(hits.clone()))?;
    for (query, hits) in hits.hits().iter().take(3).enumerate() {
        println!("query {query}: {hits:?}");
    }
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
