//! The frame codec: by the clauses of RFC 6455, whole and byte by byte, and beside the Tornado
//! engine.

use dataplane::frame::{
    BINARY, CLOSE, CONTINUATION, Decoder, Event, PING, PING_FRAME, PONG, Rules, TEXT, Violation,
    close_frame, pong_frame, put_frame, unmask,
};
use proptest::prelude::*;

const RULES: Rules = Rules { message_bytes: 1000, deflate: false };
const DEFLATE: Rules = Rules { deflate: true, ..RULES };
const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;

/// An event that owns its bytes.
#[derive(Debug, PartialEq, Clone)]
enum Seen {
    Text(String),
    Binary(Vec<u8>),
    Compressed(bool, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
    Broken(Violation),
}

impl From<Event<'_>> for Seen {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Text(text) => Seen::Text(text.into()),
            Event::Binary(payload) => Seen::Binary(payload.into()),
            Event::Compressed { text, payload } => Seen::Compressed(text, payload.into()),
            Event::Ping(payload) => Seen::Ping(payload.into()),
            Event::Pong(payload) => Seen::Pong(payload.into()),
            Event::Close { code, reason } => Seen::Close(code, reason.into()),
        }
    }
}

/// Decode the bytes of one read. Return true if the decoder may be called again.
fn read(decoder: &mut Decoder, bytes: &[u8], rules: &Rules, seen: &mut Vec<Seen>) -> bool {
    let mut buffer = bytes.to_vec();
    let mut at = 0;
    loop {
        match decoder.step(&mut buffer[at..], rules) {
            Ok((used, Some(event))) => {
                at += used;
                seen.push(event.into());
            }
            Ok((used, None)) => {
                assert_eq!(at + used, bytes.len(), "no event, but bytes are left");
                return true;
            }
            Err(violation) => {
                seen.push(Seen::Broken(violation));
                return false;
            }
        }
    }
}

fn pieces<'a>(parts: impl IntoIterator<Item = &'a [u8]>, rules: &Rules) -> Vec<Seen> {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    for part in parts {
        if !read(&mut decoder, part, rules, &mut seen) {
            break;
        }
    }
    seen
}

fn whole(stream: &[u8]) -> Vec<Seen> {
    pieces([stream], &RULES)
}

fn violation(stream: &[u8]) -> Option<Violation> {
    match whole(stream).last() {
        Some(Seen::Broken(violation)) => Some(*violation),
        _ => None,
    }
}

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    masked(first, payload, [0x11, 0x22, 0x33, 0x44])
}

fn masked(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(&mut out, 0, false, payload);
    let at = out.len() - payload.len();
    out[0] = first;
    out[1] |= 0x80;
    let mut payload = out.split_off(at);
    unmask(&mut payload, mask, 0);
    out.extend(mask);
    out.extend(payload);
    out
}

fn text(payload: &str) -> Vec<u8> {
    frame(FIN | TEXT, payload.as_bytes())
}

// Section 5: framing (Autobahn 1–5, 9).

#[test]
fn messages_of_every_length_arrive() {
    for size in [0, 1, 7, 8, 9, 125, 126, 127, 128, 999, 1000] {
        let payload = "x".repeat(size);
        assert_eq!(whole(&text(&payload)), [Seen::Text(payload)]);
        let payload = vec![0xFE; size];
        assert_eq!(whole(&frame(FIN | BINARY, &payload)), [Seen::Binary(payload)]);
    }
    let rules = Rules { message_bytes: 1 << 20, deflate: false };
    for size in [65_535, 65_536, 65_537, 1 << 20] {
        let payload = "x".repeat(size);
        assert_eq!(pieces([text(&payload).as_slice()], &rules), [Seen::Text(payload)]);
    }
}

#[test]
fn the_frames_of_the_rfc() {
    // RFC 6455 section 5.7.
    let hello = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(whole(hello), [Seen::Text("Hello".into())]);
    let mut out = Vec::new();
    put_frame(&mut out, TEXT, false, b"Hello");
    assert_eq!(out, b"\x81\x05Hello");
    assert_eq!(pong_frame(b"Hello").as_slice(), b"\x8a\x05Hello");
    assert_eq!(PING_FRAME, *b"\x89\x00");
    for (opcode, compressed, size, head) in [
        (BINARY, false, 256, b"\x82\x7e\x01\x00".as_slice()),
        (BINARY, false, 65_536, b"\x82\x7f\0\0\0\0\0\x01\0\0"),
        (TEXT, true, 7, b"\xc1\x07"),
    ] {
        let (mut out, payload) = (Vec::new(), vec![b'x'; size]);
        put_frame(&mut out, opcode, compressed, &payload);
        assert_eq!(out, [head, &payload].concat());
    }
}

#[test]
fn control_frames_are_short_and_whole() {
    let longest = [b'p'; 125];
    assert_eq!(whole(&frame(FIN | PING, &longest)), [Seen::Ping(longest.into())]);
    assert_eq!(whole(&frame(FIN | PONG, b"")), [Seen::Pong(vec![])]);
    for bad in [
        frame(FIN | PING, &[b'p'; 126]),
        frame(FIN | CLOSE, &[b'p'; 126]),
        frame(PING, b""),
        frame(PONG, b"p"),
    ] {
        assert_eq!(violation(&bad), Some(Violation::Protocol));
    }
}

#[test]
fn reserved_bits_and_opcodes_are_refused() {
    for first in [0x40, 0x20, 0x10, 0x70] {
        for opcode in [TEXT, BINARY, PING, CLOSE] {
            let bad = frame(FIN | first | opcode, b"");
            assert_eq!(whole(&bad), [Seen::Broken(Violation::Protocol)]);
        }
    }
    for opcode in [3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF] {
        let bad = frame(FIN | opcode, b"");
        assert_eq!(whole(&bad), [Seen::Broken(Violation::Protocol)]);
    }
}

#[test]
fn what_is_not_masked_is_refused() {
    assert_eq!(violation(b"\x81\x01a"), Some(Violation::Protocol));
    assert_eq!(violation(b"\x88\x00"), Some(Violation::Protocol));
}

#[test]
fn a_length_takes_as_few_bytes_as_it_needs() {
    // RFC 6455 section 5.2. The Tornado engine lets these in.
    assert_eq!(violation(b"\x81\xfe\x00\x7d"), Some(Violation::Protocol));
    let long = b"\x81\xff\0\0\0\0\0\0\xff\xff";
    assert_eq!(violation(long), Some(Violation::Protocol));
}

#[test]
fn fragments_are_joined_and_control_frames_come_between() {
    let stream = [
        frame(TEXT, b"a"),
        frame(FIN | PING, b"1"),
        frame(CONTINUATION, b""),
        frame(CONTINUATION, b"b"),
        frame(FIN | PONG, b"2"),
        frame(FIN | CONTINUATION, b"c"),
        text("d"),
    ];
    let seen = [
        Seen::Ping(b"1".into()),
        Seen::Pong(b"2".into()),
        Seen::Text("abc".into()),
        Seen::Text("d".into()),
    ];
    assert_eq!(whole(&stream.concat()), seen);
}

#[test]
fn fragments_out_of_place_are_refused() {
    for bad in [
        frame(FIN | CONTINUATION, b"x"),
        frame(CONTINUATION, b"x"),
        [text("a"), frame(FIN | CONTINUATION, b"b")].concat(),
        [frame(TEXT, b"a"), text("b")].concat(),
        [frame(BINARY, b"a"), frame(BINARY, b"b")].concat(),
    ] {
        assert_eq!(violation(&bad), Some(Violation::Protocol));
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_has_come() {
    let long = text(&"x".repeat(1001));
    assert_eq!(whole(&long[..4]), [Seen::Broken(Violation::TooBig)]);
    assert_eq!(violation(b"\x81\xff\x7f\0\0\0\0\0\0\0"), Some(Violation::TooBig));
    // RFC 6455 section 5.2: in a length of eight bytes the first bit is never set.
    assert_eq!(violation(b"\x81\xff\x80\0\0\0\0\0\0\0"), Some(Violation::Protocol));
    let parts = [frame(TEXT, &[b'x'; 600]), frame(0, &[b'x'; 600])].concat();
    assert_eq!(violation(&parts), Some(Violation::TooBig));
    let rules = Rules { message_bytes: 10, ..RULES };
    assert_eq!(pieces([text("12345678901").as_slice()], &rules), [Seen::Broken(Violation::TooBig)]);
}

#[test]
fn endless_empty_fragments_are_refused() {
    let mut stream = frame(TEXT, b"");
    for _ in 0..1000 {
        stream.extend(frame(CONTINUATION, b""));
    }
    assert_eq!(violation(&stream), None);
    for last in [b"", b"x".as_slice()] {
        let one_more = [stream.as_slice(), &frame(CONTINUATION, last)].concat();
        assert_eq!(violation(&one_more), Some(Violation::TooBig));
    }
}

// Section 8.1: UTF-8 (Autobahn 6).

#[test]
fn text_is_utf8() {
    for good in ["", "Hello-µ@ßöäüàá-UTF-8!!", "κόσμε", "\u{10ffff}\u{fffe}\u{0}"] {
        assert_eq!(whole(&text(good)), [Seen::Text(good.into())]);
    }
    let surrogates: &[u8] = b"\xce\xba\xed\xa0\x80edited";
    for bad in [
        surrogates,
        b"\xff",
        b"\xc0\xaf",
        b"\xc3",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"\xe2\x82",
        b"\x80",
        b"\xed\xbf\xbf",
    ] {
        let stream = frame(FIN | TEXT, bad);
        assert_eq!(violation(&stream), Some(Violation::InvalidPayload));
    }
}

#[test]
fn a_character_may_be_cut_by_fragments() {
    let stream = [
        frame(TEXT, b"\xf0\x9f"),
        frame(CONTINUATION, b"\x98"),
        frame(CONTINUATION, b""),
        frame(FIN | CONTINUATION, b"\x80!"),
    ];
    assert_eq!(whole(&stream.concat()), [Seen::Text("\u{1f600}!".into())]);
}

#[test]
fn bad_text_fails_at_its_first_bad_byte() {
    // Autobahn 6.4: in the second fragment, and in mid-frame, before the message is complete.
    let good = "κόσμε".as_bytes();
    let fragment = [frame(TEXT, good), frame(CONTINUATION, b"\xf4\x90")].concat();
    assert_eq!(violation(&fragment), Some(Violation::InvalidPayload));
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    let stream = frame(FIN | TEXT, b"abc\xf4\x90\x80\x80def");
    let last_good = stream.len() - 6;
    assert!(read(&mut decoder, &stream[..last_good], &RULES, &mut seen));
    assert_eq!(seen, []);
    let bad = &stream[last_good..=last_good];
    assert!(!read(&mut decoder, bad, &RULES, &mut seen));
    assert_eq!(seen, [Seen::Broken(Violation::InvalidPayload)]);
}

#[test]
fn what_is_not_text_needs_no_utf8() {
    let stream = [frame(BINARY, b"\xff"), frame(FIN | CONTINUATION, b"\xc0")].concat();
    assert_eq!(whole(&stream), [Seen::Binary(b"\xff\xc0".into())]);
    assert_eq!(whole(&frame(FIN | PING, b"\xff")), [Seen::Ping(b"\xff".into())]);
}

// Section 7: closing (Autobahn 7).

#[test]
fn close_codes_that_may_be_sent() {
    for code in [
        1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000,
        4999,
    ] {
        let stream = frame(FIN | CLOSE, close_payload(code, b"bye").as_slice());
        assert_eq!(whole(&stream), [Seen::Close(code, "bye".into())]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        let stream = frame(FIN | CLOSE, close_payload(code, b"").as_slice());
        assert_eq!(violation(&stream), Some(Violation::Protocol), "{code}");
    }
}

fn close_payload(code: u16, reason: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes(), reason].concat()
}

#[test]
fn a_close_has_no_code_or_a_whole_one() {
    assert_eq!(whole(&frame(FIN | CLOSE, b"")), [Seen::Close(1005, String::new())]);
    assert_eq!(violation(&frame(FIN | CLOSE, b"\x03")), Some(Violation::Protocol));
}

#[test]
fn the_reason_of_a_close_is_utf8() {
    let longest = "r".repeat(123);
    let stream = frame(FIN | CLOSE, &close_payload(1000, longest.as_bytes()));
    assert_eq!(whole(&stream), [Seen::Close(1000, longest)]);
    let bad = frame(FIN | CLOSE, b"\x03\xe8\xce\xba\xed\xa0\x80");
    assert_eq!(violation(&bad), Some(Violation::InvalidPayload));
}

#[test]
fn our_close_is_at_most_125_bytes_and_whole_characters() {
    assert_eq!(close_frame(None, "").as_slice(), b"\x88\x00");
    assert_eq!(close_frame(Some(1012), "drain").as_slice(), b"\x88\x07\x03\xf4drain");
    let long = close_frame(Some(1000), &format!("{}é", "x".repeat(122)));
    assert_eq!(long.as_slice().len(), 2 + 2 + 122);
}

// permessage-deflate (RFC 7692 section 6; Autobahn 12).

#[test]
fn rsv1_stands_on_the_first_frame_of_a_message() {
    let single = frame(FIN | RSV1 | TEXT, b"\xff");
    let several = [frame(RSV1 | BINARY, b"a"), frame(FIN | CONTINUATION, b"b")].concat();
    let stream = [single, several, text("c")].concat();
    let seen = [
        Seen::Compressed(true, b"\xff".into()),
        Seen::Compressed(false, b"ab".into()),
        Seen::Text("c".into()),
    ];
    assert_eq!(pieces([stream.as_slice()], &DEFLATE), seen);
    for bad in [
        [frame(RSV1 | TEXT, b"a"), frame(FIN | RSV1 | CONTINUATION, b"")].concat(),
        frame(FIN | RSV1 | PING, b""),
        frame(FIN | 0x20 | TEXT, b""),
    ] {
        let seen = pieces([bad.as_slice()], &DEFLATE);
        assert_eq!(seen, [Seen::Broken(Violation::Protocol)]);
    }
}

// Memory and take-over.

#[test]
fn an_idle_decoder_is_a_pointer() {
    assert_eq!(size_of::<Decoder>(), 8);
}

#[test]
fn a_decoder_knows_since_when_a_message_is_unfinished() {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    let stream = text("ab");
    assert_eq!(decoder.unfinished_since(1), None);
    read(&mut decoder, &stream[..3], &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(2), Some(2));
    read(&mut decoder, &stream[3..5], &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(3), Some(2));
    // The end of one message, and the start of another.
    read(&mut decoder, &[&stream[5..], &stream[..1]].concat(), &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(4), Some(4));
    read(&mut decoder, &stream[1..], &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(5), None);
}

#[test]
fn a_ping_within_a_message_doesnt_make_it_younger() {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    read(&mut decoder, &frame(TEXT, b"a"), &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(1), Some(1));
    read(&mut decoder, &frame(FIN | PING, b""), &RULES, &mut seen);
    assert_eq!(decoder.unfinished_since(2), Some(1));
    assert_eq!(seen.len(), 1);
}

/// Return the decoder saved as these bytes, if a reader's bytes can produce it.
fn restored(saved: &[u8]) -> Option<Decoder> {
    postcard::from_bytes(saved).ok().filter(Decoder::is_possible)
}

fn saved(decoder: &Decoder) -> Vec<u8> {
    postcard::to_extend(decoder, Vec::new()).expect("bytes")
}

#[test]
fn garbage_is_no_saved_state() {
    for garbage in [&b""[..], b"\x02", b"\x01\xff", b"\x01\x00\x02", b"{}"] {
        assert!(restored(garbage).is_none());
    }
    assert!(restored(b"\0").is_some());
}

#[test]
fn a_saved_frame_cannot_have_received_what_it_does_not_hold() {
    let mut decoder = Decoder::default();
    read(&mut decoder, &text("abcdef")[..9], &RULES, &mut Vec::new());
    let mut saved = saved(&decoder);
    // `received` comes after presence, head, flags, size and mask.
    assert_eq!(saved[25], 3);
    assert!(restored(&saved).is_some());
    for impossible in [4, 7, 100] {
        saved[25] = impossible;
        assert!(restored(&saved).is_none());
    }
}

// Properties.

/// Return frames that are mostly valid.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let opcode = prop_oneof![
        4 => Just(TEXT), 2 => Just(BINARY), 4 => Just(CONTINUATION),
        2 => Just(PING), 1 => Just(PONG), 1 => Just(CLOSE), 1 => 0..16u8,
    ];
    let payload = prop_oneof![
        4 => "[aé€\u{1f600}]{0,40}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..140),
    ];
    let flags = prop_oneof![6 => Just(FIN), 4 => Just(0), 1 => Just(FIN | RSV1)];
    (opcode, flags, payload, any::<[u8; 4]>())
        .prop_map(|(opcode, flags, payload, mask)| masked(flags | opcode, &payload, mask))
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(any_frame(), 0..8).prop_map(|frames| frames.concat()),
        1 => prop::collection::vec(any::<u8>(), 0..200),
    ]
}

/// Cut `stream` into pieces of the sizes in `cuts`, over and over.
fn cut<'a>(stream: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut rest = stream;
    let mut parts = Vec::new();
    for size in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, after) = rest.split_at(rest.len().min(*size));
        parts.push(part);
        rest = after;
    }
    parts
}

proptest! {
    #[test]
    fn however_the_bytes_are_cut_the_events_are_the_same(
        stream in any_stream(),
        cuts in prop::collection::vec(1..60usize, 1..6),
        deflate: bool,
    ) {
        let rules = Rules { deflate, ..RULES };
        let seen = pieces([stream.as_slice()], &rules);
        prop_assert_eq!(&pieces(stream.chunks(1), &rules), &seen);
        prop_assert_eq!(&pieces(cut(&stream, &cuts), &rules), &seen);
    }

    #[test]
    fn a_take_over_at_any_byte_changes_nothing(stream in any_stream(), at: prop::sample::Index) {
        let at = at.index(stream.len() + 1);
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        if read(&mut decoder, &stream[..at], &DEFLATE, &mut seen) {
            let mut heir = restored(&saved(&decoder)).expect("what was saved");
            read(&mut heir, &stream[at..], &DEFLATE, &mut seen);
        }
        prop_assert_eq!(seen, pieces([stream.as_slice()], &DEFLATE));
    }

    #[test]
    fn what_was_saved_is_checked(saved in prop::collection::vec(any::<u8>(), 0..80), stream in any_stream()) {
        let saved = [&[1], saved.as_slice()].concat();
        if let Some(mut decoder) = restored(&saved) {
            read(&mut decoder, &stream, &DEFLATE, &mut Vec::new());
        }
    }

    #[test]
    fn masking_twice_is_nothing(data: Vec<u8>, mask: [u8; 4], at: prop::sample::Index) {
        let at = at.index(data.len() + 1);
        let mut twice = data.clone();
        unmask(&mut twice, mask, 0);
        let (start, end) = twice.split_at_mut(at);
        unmask(start, mask, 0);
        unmask(end, mask, at);
        prop_assert_eq!(twice, data);
    }
}

// Beside the Tornado engine.

#[test]
fn the_tornado_engine_decides_the_same() {
    let vectors = include_str!("vectors/frames.txt");
    for line in vectors.lines() {
        let fields: Vec<_> = line.split(' ').map(unhex).collect();
        let (stream, theirs) = fields.split_first().expect("a stream");
        let ours: Vec<_> = whole(stream).into_iter().map(plain).collect();
        assert_eq!(ours, theirs, "{line}");
    }
}

/// Return an event as `vectors/make.py` writes it: the opcode and the payload, or the code.
fn plain(seen: Seen) -> Vec<u8> {
    match seen {
        Seen::Text(text) => [&[TEXT], text.as_bytes()].concat(),
        Seen::Binary(payload) => [&[BINARY], payload.as_slice()].concat(),
        Seen::Compressed(..) => Vec::new(),
        Seen::Ping(payload) => [&[PING], payload.as_slice()].concat(),
        Seen::Pong(payload) => [&[PONG], payload.as_slice()].concat(),
        Seen::Close(1005, _) => vec![CLOSE],
        Seen::Close(code, reason) => {
            [&[CLOSE], close_payload(code, reason.as_bytes()).as_slice()].concat()
        }
        Seen::Broken(Violation::Protocol) => 1002_u16.to_be_bytes().into(),
        Seen::Broken(Violation::InvalidPayload) => 1007_u16.to_be_bytes().into(),
        Seen::Broken(Violation::TooBig) => 1009_u16.to_be_bytes().into(),
    }
}

fn unhex(field: &str) -> Vec<u8> {
    (0..field.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&field[at..at + 2], 16).expect("hex"))
        .collect()
}
