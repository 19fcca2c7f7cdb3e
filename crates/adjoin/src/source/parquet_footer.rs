//! Checks the claims of a Parquet file before the Parquet crate relies on them. That crate walks schemas by recursion,
//! and allocates as much memory as a page claims to need.

use std::ops::Range;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::window::WindowedFile;

/// Deepest schema to read. A list of structs of lists has about ten levels.
const SCHEMA_DEPTH_MAX: usize = 64;
/// Most groups and columns of a schema.
const SCHEMA_ELEMENTS_MAX: u64 = 1 << 20;
/// Most row groups. The Parquet crate numbers them by i16, and allocates memory for as many as are claimed.
const ROW_GROUPS_MAX: u64 = i16::MAX as u64;
/// Deepest value to skip, as in the Parquet crate.
const SKIPPED_DEPTH_MAX: usize = 64;
/// A decoded footer takes at most this many times its stored bytes: a column chunk of 30 bytes becomes about 400.
const FOOTER_GROWTH: u64 = 16;
/// Bytes of a decoded column chunk, with its lists of encodings, and of an element of the schema, with its names in the
/// schemas of Parquet and Arrow.
const CHUNK_BYTES: u64 = size_of::<ColumnChunkMetaData>() as u64 + 128;
const ELEMENT_BYTES: u64 = 1 << 10;
/// Numbers of the footer's fields.
const SCHEMA: i64 = 2;
const ROW_GROUPS: i64 = 4;
/// Longest footer of any file ...
const FOOTER_BYTES_USUAL: u64 = 16 << 20;
/// ... and of a large file, of which the footer takes at most a quarter.
const FOOTER_BYTES_MAX: u64 = 256 << 20;
/// Length of the footer, then the magic bytes.
const TRAILER_BYTES: usize = 8;
/// Bytes to which a page may grow, whatever its stored length ...
const PAGE_BYTES_USUAL: u64 = 16 << 20;
/// ... or the factor by which it may grow: a zstd block grows from 4 bytes to 128 KiB.
const PAGE_GROWTH_MAX: u64 = 40_000;

/// Returns the byte range of the footer.
///
/// # Errors
/// Fails if it is missing or too long. `file` keeps errors of the device.
pub(super) fn footer_place(file: &WindowedFile) -> Result<Range<u64>> {
    let len = file.len();
    let trailer_start = len.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| fault("it is not there"))?;
    let trailer = file.get_bytes(trailer_start, TRAILER_BYTES)?;
    let (length, magic) = trailer.split_at(4);
    match magic {
        b"PAR1" => {}
        b"PARE" => return Err(fault("it is encrypted, which is not read")),
        _ => return Err(fault("it is not there, so the file is truncated or no Parquet file")),
    }
    let length = length.iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte));
    // A damaged length must not make the reader allocate a buffer of the size of the file.
    let longest = FOOTER_BYTES_USUAL.max(len / 4).min(FOOTER_BYTES_MAX);
    let start = trailer_start.checked_sub(length).filter(|_| length <= longest);
    let start = start.ok_or_else(|| fault(&format!("it should be {length} bytes long, in a file of {len}")))?;
    Ok(start..trailer_start)
}

/// Reads the bytes of the footer, and checks the work that it would make the Parquet crate do.
///
/// # Errors
/// Fails if its schema is too deep. `file` keeps errors of the device.
pub(super) fn read_footer(file: &WindowedFile, place: Range<u64>) -> Result<Bytes> {
    let bytes = file.get_bytes(place.start, (place.end - place.start) as usize)?;
    check_schema(&bytes)?;
    Ok(bytes)
}

/// Returns the bytes of the decoded footer without statistics, in addition to its stored bytes.
///
/// # Errors
/// Fails as [`read_footer`] does.
pub(super) fn decoded_bytes(file: &WindowedFile, place: Range<u64>) -> Result<u64> {
    let bytes = file.get_bytes(place.start, (place.end - place.start) as usize)?;
    let FooterCounts { elements, row_groups } = check_schema(&bytes)?;
    // Each row group has a chunk for each column; elements also count groups, so this is an upper bound.
    let decoded = elements.saturating_mul(row_groups.saturating_mul(CHUNK_BYTES).saturating_add(ELEMENT_BYTES));
    // Texts about the file are copied. A footer that is shorter than it claims is bounded by its length.
    Ok(decoded.saturating_add(bytes.len() as u64).min(decoded_bytes_max(bytes.len() as u64)))
}

/// Returns the most bytes of a decoded footer of `stored` bytes.
pub(super) const fn decoded_bytes_max(stored: u64) -> u64 {
    FOOTER_GROWTH * stored
}

/// Numbers of parts that a footer claims.
#[derive(Default)]
struct FooterCounts {
    /// Groups and columns of the schema.
    elements: u64,
    row_groups: u64,
}

/// Sizes of a page according to its header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PageSizes {
    /// Bytes in the file.
    pub(super) stored: u64,
    /// Bytes after decompression.
    pub(super) grown: u64,
    /// Number of values, if the page is a dictionary.
    pub(super) dictionary: Option<u64>,
}

/// Returns the sizes of the page with its header at the start of `bytes`. Checks that the page does not claim to grow
/// beyond reason, and that a dictionary does not claim more values than bytes. The Parquet crate reports any other
/// fault of the header.
///
/// # Errors
/// Fails if the page makes such a claim.
pub(super) fn check_page(bytes: &[u8]) -> Result<PageSizes> {
    const GROWN: i64 = 2;
    const STORED: i64 = 3;
    const VALUES: i64 = 7;
    let claims = Compact { rest: bytes }.page_claims();
    // A repeated field counts with its last value, as in the Parquet crate.
    let claim = |field| claims.iter().rev().find(|(of, _)| *of == field).map_or(0, |(_, value)| *value);
    if claims.iter().any(|(_, value)| *value < 0) {
        return Err(fault("a page claims a negative length or number of values"));
    }
    let [grown, stored, values] = [GROWN, STORED, VALUES].map(|field| claim(field).unsigned_abs());
    // The crate allocates the decompressed size before it decompresses, so a false claim would exhaust memory.
    if grown > PAGE_BYTES_USUAL.max(stored.saturating_mul(PAGE_GROWTH_MAX)) {
        return Err(fault(&format!("a page of {stored} bytes claims to grow to {grown}")));
    }
    // Each value takes at least a byte, and the crate allocates space for as many as are claimed.
    if values > grown {
        return Err(fault(&format!("a dictionary of {grown} bytes claims to hold {values} values")));
    }
    let dictionary = claims.iter().any(|(of, _)| *of == VALUES).then_some(values);
    Ok(PageSizes { stored, grown, dictionary })
}

/// Returns the type of a field of the footer. The Parquet crate reads known fields as their expected type, whatever
/// type the file states. If other types were accepted, it would see another schema than this check.
fn kind_of_field(field: i64) -> Option<Kind> {
    match field {
        1 | 3 => Some(Kind::I32),
        SCHEMA | ROW_GROUPS | 5 | 7 => Some(Kind::List),
        6 => Some(Kind::Binary),
        _ => None,
    }
}

/// Returns the type of a field of a schema element.
fn kind_of_element_field(field: i64) -> Option<Kind> {
    match field {
        1..=3 | 5..=9 => Some(Kind::I32),
        4 => Some(Kind::Binary),
        10 => Some(Kind::Struct),
        _ => None,
    }
}

/// Returns the type of a field of a logical type's variant, e.g. the scale of a decimal.
fn kind_of_logical_field(variant: i64, field: i64) -> Option<Kind> {
    match (variant, field) {
        (5, 1 | 2) | (18, 2) => Some(Kind::I32),
        (7 | 8, 1) | (10, 2) => Some(Kind::Bool),
        (7 | 8, 2) => Some(Kind::Struct),
        (10 | 16, 1) => Some(Kind::Byte),
        (17 | 18, 1) => Some(Kind::Binary),
        _ => None,
    }
}

/// Walks the schema: a list of groups and columns in depth-first order, in which each group states its number of
/// children.
fn check_schema(footer: &[u8]) -> Result<FooterCounts> {
    let mut footer = Compact { rest: footer };
    let mut counts = FooterCounts::default();
    let mut field = 0;
    while let Some(kind) = footer.next_field(&mut field).ok_or_else(cut_off)? {
        let (SCHEMA | ROW_GROUPS, Kind::List) = (field, kind) else {
            if kind_of_field(field).is_some_and(|known| known != kind) {
                return Err(fault("one of its fields has another type than Parquet gives it"));
            }
            footer.skip(kind, SKIPPED_DEPTH_MAX).ok_or_else(cut_off)?;
            continue;
        };
        let start = footer.rest;
        let (count, element) = footer.list().ok_or_else(cut_off)?;
        if field == ROW_GROUPS {
            if count > ROW_GROUPS_MAX {
                return Err(fault(&format!("it has {count} row groups, more than {ROW_GROUPS_MAX}")));
            }
            // Fields may be repeated; the largest claim bounds what the crate allocates.
            counts.row_groups = counts.row_groups.max(count);
            // The list was opened to read its count; it is skipped as a whole from its start.
            footer.rest = start;
            footer.skip(kind, SKIPPED_DEPTH_MAX).ok_or_else(cut_off)?;
        } else if count > SCHEMA_ELEMENTS_MAX || element != Kind::Struct {
            return Err(fault(&format!(
                "its schema is not a list of at most {SCHEMA_ELEMENTS_MAX} groups and columns"
            )));
        } else {
            counts.elements = counts.elements.max(count);
            check_depth((0..count).map(|_| footer.children()))?;
        }
    }
    Ok(counts)
}

/// Checks the nesting depth of groups, given the number of children of each element.
fn check_depth(children: impl Iterator<Item = Option<u64>>) -> Result<()> {
    let mut open: Vec<u64> = Vec::new(); // children left, of each enclosing group
    for children in children {
        let children = children.ok_or_else(cut_off)?;
        // Groups whose children are all read end here, before the next element is counted.
        while open.last() == Some(&0) {
            open.pop();
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        if open.len() > SCHEMA_DEPTH_MAX {
            return Err(fault(&format!("its schema is nested deeper than {SCHEMA_DEPTH_MAX} levels")));
        }
    }
    Ok(())
}

fn fault(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

fn cut_off() -> ParquetError {
    fault("its fields make no sense")
}

/// Types of Thrift's compact protocol that Parquet uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Byte,
    /// Integers of 16, 32 and 64 bits, which are encoded alike.
    I32,
    Double,
    Binary,
    List,
    Struct,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            1 | 2 => Self::Bool,
            3 => Self::Byte,
            4..=6 => Self::I32,
            7 => Self::Double,
            8 => Self::Binary,
            9 | 10 => Self::List,
            12 => Self::Struct,
            _ => return None, // a map or a UUID, which no version of Parquet writes
        })
    }
}

/// A reader of Thrift's compact protocol. Methods return `None` if the bytes end or are invalid.
struct Compact<'a> {
    rest: &'a [u8],
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let zigzag = self.unsigned()?;
        // Zigzag encoding: the lowest bit is the sign, so that small negative numbers are short.
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Returns the next field's type and sets `field` to its number. The inner value is `None` at the end of the
    /// struct.
    #[allow(clippy::option_option)] // the end of the bytes is not the end of a struct
    fn next_field(&mut self, field: &mut i64) -> Option<Option<Kind>> {
        let head = self.byte()?;
        if head & 0x0F == 0 {
            return Some(None);
        }
        let kind = Kind::of(head & 0x0F)?;
        // A field is stored as the step from the field before it, or in full if the step has no room in four bits.
        *field = match head >> 4 {
            0 => self.integer()?,
            step => field.checked_add(i64::from(step))?,
        };
        // Thrift numbers fields by 16 bits, and the Parquet crate reads no more.
        i16::try_from(*field).ok()?;
        Some(Some(kind))
    }

    fn list(&mut self) -> Option<(u64, Kind)> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.unsigned()?,
            few => u64::from(few),
        };
        if count == 0 {
            return Some((0, Kind::Byte)); // some writers give an empty list no type
        }
        Some((count, Kind::of(head & 0x0F)?))
    }

    /// Skips a value. `depth` limits the nesting of lists and structs.
    fn skip(&mut self, kind: Kind, depth: usize) -> Option<()> {
        // The deep nesting of a damaged footer could otherwise overflow the stack.
        let depth = depth.checked_sub(1)?;
        let bytes = match kind {
            Kind::Bool => 0,
            Kind::Byte => 1,
            Kind::I32 => return self.unsigned().map(drop),
            Kind::Double => 8,
            Kind::Binary => self.unsigned()?,
            Kind::List => return self.skip_list(depth),
            Kind::Struct => {
                let mut field = 0;
                while let Some(kind) = self.next_field(&mut field)? {
                    self.skip(kind, depth)?;
                }
                return Some(());
            }
        };
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn skip_list(&mut self, depth: usize) -> Option<()> {
        let (count, kind) = self.list()?;
        // A bool in a list takes a byte. Every element thus takes at least one byte, so a false count soon runs out of
        // bytes.
        let kind = if kind == Kind::Bool { Kind::Byte } else { kind };
        (0..count).try_for_each(|_| self.skip(kind, depth))
    }

    /// Returns the lengths in a page's header, by field number, and the number of values in the header of the page's
    /// kind.
    fn page_claims(&mut self) -> Vec<(i64, i64)> {
        let (mut claims, mut field) = (Vec::new(), 0);
        while let Some(Some(kind)) = self.next_field(&mut field) {
            let claim = match field {
                2 | 3 => self.integer(),            // whatever its type, like the Parquet crate
                1 | 4 => self.integer().map(|_| 0), // kind of page, checksum: any number
                5 | 7 | 8 if kind == Kind::Struct => {
                    let mut inner = 0;
                    self.next_field(&mut inner).filter(|_| inner == 1).and_then(|_| self.integer())
                }
                _ => None,
            };
            claims.extend(claim.map(|claim| (field, claim)));
            // Fields ascend, and nothing is needed after the header of the page's kind.
            if claim.is_none() || field > 4 {
                break;
            }
        }
        claims
    }

    /// Returns the number of children of a schema element, and skips the element.
    fn children(&mut self) -> Option<u64> {
        let (mut children, mut field) = (0, 0);
        while let Some(kind) = self.next_field(&mut field)? {
            if kind_of_element_field(field).is_some_and(|known| known != kind) {
                return None;
            }
            match field {
                5 => children = u64::try_from(self.integer()?).ok()?,
                10 => self.skip_logical_type()?,
                _ => self.skip(kind, SKIPPED_DEPTH_MAX)?,
            }
        }
        Some(children)
    }

    fn skip_logical_type(&mut self) -> Option<()> {
        let mut variant = 0;
        while let Some(kind) = self.next_field(&mut variant)? {
            if kind != Kind::Struct {
                return None;
            }
            let mut field = 0;
            while let Some(kind) = self.next_field(&mut field)? {
                if kind_of_logical_field(variant, field).is_some_and(|known| known != kind) {
                    return None;
                }
                self.skip(kind, SKIPPED_DEPTH_MAX)?;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::fixtures::{Folder, error_of};

    fn unsigned(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// Writes a schema element: type (columns only), repetition, name, number of children.
    fn element(name: &str, children: u64, out: &mut Vec<u8>) {
        let mut last = 0;
        let mut field = |number: u8, kind: u8, out: &mut Vec<u8>| {
            out.push((number - last) << 4 | kind);
            last = number;
        };
        if children == 0 {
            field(1, 5, out);
            unsigned(2 * 4, out); // float
        }
        field(3, 5, out);
        unsigned(0, out); // required
        field(4, 8, out);
        unsigned(name.len() as u64, out);
        out.extend(name.as_bytes());
        if children > 0 {
            field(5, 5, out);
            unsigned(2 * children, out);
        }
        out.push(0);
    }

    /// Creates a file without rows and with these schema elements.
    fn file(children: &[u64]) -> Vec<u8> {
        let mut footer = vec![0x15, 2, 0x19, 0xFC]; // version 1, then a long list of structs
        unsigned(children.len() as u64, &mut footer);
        for (k, &children) in children.iter().enumerate() {
            element(&format!("e{k}"), children, &mut footer);
        }
        footer.extend([0x16, 0, 0x19, 0x0C, 0]); // no rows, no row groups, end
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat()
    }

    fn message(bytes: &[u8]) -> String {
        let folder = Folder::new();
        folder.write("a.parquet", bytes);
        error_of(folder.open(&["a.parquet"]))
    }

    fn nested(levels: usize) -> Vec<u8> {
        let mut children = vec![1; levels];
        children.push(0);
        file(&children)
    }

    #[test]
    fn too_deeply_nested_schemas_are_refused() {
        assert!(message(&nested(SCHEMA_DEPTH_MAX)).contains("no column holds vectors"));
        for levels in [SCHEMA_DEPTH_MAX + 1, 1_000, 200_000] {
            let message = message(&nested(levels));
            assert!(
                message.contains("a.parquet: cannot read its Parquet footer: ")
                    && message.contains("nested deeper than 64 levels"),
                "{message}"
            );
        }
        // Other children of a level do not add depth.
        assert!(message(&file(&[3, 0, 2, 0, 0, 1, 0])).contains("no column holds vectors"));
        // False counts: more children than elements, at any depth.
        assert!(message(&file(&vec![1 << 30; 65])).contains("nested deeper"));
        assert!(message(&file(&[1 << 30, 0])).contains("its Parquet footer"));
    }

    #[test]
    fn footers_with_a_wrong_length_are_refused() {
        let mut bytes = vec![0; 20 << 20];
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(b"PAR1");
        for length in [u32::MAX, (end - 8) as u32, (17 << 20) as u32] {
            bytes[end - 8..end - 4].copy_from_slice(&length.to_le_bytes());
            assert!(message(&bytes).contains(&format!("it should be {length} bytes long, in a file of {end}")));
        }
        bytes[end - 4..].copy_from_slice(b"PARE");
        assert!(message(&bytes).contains("encrypted"));
    }

    #[test]
    fn memory_is_not_allocated_for_missing_row_groups() {
        let mut bytes = file(&[1, 0]);
        let end = bytes.len() - 8;
        bytes.splice(end - 2..end, [0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0]); // 2^31 - 1 elements
        let length = u32::try_from(bytes.len() - 12).unwrap().to_le_bytes();
        let end = bytes.len() - 8;
        bytes[end..end + 4].copy_from_slice(&length);
        assert!(message(&bytes).contains("it has 2147483647 row groups"), "{}", message(&bytes));
    }

    #[test]
    fn truncated_footers_do_not_panic() {
        let whole = nested(3);
        let footer = &whole[4..whole.len() - 8];
        for len in 0..footer.len() {
            let length = u32::try_from(len).unwrap().to_le_bytes();
            message(&[b"PAR1", &footer[..len], &length, b"PAR1"].concat());
        }
    }

    #[test]
    fn refuses_pages_with_implausible_decompressed_sizes() {
        let page = |grown: u64, stored: u64| {
            let mut bytes = vec![0x15, 0, 0x15];
            unsigned(2 * grown, &mut bytes);
            bytes.push(0x15);
            unsigned(2 * stored, &mut bytes);
            check_page(&bytes)
        };
        assert!(page(PAGE_BYTES_USUAL, 1).is_ok());
        assert!(page(1 << 30, 1 << 16).is_ok());
        let error = page(1 << 30, 100).unwrap_err().to_string();
        assert!(error.contains("a page of 100 bytes claims to grow to 1073741824"), "{error}");
        assert!(check_page(&[0x15, 0, 0x15, 1]).is_err());
        let dictionary = |values: u8| check_page(&[0x15, 4, 0x15, 20, 0x15, 20, 0x4C, 0x15, values]);
        assert!(dictionary(20).is_ok());
        assert!(dictionary(21).is_err() && dictionary(22).unwrap_err().to_string().contains("to hold 11 values"));
        assert!(check_page(&[]).is_ok() && check_page(&[0x15]).is_ok());
    }
}
