//! One connection in the state of an I/O thread, as bytes.

use std::net::{IpAddr, SocketAddr};

use super::{numbers, put_numbers};
use crate::closing::Ending;
use crate::control::{Malformed, Reader, put_bytes32};
use crate::deflate::Agreement;
use crate::head::Framing;
use crate::slab::Phase;

/// A connection. Times are in ms of the thread's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedConnection<'a> {
    /// How often its slot was used before.
    pub generation: u32,
    /// Where it is in its life; never [`Phase::Free`].
    pub phase: Phase,
    /// What is inside its messages.
    pub framing: Framing,
    /// What was agreed on compression.
    pub deflate: Option<Agreement>,
    /// Whether the kernel was told to wake us later than at the first byte.
    pub low_water: bool,
    /// See [`crate::slab::Connection::heard`].
    pub heard: u32,
    /// See [`crate::bucket::Bucket::to_bits`].
    pub bucket: u64,
    /// When its timer is due.
    pub timer: Option<u64>,
    /// The address that it was counted under.
    pub counted: Option<IpAddr>,
    /// See [`crate::frame::Decoder::save`].
    pub decoder: &'a [u8],
    /// Its topics, by place.
    pub topics: Vec<u32>,
    /// What an idle one doesn't have.
    pub extra: Option<SavedExtra<'a>>,
}

/// What a busy connection has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedExtra<'a> {
    /// Who the proxy in front says it is.
    pub proxied: Option<SocketAddr>,
    /// The verb that the control plane is to answer.
    pub asked: Option<&'a [u8]>,
    /// What stands in line behind it.
    pub waiting: Vec<SavedWaiting<'a>>,
    /// The ping to answer.
    pub ping: Option<&'a [u8]>,
    /// Frames that wait, by number; with the number of its publication if it isn't firm.
    pub frames: Vec<(u32, Option<u32>)>,
    /// How much of the first is written.
    pub written: u32,
    /// Since when too much waits that is firm.
    pub soft_since: Option<u64>,
}

/// See [`crate::slab::Waiting`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the same names say it there")]
pub enum SavedWaiting<'a> {
    Verb(&'a [u8]),
    Refusal,
    HangUp,
}

impl<'a> SavedConnection<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.generation.to_le_bytes());
        let phase = match self.phase {
            Phase::Free => 0,
            Phase::Head => 1,
            Phase::Open => 2,
            Phase::Closing(Ending::Wait) => 3,
            Phase::Closing(Ending::HalfClose) => 4,
            Phase::Closing(Ending::HangUp) => 5,
        };
        let framing = match self.framing {
            Framing::Raw => 0,
            Framing::SockJs => 1,
        };
        let deflate = self.deflate.map_or(NO_DEFLATE, Agreement::to_byte);
        out.extend([phase, framing, deflate, self.low_water.into()]);
        out.extend_from_slice(&self.heard.to_le_bytes());
        out.extend_from_slice(&self.bucket.to_le_bytes());
        put_time(out, self.timer);
        put_ip(out, self.counted);
        put_bytes32(out, self.decoder);
        put_numbers(out, &self.topics);
        out.push(self.extra.is_some().into());
        if let Some(extra) = &self.extra {
            extra.put(out);
        }
    }

    pub(super) fn read(from: &mut Reader<'a>) -> Result<SavedConnection<'a>, Malformed> {
        Ok(SavedConnection {
            generation: from.u32()?,
            phase: match from.u8()? {
                1 => Phase::Head,
                2 => Phase::Open,
                3 => Phase::Closing(Ending::Wait),
                4 => Phase::Closing(Ending::HalfClose),
                5 => Phase::Closing(Ending::HangUp),
                _ => return Err(Malformed::Value("phase")),
            },
            framing: match from.u8()? {
                0 => Framing::Raw,
                1 => Framing::SockJs,
                _ => return Err(Malformed::Value("framing")),
            },
            deflate: match from.u8()? {
                NO_DEFLATE => None,
                byte => Some(Agreement::from_byte(byte).ok_or(Malformed::Value("deflate"))?),
            },
            low_water: from.flag("low_water")?,
            heard: from.u32()?,
            bucket: from.u64()?,
            timer: time(from)?,
            counted: ip(from)?,
            decoder: from.bytes32()?,
            topics: numbers(from)?,
            extra: if from.flag("extra")? { Some(SavedExtra::read(from)?) } else { None },
        })
    }
}

impl<'a> SavedExtra<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_ip(out, self.proxied.map(|it| it.ip()));
        if let Some(proxied) = self.proxied {
            out.extend_from_slice(&proxied.port().to_le_bytes());
        }
        put_maybe(out, self.asked);
        out.extend_from_slice(&(self.waiting.len() as u32).to_le_bytes());
        for wait in &self.waiting {
            match wait {
                SavedWaiting::Verb(verb) => {
                    out.push(0);
                    put_bytes32(out, verb);
                }
                SavedWaiting::Refusal => out.push(1),
                SavedWaiting::HangUp => out.push(2),
            }
        }
        put_maybe(out, self.ping);
        out.extend_from_slice(&(self.frames.len() as u32).to_le_bytes());
        for (frame, publication) in &self.frames {
            out.extend_from_slice(&frame.to_le_bytes());
            out.push(publication.is_some().into());
            if let Some(number) = publication {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(&self.written.to_le_bytes());
        put_time(out, self.soft_since);
    }

    fn read(from: &mut Reader<'a>) -> Result<SavedExtra<'a>, Malformed> {
        let proxied = match ip(from)? {
            Some(ip) => Some(SocketAddr::new(ip, from.u16()?)),
            None => None,
        };
        // No capacity is set aside for counts that the bytes may not keep.
        Ok(SavedExtra {
            proxied,
            asked: maybe(from)?,
            waiting: (0..from.u32()?).map(|_| wait(from)).collect::<Result<_, _>>()?,
            ping: maybe(from)?,
            frames: (0..from.u32()?).map(|_| frame(from)).collect::<Result<_, _>>()?,
            written: from.u32()?,
            soft_since: time(from)?,
        })
    }
}

/// No [`Agreement`] has this byte.
const NO_DEFLATE: u8 = u8::MAX;

fn put_time(out: &mut Vec<u8>, time: Option<u64>) {
    out.push(time.is_some().into());
    if let Some(time) = time {
        out.extend_from_slice(&time.to_le_bytes());
    }
}

fn time(from: &mut Reader<'_>) -> Result<Option<u64>, Malformed> {
    Ok(if from.flag("time")? { Some(from.u64()?) } else { None })
}

fn put_maybe(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    out.push(bytes.is_some().into());
    if let Some(bytes) = bytes {
        put_bytes32(out, bytes);
    }
}

fn maybe<'a>(from: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    Ok(if from.flag("maybe")? { Some(from.bytes32()?) } else { None })
}

fn put_ip(out: &mut Vec<u8>, ip: Option<IpAddr>) {
    match ip {
        None => out.push(0),
        Some(IpAddr::V4(ip)) => {
            out.push(4);
            out.extend_from_slice(&ip.octets());
        }
        Some(IpAddr::V6(ip)) => {
            out.push(6);
            out.extend_from_slice(&ip.octets());
        }
    }
}

fn ip(from: &mut Reader<'_>) -> Result<Option<IpAddr>, Malformed> {
    match from.u8()? {
        0 => Ok(None),
        4 => Ok(Some(IpAddr::from(from.array::<4>()?))),
        6 => Ok(Some(IpAddr::from(from.array::<16>()?))),
        _ => Err(Malformed::Value("address")),
    }
}

fn wait<'a>(from: &mut Reader<'a>) -> Result<SavedWaiting<'a>, Malformed> {
    match from.u8()? {
        0 => Ok(SavedWaiting::Verb(from.bytes32()?)),
        1 => Ok(SavedWaiting::Refusal),
        2 => Ok(SavedWaiting::HangUp),
        _ => Err(Malformed::Value("waiting")),
    }
}

fn frame(from: &mut Reader<'_>) -> Result<(u32, Option<u32>), Malformed> {
    let number = from.u32()?;
    let publication = if from.flag("droppable")? { Some(from.u32()?) } else { None };
    Ok((number, publication))
}
