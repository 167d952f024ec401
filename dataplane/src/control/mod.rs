//! The control protocol as bytes: commands in, events out (`docs/dataplane-protocol.md`). Pure.
//!
//! Decoded messages borrow from the receive buffer: a `publish` is copied once, into the frames for
//! readers. Decoding never panics, and allocates no more than the bytes at hand justify.

#[macro_use]
mod messages;

mod codec;
mod handshake;
mod settings;
mod table;

use std::collections::BTreeMap;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

pub use codec::split;
pub(crate) use codec::{in_one_piece, is_topic, length, put_typed, put_with_length, typed};
pub use handshake::{COMMIT, ControlState, Offer, ThreadOptions, take_over};
pub use settings::{ErrorNumbers, Reason, Settings};
pub use table::{Command, CommandKind, Event, EventKind, ToReaders, VERSION};

/// The version of the messages between two data planes, which both must speak.
pub const TAKE_OVER_VERSION: u16 = 1;
/// The first bytes of a `hello`.
pub const MAGIC: [u8; 4] = *b"nfdp";
/// The value of these bytes, once they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Magic;
/// Maximum bytes of a message, without its length.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Maximum bytes of the blob that is kept: of `remember` and of each `mark` since.
pub const MAX_BLOB: usize = 1 << 20;
/// Maximum bytes of the blob of an `auth`.
pub const MAX_AUTH: usize = 1 << 10;

/// The reason why bytes are invalid. Cut off the peer that sent them; readers aren't affected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A message is longer than [`MAX_MESSAGE`], or empty.
    Length,
    /// No message has this type.
    Type(u8),
    /// The body ends before its last field.
    Short,
    /// The body goes on after its last field.
    Long,
    /// A field has an invalid value.
    Value(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Length => write!(f, "a message of impossible length"),
            Malformed::Type(kind) => write!(f, "no message has type {kind}"),
            Malformed::Short => write!(f, "a message ends in the middle of a field"),
            Malformed::Long => write!(f, "a message goes on after its last field"),
            Malformed::Value(field) => write!(f, "bad value of {field}"),
        }
    }
}

impl From<Malformed> for io::Error {
    fn from(why: Malformed) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, why.to_string())
    }
}

/// A connection: its I/O thread, its slot there, and the slot's number of earlier uses.
#[allow(missing_docs, reason = "stated above")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    pub thread: u16,
    pub slot: u32,
    pub generation: u32,
}

/// Bytes of a connection in a message.
const CONNECTION_BYTES: usize = 10;

/// The connections that a command is for: those that have sent the same verb, or a single one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections<'a>(&'a [[u8; CONNECTION_BYTES]]);

impl<'a> Connections<'a> {
    /// Return the connections of one I/O thread.
    pub fn of_thread(self, thread: u16) -> impl Iterator<Item = ConnectionId> + use<'a> {
        let all = self.0.iter().map(|&[a, b, c, d, e, f, g, h, i, j]| ConnectionId {
            thread: u16::from_le_bytes([a, b]),
            slot: u32::from_le_bytes([c, d, e, f]),
            generation: u32::from_le_bytes([g, h, i, j]),
        });
        all.filter(move |one| one.thread == thread)
    }
}

/// Policy for a topic's messages when a reader doesn't keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Slow {
    /// Drop no message; close the reader.
    Disconnect,
    /// Let only the newest version of each key wait.
    Conflate,
    /// Drop the oldest messages.
    DropOldest,
}

/// A topic, as commands name it.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic<'a> {
    pub name: &'a str,
    pub slow: Slow,
}

/// A message as the control plane sends it.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicMessage<'a> {
    pub id: [u8; 16],
    /// -1: none.
    pub version: i64,
    /// Empty: none.
    pub key: &'a str,
    #[serde(serialize_with = "in_one_piece")]
    pub push: &'a [u8],
}

/// The acceptance of a `subscribe`: its reply, and the messages before live ones.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acceptance<'a> {
    pub topic: Topic<'a>,
    pub batch: u64,
    pub seen: bool,
    pub reference: &'a [u8],
    pub push: &'a [u8],
    pub messages: Vec<TopicMessage<'a>>,
}

/// A reader's verb, or the blob of its auth state.
pub type Text = Box<[u8]>;

/// Connections by auth state (empty for none) and verb: those that have sent the same are together.
pub type Verbs = BTreeMap<(Text, Text), Vec<ConnectionId>>;

/// A message's type and body, and the number of its bytes.
pub type Split<'a> = (u8, &'a [u8], usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SUBSCRIBER: ConnectionId = ConnectionId { thread: 1, slot: 2, generation: 3 };

    fn publish_body() -> Vec<u8> {
        let mut body = 7u64.to_le_bytes().to_vec();
        body.extend_from_slice(b"\x06news.x\x01");
        body.extend_from_slice(&[9; 16]);
        body.extend_from_slice(&(-1i64).to_le_bytes());
        body.extend_from_slice(b"\x01\0k\x02\0\0\0{}");
        body
    }

    #[test]
    fn a_publish_is_read_field_by_field() {
        let body = publish_body();
        let topic = Topic { name: "news.x", slow: Slow::Conflate };
        let message = TopicMessage { id: [9; 16], version: -1, key: "k", push: b"{}" };
        assert_eq!(Command::decode(3, &body), Ok(Command::Publish { number: 7, topic, message }));
    }

    #[test]
    fn a_stamp_names_a_series_of_bounded_length() {
        let body = |name: &[u8]| [&5u64.to_le_bytes()[..], &[name.len() as u8], name].concat();
        let stamp = Command::Stamp { taken_ms: 5, series: "gold,oregon" };
        assert_eq!(Command::decode(23, &body(b"gold,oregon")), Ok(stamp));
        assert_eq!(Command::decode(23, &body(&[b'x'; 65])), Err(Malformed::Value("series")));
    }

    #[test]
    fn a_body_cut_anywhere_is_short_and_one_byte_more_is_long() {
        let mut body = publish_body();
        for end in 0..body.len() {
            assert_eq!(Command::decode(3, &body[..end]), Err(Malformed::Short), "cut at {end}");
        }
        body.push(0);
        assert_eq!(Command::decode(3, &body), Err(Malformed::Long));
    }

    #[test]
    fn a_message_is_split_off_when_it_is_whole() {
        let bytes = [3, 0, 0, 0, 7, 1, 2, 99];
        for end in 0..7 {
            assert_eq!(split(&bytes[..end]), Ok(None));
        }
        assert_eq!(split(&bytes), Ok(Some((7, &[1u8, 2][..], 7))));
    }

    #[test]
    fn an_impossible_length_is_refused_before_its_bytes_come() {
        assert_eq!(split(&[0, 0, 0, 0]), Err(Malformed::Length));
        assert_eq!(split(&[1, 0, 0, 1]), Err(Malformed::Length));
    }

    #[test]
    fn a_count_that_the_bytes_do_not_keep_costs_nothing() {
        let mut body = b"\x01\0\0\0\0\0\0\0\x01x\0".to_vec();
        body.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Command::decode(15, &body), Err(Malformed::Short));
    }

    #[test]
    fn a_topic_that_could_break_out_of_a_push_is_refused() {
        let mut body = b"\0\0\x03a\"b".to_vec();
        body.extend_from_slice(&[0; 4]);
        assert_eq!(Command::decode(6, &body), Err(Malformed::Value("topic")));
    }

    #[test]
    fn a_hello_needs_the_magic() {
        assert_eq!(
            Command::decode(1, b"nfdp\x01\0"),
            Ok(Command::Hello { magic: Magic, version: 1 })
        );
        assert_eq!(Command::decode(1, b"HTTP\x01\0"), Err(Malformed::Value("magic")));
    }

    #[test]
    fn verbs_are_written_with_their_connections() {
        let mut out = Vec::new();
        let other = ConnectionId { slot: 4, ..SUBSCRIBER };
        let sent = [
            ((*b"").into(), (*b"{}").into(), vec![SUBSCRIBER, other]),
            ((*b"me").into(), (*b"{}").into(), vec![SUBSCRIBER]),
        ];
        let verbs = sent.map(|(auth, text, by)| ((auth, text), by)).into();
        Event::Verbs { verbs: &verbs }.encode(&mut out);
        let mut body = b"\x82\x02\0\0\0".to_vec();
        body.extend(b"\x02\0\x01\0\x02\0\0\0\x03\0\0\0\x01\0\x04\0\0\0\x03\0\0\0\0\0\x02\0\0\0{}");
        body.extend(b"\x01\0\x01\0\x02\0\0\0\x03\0\0\0\x02\0me\x02\0\0\0{}");
        assert_eq!(out[..4], (body.len() as u32).to_le_bytes());
        assert_eq!(out[4..], body);
    }

    #[test]
    fn a_shared_answer_names_each_reader_and_a_thread_finds_its_own() {
        let body = b"\x02\0\x01\0\x02\0\0\0\x03\0\0\0\x09\0\x02\0\0\0\x03\0\0\0\x02\0\0\0{}";
        let Ok(Command::ToReaders(readers, ToReaders::Reply { push })) = Command::decode(7, body)
        else {
            panic!("a reply");
        };
        assert_eq!(push, b"{}");
        assert_eq!(readers.of_thread(1).collect::<Vec<_>>(), [SUBSCRIBER]);
        assert_eq!(readers.of_thread(2).count(), 0);
        assert_eq!(Command::decode(7, &body[..21]), Err(Malformed::Short));
    }

    #[test]
    fn a_mark_is_whatever_bytes_there_are() {
        assert_eq!(Command::decode(24, b"\x03\0one"), Ok(Command::Mark { mark: b"one" }));
        assert_eq!(Command::decode(24, b"\x04\0one"), Err(Malformed::Short));
    }

    fn auth_body(blob: &[u8]) -> Vec<u8> {
        let mut body = b"\x01\0\x01\0\x02\0\0\0\x03\0\0\0\x0242".to_vec();
        body.extend_from_slice(&5u64.to_le_bytes());
        body.extend_from_slice(&6u64.to_le_bytes());
        body.extend_from_slice(&(blob.len() as u16).to_le_bytes());
        body.extend_from_slice(blob);
        body.extend_from_slice(b"\x02\0\0\0{}");
        body
    }

    #[test]
    fn an_auth_state_is_read_field_by_field_and_has_a_bound() {
        let auth =
            ToReaders::Auth { user: "42", issued_ms: 5, ends_ms: 6, auth: b"me", push: b"{}" };
        let readers = Connections(&[[1, 0, 2, 0, 0, 0, 3, 0, 0, 0]]);
        let command = Command::ToReaders(readers, auth);
        assert_eq!(Command::decode(16, &auth_body(b"me")), Ok(command));
        let longest = auth_body(&[7; MAX_AUTH]);
        assert!(Command::decode(16, &longest).is_ok());
        let longer = auth_body(&[7; MAX_AUTH + 1]);
        assert_eq!(Command::decode(16, &longer), Err(Malformed::Value("auth")));
    }

    #[test]
    fn an_eviction_names_users_and_times() {
        let mut body = b"\x04gone\x02\0\0\0\x0242".to_vec();
        body.extend_from_slice(&5u64.to_le_bytes());
        body.extend_from_slice(b"\x017");
        body.extend_from_slice(&6u64.to_le_bytes());
        let users = vec![("42", 5), ("7", 6)];
        assert_eq!(Command::decode(17, &body), Ok(Command::Evict { reason: "gone", users }));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_command_or_an_error(kind: u8, body: Vec<u8>) {
            let _ = Command::decode(kind, &body);
        }
    }
}
