//! Reads ranges of an object before they are needed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use adjoin_device::{DeviceError, FileStamp, READ_AHEAD_PIECE_BYTES, ReadFile};

use crate::object::{ALIGNMENT, Object};

/// Maximum number of ranges that are in memory or in flight.
const WINDOW: usize = 8;
/// Bytes that a request buffers in addition to the range, for its connection and encryption.
pub(crate) const REQUEST_BYTES: u64 = 512 << 10;
/// Bytes of the client itself: its threads, the certificates that it trusts, and idle connections.
pub(crate) const CLIENT_BYTES: u64 = 8 << 20;
/// Maximum memory of an object that is read ahead, including the client.
pub(crate) const READ_AHEAD_BYTES: u64 = WINDOW as u64 * (READ_AHEAD_PIECE_BYTES + REQUEST_BYTES) + CLIENT_BYTES;

/// A view of an object for a reader that announced its ranges.
pub(crate) struct AheadFile {
    object: Arc<Object>,
    /// Pieces of the announced ranges, in the order in which the reader needs them.
    pieces: Vec<Range<u64>>,
    /// Start and number of each piece, sorted by start.
    places: Vec<(u64, usize)>,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    /// Requested and received pieces, in their order.
    slots: VecDeque<Slot>,
    /// Number of the next piece to request.
    next: usize,
}

struct Slot {
    piece: usize,
    range: Range<u64>,
    contents: Contents,
}

enum Contents {
    Requested(Receiver<Result<Vec<u8>, DeviceError>>),
    Read(Vec<u8>),
}

impl AheadFile {
    pub(crate) fn new(object: Arc<Object>, ranges: Vec<Range<u64>>) -> Self {
        let pieces: Vec<Range<u64>> =
            ranges.into_iter().flat_map(split).filter(|range| range.end <= object.len()).collect();
        let mut places: Vec<(u64, usize)> = pieces.iter().enumerate().map(|(k, piece)| (piece.start, k)).collect();
        places.sort_unstable();
        Self { object, pieces, places, window: Mutex::default() }
    }

    /// Returns the number of the piece that contains `offset`, if any.
    fn piece_at(&self, offset: u64) -> Option<usize> {
        let before = self.places.partition_point(|(start, _)| *start <= offset).checked_sub(1)?;
        Some(self.places[before].1).filter(|piece| self.pieces[*piece].contains(&offset))
    }

    fn request(&self, piece: usize) -> Slot {
        let (range, object) = (self.pieces[piece].clone(), self.object.clone());
        let (sender, answer) = sync_channel(1);
        let (start, len) = (range.start, (range.end - range.start) as usize);
        self.object.stores.runtime().spawn(async move {
            let mut bytes = vec![0; len];
            let read = object.fill(start, &mut bytes).await.map(|_| bytes);
            let _ = sender.send(read); // fails if the reader was dropped
        });
        Slot { piece, range, contents: Contents::Requested(answer) }
    }

    /// Copies bytes of one piece, starting at `offset`. Returns their number. Returns 0 if no piece contains the
    /// offset, or if its piece is neither in the window nor one of the next.
    fn copy(&self, window: &mut Window, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        let Some(piece) = self.piece_at(offset) else { return Ok(0) };
        if !window.slots.iter().any(|slot| slot.piece == piece) {
            // The piece was dropped already or is far ahead, so the reader does not read the ranges in their order.
            if !(window.next..window.next + WINDOW).contains(&piece) {
                return Ok(0);
            }
            // If the window is full, the reader has skipped ranges, so the oldest piece is the least likely to be
            // read.
            if window.slots.len() == WINDOW {
                window.slots.pop_front();
            }
            window.slots.push_back(self.request(piece));
            window.next = piece + 1;
        }
        while window.slots.len() < WINDOW && window.next < self.pieces.len() {
            window.slots.push_back(self.request(window.next));
            window.next += 1;
        }
        let place = window.slots.iter().position(|slot| slot.piece == piece).expect("it was requested above");
        let slot = &mut window.slots[place];
        let skip = (offset - slot.range.start) as usize;
        let copied = match slot.contents().map(|bytes| copy_from(&bytes[skip..], buffer)) {
            Ok(copied) => copied,
            Err(error) => {
                window.slots.remove(place);
                return Err(error);
            }
        };
        // Readers read forward, so a piece that was read to its end is not needed again.
        if offset + copied as u64 == slot.range.end {
            window.slots.remove(place);
        }
        Ok(copied)
    }
}

impl Slot {
    /// Waits until the bytes of the piece have arrived, and returns them.
    fn contents(&mut self) -> Result<&[u8], DeviceError> {
        if let Contents::Requested(answer) = &self.contents {
            let read = answer.recv().expect("a request answers before it ends");
            self.contents = Contents::Read(read?);
        }
        match &self.contents {
            Contents::Read(bytes) => Ok(bytes),
            Contents::Requested(_) => unreachable!("the answer was awaited above"),
        }
    }
}

fn copy_from(bytes: &[u8], buffer: &mut [u8]) -> usize {
    let copied = bytes.len().min(buffer.len());
    buffer[..copied].copy_from_slice(&bytes[..copied]);
    copied
}

/// Splits a range into pieces of limited size.
fn split(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let starts = range.clone().step_by(READ_AHEAD_PIECE_BYTES as usize);
    starts.map(move |start| start..(start + READ_AHEAD_PIECE_BYTES).min(range.end))
}

impl ReadFile for AheadFile {
    fn len(&self) -> u64 {
        self.object.len()
    }

    fn stamp(&self) -> Result<FileStamp, DeviceError> {
        Ok(self.object.stamp())
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<u64, DeviceError> {
        self.object.check_process(offset)?;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < buffer.len() {
            let position = offset + done as u64;
            match self.copy(&mut window, position, &mut buffer[done..])? {
                0 => {
                    // Reads only up to the next announced range, so that no byte is read twice.
                    let after = self.places.partition_point(|(start, _)| *start <= position);
                    let next = self.places.get(after).map_or(u64::MAX, |(start, _)| *start);
                    let end = buffer.len().min(done.saturating_add((next - position).try_into().unwrap_or(usize::MAX)));
                    self.object.read_at(position, &mut buffer[done..end])?;
                    done = end;
                }
                copied => done += copied,
            }
        }
        Ok(buffer.len() as u64)
    }
}
