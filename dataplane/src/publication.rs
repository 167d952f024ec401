//! A message on its way to readers, with its frames.
//!
//! Shared by all I/O threads and never changed, except that a frame is made when the first reader
//! of its variant needs it, once for all threads. A delivery is then a pointer to existing bytes,
//! without allocation or copy.
//!
//! The decision to question: the push itself isn't kept. It is the end of the raw WebSocket frame,
//! and most readers get that frame or can be given it.

use std::sync::{Arc, OnceLock};

use crate::control::{Settings, Slow, TopicMessage};
use crate::deflate::{Agreement, Deflater};
use crate::delays::Stamp;
use crate::frame::{TEXT, put_frame};
use crate::head::Framing;
use crate::sockjs;

/// Bytes for the wire, shared by all readers that get them.
pub type Frame = Arc<[u8]>;

/// Level 6 of zlib costs twice the time of this level and saves a few per cent of a push.
const DEFLATE_LEVEL: u8 = 3;
/// The identity of a message, equal for all copies: 74 bits of a hash and 6 fixed bits.
pub type Identity = [u8; 10];

/// A message for the readers of its topic.
#[derive(Debug)]
pub struct Publication {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// Policy for readers that are too slow.
    pub slow: Slow,
    /// Time at which a router took the message in, and its series, if deliveries are measured.
    pub stamp: Option<Stamp>,
    id: [u8; 16],
    version: i64,
    key: Option<Box<str>>,
    raw: Frame,
    head_bytes: u8,
    sockjs: OnceLock<Frame>,
    /// Compressed frames, by framing.
    deflated: [OnceLock<Frame>; 2],
}

impl Publication {
    /// Return the publication of a message from the control plane, for a topic with this policy for
    /// slow readers. The push is copied, once.
    pub fn new(topic: Arc<str>, slow: Slow, message: &TopicMessage<'_>) -> Publication {
        let raw = framed(false, message.push);
        Publication {
            topic,
            slow,
            id: message.id,
            version: message.version,
            stamp: None,
            key: (!message.key.is_empty()).then(|| message.key.into()),
            head_bytes: (raw.len() - message.push.len()) as u8,
            raw,
            sockjs: OnceLock::new(),
            deflated: Default::default(),
        }
    }

    /// Return the id without its time.
    pub fn identity(&self) -> Identity {
        let [_, _, _, _, _, _, identity @ ..] = self.id;
        identity
    }

    /// Return the router's time of routing: the id's first 48 bits (RFC 9562 section 5.7).
    pub fn routed_ms(&self) -> u64 {
        self.id[..6].iter().fold(0, |ms, byte| ms << 8 | u64::from(*byte))
    }

    /// Return the key, which groups the versions of one story.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Return the `message` push as JSON text.
    pub fn push(&self) -> &[u8] {
        &self.raw[usize::from(self.head_bytes)..]
    }

    /// Return the message as the control plane sent it.
    pub fn message(&self) -> TopicMessage<'_> {
        TopicMessage {
            id: self.id,
            version: self.version,
            key: self.key().unwrap_or_default(),
            push: self.push(),
        }
    }

    /// Return whether this is a newer version of the key than `other`.
    pub fn supersedes(&self, other: &Publication) -> bool {
        (self.version, &self.id) > (other.version, &other.id)
    }

    /// Return the frame for a reader of this kind: always the same one, so that readers share it.
    ///
    /// The frame is uncompressed where compression makes it no shorter, or where the reader's
    /// window is too small for the shared frame.
    pub fn frame(
        &self,
        framing: Framing,
        deflate: Option<Agreement>,
        maker: &mut FrameMaker,
    ) -> &Frame {
        let plain = match framing {
            Framing::Raw => &self.raw,
            Framing::SockJs => self.sockjs.get_or_init(|| maker.sockjs(self.push())),
        };
        if !deflate
            .is_some_and(|agreed| maker.compresses(plain) && agreed.may_compress(plain.len()))
        {
            return plain;
        }
        let deflated = &self.deflated[framing as usize];
        deflated.get_or_init(|| maker.deflated(plain).unwrap_or_else(|| plain.clone()))
    }
}

/// The tools of a thread to make frames. They keep no message.
#[derive(Debug, Default)]
pub struct FrameMaker {
    deflate_bytes: usize,
    // Made at its first use: it is big.
    deflater: Option<Box<Deflater>>,
    scratch: Vec<u8>,
}

impl FrameMaker {
    /// Return a maker that compresses messages of `settings.deflate_bytes` and more; 0: none.
    pub fn new(settings: &Settings) -> FrameMaker {
        FrameMaker { deflate_bytes: settings.deflate_bytes as usize, ..FrameMaker::default() }
    }

    /// Return a frame that isn't shared.
    pub fn for_one(&mut self, opcode: u8, payload: &[u8], deflate: Option<Agreement>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(payload.len() + 10);
        let wanted = deflate.is_some_and(|agreed| agreed.may_compress(payload.len()))
            && self.compresses(payload);
        self.scratch.clear();
        if wanted && deflater(&mut self.deflater).compress(payload, &mut self.scratch) {
            put_frame(&mut frame, opcode, true, &self.scratch);
        } else {
            put_frame(&mut frame, opcode, false, payload);
        }
        frame
    }

    fn compresses(&self, bytes: &[u8]) -> bool {
        self.deflate_bytes > 0 && bytes.len() >= self.deflate_bytes
    }

    fn sockjs(&mut self, push: &[u8]) -> Frame {
        self.scratch.clear();
        sockjs::put_message(&mut self.scratch, &String::from_utf8_lossy(push));
        framed(false, &self.scratch)
    }

    /// Return `plain` compressed; `None` if that isn't shorter.
    fn deflated(&mut self, plain: &Frame) -> Option<Frame> {
        self.scratch.clear();
        let payload = payload_of(plain);
        deflater(&mut self.deflater)
            .compress(payload, &mut self.scratch)
            .then(|| framed(true, &self.scratch))
    }
}

fn deflater(made: &mut Option<Box<Deflater>>) -> &mut Deflater {
    made.get_or_insert_with(|| Box::new(Deflater::new(DEFLATE_LEVEL)))
}

fn framed(compressed: bool, payload: &[u8]) -> Frame {
    let mut frame = Vec::new();
    put_frame(&mut frame, TEXT, compressed, payload);
    frame.into()
}

/// Return the payload of a server's frame (RFC 6455 section 5.2).
fn payload_of(frame: &[u8]) -> &[u8] {
    match frame[1] {
        126 => &frame[4..],
        127 => &frame[10..],
        _ => &frame[2..],
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Return an id of this time and identity.
    pub(crate) fn id(ms: u64, identity: u64) -> [u8; 16] {
        let mut id = [0; 16];
        id[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
        id[8..].copy_from_slice(&identity.to_be_bytes());
        id
    }

    /// Return a message for tests.
    pub(crate) fn message(ms: u64, identity: u64) -> TopicMessage<'static> {
        TopicMessage { id: id(ms, identity), version: -1, key: "", push: b"{}" }
    }

    /// Return the publication of a message under `news.x`.
    pub(crate) fn publication(message: &TopicMessage<'_>) -> Arc<Publication> {
        Arc::new(Publication::new("news.x".into(), Slow::Disconnect, message))
    }

    fn maker(deflate_bytes: u32) -> FrameMaker {
        FrameMaker { deflate_bytes: deflate_bytes as usize, ..FrameMaker::default() }
    }

    #[test]
    fn a_raw_frame_is_the_push_behind_a_head() {
        let one = publication(&message(5, 1));
        let frame = one.frame(Framing::Raw, None, &mut maker(0)).clone();
        assert_eq!(&frame[..], b"\x81\x02{}");
        assert_eq!(one.push(), b"{}");
    }

    #[test]
    fn a_sockjs_frame_is_an_array_of_one_string() {
        let one = publication(&TopicMessage { push: br#"{"a":1}"#, ..message(5, 1) });
        let frame = one.frame(Framing::SockJs, None, &mut maker(0));
        assert_eq!(&frame[..], b"\x81\x0ea[\"{\\\"a\\\":1}\"]");
    }

    #[test]
    fn readers_of_one_kind_share_one_frame() {
        let push = [b'x'; 300];
        let one = publication(&TopicMessage { push: &push, ..message(5, 1) });
        let agreed = crate::deflate::negotiate([b"permessage-deflate".as_slice()]);
        for framing in [Framing::Raw, Framing::SockJs] {
            for deflate in [None, agreed] {
                let first = one.frame(framing, deflate, &mut maker(100)).clone();
                assert!(Arc::ptr_eq(&first, one.frame(framing, deflate, &mut maker(100))));
                assert_eq!(first[0], if deflate.is_some() { 0xC1 } else { 0x81 });
            }
        }
    }

    #[test]
    fn what_compression_makes_no_shorter_is_sent_as_it_is() {
        let one = publication(&message(5, 1));
        let agreed = crate::deflate::negotiate([b"permessage-deflate".as_slice()]);
        let plain = one.frame(Framing::Raw, None, &mut maker(1)).clone();
        assert!(Arc::ptr_eq(&plain, one.frame(Framing::Raw, agreed, &mut maker(1))));
    }

    #[test]
    fn a_frame_for_one_is_compressed_if_that_was_agreed_and_helps() {
        let agreed = crate::deflate::negotiate([b"permessage-deflate".as_slice()]);
        for (payload, deflate, first) in [
            ([b'x'; 300].as_slice(), agreed, 0xC1),
            (&[b'x'; 300], None, 0x81),
            (b"short", agreed, 0x81),
        ] {
            assert_eq!(maker(1).for_one(TEXT, payload, deflate)[0], first);
        }
    }

    #[test]
    fn a_version_is_newer_by_number_and_then_by_id() {
        let of = |version, ms| publication(&TopicMessage { version, ..message(ms, 1) });
        assert!(of(2, 1).supersedes(&of(1, 9)));
        assert!(of(1, 2).supersedes(&of(1, 1)));
        assert!(of(0, 1).supersedes(&of(-1, 9)));
        assert!(!of(1, 1).supersedes(&of(1, 1)));
    }
}
