//! Reads bodies of requests. Memory for a piece of a body is reserved before the piece is read.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::body_limits::{BodyBytes, Limits, crowded, too_large};
use crate::encoding::Encoding;
use crate::problem::Problem;

/// Time limit for a whole body to arrive, in seconds.
const ARRIVAL_SECONDS: u64 = 30;
/// Bytes to reserve at once.
const STEP_BYTES: u64 = 64 << 10;

/// Reads a body, and decodes it according to its headers.
///
/// # Errors
/// If the body is too large, too slow, cut off or not encoded as declared, or if there is no free memory for it now.
pub(crate) async fn read(headers: &HeaderMap, body: Body, limits: &Limits<'_>) -> Result<BodyBytes, Problem> {
    let encoding = Encoding::of(headers)?;
    if encoding == Encoding::Identity {
        return arrived(body, limits).await;
    }
    // `times` applies to bytes that are parsed. Compressed bytes are not parsed; decoding reserves `times` its
    // result.
    let compressed = arrived(body, &Limits { times: 1, ..*limits }).await?;
    // Decoding may take long, so it must not block the other tasks of this thread.
    tokio::task::block_in_place(|| encoding.decode(&compressed.bytes, limits))
}

async fn arrived(body: Body, limits: &Limits<'_>) -> Result<BodyBytes, Problem> {
    let declared = body.size_hint().lower();
    // A body with a larger declared length is refused before memory is reserved and before it is read.
    if declared > limits.bytes {
        return Err(too_large(limits));
    }
    let slow = || Problem::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not arrive in {ARRIVAL_SECONDS} s"));
    let read = tokio::time::timeout(Duration::from_secs(ARRIVAL_SECONDS), read_all(body, declared, limits));
    read.await.unwrap_or_else(|_| Err(slow()))
}

/// Reads a body of `declared` or more bytes.
///
/// # Errors
/// If it is too large or cut off, or no memory is free for it now.
pub(crate) async fn read_all(mut body: Body, declared: u64, limits: &Limits<'_>) -> Result<BodyBytes, Problem> {
    let reserve = |bytes: u64| limits.clients.reserve(limits.times * bytes).map_err(crowded);
    let mut held = BodyBytes { bytes: Vec::new(), memory: reserve(0)? };
    let mut room = 0;
    while let Some(frame) = body.frame().await {
        let cut = |error| Problem::bad_request(format!("the body was cut off: {error}"));
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue }; // trailers are ignored
        let bytes = (held.bytes.len() + data.len()) as u64;
        if bytes > limits.bytes {
            return Err(too_large(limits));
        }
        if bytes > room {
            // Memory is reserved in whole steps, since a reservation per frame would be slow. It never exceeds the
            // declared length.
            let more = bytes.next_multiple_of(STEP_BYTES).min(declared.max(bytes)) - room;
            held.memory.join(reserve(more)?);
            room += more;
            // The vector grows by the exact amount, since doubling would exceed the reservation.
            held.bytes.reserve_exact((room as usize) - held.bytes.len());
        }
        held.bytes.extend_from_slice(&data);
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use adjoin::device::MemoryBudget;

    use super::*;

    fn read_from(body: Vec<u8>, limits: &Limits<'_>) -> Result<BodyBytes, Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(read(&HeaderMap::new(), Body::from(body), limits))
    }

    #[test]
    fn a_body_reserves_a_multiple_of_its_bytes() {
        let clients = MemoryBudget::new(1_000);
        let limits = Limits { bytes: 300, times: 3, clients: &clients };
        let held = read_from(vec![7; 200], &limits).unwrap();
        assert_eq!((held.bytes.len(), held.memory.bytes(), clients.free()), (200, 600, 400));
        assert_eq!(read_from(vec![7; 200], &limits).err().unwrap().status, 429);
        assert_eq!(read_from(vec![7; 301], &limits).err().unwrap().status, 413);
        drop(held);
        assert_eq!(clients.free(), 1_000);
    }
}
