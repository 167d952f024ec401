//! The state of an I/O thread as bytes: what passes when a newer data plane takes over. Pure.
//!
//! A stream of records, each a length (u32), a type (u8) and a body, little-endian, with the fields of the
//! control protocol. In this order: [`Record::Thread`]; the publications and frames that several refer
//! to by number, [`Record::Shared`] behind them; what was seen; the topics; every slot in its order, behind a
//! connection its [`Record::Auth`] if it has one; [`Record::End`]. A listener goes with the first record, a reader's socket with its own.
//!
//! The older data plane is our own program, and yet everything is checked as if anybody had sent
//! it: whatever is wrong here must end in "the older one serves on", never in a panic.

mod connection;
#[cfg(test)]
mod tests;

use crate::control::{
    Malformed, Message, Reader, Slow, Topic, put_bytes16, put_bytes32, put_text8,
};
use crate::publication::Identity;

pub use connection::{SavedConnection, SavedExtra, SavedWaiting};

/// The format that is written. Every format up to this one is read: 1 has no auth states.
pub const FORMAT: u16 = 2;
/// The longest record: a frame of the longest push, with everything in it escaped.
const MAX_RECORD: usize = 128 << 20;

/// One record.
#[derive(Debug, Clone, PartialEq)]
pub enum Record<'a> {
    /// The thread itself; its listener goes with it.
    Thread {
        /// Its number.
        number: u16,
        /// Its clock, which goes on in the newer data plane.
        now_ms: u64,
    },
    /// A message that outboxes refer to by this number, in all threads.
    Publication {
        /// The number.
        number: u32,
        /// Its topic.
        topic: Topic<'a>,
        /// What its readers get.
        message: Message<'a>,
    },
    /// A frame that outboxes refer to by this number, in all threads.
    Frame {
        /// The number.
        number: u32,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// No more of the last two come from this thread.
    Shared,
    /// Identities seen since a time (ms since the epoch), a part of them.
    Seen {
        /// The time.
        start: u64,
        /// Part of what was seen since then.
        identities: Vec<Identity>,
    },
    /// A topic. Slots refer to it by its place among the topics, from 0.
    Topic(&'a str),
    /// The next slot is free; it was used so often.
    Free(u32),
    /// The next slot's connection; its socket goes with it.
    Connection(Box<SavedConnection<'a>>),
    /// That was all: so many connections.
    End(u32),
    /// The auth state of the connection that came last; see [`crate::control::Auth`].
    Auth {
        /// Whom `evict` calls it; empty for nobody.
        user: &'a str,
        /// When its login was issued, ms since the epoch.
        issued_ms: u64,
        /// When it runs out, ms since the epoch; 0: never.
        ends_ms: u64,
        /// What it means to control planes.
        blob: &'a [u8],
    },
}

/// How long the first record in `bytes` is with its length and type, if they are there.
///
/// # Errors
/// No record is that long.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*head) as usize;
    if length == 0 || length > MAX_RECORD {
        return Err(Malformed::Length);
    }
    Ok(Some(4 + length))
}

/// Whether a descriptor goes with a record of this type.
pub fn carries_descriptor(kind: u8) -> bool {
    matches!(kind, 1 | 8)
}

impl<'a> Record<'a> {
    /// Append it to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Record::Thread { number, now_ms } => {
                out.push(1);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&now_ms.to_le_bytes());
            }
            Record::Publication { number, topic, message } => {
                out.push(2);
                out.extend_from_slice(&number.to_le_bytes());
                put_topic(out, topic);
                put_message(out, message);
            }
            Record::Frame { number, bytes } => {
                out.push(3);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Record::Shared => out.push(4),
            Record::Seen { start, identities } => {
                out.push(5);
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(identities.as_flattened());
            }
            Record::Topic(name) => {
                out.push(6);
                put_text8(out, name);
                out.extend_from_slice(&[0; TOPIC_UNUSED]);
            }
            Record::Free(generation) => {
                out.push(7);
                out.extend_from_slice(&generation.to_le_bytes());
            }
            Record::Connection(saved) => {
                out.push(8);
                saved.put(out);
            }
            Record::End(connections) => {
                out.push(9);
                out.extend_from_slice(&connections.to_le_bytes());
            }
            Record::Auth { user, issued_ms, ends_ms, blob } => {
                out.push(10);
                put_text8(out, user);
                out.extend_from_slice(&issued_ms.to_le_bytes());
                out.extend_from_slice(&ends_ms.to_le_bytes());
                put_bytes16(out, blob);
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The record of type `kind` with this `body`.
    ///
    /// # Errors
    /// There is none: nothing of what came with it may be used.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut from = Reader::new(body);
        let record = match kind {
            1 => Record::Thread { number: from.u16()?, now_ms: from.u64()? },
            2 => Record::Publication {
                number: from.u32()?,
                topic: topic(&mut from)?,
                message: message(&mut from)?,
            },
            3 => Record::Frame { number: from.u32()?, bytes: from.rest() },
            4 => Record::Shared,
            5 => Record::Seen { start: from.u64()?, identities: identities(from.rest())? },
            6 => {
                let name = from.topic_name()?;
                from.take(2)?;
                numbers(&mut from)?;
                numbers(&mut from)?;
                Record::Topic(name)
            }
            7 => Record::Free(from.u32()?),
            8 => Record::Connection(Box::new(SavedConnection::read(&mut from)?)),
            9 => Record::End(from.u32()?),
            10 => Record::Auth {
                user: from.text8("user")?,
                issued_ms: from.u64()?,
                ends_ms: from.u64()?,
                blob: from.auth_blob()?,
            },
            other => return Err(Malformed::Type(other)),
        };
        from.end()?;
        Ok(record)
    }
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[u32]) {
    out.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn numbers(from: &mut Reader<'_>) -> Result<Vec<u32>, Malformed> {
    (0..from.u32()?).map(|_| from.u32()).collect()
}

// Format 2 has room for what a data plane remembered when it had a memory: nothing reads it now.

/// Whether it was warm and complete, and two lists of numbers.
const TOPIC_UNUSED: usize = 10;

fn put_topic(out: &mut Vec<u8>, topic: &Topic<'_>) {
    put_text8(out, topic.name);
    let slow = match topic.slow {
        Slow::Disconnect => 0,
        Slow::Conflate => 1,
        Slow::DropOldest => 2,
    };
    // How many messages were kept, and whether the newest of each key.
    out.extend([0, 0, 0, 0, slow, 0]);
}

fn topic<'a>(from: &mut Reader<'a>) -> Result<Topic<'a>, Malformed> {
    let name = from.topic_name()?;
    from.u32()?;
    let topic = Topic { name, slow: from.slow()? };
    from.u8()?;
    Ok(topic)
}

fn put_message(out: &mut Vec<u8>, message: &Message<'_>) {
    out.extend_from_slice(&message.id);
    // When it expires.
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&message.version.to_le_bytes());
    put_bytes16(out, message.key.as_bytes());
    put_bytes32(out, message.push);
}

fn message<'a>(from: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
    let id = from.array()?;
    from.u64()?;
    from.message_after(id)
}

fn identities(bytes: &[u8]) -> Result<Vec<Identity>, Malformed> {
    let mut identities = Vec::with_capacity(bytes.len() / size_of::<Identity>());
    let mut from = Reader::new(bytes);
    while from.end().is_err() {
        identities.push(from.array()?);
    }
    Ok(identities)
}
