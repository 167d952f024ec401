//! A whole data plane in a process of its own, driven over its control socket and real readers' sockets.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
const REASONS: [(&str, u16); 9] = [
    ("protocol_error", 1002),
    ("invalid_payload", 1007),
    ("too_big", 1009),
    ("drain", 1012),
    ("overload", 1013),
    ("internal", 4100),
    ("slow_reader", 4101),
    ("too_many_requests", 4102),
    ("no_pong", 4203),
];

struct DataPlane {
    process: Child,
    path: PathBuf,
}

impl DataPlane {
    fn start(name: &str) -> DataPlane {
        let path = std::env::temp_dir().join(format!("{name}-{}.sock", std::process::id()));
        let process = Command::new(env!("CARGO_BIN_EXE_newsfabric-dataplane"))
            .args(["--threads", "2", "--control"])
            .arg(&path)
            .spawn()
            .expect("the data plane");
        DataPlane { process, path }
    }

    fn attach(&self) -> (Plane, u16) {
        let started = Instant::now();
        let socket = loop {
            match UnixStream::connect(&self.path) {
                Ok(socket) => break socket,
                Err(error) if started.elapsed() > PATIENCE => panic!("{error}"),
                Err(_) => std::thread::yield_now(),
            }
        };
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut plane = Plane(socket, VecDeque::new());
        plane.send(1, b"nfdp\x01\0");
        let attached = plane.wait_for(129);
        let port = u16::from_le_bytes([attached[15], attached[16]]);
        plane.send(2, &settings());
        plane.wait_for(134);
        (plane, port)
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

fn settings() -> Vec<u8> {
    let mut body = Vec::new();
    for value in [
        100u32,
        25_000,
        1_000,
        2_000,
        16_384,
        5_000,
        16_384,
        128,
        256,
        10,
        20,
        256,
        4 << 20,
        1 << 20,
        10_000,
        1 << 20,
        512,
        0,
        0,
        100,
    ] {
        body.extend(value.to_le_bytes());
    }
    body.extend((1u64 << 28).to_le_bytes());
    for value in [100u32, 1_000, 600_000, 60_000, 100, 1_000] {
        body.extend(value.to_le_bytes());
    }
    body.extend(0u16.to_le_bytes());
    body.push(REASONS.len() as u8);
    for (name, code) in REASONS {
        body.push(name.len() as u8);
        body.extend(name.bytes());
        body.extend(code.to_le_bytes());
        body.push(name.len() as u8);
        body.extend(name.bytes());
        body.push(1);
        body.extend(500u32.to_le_bytes());
    }
    body
}

/// A control plane's side of the socket, and the events that came before the one waited for.
struct Plane(UnixStream, VecDeque<(u8, Vec<u8>)>);

impl Plane {
    fn send(&mut self, kind: u8, body: &[u8]) {
        let mut message = (body.len() as u32 + 1).to_le_bytes().to_vec();
        message.push(kind);
        message.extend(body);
        self.0.write_all(&message).expect("the control socket");
    }

    fn wait_for(&mut self, wanted: u8) -> Vec<u8> {
        if let Some(at) = self.1.iter().position(|(kind, _)| *kind == wanted) {
            return self.1.remove(at).expect("it was just found").1;
        }
        // Counters come each second, so that a read alone never runs out of time.
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "no event {wanted}, but {:?}", self.1);
            let mut head = [0; 5];
            self.0.read_exact(&mut head).expect("an event");
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let mut body = vec![0; length - 1];
            self.0.read_exact(&mut body).expect("an event");
            if head[4] == wanted {
                return body;
            }
            self.1.push_back((head[4], body));
        }
    }

    /// The next verb: its connection and its text.
    fn verb(&mut self) -> ([u8; 10], Vec<u8>) {
        let body = self.wait_for(130);
        let connection = body[4..14].try_into().expect("a connection");
        (connection, body[18..].to_vec())
    }

    fn subscribe(&mut self, connection: [u8; 10]) {
        let mut body = connection.to_vec();
        body.extend([0; 4]);
        body.extend(topic());
        body.extend([0; 12]);
        body.extend(4u32.to_le_bytes());
        body.extend(b"subs");
        body.extend([0; 4]);
        self.send(5, &body);
    }

    fn publish(&mut self, number: u64, push: &[u8]) {
        let mut body = number.to_le_bytes().to_vec();
        body.extend(topic());
        body.extend(u128::from(number).to_be_bytes());
        body.extend([0; 8]);
        body.extend((-1i64).to_le_bytes());
        body.extend([0; 2]);
        body.extend((push.len() as u32).to_le_bytes());
        body.extend(push);
        self.send(3, &body);
    }
}

fn topic() -> Vec<u8> {
    b"\x04news\x0a\0\0\0\0\0".to_vec()
}

/// A reader on a raw WebSocket.
struct Reader(TcpStream);

impl Reader {
    fn connect(port: u16) -> Reader {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // In two parts: a head may come in any pieces.
        socket.write_all(b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgr").expect("a socket");
        socket
            .write_all(
                b"ade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .expect("a socket");
        let mut reader = Reader(socket);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(reader.bytes(1)[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "));
        reader
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("bytes from the data plane");
        bytes
    }

    /// The next frame: opcode and payload (short ones only).
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.bytes(2);
        let length = usize::from(head[1]);
        assert!(length < 126);
        (head[0] & 0x0F, self.bytes(length))
    }

    fn say(&mut self, text: &[u8]) {
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text);
        self.0.write_all(&frame).expect("a socket");
    }
}

fn text(payload: &[u8]) -> (u8, Vec<u8>) {
    (1, payload.to_vec())
}

#[test]
fn a_subscriber_gets_each_message_once_and_copies_not_at_all() {
    let data_plane = DataPlane::start("once");
    let (mut plane, port) = data_plane.attach();
    let mut reader = Reader::connect(port);
    reader.say(b"let me in");
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
    let mut reader = Reader::connect(port);
    reader.say(b"first");
    let (connection, _) = plane.verb();
    reader.say(b"second");
    drop(plane);
    let (mut plane, _) = data_plane.attach();
    assert_eq!(plane.verb(), (connection, b"first".to_vec()));
    plane.subscribe(connection);
    assert_eq!(plane.verb(), (connection, b"second".to_vec()));
    plane.publish(1, b"{1}");
    assert_eq!(reader.frame(), text(b"subs"));
    assert_eq!(reader.frame(), text(b"{1}"));
}

#[test]
fn garbage_on_the_control_socket_costs_nobody_but_the_control_plane() {
    let data_plane = DataPlane::start("garbage");
    let (mut plane, port) = data_plane.attach();
    let mut reader = Reader::connect(port);
    plane.0.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("the control socket");
    plane.wait_for(135);
    let (mut plane, _) = data_plane.attach();
    reader.say(b"still here");
    assert_eq!(plane.verb().1, b"still here");
}

#[test]
fn other_requests_are_handed_over_or_get_a_503() {
    let data_plane = DataPlane::start("other");
    let (plane, port) = data_plane.attach();
    drop(plane);
    let started = Instant::now();
    // The listener's thread may not have heard yet that the control plane is gone.
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

#[test]
fn half_a_head_and_then_the_end_is_dropped_at_once() {
    let data_plane = DataPlane::start("half");
    let (_plane, port) = data_plane.attach();
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
    socket.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout");
    socket.write_all(b"GET /websocket HT").expect("a socket");
    socket.shutdown(std::net::Shutdown::Write).expect("a socket");
    // Sooner than the deadline of a handshake, which is five seconds here.
    let end = socket.read(&mut [0]);
    assert!(
        matches!(end, Ok(0))
            || end.is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset)
    );
}

#[test]
fn a_drain_says_disconnect_then_closes_and_the_process_ends() {
    let mut data_plane = DataPlane::start("drain");
    let (mut plane, port) = data_plane.attach();
    let mut reader = Reader::connect(port);
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
