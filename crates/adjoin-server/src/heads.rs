//! Refuses requests with both `Transfer-Encoding` and `Content-Length`. If a proxy in front of the server obeys one
//! of the headers and the server the other, they disagree on where the request ends. A client can then hide a second
//! request in the body (request smuggling). hyper ignores the length and continues. So this module inspects the bytes
//! of a connection before hyper reads them. It corrupts the head of such a request, so that hyper answers with 400
//! and closes the connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum length of a line; hyper refuses heads that are longer.
const LINE_BYTES_MAX: usize = 32 << 10;

/// A connection that inspects its requests as they are read.
pub(crate) struct InspectedStream<S> {
    stream: S,
    inspector: Inspector,
}

impl<S> InspectedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, inspector: Inspector::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for InspectedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.inspector.inspect(&mut buffer.filled_mut()[before..]);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for InspectedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Parser state of a connection.
#[derive(Default)]
struct Inspector {
    place: Place,
    /// Bytes of the current line, in a head or between chunks.
    line: Vec<u8>,
    head: Head,
}

/// Part of a request that the next byte belongs to.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum Place {
    #[default]
    Head,
    /// A body, or a chunk and the line break after it. `left` bytes are still expected.
    Body {
        left: u64,
        is_chunk: bool,
    },
    ChunkSize,
    Trailers,
    /// The framing is unknown. hyper refuses the request and closes the connection.
    Lost,
}

/// Framing headers of the current head.
#[derive(Default)]
struct Head {
    has_lines: bool,
    length: Option<u64>,
    is_chunked: bool,
}

impl Inspector {
    /// Parses `bytes`, and corrupts the end of a head that must be refused.
    fn inspect(&mut self, bytes: &mut [u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &mut bytes[at..];
            match self.place {
                Place::Lost => return,
                Place::Body { left, is_chunk } => {
                    let taken = left.min(rest.len() as u64);
                    at += taken as usize;
                    self.place = match left - taken {
                        0 if is_chunk => Place::ChunkSize,
                        0 => Place::Head,
                        left => Place::Body { left, is_chunk },
                    };
                }
                Place::Head | Place::ChunkSize | Place::Trailers => {
                    let end = rest.iter().position(|&byte| byte == b'\n');
                    // A line may arrive in several pieces, so its bytes are collected until its end.
                    let taken = end.map_or(rest.len(), |end| end + 1);
                    self.line.extend_from_slice(&rest[..taken]);
                    at += taken;
                    // Hyper refuses a line of this length itself, so the connection ends here in any case.
                    if self.line.len() > LINE_BYTES_MAX {
                        self.place = Place::Lost;
                    } else if end.is_some() {
                        self.place = self.after_line();
                        self.line.clear();
                        if self.place == Place::Lost && self.head.is_ambiguous() {
                            rest[taken - 1] = 0; // hyper refuses a head with this byte
                        }
                    }
                }
            }
        }
    }

    fn after_line(&mut self) -> Place {
        let line = self.line.trim_ascii();
        match self.place {
            Place::Head if !line.is_empty() => {
                // The first line is the request line, which has no header.
                if self.head.has_lines {
                    self.head.read(line);
                }
                self.head.has_lines = true;
                Place::Head
            }
            Place::Head if !self.head.has_lines => Place::Head, // an empty line before a request
            Place::Head if self.head.is_ambiguous() => Place::Lost,
            Place::Head => match std::mem::take(&mut self.head) {
                Head { is_chunked: true, .. } => Place::ChunkSize,
                Head { length: Some(left @ 1..), .. } => Place::Body { left, is_chunk: false },
                _ => Place::Head,
            },
            Place::ChunkSize => {
                // Extensions may follow the size: RFC 9112, section 7.1.1.
                let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
                let size = str::from_utf8(&line[..digits]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                // A line break of 2 bytes follows the data of a chunk.
                match size.map(|size| (size, size.checked_add(2))) {
                    Some((0, _)) => Place::Trailers,
                    Some((_, Some(left))) => Place::Body { left, is_chunk: true },
                    _ => Place::Lost,
                }
            }
            Place::Trailers if line.is_empty() => Place::Head,
            place => place,
        }
    }
}

impl Head {
    fn read(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = true; // other codings are refused later, with the connection
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let length = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            self.length = Some(length.unwrap_or(0)); // hyper refuses other values
        }
    }

    fn is_ambiguous(&self) -> bool {
        self.is_chunked && self.length.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FINE: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 43\r\n\r\n\
                        transfer-encoding: x\r\ncontent-length: 1\r\n\r\n\
                        \r\nPOST / HTTP/1.1\nTransfer-Encoding: chunked\n\n\
                        2;x=y\r\n\r\n\r\n1D\r\ncontent-length: 1234567\r\n\r\n\r\n\r\n0\r\ncontent-length: 3\r\n\r\n\
                        GET / HTTP/1.1\r\n\r\n";

    /// Inspects a text that arrives in pieces of `piece` bytes, and returns it.
    fn inspected(text: &str, piece: usize) -> Vec<u8> {
        let (mut inspector, mut bytes) = (Inspector::default(), text.as_bytes().to_vec());
        bytes.chunks_mut(piece).for_each(|piece| inspector.inspect(piece));
        bytes
    }

    #[test]
    fn heads_with_length_and_chunked_encoding_are_invalidated() {
        for piece in [1, 2, 3, 7, 50, 1_000] {
            assert_eq!(inspected(FINE, piece), FINE.as_bytes());
            for both in [
                "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
                "POST / HTTP/1.1\r\ntransfer-encoding : chunked\r\nhost: a\r\nCONTENT-LENGTH:0\r\n\r\n",
                "POST / HTTP/1.1\ntransfer-encoding:\tgzip, chunked\ncontent-length: x\n\n",
            ] {
                let text = format!("{FINE}{both}");
                let spoiled = inspected(&text, piece);
                let (head, last) = spoiled.split_at(text.len() - 1);
                assert_eq!((head, last), (&text.as_bytes()[..text.len() - 1], &[0][..]), "{both}");
            }
        }
    }

    proptest! {
        /// Checks that any bytes are parsed in any pieces, with bounded memory.
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1..50usize, at in 0..200usize) {
            let mut near = FINE.as_bytes().to_vec();
            for (place, byte) in bytes.iter().enumerate().take(3) {
                near[(at + 31 * place) % FINE.len()] = *byte;
            }
            for bytes in [&mut bytes, &mut near] {
                let mut inspector = Inspector::default();
                bytes.chunks_mut(piece).for_each(|piece| inspector.inspect(piece));
            }
        }
    }
}
