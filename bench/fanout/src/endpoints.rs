//! What a frontdesk answers to `GET /endpoints.json`, as far as a reader in a crowd needs it.

use crate::frames::{number_after, text_after};

/// Numbers at random, the same ones for the same seed (xorshift64*).
pub struct Dice(u64);

impl Dice {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 up to 1, which never comes.
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

/// A gateway on this machine, and its share of those who come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gateway {
    /// Where it listens for readers.
    pub port: u16,
    /// Beside the others'.
    pub weight: f64,
}

/// The gateways that an answer offers, and after how many milliseconds to ask again.
pub fn parse(body: &[u8]) -> (Vec<Gateway>, u64) {
    const MARK: &[u8] = b"\"websocket_url\":\"ws://";
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        rest = &rest[at + MARK.len()..];
        // The entry ends where the next one begins.
        let end = rest.iter().position(|&byte| byte == b'}').unwrap_or(rest.len());
        let entry = &rest[..end];
        let port = number_after(b":", entry).and_then(|port| u16::try_from(port).ok());
        if let Some(port) = port {
            found.push(Gateway { port, weight: weight_of(entry) });
        }
    }
    (found, number_after(b"\"retry_ms\":", body).unwrap_or(1000))
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
pub fn draw(gateways: &mut Vec<Gateway>, dice: &mut Dice) -> Option<Gateway> {
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

/// The status and body of a whole HTTP answer; None while it isn't whole. `ended`: no more comes.
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

/// The close code and the pause of a `disconnect` push; None for any other push.
pub fn disconnect(payload: &[u8]) -> Option<(u64, u64)> {
    if text_after(b"{\"type\":\"", payload)? != b"disconnect" {
        return None;
    }
    let pause = number_after(b"\"retry_after_ms\":", payload).unwrap_or(0);
    Some((number_after(b"\"code\":", payload).unwrap_or(0), pause))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = br#"{"region":"oregon","gateways":[
        {"sockjs_url":"http://127.0.0.1:1/sockjs","websocket_url":"ws://127.0.0.1:17149/websocket","sse_url":"x","weight":0.75},
        {"sockjs_url":"http://127.0.0.1:1/sockjs","websocket_url":"ws://127.0.0.1:17143/websocket","sse_url":"x","weight":0.25}],
        "alternates":[],"ttl":5,"retry_ms":2000}"#;

    #[test]
    fn the_gateways_of_an_answer_are_found_with_their_weights() {
        let found =
            vec![Gateway { port: 17149, weight: 0.75 }, Gateway { port: 17143, weight: 0.25 }];
        assert_eq!(parse(ANSWER), (found, 2000));
        assert_eq!(parse(br#"{"gateways":[],"retry_ms":5}"#), (vec![], 5));
    }

    #[test]
    fn each_gateway_is_drawn_as_often_as_its_weight_says_and_once() {
        let (gateways, _) = parse(ANSWER);
        let mut dice = Dice::new(7);
        let mut first = 0;
        for _ in 0..10_000 {
            let mut left = gateways.clone();
            first += usize::from(draw(&mut left, &mut dice).unwrap().port == 17149);
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

    #[test]
    fn a_disconnect_says_why_and_how_long_to_wait() {
        let push = br#"{"type":"disconnect","code":1012,"reason":"x","reconnect":true,"retry_after_ms":640}"#;
        assert_eq!(disconnect(push), Some((1012, 640)));
        assert_eq!(disconnect(br#"{"type":"message"}"#), None);
    }
}
