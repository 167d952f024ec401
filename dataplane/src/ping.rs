//! The only verb that the data plane answers itself, for a control plane that permits it.
//!
//! A quiet page sends `ping` every few seconds to check its connection; 100,000 pages would keep a
//! control plane busy. Only the plainest form is recognised, byte by byte. Any other form of a ping
//! is left to the control plane.
//!
//! The decision to question: a pong asserts that the control plane lives, too. So after some
//! silence of the control plane ([`ControlLiveness`]) pings are passed on to it; its answer is a
//! sign of life.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Maximum bytes of a `ref` string, without quotes; the control plane judges longer ones.
const REF_BYTES: usize = 32;
/// Maximum digits of a `ref` number: exact in every JSON library.
const REF_DIGITS: usize = 15;

/// Return the `pong` push if `verb` is a plain ping: `{"action":"ping"}`, or
/// `{"action":"ping","ref":R}` where R is a string of printable ASCII without escapes, or a whole
/// number that isn't negative.
pub fn pong(verb: &[u8]) -> Option<String> {
    let rest = verb.strip_prefix(br#"{"action":"ping""#)?.strip_suffix(b"}")?;
    if rest.is_empty() {
        return Some(r#"{"type":"pong"}"#.to_owned());
    }
    let reference = rest.strip_prefix(br#","ref":"#).filter(|it| is_plain(it))?;
    let reference = std::str::from_utf8(reference).ok()?;
    Some(format!(r#"{{"type":"pong","ref":{reference}}}"#))
}

/// Return whether every JSON library would write this JSON text in the same form.
fn is_plain(reference: &[u8]) -> bool {
    if let Some(text) = reference.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")) {
        let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        return text.len() <= REF_BYTES && text.iter().all(plain);
    }
    match reference {
        b"0" => true,
        [b'1'..=b'9', more @ ..] => more.len() < REF_DIGITS && more.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Time at which the control plane was last heard from, shared by all threads.
#[derive(Debug)]
pub struct ControlLiveness {
    started: Instant,
    last_received_ms: AtomicU64,
}

impl Default for ControlLiveness {
    fn default() -> ControlLiveness {
        ControlLiveness { started: Instant::now(), last_received_ms: AtomicU64::new(0) }
    }
}

impl ControlLiveness {
    /// Record that the control plane has sent something.
    pub fn record_received(&self) {
        self.last_received_ms.store(self.now_ms(), Relaxed);
    }

    /// Return the ms since the control plane was last heard from.
    pub fn silent_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.last_received_ms.load(Relaxed))
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn answer(verb: &str) -> Option<String> {
        pong(verb.as_bytes())
    }

    #[test]
    fn a_plain_ping_is_answered_with_its_ref() {
        let pong_to = |verb: &str| answer(verb).expect("a plain ping");
        assert_eq!(pong_to(r#"{"action":"ping"}"#), r#"{"type":"pong"}"#);
        assert_eq!(pong_to(r#"{"action":"ping","ref":"s17"}"#), r#"{"type":"pong","ref":"s17"}"#);
        assert_eq!(pong_to(r#"{"action":"ping","ref":""}"#), r#"{"type":"pong","ref":""}"#);
        assert_eq!(pong_to(r#"{"action":"ping","ref":0}"#), r#"{"type":"pong","ref":0}"#);
        let most = r#"{"action":"ping","ref":999999999999999}"#;
        assert_eq!(pong_to(most), r#"{"type":"pong","ref":999999999999999}"#);
        let longest = format!(r#"{{"action":"ping","ref":"{}"}}"#, "~".repeat(32));
        assert_eq!(pong_to(&longest), longest.replace(r#""action":"ping""#, r#""type":"pong""#));
    }

    #[test]
    fn whatever_is_written_otherwise_is_not() {
        let longer = format!(r#"{{"action":"ping","ref":"{}"}}"#, "x".repeat(33));
        let other = [
            "",
            "{}",
            r#"{"action": "ping"}"#,
            r#" {"action":"ping"}"#,
            r#"{"action":"ping"} "#,
            r#"{"action":"ping"}}"#,
            r#"{"action":"ping",}"#,
            r#"{"action":"pingx"}"#,
            r#"{"action":"ping","ref":}"#,
            r#"{"action":"ping","ref":null}"#,
            r#"{"action":"ping","ref":true}"#,
            r#"{"action":"ping","ref":-1}"#,
            r#"{"action":"ping","ref":01}"#,
            r#"{"action":"ping","ref":1.5}"#,
            r#"{"action":"ping","ref":1e3}"#,
            r#"{"action":"ping","ref":1000000000000000}"#,
            r#"{"action":"ping","ref":"}"#,
            r#"{"action":"ping","ref":"a"b"}"#,
            r#"{"action":"ping","ref":"a\n"}"#,
            r#"{"action":"ping","ref":"é"}"#,
            "{\"action\":\"ping\",\"ref\":\"\u{7f}\"}",
            r#"{"action":"ping","ref":"a","ref":"b"}"#,
            r#"{"action":"ping","ref":1,"ref":2}"#,
            r#"{"action":"ping","ref":["a"]}"#,
            r#"{"ref":1,"action":"ping"}"#,
            &longer,
        ];
        for verb in other {
            assert_eq!(answer(verb), None, "{verb}");
        }
    }

    #[test]
    fn a_control_plane_is_silent_from_its_last_message_on() {
        let liveness =
            ControlLiveness { started: Instant::now(), last_received_ms: AtomicU64::new(0) };
        liveness.last_received_ms.store(60_000, Relaxed);
        assert_eq!(liveness.silent_ms(), 0, "a clock never goes back");
        liveness.record_received();
        assert!(liveness.last_received_ms.load(Relaxed) < 60_000);
    }

    proptest! {
        #[test]
        fn any_plain_string_comes_back(reference in "[ !#-\\[\\]-~]{0,32}") {
            let pong = answer(&format!(r#"{{"action":"ping","ref":"{reference}"}}"#));
            prop_assert_eq!(pong, Some(format!(r#"{{"type":"pong","ref":"{reference}"}}"#)));
        }

        #[test]
        fn any_bytes_behind_it_are_a_pong_of_valid_text_or_nothing(rest: Vec<u8>) {
            let _ = pong(&[br#"{"action":"ping","ref":"#, &rest[..], b"}"].concat());
        }
    }
}
