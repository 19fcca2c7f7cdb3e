//! Valid inputs, which the fuzz tests mutate.

use std::io::Write;
use std::sync::Arc;

use adjoin::{Element, VectorType};
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions, StreamWriter};
use arrow_schema::{DataType, Field};
use flate2::write::DeflateEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{BrotliLevel, Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use rawzip::CompressionMethod;

const ROWS: usize = 12;

/// Returns a file that starts with the number of rows and the number of dimensions.
pub(crate) fn counted_file(vectors: VectorType) -> Vec<u8> {
    let counts = [ROWS as u32, vectors.dimensions as u32].map(u32::to_le_bytes).concat();
    [counts, elements(vectors)].concat()
}

/// Returns a file in which the number of dimensions precedes each row.
pub(crate) fn counted_rows(vectors: VectorType) -> Vec<u8> {
    let count = (vectors.dimensions as i32).to_le_bytes();
    elements(vectors).chunks(vectors.bytes()).flat_map(|row| [&count[..], row].concat()).collect()
}

pub(crate) fn npy(version: u8, kind: &str, vectors: VectorType) -> Vec<u8> {
    let header =
        format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({ROWS}, {}), }}  \n", vectors.dimensions);
    let length = (header.len() as u32).to_le_bytes();
    let length = if version == 1 { &length[..2] } else { &length[..] };
    [b"\x93NUMPY", &[version, 0][..], length, header.as_bytes(), &elements(vectors)].concat()
}

/// Returns a file with one tensor of vectors with 3 dimensions.
pub(crate) fn safetensors(dtype: &str, element_bytes: usize) -> Vec<u8> {
    let bytes = ROWS * 3 * element_bytes;
    let header = format!(r#"{{"v":{{"dtype":"{dtype}","shape":[{ROWS},3],"data_offsets":[0,{bytes}]}}}}"#);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![1; bytes]].concat()
}

fn elements(vectors: VectorType) -> Vec<u8> {
    let values = 0..ROWS * vectors.dimensions;
    match vectors.element {
        Element::F32 => values.flat_map(|i| (i as f32 * 0.25).to_le_bytes()).collect(),
        Element::F16 => values.flat_map(|i| [i as u8, 0x30]).collect(),
        Element::U8 | Element::I8 => values.map(|i| i as u8).collect(),
    }
}

/// Returns tables. Vectors are fixed-size lists or plain lists, ids are integers or texts, and each table has another
/// column.
fn tables() -> Vec<RecordBatch> {
    let values = Float32Array::from_iter_values((0..ROWS * 3).map(|i| i as f32));
    let item = Arc::new(Field::new("item", DataType::Float32, true));
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(item, 3, Arc::new(values), None));
    let rows = (0..ROWS).map(|row| (row % 5 > 0).then_some([Some(row as f32), Some(1.0)]));
    let plain: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| format!("text {}", row % 4))));
    [[("other", &texts), ("id", &numbers), ("v", &fixed)], [("other", &numbers), ("id", &texts), ("v", &plain)]]
        .map(|columns| {
            let columns = columns.map(|(name, column)| (name, column.clone(), true));
            RecordBatch::try_from_iter_with_nullable(columns).unwrap()
        })
        .into()
}

pub(crate) fn parquet() -> Vec<Vec<u8>> {
    let compressions = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4_RAW,
        Compression::UNCOMPRESSED, // used with version 2 without a dictionary, so deltas can be damaged
    ];
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let mut files = Vec::new();
    for table in tables() {
        // Texts are not delta-encoded. For such a page, the Parquet crate allocates as many lengths as the page
        // claims to have, up to 8 GiB of zeros that are never touched. The claim cannot be checked without
        // decompressing the page.
        let has_text_ids = table.column_by_name("id").is_some_and(|ids| *ids.data_type() == DataType::Utf8);
        let ids_encoding = if has_text_ids { Encoding::PLAIN } else { Encoding::DELTA_BINARY_PACKED };
        for (k, compression) in compressions.into_iter().enumerate() {
            let properties = WriterProperties::builder()
                .set_compression(compression)
                .set_writer_version(versions[k.min(5) % 2])
                .set_dictionary_enabled(k < 4)
                .set_column_encoding("id".into(), ids_encoding)
                .set_max_row_group_row_count(Some(7))
                .build();
            let mut bytes = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties)).unwrap();
            writer.write(&table).unwrap();
            writer.close().unwrap();
            files.push(bytes);
        }
    }
    files
}

pub(crate) fn arrow() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for table in tables() {
        for compression in [None, Some(CompressionType::LZ4_FRAME), Some(CompressionType::ZSTD)] {
            let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
            let schema = table.schema();
            let (mut file, mut stream) = (Vec::new(), Vec::new());
            let mut writer = FileWriter::try_new_with_options(&mut file, &schema, options.clone()).unwrap();
            writer.write(&table).unwrap();
            writer.finish().unwrap();
            let mut writer = StreamWriter::try_new_with_options(&mut stream, &schema, options).unwrap();
            writer.write(&table).unwrap();
            writer.finish().unwrap();
            files.extend([file, stream]);
        }
    }
    files
}

/// Returns files of JSON lines. One has integer ids, the other text ids.
pub(crate) fn json_lines() -> Vec<Vec<u8>> {
    let of_numbers = |row| format!("{{\"id\":{row},\"v\":[{row},0.5,-1e2],\"s\":{{\"t\":\"text {}\"}}}}\n", row % 4);
    let of_texts =
        |row| format!("{{\"v\": [1, {row}.25], \"id\": \"\\u00e4 {row}\", \"tags\": [\"a\", null]}}\r\n\r\n");
    let lines = |line: &dyn Fn(usize) -> String| (0..ROWS).map(line).collect::<String>().into_bytes();
    vec![lines(&of_numbers), lines(&of_texts)]
}

/// Returns zip files of arrays: vectors, text ids and another array. One is as `numpy.savez` writes it, the other as
/// `numpy.savez_compressed` does.
pub(crate) fn npz(vectors: VectorType) -> Vec<Vec<u8>> {
    let texts = (0..ROWS as u32).flat_map(|row| [(b'a' as u32 + row).to_le_bytes(), [0; 4]].concat()).collect();
    let of = |descr: &str, shape: &str, values: Vec<u8>| {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}  \n");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &values].concat()
    };
    let arrays = [
        ("v.npy", of("<f4", &format!("{ROWS}, {}", vectors.dimensions), elements(vectors))),
        ("id.npy", of("<U2", &format!("{ROWS},"), texts)),
        ("about.npy", of("|b1", "3,", vec![0, 1, 1])),
    ];
    let zip = |is_deflated: bool| {
        let mut archive = rawzip::ZipArchiveWriter::new(Vec::new());
        for (name, bytes) in &arrays {
            let method = if is_deflated { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
            let (mut entry, config) = archive.new_file(*name).compression_method(method).start().unwrap();
            let descriptor = if is_deflated {
                let mut writer = config.wrap(DeflateEncoder::new(&mut entry, flate2::Compression::default()));
                writer.write_all(bytes).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(bytes).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap()
    };
    vec![zip(false), zip(true)]
}

/// Returns the source files from which stores are built, with their names.
pub(crate) fn sources() -> [(&'static str, Vec<u8>); 3] {
    [
        ("a.u8bin", counted_file(VectorType { element: Element::U8, dimensions: 5 })),
        ("a.parquet", parquet().swap_remove(0)),
        ("b.parquet", parquet().pop().unwrap()),
    ]
}
