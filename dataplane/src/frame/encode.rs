//! Server frames: unmasked, unfragmented (RFC 6455 sections 5.1 and 5.2).

use super::{CLOSE, CONTROL_BYTES, PING, PONG};

/// The empty ping of a heartbeat.
pub const PING_FRAME: [u8; 2] = [0x80 | PING, 0];

/// Append a whole frame to `out`; `compressed` sets RSV1 (RFC 7692 section 6).
pub fn put_frame(out: &mut Vec<u8>, opcode: u8, compressed: bool, payload: &[u8]) {
    out.reserve(10 + payload.len());
    out.push(0x80 | (u8::from(compressed) << 6) | opcode);
    match payload.len() {
        size @ ..=125 => out.push(size as u8),
        size @ ..=0xFFFF => {
            out.push(126);
            out.extend_from_slice(&(size as u16).to_be_bytes());
        }
        size => {
            out.push(127);
            out.extend_from_slice(&(size as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
}

/// Return a pong with the payload of a ping, cut to 125 bytes (no valid ping has more).
pub fn pong_frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    put_frame(&mut frame, PONG, false, &payload[..payload.len().min(CONTROL_BYTES)]);
    frame
}

/// Return a close frame; `None` echoes a close frame that had no code. A reason of more than 123
/// bytes is cut off at a character boundary.
pub fn close_frame(code: Option<u16>, reason: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    if let Some(code) = code {
        let mut end = reason.len().min(CONTROL_BYTES - 2);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        payload.extend_from_slice(&code.to_be_bytes());
        payload.extend_from_slice(&reason.as_bytes()[..end]);
    }
    let mut frame = Vec::new();
    put_frame(&mut frame, CLOSE, false, &payload);
    frame
}
