//! Checks the claims of a Parquet footer or page before the Parquet crate relies on them. That crate processes schemas
//! by recursion, and allocates as much memory as a page claims to need.

use parquet::errors::{ParquetError, Result};

/// Maximum depth of a schema. A list of structs of lists has about ten levels.
pub(super) const SCHEMA_DEPTH_MAX: usize = 64;
/// Maximum number of groups and columns in a schema.
const SCHEMA_ELEMENTS_MAX: u64 = 1 << 20;
/// Maximum number of row groups. The Parquet crate numbers them with i16, and allocates memory for the claimed number.
const ROW_GROUPS_MAX: u64 = i16::MAX as u64;
/// Maximum depth of a value that is skipped. The Parquet crate has the same limit.
const SKIPPED_DEPTH_MAX: usize = 64;
/// Numbers of two fields of the footer.
const SCHEMA: i64 = 2;
const ROW_GROUPS: i64 = 4;
/// Maximum decompressed size of a page, in bytes, unless [`PAGE_GROWTH_MAX`] allows more.
pub(super) const PAGE_BYTES_USUAL: u64 = 16 << 20;
/// Maximum compression ratio of a page: a zstd block can grow from 4 bytes to 128 KiB.
const PAGE_GROWTH_MAX: u64 = 40_000;

/// Numbers of parts according to a footer.
#[derive(Default)]
pub(super) struct FooterCounts {
    /// Number of groups and columns in the schema.
    pub(super) elements: u64,
    pub(super) row_groups: u64,
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

/// Returns the sizes of a page according to its header, which is at the start of `bytes`. Refuses a page that claims
/// an impossible compression ratio, and a dictionary that claims more values than bytes. The Parquet crate reports all
/// other faults of the header.
///
/// # Errors
/// Fails if the page makes such a claim or a negative claim.
pub(super) fn check_page(bytes: &[u8]) -> Result<PageSizes> {
    const GROWN: i64 = 2;
    const STORED: i64 = 3;
    const VALUES: i64 = 7;
    let claims = Compact { rest: bytes }.page_claims();
    // If a field is repeated, its last value counts, as in the Parquet crate.
    let claim = |field| claims.iter().rev().find(|(of, _)| *of == field).map_or(0, |(_, value)| *value);
    if claims.iter().any(|(_, value)| *value < 0) {
        return Err(fault("a page claims a negative length or number of values"));
    }
    let [grown, stored, values] = [GROWN, STORED, VALUES].map(|field| claim(field).unsigned_abs());
    // The crate allocates the decompressed size before it decompresses the page, so a false claim could exhaust the
    // memory.
    if grown > PAGE_BYTES_USUAL.max(stored.saturating_mul(PAGE_GROWTH_MAX)) {
        return Err(fault(&format!("a page of {stored} bytes claims to grow to {grown}")));
    }
    // Each value takes at least one byte. The crate allocates space for the claimed number of values.
    if values > grown {
        return Err(fault(&format!("a dictionary of {grown} bytes claims to hold {values} values")));
    }
    let dictionary = claims.iter().any(|(of, _)| *of == VALUES).then_some(values);
    Ok(PageSizes { stored, grown, dictionary })
}

/// Returns the type of a field of the footer. The Parquet crate reads a known field as the expected type, even if the
/// file states another type. So this check must refuse other types. Otherwise the crate would see another schema than
/// the check.
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

/// Returns the type of a field in a variant of a logical type, e.g. of the scale of a decimal.
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

/// Checks the claims of a footer and returns its counts. The schema is a list of groups and columns in depth-first
/// order. Each group states its number of children.
pub(super) fn check_schema(footer: &[u8]) -> Result<FooterCounts> {
    let mut footer = Compact { rest: footer };
    let mut counts = FooterCounts::default();
    let mut field = 0;
    while let Some(kind) = footer.next_field(&mut field).ok_or_else(cut_off)? {
        let (SCHEMA | ROW_GROUPS, Kind::List) = (field, kind) else {
            if kind_of_field(field).is_some_and(|known| known != kind) {
                return Err(fault("one of its fields has the wrong type"));
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
            // Fields may be repeated. The largest claim bounds the memory that the crate allocates.
            counts.row_groups = counts.row_groups.max(count);
            // The list was only opened to read its length, so it is skipped from its start.
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

/// Checks the nesting depth of groups. `children` has the number of children of each element of the schema.
fn check_depth(children: impl Iterator<Item = Option<u64>>) -> Result<()> {
    let mut open: Vec<u64> = Vec::new(); // children left, of each enclosing group
    for children in children {
        let children = children.ok_or_else(cut_off)?;
        // A group ends before the next element if all of its children were read.
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

pub(super) fn fault(what: &str) -> ParquetError {
    ParquetError::General(what.to_owned())
}

fn cut_off() -> ParquetError {
    fault("its fields cannot be parsed")
}

/// Types of Thrift's compact protocol that Parquet uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bool,
    Byte,
    /// Integers of 16, 32 and 64 bits, which have the same encoding.
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

/// Reader of Thrift's compact protocol. Methods return `None` if the bytes end or are invalid.
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
        // In zigzag encoding, the lowest bit is the sign, so that small negative numbers are short.
        Some((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    /// Returns the type of the next field and sets `field` to its number. The inner value is `None` at the end of the
    /// struct.
    #[allow(clippy::option_option)] // the end of the bytes is not the end of a struct
    fn next_field(&mut self, field: &mut i64) -> Option<Option<Kind>> {
        let head = self.byte()?;
        if head & 0x0F == 0 {
            return Some(None);
        }
        let kind = Kind::of(head & 0x0F)?;
        // The head has the difference to the number of the previous field. If it does not fit in four bits, the full
        // number follows.
        *field = match head >> 4 {
            0 => self.integer()?,
            step => field.checked_add(i64::from(step))?,
        };
        // Field numbers have 16 bits in Thrift and in the Parquet crate.
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
        // Without this limit, deep nesting in a damaged footer could overflow the stack.
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
        // A bool in a list takes a byte. So each element takes at least one byte, and a false count reaches the end of
        // the bytes soon.
        let kind = if kind == Kind::Bool { Kind::Byte } else { kind };
        (0..count).try_for_each(|_| self.skip(kind, depth))
    }

    /// Returns the lengths in a page header, each with its field number, and the number of values in the inner header
    /// for the page's type.
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
            // Fields are in ascending order. Nothing after the inner header is needed.
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
