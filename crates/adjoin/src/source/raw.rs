//! Reads files with minimal headers: `.fbin .u8bin .i8bin` (counts, then rows) and `.fvecs .bvecs` (a count before each
//! row).

use std::path::Path;

use adjoin_device::ReadFile;

use super::dense_layout::DenseLayout;
use super::elements::{StoredElement, check_dimensions};
use crate::base::error::{Error, Result};
use crate::base::options::Element;

/// Size of the header in bytes: the number of rows and the number of dimensions.
const HEADER_BYTES: u64 = 8;

/// Returns the layout of a file that starts with the number of rows and of dimensions, both as u32.
pub(super) fn counted_file(path: &Path, file: &dyn ReadFile, element: Element) -> Result<DenseLayout> {
    let mut header = [0; HEADER_BYTES as usize];
    if file.len() < HEADER_BYTES {
        return Err(Error::input(format!(
            "{}: {} bytes long, but its header of rows and dimensions alone takes {HEADER_BYTES}; it is truncated",
            path.display(),
            file.len()
        )));
    }
    file.read_at(0, &mut header)?;
    let [r0, r1, r2, r3, d0, d1, d2, d3] = header;
    let rows = u64::from(u32::from_le_bytes([r0, r1, r2, r3]));
    let dimensions = check_dimensions(path, i128::from(u32::from_le_bytes([d0, d1, d2, d3])))?;
    // This cannot overflow: the number of rows has 32 bits, and the number of dimensions is bounded.
    let expected = HEADER_BYTES + rows * (dimensions * element.bytes()) as u64;
    if file.len() != expected {
        let fault = if file.len() < expected { "it is truncated" } else { "extra bytes follow the rows" };
        return Err(Error::input(format!(
            "{}: its header says {rows} rows of {dimensions} {element}, so {expected} bytes expected, found {}; {fault}: \
             write or copy it again",
            path.display(),
            file.len()
        )));
    }
    let element = StoredElement::Same(element);
    Ok(DenseLayout { start: HEADER_BYTES, rows, dimensions: Some(dimensions), element, counted_rows: false })
}

/// Returns the layout of a file in which each row starts with its number of dimensions as i32.
pub(super) fn counted_rows(path: &Path, file: &dyn ReadFile, element: Element) -> Result<DenseLayout> {
    let element = StoredElement::Same(element);
    let layout = DenseLayout { start: 0, rows: 0, dimensions: None, element, counted_rows: true };
    if file.is_empty() {
        return Ok(layout);
    }
    let mut count = [0; 4];
    if file.len() < count.len() as u64 {
        return Err(Error::input(format!("{}: {} bytes long, too few for a row", path.display(), file.len())));
    }
    file.read_at(0, &mut count)?;
    // The first row determines the number of dimensions. If a later row states another number, reading it fails.
    let dimensions = check_dimensions(path, i128::from(i32::from_le_bytes(count)))?;
    let row_bytes = layout.row_bytes(dimensions) as u64;
    if !file.len().is_multiple_of(row_bytes) {
        return Err(Error::input(format!(
            "{}: its first row has {dimensions} dimensions, so a row takes {row_bytes} bytes, but its {} bytes are not a \
             multiple of that; it is truncated, or its rows differ in length",
            path.display(),
            file.len()
        )));
    }
    Ok(DenseLayout { rows: file.len() / row_bytes, dimensions: Some(dimensions), ..layout })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::base::options::{Element, VectorType};
    use crate::source::fixtures::{Folder, counts, error_of, fbin, read_all, real_sets, try_read_all, u8bin};

    fn vecs(rows: &[&[u8]], element_bytes: usize) -> Vec<u8> {
        let row = |row: &&[u8]| [&i32::try_from(row.len() / element_bytes).unwrap().to_le_bytes(), *row].concat();
        rows.iter().flat_map(row).collect()
    }

    #[test]
    fn every_format_is_read_with_any_batch() {
        let folder = Folder::new();
        let floats: Vec<f32> = (0..30).map(|i| i as f32 - 7.5).collect();
        let bytes: Vec<u8> = (0..30).map(|i| 250 + i % 6).collect();
        let float_bytes: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
        folder.write("a.fbin", &fbin(3, &floats));
        folder.write("a.u8bin", &u8bin(3, &bytes));
        folder.write("a.i8bin", &u8bin(3, &bytes));
        folder.write("a.fvecs", &vecs(&float_bytes.chunks(12).collect::<Vec<_>>(), 4));
        folder.write("a.bvecs", &vecs(&bytes.chunks(3).collect::<Vec<_>>(), 1));
        let expected = [
            ("a.fbin", Element::F32, &float_bytes),
            ("a.u8bin", Element::U8, &bytes),
            ("a.i8bin", Element::I8, &bytes),
            ("a.fvecs", Element::F32, &float_bytes),
            ("a.bvecs", Element::U8, &bytes),
        ];
        for (name, element, elements) in expected {
            let source = folder.open(&[name]).unwrap();
            assert_eq!(source.info().vectors, VectorType { element, dimensions: 3 });
            for batch_bytes in [0, 1, 3, 25, usize::MAX] {
                let all = read_all(source.as_ref(), batch_bytes);
                assert_eq!((all.rows, &all.bytes), (10, elements), "{name}");
            }
        }
    }

    #[test]
    fn refuses_raw_files_whose_length_contradicts_the_header() {
        let folder = Folder::new();
        let whole = fbin(2, &[1.0, 2.0, 3.0, 4.0]);
        folder.write("short.fbin", &whole[..20]);
        folder.write("long.fbin", &[&whole[..], &[0]].concat());
        folder.write("none.fbin", &whole[..7]);
        folder.write("huge.fbin", &[0xFF; 8]);
        folder.write("many.u8bin", &[&[0xFF; 4][..], &8_192u32.to_le_bytes()].concat());
        folder.write("flat.u8bin", &counts(5, 0));
        for (name, words) in [
            ("short.fbin", "2 rows of 2 f32, so 24 bytes expected, found 20; it is truncated"),
            ("long.fbin", "24 bytes expected, found 25; extra bytes follow the rows"),
            ("none.fbin", "7 bytes long"),
            ("huge.fbin", "4294967295 dimensions; vectors of 1 to 8192"),
            ("many.u8bin", "4294967295 rows of 8192 u8, so 35184372080648 bytes expected, found 8"),
            ("flat.u8bin", "have 0 dimensions"),
        ] {
            let message = error_of(folder.open(&[name]));
            assert!(message.contains(name) && message.contains(words), "{message}");
        }
    }

    #[test]
    fn refuses_vecs_rows_of_another_length() {
        let folder = Folder::new();
        folder.write("a.bvecs", &vecs(&[&[1, 2], &[3, 4], &[5, 6]], 1));
        folder.write("b.bvecs", &[vecs(&[&[1, 2], &[3, 4]], 1), vec![7, 0, 0, 0, 9, 9]].concat());
        folder.write("c.bvecs", &vecs(&[&[1, 2], &[3, 4, 5]], 1));
        folder.write("d.bvecs", &[1, 2]);
        folder.write("e.bvecs", &(-1i32).to_le_bytes());
        folder.write("f.bvecs", &[]);
        assert_eq!(read_all(folder.open(&["f.bvecs", "a.bvecs"]).unwrap().as_ref(), 1).rows, 3);
        let message = error_of(try_read_all(folder.open(&["b.bvecs"]).unwrap().as_ref(), 2));
        assert!(message.contains("b.bvecs: row 2 has 7 dimensions, row 0 has 2"), "{message}");
        assert!(
            error_of(folder.open(&["c.bvecs"])).contains("a row takes 6 bytes, but its 13 bytes are not a multiple")
        );
        assert!(error_of(folder.open(&["d.bvecs"])).contains("2 bytes long, too few"));
        assert!(error_of(folder.open(&["e.bvecs"])).contains("-1 dimensions"));
        assert!(error_of(folder.open(&["f.bvecs"])).contains("no row has a vector"));
    }

    #[test]
    fn real_sets_are_read() {
        let Some(data) = real_sets() else { return eprintln!("skipped: ADJOIN_DATA names no folder") };
        let folder = Folder::new();
        for (name, rows) in [("sift-200k.u8bin", 200_000), ("sift-stars-50k.u8bin", 50_000)] {
            let path = data.canonicalize().unwrap().join(name);
            let source = folder.open(&[path.to_str().unwrap()]).unwrap();
            assert_eq!(read_all(source.as_ref(), 1 << 20).rows, rows);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(prop_oneof![Just(0u8), 0u8..4, any::<u8>()], 0..64)) {
            let folder = Folder::new();
            for name in ["a.fbin", "a.u8bin", "a.fvecs", "a.bvecs"] {
                folder.survive(name, &bytes);
            }
        }
    }
}
