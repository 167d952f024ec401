//! A frontdesk's reply to `GET /endpoints.json`, as far as a reader in a crowd needs it.

use crate::frames::number_after;
use std::net::SocketAddrV4;

/// Random numbers, the same ones for the same seed (xorshift64*).
pub struct Dice(u64);

impl Dice {
    /// Starts from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A random number from 0 up to 1, without 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The mask of a frame.
    pub fn key(&mut self) -> [u8; 4] {
        ((self.next() >> 32) as u32).to_be_bytes()
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// A server to connect to.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The address.
    pub at: SocketAddrV4,
    /// The rest of the URL after the address; begins with a slash, or is empty.
    pub path: String,
}

impl Target {
    /// Parses a URL that begins with `scheme` and has an IPv4 address or `localhost`; the error is in words. An
    /// address other than loopback must be one's `own`: the load looks like an attack to its owner.
    pub fn of(url: &str, scheme: &str, own: bool) -> Result<Self, String> {
        let shown: String = url.chars().take(80).collect();
        let Some(rest) = url.strip_prefix(scheme) else {
            return Err(format!("{shown:?} doesn't begin with {scheme}"));
        };
        let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let place = place.replace("localhost", "127.0.0.1");
        let place = if place.contains(':') { place } else { place + ":80" };
        let at: SocketAddrV4 = place
            .parse()
            .map_err(|_| format!("{shown:?} has no IPv4 address: names aren't looked up"))?;
        if !own && !at.ip().is_loopback() {
            return Err(format!("{} is not loopback: it needs --i-own-this-target", at.ip()));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{shown:?} has a path that isn't one"));
        }
        Ok(Self { at, path: path.into() })
    }
}

/// A gateway, and its share of the readers.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedGateway {
    /// The address at which the gateway listens for readers.
    pub target: Target,
    /// The weight, relative to the others'.
    pub weight: f64,
}

/// The content of a frontdesk's reply.
#[derive(Debug, PartialEq)]
pub struct GatewayOffer {
    /// Gateways that readers of a crowd may connect to.
    pub gateways: Vec<WeightedGateway>,
    /// The number of other gateways: not on loopback, or not over plain WebSocket.
    pub foreign: usize,
    /// The pause in milliseconds before the next request.
    pub retry_ms: u64,
}

/// Reads a reply; `own`: its gateways may be anywhere.
pub fn parse(body: &[u8], own: bool) -> GatewayOffer {
    const MARK: &[u8] = b"\"websocket_url\":\"";
    let retry_ms = number_after(b"\"retry_ms\":", body).unwrap_or(1000);
    let mut offer = GatewayOffer { gateways: Vec::new(), foreign: 0, retry_ms };
    let mut rest = body;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        rest = &rest[at + MARK.len()..];
        // The entry ends where the next one begins.
        let end = rest.iter().position(|&byte| byte == b'}').unwrap_or(rest.len());
        let entry = &rest[..end];
        let url = entry.split(|&byte| byte == b'"').next().unwrap_or_default();
        match Target::of(&String::from_utf8_lossy(url), "ws://", own) {
            Ok(target) => offer.gateways.push(WeightedGateway { target, weight: weight_of(entry) }),
            Err(_) => offer.foreign += 1,
        }
    }
    offer
}

fn weight_of(entry: &[u8]) -> f64 {
    let Some(at) = entry.windows(9).position(|window| window == b"\"weight\":") else {
        return 1.0;
    };
    let digits: Vec<u8> =
        entry[at + 9..].iter().copied().take_while(|byte| !b",}".contains(byte)).collect();
    String::from_utf8_lossy(&digits).trim().parse().unwrap_or(1.0)
}

/// Takes one of `gateways` out, drawn by weight; None when there is none left.
pub fn draw(gateways: &mut Vec<WeightedGateway>, dice: &mut Dice) -> Option<WeightedGateway> {
    let all: f64 = gateways.iter().map(|gateway| gateway.weight).sum();
    let mut left = dice.share() * all;
    let last = gateways.len().checked_sub(1)?;
    for at in 0..=last {
        left -= gateways[at].weight;
        if left < 0.0 || at == last {
            return Some(gateways.swap_remove(at));
        }
    }
    None
}

/// The status and body of a whole HTTP reply; None while it isn't whole. `ended`: the connection has ended.
pub fn answer(data: &[u8], ended: bool) -> Option<(u64, &[u8])> {
    let head = data.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let status = number_after(b"HTTP/1.1 ", data)?;
    let lower = data[..head].to_ascii_lowercase();
    let length = number_after(b"content-length: ", &lower).map(|length| length as usize);
    let body = &data[head..];
    match length {
        Some(length) if body.len() >= length => Some((status, &body[..length])),
        None if ended => Some((status, body)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const ANSWER: &[u8] = br#"{"region":"oregon","gateways":[
        {"sockjs_url":"http://127.0.0.1:1/sockjs","websocket_url":"ws://127.0.0.1:17149/websocket","sse_url":"x","weight":0.75},
        {"sockjs_url":"http://127.0.0.1:1/sockjs","websocket_url":"ws://127.0.0.1:17143/websocket","sse_url":"x","weight":0.25}],
        "alternates":[],"ttl":5,"retry_ms":2000}"#;

    fn gateway(port: u16, weight: f64) -> WeightedGateway {
        let at = SocketAddrV4::new([127, 0, 0, 1].into(), port);
        WeightedGateway { target: Target { at, path: "/websocket".into() }, weight }
    }

    #[test]
    fn masks_differ() {
        let mut dice = Dice::new(1);
        let keys: HashSet<[u8; 4]> = (0..1000).map(|_| dice.key()).collect();
        assert_eq!(keys.len(), 1000);
        assert!(!keys.contains(&[0; 4]));
    }

    #[test]
    fn the_gateways_of_an_answer_are_found_with_their_weights() {
        let gateways = vec![gateway(17149, 0.75), gateway(17143, 0.25)];
        assert_eq!(parse(ANSWER, false), GatewayOffer { gateways, foreign: 0, retry_ms: 2000 });
        let none = GatewayOffer { gateways: vec![], foreign: 0, retry_ms: 5 };
        assert_eq!(parse(br#"{"gateways":[],"retry_ms":5}"#, false), none);
    }

    #[test]
    fn a_loopback_frontdesk_may_not_lead_elsewhere() {
        let text = String::from_utf8_lossy(ANSWER).replace("ws://127.0.0.1:17149", "ws://10.0.0.1");
        let found = parse(text.as_bytes(), false);
        assert_eq!((found.gateways, found.foreign), (vec![gateway(17143, 0.25)], 1));
        assert_eq!(parse(text.as_bytes(), true).foreign, 0);
        let secure = text.replace("ws://", "wss://");
        assert_eq!(parse(secure.as_bytes(), true).foreign, 2);
    }

    #[test]
    fn a_target_is_an_address_on_loopback_unless_it_is_ones_own() {
        let of = |url: &str, own| Target::of(url, "http://", own);
        let frontdesk = Target { at: "127.0.0.1:18100".parse().unwrap(), path: String::new() };
        assert_eq!(of("http://localhost:18100", false), Ok(frontdesk));
        assert_eq!(of("http://10.0.0.1/a", true).map(|target| target.path), Ok("/a".into()));
        let refused = of("http://10.0.0.1:80", false);
        assert_eq!(refused, Err("10.0.0.1 is not loopback: it needs --i-own-this-target".into()));
        for wrong in
            ["https://127.0.0.1", "http://news.example.org", "http://127.0.0.1:99999", "http:///a"]
        {
            assert!(of(wrong, true).is_err(), "{wrong}");
        }
        assert!(of("http://127.0.0.1/a b", false).is_err());
    }

    #[test]
    fn each_gateway_is_drawn_by_its_weight_and_once() {
        let gateways = parse(ANSWER, false).gateways;
        let mut dice = Dice::new(7);
        let mut first = 0;
        for _ in 0..10_000 {
            let mut left = gateways.clone();
            first += usize::from(draw(&mut left, &mut dice).unwrap().target.at.port() == 17149);
            assert!(draw(&mut left, &mut dice).is_some());
            assert_eq!(draw(&mut left, &mut dice), None);
        }
        assert!((7_300..7_700).contains(&first), "{first}");
    }

    #[test]
    fn an_answer_is_whole_when_its_length_is_there() {
        let text = b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(answer(text, false), Some((503, &b"{}"[..])));
        assert_eq!(answer(&text[..text.len() - 1], false), None);
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\n\r\nab", false), None);
        assert_eq!(answer(b"HTTP/1.1 200 OK\r\n\r\nab", true), Some((200, &b"ab"[..])));
    }
}
