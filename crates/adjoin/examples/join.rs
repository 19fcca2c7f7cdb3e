//! Finds all pairs of vectors within a distance, and writes them as a table.

use adjoin::{
    Context, Element, Generated, Job, JoinOptions, Output, Predicate, Result, Target, VectorType, format_count,
};

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);

    // 2,000 random vectors of 16 floats. The input can be any file that adjoin reads.
    let vectors = folder.path().join("vectors.fbin");
    let generated = Generated {
        rows: 2_000,
        vectors: VectorType { element: Element::F32, dimensions: 16 },
        hardness: 1.0,
        seed: 1,
    };
    generated.write(&context, &Target::File { path: vectors.clone(), force: false })?;

    // `exact` finds every pair; `approximate` finds the fraction that the caller asks for, in less time.
    let inputs = [vectors.display().to_string()];
    let pairs = Target::File { path: folder.path().join("pairs.csv"), force: false };
    let mut job = Job::new(&inputs, JoinOptions::exact(Predicate::l2(1.0)?));
    job.output = Output::Pairs(Some(pairs));

    // `open` writes the vectors to a temporary store. If the input is already a store, it opens that store.
    let opened = job.open(&context)?;
    let statistics = job.run(&context, &opened)?;
    println!("{} in {} rows", format_count(statistics.join.pairs, "pair"), statistics.common.rows);
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
