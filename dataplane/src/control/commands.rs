//! Commands: messages from the control plane, or from a newer data plane.

use std::net::IpAddr;

use super::codec::{Fields, length};
use super::kinds::CommandKind;
use super::{Connections, MAX_AUTH, MAX_MESSAGE, Malformed, Message, Settings, Topic};
use crate::delays::NAME_BYTES;

/// The `subscribe` command.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    pub topic: Topic<'a>,
    pub batch: u64,
    pub seen: bool,
    pub reference: &'a [u8],
    pub push: &'a [u8],
    pub messages: Vec<Message<'a>>,
}

/// A command to connections. All but `close` answer a verb.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each does")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToReaders<'a> {
    Subscribe(Subscribe<'a>),
    Unsubscribe { topic: &'a str, push: &'a [u8] },
    Reply(&'a [u8]),
    Auth { user: &'a str, issued_ms: u64, ends_ms: u64, blob: &'a [u8], push: &'a [u8] },
    Close { reason: &'a str, retry_after_ms: u32 },
}

/// A command of the control plane; `TakeOver` and `Commit` are a newer data plane's. Their versions
/// may differ from ours.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each does")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    Hello { version: u16 },
    Settings(Box<Settings>),
    Publish { number: u64, topic: Topic<'a>, message: Message<'a> },
    Stamp { taken_ms: u64, series: &'a str },
    Mark(&'a [u8]),
    ToReaders(Connections<'a>, ToReaders<'a>),
    Remember(&'a [u8]),
    Drain { spread_ms: u32, per_second: u32 },
    Shed { reason: &'a str, count: u32, retry_ms: u32 },
    Count,
    TakeOver { version: u16, format: u16 },
    Commit,
    Batch { number: u64, topic: Topic<'a>, messages: Vec<Message<'a>> },
    Evict { reason: &'a str, users: Vec<(&'a str, u64)> },
    Gone(IpAddr),
    Kept(Vec<(IpAddr, u32)>),
}

/// A message's type and body, and the number of its bytes.
pub type Split<'a> = (u8, &'a [u8], usize);

/// Return the first whole message in `bytes`: its type, its body, and the number of its bytes.
///
/// `None` if more bytes are needed. After an error no later bytes can be understood.
pub fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    let whole = length(bytes, MAX_MESSAGE)?.and_then(|length| bytes.get(..length));
    Ok(whole.map(|message| (message[4], &message[5..], message.len())))
}

impl<'a> Command<'a> {
    /// Return the command of type `kind` with this `body`.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Command<'a>, Malformed> {
        let mut from = Fields::new(body);
        let command = match CommandKind::of(kind).ok_or(Malformed::Type(kind))? {
            CommandKind::Hello => {
                from.magic()?;
                Command::Hello { version: from.u16()? }
            }
            CommandKind::Settings => Command::Settings(Box::new(from.settings()?)),
            CommandKind::Publish => Command::Publish {
                number: from.u64()?,
                topic: from.topic()?,
                message: from.message()?,
            },
            CommandKind::Subscribe => {
                Command::ToReaders(from.connections()?, ToReaders::Subscribe(from.subscribe()?))
            }
            CommandKind::Unsubscribe => Command::ToReaders(
                from.connections()?,
                ToReaders::Unsubscribe { topic: from.topic_name()?, push: from.bytes32()? },
            ),
            CommandKind::Reply => {
                Command::ToReaders(from.connections()?, ToReaders::Reply(from.bytes32()?))
            }
            CommandKind::Auth => Command::ToReaders(from.connections()?, from.auth()?),
            CommandKind::Close => Command::ToReaders(
                from.connections()?,
                ToReaders::Close { reason: from.text8("reason")?, retry_after_ms: from.u32()? },
            ),
            CommandKind::Remember => Command::Remember(from.blob()?),
            CommandKind::Drain => {
                Command::Drain { spread_ms: from.u32()?, per_second: from.u32()? }
            }
            CommandKind::Count => Command::Count,
            CommandKind::TakeOver => {
                from.magic()?;
                Command::TakeOver { version: from.u16()?, format: from.u16()? }
            }
            CommandKind::Commit => Command::Commit,
            CommandKind::Batch => Command::Batch {
                number: from.u64()?,
                topic: from.topic()?,
                messages: from.list32(Fields::message)?,
            },
            CommandKind::Evict => Command::Evict {
                reason: from.text8("reason")?,
                users: from.list32(|from| Ok((from.text8("user")?, from.u64()?)))?,
            },
            CommandKind::Gone => Command::Gone(from.address()?),
            CommandKind::Kept => {
                Command::Kept(from.list32(|from| Ok((from.address()?, from.u32()?)))?)
            }
            CommandKind::Shed => Command::Shed {
                reason: from.text8("reason")?,
                count: from.u32()?,
                retry_ms: from.u32()?,
            },
            CommandKind::Stamp => from.stamp()?,
            CommandKind::Mark => Command::Mark(from.bytes16()?),
        };
        from.end()?;
        Ok(command)
    }
}

impl<'a> Fields<'a> {
    fn stamp(&mut self) -> Result<Command<'a>, Malformed> {
        let (taken_ms, series) = (self.u64()?, self.text8("series")?);
        if series.len() > NAME_BYTES {
            return Err(Malformed::Value("series"));
        }
        Ok(Command::Stamp { taken_ms, series })
    }

    fn subscribe(&mut self) -> Result<Subscribe<'a>, Malformed> {
        Ok(Subscribe {
            topic: self.topic()?,
            batch: self.u64()?,
            seen: self.flag("seen")?,
            reference: self.bytes16()?,
            push: self.bytes32()?,
            messages: self.list32(Fields::message)?,
        })
    }

    fn auth(&mut self) -> Result<ToReaders<'a>, Malformed> {
        Ok(ToReaders::Auth {
            user: self.text8("user")?,
            issued_ms: self.u64()?,
            ends_ms: self.u64()?,
            blob: self.auth_blob()?,
            push: self.bytes32()?,
        })
    }

    fn address(&mut self) -> Result<IpAddr, Malformed> {
        self.text8("address")?.parse().map_err(|_| Malformed::Value("address"))
    }

    fn auth_blob(&mut self) -> Result<&'a [u8], Malformed> {
        let blob = self.bytes16()?;
        if blob.len() > MAX_AUTH { Err(Malformed::Value("auth")) } else { Ok(blob) }
    }
}
