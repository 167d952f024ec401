//! The header fields that decide something, found in one pass.

use super::Origins;

/// A field that may stand once.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum Single<'a> {
    #[default]
    Missing,
    Value(&'a [u8]),
    Doubled,
}

impl<'a> Single<'a> {
    fn add(&mut self, value: &'a [u8]) {
        *self = match self {
            Self::Missing => Self::Value(value),
            _ => Self::Doubled,
        };
    }

    pub(super) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn is_missing(self) -> bool {
        matches!(self, Self::Missing)
    }

    pub(super) fn is_doubled(self) -> bool {
        matches!(self, Self::Doubled)
    }
}

/// What a request says, as far as it matters here.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    pub(super) host: Single<'a>,
    pub(super) origin: Single<'a>,
    pub(super) key: Single<'a>,
    pub(super) version: Single<'a>,
    /// Whether `Upgrade` lists `websocket`.
    pub(super) upgrade: bool,
    /// Whether `Connection` lists `upgrade`.
    pub(super) connection: bool,
    /// The first permessage-deflate offer that can be accepted.
    pub(super) deflate: Option<crate::deflate::Agreement>,
    pub(super) has_body: bool,
    /// It asks for more than a plain GET does: a conditional request, a preflight, a close.
    pub(super) is_special: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn of(headers: &[httparse::Header<'a>]) -> Self {
        let mut fields = Self::default();
        for header in headers {
            fields.take(header.name, header.value);
        }
        fields
    }

    fn take(&mut self, name: &str, value: &'a [u8]) {
        // The longest name that is asked for has 30 bytes.
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
            b"content-length" => self.has_body |= value != b"0",
            b"transfer-encoding" => self.has_body = true,
            b"if-none-match" | b"access-control-request-headers" | b"expect" => {
                self.is_special = true;
            }
            _ => {}
        }
    }

    pub(super) fn allowed_by(&self, origins: &Origins) -> bool {
        match self.origin {
            Single::Missing => true,
            Single::Value(origin) => origins.allow(origin, self.host.value()),
            Single::Doubled => false,
        }
    }
}

/// Whether `token` is an element of a comma-separated list, in any case.
fn lists(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|element| element.trim_ascii().eq_ignore_ascii_case(token))
}
