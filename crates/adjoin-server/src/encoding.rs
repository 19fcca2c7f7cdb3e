//! Decodes compressed bodies piece by piece. Memory for a piece is reserved before the piece is decoded.

use std::io::{self, Read};

use adjoin::device::Reservation;
use axum::http::{HeaderMap, StatusCode, header};
use flate2::bufread::GzDecoder;

use crate::body_limits::{BodyBytes, Limits, crowded, too_large};
use crate::problem::{ENCODINGS, Problem};

/// Bytes to decode at once.
const STEP_BYTES: usize = 64 << 10;
/// Memory of a decoder, without the window of zstd. The window takes at most as much memory as the decoded bytes,
/// which are reserved twice.
const DECODER_BYTES: u64 = 256 << 10;
/// Largest window of zstd: the size that RFC 8878 recommends to support.
const WINDOW_LOG_MAX: u32 = 23;

/// Compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Reads `Content-Encoding`.
    ///
    /// # Errors
    /// If the encoding is not supported, or several are named.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let mut found = Self::Identity;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            for name in String::from_utf8_lossy(value.as_bytes()).split(',').map(str::trim) {
                let next = match name.to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "zstd" => Self::Zstd,
                    _ => return Err(unknown(name)),
                };
                if found != Self::Identity {
                    return Err(unknown("more than one encoding"));
                }
                found = next;
            }
        }
        Ok(found)
    }

    /// Decodes a whole body. The decoded bytes count against the body limit and the memory for bodies.
    ///
    /// # Errors
    /// If the body is not valid in this encoding, is cut off, or is too large when decoded; or if there is no free
    /// memory for it now.
    pub(crate) fn decode(self, body: &[u8], limits: &Limits<'_>) -> Result<BodyBytes, Problem> {
        let _decoder = limits.clients.reserve(DECODER_BYTES).map_err(crowded)?;
        let mut decoded = Decoded { held: BodyBytes { bytes: Vec::new(), memory: reserve(limits, 0)? }, limits };
        match self {
            Self::Identity => decoded.fill(body, "")?,
            Self::Gzip => {
                let mut rest = body;
                loop {
                    // A gzip file may have several members, whose contents are concatenated: RFC 1952, section 2.2.
                    let mut decoder = GzDecoder::new(rest);
                    decoded.fill(&mut decoder, "gzip")?;
                    rest = decoder.into_inner();
                    // Zeros after the last member are padding, which every reader of gzip accepts.
                    if rest.iter().all(|&byte| byte == 0) {
                        break;
                    }
                }
            }
            Self::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(body).map_err(|error| damaged("zstd", &error))?;
                // The client chooses the window size. Without a limit, a small body could make the decoder allocate
                // much memory.
                decoder.window_log_max(WINDOW_LOG_MAX).map_err(|error| damaged("zstd", &error))?;
                decoded.fill(&mut decoder, "zstd")?;
            }
        }
        Ok(decoded.held)
    }
}

fn unknown(name: &str) -> Problem {
    let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
    let why = format!("the content encoding is {shown}; send the body as it is, or in one of: {}", ENCODINGS);
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why)
}

fn damaged(name: &str, error: &io::Error) -> Problem {
    Problem::bad_request(format!("the body is not {name}, as its content encoding says: {error}; compress it again"))
}

/// Reserves memory for decoded bytes, including a second copy that the window of zstd may hold.
fn reserve(limits: &Limits<'_>, bytes: u64) -> Result<Reservation, Problem> {
    limits.clients.reserve((limits.times + 1) * bytes).map_err(crowded)
}

/// Bytes decoded so far.
struct Decoded<'a> {
    held: BodyBytes,
    limits: &'a Limits<'a>,
}

impl Decoded<'_> {
    fn fill(&mut self, mut from: impl Read, name: &str) -> Result<(), Problem> {
        let Self { held: BodyBytes { bytes, memory }, limits } = self;
        loop {
            let start = bytes.len();
            if bytes.capacity() < start + STEP_BYTES {
                // The capacity doubles, so that each byte is copied about once. Both buffers exist during the copy.
                let more = STEP_BYTES.max(start).min((limits.bytes as usize).saturating_sub(start) + 1);
                memory.join(reserve(limits, (bytes.capacity().max(start + more) - bytes.capacity()) as u64)?);
                bytes.reserve_exact(more);
            }
            // At least one byte is decoded, even beyond the limit. If it exists, the body is too large.
            let step = (bytes.capacity() - start).clamp(1, STEP_BYTES);
            bytes.resize(start + step, 0);
            let read = loop {
                match from.read(&mut bytes[start..]) {
                    // If a signal interrupted the read, it is repeated.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => break read,
                }
            };
            bytes.truncate(start + *read.as_ref().unwrap_or(&0));
            if bytes.len() as u64 > limits.bytes {
                return Err(too_large(limits));
            }
            if read.map_err(|error| damaged(name, &error))? == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use adjoin::device::MemoryBudget;
    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decode(encoding: Encoding, body: &[u8], most: u64) -> Result<Vec<u8>, Problem> {
        let clients = MemoryBudget::new(16 << 20);
        let limits = Limits { bytes: most, times: 2, clients: &clients };
        let decoded = encoding.decode(body, &limits);
        if let Ok(BodyBytes { bytes, memory }) = &decoded {
            assert!(memory.bytes() >= 2 * bytes.len() as u64);
            assert!(bytes.capacity() as u64 <= most + STEP_BYTES as u64);
        }
        let decoded = decoded.map(|held| held.bytes);
        assert_eq!(clients.free(), clients.total());
        decoded
    }

    fn problem(encoding: Encoding, body: &[u8], most: u64) -> (u16, String) {
        let problem = decode(encoding, body, most).unwrap_err();
        (problem.status.as_u16(), problem.detail)
    }

    #[test]
    fn compressed_bodies_are_decoded_completely_or_refused() {
        let text: Vec<u8> = (0..300_000u32).map(|k| (k % 251) as u8).collect();
        for (encoding, body) in
            [(Encoding::Gzip, gzip(&text)), (Encoding::Zstd, zstd::encode_all(&text[..], 3).unwrap())]
        {
            assert_eq!(decode(encoding, &body, 300_000).unwrap(), text);
            assert_eq!(problem(encoding, &body, 299_999).0, 413);
            for cut in [0, 1, 9, body.len() / 2, body.len() - 1] {
                let (status, why) = problem(encoding, &body[..cut], 300_000);
                assert!(
                    cut == 0 && encoding == Encoding::Zstd || status == 400 && why.contains("the body is not"),
                    "{cut}: {why}"
                );
            }
            let twice = [&body[..], &body[..]].concat();
            assert_eq!(decode(encoding, &twice, 600_000).unwrap(), [&text[..], &text[..]].concat());
            assert_eq!(problem(encoding, &[&body[..], b"more"].concat(), 600_000).0, 400);
            assert_eq!(problem(encoding, b"[1, 2]", 600_000).0, 400);
        }
        assert_eq!(decode(Encoding::Gzip, &[gzip(b"a"), vec![0; 9]].concat(), 9).unwrap(), b"a");
        assert_eq!(decode(Encoding::Gzip, &gzip(b""), 9).unwrap(), b"");
    }

    #[test]
    fn bodies_beyond_the_limit_are_refused_while_decoding() {
        let zeros = vec![0; 64 << 20];
        for (encoding, body) in
            [(Encoding::Gzip, gzip(&zeros)), (Encoding::Zstd, zstd::encode_all(&zeros[..], 3).unwrap())]
        {
            assert_eq!(problem(encoding, &body, 1 << 20).0, 413);
            assert_eq!(problem(encoding, &body, 60 << 20).0, 429); // all clients share 16 MiB
        }
        let mut wide = zstd::Encoder::new(Vec::new(), 3).unwrap();
        wide.window_log(WINDOW_LOG_MAX + 1).unwrap();
        wide.write_all(&zeros).unwrap();
        assert_eq!(problem(Encoding::Zstd, &wide.finish().unwrap(), 1 << 20).0, 400);
    }

    #[test]
    fn unknown_content_encodings_are_refused() {
        let of = |values: &[&'static str]| {
            let headers = values.iter().map(|value| (header::CONTENT_ENCODING, HeaderValue::from_static(value)));
            Encoding::of(&HeaderMap::from_iter(headers))
        };
        assert_eq!(of(&[]), Ok(Encoding::Identity));
        assert_eq!(of(&["identity"]), Ok(Encoding::Identity));
        assert_eq!(of(&["GZip"]), Ok(Encoding::Gzip));
        assert_eq!(of(&["x-gzip, identity"]), Ok(Encoding::Gzip));
        assert_eq!(of(&["zstd"]), Ok(Encoding::Zstd));
        for values in [&["br"][..], &["deflate"], &["gzip, zstd"], &["\u{1f}"]] {
            let headers = values.iter().filter_map(|value| HeaderValue::from_str(value).ok());
            let headers = HeaderMap::from_iter(headers.map(|value| (header::CONTENT_ENCODING, value)));
            let refused = Encoding::of(&headers);
            assert!(headers.is_empty() || refused.is_err_and(|problem| problem.status == 415), "{values:?}");
        }
    }

    proptest! {
        /// Checks that damaged bodies are decoded or refused.
        #[test]
        fn no_body_panics(at in 0..200usize, byte in any::<u8>(), cut in 0..400usize) {
            let text: Vec<u8> = (0..500u32).map(|k| (k * k % 97) as u8).collect();
            for (encoding, mut body) in [(Encoding::Gzip, gzip(&text)), (Encoding::Zstd, zstd::encode_all(&text[..], 3).unwrap())] {
                let at = at % body.len();
                body[at] = byte;
                body.truncate(body.len().saturating_sub(cut / 2));
                let _ = decode(encoding, &body, 1_000);
            }
        }
    }
}
