//! Reading of fields from the front of a body, and writing at its end.

use serde::{Deserialize, Serialize, Serializer};

use super::{CONNECTION_BYTES, ConnectionId, Connections};
use super::{MAGIC, MAX_BLOB, Malformed, Message, Slow, Topic};

/// Reader of fields from the front of a body.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Read all of `body`.
    pub(super) fn new(body: &'a [u8]) -> Fields<'a> {
        Fields { rest: body }
    }

    /// Check that no byte is left.
    pub(super) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
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

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value(field)),
        }
    }

    pub(super) fn text8(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        let count = self.u8()? as usize;
        text(self.take(count)?, field)
    }

    pub(super) fn bytes16(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u16()? as usize;
        self.take(count)
    }

    pub(super) fn bytes32(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let blob = self.bytes32()?;
        if blob.len() > MAX_BLOB { Err(Malformed::Value("blob")) } else { Ok(blob) }
    }

    pub(super) fn connections(&mut self) -> Result<Connections<'a>, Malformed> {
        let count = usize::from(self.u16()?);
        Ok(Connections(self.take(count * CONNECTION_BYTES)?.as_chunks().0))
    }

    pub(super) fn topic_name(&mut self) -> Result<&'a str, Malformed> {
        let name = self.text8("topic")?;
        if is_topic(name) { Ok(name) } else { Err(Malformed::Value("topic")) }
    }

    pub(super) fn topic(&mut self) -> Result<Topic<'a>, Malformed> {
        Ok(Topic { name: self.topic_name()?, slow: self.slow()? })
    }

    pub(super) fn slow(&mut self) -> Result<Slow, Malformed> {
        match self.u8()? {
            0 => Ok(Slow::Disconnect),
            1 => Ok(Slow::Conflate),
            2 => Ok(Slow::DropOldest),
            _ => Err(Malformed::Value("slow")),
        }
    }

    pub(super) fn magic(&mut self) -> Result<(), Malformed> {
        if self.array()? == MAGIC { Ok(()) } else { Err(Malformed::Value("magic")) }
    }

    pub(super) fn message(&mut self) -> Result<Message<'a>, Malformed> {
        Ok(Message {
            id: self.array()?,
            version: i64::from_le_bytes(self.array()?),
            key: text(self.bytes16()?, "key")?,
            push: self.bytes32()?,
        })
    }

    /// Read a list: a count, then so many items. No capacity is reserved for the count, since the
    /// bytes may contain fewer items.
    pub(super) fn list32<T, All: FromIterator<T>>(
        &mut self,
        mut one: impl FnMut(&mut Fields<'a>) -> Result<T, Malformed>,
    ) -> Result<All, Malformed> {
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

pub(super) fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, Malformed> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| Malformed::Value(field))
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

pub(super) fn put_ports(out: &mut Vec<u8>, ports: &[u16]) {
    let ports = &ports[..ports.len().min(255)];
    out.push(ports.len() as u8);
    for port in ports {
        out.extend_from_slice(&port.to_le_bytes());
    }
}

pub(super) fn put_connections(out: &mut Vec<u8>, connections: &[ConnectionId]) {
    out.extend_from_slice(&(connections.len() as u16).to_le_bytes());
    for connection in connections {
        out.extend_from_slice(&connection.thread.to_le_bytes());
        out.extend_from_slice(&connection.slot.to_le_bytes());
        out.extend_from_slice(&connection.generation.to_le_bytes());
    }
}

pub(super) fn put_bytes32(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn put_text8(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(255)];
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

pub(super) fn put_bytes16(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
    out.extend_from_slice(bytes);
}
