//! permessage-deflate (RFC 7692): offers, agreements, and messages in both directions.

use dataplane::deflate::{Agreement, Deflater, Inflater, negotiate};
use dataplane::frame::Violation;
use proptest::prelude::*;

const LIMIT: usize = 16 * 1024;
const PLAIN: &str = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

fn answer(offer: &str) -> Option<String> {
    negotiate([offer.as_bytes()]).map(Agreement::answer)
}

fn inflated(payload: &[u8]) -> Result<Vec<u8>, Violation> {
    Inflater::default().inflate(payload, LIMIT).map(<[u8]>::to_vec)
}

fn compressed(payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    Deflater::new(6).compress(payload, &mut out).then_some(out)
}

#[test]
fn offers_are_answered_without_context_takeover() {
    for offer in [
        "permessage-deflate",
        "Permessage-Deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=10",
        "permessage-deflate;client_max_window_bits = \"15\" ; server_no_context_takeover",
        "permessage-deflate; client_no_context_takeover; server_no_context_takeover",
        "x-webkit-deflate-frame, permessage-deflate",
        "permessage-deflate; client_max_window_bits=7, permessage-deflate",
    ] {
        assert_eq!(answer(offer).as_deref(), Some(PLAIN), "{offer}");
    }
    assert_eq!(
        answer("permessage-deflate; server_max_window_bits=10"),
        Some(format!("{PLAIN}; server_max_window_bits=10"))
    );
}

#[test]
fn offers_that_are_declined() {
    // RFC 7692 section 7.1: an unknown or doubled parameter, or a bad value.
    for offer in [
        "",
        "permessage-deflat",
        "permessage-bzip2; level=9",
        "permessage-deflate; level=9",
        "permessage-deflate;",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; client_no_context_takeover=\"\"",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=08",
        "permessage-deflate; client_max_window_bits=",
        "permessage-deflate; client_max_window_bits=\"9",
        "permessage-deflate; client_max_window_bits; client_max_window_bits",
    ] {
        assert_eq!(answer(offer), None, "{offer}");
    }
}

#[test]
fn a_small_window_gets_small_messages_compressed() {
    let offer = b"permessage-deflate; server_max_window_bits=9";
    let small = negotiate([offer.as_slice()]).expect("an agreement");
    assert!(small.may_compress(512));
    assert!(!small.may_compress(513));
    let any = negotiate([b"permessage-deflate".as_slice()]).expect("an agreement");
    assert!(any.may_compress(1 << 20));
    for bytes in [&[0][..], &[1, 8], &[1, 15]] {
        assert!(postcard::from_bytes::<Agreement>(bytes).is_ok_and(Agreement::is_possible));
    }
    for bytes in [[1, 7], [1, 16], [1, 255]] {
        assert!(!postcard::from_bytes::<Agreement>(&bytes).is_ok_and(Agreement::is_possible));
    }
}

#[test]
fn the_messages_of_the_rfc_are_inflated() {
    // RFC 7692 section 7.2.3: one block, no compression, BFINAL, two blocks.
    for payload in [
        &b"\xf2\x48\xcd\xc9\xc9\x07\x00"[..],
        b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
        b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00",
        b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
    ] {
        assert_eq!(inflated(payload).as_deref(), Ok(&b"Hello"[..]));
    }
    assert_eq!(inflated(b"\x00").as_deref(), Ok(&b""[..]));
    assert_eq!(inflated(b"").as_deref(), Ok(&b""[..]));
}

#[test]
fn one_inflater_serves_many_readers() {
    let mut inflater = Inflater::default();
    let hello = b"\xf2\x48\xcd\xc9\xc9\x07\x00";
    assert_eq!(inflater.inflate(hello, LIMIT), Ok(&b"Hello"[..]));
    assert_eq!(inflater.inflate(b"\xff", LIMIT), Err(Violation::InvalidPayload));
    assert_eq!(inflater.inflate(hello, 4), Err(Violation::TooBig));
    assert_eq!(inflater.inflate(hello, 5), Ok(&b"Hello"[..]));
    // The window of another message is out of reach: this message refers five bytes back.
    assert_eq!(inflater.inflate(b"\xf2\x00\x11\x00\x00", LIMIT), Err(Violation::InvalidPayload));
}

#[test]
fn a_bomb_ends_where_the_limit_is() {
    let bomb = compressed(&vec![0; 5_000_000]).expect("it shrinks");
    assert!(bomb.len() < 5_100);
    let mut inflater = Inflater::default();
    assert_eq!(inflater.inflate(&bomb, LIMIT), Err(Violation::TooBig));
}

#[test]
fn what_would_not_shrink_is_left_alone() {
    let mut out = b"before".to_vec();
    for payload in [&b""[..], b"x", b"{}", b"\x00\x9f\x1c\x44\xfe"] {
        assert!(!Deflater::new(6).compress(payload, &mut out));
        assert_eq!(out, b"before");
    }
    assert!(Deflater::new(6).compress(&[b'x'; 100], &mut out));
    assert!(out.starts_with(b"before"));
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(text in "[a-f{}\":,]{0,4000}", level in 0..12u8) {
        let mut out = Vec::new();
        let mut deflater = Deflater::new(level);
        for _ in 0..2 {
            out.clear();
            if deflater.compress(text.as_bytes(), &mut out) {
                prop_assert!(out.len() < text.len());
                prop_assert_eq!(inflated(&out), Ok(text.clone().into_bytes()));
            } else {
                prop_assert!(text.len() < 400, "{} bytes were left alone", text.len());
            }
        }
    }

    #[test]
    fn any_bytes_are_inflated_or_refused(payload: Vec<u8>) {
        if let Ok(message) = inflated(&payload) {
            prop_assert!(message.len() <= LIMIT);
        }
    }

    #[test]
    fn any_offer_is_answered_or_declined(offer in "(permessage-deflate|[a-z_;=,\" ]{1,9}|; (server|client)_(no_context_takeover|max_window_bits)|=[0-9]{1,2}){0,8}") {
        if let Some(answer) = answer(&offer) {
            prop_assert!(answer.starts_with(PLAIN));
        }
    }
}
