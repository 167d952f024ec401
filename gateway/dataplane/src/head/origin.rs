//! Which web pages may connect.

/// An allow-list of web origins (`https://www.example.org`). Programs send no origin, and are let in.
#[derive(Debug, Clone)]
pub struct Origins {
    /// None lets pages of any origin in.
    listed: Vec<String>,
}

impl Origins {
    /// Pages of these may connect, and those of our own host; a `*` alone, or none at all, means any.
    pub fn only<S: AsRef<str>>(origins: impl IntoIterator<Item = S>) -> Self {
        let mut listed: Vec<_> = origins.into_iter().map(|one| one.as_ref().to_owned()).collect();
        if listed == ["*"] {
            listed.clear();
        }
        Self { listed }
    }

    /// Whether a page of `origin` may connect to `host` (RFC 6455 section 10.2).
    pub fn allow(&self, origin: &[u8], host: Option<&[u8]>) -> bool {
        self.listed.is_empty() || self.own(origin, host)
    }

    /// Whether a page of `origin` is one of ours: listed by name, or of our own host.
    pub fn own(&self, origin: &[u8], host: Option<&[u8]>) -> bool {
        let listed = self.listed.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(origin));
        let named = authority(origin);
        listed || host.is_some_and(|host| !named.is_empty() && named.eq_ignore_ascii_case(host))
    }
}

/// Host and port of an origin; empty if it has none (`null`).
fn authority(origin: &[u8]) -> &[u8] {
    let Some(start) = memchr::memmem::find(origin, b"://") else {
        return b"";
    };
    let rest = &origin[start + 3..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte));
    &rest[..end.unwrap_or(rest.len())]
}
