use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::bucket::Bucket;
use crate::closing::AfterGoodbye;
use crate::control::{Settings, Slow};
use crate::deflate::{Agreement, negotiate};
use crate::frame::{Decoder, Rules};
use crate::head::Framing;
use crate::slab::{BusyState, Phase, Waiting, fresh};
use proptest::prelude::*;

fn bytes_of(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

/// Check that a record is read as it was written, and isn't read if it is cut at one of `ends`.
fn again(record: &Record<'_>, ends: impl Fn(usize) -> std::ops::Range<usize>) {
    let bytes = bytes_of(record);
    assert_eq!(length(&bytes), Ok(Some(bytes.len())));
    let bytes = &bytes[4..];
    let read = Record::decode(bytes).expect("a record");
    assert_eq!(format!("{read:?}"), format!("{record:?}"));
    for end in ends(bytes.len()) {
        assert!(Record::decode(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(Record::decode(&[bytes, &[0]].concat()).is_err());
}

fn everywhere(size: usize) -> std::ops::Range<usize> {
    0..size
}

#[test]
fn every_record_is_read_as_it_was_written() {
    let topic = Topic { name: "news.x", slow: Slow::Conflate };
    let message = TopicMessage { id: [9; 16], version: -1, key: "k", push: b"{}" };
    again(&Record::Thread { number: 3, now_ms: 1 << 40 }, everywhere);
    again(&Record::Publication { number: 7, topic, message }, everywhere);
    again(&Record::Frame { number: 8, bytes: b"\x81\x02{}" }, everywhere);
    again(&Record::Shared, everywhere);
    again(&Record::Seen { start: 5, identities: &[1; 20] }, everywhere);
    again(&Record::Topic("a"), everywhere);
    again(&Record::Free(u32::MAX), everywhere);
    again(&Record::End(0), everywhere);
    again(&Record::Auth(AuthState::new("42", 5, 6, b"me")), everywhere);
}

#[test]
fn an_impossible_length_is_refused_before_its_bytes_come() {
    assert_eq!(length(&[0, 0, 0, 0]), Err(Malformed::Length));
    assert_eq!(length(&u32::MAX.to_le_bytes()), Err(Malformed::Length));
    assert_eq!(length(&[1, 0, 0]), Ok(None));
}

#[test]
fn a_count_that_the_bytes_do_not_keep_costs_nothing() {
    let mut bytes = bytes_of(&Record::Connection(Box::new((plain(), ConnectionExtras::default()))));
    // The count of topics is the fourth byte from the end.
    let count = bytes.len() - 4;
    assert_eq!(bytes.get(count..), Some(&[0; 4][..]));
    bytes.splice(count..=count, [0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
    assert_eq!(impossible(&bytes[4..]), Malformed::Value("record"));
}

#[test]
fn what_nobody_can_have_written_is_refused() {
    let topic = Topic { name: "a\"b", slow: Slow::Conflate };
    let message = TopicMessage { id: [9; 16], version: -1, key: "k", push: b"{}" };
    let too_long = AuthState::new("42", 5, 6, &[7; 1_025]);
    for record in [
        Record::Publication { number: 7, topic, message },
        Record::Topic(""),
        Record::Seen { start: 5, identities: &[1; 11] },
        Record::Auth(too_long),
    ] {
        assert_eq!(impossible(&bytes_of(&record)[4..]), Malformed::Value("record"), "{record:?}");
    }
    // The user's length exceeds the bytes; then the times are missing.
    let mut short = bytes_of(&Record::Auth(AuthState::new("42", 5, 6, b"")));
    short[22] = 3;
    impossible(&short[4..]);
    impossible(&[9, 2, 0, 0]);
}

fn impossible(bytes: &[u8]) -> Malformed {
    Record::decode(bytes).expect_err("no record")
}

#[test]
fn a_free_slot_is_no_connection() {
    let free = ReaderSlot { phase: Phase::Free, ..plain() };
    let bytes = bytes_of(&Record::Connection(Box::new((free, ConnectionExtras::default()))));
    impossible(&bytes[4..]);
}

fn plain() -> ReaderSlot {
    ReaderSlot { phase: Phase::Open, ..fresh(0, 1) }
}

/// Return a decoder that has received these bytes.
fn decoder(bytes: &[u8]) -> Decoder {
    let mut decoder = Decoder::default();
    let rules = Rules { message_bytes: 1_000, deflate: true };
    assert!(matches!(decoder.step(&mut bytes.to_vec(), &rules), Ok((_, None))));
    decoder
}

fn bucket(verbs: u32, now: u32) -> Bucket {
    Bucket::full(&Settings { verbs, ..Settings::default() }, now)
}

/// Return the agreement of a window; `None` if there is no such window.
fn agreement(window_bits: u8) -> Option<Agreement> {
    let offer = format!("permessage-deflate; server_max_window_bits={window_bits}");
    negotiate([offer.as_bytes()])
}

const PHASES: [Phase; 5] = [
    Phase::Head,
    Phase::Open,
    Phase::Closing(AfterGoodbye::Wait),
    Phase::Closing(AfterGoodbye::HalfClose),
    Phase::Closing(AfterGoodbye::HangUp),
];

proptest! {
    #[test]
    fn a_connection_is_read_as_it_was_written(
        (generation, last_received, verbs_left, updated) in any::<(u32, u32, u32, u32)>(),
        phase in 0_usize..5,
        (sockjs, low_water, window) in any::<(bool, bool, u8)>(),
        (timer, counted) in any::<(Option<u64>, Option<[u8; 4]>)>(),
        (begun, topics) in any::<(usize, Vec<u32>)>(),
        (busy, asked, verbs) in any::<(bool, Option<Vec<u8>>, Vec<Option<Vec<u8>>>)>(),
        (ping, proxied) in any::<(Option<Vec<u8>>, Option<([u8; 16], u16)>)>(),
        (frames, written, soft_since) in any::<(Vec<(u32, Option<u32>)>, u32, Option<u64>)>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut beside =
            ConnectionExtras { timer, counted: counted.map(IpAddr::from), topics, ..ConnectionExtras::default() };
        let busy = busy.then(|| {
            (beside.frames, beside.written, beside.soft_since) = (frames, written, soft_since);
            let waiting = |verb: Option<Vec<u8>>| match verb {
                Some(verb) => Waiting::Verb(verb.into()),
                None => Waiting::Refusal,
            };
            Box::new(BusyState {
                proxied: proxied.map(|(ip, port)| SocketAddr::new(ip.into(), port)),
                asked: asked.map(Box::from),
                waiting: verbs.into_iter().map(waiting).chain([Waiting::HangUp]).collect(),
                ping: ping.map(Box::from),
                ..BusyState::default()
            })
        });
        let connection = ReaderSlot {
            phase: PHASES[phase],
            framing: if sockjs { Framing::SockJs } else { Framing::Raw },
            deflate: agreement(window % 20),
            low_water,
            last_received,
            bucket: bucket(verbs_left, updated),
            decoder: decoder(&b"\x81\xfe\x01\x00\x01\x02\x03"[..begun % 8]),
            busy,
            ..fresh(0, generation)
        };
        again(&Record::Connection(Box::new((connection, beside))), |size| {
            let end = cut.index(size);
            end..end + 1
        });
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(kind in 0_u8..12, body: Vec<u8>) {
        let _ = Record::decode(&[&[kind], &body[..]].concat());
    }
}

#[test]
fn a_connection_has_the_bytes_that_it_has_always_had() {
    let busy = BusyState {
        proxied: Some(SocketAddr::from(([10, 0, 0, 1], 0x1234))),
        asked: Some((*b"ask").into()),
        waiting: [Waiting::Verb((*b"v").into()), Waiting::Refusal, Waiting::HangUp].into(),
        ..BusyState::default()
    };
    let busy = ReaderSlot {
        phase: Phase::Closing(AfterGoodbye::HalfClose),
        framing: Framing::SockJs,
        deflate: agreement(15),
        low_water: true,
        last_received: 11,
        bucket: bucket(12, 13),
        decoder: decoder(b"\x81"),
        busy: Some(Box::new(busy)),
        ..fresh(0, 0x0102_0304)
    };
    let beside = ConnectionExtras {
        timer: Some(13),
        counted: Some(IpAddr::from([1_u16; 8])),
        topics: vec![3, 4],
        frames: vec![(7, None), (8, Some(9))],
        written: 5,
        soft_since: Some(6),
    };
    assert_eq!(
        hex(&Record::Connection(Box::new((busy, beside)))),
        "5d000000078486880803010101010f010b0de05d00018100000000000000000000000000010000000000000001010361736b0300017601020001000a000001b424010d010100010001000100010001000100010001020304020700080109050106"
    );
    assert_eq!(
        hex(&Record::Connection(Box::new((plain(), ConnectionExtras::default())))),
        "12000000070102000000000000000000000000000000"
    );
}

fn hex(record: &Record<'_>) -> String {
    bytes_of(record).iter().map(|byte| format!("{byte:02x}")).collect()
}
