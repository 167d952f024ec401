//! The pushes that the data plane makes itself. Pure.

use crate::control::{Reason, Settings};

/// Time after which a verb is accepted at any rate: at least one token per second returns.
const PAUSE_MS: u32 = 1_000;

/// Return the `disconnect` push that precedes each of our closes (proxies drop close frames).
pub fn disconnect_push(reason: &Reason, retry_after_ms: u32) -> String {
    format!(
        r#"{{"type":"disconnect","code":{},"reason":"{}","reconnect":{},"retry_after_ms":{retry_after_ms}}}"#,
        reason.code, reason.text, reason.reconnect
    )
}

/// Return a permanent `error` push. `reference` is JSON text, `topic` a name; both may be empty.
pub fn error_push(reference: &str, topic: &str, code: u16, reason: &str) -> String {
    let mut push = String::from(r#"{"type":"error""#);
    if !reference.is_empty() {
        push.push_str(r#","ref":"#);
        push.push_str(reference);
    }
    if !topic.is_empty() {
        push.push_str(&format!(r#","topic":"{topic}""#));
    }
    push.push_str(&format!(r#","code":{code},"reason":"{reason}","temporary":false}}"#));
    push
}

/// Return the `error` push for a verb beyond the rate, with the limits and the time to wait.
pub fn too_many_push(settings: &Settings) -> String {
    let Settings { topics, verbs, verbs_per_second, errors, .. } = settings;
    format!(
        concat!(
            r#"{{"type":"error","code":{},"reason":"too many requests","temporary":true,"#,
            r#""retry_after_ms":{},"#,
            r#""limits":{{"topics":{},"verbs":{},"verbs_per_second":{}}}}}"#
        ),
        errors.too_many_requests, PAUSE_MS, topics, verbs, verbs_per_second
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ErrorNumbers;

    #[test]
    fn an_error_push_leaves_out_what_it_has_not() {
        assert_eq!(
            error_push("", "", 107, "too long"),
            r#"{"type":"error","code":107,"reason":"too long","temporary":false}"#
        );
        assert_eq!(
            error_push("7", "news.x", 105, "already subscribed"),
            r#"{"type":"error","ref":7,"topic":"news.x","code":105,"reason":"already subscribed","temporary":false}"#
        );
    }

    #[test]
    fn a_reader_over_the_rate_learns_the_rate() {
        let errors = ErrorNumbers { too_many_requests: 111, ..ErrorNumbers::default() };
        let settings = Settings {
            topics: 128,
            verbs: 256,
            verbs_per_second: 10,
            errors,
            ..Settings::default()
        };
        assert_eq!(
            too_many_push(&settings),
            r#"{"type":"error","code":111,"reason":"too many requests","temporary":true,"retry_after_ms":1000,"limits":{"topics":128,"verbs":256,"verbs_per_second":10}}"#
        );
    }

    #[test]
    fn a_disconnect_push_says_when_to_come_again() {
        let reason = Reason {
            name: "drain".into(),
            code: 1012,
            text: "this box is being drained".into(),
            reconnect: true,
            retry_after_ms: 1000,
        };
        assert_eq!(
            disconnect_push(&reason, 640),
            r#"{"type":"disconnect","code":1012,"reason":"this box is being drained","reconnect":true,"retry_after_ms":640}"#
        );
    }
}
