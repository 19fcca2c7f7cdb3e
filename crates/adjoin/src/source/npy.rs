//! Reads NumPy's `.npy`, format versions 1.0, 2.0 and 3.0.

use std::ops::Range;
use std::path::Path;

use adjoin_device::ReadFile;

use super::dense_layout::DenseLayout;
use super::elements::{StoredElement, check_dimensions};
use crate::base::error::{Error, Result};
use crate::base::options::Element;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Maximum length of a header, in bytes. NumPy itself refuses headers of more than 10,000 bytes.
pub(super) const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Size of the magic, the version, and the longer form of the header length, in bytes.
pub(super) const START_BYTES: usize = 12;

/// Represents all structured dtypes. Vectors cannot have such a dtype.
const STRUCTURED: &str = "structured";

/// Returns the layout of a two-dimensional array.
pub(super) fn layout(path: &Path, file: &dyn ReadFile) -> Result<DenseLayout> {
    let wrong = |what: String| Error::input(format!("{}: {what}", path.display()));
    let mut head = [0; START_BYTES];
    let present = file.len().min(START_BYTES as u64) as usize;
    file.read_at(0, &mut head[..present])?;
    let Range { start: text_start, end: start } = header_range(&head[..present], file.len()).map_err(wrong)?;
    let mut text = vec![0; (start - text_start) as usize];
    file.read_at(text_start, &mut text)?;
    let header = Header::read(&text).map_err(wrong)?;
    let element = header.element().map_err(wrong)?;
    let (rows, columns) = header.rows_and_columns().map_err(wrong)?;
    let dimensions = check_dimensions(path, i128::from(columns))?;
    // Computed with 128 bits, since a damaged header may claim any number of rows.
    let expected = u128::from(start) + u128::from(rows) * (dimensions * element.bytes()) as u128;
    if u128::from(file.len()) != expected {
        return Err(wrong(format!(
            "its header says {rows} rows of {columns} {}, so {expected} bytes expected, found {}; write it again with np.save",
            header.descr,
            file.len()
        )));
    }
    Ok(DenseLayout { start, rows, dimensions: Some(dimensions), element, counted_rows: false })
}

/// Creates a header for `rows` vectors.
pub(super) fn new_header(element: StoredElement, rows: u64, dimensions: usize) -> Vec<u8> {
    let kind = match element {
        StoredElement::Same(Element::F32) => "<f4",
        StoredElement::Same(Element::F16) => "<f2",
        StoredElement::Same(Element::U8) => "|u1",
        StoredElement::Same(Element::I8) => "|i1",
        StoredElement::F64 => "<f8",
        StoredElement::Bf16 => "|V2",
    };
    header_of(kind, &[rows, dimensions as u64])
}

/// Creates a header of version 1.0. The dtype must not have field names, and the array must be in C order.
pub(super) fn header_of(descr: &str, shape: &[u64]) -> Vec<u8> {
    let lengths: String = shape.iter().map(|length| format!("{length}, ")).collect();
    // Python writes a tuple of one element with a trailing comma.
    let lengths = if let [_, _, ..] = shape { lengths.trim_end_matches(", ") } else { lengths.trim_end() };
    let mut dictionary = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({lengths}), }}");
    // Magic, version and length take 10 bytes. The length of the complete header is a multiple of 64, and it ends with
    // a line break.
    let padded = (10 + dictionary.len() + 1).next_multiple_of(64) - 10;
    dictionary.push_str(&" ".repeat(padded - dictionary.len() - 1));
    dictionary.push('\n');
    [&MAGIC[..], b"\x01\x00", &(padded as u16).to_le_bytes()[..], dictionary.as_bytes()].concat()
}

/// Returns the byte range of the text of a header, or a description of what is wrong. `start` has the first bytes of
/// the file, `bytes` is the length of the file.
pub(super) fn header_range(start: &[u8], bytes: u64) -> std::result::Result<Range<u64>, String> {
    let mut head = [0; START_BYTES];
    head[..start.len()].copy_from_slice(start);
    if start.len() < 10 || !head.starts_with(MAGIC) {
        return Err("is not a NumPy file, which starts with the bytes 93 4E 55 4D 50 59; write it with np.save".into());
    }
    // The length field is longer in version 2.0 than in 1.0. Version 3.0 differs from 2.0 only in the text encoding.
    let (start, length) = match (head[6], head[7]) {
        (1, 0) => (10, u64::from(u16::from_le_bytes([head[8], head[9]]))),
        (2 | 3, 0) => (12, u64::from(u32::from_le_bytes([head[8], head[9], head[10], head[11]]))),
        (major, minor) => {
            return Err(format!("has NumPy format {major}.{minor}; versions 1.0, 2.0 and 3.0 can be read"));
        }
    };
    if length > HEADER_BYTES_MAX || start + length > bytes {
        return Err(format!(
            "its NumPy header should be {length} bytes long, but the file has {bytes} bytes; it is truncated or damaged"
        ));
    }
    Ok(start..start + length)
}

/// Contents of the dictionary in a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<u64>,
}

impl Header {
    /// Parses the text of a header.
    pub(super) fn read(text: &[u8]) -> std::result::Result<Self, String> {
        Self::parse(&String::from_utf8_lossy(text))
            .map_err(|fault| format!("its NumPy header cannot be parsed ({fault}); write it again with np.save"))
    }

    /// Returns the size of an element in bytes. The dtype states it in forms such as `<f4` and `<U3`. Returns `None`
    /// for other dtypes.
    pub(super) fn element_bytes(&self) -> Option<u64> {
        let (kind, number) = (self.descr.get(..2)?, self.descr.get(2..)?);
        let number: u64 = number.parse().ok()?;
        match kind {
            // NumPy stores texts in UTF-32. The number is the number of characters.
            "<U" | ">U" => number.checked_mul(4),
            "|O" => None,
            _ => Some(number),
        }
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let mut literal = Literal { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        literal.expect('{')?;
        while !literal.take('}') {
            let key = literal.string()?;
            literal.expect(':')?;
            match key {
                "descr" => descr = Some(literal.descr()?),
                "fortran_order" => fortran_order = Some(literal.boolean()?),
                "shape" => shape = Some(literal.integers()?),
                _ => return Err(format!("the key {} is missing", shorten(key))),
            }
            // NumPy also writes a comma after the last entry. Other programs may not.
            if !literal.take(',') {
                literal.expect('}')?;
                break;
            }
        }
        if !literal.rest.trim().is_empty() {
            return Err("something follows the dictionary".into());
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Self { descr, fortran_order, shape }),
            _ => Err("descr, fortran_order or shape is missing".into()),
        }
    }

    fn element(&self) -> std::result::Result<StoredElement, String> {
        match self.descr.as_str() {
            "<f4" => Ok(StoredElement::Same(Element::F32)),
            "<f2" => Ok(StoredElement::Same(Element::F16)),
            "|u1" | "<u1" => Ok(StoredElement::Same(Element::U8)),
            "|i1" | "<i1" => Ok(StoredElement::Same(Element::I8)),
            "<f8" => Ok(StoredElement::F64),
            // NumPy has no bfloat16. It saves the bfloat16 of ml_dtypes as two bytes without a type.
            "|V2" | "<V2" => Ok(StoredElement::Bf16),
            "|O" => Err("holds Python objects (dtype |O); save np.stack(x).astype(np.float32)".into()),
            STRUCTURED => {
                Err("has a structured dtype; save the field that holds the vectors, such as x['vector']".into())
            }
            ">f4" | ">f2" | ">f8" => {
                Err(format!("is big-endian (dtype {0}); save x.astype('<{1}')", self.descr, &self.descr[1..]))
            }
            other => Err(format!(
                "has dtype {}; float32, float16, float64, uint8 and int8 can be read: save x.astype(np.float32)",
                shorten(other)
            )),
        }
    }

    fn rows_and_columns(&self) -> std::result::Result<(u64, u64), String> {
        let dimensions = self.shape.len();
        match *self.shape.as_slice() {
            [_, _] if self.fortran_order => {
                Err("is stored in Fortran order, column by column; save np.ascontiguousarray(x)".into())
            }
            [rows, columns] => Ok((rows, columns)),
            [] | [_] => Err(format!(
                "is a {dimensions}-d array, but vectors must be rows of a 2-d array; save \
                                     x.reshape(-1, d)"
            )),
            _ => Err(format!(
                "is a {dimensions}-d array, but vectors must be rows of a 2-d array; save \
                              x.reshape(len(x), -1)"
            )),
        }
    }
}

/// Parser of Python literals.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    /// Skips white space. If `expected` comes next, skips it and returns true.
    fn take(&mut self, expected: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, expected: char) -> std::result::Result<(), String> {
        match self.take(expected) {
            true => Ok(()),
            false => Err(format!("{expected} expected at {}", shorten(self.rest))),
        }
    }

    fn string(&mut self) -> std::result::Result<&'a str, String> {
        let quote = if self.take('\'') { '\'' } else { '"' };
        if quote == '"' {
            self.expect('"')?;
        }
        let (text, rest) = self.rest.split_once(quote).ok_or("a string does not end")?;
        self.rest = rest;
        Ok(text)
    }

    /// Parses a dtype: a string, or a list of fields if the dtype is structured.
    fn descr(&mut self) -> std::result::Result<String, String> {
        if !self.take('[') {
            return self.string().map(str::to_owned);
        }
        // Fields may themselves be structured, so brackets may be nested. Their contents are not needed.
        let mut depth = 1;
        let end = self.rest.find(|c| {
            depth += i32::from(c == '[') - i32::from(c == ']');
            depth == 0
        });
        self.rest = &self.rest[end.ok_or("a list does not end")? + 1..];
        Ok(STRUCTURED.to_owned())
    }

    fn boolean(&mut self) -> std::result::Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(format!("True or False expected at {}", shorten(self.rest)))
    }

    fn integers(&mut self) -> std::result::Result<Vec<u64>, String> {
        let mut integers = Vec::new();
        self.expect('(')?;
        while !self.take(')') {
            integers.push(self.integer()?);
            if !self.take(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(integers)
    }

    fn integer(&mut self) -> std::result::Result<u64, String> {
        self.rest = self.rest.trim_start();
        let digits = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest.strip_prefix('L').unwrap_or(rest); // Python 2 wrote long integers with an L
        number.parse().map_err(|_| format!("a number below 2^64 expected at {}", shorten(number)))
    }
}

/// Returns the first characters of a text, escaped for a message.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use half::f16;
    use proptest::prelude::*;

    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, real_sets};

    fn npy(version: u8, header: &str, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(header.len()).unwrap().to_le_bytes();
        let length = if version == 1 { &length[..2] } else { &length[..] };
        [MAGIC, &[version, 0][..], length, header.as_bytes(), data].concat()
    }

    fn header(descr: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}          \n")
    }

    #[test]
    fn every_type_and_version_is_read_with_any_batch() {
        let folder = Folder::new();
        let values: Vec<i8> = (0..24).collect();
        let singles: Vec<u8> = values.iter().flat_map(|v| f32::from(*v).to_le_bytes()).collect();
        let halves: Vec<u8> = values.iter().flat_map(|v| f16::from(*v).to_le_bytes()).collect();
        let doubles: Vec<u8> = values.iter().flat_map(|v| (f64::from(*v) + 1e-12).to_le_bytes()).collect();
        let bytes: Vec<u8> = values.iter().map(|v| v.cast_unsigned()).collect();
        let cases = [
            ("<f4", &singles, Element::F32, &singles),
            ("<f2", &halves, Element::F16, &halves),
            ("|u1", &bytes, Element::U8, &bytes),
            ("|i1", &bytes, Element::I8, &bytes),
            ("<f8", &doubles, Element::F32, &singles),
        ];
        for (descr, data, element, delivered) in cases {
            for version in 1..=3 {
                folder.write("a.npy", &npy(version, &header(descr, "(6, 4)"), data));
                let source = folder.open(&["a.npy"]).unwrap();
                assert_eq!((source.info().vectors.element, source.info().vectors.dimensions), (element, 4));
                assert_eq!(source.info().rounded_from_f64, descr == "<f8");
                for batch_bytes in [1, 40, 1 << 20] {
                    // 1e-12 vanishes next to any of the values but 0
                    let all = read_all(source.as_ref(), batch_bytes);
                    let skip = if descr == "<f8" { 4 } else { 0 };
                    assert_eq!((all.rows, &all.bytes[skip..]), (6, &delivered[skip..]), "{descr}");
                }
            }
        }
    }

    #[test]
    fn npy_headers_are_parsed_in_any_notation() {
        let expected = Header { descr: "<f4".into(), fortran_order: false, shape: vec![3, 4] };
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
            "{\"shape\":(3,4),\"fortran_order\":False,\"descr\":\"<f4\"}",
            "  { 'shape' : ( 3L , 4L, ) , 'descr' : '<f4' , 'fortran_order' : False }",
        ] {
            assert_eq!(Header::parse(text).unwrap(), expected);
        }
        for text in [
            "",
            "{",
            "{}",
            "[]",
            "{'descr'}",
            "{'descr': 3}",
            "{'shape': (3,",
            "{'shape': (-3, 4)}",
            "{'a': 1}",
            "{'descr': [('v'",
        ] {
            assert!(Header::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn faults_are_reported_with_a_remedy() {
        let folder = Folder::new();
        let spelled = |descr: &str, shape: &str| npy(1, &header(descr, shape), &[0; 32]);
        let fortran = header("<f4", "(2, 4)").replace("False", "True ");
        let structured = "{'descr': [('v', '<f4', (4,))], 'fortran_order': False, 'shape': (2,), }\n";
        let cases = [
            (
                spelled("<f4", "(2, 2, 2)"),
                "is a 3-d array, but vectors must be rows of a 2-d array; save \
                                           x.reshape(len(x), -1)",
            ),
            (spelled("<f4", "(8,)"), "is a 1-d array, but vectors must be rows of a 2-d array; save x.reshape(-1, d)"),
            (spelled("<f4", "()"), "is a 0-d array"),
            (npy(1, &fortran, &[0; 32]), "Fortran order, column by column; save np.ascontiguousarray(x)"),
            (spelled("|O", "(2, 4)"), "holds Python objects (dtype |O); save np.stack(x).astype(np.float32)"),
            (spelled("<i8", "(2, 2)"), "has dtype <i8; float32, float16, float64, uint8 and int8 can be read"),
            (npy(1, structured, &[0; 32]), "a.npy: has a structured dtype; save the field"),
            (spelled(">f4", "(2, 4)"), "is big-endian (dtype >f4); save x.astype('<f4')"),
            (b"PK\x03\x04 a zip of arrays".to_vec(), "is not a NumPy file"),
            (b"\x93NUM".to_vec(), "is not a NumPy file"),
            (npy(1, &header("<f4", "(2, 4)"), &[0; 31]), "2 rows of 4 <f4, so 112 bytes expected, found 111"),
            (npy(1, &header("<f4", "(2, 4)"), &[0; 33]), "bytes expected, found 113"),
            (spelled("<f4", "(18446744073709551615, 8000)"), "18446744073709551615 rows of 8000 <f4"),
            (spelled("<f4", "(99999999999999999999, 4)"), "cannot be parsed (a number below 2^64 expected"),
            (spelled("<f4", "(2, 9000)"), "9000 dimensions; vectors of 1 to 8192"),
            (spelled("<f4", "(2, 0)"), "0 dimensions"),
            (npy(1, "{'descr': '<f4'", &[]), "cannot be parsed (} expected"),
            (npy(1, "{'descr': '<f4'}", &[]), "descr, fortran_order or shape is missing"),
            (npy(9, "{}", &[]), "has NumPy format 9.0"),
            ([MAGIC, &[2, 0, 0xFF, 0xFF, 0xFF, 0xFF][..]].concat(), "header should be 4294967295 bytes long"),
        ];
        for (bytes, words) in cases {
            folder.write("a.npy", &bytes);
            let message = error_of(folder.open(&["a.npy"]));
            assert!(message.contains("a.npy: ") && message.contains(words), "{message}");
        }
    }

    #[test]
    fn two_bytes_without_a_type_are_bfloat16_and_a_note_says_so() {
        let folder = Folder::new();
        let values = [1.5f32, -2.0, 0.125, 3e38];
        let stored: Vec<u8> = values.iter().flat_map(|v| half::bf16::from_f32(*v).to_le_bytes()).collect();
        folder.write("a.npy", &npy(1, &header("|V2", "(2, 2)"), &stored));
        let source = folder.open(&["a.npy"]).unwrap();
        let expected: Vec<u8> = values.iter().flat_map(|v| half::bf16::from_f32(*v).to_f32().to_le_bytes()).collect();
        assert_eq!((source.info().vectors.element, read_all(source.as_ref(), 1).bytes), (Element::F32, expected));
        assert!(source.notes()[0].contains("a.npy: dtype |V2 is read as bfloat16"), "{:?}", source.notes());
    }

    #[test]
    fn real_sets_are_read() {
        let Some(data) = real_sets() else { return eprintln!("skipped: ADJOIN_DATA names no folder") };
        let folder = Folder::new();
        for (name, rows) in [("debdesc.f16.npy", 30_000), ("wordnet-20k.f16.npy", 20_000)] {
            let path = data.canonicalize().unwrap().join(name);
            let source = folder.open(&[path.to_str().unwrap()]).unwrap();
            assert_eq!(
                source.info().vectors,
                crate::base::options::VectorType { element: Element::F16, dimensions: 384 }
            );
            assert_eq!(read_all(source.as_ref(), 1 << 20).rows, rows);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn no_header_panics(text in "[{}()\\[\\]:, '\"a-zA-Z0-9<|é]{0,60}") {
            let _ = Header::parse(&text);
        }

        #[test]
        fn no_bytes_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                          cut in any::<prop::sample::Index>(), noise in any::<bool>()) {
            let folder = Folder::new();
            let mut bytes = npy(1, &header("<f4", "(2, 4)"), &[0; 32]);
            changes.iter().for_each(|(place, byte)| *place.get_mut(&mut bytes) = *byte);
            if noise {
                bytes.truncate(cut.index(bytes.len()));
            }
            folder.survive("a.npy", &bytes);
        }
    }
}
