//! The decoder. Each frame passes `Head::parse` and then `finish`, whether it arrived in one piece,
//! inside the read buffer, or in several (`Partial`).

use serde::{Deserialize, Serialize};

use super::{
    BINARY, CLOSE, CONTINUATION, CONTROL_BYTES, Event, NO_STATUS, PING, PONG, TEXT, Violation,
    may_be_sent,
};

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// Longest head of a frame: two bytes, eight of length, four of mask.
const LONGEST_HEAD: usize = 14;

/// Limits of the frames that a connection may send.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Longest message, all fragments together; an empty fragment counts as one byte.
    pub message_bytes: usize,
    /// True if permessage-deflate was negotiated, so that RSV1 may be set.
    pub deflate: bool,
}

/// The decoder of one connection: eight bytes, and a box while a frame or message is unfinished.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Decoder {
    partial: Option<Box<Partial>>,
}

impl Decoder {
    /// Consume bytes up to the end of the next message or control frame.
    ///
    /// Return the number of consumed bytes, and the event. Call again with the bytes that follow
    /// until there is no event: then all of `input` was consumed, and memory that is no longer
    /// needed was freed.
    ///
    /// # Errors
    /// A violation of the protocol by the reader: see [`Violation`]. Don't call it again.
    pub fn step<'a>(
        &'a mut self,
        input: &'a mut [u8],
        rules: &Rules,
    ) -> Result<(usize, Option<Event<'a>>), Violation> {
        if self.partial.as_ref().is_some_and(|p| p.is_done()) {
            self.partial = None;
        }
        if self.partial.is_none() {
            if input.is_empty() {
                return Ok((0, None));
            }
            if let Parsed::Head(head, at) = Head::parse(input, FrameMessage::default(), rules)?
                && head.fin
                && head.size <= input.len() - at
            {
                // A message of one frame, and all of it is in the buffer.
                let end = at + head.size;
                let payload = &mut input[at..end];
                unmask(payload, head.mask, 0);
                let event = finish(head.opcode, head.compressed, payload)?;
                return Ok((end, Some(event)));
            }
        }
        self.partial.get_or_insert_with(Box::default).step(input, rules)
    }

    /// Return the time since which a frame or message is unfinished; `None` if none is.
    ///
    /// Call this after each read: a frame or message that began since the last call counts as begun
    /// at `now_ms`. So does the unfinished one of a restored decoder, at the first call.
    pub fn unfinished_since(&mut self, now_ms: u64) -> Option<u64> {
        let partial = self.partial.as_mut().filter(|p| !p.is_done())?;
        Some(*partial.since_ms.get_or_insert(now_ms))
    }

    /// Return whether a decoder restored from bytes can be the result of a reader's bytes.
    pub fn is_possible(&self) -> bool {
        self.partial.as_ref().is_none_or(|partial| partial.is_possible())
    }
}

/// The head of a frame, checked.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Head {
    fin: bool,
    opcode: u8,
    compressed: bool,
    size: usize,
    mask: [u8; 4],
}

enum Parsed {
    /// Number of bytes of the head that must be there to continue.
    Needs(usize),
    Head(Head, usize),
}

/// The message to which a frame belongs.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct FrameMessage {
    /// TEXT, BINARY, or CONTINUATION while there is no message.
    opcode: u8,
    compressed: bool,
    /// Size of the message so far, with an empty fragment as one byte.
    counted: usize,
}

impl Head {
    fn parse(bytes: &[u8], message: FrameMessage, rules: &Rules) -> Result<Parsed, Violation> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(Parsed::Needs(2));
        };
        let opcode = first & 0x0F;
        Self::check_start(first, second, rules)?;
        let (length, at) = match (second & 0x7F, rest) {
            (126, &[a, b, ..]) => (u64::from(u16::from_be_bytes([a, b])), 4),
            (127, &[a, b, c, d, e, f, g, h, ..]) => {
                (u64::from_be_bytes([a, b, c, d, e, f, g, h]), 10)
            }
            (126, _) => return Ok(Parsed::Needs(4)),
            (127, _) => return Ok(Parsed::Needs(10)),
            (short, _) => (u64::from(short), 2),
        };
        // RFC 6455 section 5.2: the length must be in its shortest form, without the highest bit.
        if (at == 4 && length < 126) || (at == 10 && !(1 << 16..1 << 63).contains(&length)) {
            return Err(Violation::Protocol);
        }
        let size = usize::try_from(length).map_err(|_| Violation::TooBig)?;
        if opcode & 0x8 == 0 {
            Self::check_place(opcode, size, message, rules)?;
        }
        let Some(&[a, b, c, d]) = bytes.get(at..at + 4) else {
            return Ok(Parsed::Needs(at + 4));
        };
        let head = Self {
            fin: first & FIN != 0,
            opcode,
            compressed: first & RSV1 != 0,
            size,
            mask: [a, b, c, d],
        };
        Ok(Parsed::Head(head, at + 4))
    }

    fn check_start(first: u8, second: u8, rules: &Rules) -> Result<(), Violation> {
        let opcode = first & 0x0F;
        let control = opcode & 0x8 != 0;
        // RFC 6455 section 5.2: reserved bits need an extension; RFC 7692 section 6: RSV1 marks a
        // compressed message, on its first frame only.
        let compressible = rules.deflate && !control && opcode != CONTINUATION;
        let reserved = first & RESERVED & if compressible { !RSV1 } else { !0 };
        // Section 5.1: readers must mask. Section 5.5: control frames are short and unfragmented.
        let long = usize::from(second & 0x7F) > CONTROL_BYTES;
        let stretched = control && (long || first & FIN == 0);
        if !is_known(opcode) || reserved != 0 || second & MASKED == 0 || stretched {
            return Err(Violation::Protocol);
        }
        Ok(())
    }

    fn check_place(
        opcode: u8,
        size: usize,
        message: FrameMessage,
        rules: &Rules,
    ) -> Result<(), Violation> {
        // Also for empty fragments: they are counted, so that they can't go on for ever.
        if message.counted.saturating_add(size) > rules.message_bytes {
            return Err(Violation::TooBig);
        }
        // Section 5.4: a message is one frame with an opcode, then continuations.
        if (opcode == CONTINUATION) != (message.opcode != CONTINUATION) {
            return Err(Violation::Protocol);
        }
        Ok(())
    }
}

fn is_known(opcode: u8) -> bool {
    matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG)
}

fn finish(opcode: u8, compressed: bool, payload: &[u8]) -> Result<Event<'_>, Violation> {
    match opcode {
        PING => Ok(Event::Ping(payload)),
        PONG => Ok(Event::Pong(payload)),
        CLOSE => close(payload),
        _ if compressed => Ok(Event::Compressed { text: opcode == TEXT, payload }),
        TEXT => utf8(payload).map(Event::Text),
        _ => Ok(Event::Binary(payload)),
    }
}

/// Read the payload of a close frame (RFC 6455 sections 5.5.1 and 7.4).
fn close(payload: &[u8]) -> Result<Event<'_>, Violation> {
    let (code, reason) = match *payload {
        [] => (NO_STATUS, &payload[..0]),
        [_] => return Err(Violation::Protocol),
        [high, low, ref reason @ ..] => (u16::from_be_bytes([high, low]), reason),
    };
    if !payload.is_empty() && !may_be_sent(code) {
        return Err(Violation::Protocol);
    }
    Ok(Event::Close { code, reason: utf8(reason)? })
}

/// Check that a text is UTF-8 (RFC 6455 section 8.1).
fn utf8(payload: &[u8]) -> Result<&str, Violation> {
    simdutf8::basic::from_utf8(payload).map_err(|_| Violation::InvalidPayload)
}

/// The received part of an unfinished frame or message.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Partial {
    /// Bytes of the head until it is complete.
    head_bytes: [u8; LONGEST_HEAD],
    head_len: usize,
    /// The frame whose payload is being received, and how much of that was received.
    frame: Option<Head>,
    received: usize,
    control: Vec<u8>,
    message: FrameMessage,
    payload: Vec<u8>,
    /// Length of the valid UTF-8 in `payload`. The rest is at most the start of one character.
    #[serde(skip)]
    valid: usize,
    /// Time at which it was first found unfinished.
    #[serde(skip)]
    since_ms: Option<u64>,
}

impl Partial {
    /// Return whether nothing is unfinished: then the box is freed. So it never holds two messages.
    fn is_done(&self) -> bool {
        self.message.opcode == CONTINUATION && self.frame.is_none() && self.head_len == 0
    }

    fn is_possible(&self) -> bool {
        let fits = |frame: Head| {
            let control = frame.opcode & 0x8 != 0;
            let held = if control { self.control.len() } else { self.payload.len() };
            is_known(frame.opcode)
                && (!control || frame.size <= CONTROL_BYTES)
                && self.received <= held.min(frame.size)
        };
        self.head_len <= LONGEST_HEAD
            && self.frame.is_none_or(fits)
            && matches!(self.message.opcode, CONTINUATION | TEXT | BINARY)
            && self.control.len() <= CONTROL_BYTES
    }

    fn step<'a>(
        &'a mut self,
        input: &[u8],
        rules: &Rules,
    ) -> Result<(usize, Option<Event<'a>>), Violation> {
        let mut at = 0;
        loop {
            let (used, head) = self.take_head(&input[at..], rules)?;
            at += used;
            let Some(head) = head else {
                return Ok((at, None));
            };
            at += self.take_payload(head, &input[at..])?;
            if self.received < head.size {
                return Ok((at, None));
            }
            if self.end_frame(head) {
                return self.event(head).map(|event| (at, Some(event)));
            }
        }
    }

    /// Continue with the frame in progress, or with its head.
    fn take_head(
        &mut self,
        input: &[u8],
        rules: &Rules,
    ) -> Result<(usize, Option<Head>), Violation> {
        if self.frame.is_some() {
            return Ok((0, self.frame));
        }
        let mut used = 0;
        loop {
            let bytes = &self.head_bytes[..self.head_len];
            match Head::parse(bytes, self.message, rules)? {
                Parsed::Head(head, _) => {
                    self.begin_frame(head);
                    return Ok((used, Some(head)));
                }
                Parsed::Needs(total) => {
                    let part = prefix(&input[used..], total - self.head_len);
                    if part.is_empty() {
                        return Ok((used, None));
                    }
                    self.head_bytes[self.head_len..][..part.len()].copy_from_slice(part);
                    self.head_len += part.len();
                    used += part.len();
                }
            }
        }
    }

    fn begin_frame(&mut self, head: Head) {
        self.head_len = 0;
        self.frame = Some(head);
        self.received = 0;
        self.control.clear();
        if head.opcode == TEXT || head.opcode == BINARY {
            self.message =
                FrameMessage { opcode: head.opcode, compressed: head.compressed, counted: 0 };
        }
    }

    fn take_payload(&mut self, head: Head, input: &[u8]) -> Result<usize, Violation> {
        let part = prefix(input, head.size - self.received);
        let control = head.opcode & 0x8 != 0;
        let buffer = if control { &mut self.control } else { &mut self.payload };
        // The announced length is not reserved: bytes that never arrive cost no memory.
        let start = buffer.len();
        buffer.extend_from_slice(part);
        unmask(&mut buffer[start..], head.mask, self.received);
        self.received += part.len();
        if !control && self.message.opcode == TEXT && !self.message.compressed {
            self.validate()?;
        }
        Ok(part.len())
    }

    /// Fail at the first byte that can't be UTF-8 there, even in mid-message.
    fn validate(&mut self) -> Result<(), Violation> {
        match simdutf8::compat::from_utf8(&self.payload[self.valid..]) {
            Ok(text) => self.valid += text.len(),
            Err(error) if error.error_len().is_none() => self.valid += error.valid_up_to(),
            Err(_) => return Err(Violation::InvalidPayload),
        }
        Ok(())
    }

    /// Finish a frame; return whether it completes an event.
    fn end_frame(&mut self, head: Head) -> bool {
        self.frame = None;
        if head.opcode & 0x8 == 0 {
            self.message.counted += head.size.max(1);
        }
        head.fin
    }

    fn event(&mut self, head: Head) -> Result<Event<'_>, Violation> {
        if head.opcode & 0x8 != 0 {
            return finish(head.opcode, false, &self.control);
        }
        let message = std::mem::take(&mut self.message);
        finish(message.opcode, message.compressed, &self.payload)
    }
}

fn prefix(bytes: &[u8], at_most: usize) -> &[u8] {
    &bytes[..bytes.len().min(at_most)]
}

/// XOR `data` with `mask`, in place, eight bytes at a time (RFC 6455 section 5.3). `phase` is the
/// number of bytes of the payload before `data`.
pub fn unmask(data: &mut [u8], mask: [u8; 4], phase: usize) {
    let mut key = mask;
    key.rotate_left(phase & 3);
    let [a, b, c, d] = key;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = data.as_chunks_mut();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
