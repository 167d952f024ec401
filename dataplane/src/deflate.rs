//! permessage-deflate (RFC 7692) without context takeover in either direction. No I/O.
//!
//! No connection keeps a compressor or a window. A push is compressed once for all readers that
//! negotiated it; readers' messages are inflated by one [`Inflater`] per thread.
//!
//! The decision to question: no frame is compressed separately for a reader that asks for a smaller
//! window (`server_max_window_bits`). A message that fits into that window can't refer back beyond
//! it, so the reader shares the common frame. It gets longer messages uncompressed: RFC 7692
//! section 6 leaves that to the sender, for each message.

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};

use crate::frame::Violation;

/// The end of a sync flush, removed by the sender (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];
/// Bytes of room added at a time while inflating.
const STEP: usize = 4096;

/// The compression agreed with one reader.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Serialize, Deserialize)]
pub struct Agreement {
    /// The window that the reader asked for, if any: 8 to 15 bits.
    window_bits: Option<u8>,
}

impl Agreement {
    /// Return the `Sec-WebSocket-Extensions` of the answer (RFC 7692 section 7.1).
    ///
    /// `client_no_context_takeover` may be demanded of every client (section 7.1.1.2).
    pub fn answer(self) -> String {
        let plain = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        match self.window_bits {
            Some(bits) => format!("{plain}; server_max_window_bits={bits}"),
            None => plain.to_owned(),
        }
    }

    /// Return whether a message of `size` bytes, before compression, may be sent compressed.
    pub fn may_compress(self, size: usize) -> bool {
        self.window_bits.is_none_or(|bits| size <= 1 << bits)
    }

    /// Return whether an agreement restored from bytes is a possible one.
    pub fn is_possible(self) -> bool {
        self.window_bits.is_none_or(|bits| (8..=15).contains(&bits))
    }
}

/// Return the first acceptable offer in the values of all `Sec-WebSocket-Extensions` headers, in
/// their order. Offers of other extensions and malformed offers are skipped (RFC 7692 section 7:
/// such an offer must be declined, not the handshake).
pub fn negotiate<'a>(headers: impl IntoIterator<Item = &'a [u8]>) -> Option<Agreement> {
    headers
        .into_iter()
        .filter_map(|header| std::str::from_utf8(header).ok())
        .flat_map(|header| header.split(','))
        .find_map(accept)
}

/// Read an offer; an unknown, doubled or bad parameter declines it (RFC 7692 section 7.1).
fn accept(offer: &str) -> Option<Agreement> {
    let mut parts = offer.split(';').map(str::trim);
    if !parts.next()?.eq_ignore_ascii_case("permessage-deflate") {
        return None;
    }
    let mut seen = Vec::new();
    let mut window_bits = None;
    for part in parts {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(unquoted(value.trim_start()))),
            None => (part, None),
        };
        let name = name.to_ascii_lowercase();
        match (name.as_str(), value) {
            ("server_no_context_takeover" | "client_no_context_takeover", None) => {}
            ("server_max_window_bits", Some(value)) => window_bits = Some(bits(value)?),
            ("client_max_window_bits", None) => {}
            ("client_max_window_bits", Some(value)) => _ = bits(value)?,
            _ => return None,
        }
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
    }
    Some(Agreement { window_bits })
}

/// Remove quotes, in which a value may stand if it is a token (RFC 6455 section 9.1).
fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

/// Read a window size: 8 to 15, without leading zeros (RFC 7692 sections 7.1.2.1 and 7.1.2.2).
fn bits(value: &str) -> Option<u8> {
    (8..=15).find(|bits| bits.to_string() == value)
}

/// The compressor for pushes, one at a time: keep one per thread (about 300 KB).
#[derive(Debug)]
pub struct Deflater {
    stream: Compress,
}

impl Deflater {
    /// Return a compressor of `level` 1 (fast) to 9 (small).
    pub fn new(level: u8) -> Self {
        let level = Compression::new(level.clamp(1, 9).into());
        Self { stream: Compress::new(level, false) }
    }

    /// Append `payload`, compressed as a message's payload, to `out`. Return false and append
    /// nothing if that isn't shorter: then send it uncompressed.
    pub fn compress(&mut self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        self.stream.reset();
        let start = out.len();
        // Output that doesn't fit in here isn't shorter, and is given up.
        out.reserve(payload.len() + TAIL.len());
        let room = out.capacity();
        let done = self
            .stream
            .compress_vec(payload, out, FlushCompress::Sync)
            .is_ok_and(|status| status == Status::Ok)
            && self.stream.total_in() == payload.len() as u64
            && out.len() < room
            && out.ends_with(&TAIL);
        let size = (out.len() - start).saturating_sub(TAIL.len());
        let useful = done && size < payload.len();
        out.truncate(if useful { start + size } else { start });
        useful
    }
}

/// The inflater for readers' messages, one at a time: keep one per thread (about 50 KB).
#[derive(Debug)]
pub struct Inflater {
    stream: Decompress,
    output: Vec<u8>,
}

impl Default for Inflater {
    fn default() -> Self {
        Self { stream: Decompress::new(false), output: Vec::new() }
    }
}

impl Inflater {
    /// Return the inflated message of `payload`. It is lent until the next call.
    ///
    /// # Errors
    /// [`Violation::TooBig`] as soon as the output exceeds `message_bytes`, before the rest is
    /// inflated; [`Violation::InvalidPayload`] if `payload` isn't DEFLATE.
    pub fn inflate(&mut self, payload: &[u8], message_bytes: usize) -> Result<&[u8], Violation> {
        self.output.clear();
        self.stream.reset(false);
        self.feed(payload, message_bytes)?;
        self.feed(&TAIL, message_bytes)?;
        Ok(&self.output)
    }

    fn feed(&mut self, mut input: &[u8], message_bytes: usize) -> Result<(), Violation> {
        loop {
            if self.output.len() > message_bytes {
                return Err(Violation::TooBig);
            }
            self.output.reserve(STEP);
            let before = (self.stream.total_in(), self.output.len());
            let status = self
                .stream
                .decompress_vec(input, &mut self.output, FlushDecompress::Sync)
                .map_err(|_| Violation::InvalidPayload)?;
            let used = (self.stream.total_in() - before.0) as usize;
            input = input.get(used..).unwrap_or_default();
            if status == Status::StreamEnd {
                // RFC 7692 section 7.2.3.4: a block with BFINAL may occur in mid-message.
                self.stream.reset(false);
            } else if used == 0 && self.output.len() == before.1 {
                break;
            }
            if input.is_empty() && self.output.len() < self.output.capacity() {
                break;
            }
        }
        if self.output.len() > message_bytes {
            return Err(Violation::TooBig);
        }
        if input.is_empty() { Ok(()) } else { Err(Violation::InvalidPayload) }
    }
}
