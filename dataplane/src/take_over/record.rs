//! The state of an I/O thread as bytes, for a take-over by a newer data plane. Pure.
//!
//! A stream of records: each is a length (u32, little-endian) and a [`Record`] as postcard writes
//! it: a type (u8), then its fields. The order is: [`Record::Thread`]; publications and frames, to
//! which others refer by number, and [`Record::Shared`]; identities seen; topics; every slot in its
//! order, with [`Record::Auth`] behind a connection that has one; [`Record::End`]. The listener is
//! sent with the first record, a reader's socket with its own.
//!
//! The older data plane is our own program. Nevertheless all records are checked like bytes from a
//! stranger: any fault must end in "the older one serves on", never in a panic.
//!
//! The decision to question: the bytes are those of the types themselves, in the order of their
//! fields. So no layout is written down twice; a test has the bytes, so that they can't change
//! unnoticed. An addition is a record of its own, last in [`Record`]; any other change is another
//! [`FORMAT`].

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::auth::AuthState;
use crate::control::{
    self, Malformed, Topic, TopicMessage, in_one_piece, is_topic, put_typed, put_with_length, typed,
};
use crate::deflate::Agreement;
use crate::publication::Identity;
use crate::slab::{Phase, ReaderSlot};

/// The format that is written, and the only one that is read: no release had another.
pub const FORMAT: u16 = 3;
/// Maximum bytes of a record: a frame of the longest push, with every byte escaped.
const MAX_RECORD: usize = 128 << 20;

/// A record of the stream.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug, Serialize, Deserialize)]
pub enum Record<'a> {
    /// The thread, and its clock, which the newer data plane continues; with the listener.
    Thread { number: u16, now_ms: u64 },
    /// A message, to which outboxes of all threads refer by this number.
    Publication {
        number: u32,
        #[serde(borrow)]
        topic: Topic<'a>,
        #[serde(borrow)]
        message: TopicMessage<'a>,
    },
    /// A frame, to which outboxes of all threads refer by this number.
    Frame {
        number: u32,
        #[serde(serialize_with = "in_one_piece")]
        bytes: &'a [u8],
    },
    /// End of the publications and frames of this thread.
    Shared,
    /// A part of the identities seen since `start` (ms since the epoch), one after the other.
    Seen {
        start: u64,
        #[serde(serialize_with = "in_one_piece")]
        identities: &'a [u8],
    },
    /// A topic. Slots refer to it by its place among the topics, from 0.
    Topic(&'a str),
    /// The next slot is free; it was used so often.
    Free(u32),
    /// The next slot's connection, with an empty outbox; its socket is sent with it.
    Connection(Box<(ReaderSlot, ConnectionExtras)>),
    /// End of the stream: the number of connections.
    End(u32),
    /// The auth state of the last connection.
    Auth(AuthState),
}

/// State of a connection outside of its slot. Times are in ms of the thread's clock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ConnectionExtras {
    /// Time at which the connection's timer is due.
    pub timer: Option<u64>,
    /// Address under which it was counted.
    pub counted: Option<IpAddr>,
    /// Topics of the connection, by place.
    pub topics: Vec<u32>,
    /// Numbers of the frames in its outbox; with the number of the publication if it isn't firm.
    pub frames: Vec<(u32, Option<u32>)>,
    /// Bytes of the first frame that were written.
    pub written: u32,
    /// Time since which the firm bytes exceed the soft limit.
    pub soft_since: Option<u64>,
}

/// Types of the records with which a descriptor is sent.
const THREAD: u8 = 0;
const CONNECTION: u8 = 7;

/// Return the size of the first record in `bytes`, with its length and type; `None` if the length
/// is incomplete.
///
/// # Errors
/// No record can be that long.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    control::length(bytes, MAX_RECORD)
}

/// Return whether a descriptor is sent with records of this type.
pub fn carries_descriptor(kind: u8) -> bool {
    matches!(kind, THREAD | CONNECTION)
}

impl<'a> Record<'a> {
    /// Append the record to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_with_length(out, |out| put_typed(out, self));
    }

    /// Return the record in these bytes, which follow its length.
    ///
    /// # Errors
    /// The bytes are no record: a descriptor sent with them must not be used.
    pub fn decode(bytes: &'a [u8]) -> Result<Record<'a>, Malformed> {
        typed(bytes).filter(Record::is_possible).ok_or(Malformed::Value("record"))
    }

    /// Check rules that the types don't express.
    fn is_possible(&self) -> bool {
        match self {
            Record::Publication { topic: Topic { name, .. }, .. } | Record::Topic(name) => {
                is_topic(name)
            }
            Record::Connection(saved) => {
                let (ReaderSlot { phase, deflate, decoder, .. }, _) = &**saved;
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

/// Append the record of a connection without copying the connection.
pub fn put_connection(out: &mut Vec<u8>, connection: &ReaderSlot, beside: &ConnectionExtras) {
    put_with_length(out, |out| {
        out.push(CONNECTION);
        put_typed(out, &(connection, beside));
    });
}
