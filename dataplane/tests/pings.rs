//! Pings: some are answered by the data plane itself, others by the control plane like all verbs.

mod driver;

use std::thread::sleep;
use std::time::Duration;

use driver::{DataPlane, LONG_MS, TestReader, text};

const PING: &[u8] = br#"{"action":"ping"}"#;
const PONG: &[u8] = br#"{"type":"pong"}"#;

#[test]
fn a_plain_ping_never_reaches_the_control_plane() {
    let data_plane = DataPlane::start("ping");
    let (mut plane, port) = data_plane.attach_with(LONG_MS);
    let mut reader = TestReader::connect(port);
    reader.send_text(PING);
    assert_eq!(reader.frame(), text(PONG));
    reader.send_text(br#"{"action":"ping","ref":"s1"}"#);
    assert_eq!(reader.frame(), text(br#"{"type":"pong","ref":"s1"}"#));
    let mut other = TestReader::on_sockjs(port);
    assert_eq!(other.frame(), text(b"o"));
    other.send_text(br#"["{\"action\":\"ping\",\"ref\":1}","{\"action\":\"ping\"}"]"#);
    assert_eq!(other.frame(), text(br#"a["{\"type\":\"pong\",\"ref\":1}"]"#));
    assert_eq!(other.frame(), text(br#"a["{\"type\":\"pong\"}"]"#));
    reader.send_text(b"something else");
    assert_eq!(plane.verb().1, b"something else");
    plane.wait_for_count("verbs.ping", 4);
}

#[test]
fn it_waits_for_the_answers_to_the_verbs_before_it() {
    let data_plane = DataPlane::start("ping-waits");
    let (mut plane, port) = data_plane.attach_with(LONG_MS);
    let mut reader = TestReader::connect(port);
    for verb in [b"first", PING, b"second", PING, PING] {
        reader.send_text(verb);
    }
    for expected in [b"first".to_vec(), b"second".to_vec()] {
        let (connection, verb) = plane.verb();
        assert_eq!(verb, expected);
        plane.reply(connection);
    }
    let pushes: Vec<_> = (0..5).map(|_| reader.frame().1).collect();
    assert_eq!(pushes, [b"[]", PONG, b"[]", PONG, PONG]);
}

#[test]
fn it_keeps_its_turn_when_the_control_plane_dies() {
    let data_plane = DataPlane::start("ping-alone");
    let (mut plane, port) = data_plane.attach_with(LONG_MS);
    let mut reader = TestReader::connect(port);
    reader.send_text(b"first");
    reader.send_text(PING);
    plane.verb();
    drop(plane);
    let (mut plane, _) = data_plane.attach_with(LONG_MS);
    let (connection, verb) = plane.verb();
    assert_eq!(verb, b"first");
    plane.reply(connection);
    assert_eq!(reader.frame(), text(b"[]"));
    assert_eq!(reader.frame(), text(PONG));
}

#[test]
fn it_goes_to_a_control_plane_that_has_been_silent_until_that_one_says_something() {
    let data_plane = DataPlane::start("ping-silent");
    let (mut plane, port) = data_plane.attach_with(1);
    let mut reader = TestReader::connect(port);
    // The control plane has been silent for long enough; a longer sleep does no harm.
    sleep(Duration::from_millis(20));
    reader.send_text(PING);
    let (connection, verb) = plane.verb();
    assert_eq!(verb, PING);
    // So that the next ping is soon enough, however busy the machine is.
    plane.send_settings(LONG_MS, LONG_MS);
    plane.reply(connection);
    assert_eq!(reader.frame(), text(b"[]"));
    reader.send_text(PING);
    assert_eq!(reader.frame(), text(PONG));
}

#[test]
fn to_a_control_plane_that_does_not_want_that_it_is_a_verb() {
    let data_plane = DataPlane::start("ping-unwanted");
    let (mut plane, port) = data_plane.attach_with(0);
    let mut reader = TestReader::connect(port);
    reader.send_text(PING);
    assert_eq!(plane.verb().1, PING);
}

#[test]
fn it_counts_as_a_verb_for_the_flood_limit() {
    let data_plane = DataPlane::start("ping-flood");
    let (_plane, port) = data_plane.attach_with(LONG_MS);
    let mut reader = TestReader::connect(port);
    for _ in 0..320 {
        reader.send_text(PING);
    }
    let mut pushes = Vec::new();
    loop {
        match reader.frame() {
            (1, push) => pushes.push(push),
            (8, close) => {
                assert_eq!(close[..2], 4102u16.to_be_bytes());
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let pongs = pushes.iter().filter(|push| *push == PONG).count();
    let refused = pushes.iter().filter(|push| push.starts_with(b"{\"type\":\"error\"")).count();
    // 256 at once, some more during the test, and 20 refused.
    assert!((256..300).contains(&pongs) && refused == 20, "{pongs} {refused}");
}
