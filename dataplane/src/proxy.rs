//! The PROXY protocol, versions 1 and 2: the reader's address behind a load balancer.
//!
//! No I/O, no state: pass the first bytes of a connection, from the start, again whenever there are
//! more. Only for connections from proxies that speak the protocol (the setting `proxy_from`): a
//! reader could claim any address.
//!
//! The decision to question: data that version 2 may append to the addresses (TLVs, checksums) are
//! skipped unread. No decision here depends on them, and TCP has checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest version 1 header, with its CRLF (PROXY protocol section 2.1).
const V1_BYTES: usize = 107;
const V1_START: &[u8] = b"PROXY ";
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;
/// Longest version 2 header that is accepted. Proxies send a few hundred bytes with all TLVs on.
pub const V2_BYTES: usize = 4096;

/// The result of reading a PROXY header.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub enum Proxied {
    /// More bytes are needed. The caller has a deadline meanwhile.
    Incomplete,
    /// A whole header. `reader` is `None` for a connection of the proxy itself (LOCAL: a health
    /// check) and for an unknown reader (UNKNOWN): take the socket's address.
    Header {
        /// Size of the header: the request's head begins behind it.
        bytes: usize,
        /// The reader's address and port.
        reader: Option<SocketAddr>,
    },
}

/// Not a PROXY header: close without an answer, and count it.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub struct NotProxied;

/// Read the header at the start of `bytes`.
///
/// # Errors
/// [`NotProxied`], as soon as no further byte could make it a header.
pub fn parse(bytes: &[u8]) -> Result<Proxied, NotProxied> {
    if is_start_of(bytes, V1_START) {
        version1(bytes)
    } else if is_start_of(bytes, V2_START) {
        version2(bytes)
    } else {
        Err(NotProxied)
    }
}

fn is_start_of(bytes: &[u8], signature: &[u8]) -> bool {
    bytes.iter().zip(signature).all(|(a, b)| a == b)
}

fn version1(bytes: &[u8]) -> Result<Proxied, NotProxied> {
    let window = &bytes[..bytes.len().min(V1_BYTES)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() == V1_BYTES { Err(NotProxied) } else { Ok(Proxied::Incomplete) };
    };
    let line = std::str::from_utf8(&window[..end]).map_err(|_| NotProxied)?;
    let line = line.strip_suffix('\r').ok_or(NotProxied)?;
    let mut words = line.split(' ').skip(1);
    let reader = match words.next() {
        // The rest of such a line must be ignored.
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(addresses::<Ipv4Addr>(words)?),
        Some("TCP6") => Some(addresses::<Ipv6Addr>(words)?),
        _ => return Err(NotProxied),
    };
    Ok(Proxied::Header { bytes: end + 1, reader })
}

/// Read source address, destination address, source port, destination port; no more may follow.
fn addresses<'a, A: std::str::FromStr + Into<IpAddr>>(
    mut words: impl Iterator<Item = &'a str>,
) -> Result<SocketAddr, NotProxied> {
    let mut address = || words.next()?.parse::<A>().ok();
    let (source, _) = address().zip(address()).ok_or(NotProxied)?;
    let mut port = || words.next().and_then(port_of);
    let (source_port, _) = port().zip(port()).ok_or(NotProxied)?;
    if words.next().is_some() {
        return Err(NotProxied);
    }
    Ok(SocketAddr::new(source.into(), source_port))
}

/// Read a port: decimal digits, without sign or leading zeros.
fn port_of(word: &str) -> Option<u16> {
    word.parse::<u16>().ok().filter(|port| port.to_string() == word)
}

/// Read a version 2 header (PROXY protocol section 2.2).
fn version2(bytes: &[u8]) -> Result<Proxied, NotProxied> {
    if bytes.get(12).is_some_and(|first| !matches!(first, 0x20 | 0x21)) {
        return Err(NotProxied);
    }
    let Some(fixed) = bytes.get(..V2_FIXED) else {
        return Ok(Proxied::Incomplete);
    };
    let size = V2_FIXED + usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    // LOCAL (0): the addresses must be ignored.
    let local = fixed[12] == 0x20;
    let least = match fixed[13] {
        _ if local => 0,
        0x00 => 0,
        0x11 => 12,
        0x21 => 36,
        // AF_UNIX.
        0x31 => 216,
        // Datagrams never reach a TCP listener; the other values aren't assigned.
        _ => return Err(NotProxied),
    };
    if size > V2_BYTES || size < V2_FIXED + least {
        return Err(NotProxied);
    }
    let Some(addresses) = bytes.get(V2_FIXED..size) else {
        return Ok(Proxied::Incomplete);
    };
    let reader = if local { None } else { source2(fixed[13], addresses) };
    Ok(Proxied::Header { bytes: size, reader })
}

fn source2(family: u8, addresses: &[u8]) -> Option<SocketAddr> {
    let (address, at): (IpAddr, _) = match family {
        0x11 => ((*addresses.first_chunk::<4>()?).into(), 8),
        0x21 => ((*addresses.first_chunk::<16>()?).into(), 32),
        _ => return None,
    };
    let port = addresses.get(at..)?.first_chunk()?;
    Some(SocketAddr::new(address, u16::from_be_bytes(*port)))
}
