//! A whole data plane in its own process, driven over its control socket and readers' real sockets.

mod driver;

use std::io::{Read, Write};
use std::iter;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use driver::{DataPlane, PATIENCE, Plane, TestReader, text};

#[test]
fn a_subscriber_gets_each_message_once_and_copies_not_at_all() {
    let data_plane = DataPlane::start("once");
    let (mut plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    reader.send_text(b"let me in");
    let (connection, verb) = plane.verb();
    assert_eq!(verb, b"let me in");
    plane.subscribe(connection);
    for number in [1, 2, 1, 3] {
        plane.publish(number, format!("{{{number}}}").as_bytes());
    }
    assert_eq!(reader.frame(), text(b"subs"));
    for push in [b"{1}", b"{2}", b"{3}"] {
        assert_eq!(reader.frame(), text(push));
    }
}

#[test]
fn readers_stay_when_the_control_plane_dies_and_their_verbs_are_asked_again() {
    let data_plane = DataPlane::start("again");
    let (mut plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    reader.send_text(b"first");
    let (connection, _) = plane.verb();
    reader.send_text(b"second");
    drop(plane);
    let (mut plane, _) = data_plane.attach();
    assert_eq!(plane.verb(), (connection, b"first".to_vec()));
    plane.subscribe(connection);
    assert_eq!(plane.verb(), (connection, b"second".to_vec()));
    plane.publish(1, b"{1}");
    assert_eq!(reader.frame(), text(b"subs"));
    assert_eq!(reader.frame(), text(b"{1}"));
}

const GOODBYE: &[u8] =
    br#"{"type":"disconnect","code":4100,"reason":"internal","reconnect":true,"retry_after_ms":500}"#;

#[test]
fn a_batch_comes_before_what_is_live_and_one_that_isnt_there_ends_the_connection() {
    let data_plane = DataPlane::start("batches");
    let (mut plane, port) = data_plane.attach();
    let mut batch = 7u64.to_le_bytes().to_vec();
    batch.extend(driver::topic());
    batch.extend(2u32.to_le_bytes());
    batch.extend(driver::message(1, b"{1}"));
    batch.extend(driver::message(2, b"{2}"));
    plane.send(15, &batch);
    for (number, expected) in [(7, text(b"subs")), (8, text(GOODBYE))] {
        let mut reader = TestReader::connect(port);
        reader.send_text(b"what was");
        let (connection, _) = plane.verb();
        plane.subscribe_to(connection, number, true);
        assert_eq!(reader.frame(), expected);
        if number == 7 {
            // A copy of a replayed message isn't sent to the reader.
            plane.publish(2, b"{2}");
            plane.publish(3, b"{3}");
            for push in [b"{1}", b"{2}", b"{3}"] {
                assert_eq!(reader.frame(), text(push));
            }
        } else {
            assert_eq!(reader.frame().0, 8);
        }
    }
}

const ALREADY: &[u8] =
    br#"{"type":"error","topic":"news","code":105,"reason":"already subscribed","temporary":false}"#;

#[test]
fn who_says_the_same_is_asked_for_and_answered_together() {
    let data_plane = DataPlane::start("together");
    let (plane, port) = data_plane.attach();
    drop(plane);
    let mut readers: Vec<TestReader> = (0..8).map(|_| TestReader::connect(port)).collect();
    let mut leaver = TestReader::connect(port);
    for reader in readers.iter_mut().chain([&mut leaver]) {
        reader.send_text(b"the same");
    }
    let (mut plane, _) = data_plane.attach();
    let crowd = who_says(&mut plane, b"the same", 9);
    drop(leaver);
    plane.wait_for_count("closes.lost", 1);
    crowd.iter().for_each(|connections| plane.subscribe_all(connections));
    plane.publish(1, b"{1}");
    for reader in &mut readers {
        assert_eq!([reader.frame(), reader.frame()], [text(b"subs"), text(b"{1}")]);
    }
    // Only the reader that can't have the topic gets an error.
    let mut another = TestReader::connect(port);
    for reader in readers.iter_mut().chain([&mut another]) {
        reader.send_text(b"once more");
    }
    let crowd = who_says(&mut plane, b"once more", 9);
    crowd.iter().for_each(|connections| plane.subscribe_all(connections));
    assert_eq!(another.frame(), text(b"subs"));
    for reader in &mut readers {
        assert_eq!(reader.frame(), text(ALREADY));
    }
    plane.wait_for_count("errors.already_subscribed", 8);
}

/// Return the connections of so `many` that send `verb`, as lists: the threads report when they
/// like.
fn who_says(plane: &mut Plane, verb: &[u8], many: usize) -> Vec<Vec<u8>> {
    let (mut found, mut lists) = (0, Vec::new());
    while found < many {
        let body = plane.wait_for(130);
        let count = usize::from(u16::from_le_bytes([body[4], body[5]]));
        let (connections, text) = body[4..].split_at(2 + 10 * count);
        assert_eq!((&body[..4], &text[6..]), (&[1, 0, 0, 0][..], verb));
        lists.push(connections.to_vec());
        found += count;
    }
    lists
}

/// Return so many readers that have sent the same verb, and one list of them all.
fn crowd(data_plane: &DataPlane, many: usize) -> (Plane, Vec<TestReader>, Vec<u8>) {
    let (mut plane, port) = data_plane.attach();
    let mut readers: Vec<TestReader> = (0..many).map(|_| TestReader::connect(port)).collect();
    readers.iter_mut().for_each(|reader| reader.send_text(b"all of it"));
    let mut list = (many as u16).to_le_bytes().to_vec();
    list.extend(who_says(&mut plane, b"all of it", many).iter().flat_map(|some| &some[2..]));
    (plane, readers, list)
}

/// More bytes than both sockets hold, fewer than an outbox may.
static LONG: [u8; 3 << 20] = [b'x'; 3 << 20];

#[test]
fn an_answer_that_many_wait_for_is_in_memory_once_on_each_thread() {
    let data_plane = DataPlane::start("shared");
    let (mut plane, mut readers, list) = crowd(&data_plane, 16);
    plane.reply_all(&list, &LONG);
    plane.wait_for_count("held_bytes", 0);
    let waiting = plane.count_when("outbox_bytes", |bytes| bytes > 0);
    assert!(waiting < 7_000_000, "{waiting} bytes");
    for reader in &mut readers {
        assert!(reader.frame() == text(&LONG));
    }
    plane.wait_for_count("outbox_bytes", 0);
}

#[test]
fn so_is_one_that_others_got_just_before() {
    let data_plane = DataPlane::start_with("shared-again", 1);
    let (mut plane, mut readers, list) = crowd(&data_plane, 16);
    let (two, others) = list[2..].split_at(20);
    plane.reply_all(&[b"\x02\0", two].concat(), &LONG);
    for other in others.chunks(10) {
        plane.reply_all(&[b"\x01\0", other].concat(), &LONG);
    }
    plane.wait_for_count("held_bytes", 0);
    let waiting = plane.count_when("outbox_bytes", |bytes| bytes > 0);
    assert!(waiting < 4_000_000, "{waiting} bytes");
    for reader in &mut readers {
        assert!(reader.frame() == text(&LONG));
    }
}

const SLOW: &[u8] =
    br#"{"type":"disconnect","code":4101,"reason":"slow_reader","reconnect":true,"retry_after_ms":500}"#;

#[test]
fn an_answer_that_was_begun_is_finished_before_the_goodbye() {
    for many in [1, 3] {
        let data_plane = DataPlane::start(&format!("begun-{many}"));
        let (mut plane, mut readers, list) = crowd(&data_plane, many);
        plane.reply_all(&list, &LONG);
        plane.close_as_slow(&list);
        for reader in &mut readers {
            assert!(reader.frame() == text(&LONG), "{many}");
            assert_eq!(reader.frame(), text(SLOW));
            assert_eq!(reader.frame().0, 8);
        }
    }
}

#[test]
fn who_has_made_room_while_the_data_plane_stood_still_is_no_slow_reader() {
    // If this process stood still itself, the reader was slow indeed: then try again.
    let found = (0..20).map(|_| after_a_stop()).find(|(next, quick)| *next == PONG || *quick);
    assert_eq!(found.expect("a machine that doesn't stand still each time").0, PONG);
}

const PONG: (u8, Vec<u8>) = (10, Vec::new());

/// Return the first frame for a reader that pings after it has taken all, while the data plane
/// stood still; and whether the reader can't have been slow by itself.
fn after_a_stop() -> ((u8, Vec<u8>), bool) {
    let data_plane = DataPlane::start_with("stood-still", 1);
    let (mut plane, port) = data_plane.attach();
    plane.send_settings(0, STALLED_MS);
    let mut others: Vec<TestReader> = (0..300).map(|_| TestReader::connect(port)).collect();
    let mut reader = TestReader::connect(port);
    reader.send_text(b"all of it");
    let (connection, _) = plane.verb();
    let began = Instant::now();
    plane.reply_all(&connection, &LONG);
    plane.count_when("outbox_bytes", |bytes| bytes > 0);
    data_plane.signal(Signal::STOP);
    let before = began.elapsed();
    // So many sockets are ready before the reader's that its timer fires first.
    others.iter_mut().for_each(|other| other.ping());
    let taken = reader.until_silent();
    thread::sleep(STALLED);
    let began = Instant::now();
    data_plane.signal(Signal::CONT);
    let rest = reader.bytes(LONG.len() + 10 - taken.len());
    assert!(taken.len() > 10 && rest == LONG[..rest.len()]);
    reader.ping();
    // With the room that it found, the reader's timer may have found a heartbeat due.
    let next = iter::repeat_with(|| reader.frame()).find(|(opcode, _)| *opcode != 9);
    (next.expect("a frame"), before < STALLED && began.elapsed() < STALLED)
}

const STALLED: Duration = Duration::from_millis(STALLED_MS as u64);
const STALLED_MS: u32 = 1_000;

#[test]
fn what_is_replayed_unseen_comes_again_and_to_everybody_else() {
    let data_plane = DataPlane::start("unseen");
    let (mut plane, port) = data_plane.attach();
    let mut batch = 7u64.to_le_bytes().to_vec();
    batch.extend(driver::topic());
    batch.extend(1u32.to_le_bytes());
    batch.extend(driver::message(1, b"{1}"));
    plane.send(15, &batch);
    let mut readers = [TestReader::connect(port), TestReader::connect(port)];
    for (reader, number) in readers.iter_mut().zip([0, 7]) {
        reader.send_text(b"what was");
        let (connection, _) = plane.verb();
        plane.subscribe_to(connection, number, false);
        assert_eq!(reader.frame(), text(b"subs"));
    }
    assert_eq!(readers[1].frame(), text(b"{1}"));
    plane.publish(1, b"{1}");
    for reader in &mut readers {
        assert_eq!(reader.frame(), text(b"{1}"));
    }
}

#[test]
fn garbage_on_the_control_socket_costs_nobody_but_the_control_plane() {
    let data_plane = DataPlane::start("garbage");
    let (mut plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    plane.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the control socket");
    plane.wait_for(135);
    let (mut plane, _) = data_plane.attach();
    reader.send_text(b"still here");
    assert_eq!(plane.verb().1, b"still here");
}

#[test]
fn other_requests_are_handed_over_or_get_a_503() {
    let data_plane = DataPlane::start("other");
    let (plane, port) = data_plane.attach();
    drop(plane);
    let started = Instant::now();
    // The listener's thread may not know yet that the control plane has left.
    loop {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("a socket");
        let mut answer = String::new();
        let _ = socket.read_to_string(&mut answer);
        if answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 2") {
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{answer:?}");
    }
}

/// Return a connection with a request that isn't the data plane's.
fn other_request(port: u16) -> TcpStream {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").expect("a socket");
    socket
}

#[test]
fn what_was_handed_over_counts_until_it_is_gone_or_the_control_plane_is() {
    let data_plane = DataPlane::start("goodbyes");
    let (mut plane, port) = data_plane.attach_with(0);
    for _ in 0..2 {
        other_request(port);
        assert_eq!(plane.wait_for(133), b"\x09127.0.0.1");
    }
    let mut answer = String::new();
    other_request(port).read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 2"), "{answer}");
    plane.wait_for_count("handed_over", 2);
    plane.send(21, b"\x09127.0.0.1");
    plane.send(21, b"\x09127.0.0.2");
    plane.wait_for_count("handed_over", 1);
    other_request(port);
    plane.wait_for(133);
    drop(plane);
    let (mut plane, _) = data_plane.attach_with(0);
    plane.wait_for_count("handed_over", 0);
    plane.send(22, b"\x01\0\0\0\x09127.0.0.1\x02\0\0\0");
    plane.wait_for_count("handed_over", 2);
    plane.wait_for_count("rejected.handovers", 1);
}

#[test]
fn what_is_no_socket_to_listen_on_is_refused() {
    let path = std::env::temp_dir().join(format!("no-socket-{}.sock", std::process::id()));
    for (fd, code) in [("-1", 2), ("0", 2), ("2", 2), ("x", 2), ("999", 1), ("3", 1)] {
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_newsfabric-dataplane"))
            .args(["--fd", fd, "--control"])
            .arg(&path)
            .output()
            .expect("an exit");
        let output = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{output}");
        assert!(output.contains("--fd"), "{output}");
    }
}

#[test]
fn help_says_who_starts_it() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_newsfabric-dataplane"))
        .arg("--help")
        .output()
        .expect("an exit");
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(String::from_utf8_lossy(&output.stdout).contains("control plane starts it"));
}

#[test]
fn half_a_head_and_then_the_end_is_dropped_at_once() {
    let data_plane = DataPlane::start("half");
    let (mut plane, port) = data_plane.attach();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(b"GET /websocket HT").expect("a socket");
    socket.shutdown(std::net::Shutdown::Write).expect("a socket");
    let end = socket.read(&mut [0]);
    assert!(
        matches!(end, Ok(0))
            || end.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset)
    );
    // The connection didn't wait for the deadline of a handshake.
    plane.wait_for_count("handshake_timeouts", 0);
}

#[test]
fn a_drain_says_disconnect_then_closes_and_the_process_ends() {
    let mut data_plane = DataPlane::start("drain");
    let (mut plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    let mut drain = 50u32.to_le_bytes().to_vec();
    drain.extend(100u32.to_le_bytes());
    plane.send(11, &drain);
    let (opcode, push) = reader.frame();
    assert_eq!(opcode, 1);
    assert!(push.starts_with(br#"{"type":"disconnect","code":1012,"#));
    assert_eq!(reader.frame(), (8, b"\x03\xf4drain".to_vec()));
    reader.0.write_all(b"\x88\x82\0\0\0\0\x03\xf4").expect("a socket");
    assert!(data_plane.process.wait().expect("an exit").success());
}

#[test]
fn of_very_many_pings_at_once_the_last_is_answered_and_not_all() {
    let data_plane = DataPlane::start("shell-pings");
    let (_plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    let mut pings = Vec::new();
    for number in 0..2_000u16 {
        pings.extend([0x89, 0x82, 0, 0, 0, 0]);
        pings.extend(number.to_be_bytes());
    }
    reader.0.write_all(&pings).expect("a socket");
    let mut pongs = Vec::new();
    while pongs.last() != Some(&1_999) {
        let (opcode, payload) = reader.frame();
        assert_eq!(opcode, 10);
        pongs.push(u16::from_be_bytes([payload[0], payload[1]]));
    }
    assert!(pongs.is_sorted() && pongs.len() < 1_000, "{}", pongs.len());
    assert_eq!(pongs[..3], [0, 1, 2]);
}

#[test]
fn what_is_held_of_verbs_is_counted_until_they_are_answered_or_their_reader_goes() {
    let mut data_plane = DataPlane::start("shell-held");
    let (mut plane, port) = data_plane.attach();
    let mut first = TestReader::connect(port);
    let mut second = TestReader::connect(port);
    first.send_text(b"asked");
    first.send_text(b"waiting");
    let (connection, _) = plane.verb();
    plane.wait_for_count("held_bytes", 12);
    second.send_text(b"also asked");
    plane.verb();
    plane.wait_for_count("held_bytes", 22);
    drop(plane);
    let (mut plane, _) = data_plane.attach();
    plane.verb();
    plane.wait_for_count("held_bytes", 22);
    data_plane.take_over();
    let (mut plane, _) = data_plane.attach();
    plane.verb();
    plane.wait_for_count("held_bytes", 22);
    plane.reply(connection);
    plane.wait_for_count("held_bytes", 17);
    drop(second);
    plane.wait_for_count("held_bytes", 7);
    plane.verb();
    plane.reply(connection);
    plane.wait_for_count("held_bytes", 0);
}
