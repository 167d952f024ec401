//! The server's half of the opening handshake (RFC 6455 section 4.2).

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use super::fields::HeaderFields;
use super::{HttpRefusal, SUBPROTOCOL};
use crate::control::Settings;
use crate::deflate::Agreement;

/// RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Decoder that permits left-over bits: some libraries use 24 random characters as the key.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Format of the content of WebSocket messages.
#[derive(Debug, PartialEq, Eq, Clone, Copy, Hash, Serialize, Deserialize)]
pub enum Framing {
    /// A verb or push per message: `/websocket`, `/sockjs/websocket`.
    Raw,
    /// SockJS frames: `/sockjs/<server>/<session>/websocket`.
    SockJs,
}

/// A handshake that may be accepted.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Upgrade<'a> {
    /// Format that the reader will use.
    pub framing: Framing,
    /// `Sec-WebSocket-Key`, checked: 24 characters.
    pub key: &'a [u8],
    /// The agreed compression.
    pub deflate: Option<Agreement>,
    /// True if our subprotocol was offered.
    pub protocol: bool,
    /// The reader's token, if the request has one; unchecked.
    pub token: Option<&'a [u8]>,
    /// Size of the head; frames may follow it at once.
    pub head_bytes: usize,
}

impl Upgrade<'_> {
    /// Append the answer, status 101.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\n\
              Upgrade: websocket\r\n\
              Connection: Upgrade\r\n\
              Sec-WebSocket-Accept: ",
        );
        out.extend_from_slice(accept_key(self.key).as_bytes());
        if self.protocol {
            out.extend_from_slice(b"\r\nSec-WebSocket-Protocol: ");
            out.extend_from_slice(SUBPROTOCOL);
        }
        if let Some(agreement) = self.deflate {
            out.extend_from_slice(b"\r\nSec-WebSocket-Extensions: ");
            out.extend_from_slice(agreement.answer().as_bytes());
        }
        out.extend_from_slice(b"\r\n\r\n");
    }
}

/// Return the verb `login` with this token. A token with impossible bytes becomes empty.
pub fn login_verb(token: &[u8]) -> Vec<u8> {
    // RFC 7515 section 2: base64url and dots. The other bytes of the list need no escape in JSON.
    let fine = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~+/=-".contains(byte);
    let token = if token.iter().all(fine) { token } else { b"" };
    [br#"{"action":"login","token":""#, token, br#""}"#].concat()
}

/// Return `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
pub fn accept_key(key: &[u8]) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// Return the handshake, or the answer to the first broken rule, in the Tornado engine's order.
pub(super) fn check<'a>(
    fields: &HeaderFields<'a>,
    is_http11: bool,
    framing: Framing,
    head_bytes: usize,
    settings: &Settings,
) -> Result<Upgrade<'a>, HttpRefusal> {
    // RFC 6455 section 4.4.
    if !fields.version.is_missing() && fields.version.value() != Some(b"13") {
        return Err(HttpRefusal::WrongVersion);
    }
    // SockJS's own texts, which its test suite requires.
    if !fields.upgrade {
        return Err(HttpRefusal::BadRequest("Can \"Upgrade\" only to \"WebSocket\"."));
    }
    if !fields.connection {
        return Err(HttpRefusal::BadRequest("\"Connection\" must be \"Upgrade\"."));
    }
    let key = fields.key.value().filter(|key| is_nonce(key));
    let host = fields.host.value().filter(|host| !host.is_empty());
    let (Some(key), Some(_), true) = (key, host, is_http11) else {
        return Err(HttpRefusal::BadRequest("Not a WebSocket handshake."));
    };
    if fields.version.is_missing() {
        return Err(HttpRefusal::WrongVersion);
    }
    if fields.origin.is_doubled {
        return Err(HttpRefusal::BadRequest("Not a WebSocket handshake."));
    }
    if !fields.allowed_by(settings) {
        return Err(HttpRefusal::BadOrigin);
    }
    Ok(Upgrade {
        framing,
        key,
        deflate: fields.deflate.filter(|_| settings.deflate_bytes > 0),
        protocol: fields.protocol,
        token: fields.token(settings),
        head_bytes,
    })
}

/// Return whether a key is 16 bytes in base64, padded (RFC 6455 section 4.2.1).
fn is_nonce(key: &[u8]) -> bool {
    let mut nonce = [0; 18];
    LENIENT.decode_slice(key, &mut nonce) == Ok(16)
}
