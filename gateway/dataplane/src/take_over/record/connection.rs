//! One connection in the state of an I/O thread, as bytes. Times are in ms of the thread's clock.

use std::net::{IpAddr, SocketAddr};

use crate::bucket::Bucket;
use crate::closing::Ending;
use crate::control::{Fields, Malformed, put_bytes32};
use crate::deflate::Agreement;
use crate::frame::{Decoder, Rules};
use crate::head::Framing;
use crate::slab::{Connection, Extra, Phase, Waiting, fresh};

/// A frame that was begun under other settings may be longer than today's allow.
const ANY_FRAME: Rules = Rules { message_bytes: u32::MAX as usize, deflate: true };
/// No [`Agreement`] has this byte.
const NO_DEFLATE: u8 = u8::MAX;

/// What is saved of a connection, but isn't in its slot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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

pub(super) fn put(out: &mut Vec<u8>, connection: &Connection, beside: &Beside) {
    out.push(8);
    put_u32(out, connection.generation);
    let phase = match connection.phase {
        Phase::Free => 0,
        Phase::Head => 1,
        Phase::Open => 2,
        Phase::Closing(Ending::Wait) => 3,
        Phase::Closing(Ending::HalfClose) => 4,
        Phase::Closing(Ending::HangUp) => 5,
    };
    let framing = match connection.framing {
        Framing::Raw => 0,
        Framing::SockJs => 1,
    };
    let deflate = connection.deflate.map_or(NO_DEFLATE, Agreement::to_byte);
    out.extend([phase, framing, deflate, connection.low_water.into()]);
    out.extend_from_slice(&connection.heard.to_le_bytes());
    out.extend_from_slice(&connection.bucket.to_bits().to_le_bytes());
    put_maybe(out, beside.timer, put_u64);
    put_ip(out, beside.counted);
    let mut decoder = Vec::new();
    connection.decoder.save(&mut decoder);
    put_bytes32(out, &decoder);
    put_list32(out, &beside.topics, |out, place| put_u32(out, *place));
    put_maybe(out, connection.extra.as_deref(), |out, extra| put_extra(out, extra, beside));
}

/// A connection without its socket and its outbox, and what was beside it.
pub(super) fn read(from: &mut Fields<'_>) -> Result<(Connection, Beside), Malformed> {
    let mut connection = fresh(-1, from.u32()?);
    connection.phase = match from.u8()? {
        1 => Phase::Head,
        2 => Phase::Open,
        3 => Phase::Closing(Ending::Wait),
        4 => Phase::Closing(Ending::HalfClose),
        5 => Phase::Closing(Ending::HangUp),
        _ => return Err(Malformed::Value("phase")),
    };
    connection.framing = match from.u8()? {
        0 => Framing::Raw,
        1 => Framing::SockJs,
        _ => return Err(Malformed::Value("framing")),
    };
    connection.deflate = match from.u8()? {
        NO_DEFLATE => None,
        byte => Some(Agreement::from_byte(byte).ok_or(Malformed::Value("deflate"))?),
    };
    connection.low_water = from.flag("low_water")?;
    connection.heard = from.u32()?;
    connection.bucket = Bucket::from_bits(from.u64()?);
    let mut beside =
        Beside { timer: maybe(from, Fields::u64)?, counted: ip(from)?, ..Beside::default() };
    let decoder = Decoder::restore(from.bytes32()?, &ANY_FRAME);
    connection.decoder = decoder.map_err(|_| Malformed::Value("frame"))?;
    beside.topics = from.list32(Fields::u32)?;
    connection.extra = maybe(from, |from| extra(from, &mut beside).map(Box::new))?;
    Ok((connection, beside))
}

fn put_extra(out: &mut Vec<u8>, extra: &Extra, beside: &Beside) {
    put_ip(out, extra.proxied.map(|it| it.ip()));
    if let Some(proxied) = extra.proxied {
        out.extend_from_slice(&proxied.port().to_le_bytes());
    }
    put_maybe(out, extra.asked.as_deref(), put_bytes32);
    put_list32(out, &extra.waiting, |out, waiting| match waiting {
        Waiting::Verb(verb) => {
            out.push(0);
            put_bytes32(out, verb);
        }
        Waiting::Refusal => out.push(1),
        Waiting::HangUp => out.push(2),
    });
    put_maybe(out, extra.ping.as_deref(), put_bytes32);
    put_list32(out, &beside.frames, |out, (frame, publication)| {
        put_u32(out, *frame);
        put_maybe(out, *publication, put_u32);
    });
    put_u32(out, beside.written);
    put_maybe(out, beside.soft_since, put_u64);
}

fn extra(from: &mut Fields<'_>, beside: &mut Beside) -> Result<Extra, Malformed> {
    let proxied = match ip(from)? {
        Some(ip) => Some(SocketAddr::new(ip, from.u16()?)),
        None => None,
    };
    let mut extra = Extra { proxied, ..Extra::default() };
    extra.asked = maybe(from, Fields::bytes32)?.map(Box::from);
    extra.waiting = from.list32(|from| {
        Ok(match from.u8()? {
            0 => Waiting::Verb(from.bytes32()?.into()),
            1 => Waiting::Refusal,
            2 => Waiting::HangUp,
            _ => return Err(Malformed::Value("waiting")),
        })
    })?;
    let bytes = |one: &Waiting| if let Waiting::Verb(verb) = one { verb.len() } else { 0 };
    extra.waiting_bytes = extra.waiting.iter().map(bytes).sum();
    extra.ping = maybe(from, Fields::bytes32)?.map(Box::from);
    beside.frames = from.list32(|from| Ok((from.u32()?, maybe(from, Fields::u32)?)))?;
    beside.written = from.u32()?;
    beside.soft_since = maybe(from, Fields::u64)?;
    Ok(extra)
}

fn put_u32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_maybe<T>(out: &mut Vec<u8>, it: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.push(it.is_some().into());
    if let Some(it) = it {
        put(out, it);
    }
}

fn maybe<'a, T>(
    from: &mut Fields<'a>,
    read: impl FnOnce(&mut Fields<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    Ok(if from.flag("presence")? { Some(read(from)?) } else { None })
}

fn put_list32<'a, T: 'a, All>(out: &mut Vec<u8>, all: All, put: impl Fn(&mut Vec<u8>, &T))
where
    All: IntoIterator<Item = &'a T, IntoIter: ExactSizeIterator>,
{
    let all = all.into_iter();
    put_u32(out, all.len() as u32);
    all.for_each(|one| put(out, one));
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

fn ip(from: &mut Fields<'_>) -> Result<Option<IpAddr>, Malformed> {
    match from.u8()? {
        0 => Ok(None),
        4 => Ok(Some(IpAddr::from(from.array::<4>()?))),
        6 => Ok(Some(IpAddr::from(from.array::<16>()?))),
        _ => Err(Malformed::Value("address")),
    }
}
