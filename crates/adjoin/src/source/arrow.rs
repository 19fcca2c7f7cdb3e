//! Reads Arrow IPC files and streams, one record batch at a time. Reads only the chosen columns of a batch.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use adjoin_device::{ReadFile, Reservation};
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::{Block, CompressionType, MetadataVersion};
use arrow_schema::SchemaRef;

use super::arrow_message::{
    BodyRange, ColumnBuffers, Dictionaries, GROWTH_MAX, MARKER, MESSAGE_BYTES_MIN, at, body_range, end_of, message_of,
    native_schema, taken, wanted_buffers,
};
use super::columns::{ColumnScan, Holding, TableColumns, Tables};
use super::facts::{Facts, ScanMemory};
use super::foreign::{damaged, guarded};
use super::nested::{ColumnPlace, Expanded};
use super::options::{ScanOptions, SourceOptions};
use super::vectors::VectorScan;
use crate::base::context::Context;
use crate::base::error::{Error, Result};

const FILE_MAGIC: &[u8; 6] = b"ARROW1";
const FEATHER_1_MAGIC: &[u8; 4] = b"FEA1";
/// Size of the end of the file, in bytes: the length of the footer and the magic bytes.
const TRAILER_BYTES: u64 = 10;
/// Reads the headers of a file and returns facts about its contents.
pub(super) fn inspect(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
) -> Result<Facts> {
    let ipc = IpcFile::read(path, file, Some(context))?;
    let columns = TableColumns::choose(path, &ipc.schema, options)?;
    let rows = ipc.all_rows()?;
    let chosen = ipc.choose(&columns.places());
    let (place, element_bytes) = columns.vector();
    let vector = chosen.column(place).map(|column| VectorColumn { column, element_bytes });
    let (memory, elements) = ipc.scan_memory(&chosen, vector)?;
    columns.facts(context, rows, elements, memory, || Ok(ipc.tables(chosen, memory.piece)))
}

/// Starts a scan of a file.
pub(super) fn scan(
    path: &Path,
    file: Arc<dyn ReadFile>,
    options: &SourceOptions,
    scan: ScanOptions,
) -> Result<Box<dyn VectorScan>> {
    let ipc = IpcFile::read(path, file, None)?;
    let columns = TableColumns::choose(path, &ipc.schema, options)?;
    let chosen = ipc.choose(&columns.places());
    let tables = ipc.tables(chosen, scan.piece_bytes_max);
    Ok(Box::new(ColumnScan::new(columns, scan.vectors, scan.batch_bytes, tables)))
}

/// Returns the number of rows of a file.
pub(super) fn rows(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<u64> {
    IpcFile::read(path, file, Some(context))?.all_rows()
}

/// Returns the schema of a file.
pub(super) fn schema(path: &Path, file: Arc<dyn ReadFile>) -> Result<SchemaRef> {
    Ok(IpcFile::read(path, file, None)?.schema)
}

/// Reads the columns at `places` of all rows of a file, one record batch at a time.
pub(super) fn tables(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
) -> Result<Tables> {
    let ipc = IpcFile::read(path, file, Some(context))?;
    let chosen = ipc.choose(places);
    let memory = ipc.scan_memory(&chosen, None)?.0;
    let held = context.reserve(memory.held, &format!("{}: some columns", path.display()))?;
    Ok(Box::new(Holding::new(ipc.tables(chosen, memory.piece), held)))
}

/// Returns the bytes that [`tables`] reserves.
pub(super) fn tables_bytes(
    context: &Context,
    path: &Path,
    file: Arc<dyn ReadFile>,
    places: &[ColumnPlace],
) -> Result<u64> {
    let ipc = IpcFile::read(path, file, Some(context))?;
    Ok(ipc.scan_memory(&ipc.choose(places), None)?.0.held)
}

/// Layout of a file, with which a copy of the file is written.
pub(super) struct Layout {
    /// Whether it is a file with a footer, not a stream.
    pub(super) is_file: bool,
    /// Compression of the buffers of the first record batch.
    pub(super) compression: Option<CompressionType>,
    /// Memory for the largest record batch and all dictionaries, in bytes.
    pub(super) batch_bytes: u64,
}

impl Layout {
    /// Reads the headers of a file and returns its layout.
    pub(super) fn of(context: &Context, path: &Path, file: Arc<dyn ReadFile>) -> Result<Self> {
        let mut magic = [0; 6];
        let present = file.len().min(6) as usize;
        file.read_at(0, &mut magic[..present])?;
        let ipc = IpcFile::read(path, file, Some(context))?;
        // All columns are copied together, so all of them are in memory.
        let all: Vec<ColumnPlace> = (0..ipc.schema.fields().len()).map(ColumnPlace::top).collect();
        let batch_bytes = ipc.scan_memory(&ipc.choose(&all), None)?.0.held;
        let compression = ipc.blocks.first().map(|block| ipc.compression(&block.place)).transpose()?.flatten();
        Ok(Self { is_file: magic == *FILE_MAGIC, compression, batch_bytes })
    }
}

/// A file or stream with its schema and the locations of its record batches.
struct IpcFile {
    path: PathBuf,
    file: Arc<dyn ReadFile>,
    schema: SchemaRef,
    dictionary_of: Dictionaries,
    version: MetadataVersion,
    blocks: Vec<BatchBlock>,
    dictionaries: Vec<DictionaryBlock>,
    /// Budget for headers while the file is inspected. A scan has already reserved them.
    context: Option<Context>,
}

/// Location of a record batch, and its number of rows.
struct BatchBlock {
    place: Block,
    rows: u64,
}

/// Location of values of a dictionary.
struct DictionaryBlock {
    place: Block,
    number: i64,
    /// Whether the values are appended to the previous values. Otherwise they replace them.
    is_delta: bool,
    /// Number of record batches before these values. They use the previous values.
    batches_before: usize,
}

/// The column of the vectors.
struct VectorColumn {
    column: usize,
    element_bytes: usize,
}

impl IpcFile {
    fn read(path: &Path, file: Arc<dyn ReadFile>, context: Option<&Context>) -> Result<Self> {
        let mut magic = [0; 6];
        let present = file.len().min(6) as usize;
        file.read_at(0, &mut magic[..present])?;
        let mut ipc = Self {
            path: path.to_owned(),
            file,
            schema: SchemaRef::new(arrow_schema::Schema::empty()),
            dictionary_of: Vec::new(),
            version: MetadataVersion::V5,
            blocks: Vec::new(),
            dictionaries: Vec::new(),
            context: context.cloned(),
        };
        if magic == *FILE_MAGIC {
            ipc.read_footer()?;
        } else if magic.starts_with(FEATHER_1_MAGIC) {
            return Err(Error::input(format!(
                "{}: is a Feather file of version 1, which is not supported; write it again with \
                 pyarrow.feather.write_feather",
                path.display()
            )));
        } else {
            // A stream has no magic bytes. If the file does not start with a message, reading the first message fails.
            ipc.read_messages()?;
        }
        Ok(ipc)
    }

    /// Returns the number of rows.
    fn all_rows(&self) -> Result<u64> {
        let rows = self.blocks.iter().try_fold(0u64, |rows, block| rows.checked_add(block.rows));
        rows.ok_or_else(|| self.damaged("its record batches", "their rows add up to more than 2^64"))
    }

    /// Returns the parts of the schema to read for the columns at `places`.
    fn choose(&self, places: &[ColumnPlace]) -> Expanded {
        Expanded::new(&self.schema, places)
    }

    /// Returns the ids of the dictionaries that the chosen columns need.
    fn dictionaries_of(&self, chosen: &Expanded) -> Vec<i64> {
        let needed = self.dictionary_of.iter().filter(|(way, _)| chosen.is_read(way));
        needed.map(|(_, number)| *number).collect()
    }

    /// Returns the memory of a scan and the total number of elements of all vectors. Both are computed from the
    /// headers of the record batches and from the sizes at the start of compressed buffers.
    fn scan_memory(&self, chosen: &Expanded, vector: Option<VectorColumn>) -> Result<(ScanMemory, u64)> {
        let (vector, element_bytes) = vector.map_or((None, 1), |vector| (Some(vector.column), vector.element_bytes));
        let (mut batch, mut bytes_of_vectors, mut head_bytes) = (0, 0u64, 0);
        for block in &self.blocks {
            let head = self.read_head(&block.place)?;
            let wanted = self.wanted(&block.place, &head, chosen)?;
            let grown = self.stated_growth(&block.place, head.len(), &wanted)?;
            batch = batch.max(taken(&block.place, head.len(), &wanted, &grown));
            head_bytes = head_bytes.max(head.len() as u64);
            // The elements are in the last buffer of their column.
            let elements =
                wanted.buffers.iter().zip(&grown).rfind(|(range, _)| vector.is_some() && range.column == vector);
            let bytes =
                elements.map_or(0, |(range, grown)| if wanted.compressed { *grown } else { range.bytes as u64 });
            bytes_of_vectors = bytes_of_vectors.saturating_add(bytes);
        }
        let dictionaries = self.dictionary_memory(chosen)?;
        let blocks = self.blocks.len() * size_of::<BatchBlock>();
        let blocks = (blocks + self.dictionaries.len() * size_of::<DictionaryBlock>()) as u64;
        // These sizes are claims of the file, so the sums saturate. `ScanMemory::claimed` limits them.
        let held = batch.saturating_add(dictionaries.held).saturating_add(blocks + head_bytes);
        let memory = ScanMemory::claimed(held, batch.max(dictionaries.piece));
        Ok((memory, bytes_of_vectors / element_bytes as u64))
    }

    /// Returns the memory for the dictionaries of some columns, and the size of the largest message with dictionary
    /// values.
    fn dictionary_memory(&self, chosen: &Expanded) -> Result<ScanMemory> {
        let mut memory = ScanMemory::default();
        for number in self.dictionaries_of(chosen) {
            let (mut kept, mut held) = (0u64, 0u64);
            for block in self.dictionaries.iter().filter(|block| block.number == number) {
                let head = self.read_head(&block.place)?;
                let values = self.dictionary_values(&block.place, &head)?;
                let grown = self.stated_growth(&block.place, head.len(), &values)?;
                let taken = taken(&block.place, head.len(), &values, &grown).saturating_add(head.len() as u64);
                memory.piece = memory.piece.max(taken);
                // A delta is copied together with the previous values. Values that are replaced are held until the new
                // ones are decoded.
                let both = kept.saturating_add(taken);
                held = held.max(if block.is_delta { both.saturating_mul(2) } else { both });
                kept = if block.is_delta { both } else { taken };
            }
            memory.held = memory.held.saturating_add(held);
        }
        Ok(memory)
    }

    /// Reads the decompressed sizes of the buffers to read from the file.
    fn stated_growth(&self, place: &Block, head_bytes: usize, columns: &ColumnBuffers) -> Result<Vec<u64>> {
        let start = place.offset() as u64 + head_bytes as u64;
        self.grown_bytes(place, columns, |range| {
            let mut claim = [0; 8];
            self.file.read_at(start + range.start as u64, &mut claim)?;
            Ok(claim)
        })
    }

    /// Reserves memory for a header, if the file is being inspected.
    fn reserve(&self, bytes: u64) -> Result<Option<Reservation>> {
        let purpose = || format!("{}: an Arrow header", self.path.display());
        self.context.as_ref().map(|context| context.reserve_between_runs(bytes, &purpose())).transpose()
    }

    fn damaged(&self, place: impl std::fmt::Display, fault: &str) -> Error {
        damaged(&self.path, place, fault)
    }

    /// Reads the schema and the locations of all blocks from the footer of a file.
    fn read_footer(&mut self) -> Result<()> {
        let place = "its Arrow footer";
        let lacking = || self.damaged(place, "it is missing, so the file is truncated");
        // The length of the footer is at the end of the file, before the magic bytes.
        let trailer_start = self.file.len().checked_sub(TRAILER_BYTES).ok_or_else(lacking)?;
        let mut trailer = [0; TRAILER_BYTES as usize];
        self.file.read_at(trailer_start, &mut trailer)?;
        let (length, magic) = trailer.split_at(4);
        let length = length.try_into().map_or(-1, i32::from_le_bytes);
        let start = u64::try_from(length).ok().and_then(|length| trailer_start.checked_sub(length));
        let start = start.filter(|_| magic == FILE_MAGIC).ok_or_else(lacking)?;
        let _room = self.reserve(2 * (trailer_start - start))?; // its bytes, and their decoded form
        let mut bytes = vec![0; (trailer_start - start) as usize];
        self.file.read_at(start, &mut bytes)?;

        let path = &self.path;
        let ((schema, dictionary_of), version, dictionaries, places) = guarded(path, place, || {
            let footer = arrow_ipc::root_as_footer(&bytes).map_err(|error| error.to_string())?;
            let schema = footer.schema().ok_or("it holds no schema")?;
            let dictionaries: Vec<Block> = footer.dictionaries().into_iter().flatten().copied().collect();
            let places: Vec<Block> = footer.recordBatches().into_iter().flatten().copied().collect();
            Ok::<_, String>((native_schema(schema)?, footer.version(), dictionaries, places))
        })?;
        (self.schema, self.dictionary_of, self.version) = (schema, dictionary_of, version);
        // A footer lists dictionaries separately from record batches. So all dictionaries are read before the first
        // batch.
        for place in dictionaries {
            let head = self.read_head(&place)?;
            let block = self.dictionary(place, &head)?;
            self.dictionaries.push(block.ok_or_else(|| self.damaged(at(&place), "it is not a dictionary"))?);
        }
        for place in places {
            let head = self.read_head(&place)?;
            let rows = self.rows(&place, &head)?;
            let rows = rows.ok_or_else(|| self.damaged(at(&place), "it is not a record batch"))?;
            self.blocks.push(BatchBlock { place, rows });
        }
        Ok(())
    }

    /// Reads the schema and the locations of all blocks from the message headers of a stream.
    fn read_messages(&mut self) -> Result<()> {
        let mut offset = 0;
        // A stream has no footer, so each message is found from the length of the previous one.
        while let Some((place, head)) = self.read_stream_head(offset)? {
            if offset == 0 {
                ((self.schema, self.dictionary_of), self.version) = guarded(&self.path, at(&place), || {
                    let message = arrow_ipc::root_as_message(message_of(&head)).map_err(|error| error.to_string())?;
                    let schema = message.header_as_schema().ok_or("it is not the schema of an Arrow stream")?;
                    Ok::<_, String>((native_schema(schema)?, message.version()))
                })?;
            } else if let Some(rows) = self.rows(&place, &head)? {
                self.blocks.push(BatchBlock { place, rows });
            } else if let Some(block) = self.dictionary(place, &head)? {
                self.dictionaries.push(block);
            }
            offset = end_of(&place);
        }
        if offset == 0 {
            return Err(self.damaged("its first message", "the file is empty, without even a schema"));
        }
        Ok(())
    }

    /// Returns the location and the header of the message at `offset`. Returns `None` at the end of the stream.
    fn read_stream_head(&self, offset: u64) -> Result<Option<(Block, Vec<u8>)>> {
        if offset == self.file.len() {
            return Ok(None);
        }
        let place = format!("the message at byte {offset}");
        // These bytes are too few for a length, so they are neither a message nor the end mark of the stream.
        if offset + 4 > self.file.len() {
            return Err(self.damaged(place, "it is truncated"));
        }
        let mut start = [0; 8];
        let present = (self.file.len() - offset).min(8) as usize;
        self.file.read_at(offset, &mut start[..present])?;
        let [m0, m1, m2, m3, l0, l1, l2, l3] = start;
        let (prefix, length) = match [m0, m1, m2, m3] {
            MARKER => (8, i32::from_le_bytes([l0, l1, l2, l3])),
            length => (4, i32::from_le_bytes(length)),
        };
        // A length of 0 marks the end of a stream. Bytes after it do not belong to the stream.
        if length == 0 {
            return Ok(None);
        }
        let (Ok(from), Some(head_bytes)) = (i64::try_from(offset), length.checked_add(prefix)) else {
            return Err(self.damaged(place, "its length is too large"));
        };
        let head = self.read_head(&Block::new(from, head_bytes, 0))?;
        // Only the header states the length of the body, so the header is read as a message with an empty body first.
        let body = guarded(&self.path, &place, || {
            arrow_ipc::root_as_message(message_of(&head)).map(|message| message.bodyLength())
        })?;
        let place = Block::new(from, head_bytes, body);
        self.check_place(&place)?;
        Ok(Some((place, head)))
    }

    /// Checks that a message is within the file.
    fn check_place(&self, place: &Block) -> Result<()> {
        // The numbers in the file are signed. Negative numbers and sums that overflow are refused, too.
        let lies_within = || {
            let offset = u64::try_from(place.offset()).ok()?;
            let head = u64::try_from(place.metaDataLength()).ok().filter(|head| *head >= MESSAGE_BYTES_MIN)?;
            let body = u64::try_from(place.bodyLength()).ok()?;
            offset.checked_add(head)?.checked_add(body).filter(|end| *end <= self.file.len())
        };
        match lies_within() {
            Some(_) => Ok(()),
            None => Err(self.damaged(
                at(place),
                &format!(
                    "its {} and {} bytes exceed the file's {}, so the file is truncated",
                    place.metaDataLength(),
                    place.bodyLength(),
                    self.file.len()
                ),
            )),
        }
    }

    /// Reads the header of a message, including the length that precedes it.
    fn read_head(&self, place: &Block) -> Result<Vec<u8>> {
        self.check_place(place)?;
        // The header was checked to be within the file, so a damaged length cannot reserve more than the size of the
        // file.
        let _room = self.reserve(place.metaDataLength() as u64)?;
        let mut head = vec![0; place.metaDataLength() as usize];
        self.file.read_at(place.offset() as u64, &mut head)?;
        Ok(head)
    }

    /// Returns the number of rows of a record batch. Returns `None` for other messages, e.g. a dictionary.
    fn rows(&self, place: &Block, head: &[u8]) -> Result<Option<u64>> {
        guarded(&self.path, at(place), || {
            let message = arrow_ipc::root_as_message(message_of(head)).map_err(|error| error.to_string())?;
            let rows = message.header_as_record_batch().map(|batch| u64::try_from(batch.length()));
            rows.transpose().map_err(|_| "its number of rows is negative".to_owned())
        })
    }

    fn compression(&self, place: &Block) -> Result<Option<CompressionType>> {
        let head = self.read_head(place)?;
        guarded(&self.path, at(place), || {
            let message = arrow_ipc::root_as_message(message_of(&head)).map_err(|error| error.to_string())?;
            let batch = message.header_as_record_batch().and_then(|batch| batch.compression());
            Ok::<_, String>(batch.map(|compression| compression.codec()))
        })
    }

    /// Returns the block of a dictionary message. Returns `None` for other messages.
    fn dictionary(&self, place: Block, head: &[u8]) -> Result<Option<DictionaryBlock>> {
        guarded(&self.path, at(&place), || {
            let message = arrow_ipc::root_as_message(message_of(head)).map_err(|error| error.to_string())?;
            let values = message.header_as_dictionary_batch();
            Ok::<_, String>(values.map(|values| DictionaryBlock {
                place,
                number: values.id(),
                is_delta: values.isDelta(),
                batches_before: self.blocks.len(),
            }))
        })
    }

    /// Reads the chosen columns, one record batch at a time. Refuses a message that takes more than `piece_bytes_max`
    /// bytes.
    fn tables(self, chosen: Expanded, piece_bytes_max: u64) -> Tables {
        let mut decoder = FileDecoder::new(chosen.schema.clone(), self.version).with_projection(chosen.read.clone());
        let wanted = self.dictionaries_of(&chosen);
        let mut dictionaries = 0;
        Box::new((0..self.blocks.len()).map(move |k| {
            // In a stream, a dictionary may change between batches. Each batch is decoded with the values that precede
            // it.
            while let Some(block) = self.dictionaries.get(dictionaries).filter(|block| block.batches_before <= k) {
                dictionaries += 1;
                if wanted.contains(&block.number) {
                    self.read_dictionary(&block.place, &mut decoder, piece_bytes_max)?;
                }
            }
            self.read_batch(&self.blocks[k].place, &decoder, &chosen, piece_bytes_max)
        }))
    }

    fn read_dictionary(&self, place: &Block, decoder: &mut FileDecoder, piece_bytes_max: u64) -> Result<()> {
        let head = self.read_head(place)?;
        let values = self.dictionary_values(place, &head)?;
        let bytes = self.read_body(place, &head, &values, piece_bytes_max)?;
        guarded(&self.path, at(place), || decoder.read_dictionary(place, &bytes))
    }

    /// Returns the buffers of a dictionary message.
    fn dictionary_values(&self, place: &Block, head: &[u8]) -> Result<ColumnBuffers> {
        guarded(&self.path, at(place), || {
            let message = arrow_ipc::root_as_message(message_of(head)).map_err(|error| error.to_string())?;
            let batch = message.header_as_dictionary_batch().and_then(|values| values.data());
            let batch = batch.ok_or("it is not a dictionary")?;
            let buffers = batch.buffers().into_iter().flatten().map(|buffer| body_range(place, None, buffer));
            Ok::<_, String>(ColumnBuffers {
                buffers: buffers.collect::<std::result::Result<_, _>>()?,
                compressed: batch.compression().is_some(),
            })
        })
    }

    fn read_batch(
        &self,
        place: &Block,
        decoder: &FileDecoder,
        chosen: &Expanded,
        piece_bytes_max: u64,
    ) -> Result<RecordBatch> {
        let head = self.read_head(place)?;
        let wanted = self.wanted(place, &head, chosen)?;
        let bytes = self.read_body(place, &head, &wanted, piece_bytes_max)?;
        let decoded = || decoder.read_record_batch(place, &bytes)?.map(|table| chosen.flatten(table)).transpose();
        let table = guarded(&self.path, at(place), decoded)?;
        table.ok_or_else(|| self.damaged(at(place), "it holds no record batch"))
    }

    /// Reads a message, but only the buffers in `columns`. Fails if they take more than `piece_bytes_max` bytes.
    fn read_body(&self, place: &Block, head: &[u8], columns: &ColumnBuffers, piece_bytes_max: u64) -> Result<Buffer> {
        let total = head.len() + place.bodyLength() as usize;
        // Bytes that are not read stay zero and take no memory.
        let mut bytes = self.room(place, total as u64).map(|()| vec![0; total])?;
        bytes[..head.len()].copy_from_slice(head);
        for buffer in &columns.buffers {
            let start = head.len() + buffer.start;
            self.file.read_at(place.offset() as u64 + start as u64, &mut bytes[start..start + buffer.bytes])?;
        }
        let body = &bytes[head.len()..];
        let grown = self.grown_bytes(place, columns, |range| {
            Ok(body[range.start..range.start + range.bytes].first_chunk().copied().unwrap_or_default())
        })?;
        // The decoder allocates buffers of these sizes. If an allocation failed, it would abort the process.
        self.room(place, grown.iter().fold(0, |sum, grown| sum.saturating_add(*grown)))?;
        let taken = taken(place, head.len(), columns, &grown);
        // Memory was planned when the file was opened. So a larger message means that the file has changed.
        if taken > piece_bytes_max {
            let fault =
                format!("it takes {taken} bytes, but when the file was opened, none took more than {piece_bytes_max}");
            return Err(self.damaged(at(place), &fault));
        }
        Ok(Buffer::from_vec(bytes))
    }

    fn wanted(&self, place: &Block, head: &[u8], chosen: &Expanded) -> Result<ColumnBuffers> {
        guarded(&self.path, at(place), || wanted_buffers(place, head, chosen))
    }

    /// Returns the decompressed size of each buffer, which its first eight bytes state. The size is 0 if the buffer is
    /// not compressed.
    fn grown_bytes(
        &self,
        place: &Block,
        columns: &ColumnBuffers,
        mut first_bytes: impl FnMut(&BodyRange) -> Result<[u8; 8]>,
    ) -> Result<Vec<u64>> {
        let grown = |buffer: &BodyRange| {
            if !columns.compressed || buffer.bytes < 8 {
                return Ok(0);
            }
            let claim = u64::try_from(i64::from_le_bytes(first_bytes(buffer)?)).unwrap_or(0); // -1 means not compressed
            // Uses a division, since the product of the bytes and the ratio could overflow.
            if claim / GROWTH_MAX > buffer.bytes as u64 {
                let fault = format!("a buffer of {} bytes claims to grow to {claim}", buffer.bytes);
                return Err(self.damaged(at(place), &fault));
            }
            Ok(claim)
        };
        columns.buffers.iter().map(grown).collect()
    }

    /// Checks that the system would provide `bytes` bytes of memory. Called before an allocation with a size that the
    /// file states, since a failed allocation would abort the process.
    fn room(&self, place: &Block, bytes: u64) -> Result<()> {
        let granted = usize::try_from(bytes).is_ok_and(|bytes| Vec::<u8>::new().try_reserve_exact(bytes).is_ok());
        if granted {
            return Ok(());
        }
        Err(Error::input(format!(
            "{}: the record batch at byte {} asks for {bytes} bytes of memory, which the system refuses; write smaller \
             record batches, or write the file again if it is damaged",
            self.path.display(),
            place.offset()
        )))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::{Float32Type, Int32Type};
    use arrow_array::{
        ArrayRef, DictionaryArray, FixedSizeListArray, Int64Array, ListArray, StringArray, StringViewArray, StructArray,
    };
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
    use proptest::prelude::*;

    use super::*;
    use crate::source::fixtures::{Folder, error_of, read_all, table};
    use crate::source::{Ids, SourceOptions};

    /// Creates the columns to read and other columns between them, so that every kind of buffer occurs.
    fn columns(rows: usize) -> RecordBatch {
        let texts = (0..rows).map(|row| format!("a text longer than a view holds, {row}"));
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(texts.clone()));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
        let dictionary: DictionaryArray<Int32Type> =
            (0..rows).map(|row| if row % 2 == 0 { "a" } else { "b" }).collect();
        let integers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        let fields = StructArray::try_from(vec![("x", integers.clone()), ("y", views.clone())]).unwrap();
        let vectors = (0..rows).map(|row| Some([Some(row as f32), Some(0.5)]));
        let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 2);
        table(&[
            ("texts", texts),
            ("views", views),
            ("struct", Arc::new(fields)),
            ("embedding", Arc::new(vectors)),
            ("dictionary", Arc::new(dictionary)),
            ("id", integers),
        ])
    }

    fn write(tables: &[RecordBatch], as_file: bool, options: IpcWriteOptions) -> Vec<u8> {
        let (mut bytes, schema) = (Vec::new(), tables[0].schema());
        if as_file {
            let mut writer = FileWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
            tables.iter().for_each(|table| writer.write(table).unwrap());
            writer.finish().unwrap();
        } else {
            let mut writer = StreamWriter::try_new_with_options(&mut bytes, &schema, options).unwrap();
            tables.iter().for_each(|table| writer.write(table).unwrap());
            writer.finish().unwrap();
        }
        bytes
    }

    fn options(compression: Option<CompressionType>) -> IpcWriteOptions {
        IpcWriteOptions::default().try_with_compression(compression).unwrap()
    }

    #[test]
    fn reads_the_chosen_columns_of_arrow_files_of_any_compression() {
        let folder = Folder::new();
        let whole = columns(50);
        let expected: Vec<u8> = (0..50).flat_map(|row| [row as f32, 0.5].map(f32::to_le_bytes)).flatten().collect();
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            for as_file in [true, false] {
                folder.write(
                    "a.feather",
                    &write(&[whole.slice(0, 20), whole.slice(20, 30)], as_file, options(compression)),
                );
                let source = folder.open(&["a.feather"]).unwrap();
                for batch_bytes in [1, 100, 1 << 20] {
                    let all = read_all(source.as_ref(), batch_bytes);
                    assert_eq!((&all.bytes, &all.ids), (&expected, &Ids::Int64((0..50).collect())));
                }
            }
        }
    }

    #[test]
    fn reads_legacy_framing_and_streams_without_an_end_marker() {
        let folder = Folder::new();
        let legacy = IpcWriteOptions::try_new(8, true, MetadataVersion::V4).unwrap();
        for as_file in [true, false] {
            folder.write("a.arrow", &write(&[columns(5)], as_file, legacy.clone()));
            assert_eq!(read_all(folder.open(&["a.arrow"]).unwrap().as_ref(), 100).rows, 5);
        }
        let stream = write(&[columns(5)], false, options(None));
        folder.write("a.arrow", &stream[..stream.len() - 8]);
        assert_eq!(read_all(folder.open(&["a.arrow"]).unwrap().as_ref(), 100).rows, 5);
    }

    #[test]
    fn damaged_arrow_files_are_reported() {
        let folder = Folder::new();
        let stream = write(&[columns(5)], false, options(None));
        let file = write(&[columns(5)], true, options(None));
        let cases = [
            (stream[..stream.len() - 20].to_vec(), "so the file is truncated"),
            (file[..file.len() - 20].to_vec(), "cannot read its Arrow footer: it is missing"),
            (b"ARROW1".to_vec(), "cannot read its Arrow footer"),
            (b"FEA1 and so on".to_vec(), "a Feather file of version 1, which is not supported; write it again"),
            (Vec::new(), "the file is empty, without even a schema"),
            (b"not an Arrow file".to_vec(), "exceed the file"),
            (b"\xFF\xFF\xFF\xFF\x04\0\0\0abcd".to_vec(), "cannot read the message at byte 0"),
        ];
        for (bytes, words) in cases {
            folder.write("a.arrow", &bytes);
            let message = error_of(folder.open(&["a.arrow"]));
            assert!(message.contains("a.arrow: ") && message.contains(words), "{message}");
        }
    }

    #[test]
    fn refuses_implausible_decompressed_sizes() {
        let folder = Folder::new();
        let mut bytes = write(&[columns(500).project(&[3]).unwrap()], true, options(Some(CompressionType::ZSTD)));
        let claim = 500u64 * 2 * 4;
        let places: Vec<usize> =
            (0..bytes.len() - 8).filter(|at| bytes[*at..].starts_with(&claim.to_le_bytes())).collect();
        places.iter().for_each(|at| bytes[*at..*at + 8].copy_from_slice(&(1u64 << 50).to_le_bytes()));
        folder.write("a.arrow", &bytes);
        let message = error_of(folder.open(&["a.arrow"]));
        assert!(message.contains("claims to grow to 1125899906842624"), "{message}");
    }

    #[test]
    fn scan_memory_counts_decompressed_buffers() {
        let folder = Folder::new();
        let rows = 40_000u64;
        let vectors = (0..rows).map(|_| Some([Some(0.0); 200]));
        let vectors = ListArray::from_iter_primitive::<Float32Type, _, _>(vectors);
        let zeros = table(&[("ballast", Arc::new(Int64Array::from(vec![0; rows as usize]))), ("v", Arc::new(vectors))]);
        let grown = rows * 200 * 4;
        for compression in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
            for as_file in [true, false] {
                folder
                    .write("a.arrow", &write(&[zeros.slice(0, 5), zeros.clone()], as_file, options(Some(compression))));
                let source = folder.open(&["a.arrow"]).unwrap();
                let held = source.scan_bytes(0);
                assert!((grown..grown * 5 / 4).contains(&held), "{compression:?}: {held} bytes");
                let small = folder.open_within(&["a.arrow"], &SourceOptions::default(), 21 << 20).unwrap();
                assert_eq!((small.info(), small.scan_bytes(0)), (source.info(), held));
            }
        }
        let plain = write(std::slice::from_ref(&zeros), true, options(None));
        folder.write("a.arrow", &plain);
        let source = folder.open(&["a.arrow"]).unwrap();
        assert!((grown..grown * 5 / 4).contains(&source.scan_bytes(0)), "{}", source.scan_bytes(0));
    }

    #[test]
    fn scan_memory_counts_decompressed_and_earlier_dictionaries() {
        let folder = Folder::new();
        let rows = 20_000;
        let batch = |first: usize| {
            let texts = (first..first + rows).map(|row| format!("{row:0>200}")).collect::<Vec<_>>();
            let ids: DictionaryArray<Int32Type> = texts.iter().map(String::as_str).collect();
            let vectors = (0..rows).map(|row| Some([Some(row as f32)]));
            let vectors = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(vectors, 1);
            (texts, table(&[("id", Arc::new(ids)), ("v", Arc::new(vectors))]))
        };
        let ((texts, one), (more_texts, other)) = (batch(0), batch(rows));
        let grown = rows as u64 * 204;
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            folder.write("a.arrow", &write(std::slice::from_ref(&one), true, options(compression)));
            let held = folder.open(&["a.arrow"]).unwrap().scan_bytes(0);
            assert!((grown..grown * 5 / 4).contains(&held), "{compression:?}: {held} bytes");

            folder.write("a.arrow", &write(&[one.clone(), other.clone()], false, options(compression)));
            let source = folder.open(&["a.arrow"]).unwrap();
            let held = source.scan_bytes(0);
            assert!((2 * grown..grown * 5 / 2).contains(&held), "{compression:?}: {held} bytes");
            let Ids::Utf8(ids) = read_all(source.as_ref(), 1 << 20).ids else { panic!("ids are texts") };
            let expected = texts.iter().chain(&more_texts);
            assert!(expected.enumerate().all(|(row, text)| ids.get(row) == text.as_bytes()));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn no_bytes_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
                          compressed in any::<bool>(), as_file in any::<bool>(), cut in any::<bool>()) {
            let compression = compressed.then_some(CompressionType::LZ4_FRAME);
            let mut bytes = write(&[columns(9)], as_file, options(compression));
            changes.iter().for_each(|(place, byte)| *place.get_mut(&mut bytes) = *byte);
            if cut {
                bytes.truncate(changes[0].0.index(bytes.len()));
            }
            Folder::new().survive("a.arrow", &bytes);
        }
    }
}
