//! SockJS 1.0 framing on a WebSocket: `o`, `h`, `a[…]` and `c[…]` out, JSON strings in. No I/O.
//!
//! Not here: sessions, polling and streaming; those transports are the control plane's.
//!
//! The decision to question: what a reader sends is read by a JSON reader of our own, because it
//! does three things in one pass into memory that is reused (check the whole payload
//! before anything in it counts, skip what isn't a string, undo the escapes), and a general one
//! makes a tree of values.

mod escape;
mod json;

pub use escape::put_string;
pub use json::Texts;

/// What a session begins with.
pub const OPEN: &[u8] = b"o";

/// The payload can't be read: close with 1002. Nothing in it counts.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct BrokenJson;

/// Append a message frame's payload of one push, `a["…"]`.
pub fn put_message(out: &mut Vec<u8>, push: &str) {
    out.extend_from_slice(b"a[");
    put_string(out, push);
    out.push(b']');
}

/// Append a close frame's payload, `c[code,"reason"]`. A WebSocket close frame follows it.
pub fn put_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    out.extend_from_slice(b"c[");
    out.extend_from_slice(code.to_string().as_bytes());
    out.push(b',');
    put_string(out, reason);
    out.push(b']');
}
