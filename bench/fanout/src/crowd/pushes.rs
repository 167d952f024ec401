//! The pushes of gateways, as far as a reader in a crowd needs them.
//!
//! All readers of a gateway receive a message as the same bytes, so it is parsed once and then recognised.

use crate::frames::{has, text_after};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

/// Bound of publishers, of all topics together. Messages of further publishers count only as strange.
pub const MOST_PUBLISHERS: usize = 256;
const MOST_NAME: usize = 64;
const MOST_POSITION: usize = 16 * 1024;
/// Bound of remembered identities, those of the newest messages.
const MOST_IDENTITIES: usize = 100_000;
/// Number of messages that are recognised by their bytes: those on their way at one moment, from each gateway.
const RECENT: usize = 16;

/// The position with which a reader resumes.
pub type PushPosition = Rc<[u8]>;

/// A push.
#[derive(Clone, Debug, PartialEq)]
pub enum Push {
    /// A message of the load test.
    Message(PushedMessage),
    /// A message that is not of the load test.
    Strange(Option<PushPosition>),
    /// The subscription has begun; the flag: everything missed is certainly recovered.
    Subscribed(bool, Option<PushPosition>),
    /// The gateway ends the connection: its code, the requested pause in ms, whether a reconnect is allowed.
    Disconnect(u64, u64, bool),
    /// A verb was refused, with this code.
    Error(u64),
    /// Any other push.
    Other,
}

/// A message as its publisher made it: `{"loadtest":NAME,"n":N,"sent_ns":NS,"due_ns":NS,…}`.
#[derive(Clone, Debug, PartialEq)]
pub struct PushedMessage {
    /// The topic, by number.
    pub topic: u16,
    /// The publisher, by number.
    pub publisher: u16,
    /// The message's number among those of the publisher on the topic.
    pub number: u32,
    /// The time at which the message was sent.
    pub sent_ns: u64,
    /// The time at which the message should have been sent.
    pub due_ns: u64,
    /// True unless the same message is known under another identity.
    pub agrees: bool,
    /// None for messages read from the store.
    pub position: Option<PushPosition>,
}

/// Reads pushes of these topics, and remembers the publishers.
pub struct Pushes {
    topics: Vec<String>,
    publishers: Vec<String>,
    identities: Identities,
    recent: VecDeque<(Box<[u8]>, PushedMessage)>,
}

impl Pushes {
    /// For readers of `topics`.
    pub fn new(topics: Vec<String>) -> Self {
        Self {
            topics,
            publishers: Vec::new(),
            identities: Identities::default(),
            recent: VecDeque::new(),
        }
    }

    /// The topics, by number.
    pub fn topics(&self) -> &[String] {
        &self.topics
    }

    /// The publishers so far, by number.
    pub fn publishers(&self) -> &[String] {
        &self.publishers
    }

    /// Parses `payload`.
    pub fn read(&mut self, payload: &[u8]) -> Push {
        if let Some((_, message)) = self.recent.iter().find(|(known, _)| **known == *payload) {
            return Push::Message(message.clone());
        }
        match text_after(b"{\"type\":\"", payload) {
            Some(b"message") => match self.message(payload) {
                Some(message) => {
                    self.recent.truncate(RECENT - 1);
                    self.recent.push_front((payload.into(), message.clone()));
                    Push::Message(message)
                }
                None => Push::Strange(position(payload)),
            },
            Some(b"subscribed") => {
                Push::Subscribed(has(b"\"recovered\":true", payload), position(payload))
            }
            Some(b"disconnect") => Push::Disconnect(
                number(b"\"code\"", payload).unwrap_or(0),
                number(b"\"retry_after_ms\"", payload).unwrap_or(0),
                !has(b"\"reconnect\":false", payload),
            ),
            Some(b"error") => Push::Error(number(b"\"code\"", payload).unwrap_or(0)),
            _ => Push::Other,
        }
    }

    fn message(&mut self, payload: &[u8]) -> Option<PushedMessage> {
        // A publisher can't imitate a field of the gateway: quotes in texts are escaped.
        let body = after(b"\"body\"", payload)?;
        let topic = text(b"\"topic\"", payload)?;
        let topic = self.topics.iter().position(|one| one.as_bytes() == topic)? as u16;
        let publisher = self.publisher(text(b"\"loadtest\"", body)?)?;
        let found = u32::try_from(number(b"\"n\"", body)?).ok()?;
        let identity = identity(text(b"\"id\"", payload)?)?;
        Some(PushedMessage {
            topic,
            publisher,
            number: found,
            sent_ns: number(b"\"sent_ns\"", body)?,
            due_ns: number(b"\"due_ns\"", body)?,
            agrees: self.identities.agree((topic, publisher, found), identity),
            position: position(payload),
        })
    }

    fn publisher(&mut self, name: &[u8]) -> Option<u16> {
        if let Some(known) = self.publishers.iter().position(|one| one.as_bytes() == name) {
            return Some(known as u16);
        }
        let good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        if self.publishers.len() == MOST_PUBLISHERS
            || !(1..=MOST_NAME).contains(&name.len())
            || !name.iter().all(good)
        {
            return None;
        }
        self.publishers.push(String::from_utf8_lossy(name).into_owned());
        Some(self.publishers.len() as u16 - 1)
    }
}

type Key = (u16, u16, u32);

/// The identity of each message as it was first seen.
#[derive(Default)]
struct Identities {
    known: HashMap<Key, u128>,
    oldest: VecDeque<Key>,
}

impl Identities {
    fn agree(&mut self, key: Key, identity: u128) -> bool {
        if let Some(&known) = self.known.get(&key) {
            return known == identity;
        }
        self.known.insert(key, identity);
        self.oldest.push_back(key);
        if self.oldest.len() > MOST_IDENTITIES
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// The part that all copies of a message share: `id.slice(14)`, which is hexadecimal with dashes.
fn identity(id: &[u8]) -> Option<u128> {
    let digits = id.get(14..)?.iter().filter(|&&byte| byte != b'-');
    digits.copied().try_fold(0_u128, |all, byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(all.checked_mul(16)? + u128::from(digit))
    })
}

fn position(payload: &[u8]) -> Option<PushPosition> {
    // The body is the last field, and may have a field of that name.
    let end = payload.windows(7).position(|window| window == b"\"body\":").unwrap_or(payload.len());
    let found = text(b"\"position\"", &payload[..end])?;
    (found.len() <= MOST_POSITION && found.iter().all(u8::is_ascii_graphic)).then(|| found.into())
}

/// The text after the field `name` (in its quotes) and its colon; JSON allows space around the colon.
fn after<'a>(name: &[u8], json: &'a [u8]) -> Option<&'a [u8]> {
    let at = json.windows(name.len()).position(|window| window == name)? + name.len();
    Some(json[at..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

fn text<'a>(name: &[u8], json: &'a [u8]) -> Option<&'a [u8]> {
    let text = after(name, json)?.strip_prefix(b"\"")?;
    Some(&text[..text.iter().position(|&byte| byte == b'"')?])
}

fn number(name: &[u8], json: &[u8]) -> Option<u64> {
    let text = after(name, json)?;
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    std::str::from_utf8(&text[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01942f3c-5d6e-7123-8456-789abcdef012";

    fn push(id: &str, position: &str, body: &str) -> Vec<u8> {
        format!(
            "{{\"type\":\"message\",\"topic\":\"news.breaking\",\"id\":\"{id}\",\"key\":null,\"position\":{position},\"body\":{body}}}"
        )
        .into_bytes()
    }

    fn body(n: u32) -> String {
        format!(
            "{{\"loadtest\": \"p1\", \"n\": {n}, \"sent_ns\": 20, \"due_ns\": 10, \"text\": \"x\"}}"
        )
    }

    fn pushes() -> Pushes {
        Pushes::new(vec!["sport".into(), "news.breaking".into()])
    }

    #[test]
    fn a_message_of_the_test_is_read_and_read_the_same_again() {
        let mut pushes = pushes();
        let expected = PushedMessage {
            topic: 1,
            publisher: 0,
            number: 7,
            sent_ns: 20,
            due_ns: 10,
            agrees: true,
            position: Some(b"AQGU"[..].into()),
        };
        for _ in 0..3 {
            assert_eq!(
                pushes.read(&push(ID, "\"AQGU\"", &body(7))),
                Push::Message(expected.clone())
            );
        }
        let compact = body(7).replace(": ", ":").replace(", ", ",");
        assert_eq!(pushes.read(&push(ID, "\"AQGU\"", &compact)), Push::Message(expected));
        assert_eq!(pushes.publishers(), ["p1"]);
        assert_eq!(pushes.recent.len(), 2);
    }

    #[test]
    fn a_message_from_the_store_has_no_position() {
        let Push::Message(found) = pushes().read(&push(ID, "null", &body(7))) else { panic!() };
        assert_eq!(found.position, None);
    }

    #[test]
    fn the_same_number_under_another_identity_does_not_agree() {
        let mut pushes = pushes();
        let mut agrees = |id: &str| match pushes.read(&push(id, "null", &body(7))) {
            Push::Message(found) => found.agrees,
            other => panic!("{other:?}"),
        };
        assert!(agrees(ID));
        // The id of another router, with the time at which that router saw the message.
        assert!(agrees(&ID.replace("01942f3c", "01942f3d")));
        assert!(!agrees(&ID.replace("f012", "f013")));
    }

    #[test]
    fn what_is_not_of_the_test_is_strange() {
        let mut pushes = pushes();
        let strange = Push::Strange(Some(b"AQGU"[..].into()));
        for body in [
            "{\"headline\":\"x\"}",
            "{\"loadtest\":\"p\\\"1\",\"n\":1,\"sent_ns\":1,\"due_ns\":1}",
            "{\"loadtest\":\"p1\",\"n\":4294967296,\"sent_ns\":1,\"due_ns\":1}",
            "{\"loadtest\":\"p1\",\"n\":-1,\"sent_ns\":1,\"due_ns\":1}",
            "{\"loadtest\":\"p1\",\"n\":1,\"sent_ns\":99999999999999999999,\"due_ns\":1}",
            "\"loadtest\"",
        ] {
            assert_eq!(pushes.read(&push(ID, "\"AQGU\"", body)), strange, "{body}");
        }
        let other_topic = String::from_utf8(push(ID, "\"AQGU\"", &body(1))).unwrap();
        let other_topic = other_topic.replace("news.breaking", "weather");
        assert_eq!(pushes.read(other_topic.as_bytes()), strange);
        for short in 0..other_topic.len() {
            pushes.read(&other_topic.as_bytes()[..short]);
        }
    }

    #[test]
    fn publishers_beyond_the_limit_are_strange() {
        let mut pushes = pushes();
        for n in 0..=MOST_PUBLISHERS {
            let body = body(1).replace("p1", &format!("p-{n}"));
            let counts = matches!(pushes.read(&push(ID, "null", &body)), Push::Message(_));
            assert_eq!(counts, n < MOST_PUBLISHERS);
        }
    }

    #[test]
    fn a_position_in_a_body_is_not_the_gateways() {
        let body = "{\"position\":\"mine\"}";
        assert_eq!(pushes().read(&push(ID, "null", body)), Push::Strange(None));
    }

    #[test]
    fn the_other_pushes_are_known_by_their_type() {
        let mut pushes = pushes();
        let mut read = |text: &str| pushes.read(text.as_bytes());
        assert_eq!(
            read("{\"type\":\"subscribed\",\"topic\":\"t\",\"recovered\":true,\"position\":\"A\"}"),
            Push::Subscribed(true, Some(b"A"[..].into()))
        );
        assert_eq!(
            read(
                "{\"type\":\"subscribed\",\"topic\":\"t\",\"recovered\":false,\"reason\":\"store\"}"
            ),
            Push::Subscribed(false, None)
        );
        assert_eq!(
            read(
                "{\"type\":\"disconnect\",\"code\":1012,\"reason\":\"x\",\"reconnect\":true,\"retry_after_ms\":640}"
            ),
            Push::Disconnect(1012, 640, true)
        );
        assert_eq!(
            read(
                "{\"type\":\"disconnect\",\"code\":4001,\"reconnect\":false,\"retry_after_ms\":null}"
            ),
            Push::Disconnect(4001, 0, false)
        );
        assert_eq!(read("{\"type\":\"error\",\"code\":112}"), Push::Error(112));
        assert_eq!(read("{\"type\":\"pong\"}"), Push::Other);
        assert_eq!(read(""), Push::Other);
    }

    #[test]
    fn identities_are_forgotten_at_last() {
        let mut identities = Identities::default();
        for n in 0..=MOST_IDENTITIES as u32 {
            assert!(identities.agree((0, 0, n), 1));
        }
        assert!(!identities.agree((0, 0, 1), 2));
        assert!(identities.agree((0, 0, 0), 2));
        assert_eq!(identities.known.len(), MOST_IDENTITIES);
    }
}
