//! Headers of Arrow messages: schemas, and the locations of the buffers to read.

use std::sync::Arc;

use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::{Block, Endianness, MetadataVersion, RecordBatch as BatchHeader};
use arrow_schema::{DataType, Field, SchemaRef, UnionMode};

use super::nested::Expanded;

/// Marker at the start of a message, before the length of its header. Messages before Arrow 0.15 lack it.
pub(super) const MARKER: [u8; 4] = [0xFF; 4];
/// Minimum size of the header of a message, including its marker and its length.
pub(super) const MESSAGE_BYTES_MIN: u64 = 8;

/// Maximum compression ratio of a buffer: a zstd block can grow from 4 bytes to 128 KiB, an LZ4 block much less.
pub(super) const GROWTH_MAX: u64 = 40_000;

/// Size from which the C library requests zeroed memory from the system, in bytes. Only the written pages of such
/// memory become resident. Smaller zeroed memory may be reused memory that is filled with zeros, and is fully
/// resident.
const MAPPED_BYTES_MAX: u64 = 32 << 20;
const SYSTEM_PAGE_BYTES: u64 = 4 << 10;

/// Ids of the dictionaries of all columns and nested fields, each with the path to its field.
pub(super) type Dictionaries = Vec<(Vec<usize>, i64)>;

/// The buffers to read in the body of a message.
pub(super) struct ColumnBuffers {
    pub(super) buffers: Vec<BodyRange>,
    pub(super) compressed: bool,
}

pub(super) struct BodyRange {
    /// Index of the buffer's column; `None` in a dictionary.
    pub(super) column: Option<usize>,
    /// Whether the buffer may contain views. Any buffer of a dictionary may.
    pub(super) may_be_view: bool,
    pub(super) start: usize,
    pub(super) bytes: usize,
}

/// Returns the buffers of the chosen columns. A message lists the buffers of all columns in depth-first order.
pub(super) fn wanted_buffers(
    place: &Block,
    head: &[u8],
    chosen: &Expanded,
) -> std::result::Result<ColumnBuffers, String> {
    let message = arrow_ipc::root_as_message(message_of(head)).map_err(|error| error.to_string())?;
    let batch: BatchHeader = message.header_as_record_batch().ok_or("it is not a record batch")?;
    let mut listed = batch.buffers().into_iter().flatten();
    let mut view_buffers = batch.variadicBufferCounts().into_iter().flatten();
    let mut buffers = Vec::new();
    // Buffers of other columns are counted, too, since only the position in the list shows to which column a buffer
    // belongs.
    for (column, field) in chosen.schema.fields().iter().enumerate() {
        let count = buffer_count(field, message.version(), &mut view_buffers);
        for _ in 0..count {
            let buffer = listed.next().ok_or("a buffer is missing")?;
            let mut range = body_range(place, Some(column), buffer)?;
            if chosen.read.contains(&column) {
                range.may_be_view = is_view(field);
                buffers.push(range);
            }
        }
    }
    Ok(ColumnBuffers { buffers, compressed: batch.compression().is_some() })
}

/// Returns the memory for decoding a message: its body, its decompressed buffers, and copies of unaligned buffers.
pub(super) fn taken(place: &Block, head_bytes: usize, columns: &ColumnBuffers, grown: &[u64]) -> u64 {
    // Only the buffers of chosen columns are read. Other bytes of the body take memory only if the body is too small
    // to be requested from the system.
    let whole = head_bytes as u64 + place.bodyLength().unsigned_abs();
    let read = columns.buffers.iter().map(|range| range.bytes as u64 + 2 * SYSTEM_PAGE_BYTES).sum::<u64>();
    let body = if whole < MAPPED_BYTES_MAX { whole } else { read.min(whole) };
    let copied = columns.buffers.iter().filter(|range| {
        // Views are 128-bit values. The decoder copies a buffer if it is not aligned for its type.
        let alignment = if range.may_be_view { 16 } else { 8 };
        !(head_bytes + range.start).is_multiple_of(alignment)
    });
    let copied = copied.map(|range| range.bytes as u64).sum::<u64>();
    grown.iter().fold(body + copied, |sum, grown| sum.saturating_add(*grown))
}

/// Returns the range of a buffer in the body of its message.
pub(super) fn body_range(
    place: &Block,
    column: Option<usize>,
    buffer: &arrow_ipc::Buffer,
) -> std::result::Result<BodyRange, String> {
    let (start, bytes) = (u64::try_from(buffer.offset()), u64::try_from(buffer.length()));
    let (Ok(start), Ok(bytes)) = (start, bytes) else { return Err("a buffer has a negative offset or length".into()) };
    if start.checked_add(bytes).is_none_or(|end| end > place.bodyLength() as u64) {
        return Err("a buffer extends beyond its end".into());
    }
    Ok(BodyRange { column, may_be_view: column.is_none(), start: start as usize, bytes: bytes as usize })
}

pub(super) fn at(place: &Block) -> String {
    format!("the message at byte {}", place.offset())
}

/// Returns the end of a message, which must be within the file.
pub(super) fn end_of(place: &Block) -> u64 {
    place.offset() as u64 + place.metaDataLength() as u64 + place.bodyLength() as u64
}

/// Returns the header of a message without the length that precedes it. `head` has at least [`MESSAGE_BYTES_MIN`]
/// bytes.
pub(super) fn message_of(head: &[u8]) -> &[u8] {
    if head.starts_with(&MARKER) { &head[8..] } else { &head[4..] }
}

/// Converts a schema. Returns it with the ids of its dictionaries.
pub(super) fn native_schema(schema: arrow_ipc::Schema) -> std::result::Result<(SchemaRef, Dictionaries), String> {
    if schema.endianness() != Endianness::Little {
        return Err("its values are big-endian".into());
    }
    let mut dictionaries = Vec::new();
    for (index, field) in schema.fields().into_iter().flatten().enumerate() {
        list_dictionaries(field, &mut vec![index], &mut dictionaries);
    }
    Ok((Arc::new(fb_to_schema(schema)), dictionaries))
}

fn list_dictionaries(field: arrow_ipc::Field, path: &mut Vec<usize>, dictionaries: &mut Dictionaries) {
    dictionaries.extend(field.dictionary().map(|dictionary| (path.clone(), dictionary.id())));
    for (index, child) in field.children().into_iter().flatten().enumerate() {
        path.push(index);
        list_dictionaries(child, path, dictionaries);
        path.pop();
    }
}

fn is_view(field: &Field) -> bool {
    matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView)
}

/// Returns the number of buffers of a column in a message.
fn buffer_count(field: &Field, version: MetadataVersion, view_buffers: &mut impl Iterator<Item = i64>) -> usize {
    let mut inner = |field: &Field| buffer_count(field, version, view_buffers);
    match field.data_type() {
        DataType::Null => 0,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 3,
        // The number of data buffers of a view column is read from the message.
        DataType::Utf8View | DataType::BinaryView => {
            2 + view_buffers.next().and_then(|count| u32::try_from(count).ok()).unwrap_or(0) as usize
        }
        DataType::FixedSizeList(values, _) => 1 + inner(values),
        DataType::List(values) | DataType::LargeList(values) | DataType::Map(values, _) => 2 + inner(values),
        DataType::ListView(values) | DataType::LargeListView(values) => 3 + inner(values),
        DataType::Struct(fields) => 1 + fields.iter().map(|field| inner(field)).sum::<usize>(),
        DataType::RunEndEncoded(ends, values) => inner(ends) + inner(values),
        DataType::Union(fields, mode) => {
            // Before version 5 of the format, unions had a validity buffer.
            let validity = usize::from(version < MetadataVersion::V5);
            let offsets = usize::from(*mode == UnionMode::Dense);
            validity + 1 + offsets + fields.iter().map(|(_, field)| inner(field)).sum::<usize>()
        }
        _ => 2,
    }
}
