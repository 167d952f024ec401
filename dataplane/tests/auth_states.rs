//! Auth states: the state that a data plane keeps of a reader for its control planes, and its end.

mod driver;

use std::time::{SystemTime, UNIX_EPOCH};

use driver::{DataPlane, LONG_MS, Plane, TestReader, text};

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Return a reader that has an auth state.
fn logged_in(plane: &mut Plane, port: u16, user: &[u8], ends_ms: u64, blob: &[u8]) -> TestReader {
    let mut reader = TestReader::connect(port);
    reader.send_text(b"it is me");
    let (connection, verb) = plane.verb();
    assert_eq!(verb, b"it is me");
    plane.auth(connection, user, ends_ms, blob);
    assert_eq!(reader.frame(), text(b"{}"));
    reader
}

fn closed_with(reader: &mut TestReader, code: u16) {
    let (opcode, push) = reader.frame();
    let start = format!(r#"{{"type":"disconnect","code":{code},"#);
    assert!(opcode == 1 && push.starts_with(start.as_bytes()), "{push:?}");
    let (opcode, close) = reader.frame();
    assert_eq!((opcode, &close[..2]), (8, &code.to_be_bytes()[..]));
}

/// Check that the reader is still there: its verb is asked.
fn assert_open(plane: &mut Plane, reader: &mut TestReader, auth: &[u8]) {
    reader.send_text(b"still here");
    let (connection, found, verb) = plane.verb_with_auth();
    assert_eq!((&found[..], &verb[..]), (auth, &b"still here"[..]));
    let mut reply = connection.to_vec();
    reply.extend(b"\x02\0\0\0[]");
    plane.send(7, &reply);
    assert_eq!(reader.frame(), text(b"[]"));
}

#[test]
fn every_verb_after_an_auth_state_comes_with_it() {
    let data_plane = DataPlane::start("auth");
    let (mut plane, port) = data_plane.attach();
    let mut reader = logged_in(&mut plane, port, b"42", 0, b"me");
    assert_open(&mut plane, &mut reader, b"me");
    reader.send_text(b"a newer one");
    let (connection, auth, _) = plane.verb_with_auth();
    assert_eq!(auth, b"me");
    // Two verbs at once: the second is asked with the auth state that answers the first.
    reader.send_text(b"and another");
    plane.auth(connection, b"42", 0, b"me again");
    assert_eq!(reader.frame(), text(b"{}"));
    assert_eq!(plane.verb_with_auth(), (connection, b"me again".to_vec(), b"and another".to_vec()));
}

#[test]
fn it_outlives_control_planes_and_data_planes() {
    let mut data_plane = DataPlane::start("auth-outlives");
    let (mut plane, port) = data_plane.attach();
    let mut reader = logged_in(&mut plane, port, b"42", now_ms() + u64::from(LONG_MS), b"me");
    let mut stranger = TestReader::connect(port);
    reader.send_text(b"not answered");
    plane.verb_with_auth();
    drop(plane);
    let (mut plane, _) = data_plane.attach();
    let (connection, auth, verb) = plane.verb_with_auth();
    assert_eq!((&auth[..], &verb[..]), (&b"me"[..], &b"not answered"[..]));
    data_plane.take_over();
    let (mut plane, _) = data_plane.attach();
    assert_eq!(plane.verb_with_auth(), (connection, auth, verb));
    stranger.send_text(b"who am I?");
    assert_eq!(plane.verb().1, b"who am I?");
    plane.evict(&[(b"42", 5)]);
    closed_with(&mut reader, 4001);
}

#[test]
fn an_auth_state_that_runs_out_ends_its_connection_unless_another_came_before() {
    let data_plane = DataPlane::start("auth-runs-out");
    let (mut plane, port) = data_plane.attach();
    // So late that the other auth state arrives before, however busy the machine is.
    let mut renewed = logged_in(&mut plane, port, b"2", now_ms() + 4_000, b"b");
    renewed.send_text(b"longer, please");
    let (connection, _, _) = plane.verb_with_auth();
    plane.auth(connection, b"2", now_ms() + u64::from(LONG_MS), b"c");
    assert_eq!(renewed.frame(), text(b"{}"));
    let ends_ms = now_ms() + 4_000;
    let mut short = logged_in(&mut plane, port, b"1", ends_ms, b"a");
    closed_with(&mut short, 4202);
    assert!(now_ms() >= ends_ms);
    // The timer finds that there is time left; its heartbeat does no harm.
    assert_eq!(renewed.frame(), (9, Vec::new()));
    assert_open(&mut plane, &mut renewed, b"c");
}

#[test]
fn it_runs_out_also_when_it_was_taken_over_meanwhile() {
    let mut data_plane = DataPlane::start("auth-taken-over");
    let (mut plane, port) = data_plane.attach();
    let mut reader = logged_in(&mut plane, port, b"1", now_ms() + 700, b"a");
    data_plane.take_over();
    closed_with(&mut reader, 4202);
}

#[test]
fn an_eviction_ends_the_connections_of_its_users_with_older_auth_states_alone() {
    let data_plane = DataPlane::start("auth-evicts");
    let (mut plane, port) = data_plane.attach();
    let mut gone = logged_in(&mut plane, port, b"42", 0, b"a");
    let mut other_device = logged_in(&mut plane, port, b"42", 0, b"b");
    let mut other_user = logged_in(&mut plane, port, b"4", 0, b"c");
    let mut nobody = TestReader::connect(port);
    plane.evict(&[(b"42", 4), (b"", 9), (b"424", 9)]);
    assert_open(&mut plane, &mut gone, b"a");
    plane.evict(&[(b"7", 9), (b"42", 5)]);
    closed_with(&mut gone, 4001);
    closed_with(&mut other_device, 4001);
    assert_open(&mut plane, &mut other_user, b"c");
    nobody.send_text(b"hello");
    assert_eq!(plane.verb().1, b"hello");
}

#[test]
fn a_token_behind_our_subprotocol_is_the_first_verb() {
    let data_plane = DataPlane::start("auth-subprotocol");
    let (mut plane, port) = data_plane.attach();
    let more = "Sec-WebSocket-Protocol: newsfabric, abc.def_-\r\n";
    for path in ["/websocket", "/sockjs/0/x/websocket"] {
        let (mut reader, head) = TestReader::with(path, port, more);
        assert!(head.contains("\r\nSec-WebSocket-Protocol: newsfabric\r\n"), "{head}");
        let (connection, verb) = plane.verb();
        assert_eq!(verb, br#"{"action":"login","token":"abc.def_-"}"#);
        if path == "/websocket" {
            reader.send_text(b"behind it");
            plane.auth(connection, b"42", 0, b"me");
            assert_eq!(plane.verb_with_auth(), (connection, b"me".to_vec(), b"behind it".to_vec()));
        }
    }
}

#[test]
fn a_token_waits_for_a_control_plane() {
    let data_plane = DataPlane::start("auth-waits");
    let (plane, port) = data_plane.attach();
    drop(plane);
    let more = "Sec-WebSocket-Protocol: newsfabric, abc\r\n";
    let (_reader, head) = TestReader::with("/websocket", port, more);
    assert!(head.starts_with("HTTP/1.1 101 "));
    let (mut plane, _) = data_plane.attach();
    assert_eq!(plane.verb().1, br#"{"action":"login","token":"abc"}"#);
}
