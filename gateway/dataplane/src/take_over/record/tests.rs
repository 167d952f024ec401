use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::bucket::Bucket;
use crate::closing::Ending;
use crate::control::Slow;
use crate::deflate::Agreement;
use crate::frame::{Decoder, Rules};
use crate::head::Framing;
use crate::slab::{Extra, Phase, Waiting, fresh};
use proptest::prelude::*;

fn bytes_of(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.put(&mut bytes);
    bytes
}

/// It is read as it was written, and isn't read when it is cut at one of `ends`.
fn again(record: &Record<'_>, ends: impl Fn(usize) -> std::ops::Range<usize>) {
    let bytes = bytes_of(record);
    assert_eq!(length(&bytes), Ok(Some(bytes.len())));
    let (kind, body) = (bytes[4], &bytes[5..]);
    let read = Record::decode(kind, body).expect("a record");
    assert_eq!(format!("{read:?}"), format!("{record:?}"));
    for end in ends(body.len()) {
        // A part of a list of bytes or identities is one too.
        let cut = Record::decode(kind, &body[..end]);
        assert!(cut.is_err() || matches!(kind, 3 | 5), "cut at {end}");
    }
    let longer = [body, &[0]].concat();
    assert!(Record::decode(kind, &longer).is_err() || kind == 3);
}

fn everywhere(size: usize) -> std::ops::Range<usize> {
    0..size
}

#[test]
fn every_record_is_read_as_it_was_written() {
    let topic = Topic { name: "news.x", slow: Slow::Conflate };
    let message = Message { id: [9; 16], version: -1, key: "k", push: b"{}" };
    again(&Record::Thread { number: 3, now_ms: 1 << 40 }, everywhere);
    again(&Record::Publication { number: 7, topic, message }, everywhere);
    again(&Record::Frame { number: 8, bytes: b"\x81\x02{}" }, everywhere);
    again(&Record::Shared, everywhere);
    again(&Record::Seen { start: 5, identities: &[[1; 10], [2; 10]] }, everywhere);
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
    let mut body = b"\x01x\0\0".to_vec();
    body.extend_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Record::decode(6, &body).err(), Some(Malformed::Short));
}

#[test]
fn a_free_slot_is_no_connection() {
    let free = Connection { phase: Phase::Free, ..plain() };
    let bytes = bytes_of(&Record::Connection(Box::new((free, Beside::default()))));
    assert_eq!(Record::decode(8, &bytes[5..]).err(), Some(Malformed::Value("phase")));
}

fn plain() -> Connection {
    let bucket = Bucket::from_bits(0);
    Connection { phase: Phase::Open, bucket, ..fresh(-1, 1) }
}

/// One that has got these bytes.
fn decoder(bytes: &[u8]) -> Decoder {
    let mut decoder = Decoder::default();
    let rules = Rules { message_bytes: 1_000, deflate: true };
    assert!(matches!(decoder.step(&mut bytes.to_vec(), &rules), Ok((_, None))));
    decoder
}

fn extra() -> Extra {
    Extra::default()
}

const PHASES: [Phase; 5] = [
    Phase::Head,
    Phase::Open,
    Phase::Closing(Ending::Wait),
    Phase::Closing(Ending::HalfClose),
    Phase::Closing(Ending::HangUp),
];

proptest! {
    #[test]
    fn a_connection_is_read_as_it_was_written(
        (generation, heard, bucket) in any::<(u32, u32, u64)>(),
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
            Beside { timer, counted: counted.map(IpAddr::from), topics, ..Beside::default() };
        let extra = busy.then(|| {
            (beside.frames, beside.written, beside.soft_since) = (frames, written, soft_since);
            let waiting = |verb: Option<Vec<u8>>| match verb {
                Some(verb) => Waiting::Verb(verb.into()),
                None => Waiting::Refusal,
            };
            Box::new(Extra {
                proxied: proxied.map(|(ip, port)| SocketAddr::new(ip.into(), port)),
                asked: asked.map(Box::from),
                waiting_bytes: verbs.iter().flatten().map(Vec::len).sum(),
                waiting: verbs.into_iter().map(waiting).chain([Waiting::HangUp]).collect(),
                ping: ping.map(Box::from),
                ..extra()
            })
        });
        let connection = Connection {
            phase: PHASES[phase],
            framing: if sockjs { Framing::SockJs } else { Framing::Raw },
            deflate: Agreement::from_byte(window % 20),
            low_water,
            heard,
            bucket: Bucket::from_bits(bucket),
            decoder: decoder(&b"\x81\xfe\x01\x00\x01\x02\x03"[..begun % 8]),
            extra,
            ..fresh(-1, generation)
        };
        again(&Record::Connection(Box::new((connection, beside))), |size| {
            let end = cut.index(size);
            end..end + 1
        });
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(kind in 0_u8..12, body: Vec<u8>) {
        let _ = Record::decode(kind, &body);
    }
}

#[test]
fn a_connection_has_the_bytes_that_it_has_always_had() {
    let extra = Extra {
        proxied: Some(SocketAddr::from(([10, 0, 0, 1], 0x1234))),
        asked: Some((*b"ask").into()),
        waiting: [Waiting::Verb((*b"v").into()), Waiting::Refusal, Waiting::HangUp].into(),
        ..extra()
    };
    let busy = Connection {
        phase: Phase::Closing(Ending::HalfClose),
        framing: Framing::SockJs,
        deflate: Agreement::from_byte(15),
        low_water: true,
        heard: 11,
        bucket: Bucket::from_bits(12),
        decoder: decoder(b"\x81"),
        extra: Some(Box::new(extra)),
        ..fresh(-1, 0x0102_0304)
    };
    let beside = Beside {
        timer: Some(13),
        counted: Some(IpAddr::from([1_u16; 8])),
        topics: vec![3, 4],
        frames: vec![(7, None), (8, Some(9))],
        written: 5,
        soft_since: Some(6),
    };
    assert_eq!(
        hex(&Record::Connection(Box::new((busy, beside)))),
        "92000000080403020104010f010b0000000c00000000000000010d00000000000000060001000100010001000100010001000117000000010181000000000000000000000000000000000000000002000000030000000400000001040a0000013412010300000061736b0300000000010000007601020002000000070000000008000000010900000005000000010600000000000000"
    );
    assert_eq!(
        hex(&Record::Connection(Box::new((plain(), Beside::default())))),
        "2000000008010000000200ff000000000000000000000000000000000000000000000000"
    );
}

fn hex(record: &Record<'_>) -> String {
    bytes_of(record).iter().map(|byte| format!("{byte:02x}")).collect()
}
