//! The header fields that matter for the decision, found in one pass.

use super::SUBPROTOCOL;
use crate::control::Settings;

/// A field that may occur once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Single<'a> {
    pub(super) first: Option<&'a [u8]>,
    pub(super) is_doubled: bool,
}

impl<'a> Single<'a> {
    fn add(&mut self, value: &'a [u8]) {
        self.is_doubled = self.first.is_some();
        self.first = self.first.or(Some(value));
    }

    /// Return the value; `None` also if the field occurs more than once.
    pub(super) fn value(self) -> Option<&'a [u8]> {
        self.first.filter(|_| !self.is_doubled)
    }

    pub(super) fn is_missing(self) -> bool {
        self.first.is_none()
    }
}

/// The fields of a request that matter here.
#[derive(Debug, Default)]
pub(super) struct HeaderFields<'a> {
    pub(super) host: Single<'a>,
    pub(super) origin: Single<'a>,
    pub(super) key: Single<'a>,
    pub(super) version: Single<'a>,
    /// True if `Upgrade` lists `websocket`.
    pub(super) upgrade: bool,
    /// True if `Connection` lists `upgrade`.
    pub(super) connection: bool,
    /// The first permessage-deflate offer that can be accepted.
    pub(super) deflate: Option<crate::deflate::Agreement>,
    /// True if our subprotocol is offered.
    pub(super) protocol: bool,
    /// The entry behind our subprotocol.
    pub(super) token: Single<'a>,
    pub(super) cookie: Single<'a>,
    /// True if the browser asserts that the page has our own origin.
    pub(super) same_origin: bool,
    pub(super) has_body: bool,
    /// True for more than a plain GET: a conditional request, a preflight, a close.
    pub(super) is_special: bool,
}

impl<'a> HeaderFields<'a> {
    pub(super) fn of(headers: &[httparse::Header<'a>]) -> Self {
        let mut fields = Self::default();
        for header in headers {
            fields.add(header.name, header.value);
        }
        fields
    }

    fn add(&mut self, name: &str, value: &'a [u8]) {
        // The longest name below has 30 bytes.
        let mut lower = [0; 32];
        let Some(lower) = lower.get_mut(..name.len()) else {
            return;
        };
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        match &*lower {
            b"host" => self.host.add(value),
            b"origin" => self.origin.add(value),
            b"sec-websocket-key" => self.key.add(value),
            b"sec-websocket-version" => self.version.add(value),
            b"upgrade" => self.upgrade |= lists(value, b"websocket"),
            b"connection" => {
                self.connection |= lists(value, b"upgrade");
                self.is_special |= lists(value, b"close");
            }
            b"sec-websocket-extensions" => {
                self.deflate = self.deflate.or_else(|| crate::deflate::negotiate([value]));
            }
            b"sec-websocket-protocol" => self.add_protocols(value),
            b"cookie" => self.cookie.add(value),
            b"sec-fetch-site" => self.same_origin = value == b"same-origin",
            b"content-length" => self.has_body |= value != b"0",
            b"transfer-encoding" => self.has_body = true,
            b"if-none-match" | b"access-control-request-headers" | b"expect" => {
                self.is_special = true;
            }
            _ => {}
        }
    }

    fn add_protocols(&mut self, value: &'a [u8]) {
        for entry in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if self.protocol {
                self.token.add(entry);
            } else {
                self.protocol = entry == SUBPROTOCOL;
            }
        }
    }

    /// Return whether `Host` occurs once and is valid (RFC 9112 section 3.2). HTTP/1.0 needs none.
    pub(super) fn is_addressed(&self, is_http11: bool) -> bool {
        if self.host.is_missing() { !is_http11 } else { self.host.value().is_some_and(is_host) }
    }

    /// Return the request's token: the entry behind our subprotocol, or the cookie of the settings
    /// if the page is ours. (A browser sends cookies for every page that asks.)
    pub(super) fn token(&self, settings: &Settings) -> Option<&'a [u8]> {
        if let Some(token) = self.token.first.filter(|token| !token.is_empty()) {
            return Some(token);
        }
        let cookie = settings.cookie.as_bytes();
        let own = self.is_own(settings) || (self.origin.is_missing() && self.same_origin);
        self.cookie.value().filter(|_| own && !cookie.is_empty()).and_then(|all| {
            all.split(|byte| *byte == b';').find_map(|one| {
                one.trim_ascii().strip_prefix(cookie)?.strip_prefix(b"=").map(<[u8]>::trim_ascii)
            })
        })
    }

    /// Return whether the page may connect (RFC 6455 section 10.2). Programs have no origin, and
    /// may.
    pub(super) fn allowed_by(&self, settings: &Settings) -> bool {
        let any = settings.origins.is_empty() || settings.origins == ["*"];
        self.origin.is_missing() || (any && !self.origin.is_doubled) || self.is_own(settings)
    }

    /// Return whether the page is ours: its origin is listed by name, or is our own host.
    fn is_own(&self, settings: &Settings) -> bool {
        self.origin.value().is_some_and(|origin| {
            let named = authority(origin);
            let ours = !named.is_empty()
                && self.host.value().is_some_and(|host| named.eq_ignore_ascii_case(host));
            ours || settings.origins.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(origin))
        })
    }
}

/// Return whether `value` has only characters of a host and a port (RFC 3986 section 3.2), as the
/// Tornado engine reads them: no comma, with which proxies join two fields.
fn is_host(value: &[u8]) -> bool {
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            _ if byte.is_ascii_alphanumeric() || b"-._~[]:!$&'()*+;=".contains(byte) => after,
            _ => return false,
        };
    }
    true
}

/// Return host and port of an origin; empty if it has none (`null`).
fn authority(origin: &[u8]) -> &[u8] {
    let Some(start) = memchr::memmem::find(origin, b"://") else {
        return b"";
    };
    let rest = &origin[start + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    &rest[..end.unwrap_or(rest.len())]
}

/// Return whether `token` is an element of a comma-separated list, ignoring case.
fn lists(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|element| element.trim_ascii().eq_ignore_ascii_case(token))
}
