//! HTTP answers that are given without the control plane. They equal those of the Tornado engine.

use std::io::Write as _;

use crate::clock::utc;

const YEAR: u64 = 365 * 86_400;
const GREETING: &str = "Welcome to SockJS!\n";

/// A reason to refuse a request. The connection ends after the answer.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum HttpRefusal {
    /// 400, with this text.
    BadRequest(&'static str),
    /// 403.
    BadOrigin,
    /// 404: WebSockets are switched off.
    NotFound,
    /// 426: only version 13 is supported (RFC 6455 section 4.4).
    WrongVersion,
    /// 431 (RFC 6585 section 5).
    HeadTooLarge,
    /// 503: a limit is reached, the box is drained, or the request's control plane is absent.
    Unavailable {
        /// The resource that is lacking.
        why: Busy,
        /// Time after which to ask again; at least one second is sent.
        retry_after_ms: u32,
    },
}

/// A reason why a good request can't be served now.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Busy {
    /// The maximum number of readers is reached.
    Capacity,
    /// The reader's address has its maximum number of connections.
    Address,
    /// The box is being drained.
    Draining,
    /// The control plane serves its maximum number of connections.
    Handovers,
    /// No control plane is attached.
    NoControlPlane,
}

impl HttpRefusal {
    /// Append the answer.
    pub fn put(self, out: &mut Vec<u8>) {
        let mut extra = String::new();
        let (status, why) = match self {
            Self::BadRequest(text) => ("400 Bad Request", text),
            Self::BadOrigin => ("403 Forbidden", "origin not allowed"),
            Self::NotFound => ("404 Not Found", "no WebSocket here"),
            Self::WrongVersion => {
                extra = "Sec-WebSocket-Version: 13\r\n".to_owned();
                ("426 Upgrade Required", "only version 13")
            }
            Self::HeadTooLarge => ("431 Request Header Fields Too Large", "head too large"),
            Self::Unavailable { why, retry_after_ms } => {
                extra = format!("Retry-After: {}\r\n", (retry_after_ms / 1000).max(1));
                let why = match why {
                    Busy::Capacity => "not now: capacity",
                    Busy::Address => "not now: address",
                    Busy::Draining => "not now: draining",
                    Busy::Handovers => "not now: handovers",
                    Busy::NoControlPlane => "not now: control",
                };
                ("503 Service Unavailable", why)
            }
        };
        // Writing to a Vec can't fail, here and below.
        let _ = write!(
            out,
            "HTTP/1.1 {status}\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\
             Cache-Control: no-store\r\n\
             {extra}\
             Content-Length: {}\r\n\
             Connection: close\r\n\r\n{why}",
            why.len(),
        );
    }
}

/// A request for `/sockjs/info`.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct Info<'a> {
    /// Size of the head.
    pub head_bytes: usize,
    /// Origin of the page, if the request has one.
    pub origin: Option<&'a [u8]>,
    /// True if WebSockets are switched on.
    pub websocket: bool,
    /// True if a load balancer in front routes by a cookie.
    pub cookie_needed: bool,
}

impl Info<'_> {
    /// Append the answer. `entropy` is a random number: sockjs-client seeds its own with it.
    pub fn put(&self, out: &mut Vec<u8>, entropy: u32, unix_seconds: u64) {
        let body = format!(
            "{{\"websocket\":{},\"cookie_needed\":{},\"origins\":[\"*:*\"],\"entropy\":{entropy}}}",
            self.websocket, self.cookie_needed,
        );
        let _ = write!(
            out,
            "HTTP/1.1 200 OK\r\n\
             Content-Type: application/json; charset=UTF-8\r\n\
             Date: {}\r\n\
             Cache-Control: no-store, no-cache, no-transform, must-revalidate, max-age=0\r\n\
             Vary: Origin\r\n\
             Access-Control-Allow-Origin: ",
            date(unix_seconds),
        );
        match self.origin {
            None => out.push(b'*'),
            // Also for "null", a page without an origin: with credentials browsers accept no "*".
            Some(origin) => {
                out.extend_from_slice(origin);
                out.extend_from_slice(b"\r\nAccess-Control-Allow-Credentials: true");
            }
        }
        let _ = write!(out, "\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}

/// Append the answer to `/sockjs`, by which a person can test that it is served.
pub fn put_greeting(out: &mut Vec<u8>, unix_seconds: u64) {
    let _ = write!(
        out,
        "HTTP/1.1 200 OK\r\n\
         Content-Type: text/plain; charset=UTF-8\r\n\
         Date: {}\r\n\
         Cache-Control: max-age={YEAR}, public\r\n\
         Expires: {}\r\n\
         Access-Control-Max-Age: {YEAR}\r\n\
         Content-Length: {}\r\n\r\n{GREETING}",
        date(unix_seconds),
        date(unix_seconds.saturating_add(YEAR)),
        GREETING.len(),
    );
}

/// Return a time in seconds since the Unix epoch as an HTTP date (RFC 9110 section 5.6.7).
fn date(unix_seconds: u64) -> String {
    utc(unix_seconds, c"%a, %d %b %Y %H:%M:%S GMT")
}
