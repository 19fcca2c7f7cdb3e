//! Reads `.safetensors` files. They have a header in JSON, followed by tensors in row-major order. One of the tensors
//! has the vectors.
//!
//! The format: <https://huggingface.co/docs/safetensors>.

use std::collections::BTreeMap;
use std::path::Path;

use adjoin_device::ReadFile;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::dense_layout::DenseLayout;
use super::elements::{StoredElement, check_dimensions};
use crate::base::error::{Error, Result};
use crate::base::message::{Argument, message};
use crate::base::options::Element;

/// Size of the header length, which is at the start of the file, in bytes.
const LENGTH_BYTES: u64 = 8;
/// Maximum length of a header, in bytes. A header with a thousand tensors has about 100 kB.
const HEADER_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of tensors that an error names.
const NAMED_MAX: usize = 5;

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    _metadata: Option<IgnoredAny>,
    #[serde(flatten)]
    tensors: BTreeMap<String, Tensor>,
}

/// Entry of the header for a tensor.
#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    /// Offset of the tensor's first byte and of the first byte after it, counted from the end of the header.
    data_offsets: [u64; 2],
}

impl Tensor {
    fn element(&self) -> Option<StoredElement> {
        Some(match self.dtype.as_str() {
            "F32" => StoredElement::Same(Element::F32),
            "F16" => StoredElement::Same(Element::F16),
            "U8" => StoredElement::Same(Element::U8),
            "I8" => StoredElement::Same(Element::I8),
            "F64" => StoredElement::F64,
            "BF16" => StoredElement::Bf16,
            _ => return None,
        })
    }

    /// Returns the numbers of rows and dimensions and the element type. Returns `None` if the tensor cannot hold
    /// vectors.
    fn vectors(&self) -> Option<(u64, u64, StoredElement)> {
        match *self.shape.as_slice() {
            [rows, dimensions] => Some((rows, dimensions, self.element()?)),
            _ => None,
        }
    }
}

/// Returns the layout of the tensor `name`. Without a name, returns the layout of the only tensor that can hold
/// vectors.
pub(super) fn layout(path: &Path, file: &dyn ReadFile, name: Option<&str>) -> Result<DenseLayout> {
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    let (start, tensors) = header(path, file)?;
    let (name, tensor) = choose(path, &tensors, name)?;
    let Some((rows, dimensions, element)) = tensor.vectors() else {
        return Err(wrong(format!(
            "its tensor {name:?} has shape {:?} and dtype {}; vectors are a tensor of two dimensions, of F32, F16, BF16, \
             F64, U8 or I8",
            tensor.shape, tensor.dtype
        )));
    };
    let dimensions = check_dimensions(path, i128::from(dimensions))?;
    let [first, end] = tensor.data_offsets;
    // Computed with 128 bits, since a damaged header may claim any number of rows.
    let expected = u128::from(rows) * (dimensions * element.bytes()) as u128;
    let has = end.checked_sub(first).map(u128::from);
    if has != Some(expected) || end > file.len() - start {
        return Err(wrong(format!(
            "its tensor {name:?} of {rows} x {dimensions} {} takes {expected} bytes, but its header places it at bytes \
             {first} to {end} of {}; the file is truncated or damaged: write it again",
            tensor.dtype,
            file.len() - start
        )));
    }
    Ok(DenseLayout { start: start + first, rows, dimensions: Some(dimensions), element, counted_rows: false })
}

/// Refuses a file that has tensors in addition to the vectors, since a copy without some rows would lose them.
pub(super) fn refuse_others(path: &Path, file: &dyn ReadFile) -> Result<()> {
    let (_, tensors) = header(path, file)?;
    if tensors.len() < 2 {
        return Ok(());
    }
    Err(Error::input(format!(
        "{}: has the tensors {}, but rows can be removed only from a file with one tensor; write the vectors to a \
         file of their own",
        path.display(),
        names(tensors.keys())
    )))
}

/// Creates the header of a file with one tensor.
pub(super) fn new_header(name: &str, element: StoredElement, rows: u64, dimensions: usize) -> Vec<u8> {
    let dtype = match element {
        StoredElement::Same(Element::F32) => "F32",
        StoredElement::Same(Element::F16) => "F16",
        StoredElement::Same(Element::U8) => "U8",
        StoredElement::Same(Element::I8) => "I8",
        StoredElement::F64 => "F64",
        StoredElement::Bf16 => "BF16",
    };
    let bytes = rows * (dimensions * element.bytes()) as u64;
    let tensor = serde_json::json!({"dtype": dtype, "shape": [rows, dimensions], "data_offsets": [0, bytes]});
    let mut text = serde_json::json!({ name: tensor }).to_string();
    // Tensors start at a multiple of 8 bytes, so the header is padded with spaces.
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns the name of the only tensor of a file that can hold vectors.
pub(super) fn only_name(path: &Path, file: &dyn ReadFile) -> Result<String> {
    let (_, tensors) = header(path, file)?;
    Ok(choose(path, &tensors, None)?.0.to_owned())
}

/// Returns the offset of the first tensor, and all tensors by name.
fn header(path: &Path, file: &dyn ReadFile) -> Result<(u64, BTreeMap<String, Tensor>)> {
    let wrong = |what: String| {
        Error::input(format!("{}: {what}; write it again with safetensors.numpy.save_file", path.display()))
    };
    let mut length = [0; LENGTH_BYTES as usize];
    if file.len() < LENGTH_BYTES {
        return Err(wrong(format!("{} bytes long, too few for a safetensors file", file.len())));
    }
    file.read_at(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HEADER_BYTES_MAX || length > file.len() - LENGTH_BYTES {
        return Err(wrong(format!(
            "its header should be {length} bytes long, but the file has {} bytes, and headers of at most \
             {HEADER_BYTES_MAX} bytes are read",
            file.len()
        )));
    }
    let mut text = vec![0; length as usize];
    file.read_at(LENGTH_BYTES, &mut text)?;
    let Header { tensors, .. } =
        serde_json::from_slice(&text).map_err(|error| wrong(format!("its header cannot be parsed ({error})")))?;
    Ok((LENGTH_BYTES + length, tensors))
}

fn choose<'a>(path: &Path, tensors: &'a BTreeMap<String, Tensor>, name: Option<&str>) -> Result<(&'a str, &'a Tensor)> {
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    if let Some(name) = name {
        let found = tensors.get_key_value(name).map(|(name, tensor)| (name.as_str(), tensor));
        return found.ok_or_else(|| wrong(format!("has no tensor {name:?}; it has {}", names(tensors.keys()))));
    }
    let mut of_vectors = tensors.iter().filter(|(_, tensor)| tensor.vectors().is_some());
    match (of_vectors.next(), of_vectors.next()) {
        (Some((name, tensor)), None) => Ok((name, tensor)),
        (None, _) => Err(wrong(format!(
            "has no tensor of two dimensions of F32, F16, BF16, F64, U8 or I8; its tensors: {}",
            names(tensors.keys())
        ))),
        _ => {
            let of_vectors = tensors.iter().filter(|(_, tensor)| tensor.vectors().is_some());
            Err(Error::input(message![
                format!(
                    "{}: several tensors may be the vectors: {}; choose one with ",
                    path.display(),
                    names(of_vectors.map(|(name, _)| name))
                ),
                Argument::VectorColumn
            ]))
        }
    }
}

/// Lists names for a message.
fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&String> = names.collect();
    let more = if names.len() > NAMED_MAX { format!(" and {} more", names.len() - NAMED_MAX) } else { String::new() };
    let listed: Vec<String> = names.iter().take(NAMED_MAX).map(|name| format!("{name:?}")).collect();
    if listed.is_empty() { "none".to_owned() } else { format!("{}{more}", listed.join(", ")) }
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use proptest::prelude::*;

    use super::*;
    use crate::base::options::VectorType;
    use crate::source::SourceOptions;
    use crate::source::fixtures::{Folder, error_of, read_all};

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn tensor(dtype: &str, shape: &str, bytes: usize) -> String {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[0,{bytes}]}}"#)
    }

    #[test]
    fn every_type_is_read_with_any_batch() {
        let folder = Folder::new();
        let values: Vec<f32> = (0..24).map(|k| k as f32 / 4.0 - 2.5).collect();
        let singles: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let doubles: Vec<u8> = values.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
        let halves: Vec<u8> = values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
        let brain: Vec<u8> = values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
        let bytes: Vec<u8> = (240..=255).chain(0..8).collect();
        for (dtype, stored, element, delivered) in [
            ("F32", &singles, Element::F32, &singles),
            ("F64", &doubles, Element::F32, &singles),
            ("F16", &halves, Element::F16, &halves),
            ("BF16", &brain, Element::F32, &singles),
            ("U8", &bytes, Element::U8, &bytes),
            ("I8", &bytes, Element::I8, &bytes),
        ] {
            let text = format!(
                r#"{{"__metadata__":{{"format":"pt","shape":"x"}},"v":{}}}   "#,
                tensor(dtype, "[6,4]", stored.len())
            );
            folder.write("a.safetensors", &file(&text, stored));
            let source = folder.open(&["a.safetensors"]).unwrap();
            assert_eq!(source.info().vectors, VectorType { element, dimensions: 4 }, "{dtype}");
            for batch_bytes in [1, 50, 1 << 20] {
                let all = read_all(source.as_ref(), batch_bytes);
                assert_eq!((all.rows, &all.bytes), (6, delivered), "{dtype}");
            }
        }
    }

    #[test]
    fn infinite_elements_of_bf16_stay_infinite() {
        let folder = Folder::new();
        let values = [bf16::INFINITY, bf16::NEG_INFINITY, bf16::NAN, bf16::MIN_POSITIVE_SUBNORMAL];
        let stored: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        folder.write("a.safetensors", &file(&format!(r#"{{"v":{}}}"#, tensor("BF16", "[1,4]", 8)), &stored));
        let read = read_all(folder.open(&["a.safetensors"]).unwrap().as_ref(), 1).bytes;
        let expected: Vec<u8> = values.iter().flat_map(|v| v.to_f32().to_le_bytes()).collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn a_name_chooses_among_tensors() {
        let folder = Folder::new();
        let header = r#"{"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},
            "b":{"dtype":"U8","shape":[1,2],"data_offsets":[4,6]},"ids":{"dtype":"I64","shape":[2],"data_offsets":[6,22]}}"#;
        folder.write("a.safetensors", &file(header, &(0..22).collect::<Vec<u8>>()));
        let named = |name: &str| {
            let options = SourceOptions { vector_column: Some(name.to_owned()), ..SourceOptions::default() };
            folder.open_with(&["a.safetensors"], &options)
        };
        assert_eq!(read_all(named("a").unwrap().as_ref(), 1).bytes, [0, 1, 2, 3]);
        assert_eq!(read_all(named("b").unwrap().as_ref(), 1).bytes, [4, 5]);
        let message = error_of(named("c"));
        assert!(message.contains(r#"has no tensor "c"; it has "a", "b", "ids""#), "{message}");
        let message = error_of(named("ids"));
        assert!(message.contains(r#"its tensor "ids" has shape [2] and dtype I64"#), "{message}");
        let message = error_of(folder.open(&["a.safetensors"]));
        assert!(message.contains(r#"several tensors may be the vectors: "a", "b"; choose one"#), "{message}");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = Folder::new();
        let whole = file(&format!(r#"{{"v":{}}}"#, tensor("F32", "[2,3]", 24)), &[0; 24]);
        let of = |text: &str| file(text, &[0; 24]);
        let huge = of(&format!(r#"{{"v":{}}}"#, tensor("F32", "[18446744073709551615,3]", 24)));
        let inverted = of(r#"{"v":{"dtype":"F32","shape":[2,3],"data_offsets":[24,0]}}"#);
        for (bytes, words) in [
            (&whole[..5], "5 bytes long, too few"),
            (&whole[..40], "its header should be"),
            (&whole[..whole.len() - 1], "takes 24 bytes, but its header places it at bytes 0 to 24 of 23"),
            (&huge, "but its header places it"),
            (&inverted, "places it at bytes 24 to 0"),
            (&of("{}"), "no tensor of two dimensions of F32, F16, BF16, F64, U8 or I8; its tensors: none"),
            (&of(r#"{"v":{"dtype":"F32"}}"#), "its header cannot be parsed"),
            (&[0xFF; 16], "headers of at most 1048576 bytes are read"),
        ] {
            folder.write("a.safetensors", bytes);
            let message = error_of(folder.open(&["a.safetensors"]));
            assert!(message.contains("a.safetensors: ") && message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_new_header_is_read_again() {
        let folder = Folder::new();
        for element in [StoredElement::Same(Element::F16), StoredElement::Bf16] {
            let header = new_header("some \"name\"", element, 3, 5);
            assert!(header.len().is_multiple_of(8));
            folder.write("a.safetensors", &[&header[..], &[0; 30]].concat());
            let source = folder.open(&["a.safetensors"]).unwrap();
            assert_eq!((source.info().rows, source.info().vectors.dimensions), (3, 5));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_bytes_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                          cut in any::<prop::sample::Index>(), is_cut in any::<bool>()) {
            let folder = Folder::new();
            let mut bytes = file(&format!(r#"{{"v":{}}}"#, tensor("BF16", "[2,3]", 12)), &[1; 12]);
            changes.iter().for_each(|(place, byte)| *place.get_mut(&mut bytes) = *byte);
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            folder.survive("a.safetensors", &bytes);
        }
    }
}
