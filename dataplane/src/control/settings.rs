//! Every limit and interval, as the control plane sends them.

use super::Malformed;
use super::codec::{Fields, text};
use crate::addresses::Network;
use crate::closing::CloseReason;

/// A reason for which a connection ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
pub struct Reason {
    pub name: String,
    pub code: u16,
    /// At most 123 bytes.
    pub text: String,
    pub reconnect: bool,
    pub retry_after_ms: u32,
}

macro_rules! settings {
    ($($(#[doc = $about:literal])* $field:ident: $kind:ty = $read:ident($($argument:literal)?),)+) => {
        /// Every limit and interval; the fields' order on the wire is the order here.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
        pub struct Settings { $($(#[doc = $about])* pub $field: $kind,)+ }

        impl Fields<'_> {
            pub(super) fn settings(&mut self) -> Result<Settings, Malformed> {
                let settings = Settings { $($field: self.$read($($argument)?)?,)+ };
                check(&settings)?;
                Ok(settings)
            }
        }
    };
}

settings! {
    capacity: u32 = u32(),
    heartbeat_ms: u32 = u32(),
    linger_ms: u32 = u32(),
    retry_after_ms: u32 = u32(),
    head_bytes: u32 = u32(),
    unfinished_ms: u32 = u32(),
    message_bytes: u32 = u32(),
    topics: u32 = u32(),
    verbs: u32 = u32(),
    verbs_per_second: u32 = u32(),
    refusals: u32 = u32(),
    waiting: u32 = u32(),
    hard_bytes: u32 = u32(),
    soft_bytes: u32 = u32(),
    soft_ms: u32 = u32(),
    fanout_chunk: u32 = behind_unused(4),
    deflate_bytes: u32 = u32(),
    per_address: u32 = u32(),
    identities: u32 = behind_unused(16),
    identity_ms: u32 = u32(),
    alone_ms: u32 = u32(),
    drain_ms: u32 = u32(),
    drain_per_second: u32 = u32(),
    /// In lower case; an empty list admits all.
    origins: Vec<String> = origins(),
    reasons: Vec<Reason> = reasons(),
    /// The cookie that may hold a reader's token; empty for none.
    cookie: String = string8("cookie"),
    /// Answer plain pings for a control plane heard in the last so many ms; 0: never.
    pong_ms: u32 = u32(),
    /// True if readers may connect over WebSocket.
    websocket: bool = flag("websocket"),
    /// True if `/sockjs/info` asks readers to keep a cookie.
    sockjs_cookie: bool = flag("sockjs_cookie"),
    /// Connections that may be handed over at once; 0: any number.
    handovers: u32 = u32(),
    /// Networks from which PROXY headers are read, with `--proxy-protocol`.
    proxy_from: Vec<Network> = proxy_from(),
    /// 0: no bound.
    outbox_bytes: u64 = u64(),
    /// 0: a reader may take nothing for any time.
    stalled_ms: u32 = u32(),
}

impl Settings {
    /// Return the settings in the body of a `settings` command.
    pub fn decode(body: &[u8]) -> Result<Settings, Malformed> {
        let mut from = Fields::new(body);
        let settings = from.settings()?;
        from.end()?;
        Ok(settings)
    }

    /// Return the code and text of a reason; those of `internal` if these settings lack it.
    pub fn reason(&self, reason: CloseReason<'_>) -> Reason {
        let found = self.named(reason.name()).or_else(|| self.named(CloseReason::Internal.name()));
        found.cloned().unwrap_or_default()
    }

    fn named(&self, name: &str) -> Option<&Reason> {
        self.reasons.iter().find(|reason| reason.name == name)
    }
}

impl Fields<'_> {
    /// Read a number behind so many unused bytes. Up to version 6 these were the limits of a
    /// memory, and a data plane of that time passes them on with its settings.
    fn behind_unused(&mut self, bytes: usize) -> Result<u32, Malformed> {
        self.take(bytes)?;
        self.u32()
    }

    fn string8(&mut self, field: &'static str) -> Result<String, Malformed> {
        self.text8(field).map(str::to_owned)
    }

    fn proxy_from(&mut self) -> Result<Vec<Network>, Malformed> {
        let count = self.u16()?;
        let network = |_| {
            let text = self.text8("proxy_from")?;
            Network::parse(text).ok_or(Malformed::Value("proxy_from"))
        };
        (0..count).map(network).collect()
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
            name: self.string8("reason")?,
            code: self.u16()?,
            text: self.reason_text()?.to_owned(),
            reconnect: self.flag("reconnect")?,
            retry_after_ms: self.u32()?,
        })
    }

    fn reason_text(&mut self) -> Result<&str, Malformed> {
        let text = self.text8("reason")?;
        // RFC 6455 section 5.5: a close frame has room for 123 bytes. None may need a JSON escape.
        let plain = |byte: u8| !byte.is_ascii_control() && byte != b'"' && byte != b'\\';
        if text.len() <= 123 && text.bytes().all(plain) {
            Ok(text)
        } else {
            Err(Malformed::Value("reason"))
        }
    }
}

/// Refuse zeros that would stop the gateway or divide by zero.
fn check(settings: &Settings) -> Result<(), Malformed> {
    let needed = [
        (settings.heartbeat_ms, "heartbeat_ms"),
        (settings.linger_ms, "linger_ms"),
        (settings.head_bytes, "head_bytes"),
        (settings.unfinished_ms, "unfinished_ms"),
        (settings.message_bytes, "message_bytes"),
        (settings.hard_bytes, "hard_bytes"),
        (settings.fanout_chunk, "fanout_chunk"),
        (settings.identities, "identities"),
        (settings.drain_per_second, "drain_per_second"),
    ];
    if let Some((_, name)) = needed.into_iter().find(|(value, _)| *value == 0) {
        return Err(Malformed::Value(name));
    }
    // `internal` replaces all missing ones: a take-over may bring settings that lack newer reasons.
    if settings.named(CloseReason::Internal.name()).is_none() {
        return Err(Malformed::Value("reasons"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::codec::{put_bytes16, put_text8};

    /// Return settings with one network and these reasons, each with a code of its own.
    fn body_with(network: &str, reasons: &[&str]) -> Vec<u8> {
        let mut body = [1u32.to_le_bytes(); 28].concat();
        body.extend(1u16.to_le_bytes());
        put_bytes16(&mut body, b"http://x");
        body.push(reasons.len() as u8);
        for (code, name) in (1000u16..).zip(reasons) {
            put_text8(&mut body, name);
            body.extend(code.to_le_bytes());
            put_text8(&mut body, name);
            body.push(1);
            body.extend([0; 4]);
        }
        put_text8(&mut body, "cookie");
        body.extend(7u32.to_le_bytes());
        body.extend([0, 1]);
        body.extend(8u32.to_le_bytes());
        body.extend(1u16.to_le_bytes());
        put_text8(&mut body, network);
        body.extend(9u64.to_le_bytes());
        body.extend(10u32.to_le_bytes());
        body
    }

    fn body(network: &str) -> Vec<u8> {
        body_with(network, &["internal"])
    }

    #[test]
    fn settings_are_read_field_by_field() {
        let mut body = body("10.0.0.0/8");
        let settings = Settings::decode(&body).expect("settings");
        let network = Network::parse("10.0.0.0/8").expect("a network");
        assert_eq!(
            (settings.pong_ms, settings.handovers, &settings.proxy_from),
            (7, 8, &vec![network])
        );
        assert_eq!((settings.websocket, settings.sockjs_cookie), (false, true));
        assert_eq!((settings.outbox_bytes, settings.stalled_ms), (9, 10));
        body.push(0);
        assert_eq!(Settings::decode(&body), Err(Malformed::Long));
        body.truncate(body.len() - 2);
        assert_eq!(Settings::decode(&body), Err(Malformed::Short));
    }

    #[test]
    fn what_a_control_plane_has_no_reason_for_is_said_to_be_internal() {
        let known = ["drain", "internal"];
        let settings = Settings::decode(&body_with("10.0.0.0/8", &known)).expect("settings");
        let code = |reason| settings.reason(reason).code;
        assert_eq!(code(CloseReason::Drain), 1000);
        assert_eq!(code(CloseReason::Internal), 1001);
        assert_eq!(code(CloseReason::Unfinished), 1001);
        let none = body_with("10.0.0.0/8", &["drain"]);
        assert_eq!(Settings::decode(&none), Err(Malformed::Value("reasons")));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        assert_eq!(Settings::decode(&body("10.0.0.0/33")), Err(Malformed::Value("proxy_from")));
    }
}
