//! SockJS 1.0 framing on a WebSocket: sends `o`, `h`, `a[…]` and `c[…]`, receives JSON strings. No
//! I/O.
//!
//! Not here: sessions, polling and streaming; those transports are the control plane's.
//!
//! The decision to question: readers' messages are read by a JSON reader of our own. In one pass,
//! into memory that is reused, it checks the whole payload before any text counts, skips values
//! that aren't strings, and resolves escapes. A general JSON library would build a tree of values.

mod escape;
mod json;

pub use escape::put_string;
pub use json::Texts;

/// Payload of the first frame of a session.
pub const OPEN: &[u8] = b"o";

/// Unreadable payload: close with 1002. No text in it counts.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct BrokenJson;

/// Append the payload of a message frame with one push, `a["…"]`.
pub fn put_message(out: &mut Vec<u8>, push: &str) {
    out.extend_from_slice(b"a[");
    put_string(out, push);
    out.push(b']');
}

/// Append the payload of a close frame, `c[code,"reason"]`. A WebSocket close frame follows it.
pub fn put_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    out.extend_from_slice(b"c[");
    out.extend_from_slice(code.to_string().as_bytes());
    out.push(b',');
    put_string(out, reason);
    out.push(b']');
}
