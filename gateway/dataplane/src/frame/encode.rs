//! Server frames: unmasked, unfragmented (RFC 6455 sections 5.1 and 5.2).

use super::{CLOSE, PING, PONG};

/// The empty ping of a heartbeat.
pub const PING_FRAME: [u8; 2] = [0x80 | PING, 0];

/// Longest payload of a control frame (RFC 6455 section 5.5).
const CONTROL_BYTES: usize = 125;

/// What goes before a payload; it goes beside it into one `writev`.
#[derive(Debug, Clone, Copy)]
pub struct FrameHead {
    bytes: [u8; 10],
    len: u8,
}

impl FrameHead {
    /// The head of a whole message of `size` bytes; `compressed` sets RSV1 (RFC 7692 section 6).
    pub fn new(opcode: u8, compressed: bool, size: usize) -> Self {
        let mut bytes = [0; 10];
        bytes[0] = 0x80 | (u8::from(compressed) << 6) | (opcode & 0x0F);
        let len = if let Ok(short @ ..=125) = u8::try_from(size) {
            bytes[1] = short;
            2
        } else if let Ok(medium) = u16::try_from(size) {
            bytes[1] = 126;
            bytes[2..4].copy_from_slice(&medium.to_be_bytes());
            4
        } else {
            bytes[1] = 127;
            bytes[2..10].copy_from_slice(&(size as u64).to_be_bytes());
            10
        };
        Self { bytes, len }
    }

    /// The bytes to send.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Append a whole frame to `out`.
pub fn put_frame(out: &mut Vec<u8>, opcode: u8, compressed: bool, payload: &[u8]) {
    let head = FrameHead::new(opcode, compressed, payload.len());
    out.reserve(head.as_slice().len() + payload.len());
    out.extend_from_slice(head.as_slice());
    out.extend_from_slice(payload);
}

/// A control frame, on the stack.
#[derive(Clone, Copy)]
pub struct SmallFrame {
    bytes: [u8; 2 + CONTROL_BYTES],
    len: u8,
}

impl SmallFrame {
    fn new(opcode: u8, parts: [&[u8]; 2]) -> Self {
        let mut frame = Self { bytes: [0; 2 + CONTROL_BYTES], len: 2 };
        for byte in parts.into_iter().flatten().take(CONTROL_BYTES) {
            frame.bytes[usize::from(frame.len)] = *byte;
            frame.len += 1;
        }
        frame.bytes[0] = 0x80 | opcode;
        frame.bytes[1] = frame.len - 2;
        frame
    }

    /// The bytes to send.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The answer to a ping; more than 125 bytes are cut off (no ping has them).
pub fn pong_frame(payload: &[u8]) -> SmallFrame {
    SmallFrame::new(PONG, [payload, &[]])
}

/// A close frame; `None` echoes one that had no code. A reason of more than 123 bytes is cut
/// off at a character.
pub fn close_frame(code: Option<u16>, reason: &str) -> SmallFrame {
    let Some(code) = code else {
        return SmallFrame::new(CLOSE, [&[], &[]]);
    };
    let mut end = reason.len().min(CONTROL_BYTES - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    SmallFrame::new(CLOSE, [&code.to_be_bytes(), &reason.as_bytes()[..end]])
}
