//! Copies a data set without its near-duplicates, and lists the removed rows.

use adjoin::{
    BuildOptions, Context, Dedupe, JoinOptions, Nearness, Predicate, Result, SourceOptions, Target, format_count,
};

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);

    // Each vector occurs twice, with a small difference. Other columns are copied unchanged.
    let line = |k: usize| {
        let (x, y) = ((k / 2) as f64, (k % 2) as f64 / 1_000.0);
        format!("{{\"id\": {k}, \"title\": \"row {k}\", \"vector\": [{x}, {y}]}}\n")
    };
    let input = folder.path().join("rows.jsonl");
    std::fs::write(&input, (0..1_000).map(line).collect::<String>()).expect("a small file");

    let inputs = [input.display().to_string()];
    let output = folder.path().join("unique.jsonl");
    let dedupe = Dedupe {
        inputs: &inputs,
        source: SourceOptions::default(),
        by: Nearness::Vectors { build: BuildOptions::default(), join: JoinOptions::exact(Predicate::l2(0.01)?) },
        keep_by: None,    // of similar rows, the first one is kept
        exact_text: None, // texts are not compared
        decisions: None,  // no decisions were made about single rows
        output: &output,
        removed: Some(Target::File { path: folder.path().join("removed.csv"), force: false }),
        columns: &[],
        force: false,
    };
    let done = dedupe.run(&context)?;
    let counts = &done.statistics.dedupe;
    println!("kept {} of {}", counts.kept_rows, format_count(counts.source_rows, "row"));
    assert_eq!(counts.kept_rows, 500);
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
