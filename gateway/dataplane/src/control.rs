//! The control protocol: commands in, events out, as bytes. Pure; `docs/dataplane-protocol.md` defines it.
//!
//! What is decoded borrows from the buffer it came in: a `publish` is copied once, into the
//! frames that readers get. Decoding never panics and never allocates more than the bytes at hand justify.

use std::fmt;

/// The version of the protocol that this data plane speaks.
pub const VERSION: u16 = 1;
/// The first bytes of a `hello`.
pub const MAGIC: [u8; 4] = *b"nfdp";
/// The longest message, without its length.
pub const MAX_MESSAGE: usize = 16 << 20;
/// The longest blob that `remember` may store.
pub const MAX_BLOB: usize = 1 << 20;

/// Why the other end's bytes mean nothing. Cut it off; readers have nothing to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// A message is longer than [`MAX_MESSAGE`], or empty.
    Length,
    /// No message has this type.
    Type(u8),
    /// The body ends before its fields do.
    Short,
    /// The body goes on after its fields.
    Long,
    /// A field has a value that it can't have.
    Value(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Length => write!(f, "a message of impossible length"),
            Malformed::Type(kind) => write!(f, "no message has type {kind}"),
            Malformed::Short => write!(f, "a message ends in the middle of a field"),
            Malformed::Long => write!(f, "a message goes on after its last field"),
            Malformed::Value(field) => write!(f, "bad value of {field}"),
        }
    }
}

/// Which connection; the generation tells it from others that had its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The I/O thread it lives on.
    pub thread: u16,
    /// Its place in that thread's slab.
    pub slot: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// What happens to a topic's messages when a reader doesn't keep up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// Nothing is dropped; the reader is closed.
    Disconnect,
    /// Of each key only the newest version waits.
    Conflate,
    /// The oldest go.
    DropOldest,
}

/// A topic's name and policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Its name, as in the push.
    pub name: &'a str,
    /// How many recent messages are remembered.
    pub keep: u32,
    /// The policy for slow readers.
    pub slow: Slow,
    /// Whether a subscribe also gets the newest version of each key.
    pub latest: bool,
}

/// One message as it is sent down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// UUIDv7: 48 bits of time in ms, then the identity.
    pub id: [u8; 16],
    /// ms since the epoch after which nobody wants it; 0 is never.
    pub expires_ms: u64,
    /// Orders the versions of one key, before the id does; -1 is none.
    pub version: i64,
    /// Groups the versions of one story; empty is none.
    pub key: &'a str,
    /// The `message` push as JSON text.
    pub push: &'a [u8],
}

/// How far back a subscribe starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// With nothing.
    None,
    /// With the newest messages, so many.
    Last(u64),
    /// With what was routed at this time (ms since the epoch) or later.
    Since(u64),
}

/// The `subscribe` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Who.
    pub connection: ConnectionId,
    /// Comes back in `uncovered`.
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
    /// Messages older than what is remembered, oldest first.
    pub older: Vec<Message<'a>>,
}

/// The `history` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History<'a> {
    /// Who asks.
    pub connection: ConnectionId,
    /// Comes back in `uncovered`.
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

/// One way for a connection to end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reason {
    /// Its name in counters.
    pub name: String,
    /// The code on the wire.
    pub code: u16,
    /// The text on the wire, at most 123 bytes.
    pub text: String,
    /// Whether the reader should come again.
    pub reconnect: bool,
    /// And how long it should wait.
    pub retry_after_ms: u32,
}

/// Every limit and interval; the field's order on the wire is the order here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
pub struct Settings {
    pub capacity: u32,
    pub heartbeat_ms: u32,
    pub linger_ms: u32,
    pub retry_after_ms: u32,
    pub head_bytes: u32,
    pub handshake_ms: u32,
    pub message_bytes: u32,
    pub topics: u32,
    pub verbs: u32,
    pub verbs_per_second: u32,
    pub refusals: u32,
    pub waiting: u32,
    pub hard_bytes: u32,
    pub soft_bytes: u32,
    pub soft_ms: u32,
    pub replay_bytes: u32,
    pub fanout_chunk: u32,
    pub deflate_bytes: u32,
    pub per_address: u32,
    pub hub_topics: u32,
    pub hub_bytes: u64,
    pub hub_keys: u32,
    pub identities: u32,
    pub identity_ms: u32,
    pub alone_ms: u32,
    pub drain_ms: u32,
    pub drain_per_second: u32,
    /// In lower case; none lets all in.
    pub origins: Vec<String>,
    pub reasons: Vec<Reason>,
}

impl Settings {
    /// The reason of this name.
    pub fn reason(&self, name: &str) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.name == name)
    }
}

/// The reasons that the data plane itself closes connections for.
pub const OWN_REASONS: [&str; 9] = [
    "protocol_error",
    "invalid_payload",
    "too_big",
    "drain",
    "overload",
    "internal",
    "slow_reader",
    "too_many_requests",
    "no_pong",
];

/// What the control plane wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command<'a> {
    /// The first one; its version is [`VERSION`] or another.
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
    /// Send [`Event::Counters`] now.
    Count,
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
        let mut from = Reader { rest: body };
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
            other => return Err(Malformed::Type(other)),
        };
        if from.rest.is_empty() { Ok(command) } else { Err(Malformed::Long) }
    }
}

/// Takes fields off the front of a body.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
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

    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn flag(&mut self, field: &'static str) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Value(field)),
        }
    }

    fn text8(&mut self, field: &'static str) -> Result<&'a str, Malformed> {
        let count = self.u8()? as usize;
        text(self.take(count)?, field)
    }

    fn bytes16(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u16()? as usize;
        self.take(count)
    }

    fn bytes32(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    fn hello(&mut self) -> Result<Command<'a>, Malformed> {
        if self.array::<4>()? != MAGIC {
            return Err(Malformed::Value("magic"));
        }
        Ok(Command::Hello { version: self.u16()? })
    }

    fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let blob = self.bytes32()?;
        if blob.len() > MAX_BLOB { Err(Malformed::Value("blob")) } else { Ok(blob) }
    }

    fn connection(&mut self) -> Result<ConnectionId, Malformed> {
        Ok(ConnectionId { thread: self.u16()?, slot: self.u32()?, generation: self.u32()? })
    }

    fn topic_name(&mut self) -> Result<&'a str, Malformed> {
        let name = self.text8("topic")?;
        // It is put into pushes as it is, so it must be what a topic is made of.
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !name.is_empty() && name.bytes().all(fine) {
            Ok(name)
        } else {
            Err(Malformed::Value("topic"))
        }
    }

    fn topic(&mut self) -> Result<Topic<'a>, Malformed> {
        Ok(Topic {
            name: self.topic_name()?,
            keep: self.u32()?,
            slow: match self.u8()? {
                0 => Slow::Disconnect,
                1 => Slow::Conflate,
                2 => Slow::DropOldest,
                _ => return Err(Malformed::Value("slow")),
            },
            latest: self.flag("latest")?,
        })
    }

    fn message(&mut self) -> Result<Message<'a>, Malformed> {
        Ok(Message {
            id: self.array()?,
            expires_ms: self.u64()?,
            version: i64::from_le_bytes(self.array()?),
            key: text(self.bytes16()?, "key")?,
            push: self.bytes32()?,
        })
    }

    fn messages(&mut self) -> Result<Vec<Message<'a>>, Malformed> {
        let count = self.u32()?;
        // No capacity is set aside for a count that the bytes may not keep.
        (0..count).map(|_| self.message()).collect()
    }

    fn replay(&mut self) -> Result<Replay, Malformed> {
        match (self.u8()?, self.u64()?) {
            (0, _) => Ok(Replay::None),
            (1, count) => Ok(Replay::Last(count)),
            (2, ms) => Ok(Replay::Since(ms)),
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

    fn settings(&mut self) -> Result<Settings, Malformed> {
        let settings = Settings {
            capacity: self.u32()?,
            heartbeat_ms: self.u32()?,
            linger_ms: self.u32()?,
            retry_after_ms: self.u32()?,
            head_bytes: self.u32()?,
            handshake_ms: self.u32()?,
            message_bytes: self.u32()?,
            topics: self.u32()?,
            verbs: self.u32()?,
            verbs_per_second: self.u32()?,
            refusals: self.u32()?,
            waiting: self.u32()?,
            hard_bytes: self.u32()?,
            soft_bytes: self.u32()?,
            soft_ms: self.u32()?,
            replay_bytes: self.u32()?,
            fanout_chunk: self.u32()?,
            deflate_bytes: self.u32()?,
            per_address: self.u32()?,
            hub_topics: self.u32()?,
            hub_bytes: self.u64()?,
            hub_keys: self.u32()?,
            identities: self.u32()?,
            identity_ms: self.u32()?,
            alone_ms: self.u32()?,
            drain_ms: self.u32()?,
            drain_per_second: self.u32()?,
            origins: self.origins()?,
            reasons: self.reasons()?,
        };
        check(&settings)?;
        Ok(settings)
    }

    fn origins(&mut self) -> Result<Vec<String>, Malformed> {
        let count = self.u16()?;
        (0..count).map(|_| Ok(text(self.bytes16()?, "origin")?.to_owned())).collect()
    }

    fn reasons(&mut self) -> Result<Vec<Reason>, Malformed> {
        let count = self.u8()?;
        (0..count).map(|_| self.reason()).collect()
    }

    fn reason(&mut self) -> Result<Reason, Malformed> {
        Ok(Reason {
            name: self.text8("reason")?.to_owned(),
            code: self.u16()?,
            text: self.reason_text()?.to_owned(),
            reconnect: self.flag("reconnect")?,
            retry_after_ms: self.u32()?,
        })
    }

    fn reason_text(&mut self) -> Result<&'a str, Malformed> {
        let text = self.text8("reason")?;
        // RFC 6455 section 5.5: a close frame has room for 123 bytes. JSON quotes need no care then.
        let plain = |byte: u8| !byte.is_ascii_control() && byte != b'"' && byte != b'\\';
        if text.len() <= 123 && text.bytes().all(plain) {
            Ok(text)
        } else {
            Err(Malformed::Value("reason"))
        }
    }
}

fn text<'a>(bytes: &'a [u8], field: &'static str) -> Result<&'a str, Malformed> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| Malformed::Value(field))
}

/// Zeros that would stop the gateway or divide by nothing.
fn check(settings: &Settings) -> Result<(), Malformed> {
    let needed = [
        (settings.heartbeat_ms, "heartbeat_ms"),
        (settings.linger_ms, "linger_ms"),
        (settings.head_bytes, "head_bytes"),
        (settings.handshake_ms, "handshake_ms"),
        (settings.message_bytes, "message_bytes"),
        (settings.hard_bytes, "hard_bytes"),
        (settings.fanout_chunk, "fanout_chunk"),
        (settings.hub_topics, "hub_topics"),
        (settings.identities, "identities"),
        (settings.drain_per_second, "drain_per_second"),
    ];
    for (value, name) in needed {
        if value == 0 {
            return Err(Malformed::Value(name));
        }
    }
    if OWN_REASONS.iter().any(|name| settings.reason(name).is_none()) {
        return Err(Malformed::Value("reasons"));
    }
    Ok(())
}

/// Why a subscribe or a history could not be answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncovered {
    /// The topic's past was never seeded, or it was forgotten.
    Cold = 0,
    /// There may be more than is remembered.
    Short = 1,
}

/// What the data plane tells. Events are written straight into the outgoing buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The answer to `hello`.
    Attached {
        /// This process.
        pid: u32,
        /// How many control planes attached so far, this one included.
        attachment: u32,
        /// Open connections.
        readers: u32,
        /// Ports of the listeners.
        ports: &'a [u16],
        /// What was given to `remember`.
        blob: &'a [u8],
    },
    /// What readers said.
    Verbs(&'a [(ConnectionId, &'a [u8])]),
    /// Memory isn't enough to answer.
    Uncovered {
        /// Whose verb.
        connection: ConnectionId,
        /// The command's.
        token: u32,
        /// What is missing.
        why: Uncovered,
    },
    /// All fan-outs up to this number are over.
    Published(u64),
    /// A request for the control plane; its descriptor goes with the first byte.
    Handover {
        /// The reader's address.
        address: &'a str,
    },
    /// Names and values.
    Counters(&'a [(String, u64)]),
    /// Why the connection to the control plane is about to be closed.
    Refused(&'a str),
}

impl Event<'_> {
    /// Append the event to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Event::Attached { pid, attachment, readers, ports, blob } => {
                out.push(129);
                out.extend_from_slice(&VERSION.to_le_bytes());
                for number in [pid, attachment, readers] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.push(ports.len() as u8);
                for port in ports.iter().take(usize::from(ports.len() as u8)) {
                    out.extend_from_slice(&port.to_le_bytes());
                }
                put_bytes32(out, blob);
            }
            Event::Verbs(verbs) => {
                out.push(130);
                out.extend_from_slice(&(verbs.len() as u32).to_le_bytes());
                for (connection, text) in *verbs {
                    put_connection(out, *connection);
                    put_bytes32(out, text);
                }
            }
            Event::Uncovered { connection, token, why } => {
                out.push(131);
                put_connection(out, *connection);
                out.extend_from_slice(&token.to_le_bytes());
                out.push(*why as u8);
            }
            Event::Published(number) => {
                out.push(132);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Event::Handover { address } => {
                out.push(133);
                put_text8(out, address);
            }
            Event::Counters(counters) => {
                out.push(134);
                out.extend_from_slice(&(counters.len() as u16).to_le_bytes());
                for (name, value) in *counters {
                    put_text8(out, name);
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            Event::Refused(why) => {
                out.push(135);
                put_text8(out, why);
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}

fn put_connection(out: &mut Vec<u8>, connection: ConnectionId) {
    out.extend_from_slice(&connection.thread.to_le_bytes());
    out.extend_from_slice(&connection.slot.to_le_bytes());
    out.extend_from_slice(&connection.generation.to_le_bytes());
}

fn put_bytes32(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_text8(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(255)];
    out.push(bytes.len() as u8);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SUBSCRIBER: ConnectionId = ConnectionId { thread: 1, slot: 2, generation: 3 };

    fn publish_body() -> Vec<u8> {
        let mut body = 7u64.to_le_bytes().to_vec();
        body.extend_from_slice(b"\x06news.x\x0a\0\0\0\x01\x01");
        body.extend_from_slice(&[9; 16]);
        body.extend_from_slice(&5u64.to_le_bytes());
        body.extend_from_slice(&(-1i64).to_le_bytes());
        body.extend_from_slice(b"\x01\0k\x02\0\0\0{}");
        body
    }

    #[test]
    fn a_publish_is_read_field_by_field() {
        let body = publish_body();
        let topic = Topic { name: "news.x", keep: 10, slow: Slow::Conflate, latest: true };
        let message = Message { id: [9; 16], expires_ms: 5, version: -1, key: "k", push: b"{}" };
        assert_eq!(Command::decode(3, &body), Ok(Command::Publish { number: 7, topic, message }));
    }

    #[test]
    fn a_body_cut_anywhere_is_short_and_one_byte_more_is_long() {
        let mut body = publish_body();
        for end in 0..body.len() {
            assert_eq!(Command::decode(3, &body[..end]), Err(Malformed::Short), "cut at {end}");
        }
        body.push(0);
        assert_eq!(Command::decode(3, &body), Err(Malformed::Long));
    }

    #[test]
    fn a_message_is_split_off_when_it_is_whole() {
        let bytes = [3, 0, 0, 0, 7, 1, 2, 99];
        for end in 0..7 {
            assert_eq!(split(&bytes[..end]), Ok(None));
        }
        assert_eq!(split(&bytes), Ok(Some((7, &[1u8, 2][..], 7))));
    }

    #[test]
    fn an_impossible_length_is_refused_before_its_bytes_come() {
        assert_eq!(split(&[0, 0, 0, 0]), Err(Malformed::Length));
        assert_eq!(split(&[1, 0, 0, 1]), Err(Malformed::Length));
    }

    #[test]
    fn a_count_that_the_bytes_do_not_keep_costs_nothing() {
        let mut body = b"\x01x\0\0\0\0\0\0\0".to_vec();
        body.extend_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Command::decode(4, &body), Err(Malformed::Short));
    }

    #[test]
    fn a_topic_that_could_break_out_of_a_push_is_refused() {
        let mut body = b"\0\0\0\0\0\0\0\0\0\0\x03a\"b".to_vec();
        body.extend_from_slice(&[0; 4]);
        assert_eq!(Command::decode(6, &body), Err(Malformed::Value("topic")));
    }

    #[test]
    fn a_hello_needs_the_magic() {
        assert_eq!(Command::decode(1, b"nfdp\x01\0"), Ok(Command::Hello { version: 1 }));
        assert_eq!(Command::decode(1, b"HTTP\x01\0"), Err(Malformed::Value("magic")));
    }

    #[test]
    fn verbs_are_written_with_their_connections() {
        let mut out = Vec::new();
        Event::Verbs(&[(SUBSCRIBER, b"{}")]).encode(&mut out);
        assert_eq!(out, b"\x15\0\0\0\x82\x01\0\0\0\x01\0\x02\0\0\0\x03\0\0\0\x02\0\0\0{}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_command_or_an_error(kind: u8, body: Vec<u8>) {
            let _ = Command::decode(kind, &body);
        }
    }
}
