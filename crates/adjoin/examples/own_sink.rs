//! Passes the pairs of a join, as they are found, to a sink that the caller has written.

use adjoin::{
    Context, Element, Generated, Job, JoinOptions, Output, PairBatch, PairSchema, PairSink, Predicate, Result, Target,
    VectorType, Written,
};

/// Prints the nearest pair.
#[derive(Default)]
struct Nearest {
    pairs: u64,
    nearest: Option<(f32, u64, u64)>,
}

impl PairSink for Nearest {
    fn wants_ids(&self) -> bool {
        false // the sink needs no ids, only row numbers
    }

    // All batches arrive on one thread. An error ends the join.
    fn accept(&mut self, batch: &PairBatch) -> Result<()> {
        self.pairs += batch.len() as u64;
        for ((&value, &left), &right) in batch.values.iter().zip(&batch.left_rows).zip(&batch.right_rows) {
            if self.nearest.is_none_or(|(nearest, ..)| value < nearest) {
                self.nearest = Some((value, left, right));
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written> {
        if let Some((value, left, right)) = self.nearest {
            println!("of {} pairs, rows {left} and {right} are nearest: {value}", self.pairs);
        }
        Ok(Written::default())
    }
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let context = Context::default().with_memory(256 << 20);
    let vectors = folder.path().join("vectors.fbin");
    let generated =
        Generated { rows: 1_000, vectors: VectorType { element: Element::F32, dimensions: 8 }, hardness: 1.0, seed: 1 };
    generated.write(&context, &Target::File { path: vectors.clone(), force: false })?;

    // The job creates the sink once it knows the kinds of the ids and the metric.
    let inputs = [vectors.display().to_string()];
    let sink = |_: PairSchema| -> Result<Box<dyn PairSink>> { Ok(Box::new(Nearest::default())) };
    let mut job = Job::new(&inputs, JoinOptions::exact(Predicate::l2(1.0)?));
    job.output = Output::Sink(&sink);
    let opened = job.open(&context)?;
    job.run(&context, &opened)?;
    Ok(())
}

#[test]
fn runs() -> Result<()> {
    main()
}
