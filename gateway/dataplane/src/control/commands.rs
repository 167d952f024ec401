//! Commands: what the control plane, or a newer data plane, wants.

use std::net::IpAddr;

use super::codec::Reader;
use super::{ConnectionId, MAGIC, MAX_BADGE, MAX_MESSAGE, Malformed, Message, Settings, Topic};
use crate::delays::NAME_BYTES;

/// How far back a subscribe starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// With the newest message of each key, if the topic keeps these.
    Latest,
    /// With the newest messages, so many.
    Last(u64),
    /// With what was routed at this time (ms since the epoch) or later.
    Since(u64),
    /// With that and the newest message of each key.
    SinceAndLatest(u64),
    /// With a batch that was given before, all of it, and nothing else; 0: with the older messages
    /// of the command.
    Given(u64),
}

/// The `subscribe` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Who.
    pub connection: ConnectionId,
    /// Comes back in `uncovered`; whatever the control plane wants to know then.
    pub token: u32,
    /// To what.
    pub topic: Topic<'a>,
    /// Whether to do nothing if memory doesn't reach back as far as `replay`.
    pub only_if_covered: bool,
    /// What comes first.
    pub replay: Replay,
    /// The verb's `ref` as JSON text; empty if it had none.
    pub reference: &'a [u8],
    /// The `subscribed` push.
    pub push: &'a [u8],
    /// Messages to begin with, oldest first.
    pub older: Vec<Message<'a>>,
}

/// The `history` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History<'a> {
    /// Who asks.
    pub connection: ConnectionId,
    /// Comes back in `uncovered`; whatever the control plane wants to know then.
    pub token: u32,
    /// Of what.
    pub topic: Topic<'a>,
    /// How many at most.
    pub limit: u16,
    /// Only messages that arrived before the one with this id.
    pub before: Option<[u8; 16]>,
    /// The push up to the value of `more`.
    pub head: &'a [u8],
}

/// The `badge` command: the answer to a verb, and what comes with every verb after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Badge<'a> {
    /// Whose.
    pub connection: ConnectionId,
    /// Whom `evict` calls it; empty for nobody.
    pub user: &'a str,
    /// When that was decided, ms since the epoch.
    pub issued_ms: u64,
    /// When the connection ends, unless another badge comes before; 0: never.
    pub expires_ms: u64,
    /// Whatever the control plane wants to know of whoever speaks.
    pub blob: &'a [u8],
    /// The answer.
    pub push: &'a [u8],
}

/// What the control plane wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// The first one; its version is [`VERSION`](super::VERSION), an older one or another.
    Hello {
        /// The version that the control plane speaks.
        version: u16,
    },
    /// Limits and intervals.
    Settings(Box<Settings>),
    /// A message for everyone who is subscribed to its topic.
    Publish {
        /// Comes back in `published`.
        number: u64,
        /// Its topic.
        topic: Topic<'a>,
        /// What they get.
        message: Message<'a>,
    },
    /// What is known of the next `publish`: its deliveries are to be measured.
    Stamp {
        /// When it was published, ms since the epoch.
        published_ms: u64,
        /// What they are counted under.
        series: &'a str,
    },
    /// A topic's past.
    Seed {
        /// Whose past.
        topic: Topic<'a>,
        /// Whether nothing older exists.
        complete: bool,
        /// Oldest first.
        history: Vec<Message<'a>>,
        /// Newest versions by key.
        latest: Vec<Message<'a>>,
    },
    /// A reader's `subscribe`.
    Subscribe(Subscribe<'a>),
    /// A reader's `unsubscribe`.
    Unsubscribe {
        /// Whose.
        connection: ConnectionId,
        /// From what.
        topic: &'a str,
        /// The answer.
        push: &'a [u8],
    },
    /// Any other answer to a verb.
    Reply {
        /// To whom.
        connection: ConnectionId,
        /// The answer.
        push: &'a [u8],
    },
    /// A reader's `history`.
    History(History<'a>),
    /// End a connection.
    Close {
        /// Whose.
        connection: ConnectionId,
        /// The reason's name.
        reason: &'a str,
        /// When the reader should come again.
        retry_after_ms: u32,
    },
    /// Keep this for the next control plane.
    Remember(&'a [u8]),
    /// Send all readers away and exit.
    Drain {
        /// Spread over so many ms.
        spread_ms: u32,
        /// But no more than so many readers a second.
        per_second: u32,
    },
    /// Send some readers to other boxes, and go on serving.
    Shed {
        /// The reason's name.
        reason: &'a str,
        /// So many readers at most.
        count: u32,
        /// Each is to come again after a random time up to this.
        retry_ms: u32,
    },
    /// Send [`Event::Counters`](super::Event::Counters) now.
    Count,
    /// The first one of a newer data plane: it wants everything.
    TakeOver {
        /// The version of the protocol that it speaks.
        version: u16,
        /// The newest format of state that it reads.
        format: u16,
    },
    /// It has everything, and is ready to serve.
    Commit,
    /// Messages of a topic that many readers will be given.
    Batch {
        /// What `subscribe` calls it.
        number: u64,
        /// Theirs.
        topic: Topic<'a>,
        /// Oldest first.
        messages: Vec<Message<'a>>,
    },
    /// Who a reader is.
    Badge(Badge<'a>),
    /// End the connections of users.
    Evict {
        /// The reason's name.
        reason: &'a str,
        /// They, and when their badges were issued at the latest.
        users: Vec<(&'a str, u64)>,
    },
    /// A connection from this address that was handed over is closed.
    Gone(IpAddr),
    /// What the control plane still has from before: so many connections of each address.
    Kept(Vec<(IpAddr, u32)>),
}

/// A message's type and body, and how many bytes it takes.
pub type Split<'a> = (u8, &'a [u8], usize);

/// The first whole message in `bytes`: its type, its body, and how many bytes it takes.
///
/// `None` if more bytes must come first. After an error nothing that follows can be understood.
pub fn split(bytes: &[u8]) -> Result<Option<Split<'_>>, Malformed> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*head) as usize;
    if length == 0 || length > MAX_MESSAGE {
        return Err(Malformed::Length);
    }
    match rest.get(..length) {
        None => Ok(None),
        Some(message) => Ok(Some((message[0], &message[1..], 4 + length))),
    }
}

impl<'a> Command<'a> {
    /// The command of type `kind` with this `body`.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Command<'a>, Malformed> {
        let mut from = Reader::new(body);
        let command = match kind {
            1 => from.hello()?,
            2 => Command::Settings(Box::new(from.settings()?)),
            3 => Command::Publish {
                number: from.u64()?,
                topic: from.topic()?,
                message: from.message()?,
            },
            4 => Command::Seed {
                topic: from.topic()?,
                complete: from.flag("complete")?,
                history: from.messages()?,
                latest: from.messages()?,
            },
            5 => Command::Subscribe(from.subscribe()?),
            6 => Command::Unsubscribe {
                connection: from.connection()?,
                topic: from.topic_name()?,
                push: from.bytes32()?,
            },
            7 => Command::Reply { connection: from.connection()?, push: from.bytes32()? },
            8 => Command::History(from.history()?),
            9 => Command::Close {
                connection: from.connection()?,
                reason: from.text8("reason")?,
                retry_after_ms: from.u32()?,
            },
            10 => Command::Remember(from.blob()?),
            11 => Command::Drain { spread_ms: from.u32()?, per_second: from.u32()? },
            12 => Command::Count,
            13 => from.take_over()?,
            14 => Command::Commit,
            15 => Command::Batch {
                number: from.u64()?,
                topic: from.topic()?,
                messages: from.messages()?,
            },
            16 => Command::Badge(from.badge()?),
            17 => Command::Evict { reason: from.text8("reason")?, users: from.users()? },
            21 => Command::Gone(from.address()?),
            22 => Command::Kept(from.kept()?),
            20 => Command::Shed {
                reason: from.text8("reason")?,
                count: from.u32()?,
                retry_ms: from.u32()?,
            },
            23 => from.stamp()?,
            other => return Err(Malformed::Type(other)),
        };
        from.end()?;
        Ok(command)
    }
}

impl<'a> Reader<'a> {
    fn hello(&mut self) -> Result<Command<'a>, Malformed> {
        if self.array::<4>()? != MAGIC {
            return Err(Malformed::Value("magic"));
        }
        Ok(Command::Hello { version: self.u16()? })
    }

    fn stamp(&mut self) -> Result<Command<'a>, Malformed> {
        let (published_ms, series) = (self.u64()?, self.text8("series")?);
        if series.len() > NAME_BYTES {
            return Err(Malformed::Value("series"));
        }
        Ok(Command::Stamp { published_ms, series })
    }

    fn take_over(&mut self) -> Result<Command<'a>, Malformed> {
        if self.array::<4>()? != MAGIC {
            return Err(Malformed::Value("magic"));
        }
        Ok(Command::TakeOver { version: self.u16()?, format: self.u16()? })
    }

    fn replay(&mut self) -> Result<Replay, Malformed> {
        match (self.u8()?, self.u64()?) {
            (0, _) => Ok(Replay::Latest),
            (1, count) => Ok(Replay::Last(count)),
            (2, ms) => Ok(Replay::Since(ms)),
            (3, batch) => Ok(Replay::Given(batch)),
            (4, ms) => Ok(Replay::SinceAndLatest(ms)),
            _ => Err(Malformed::Value("replay")),
        }
    }

    fn subscribe(&mut self) -> Result<Subscribe<'a>, Malformed> {
        Ok(Subscribe {
            connection: self.connection()?,
            token: self.u32()?,
            topic: self.topic()?,
            only_if_covered: self.flag("only_if_covered")?,
            replay: self.replay()?,
            reference: self.bytes16()?,
            push: self.bytes32()?,
            older: self.messages()?,
        })
    }

    fn badge(&mut self) -> Result<Badge<'a>, Malformed> {
        Ok(Badge {
            connection: self.connection()?,
            user: self.text8("user")?,
            issued_ms: self.u64()?,
            expires_ms: self.u64()?,
            blob: self.badge_blob()?,
            push: self.bytes32()?,
        })
    }

    fn address(&mut self) -> Result<IpAddr, Malformed> {
        self.text8("address")?.parse().map_err(|_| Malformed::Value("address"))
    }

    fn kept(&mut self) -> Result<Vec<(IpAddr, u32)>, Malformed> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((self.address()?, self.u32()?))).collect()
    }

    fn users(&mut self) -> Result<Vec<(&'a str, u64)>, Malformed> {
        let count = self.u32()?;
        (0..count).map(|_| Ok((self.text8("user")?, self.u64()?))).collect()
    }

    /// What a badge says.
    pub(crate) fn badge_blob(&mut self) -> Result<&'a [u8], Malformed> {
        let blob = self.bytes16()?;
        if blob.len() > MAX_BADGE { Err(Malformed::Value("badge")) } else { Ok(blob) }
    }

    fn history(&mut self) -> Result<History<'a>, Malformed> {
        Ok(History {
            connection: self.connection()?,
            token: self.u32()?,
            topic: self.topic()?,
            limit: self.u16()?,
            before: {
                let wanted = self.flag("has_before")?;
                let id = self.array()?;
                wanted.then_some(id)
            },
            head: self.bytes32()?,
        })
    }
}
