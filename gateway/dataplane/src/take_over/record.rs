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

use crate::auth::AuthState;
use crate::control::{
    self, Fields, Malformed, Message, Slow, Topic, put_bytes16, put_bytes32, put_text8,
    put_with_length,
};
use crate::publication::Identity;
use crate::slab::Connection;

pub use connection::Beside;

/// The format that is written. Every format up to this one is read: 1 has no auth states.
pub const FORMAT: u16 = 2;
/// The longest record: a frame of the longest push, with everything in it escaped.
const MAX_RECORD: usize = 128 << 20;

/// One record.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug)]
pub enum Record<'a> {
    /// The thread itself, and its clock, which goes on in the newer data plane; its listener goes with it.
    Thread { number: u16, now_ms: u64 },
    /// A message that outboxes refer to by this number, in all threads.
    Publication { number: u32, topic: Topic<'a>, message: Message<'a> },
    /// A frame that outboxes refer to by this number, in all threads.
    Frame { number: u32, bytes: &'a [u8] },
    /// No more of the last two come from this thread.
    Shared,
    /// Identities seen since `start` (ms since the epoch), a part of them.
    Seen { start: u64, identities: &'a [Identity] },
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

/// How long the first record in `bytes` is with its length and type, if they are there.
///
/// # Errors
/// No record is that long.
pub fn length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    control::length(bytes, MAX_RECORD)
}

/// Whether a descriptor goes with a record of this type.
pub fn carries_descriptor(kind: u8) -> bool {
    matches!(kind, 1 | 8)
}

impl<'a> Record<'a> {
    /// Append it to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_with_length(out, |out| self.put_body(out));
    }

    fn put_body(&self, out: &mut Vec<u8>) {
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
            Record::Connection(saved) => connection::put(out, &saved.0, &saved.1),
            Record::End(connections) => {
                out.push(9);
                out.extend_from_slice(&connections.to_le_bytes());
            }
            Record::Auth(state) => {
                out.push(10);
                put_text8(out, state.user());
                out.extend_from_slice(&state.issued_ms().to_le_bytes());
                out.extend_from_slice(&state.ends_ms().to_le_bytes());
                put_bytes16(out, state.blob());
            }
        }
    }

    /// The record of type `kind` with this `body`.
    ///
    /// # Errors
    /// There is none: nothing of what came with it may be used.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Record<'a>, Malformed> {
        let mut from = Fields::new(body);
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
                from.list32::<u32, Vec<_>>(Fields::u32)?;
                from.list32::<u32, Vec<_>>(Fields::u32)?;
                Record::Topic(name)
            }
            7 => Record::Free(from.u32()?),
            8 => Record::Connection(Box::new(connection::read(&mut from)?)),
            9 => Record::End(from.u32()?),
            10 => {
                let (user, issued_ms, ends_ms) = (from.text8("user")?, from.u64()?, from.u64()?);
                Record::Auth(AuthState::new(user, issued_ms, ends_ms, from.auth_blob()?))
            }
            other => return Err(Malformed::Type(other)),
        };
        from.end()?;
        Ok(record)
    }
}

/// Append the record of a connection that stays where it is.
pub fn put_connection(out: &mut Vec<u8>, connection: &Connection, beside: &Beside) {
    put_with_length(out, |out| connection::put(out, connection, beside));
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

fn topic<'a>(from: &mut Fields<'a>) -> Result<Topic<'a>, Malformed> {
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

fn message<'a>(from: &mut Fields<'a>) -> Result<Message<'a>, Malformed> {
    let id = from.array()?;
    from.u64()?;
    from.message_after(id)
}

fn identities(bytes: &[u8]) -> Result<&[Identity], Malformed> {
    let (whole, rest) = bytes.as_chunks();
    if rest.is_empty() { Ok(whole) } else { Err(Malformed::Short) }
}
