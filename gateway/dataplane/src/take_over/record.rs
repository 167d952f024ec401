//! The state of an I/O thread as bytes: what passes when a newer data plane takes over. Pure.
//!
//! A stream of records, each a length (u32, little-endian) and a [`Record`] as postcard writes it: a type (u8),
//! then its fields. In this order: [`Record::Thread`]; the publications and frames that several refer
//! to by number, [`Record::Shared`] behind them; what was seen; the topics; every slot in its order, behind a
//! connection its [`Record::Auth`] if it has one; [`Record::End`]. A listener goes with the first record, a
//! reader's socket with its own.
//!
//! The older data plane is our own program, and yet everything is checked as if anybody had sent
//! it: whatever is wrong here must end in "the older one serves on", never in a panic.
//!
//! The decision to question: the bytes are those of the types themselves, in the order of their fields. So
//! nothing is written down twice; a test has the bytes, so that nobody changes them unawares. What is new
//! comes as a record of its own, last in [`Record`]; any other change is another [`FORMAT`].

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::auth::AuthState;
use crate::control::{
    self, Malformed, Message, Topic, in_one_piece, is_topic, put_typed, put_with_length, typed,
};
use crate::deflate::Agreement;
use crate::publication::Identity;
use crate::slab::{Connection, Phase};

/// The format that is written, and the only one that is read: there was no release with another.
pub const FORMAT: u16 = 3;
/// The longest record: a frame of the longest push, with everything in it escaped.
const MAX_RECORD: usize = 128 << 20;

/// One record.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug, Serialize, Deserialize)]
pub enum Record<'a> {
    /// The thread itself, and its clock, which goes on in the newer data plane; its listener goes with it.
    Thread { number: u16, now_ms: u64 },
    /// A message that outboxes refer to by this number, in all threads.
    Publication {
        number: u32,
        #[serde(borrow)]
        topic: Topic<'a>,
        #[serde(borrow)]
        message: Message<'a>,
    },
    /// A frame that outboxes refer to by this number, in all threads.
    Frame {
        number: u32,
        #[serde(serialize_with = "in_one_piece")]
        bytes: &'a [u8],
    },
    /// No more of the last two come from this thread.
    Shared,
    /// Identities seen since `start` (ms since the epoch), one after the other; a part of them.
    Seen {
        start: u64,
        #[serde(serialize_with = "in_one_piece")]
        identities: &'a [u8],
    },
    /// A topic. Slots refer to it by its place among the topics, from 0.
    Topic(&'a str),
    /// The next slot is free; it was used so often.
    Free(u32),
    /// The next slot's connection, with an empty outbox; its socket goes with it.
    Connection(Box<(Connection, Beside)>),
    /// That was all: so many connections.
    End(u32),
    /// The auth state of the connection that came last.
    Auth(AuthState),
}

/// What is saved of a connection, but isn't in its slot. Times are in ms of the thread's clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Beside {
    /// When its timer is due.
    pub timer: Option<u64>,
    /// The address that it was counted under.
    pub counted: Option<IpAddr>,
    /// Its topics, by place.
    pub topics: Vec<u32>,
    /// Frames that wait in its outbox, by number; with the number of its publication if it isn't firm.
    pub frames: Vec<(u32, Option<u32>)>,
    /// How much of the first is written.
    pub written: u32,
    /// Since when too much waits that is firm.
    pub soft_since: Option<u64>,
}

/// The types of the records that a descriptor goes with.
const THREAD: u8 = 0;
const CONNECTION: u8 = 7;

/// How long the first record in `bytes` is with its length and type, if they are there.
///
/// # Errors
/// No record is that long.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    control::length(bytes, MAX_RECORD)
}

/// Whether a descriptor goes with a record of this type.
pub fn carries_descriptor(kind: u8) -> bool {
    matches!(kind, THREAD | CONNECTION)
}

impl<'a> Record<'a> {
    /// Append it to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_with_length(out, |out| put_typed(out, self));
    }

    /// The record in these bytes, which come behind its length.
    ///
    /// # Errors
    /// There is none: nothing of what came with it may be used.
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        typed(bytes).filter(Record::is_possible).ok_or(Malformed::Value("record"))
    }

    /// What its types don't say.
    fn is_possible(&self) -> bool {
        match self {
            Record::Publication { topic: Topic { name, .. }, .. } | Record::Topic(name) => {
                is_topic(name)
            }
            Record::Connection(saved) => {
                let (Connection { phase, deflate, decoder, .. }, _) = &**saved;
                *phase != Phase::Free
                    && deflate.is_none_or(Agreement::is_possible)
                    && decoder.is_possible()
            }
            Record::Seen { identities, .. } => {
                identities.len().is_multiple_of(size_of::<Identity>())
            }
            Record::Auth(state) => state.is_possible(),
            _ => true,
        }
    }
}

/// Append the record of a connection that stays where it is.
pub fn put_connection(out: &mut Vec<u8>, connection: &Connection, beside: &Beside) {
    put_with_length(out, |out| {
        out.push(CONNECTION);
        put_typed(out, &(connection, beside));
    });
}
