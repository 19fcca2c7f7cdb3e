//! Generates files of random vectors of any size. Joins of them are as hard as joins of real data. A seed gives the
//! same file on every machine.
//!
//! This module writes the file and its header. `generate_model.rs` computes the vectors.

use std::io::{BufWriter, Write};

use super::elements::StoredElement;
use super::generate_model::Model;
use super::npy;
use crate::base::context::Context;
use crate::base::error::{Error, Result, device_failure};
use crate::base::options::{DIMENSIONS_MAX, Element, ROWS_MAX, VectorType};
use crate::base::output::{Draft, Target};

/// Options for generating a file.
#[derive(Debug, Clone, Copy)]
pub struct Generated {
    /// Number of vectors. Up to 200,000, a set is the beginning of each larger one.
    pub rows: u64,
    /// Type of the vectors.
    pub vectors: VectorType,
    /// Difficulty of joins. At 1, vectors resemble descriptors of photographs (SIFT). At 0, all vectors are copies of
    /// a few vectors. Larger values mean fewer groups and a larger intrinsic dimension.
    pub hardness: f64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Generated {
    /// Writes vectors to a `.npy` file, or to a `.fbin`, `.u8bin` or `.i8bin` file if that extension fits the element
    /// type. Returns the number of bytes written.
    ///
    /// # Errors
    /// Fails if a size or the extension is invalid, if the file exists and must not be replaced, or if it cannot be
    /// written.
    pub fn write(&self, context: &Context, target: &Target) -> Result<u64> {
        let Target::File { path, force } = target else {
            return Err(Error::option("vectors are written to a file, not to standard output"));
        };
        check(self)?;
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        let header = header(self, ending)?;
        // Writes a draft first, so that an interrupted run does not leave a file that looks complete.
        let (draft, output) = Draft::create(context, path, *force)?;
        let written = output.written();
        let mut file = BufWriter::with_capacity(1 << 20, output);
        let failed = |error: std::io::Error| {
            let other = || Error::device(format!("cannot write {}: {error}", path.display()));
            device_failure(&error).unwrap_or_else(other)
        };
        file.write_all(&header).map_err(failed)?;
        let mut model = Model::new(self);
        let mut row = Vec::with_capacity(self.vectors.bytes());
        context.progress.begin("generate", "rows", self.rows);
        for done in 0..self.rows {
            if done % 4096 == 0 {
                context.cancel.check()?;
                context.progress.advance(done);
            }
            row.clear();
            model.write_row(&mut row);
            file.write_all(&row).map_err(failed)?;
        }
        file.into_inner().map_err(|error| failed(error.into_error()))?.sync()?;
        draft.publish()?;
        Ok(written.load(std::sync::atomic::Ordering::Relaxed))
    }
}

fn check(what: &Generated) -> Result<()> {
    if !(1..=DIMENSIONS_MAX).contains(&what.vectors.dimensions) {
        return Err(Error::option(format!("{} dimensions; give 1 to {DIMENSIONS_MAX}", what.vectors.dimensions)));
    }
    if what.rows > ROWS_MAX {
        return Err(Error::option(format!("{} rows; give at most {ROWS_MAX}", what.rows)));
    }
    if !what.hardness.is_finite() || what.hardness < 0.0 {
        return Err(Error::option(format!("the hardness is {}; give a number of at least 0", what.hardness)));
    }
    Ok(())
}

fn header(what: &Generated, ending: &str) -> Result<Vec<u8>> {
    let binary = match what.vectors.element {
        Element::F32 => "fbin",
        Element::U8 => "u8bin",
        Element::I8 => "i8bin",
        Element::F16 => "npy",
    };
    if ending == "npy" {
        return Ok(npy::new_header(StoredElement::Same(what.vectors.element), what.rows, what.vectors.dimensions));
    }
    if ending != binary {
        let or_npy = if binary == "npy" { "" } else { " or .npy" };
        return Err(Error::option(format!(
            "{} vectors are written to a .{binary}{or_npy} file; give the file that \
                                          extension",
            what.vectors.element
        )));
    }
    let rows = u32::try_from(what.rows);
    let rows = rows.map_err(|_| Error::option(format!("a .{binary} file holds at most 2^32 - 1 rows; write .npy")))?;
    Ok([rows.to_le_bytes(), (what.vectors.dimensions as u32).to_le_bytes()].concat())
}
