//! Every limit and interval, as the control plane sends them.

use super::Malformed;
use super::codec::{Reader, text};

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
    pub unfinished_ms: u32,
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
    /// The cookie that may hold a reader's token; empty for none. Version 1 ends before it.
    pub cookie: String,
    /// A control plane that was heard in the last so many ms has plain pings answered for it; 0: never.
    /// Version 2 ends before it.
    pub pong_ms: u32,
    /// Version 3 ends before it: no bound.
    pub outbox_bytes: u64,
    /// Likewise: a reader may take nothing for as long as it likes.
    pub stalled_ms: u32,
}

impl Settings {
    /// Those in the body of a `settings` command.
    pub fn decode(body: &[u8]) -> Result<Settings, Malformed> {
        let mut from = Reader::new(body);
        let settings = from.settings()?;
        from.end()?;
        Ok(settings)
    }

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

impl Reader<'_> {
    pub(super) fn settings(&mut self) -> Result<Settings, Malformed> {
        let settings = Settings {
            capacity: self.u32()?,
            heartbeat_ms: self.u32()?,
            linger_ms: self.u32()?,
            retry_after_ms: self.u32()?,
            head_bytes: self.u32()?,
            unfinished_ms: self.u32()?,
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
            cookie: self.cookie()?,
            pong_ms: self.pong_ms()?,
            outbox_bytes: self.outbox_bytes()?,
            stalled_ms: self.stalled_ms()?,
        };
        check(&settings)?;
        Ok(settings)
    }

    fn cookie(&mut self) -> Result<String, Malformed> {
        if self.end().is_ok() {
            return Ok(String::new());
        }
        Ok(self.text8("cookie")?.to_owned())
    }

    fn pong_ms(&mut self) -> Result<u32, Malformed> {
        if self.end().is_ok() { Ok(0) } else { self.u32() }
    }

    fn outbox_bytes(&mut self) -> Result<u64, Malformed> {
        if self.end().is_ok() { Ok(0) } else { self.u64() }
    }

    fn stalled_ms(&mut self) -> Result<u32, Malformed> {
        if self.end().is_ok() { Ok(0) } else { self.u32() }
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

    fn reason_text(&mut self) -> Result<&str, Malformed> {
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

/// Zeros that would stop the gateway or divide by nothing.
fn check(settings: &Settings) -> Result<(), Malformed> {
    let needed = [
        (settings.heartbeat_ms, "heartbeat_ms"),
        (settings.linger_ms, "linger_ms"),
        (settings.head_bytes, "head_bytes"),
        (settings.unfinished_ms, "unfinished_ms"),
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
