//! Verifies the buckets of a store while its file of buckets is read from front to back.

use adjoin_device::ReadFile;
use xxhash_rust::xxh3::Xxh3;

use super::files::{Role, read_whole};
use super::format::{Extent, HEADER_BYTES, Header, decode_table};
use super::manifest::StoreManifest;
use crate::base::error::{Error, Result};
use crate::base::options::VectorType;

/// Kind of a section of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    /// Zeros before a bucket or after the last bucket.
    Padding,
    Header,
    /// Vectors and row numbers.
    Body,
    Ids,
}

/// State of the check.
pub(crate) struct BucketsCheck {
    extents: Vec<Extent>,
    vectors: VectorType,
    len: u64,
    /// Number of the current bucket. In padding, number of the next bucket.
    bucket: usize,
    section: Section,
    /// End of the current section in the file.
    end: u64,
    /// Number of bytes checked so far.
    at: u64,
    header: [u8; HEADER_BYTES],
    hash: Xxh3,
    body_checksum: u64,
    id_checksum: u64,
}

impl BucketsCheck {
    /// Returns the bytes that a check holds.
    pub(crate) fn memory_bytes(manifest: &StoreManifest) -> u64 {
        // The entries of the table are held twice: as bytes and decoded.
        2 * manifest.files[Role::Table].bytes
    }

    /// Creates a check of the buckets. `table` is the file of the bucket table.
    ///
    /// # Errors
    /// Fails if the table cannot be read or is damaged. The message does not name the store.
    pub(crate) fn new(manifest: &StoreManifest, table: &dyn ReadFile) -> Result<Self> {
        let (facts, len) = (&manifest.files[Role::Table], manifest.files[Role::Vectors].bytes);
        let damaged = |why: &str| Error::corrupt(format!("{}: {why}", facts.name));
        let bytes = read_whole(table)?;
        if !facts.matches(&bytes) {
            return Err(damaged("checksum mismatch"));
        }
        let extents = decode_table(&bytes, &manifest.bucket_facts(), manifest.rows, len);
        let extents = extents.map_err(|error| damaged(&error.to_string()))?;
        let end = extents.first().map_or(len, |first| first.offset);
        let (header, hash) = ([0; HEADER_BYTES], Xxh3::new());
        let (bucket, section, at, body_checksum, id_checksum) = (0, Section::Padding, 0, 0, 0);
        let vectors = manifest.vectors;
        Ok(Self { extents, vectors, len, bucket, section, end, at, header, hash, body_checksum, id_checksum })
    }

    /// Checks the next bytes of the file. If they are damaged, returns a description of the damage.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) -> std::result::Result<(), String> {
        loop {
            // This is also necessary if no bytes are left, because a section may be empty.
            while let (true, Some(&extent)) = (self.at == self.end, self.extents.get(self.bucket)) {
                let bucket = self.bucket;
                self.next_section(extent).map_err(|fault| format!("bucket {bucket}: {fault}"))?;
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let (some, rest) = bytes.split_at(bytes.len().min((self.end - self.at) as usize));
            if some.is_empty() {
                return Err("it is longer than the manifest states".to_owned());
            }
            match self.section {
                Section::Padding if some.iter().any(|&byte| byte != 0) => {
                    return Err(format!("bucket {}: the padding before it is not all zeros", self.bucket));
                }
                Section::Padding => {}
                Section::Header => {
                    let filled = HEADER_BYTES - (self.end - self.at) as usize;
                    self.header[filled..filled + some.len()].copy_from_slice(some);
                }
                Section::Body | Section::Ids => self.hash.update(some),
            }
            self.at += some.len() as u64;
            bytes = rest;
        }
    }

    /// Verifies the current section, which is complete, and moves to the next one.
    fn next_section(&mut self, extent: Extent) -> std::result::Result<(), &'static str> {
        match self.section {
            Section::Padding => (self.section, self.end) = (Section::Header, extent.offset + HEADER_BYTES as u64),
            Section::Header => {
                let header = Header::decode(&self.header).ok_or("checksum mismatch in its header")?;
                let listed = Extent { radius: 0.0, ..extent };
                if header.number as usize != self.bucket || header.extent(extent.offset, self.vectors) != listed {
                    return Err("its header and the bucket table disagree");
                }
                (self.body_checksum, self.id_checksum) = (header.body_checksum, header.id_checksum);
                (self.section, self.end) = (Section::Body, extent.offset + extent.body_bytes);
                self.hash = Xxh3::new();
            }
            Section::Body => {
                if self.hash.digest() != self.body_checksum {
                    return Err("vectors or row numbers: checksum mismatch");
                }
                (self.section, self.end) = (Section::Ids, extent.offset + extent.bytes(true));
                self.hash = Xxh3::new();
            }
            Section::Ids => {
                if self.hash.digest() != self.id_checksum {
                    return Err("ids: checksum mismatch");
                }
                self.bucket += 1;
                let next = self.extents.get(self.bucket).map_or(self.len, |next| next.offset);
                (self.section, self.end) = (Section::Padding, next);
            }
        }
        Ok(())
    }
}
