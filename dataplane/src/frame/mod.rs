//! RFC 6455 frames: decoding of readers' frames, encoding of ours. No I/O.
//!
//! Not here: the opening handshake ([`crate::head`]) and permessage-deflate ([`crate::deflate`]);
//! the decoder returns a compressed message still compressed.
//!
//! The decision to question: the decoder works *inside the caller's read buffer*, which all
//! connections of a thread share. It unmasks there and lends the payload out. So a message that
//! arrives in one piece is never copied, and an idle connection owns eight bytes. Only an
//! unfinished message at the end of a read is moved to memory of the connection's own.

mod decode;
mod encode;

pub use decode::{Decoder, Rules, unmask};
pub use encode::{PING_FRAME, close_frame, pong_frame, put_frame};

/// Opcode of a fragment after the first (RFC 6455 section 5.2).
pub const CONTINUATION: u8 = 0x0;
/// Opcode of a text message.
pub const TEXT: u8 = 0x1;
/// Opcode of a binary message.
pub const BINARY: u8 = 0x2;
/// Opcode of a close frame.
pub const CLOSE: u8 = 0x8;
/// Opcode of a ping.
pub const PING: u8 = 0x9;
/// Opcode of a pong.
pub const PONG: u8 = 0xA;
/// Longest payload of a control frame (RFC 6455 section 5.5).
const CONTROL_BYTES: usize = 125;
/// The code of a close frame that had none (RFC 6455 section 7.1.5). It is never sent.
pub const NO_STATUS: u16 = 1005;

/// A whole message or control frame. It borrows from the read buffer or the decoder.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Event<'a> {
    /// A text message, checked to be UTF-8.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A message with RSV1: inflate it ([`crate::deflate::Inflater`]), then check text for UTF-8.
    Compressed {
        /// True for a text message.
        text: bool,
        /// The payload as sent, without the tail that RFC 7692 section 7.2.1 removes.
        payload: &'a [u8],
    },
    /// A ping: answer with a pong of the same payload; of several waiting pings only the newest
    /// needs an answer (RFC 6455 section 5.5.3).
    Ping(&'a [u8]),
    /// A pong: a sign of life, solicited or not.
    Pong(&'a [u8]),
    /// A close frame. Answer with the same code unless ours has been sent, then close TCP (RFC 6455
    /// sections 5.5.1 and 7.1.1). `code` is [`NO_STATUS`] if the frame had none.
    Close {
        /// A code that may appear in a close frame, or [`NO_STATUS`].
        code: u16,
        /// At most 123 bytes.
        reason: &'a str,
    },
}

/// A violation of the protocol by the reader: close (RFC 6455 section 7.4.1) and decode no more of
/// this connection (later bytes are read and dropped).
#[derive(Debug, PartialEq, Eq, Clone, Copy, Hash)]
pub enum Violation {
    /// Broken framing: close with 1002.
    Protocol,
    /// Text that is not UTF-8, or compressed data that is broken: close with 1007.
    InvalidPayload,
    /// A frame or message over its limit: close with 1009.
    TooBig,
}

/// Return whether a close frame may carry `code` (RFC 6455 section 7.4 and the IANA registry).
///
/// 1004–1006 and 1015 must not be sent; 3000–4999 belong to libraries and applications.
pub const fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
