//! Finds the footer of a Parquet file and reads it after checking its claims.

use std::ops::Range;

use bytes::Bytes;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

use super::parquet_claims::{FooterCounts, check_schema, fault};
use super::window::WindowedFile;

/// Upper bound on the size of a decoded footer, as a multiple of its stored size. A column chunk of 30 bytes becomes
/// about 400 bytes.
const FOOTER_GROWTH: u64 = 16;
/// Size of a decoded column chunk with its lists of encodings, in bytes.
const CHUNK_BYTES: u64 = size_of::<ColumnChunkMetaData>() as u64 + 128;
/// Size of a decoded element of the schema, in bytes. Includes its names in the schemas of Parquet and Arrow.
const ELEMENT_BYTES: u64 = 1 << 10;
/// Maximum length of a footer in any file, in bytes.
const FOOTER_BYTES_USUAL: u64 = 16 << 20;
/// Maximum length of the footer of a large file, in bytes. Such a footer is also at most a quarter of the file.
const FOOTER_BYTES_MAX: u64 = 256 << 20;
/// Size of the end of the file, in bytes: the length of the footer and the magic bytes.
const TRAILER_BYTES: usize = 8;

/// Returns the byte range of the footer.
///
/// # Errors
/// Fails if the footer is missing or too long. If the device fails, `file` keeps its error.
pub(super) fn footer_place(file: &WindowedFile) -> Result<Range<u64>> {
    let len = file.len();
    let trailer_start = len.checked_sub(TRAILER_BYTES as u64).ok_or_else(|| fault("it is missing"))?;
    let trailer = file.get_bytes(trailer_start, TRAILER_BYTES)?;
    let (length, magic) = trailer.split_at(4);
    match magic {
        b"PAR1" => {}
        b"PARE" => return Err(fault("it is encrypted, which is not supported")),
        _ => return Err(fault("it is missing, so the file is truncated or not a Parquet file")),
    }
    let length = length.iter().rev().fold(0, |length, &byte| length << 8 | u64::from(byte));
    // The length is limited, so that a damaged length cannot make the reader allocate a buffer as large as the file.
    let longest = FOOTER_BYTES_USUAL.max(len / 4).min(FOOTER_BYTES_MAX);
    let start = trailer_start.checked_sub(length).filter(|_| length <= longest);
    let start = start.ok_or_else(|| fault(&format!("it states a length of {length} bytes in a file of {len}")))?;
    Ok(start..trailer_start)
}

/// Reads the bytes of the footer. Checks the claims that cause the Parquet crate to do work.
///
/// # Errors
/// Fails if the check of the claims fails. If the device fails, `file` keeps its error.
pub(super) fn read_footer(file: &WindowedFile, place: Range<u64>) -> Result<Bytes> {
    let bytes = file.get_bytes(place.start, (place.end - place.start) as usize)?;
    check_schema(&bytes)?;
    Ok(bytes)
}

/// Returns the memory that the decoded footer takes, in bytes. Neither statistics nor the stored footer are included.
///
/// # Errors
/// Fails as [`read_footer`] does.
pub(super) fn decoded_bytes(file: &WindowedFile, place: Range<u64>) -> Result<u64> {
    let bytes = file.get_bytes(place.start, (place.end - place.start) as usize)?;
    let FooterCounts { elements, row_groups } = check_schema(&bytes)?;
    // Each row group has a chunk for each column. `elements` also counts groups, so this is an upper bound.
    let decoded = elements.saturating_mul(row_groups.saturating_mul(CHUNK_BYTES).saturating_add(ELEMENT_BYTES));
    // Texts about the file are copied. The length of the footer bounds its decoded size even if its claims are false.
    Ok(decoded.saturating_add(bytes.len() as u64).min(decoded_bytes_max(bytes.len() as u64)))
}

/// Returns an upper bound on the size of a decoded footer that has `stored` bytes in the file.
pub(super) const fn decoded_bytes_max(stored: u64) -> u64 {
    FOOTER_GROWTH * stored
}

#[cfg(test)]
mod tests {
    use crate::source::fixtures::{Folder, error_of};
    use crate::source::parquet_claims::{PAGE_BYTES_USUAL, SCHEMA_DEPTH_MAX, check_page};

    fn unsigned(mut value: u64, out: &mut Vec<u8>) {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }

    /// Writes a schema element: type (only for columns), repetition, name, number of children.
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

    /// Creates a file without rows. The elements of its schema have these numbers of children.
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
        // Further children of a group do not make the schema deeper.
        assert!(message(&file(&[3, 0, 2, 0, 0, 1, 0])).contains("no column holds vectors"));
        // These counts are false: they claim more children than there are elements, on several levels.
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
            assert!(message(&bytes).contains(&format!("it states a length of {length} bytes in a file of {end}")));
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
