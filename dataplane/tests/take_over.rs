//! A newer data plane takes over from an older one, as processes: no reader notices.

mod driver;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Output;

use dataplane::control::{COMMIT, ControlState, Event, Offer, ThreadOptions};
use dataplane::sys;
use dataplane::take_over::record::{self, Record};
use driver::{DataPlane, Plane, TestReader, text};

const TAKE_OVER: &[u8] = b"nfdp\x01\0\x03\0";

/// Subscribe a reader, and return it.
fn subscribed(plane: &mut Plane, mut reader: TestReader) -> TestReader {
    reader.send_text(b"let me in");
    let (connection, _) = plane.verb();
    plane.subscribe(connection);
    assert_eq!(reader.frame(), text(b"subs"));
    reader
}

#[test]
fn readers_stay_subscribed_and_hear_each_message_once() {
    let mut data_plane = DataPlane::start("stay");
    let (mut plane, port) = data_plane.attach();
    let mut reader = subscribed(&mut plane, TestReader::connect(port));
    plane.publish(1, b"{1}");
    plane.publish(2, b"{2}");
    plane.wait_for(132);
    for attachment in 2_u8..4 {
        data_plane.take_over();
        let farewell = plane.wait_for(135);
        assert_eq!(farewell, b"\x0ataken_over");
        let socket = data_plane.connect();
        plane = Plane::on(socket);
        plane.send(1, &driver::hello());
        let attached = plane.wait_for(129);
        assert_eq!(attached[2..6], data_plane.process.id().to_le_bytes());
        assert_eq!(attached[6..14], [attachment, 0, 0, 0, 1, 0, 0, 0]);
        // The control plane can't know which messages were sent to all readers.
        plane.publish(2, b"{2}");
    }
    plane.publish(3, b"{3}");
    for push in [b"{1}", b"{2}", b"{3}"] {
        assert_eq!(reader.frame(), text(push));
    }
    let mut another = TestReader::connect(port);
    another.send_text(b"me too");
    assert_eq!(plane.verb().1, b"me too");
}

#[test]
fn partly_received_verbs_are_not_lost() {
    let mut data_plane = DataPlane::start("parts");
    let (mut plane, port) = data_plane.attach();
    let mut halves = TestReader::connect(port);
    halves.0.write_all(b"\x81\x85\x01\x02\x03\x04hb").expect("a socket");
    let mut fragments = TestReader::connect(port);
    // The first byte of a character of two bytes, and a ping between fragments.
    fragments.0.write_all(b"\x01\x82\0\0\0\0a\xc3\x89\x81\0\0\0\0p").expect("a socket");
    assert_eq!(fragments.frame(), (10, b"p".to_vec()));
    let mut head = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    head.write_all(b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConn")
        .expect("sent");
    let mut sockjs = TestReader::on_sockjs(port);
    assert_eq!(sockjs.frame(), text(b"o"));
    let mut unanswered = TestReader::connect(port);
    unanswered.send_text(b"first");
    let (asking, _) = plane.verb();
    unanswered.send_text(b"second");
    // The data plane has also read all that was sent before this verb: the threads read in turn.
    sockjs.send_text(br#"["x"]"#);
    let (answered, verb) = plane.verb();
    assert_eq!(verb, b"x");
    let mut reply = answered.to_vec();
    reply.extend(b"\x02\0\0\0{}");
    plane.send(7, &reply);
    assert_eq!(sockjs.frame(), text(br#"a["{}"]"#));

    data_plane.take_over();
    let (mut plane, _) = data_plane.attach();
    assert_eq!(plane.verb(), (asking, b"first".to_vec()));
    plane.subscribe(asking);
    assert_eq!(plane.verb(), (asking, b"second".to_vec()));
    halves.0.write_all(&[b'h' ^ 3, b'h' ^ 4, b'o' ^ 1]).expect("a socket");
    let (_, verb) = plane.verb();
    assert_eq!(verb[2..], *b"hho");
    fragments.0.write_all(b"\x80\x81\0\0\0\0\xa9").expect("a socket");
    assert_eq!(plane.verb().1, "aé".as_bytes());
    head.write_all(
        b"ection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
          Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    )
    .expect("sent");
    let mut answer = [0; 12];
    head.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 101");
    sockjs.send_text(br#"["y"]"#);
    assert_eq!(plane.verb(), (answered, b"y".to_vec()));
}

#[test]
fn a_slow_reader_gets_the_rest_of_its_frame_and_all_that_waited() {
    let mut data_plane = DataPlane::start("slow");
    let (mut plane, port) = data_plane.attach();
    let mut slow = subscribed(&mut plane, TestReader::connect(port));
    let mut quick = subscribed(&mut plane, TestReader::connect(port));
    // More bytes than both sockets hold, fewer than an outbox may.
    let push = |number: u64| format!("{{{number}:{}}}", "x".repeat(15_000)).into_bytes();
    for number in 1..=290 {
        plane.publish(number, &push(number));
        assert_eq!(quick.frame(), text(&push(number)));
    }
    // Each socket holds less than half of them.
    let half = 145 * 15_000;
    plane.count_when("outbox_bytes", |bytes| bytes > half);
    data_plane.take_over();
    let (mut plane, _) = data_plane.attach();
    // Not the number before: meanwhile the kernel may have taken some more.
    let after = plane.count_when("outbox_bytes", |bytes| bytes > half);
    assert!(after < 291 * 16_000, "{after} bytes");
    plane.publish(291, &push(291));
    assert_eq!(quick.frame(), text(&push(291)));
    for number in 1..=291 {
        assert_eq!(slow.frame(), text(&push(number)), "message {number}");
    }
    plane.wait_for_count("outbox_bytes", 0);
}

#[test]
fn a_newer_one_that_gives_up_changes_nothing() {
    let data_plane = DataPlane::start("gives-up");
    let (mut plane, port) = data_plane.attach();
    let mut reader = subscribed(&mut plane, TestReader::connect(port));
    for garbage in [&b""[..], b"\x01\0\0\0\x0c", b"\0\0\0\0"] {
        let mut newer = Plane::on(data_plane.connect());
        newer.send(13, TAKE_OVER);
        newer.wait_for(136);
        newer.wait_for(137);
        newer.socket.write_all(garbage).expect("the control socket");
        if !garbage.is_empty() {
            newer.wait_for(135);
        }
        drop(newer);
        reader.send_text(b"still here");
        let (connection, verb) = plane.verb();
        assert_eq!(verb, b"still here");
        let mut reply = connection.to_vec();
        reply.extend(b"\x02\0\0\0{}");
        plane.send(7, &reply);
        assert_eq!(reader.frame(), text(b"{}"));
    }
    plane.publish(1, b"{1}");
    assert_eq!(reader.frame(), text(b"{1}"));
}

#[test]
fn a_newer_one_that_is_killed_before_its_commit_changes_nothing() {
    let mut data_plane = DataPlane::start("killed");
    let (mut plane, port) = data_plane.attach();
    let mut reader = subscribed(&mut plane, TestReader::connect(port));
    let mut newer = data_plane.newer();
    newer.kill().expect("a process");
    newer.wait().expect("an exit");
    // Killed at any moment: either it never got to `commit`, or everything was its own.
    plane.publish(1, b"{1}");
    assert_eq!(reader.frame(), text(b"{1}"));
    data_plane.take_over();
    assert_eq!(plane.wait_for(135), b"\x0ataken_over");
}

#[test]
fn one_that_reads_another_format_or_speaks_another_version_is_refused() {
    let data_plane = DataPlane::start("format");
    let (mut plane, _) = data_plane.attach();
    for request in [b"nfdp\x01\0\x02\0", b"nfdp\x02\0\x03\0", b"nfdq\x01\0\x03\0"] {
        let mut newer = Plane::on(data_plane.connect());
        newer.send(13, request);
        newer.wait_for(135);
    }
    plane.send(12, b"");
    plane.wait_for(134);
}

#[test]
fn who_connects_and_says_nothing_displaces_nobody() {
    let data_plane = DataPlane::start("strangers");
    let (mut plane, port) = data_plane.attach();
    let strangers: Vec<_> = (0..20).map(|_| data_plane.connect()).collect();
    let mut nonsense = Plane::on(data_plane.connect());
    nonsense.socket.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the control socket");
    nonsense.wait_for(135);
    let mut reader = TestReader::connect(port);
    reader.send_text(b"let me in");
    assert_eq!(plane.verb().1, b"let me in");
    drop(strangers);
}

#[test]
fn without_a_control_plane_it_works_as_well() {
    let mut data_plane = DataPlane::start("alone");
    drop(data_plane.connect());
    data_plane.take_over();
    let (plane, port) = data_plane.attach();
    let mut reader = TestReader::connect(port);
    drop(plane);
    data_plane.take_over();
    reader.send_text(b"anybody there?");
    let (mut plane, same_port) = data_plane.attach();
    assert_eq!(same_port, port);
    assert_eq!(plane.verb().1, b"anybody there?");
}

#[test]
fn a_data_plane_that_drains_serves_on() {
    let data_plane = DataPlane::start("drains");
    let (mut plane, port) = data_plane.attach();
    let _reader = TestReader::connect(port);
    let mut drain = 60_000u32.to_le_bytes().to_vec();
    drain.extend(100u32.to_le_bytes());
    plane.send(11, &drain);
    plane.send(12, b"");
    plane.wait_for(134);
    let output = data_plane.newer().wait_with_output().expect("an exit");
    assert!(!output.status.success());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed, "failed: the older one serves on: readers are being sent away\n");
}

#[test]
fn the_newer_one_drains_like_any_other() {
    let mut data_plane = DataPlane::start("then-drains");
    let (mut plane, port) = data_plane.attach();
    let mut reader = subscribed(&mut plane, TestReader::connect(port));
    data_plane.take_over();
    // SAFETY: takes no pointers; the process is our child.
    unsafe { libc::kill(data_plane.process.id() as i32, libc::SIGTERM) };
    let (_, push) = reader.frame();
    assert!(push.starts_with(br#"{"type":"disconnect","code":1012,"#));
    assert_eq!(reader.frame(), (8, b"\x03\xf4drain".to_vec()));
    reader.0.write_all(b"\x88\x82\0\0\0\0\x03\xf4").expect("a socket");
    assert!(data_plane.process.wait().expect("an exit").success());
    assert!(!data_plane.path.exists());
}

/// An older data plane played by the test: one thread without readers, up to the newer one's
/// `commit`.
struct Older {
    newer: std::process::Child,
    path: PathBuf,
    handshake: UnixStream,
}

impl Older {
    /// Play the older data plane. `end` is sent instead of the end of its state, if given.
    fn yielding(name: &str, end: Option<&[u8]>) -> Older {
        let path = std::env::temp_dir().join(format!("{name}-{}.sock", std::process::id()));
        let door = UnixListener::bind(&path).expect("a socket");
        let newer = driver::newer(&path);
        let (mut handshake, _) = door.accept().expect("the newer one");
        handshake.read_exact(&mut [0; 13]).expect("take_over");
        let mut bytes = Vec::new();
        let offer = Offer {
            pid: 1,
            format: record::FORMAT,
            options: ThreadOptions { threads: 1, proxied: false, echo: false },
            ports: vec![1],
            state: ControlState::default(),
        };
        Event::Offer { offer }.encode(&mut bytes);
        sys::send_descriptor(handshake.as_raw_fd(), &bytes, door.as_raw_fd()).expect("sent");
        let (ours, theirs) = sys::stream_pair().expect("a pair");
        bytes.clear();
        Event::StateSocket { thread: 0 }.encode(&mut bytes);
        sys::send_descriptor(handshake.as_raw_fd(), &bytes, theirs.as_raw_fd()).expect("sent");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        bytes.clear();
        Record::Thread { number: 0, now_ms: 0 }.put(&mut bytes);
        Record::Shared.put(&mut bytes);
        match end {
            Some(garbage) => bytes.extend_from_slice(garbage),
            None => Record::End(0).put(&mut bytes),
        }
        sys::send_descriptor(ours.as_raw_fd(), &bytes, listener.as_raw_fd()).expect("sent");
        Older { newer, path, handshake }
    }

    fn hears_commit(&mut self) {
        let mut commit = [0; 5];
        self.handshake.read_exact(&mut commit).expect("commit");
        assert_eq!(commit, COMMIT);
    }

    /// Return the newer data plane's output at its end.
    fn output(self) -> Output {
        drop(self.handshake);
        let output = self.newer.wait_with_output().expect("an exit");
        let _ = std::fs::remove_file(self.path);
        output
    }
}

#[test]
fn when_the_older_one_dies_after_the_commit_the_newer_one_serves() {
    let mut older = Older::yielding("dies", None);
    older.hears_commit();
    let Older { newer, path, handshake } = older;
    drop(handshake);
    let mut line = [0; 8];
    let mut newer = newer;
    newer.stdout.as_mut().expect("a pipe").read_exact(&mut line).expect("a line");
    assert_eq!(&line, b"serving\n");
    // SAFETY: takes no pointers; the process is our child.
    unsafe { libc::kill(newer.id() as i32, libc::SIGTERM) };
    assert!(newer.wait().expect("an exit").success());
    assert!(!path.exists());
}

#[test]
fn when_the_older_one_changes_its_mind_the_newer_one_ends() {
    let mut older = Older::yielding("mind", None);
    older.hears_commit();
    let mut refused = Vec::new();
    Event::Refused { why: "we were ordered to end" }.encode(&mut refused);
    older.handshake.write_all(&refused).expect("sent");
    let output = older.output();
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"failed: the older one serves on: we were ordered to end\n");
}

#[test]
fn garbage_from_the_older_one_is_an_error_and_no_crash() {
    let mut slot = Vec::new();
    Record::End(1).put(&mut slot);
    for garbage in [&b"\0\0\0\0"[..], b"\x01\0\0\0\x63", b"\x02\0\0\0\x08\0", &slot] {
        let output = Older::yielding("nonsense", Some(garbage)).output();
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.starts_with(b"failed: "), "{output:?}");
    }
}
