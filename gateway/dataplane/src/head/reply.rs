//! The HTTP answers that are given without the control plane. They say what the Tornado engine says.

use std::io::Write as _;

use crate::clock::Utc;

const YEAR: u64 = 365 * 86_400;
const GREETING: &str = "Welcome to SockJS!\n";

/// Why a request is refused. The connection ends after the answer.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Refusal {
    /// 400, in these words.
    BadRequest(&'static str),
    /// 403.
    BadOrigin,
    /// 404: there are no WebSockets here.
    NotFound,
    /// 426: only version 13 is spoken (RFC 6455 section 4.4).
    WrongVersion,
    /// 431 (RFC 6585 section 5).
    HeadTooLarge,
    /// 503: the box is full or drained, or the control plane, whose request it is, isn't there.
    NotNow {
        /// What there is too little of.
        why: Busy,
        /// When to ask again; at least a second is said.
        retry_after_ms: u32,
    },
}

/// Why a request that is fine can't be served now.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Busy {
    /// There are as many readers as there may be.
    Capacity,
    /// The box is being drained.
    Draining,
    /// The control plane serves as many connections as it may.
    Handovers,
    /// There is no control plane.
    Control,
}

impl Busy {
    const fn word(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Draining => "draining",
            Self::Handovers => "handovers",
            Self::Control => "control",
        }
    }
}

impl Refusal {
    /// The HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::BadOrigin => 403,
            Self::NotFound => 404,
            Self::WrongVersion => 426,
            Self::HeadTooLarge => 431,
            Self::NotNow { .. } => 503,
        }
    }

    /// Append the answer.
    pub fn put(self, out: &mut Vec<u8>) {
        let (phrase, extra, why) = match self {
            Self::BadRequest(text) => ("Bad Request", String::new(), text.to_owned()),
            Self::BadOrigin => ("Forbidden", String::new(), "origin not allowed".to_owned()),
            Self::NotFound => ("Not Found", String::new(), "no WebSocket here".to_owned()),
            Self::WrongVersion => (
                "Upgrade Required",
                "Sec-WebSocket-Version: 13\r\n".to_owned(),
                "only version 13".to_owned(),
            ),
            Self::HeadTooLarge => {
                ("Request Header Fields Too Large", String::new(), "head too large".to_owned())
            }
            Self::NotNow { why, retry_after_ms } => (
                "Service Unavailable",
                format!("Retry-After: {}\r\n", (retry_after_ms / 1000).max(1)),
                format!("not now: {}", why.word()),
            ),
        };
        put(
            out,
            format_args!(
                "HTTP/1.1 {} {phrase}\r\n\
                 Content-Type: text/plain; charset=utf-8\r\n\
                 Cache-Control: no-store\r\n\
                 {extra}\
                 Content-Length: {}\r\n\
                 Connection: close\r\n\r\n{why}",
                self.status(),
                why.len(),
            ),
        );
    }
}

/// A request for `/sockjs/info`.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Info<'a> {
    /// The head's size.
    pub head_bytes: usize,
    /// The page's origin, if it said one.
    pub origin: Option<&'a [u8]>,
    /// Whether there are WebSockets here.
    pub websocket: bool,
    /// Whether a balancer in front goes by a cookie.
    pub cookie_needed: bool,
}

impl Info<'_> {
    /// Append the answer. `entropy` is a random number: sockjs-client seeds its own with it.
    pub fn put(&self, out: &mut Vec<u8>, entropy: u32, unix_seconds: u64) {
        let body = format!(
            "{{\"websocket\":{},\"cookie_needed\":{},\"origins\":[\"*:*\"],\"entropy\":{entropy}}}",
            self.websocket, self.cookie_needed,
        );
        put(
            out,
            format_args!(
                "HTTP/1.1 200 OK\r\n\
                 Content-Type: application/json; charset=UTF-8\r\n\
                 Date: {}\r\n\
                 Cache-Control: no-store, no-cache, no-transform, must-revalidate, max-age=0\r\n\
                 Vary: Origin\r\n\
                 Access-Control-Allow-Origin: ",
                Date(unix_seconds),
            ),
        );
        match self.origin {
            None => out.push(b'*'),
            // Also for "null", a page without an origin: with credentials browsers take no "*".
            Some(origin) => {
                out.extend_from_slice(origin);
                out.extend_from_slice(b"\r\nAccess-Control-Allow-Credentials: true");
            }
        }
        put(out, format_args!("\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }
}

/// Append the answer to `/sockjs`: a person's test that it is there.
pub fn put_greeting(out: &mut Vec<u8>, unix_seconds: u64) {
    put(
        out,
        format_args!(
            "HTTP/1.1 200 OK\r\n\
             Content-Type: text/plain; charset=UTF-8\r\n\
             Date: {}\r\n\
             Cache-Control: max-age={YEAR}, public\r\n\
             Expires: {}\r\n\
             Access-Control-Max-Age: {YEAR}\r\n\
             Content-Length: {}\r\n\r\n{GREETING}",
            Date(unix_seconds),
            Date(unix_seconds.saturating_add(YEAR)),
            GREETING.len(),
        ),
    );
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec can't fail.
    let _ = out.write_fmt(text);
}

/// Seconds of the Unix epoch as an HTTP date (RFC 9110 section 5.6.7).
struct Date(u64);

impl std::fmt::Display for Date {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let Utc { days, year, month, day, hour, minute, second } = Utc::of_unix(self.0);
        let weekday = WEEKDAYS[(days % 7) as usize];
        let month = MONTHS[month as usize - 1];
        write!(
            formatter,
            "{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT"
        )
    }
}
