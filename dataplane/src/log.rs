//! Log lines on stderr, beside the control plane's: text, or JSON objects in the format of
//! `newsfabric/process/logs.py`. The environment names the format, the process and the region.
//!
//! No line contains data from a reader, so lines aren't rate-limited. JSON lines escape control
//! characters all the same, because the texts of errors come from elsewhere.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;

use crate::clock::{unix_ms, utc};

/// Severity of a line.
#[derive(Clone, Copy, Debug)]
pub enum Level {
    /// A normal event.
    Info,
    /// A fact that an operator should know.
    Warning,
    /// A fault that should not occur.
    Error,
}

/// Write one line: `tell!(Info, "readers on port {port}")`.
#[macro_export]
macro_rules! log {
    ($level:ident, $($text:tt)*) => {
        $crate::log::write_line($crate::log::Level::$level, format_args!($($text)*))
    };
}

/// The process and the region for JSON lines; `None`: lines are text.
static WHO: OnceLock<Option<(String, String)>> = OnceLock::new();

/// Write one line; called by `tell!`.
pub fn write_line(level: Level, text: fmt::Arguments<'_>) {
    let who = WHO.get_or_init(|| {
        let variable = |name| std::env::var(name).unwrap_or_default();
        (variable("NEWSFABRIC_LOG_FORMAT") == "json")
            .then(|| (variable("NEWSFABRIC_LOG_PROCESS"), variable("NEWSFABRIC_LOG_REGION")))
    });
    let line = match who {
        None => format!("{text}\n"),
        Some((process, region)) => object(unix_ms(), level, &text.to_string(), process, region),
    };
    // The reader of stderr may be gone.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn object(at_ms: u64, level: Level, text: &str, process: &str, region: &str) -> String {
    let (time, level) = (rfc3339(at_ms), format!("{level:?}").to_lowercase());
    let mut line = format!("{{\"time\":\"{time}\",\"level\":\"{level}\"");
    let fields =
        [("logger", "dataplane"), ("message", text), ("process", process), ("region", region)];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(line, ",\"{name}\":\"");
        value.chars().for_each(|letter| put(&mut line, letter));
        line.push('"');
    }
    line.push_str("}\n");
    line
}

fn put(line: &mut String, letter: char) {
    match letter {
        '"' | '\\' => line.extend(['\\', letter]),
        '\0'..' ' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
            let _ = write!(line, "\\u{:04x}", letter as u32);
        }
        _ => line.push(letter),
    }
}

/// Return the time in UTC, with milliseconds.
fn rfc3339(at_ms: u64) -> String {
    format!("{}.{:03}Z", utc(at_ms / 1_000, c"%Y-%m-%dT%H:%M:%S"), at_ms % 1_000)
}

#[cfg(test)]
mod tests {
    use super::{Level, object, rfc3339};

    #[test]
    fn times_are_as_rfc_3339_has_them() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(rfc3339(1_795_372_168_123), "2026-11-22T18:29:28.123Z");
        assert_eq!(rfc3339(4_102_444_799_999), "2099-12-31T23:59:59.999Z");
    }

    #[test]
    fn an_object_is_one_line_whatever_the_text_is() {
        let line = object(0, Level::Warning, "a \"b\"\\\n\u{9b}\u{2028}ü", "box-1-gateway", "");
        assert_eq!(
            line,
            "{\"time\":\"1970-01-01T00:00:00.000Z\",\"level\":\"warning\",\"logger\":\"dataplane\",\
             \"message\":\"a \\\"b\\\"\\\\\\u000a\\u009b\\u2028ü\",\"process\":\"box-1-gateway\"}\n"
        );
    }
}
