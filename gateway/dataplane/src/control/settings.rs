//! Every limit and interval, as the control plane sends them.

use super::Malformed;
use super::codec::{Reader, text};
use crate::addresses::Network;

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
    /// Whether readers may come over WebSocket. Version 3 ends before it.
    pub websocket: bool,
    /// Whether SockJS readers are told to keep a cookie. Version 3 ends before it.
    pub sockjs_cookie: bool,
    /// Connections that may be handed over at once; 0: any number. Version 3 ends before it.
    pub handovers: u32,
    /// Where PROXY headers may come from, if they are spoken at all. Version 3 ends before it (`None`),
    /// and means everywhere.
    pub proxy_from: Option<Vec<Network>>,
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
            pong_ms: self.u32_of_later()?,
            websocket: self.flag_or("websocket", true)?,
            sockjs_cookie: self.flag_or("sockjs_cookie", false)?,
            handovers: self.u32_of_later()?,
            proxy_from: self.proxy_from()?,
            outbox_bytes: self.u64_of_later()?,
            stalled_ms: self.u32_of_later()?,
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

    /// A number that earlier versions end before.
    fn u32_of_later(&mut self) -> Result<u32, Malformed> {
        if self.end().is_ok() { Ok(0) } else { self.u32() }
    }

    fn flag_or(&mut self, name: &'static str, missing: bool) -> Result<bool, Malformed> {
        if self.end().is_ok() { Ok(missing) } else { self.flag(name) }
    }

    fn proxy_from(&mut self) -> Result<Option<Vec<Network>>, Malformed> {
        if self.end().is_ok() {
            return Ok(None);
        }
        let count = self.u16()?;
        let network = |_| {
            let text = self.text8("proxy_from")?;
            text.parse().map_err(|_| Malformed::Value("proxy_from"))
        };
        (0..count).map(network).collect::<Result<_, _>>().map(Some)
    }

    fn u64_of_later(&mut self) -> Result<u64, Malformed> {
        if self.end().is_ok() { Ok(0) } else { self.u64() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::codec::{put_bytes16, put_text8};

    /// Settings of version 3.
    fn body() -> Vec<u8> {
        let mut body = [1u32.to_le_bytes(); 20].concat();
        body.extend(1u64.to_le_bytes());
        body.extend([1u32.to_le_bytes(); 6].concat());
        body.extend(1u16.to_le_bytes());
        put_bytes16(&mut body, b"http://x");
        body.push(OWN_REASONS.len() as u8);
        for name in OWN_REASONS {
            put_text8(&mut body, name);
            body.extend(1000u16.to_le_bytes());
            put_text8(&mut body, name);
            body.push(1);
            body.extend([0; 4]);
        }
        put_text8(&mut body, "cookie");
        body.extend(7u32.to_le_bytes());
        body
    }

    /// What version 4 has behind that, with one network.
    fn later_body(network: &str) -> Vec<u8> {
        let mut body = body();
        body.extend([0, 1]);
        body.extend(8u32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        put_text8(&mut body, network);
        body.extend(9u64.to_le_bytes());
        body.extend(10u32.to_le_bytes());
        body
    }

    #[test]
    fn settings_of_an_earlier_version_end_before_what_later_ones_have() {
        let earlier = Settings::decode(&body()).expect("settings");
        assert_eq!((earlier.pong_ms, earlier.handovers, earlier.proxy_from), (7, 0, None));
        assert_eq!((earlier.websocket, earlier.sockjs_cookie), (true, false));
        assert_eq!((earlier.outbox_bytes, earlier.stalled_ms), (0, 0));
    }

    #[test]
    fn settings_of_version_4_have_them() {
        let mut body = later_body("10.0.0.0/8");
        let later = Settings::decode(&body).expect("settings");
        let network = "10.0.0.0/8".parse().expect("a network");
        assert_eq!((later.pong_ms, later.handovers, later.proxy_from), (7, 8, Some(vec![network])));
        assert_eq!((later.websocket, later.sockjs_cookie), (false, true));
        assert_eq!((later.outbox_bytes, later.stalled_ms), (9, 10));
        body.push(0);
        assert_eq!(Settings::decode(&body), Err(Malformed::Long));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let body = later_body("10.0.0.0/33");
        assert_eq!(Settings::decode(&body), Err(Malformed::Value("proxy_from")));
    }
}
