//! The state of an I/O thread as bytes: what passes when a newer data plane takes over. Pure.
//!
//! A stream of records, each a length (u32), a type (u8) and a body, little-endian, with the fields of the
//! control protocol. In this order: [`Record::Thread`]; the publications and frames that several refer
//! to by number, [`Record::Shared`] behind them; what was seen; the topics; every slot in its order, behind a
//! connection its [`Record::Badge`] if it has one; [`Record::End`]. A listener goes with the first record, a reader's socket with its own.
//!
//! The older data plane is our own program, and yet everything is checked as if a stranger had sent
//! it: whatever is wrong here must end in "the older one serves on", never in a panic.

mod carried;

use crate::control::{
    Malformed, Message, Reader, Topic, put_bytes16, put_message, put_text8, put_topic,
};
use crate::publication::Identity;

pub use carried::{Carried, CarriedExtra, CarriedWait};

/// The format that is written. Every format up to this one is read: 1 has no badges.
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
    /// A message that memories or outboxes refer to by this number, in all threads.
    Publication {
        /// The number.
        number: u32,
        /// Its topic and that one's policy.
        topic: Topic<'a>,
        /// It.
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
        /// They.
        identities: Vec<Identity>,
    },
    /// A topic. Slots refer to it by its place among the topics, from 0.
    Topic {
        /// Its name.
        name: &'a str,
        /// Whether the control plane has said what came before.
        warm: bool,
        /// Whether nothing older than the first of `recent` exists.
        complete: bool,
        /// Numbers of publications, oldest first.
        recent: Vec<u32>,
        /// The newest of each key, the one renewed longest ago first.
        latest: Vec<u32>,
    },
    /// The next slot is free; it was used so often.
    Free(u32),
    /// The next slot's connection; its socket goes with it.
    Connection(Box<Carried<'a>>),
    /// That was all: so many connections.
    End(u32),
    /// The badge of the connection that came last.
    Badge {
        /// See [`crate::control::Badge`].
        user: &'a str,
        /// Likewise.
        issued_ms: u64,
        /// Likewise.
        expires_ms: u64,
        /// Likewise.
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
#[must_use]
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
            Record::Topic { name, warm, complete, recent, latest } => {
                out.push(6);
                put_text8(out, name);
                out.extend([u8::from(*warm), u8::from(*complete)]);
                put_numbers(out, recent);
                put_numbers(out, latest);
            }
            Record::Free(generation) => {
                out.push(7);
                out.extend_from_slice(&generation.to_le_bytes());
            }
            Record::Connection(carried) => {
                out.push(8);
                carried.put(out);
            }
            Record::End(connections) => {
                out.push(9);
                out.extend_from_slice(&connections.to_le_bytes());
            }
            Record::Badge { user, issued_ms, expires_ms, blob } => {
                out.push(10);
                put_text8(out, user);
                out.extend_from_slice(&issued_ms.to_le_bytes());
                out.extend_from_slice(&expires_ms.to_le_bytes());
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
                topic: from.topic()?,
                message: from.message()?,
            },
            3 => Record::Frame { number: from.u32()?, bytes: from.rest() },
            4 => Record::Shared,
            5 => Record::Seen { start: from.u64()?, identities: identities(from.rest())? },
            6 => Record::Topic {
                name: from.topic_name()?,
                warm: from.flag("warm")?,
                complete: from.flag("complete")?,
                recent: numbers(&mut from)?,
                latest: numbers(&mut from)?,
            },
            7 => Record::Free(from.u32()?),
            8 => Record::Connection(Box::new(Carried::read(&mut from)?)),
            9 => Record::End(from.u32()?),
            10 => Record::Badge {
                user: from.text8("user")?,
                issued_ms: from.u64()?,
                expires_ms: from.u64()?,
                blob: from.badge_blob()?,
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

fn identities(bytes: &[u8]) -> Result<Vec<Identity>, Malformed> {
    let mut identities = Vec::with_capacity(bytes.len() / size_of::<Identity>());
    let mut from = Reader::new(bytes);
    while from.end().is_err() {
        identities.push(from.array()?);
    }
    Ok(identities)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;
    use crate::control::Slow;
    use crate::deflate::Agreement;
    use crate::head::Framing;
    use crate::slab::{Ending, Phase};
    use proptest::prelude::*;

    /// It is read as it was written, and isn't read when it is cut at one of `ends`.
    fn again(record: &Record<'_>, ends: impl Fn(usize) -> std::ops::Range<usize>) {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(length(&bytes), Ok(Some(bytes.len())));
        let (kind, body) = (bytes[4], &bytes[5..]);
        assert_eq!(Record::decode(kind, body).as_ref(), Ok(record));
        for end in ends(body.len()) {
            // A part of a list of bytes or identities is one too.
            let cut = Record::decode(kind, &body[..end]);
            assert!(cut.is_err() || matches!(kind, 3 | 5), "cut at {end}");
        }
        let longer = [body, &[0]].concat();
        assert!(Record::decode(kind, &longer).is_err() || kind == 3);
    }

    fn everywhere(size: usize) -> std::ops::Range<usize> {
        0..size
    }

    #[test]
    fn every_record_is_read_as_it_was_written() {
        let topic = Topic { name: "news.x", keep: 10, slow: Slow::Conflate, latest: true };
        let message = Message { id: [9; 16], expires_ms: 5, version: -1, key: "k", push: b"{}" };
        again(&Record::Thread { number: 3, now_ms: 1 << 40 }, everywhere);
        again(&Record::Publication { number: 7, topic, message }, everywhere);
        again(&Record::Frame { number: 8, bytes: b"\x81\x02{}" }, everywhere);
        again(&Record::Shared, everywhere);
        again(&Record::Seen { start: 5, identities: vec![[1; 10], [2; 10]] }, everywhere);
        again(
            &Record::Topic {
                name: "a",
                warm: true,
                complete: false,
                recent: vec![1, 2],
                latest: vec![3],
            },
            everywhere,
        );
        again(&Record::Free(u32::MAX), everywhere);
        again(&Record::End(0), everywhere);
        let badge = Record::Badge { user: "42", issued_ms: 5, expires_ms: 6, blob: b"me" };
        again(&badge, everywhere);
    }

    #[test]
    fn an_impossible_length_is_refused_before_its_bytes_come() {
        assert_eq!(length(&[0, 0, 0, 0]), Err(Malformed::Length));
        assert_eq!(length(&u32::MAX.to_le_bytes()), Err(Malformed::Length));
        assert_eq!(length(&[1, 0, 0]), Ok(None));
    }

    #[test]
    fn a_count_that_the_bytes_do_not_keep_costs_nothing() {
        let mut body = b"\x01x\0\0".to_vec();
        body.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Record::decode(6, &body), Err(Malformed::Short));
    }

    #[test]
    fn a_free_slot_is_no_connection() {
        let mut bytes = Vec::new();
        let carried = Carried { phase: Phase::Free, ..plain() };
        Record::Connection(Box::new(carried)).put(&mut bytes);
        assert_eq!(Record::decode(8, &bytes[5..]), Err(Malformed::Value("phase")));
    }

    fn plain() -> Carried<'static> {
        Carried {
            generation: 1,
            phase: Phase::Open,
            framing: Framing::Raw,
            deflate: None,
            low_water: false,
            heard: 0,
            bucket: 0,
            timer: None,
            counted: None,
            decoder: b"",
            topics: Vec::new(),
            extra: None,
        }
    }

    const PHASES: [Phase; 5] = [
        Phase::Head,
        Phase::Open,
        Phase::Closing(Ending::Wait),
        Phase::Closing(Ending::HalfClose),
        Phase::Closing(Ending::HangUp),
    ];

    proptest! {
        #[test]
        fn a_connection_is_read_as_it_was_written(
            (generation, heard, bucket) in any::<(u32, u32, u64)>(),
            phase in 0_usize..5,
            (sockjs, low_water, window) in any::<(bool, bool, u8)>(),
            (timer, counted) in any::<(Option<u64>, Option<[u8; 4]>)>(),
            (decoder, topics) in any::<(Vec<u8>, Vec<u32>)>(),
            (busy, asked, verbs) in any::<(bool, Option<Vec<u8>>, Vec<Option<Vec<u8>>>)>(),
            (ping, proxied) in any::<(Option<Vec<u8>>, Option<([u8; 16], u16)>)>(),
            (frames, written, soft_since) in any::<(Vec<(u32, Option<u32>)>, u32, Option<u64>)>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let extra = CarriedExtra {
                proxied: proxied.map(|(ip, port)| SocketAddr::new(ip.into(), port)),
                asked: asked.as_deref(),
                waiting: verbs
                    .iter()
                    .map(|verb| verb.as_deref().map_or(CarriedWait::Refusal, CarriedWait::Verb))
                    .chain([CarriedWait::HangUp])
                    .collect(),
                ping: ping.as_deref(),
                frames,
                written,
                soft_since,
            };
            again(&Record::Connection(Box::new(Carried {
                generation,
                phase: PHASES[phase],
                framing: if sockjs { Framing::SockJs } else { Framing::Raw },
                deflate: Agreement::from_byte(window % 20),
                low_water,
                heard,
                bucket,
                timer,
                counted: counted.map(IpAddr::from),
                decoder: &decoder,
                topics,
                extra: busy.then_some(extra),
            })), |size| {
                let end = cut.index(size);
                end..end + 1
            });
        }

        #[test]
        fn any_bytes_are_a_record_or_an_error(kind in 0_u8..12, body: Vec<u8>) {
            let _ = Record::decode(kind, &body);
        }
    }
}
