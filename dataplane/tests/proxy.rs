//! The PROXY protocol, by the examples and limits of its text.

use dataplane::proxy::{NotProxied, Proxied, V2_BYTES, parse};
use proptest::prelude::*;

const V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(body.len()).expect("a short body");
    [V2, &[command, family], &size.to_be_bytes(), body].concat()
}

fn header(bytes: &[u8], reader: Option<&str>) -> Result<Proxied, NotProxied> {
    Ok(Proxied::Header {
        bytes: bytes.len(),
        reader: reader.map(|address| address.parse().expect("an address")),
    })
}

const V4_BODY: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 2, 0xC0, 0x01, 0x01, 0xBB];

#[test]
fn version_1_says_who_the_reader_is() {
    for (line, reader) in [
        ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", Some("192.168.0.1:56324")),
        (
            "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
            Some("255.255.255.255:65535"),
        ),
        ("PROXY TCP6 2001:db8::1 ::1 0 443\r\n", Some("[2001:db8::1]:0")),
        ("PROXY UNKNOWN\r\n", None),
        ("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    ] {
        assert_eq!(parse(line.as_bytes()), header(line.as_bytes(), reader));
        let request = [line, "GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(request.as_bytes()), header(line.as_bytes(), reader));
    }
}

#[test]
fn version_1_is_read_strictly() {
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(93));
    for bad in [
        "GET / HTTP/1.1\r\n\r\n",
        "proxy TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
        "PROXY TCP4  1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
        "PROXY TCP4 01.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY \r\n",
        endless.as_str(),
    ] {
        assert_eq!(parse(bad.as_bytes()), Err(NotProxied), "{bad}");
    }
}

#[test]
fn version_2_says_who_the_reader_is() {
    let v4 = v2(0x21, 0x11, V4_BODY);
    assert_eq!(parse(&v4), header(&v4, Some("192.0.2.1:49153")));
    let mut body = [0; 36];
    body[15] = 1;
    body[32..34].copy_from_slice(&[0x1F, 0x90]);
    let v6 = v2(0x21, 0x21, &body);
    assert_eq!(parse(&v6), header(&v6, Some("[::1]:8080")));
}

#[test]
fn version_2_may_not_know_the_reader() {
    for unknown in [
        v2(0x20, 0x00, b""),
        v2(0x20, 0x11, V4_BODY),
        v2(0x20, 0xFF, b"whatever"),
        v2(0x21, 0x00, b"ignored"),
        v2(0x21, 0x31, &[b'/'; 216]),
    ] {
        assert_eq!(parse(&unknown), header(&unknown, None));
    }
}

#[test]
fn what_version_2_appends_is_skipped() {
    let with_tlvs = v2(0x21, 0x11, &[V4_BODY, b"\x01\x00\x02h2"].concat());
    assert_eq!(parse(&with_tlvs), header(&with_tlvs, Some("192.0.2.1:49153")));
    let longest = v2(0x20, 0, &vec![0; V2_BYTES - 16]);
    assert_eq!(parse(&longest), header(&longest, None));
}

#[test]
fn version_2_is_read_strictly() {
    for bad in [
        v2(0x11, 0x11, V4_BODY),
        v2(0x22, 0x11, V4_BODY),
        v2(0x21, 0x12, V4_BODY),
        v2(0x21, 0x41, V4_BODY),
        v2(0x21, 0x11, &V4_BODY[1..]),
        v2(0x21, 0x21, &[0; 35]),
        v2(0x20, 0, &vec![0; V2_BYTES - 15]),
    ] {
        assert_eq!(parse(&bad), Err(NotProxied));
    }
    // The length alone is enough.
    assert_eq!(parse(&v2(0x21, 0x11, &[0; 5000])[..16]), Err(NotProxied));
}

fn any_start() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "PROXY (TCP4|TCP6|UNKNOWN)( [0-9.:a-f]{1,12}){0,5}(\r\n|\n)?.{0,9}"
            .prop_map(String::into_bytes),
        (any::<u8>(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(command, family, body)| v2(command, family, &body)),
        Just(v2(0x21, 0x11, V4_BODY)),
        prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #[test]
    fn more_bytes_only_decide_what_was_open(bytes in any_start()) {
        let mut decided = None;
        for size in 0..=bytes.len() {
            let now = parse(&bytes[..size]);
            match &decided {
                Some(before) => prop_assert_eq!(&now, before),
                None if now != Ok(Proxied::Incomplete) => decided = Some(now),
                None => {}
            }
        }
    }
}
