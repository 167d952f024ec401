//! Every limit and interval, by name, as the control plane sends them in JSON.

use serde::Deserialize;

use super::Malformed;
use crate::addresses::Network;
use crate::closing::CloseReason;

/// A reason for which a connection ends.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
pub struct Reason {
    pub name: String,
    pub code: u16,
    /// At most 123 bytes.
    pub text: String,
    pub reconnect: bool,
    pub retry_after_ms: u32,
}

/// The numbers of the `error` pushes that the data plane makes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ErrorNumbers {
    pub already_subscribed: u16,
    pub limit_exceeded: u16,
    pub too_many_requests: u16,
}

/// Every limit and interval. After a take-over, settings of another release may lack names of ours:
/// they are 0, false or empty then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
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
    /// 0: a reader may take nothing for any time.
    pub stalled_ms: u32,
    /// 0: no bound.
    pub outbox_bytes: u64,
    pub fanout_chunk: u32,
    pub deflate_bytes: u32,
    pub per_address: u32,
    /// Connections that may be handed over at once; 0: any number.
    pub handovers: u32,
    pub identities: u32,
    pub identity_ms: u32,
    pub alone_ms: u32,
    pub drain_ms: u32,
    pub drain_per_second: u32,
    /// Answer plain pings for a control plane heard in the last so many ms; 0: never.
    pub pong_ms: u32,
    /// True if readers may connect over WebSocket.
    pub websocket: bool,
    /// True if `/sockjs/info` asks readers to keep a cookie.
    pub sockjs_cookie: bool,
    /// The cookie that may hold a reader's token; empty for none.
    pub cookie: String,
    /// In lower case; an empty list admits all.
    pub origins: Vec<String>,
    /// Networks from which PROXY headers are read, with `--proxy-protocol`.
    pub proxy_from: Vec<Network>,
    pub reasons: Vec<Reason>,
    pub errors: ErrorNumbers,
}

impl Settings {
    /// Return the settings in the JSON of a `settings` command.
    pub fn decode(json: &[u8]) -> Result<Settings, Malformed> {
        let read = serde_json::from_slice(json);
        let settings: Settings = read.map_err(|_| Malformed::Value("settings"))?;
        check(&settings)?;
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

/// Refuse zeros that would stop the gateway or divide by zero, and texts that break a close frame.
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
    let has_internal = settings.named(CloseReason::Internal.name()).is_some();
    if has_internal && settings.reasons.iter().all(|reason| is_sendable(&reason.text)) {
        Ok(())
    } else {
        Err(Malformed::Value("reasons"))
    }
}

/// Return whether a close frame has room for the text (RFC 6455 section 5.5: 123 bytes), and no
/// byte of it needs a JSON escape.
fn is_sendable(text: &str) -> bool {
    let plain = |byte: u8| !byte.is_ascii_control() && byte != b'"' && byte != b'\\';
    text.len() <= 123 && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return settings with all that is needed; `more` is JSON of further names.
    fn with(reasons: &[(&str, u16, &str)], more: &str) -> Result<Settings, Malformed> {
        let reasons = reasons.iter().map(|(name, code, text)| {
            format!(
                r#"{{"name":"{name}","code":{code},"text":"{text}","reconnect":true,"retry_after_ms":0}}"#
            )
        });
        let json = format!(
            r#"{{"heartbeat_ms":1,"linger_ms":1,"head_bytes":1,"unfinished_ms":1,"message_bytes":1,"hard_bytes":1,
            "fanout_chunk":1,"identities":1,"drain_per_second":1,"reasons":[{}]{more}}}"#,
            reasons.collect::<Vec<_>>().join(",")
        );
        Settings::decode(json.as_bytes())
    }

    const INTERNAL: (&str, u16, &str) = ("internal", 4100, "internal error");

    #[test]
    fn settings_are_read_by_name() {
        let more = r#","capacity":7,"proxy_from":["10.0.0.0/8"],"websocket":true,"outbox_bytes":4294967296"#;
        let settings = with(&[INTERNAL], more).expect("settings");
        let network = Network::parse("10.0.0.0/8").expect("a network");
        assert_eq!((settings.capacity, &settings.proxy_from), (7, &vec![network]));
        assert_eq!((settings.websocket, settings.sockjs_cookie), (true, false));
        assert_eq!((settings.outbox_bytes, settings.stalled_ms), (1 << 32, 0));
        for wrong in [r#","capacity":4294967296"#, r#","capacity":-1"#, r#","cookie":1"#, "}"] {
            assert_eq!(with(&[INTERNAL], wrong), Err(Malformed::Value("settings")), "{wrong}");
        }
    }

    #[test]
    fn names_of_another_release_are_ignored() {
        assert_eq!(with(&[INTERNAL], r#","memory":[7]"#), with(&[INTERNAL], ""));
    }

    #[test]
    fn names_that_another_release_lacks_are_zero_in_records_too() {
        let settings = with(&[INTERNAL], r#","errors":{"limit_exceeded":106}"#).expect("settings");
        assert_eq!((settings.errors.limit_exceeded, settings.errors.too_many_requests), (106, 0));
        let needed = r#""heartbeat_ms":1,"linger_ms":1,"head_bytes":1,"unfinished_ms":1,"message_bytes":1,"hard_bytes":1,
            "fanout_chunk":1,"identities":1,"drain_per_second":1"#;
        let json =
            format!(r#"{{{needed},"reasons":[{{"name":"internal","code":4100,"text":""}}]}}"#);
        let settings = Settings::decode(json.as_bytes()).expect("settings");
        assert!(!settings.reason(CloseReason::Internal).reconnect);
    }

    #[test]
    fn a_limit_that_would_stop_the_gateway_is_refused() {
        let zero = r#"{"heartbeat_ms":0}"#;
        assert_eq!(Settings::decode(zero.as_bytes()), Err(Malformed::Value("heartbeat_ms")));
    }

    #[test]
    fn a_close_without_a_reason_is_reported_as_internal() {
        let settings = with(&[("drain", 1012, "drained"), INTERNAL], "").expect("settings");
        let code = |reason| settings.reason(reason).code;
        assert_eq!(code(CloseReason::Drain), 1012);
        assert_eq!(code(CloseReason::Internal), 4100);
        assert_eq!(code(CloseReason::Unfinished), 4100);
        let none = with(&[("drain", 1012, "drained")], "");
        assert_eq!(none, Err(Malformed::Value("reasons")));
    }

    #[test]
    fn a_text_that_does_not_fit_a_close_frame_is_refused() {
        for text in ["x".repeat(124), r"a \\ b".to_owned()] {
            let broken = with(&[INTERNAL, ("drain", 1012, &text)], "");
            assert_eq!(broken, Err(Malformed::Value("reasons")), "{text}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let wrong = with(&[INTERNAL], r#","proxy_from":["10.0.0.0/33"]"#);
        assert_eq!(wrong, Err(Malformed::Value("settings")));
    }
}
