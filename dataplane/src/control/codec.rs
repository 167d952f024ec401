//! Forms of fields: their readers, from the front of a body, and their writers, at its end.

use std::net::IpAddr;

use serde::{Deserialize, Serialize, Serializer};

use super::{Acceptance, Magic, Malformed, Offer, Slow, Split, Topic, TopicMessage};
use super::{CONNECTION_BYTES, Connections, MAGIC, MAX_AUTH, MAX_BLOB, MAX_MESSAGE};
use crate::delays::NAME_BYTES;

/// Reader of fields from the front of a body.
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
    /// The field that is read, for errors.
    name: &'static str,
}

impl<'a> FieldReader<'a> {
    /// Read all of `body`.
    pub(super) fn new(body: &'a [u8]) -> FieldReader<'a> {
        FieldReader { rest: body, name: "" }
    }

    /// Name the field that is read next.
    pub(super) fn named(&mut self, name: &'static str) -> &mut FieldReader<'a> {
        self.name = name;
        self
    }

    /// Check that no byte is left.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }

    /// Return the value if it is `valid`.
    fn check<T>(&self, value: T, valid: bool) -> Result<T, Malformed> {
        if valid { Ok(value) } else { Err(Malformed::Value(self.name)) }
    }

    fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        let flag = self.u8()?;
        self.check(flag == 1, flag <= 1)
    }

    fn text(&self, bytes: &'a [u8]) -> Result<&'a str, Malformed> {
        simdutf8::basic::from_utf8(bytes).map_err(|_| Malformed::Value(self.name))
    }

    pub(super) fn text8(&mut self) -> Result<&'a str, Malformed> {
        let count = self.u8()? as usize;
        let bytes = self.take_bytes(count)?;
        self.text(bytes)
    }

    pub(super) fn bytes16(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u16()? as usize;
        self.take_bytes(count)
    }

    pub(super) fn bytes32(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take_bytes(count)
    }

    pub(super) fn auth(&mut self) -> Result<&'a [u8], Malformed> {
        let auth = self.bytes16()?;
        self.check(auth, auth.len() <= MAX_AUTH)
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let blob = self.bytes32()?;
        self.check(blob, blob.len() <= MAX_BLOB)
    }

    pub(super) fn series(&mut self) -> Result<&'a str, Malformed> {
        let series = self.text8()?;
        self.check(series, series.len() <= NAME_BYTES)
    }

    pub(super) fn name8(&mut self) -> Result<&'a str, Malformed> {
        let name = self.text8()?;
        self.check(name, is_topic(name))
    }

    pub(super) fn magic(&mut self) -> Result<Magic, Malformed> {
        let magic = self.array()?;
        self.check(Magic, magic == MAGIC)
    }

    pub(super) fn address(&mut self) -> Result<IpAddr, Malformed> {
        self.text8()?.parse().map_err(|_| Malformed::Value(self.name))
    }

    pub(super) fn connections(&mut self) -> Result<Connections<'a>, Malformed> {
        let count = usize::from(self.u16()?);
        Ok(Connections(self.take_bytes(count * CONNECTION_BYTES)?.as_chunks().0))
    }

    pub(super) fn topic(&mut self) -> Result<Topic<'a>, Malformed> {
        let name = self.name8()?;
        let slow = match self.u8()? {
            0 => Slow::Disconnect,
            1 => Slow::Conflate,
            2 => Slow::DropOldest,
            _ => return Err(Malformed::Value("slow")),
        };
        Ok(Topic { name, slow })
    }

    pub(super) fn message(&mut self) -> Result<TopicMessage<'a>, Malformed> {
        Ok(TopicMessage {
            id: self.array()?,
            version: i64::from_le_bytes(self.array()?),
            key: {
                let key = self.bytes16()?;
                self.text(key)?
            },
            push: self.bytes32()?,
        })
    }

    pub(super) fn messages(&mut self) -> Result<Vec<TopicMessage<'a>>, Malformed> {
        self.list32(FieldReader::message)
    }

    pub(super) fn acceptance(&mut self) -> Result<Acceptance<'a>, Malformed> {
        Ok(Acceptance {
            topic: self.named("topic").topic()?,
            batch: self.u64()?,
            seen: self.named("seen").flag()?,
            reference: self.bytes16()?,
            push: self.bytes32()?,
            messages: self.named("messages").messages()?,
        })
    }

    pub(super) fn users(&mut self) -> Result<Vec<(&'a str, u64)>, Malformed> {
        self.list32(|from| Ok((from.text8()?, from.u64()?)))
    }

    pub(super) fn kept(&mut self) -> Result<Vec<(IpAddr, u32)>, Malformed> {
        self.list32(|from| Ok((from.address()?, from.u32()?)))
    }

    pub(super) fn offer(&mut self) -> Result<Offer, Malformed> {
        typed(self.bytes32()?).filter(Offer::is_possible).ok_or(Malformed::Value(self.name))
    }

    /// Read a list: a count, then so many items. No capacity is reserved for the count, since the
    /// bytes may contain fewer items.
    fn list32<T>(
        &mut self,
        mut one: impl FnMut(&mut FieldReader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        (0..self.u32()?).map(|_| one(self)).collect()
    }
}

/// Return whether a topic may have this name: it is put into pushes without escapes.
pub(crate) fn is_topic(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.bytes().all(fine)
}

/// Serialize bytes at once; serde would write them one by one.
pub(crate) fn in_one_piece<S: Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Append a value in the format of a take-over.
pub(crate) fn put_typed(out: &mut Vec<u8>, it: &impl Serialize) {
    *out = postcard::to_extend(it, std::mem::take(out)).expect("a Vec takes everything");
}

/// Return the value that [`put_typed`] wrote; `None` if it is malformed or bytes follow it.
pub(crate) fn typed<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (it, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(it)
}

/// Return the size of the first message in `bytes`, with its length (5 at least); `None` if that is
/// incomplete.
///
/// # Errors
/// The message is empty, or longer than `longest` without its length.
pub(crate) fn length(bytes: &[u8], longest: usize) -> Result<Option<usize>, Malformed> {
    let Some(head) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*head) as usize {
        length if length == 0 || length > longest => Err(Malformed::Length),
        length => Ok(Some(4 + length)),
    }
}

/// Append the bytes that `put` appends, behind their length.
pub(crate) fn put_with_length(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// Return the first whole message in `bytes`: its type, its body, and the number of its bytes.
///
/// `None` if more bytes are needed. After an error no later bytes can be understood.
pub fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    let whole = length(bytes, MAX_MESSAGE)?.and_then(|length| bytes.get(..length));
    Ok(whole.map(|message| (message[4], &message[5..], message.len())))
}

/// Writers of forms.
pub(super) mod put {
    use std::net::IpAddr;

    use super::{put_typed, put_with_length};
    use crate::control::{Offer, Verbs};

    pub fn u16(out: &mut Vec<u8>, number: &u16) {
        out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn u32(out: &mut Vec<u8>, number: &u32) {
        out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn u64(out: &mut Vec<u8>, number: &u64) {
        out.extend_from_slice(&number.to_le_bytes());
    }

    pub fn text8(out: &mut Vec<u8>, text: &str) {
        let bytes = &text.as_bytes()[..text.len().min(255)];
        out.push(bytes.len() as u8);
        out.extend_from_slice(bytes);
    }

    pub fn blob(out: &mut Vec<u8>, bytes: &[u8]) {
        u32(out, &(bytes.len() as u32));
        out.extend_from_slice(bytes);
    }

    pub fn address(out: &mut Vec<u8>, address: &IpAddr) {
        text8(out, &address.to_string());
    }

    pub fn ports(out: &mut Vec<u8>, ports: &[u16]) {
        let ports = &ports[..ports.len().min(255)];
        out.push(ports.len() as u8);
        ports.iter().for_each(|port| u16(out, port));
    }

    pub fn verbs(out: &mut Vec<u8>, verbs: &Verbs) {
        u32(out, &(verbs.len() as u32));
        for ((auth, text), connections) in verbs {
            u16(out, &(connections.len() as u16));
            for connection in connections {
                u16(out, &connection.thread);
                u32(out, &connection.slot);
                u32(out, &connection.generation);
            }
            u16(out, &(auth.len() as u16));
            out.extend_from_slice(auth);
            blob(out, text);
        }
    }

    pub fn counters(out: &mut Vec<u8>, counters: &[(String, u64)]) {
        u16(out, &(counters.len() as u16));
        for (name, value) in counters {
            text8(out, name);
            u64(out, value);
        }
    }

    pub fn offer(out: &mut Vec<u8>, offer: &Offer) {
        put_with_length(out, |out| put_typed(out, offer));
    }
}
