//! A control plane and readers for tests that run whole data planes.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dataplane::control::{MAGIC, VERSION};
use rustix::process::{Pid, Signal, kill_process};

pub const PATIENCE: Duration = Duration::from_secs(60);
/// A time for settings that must not run out: longer than any test, on any machine.
pub const LONG_MS: u32 = 600_000;
const REASONS: [(&str, u16); 13] = [
    ("protocol_error", 1002),
    ("invalid_payload", 1007),
    ("too_big", 1009),
    ("drain", 1012),
    ("overload", 1013),
    ("address_full", 4103),
    ("internal", 4100),
    ("slow_reader", 4101),
    ("too_many_requests", 4102),
    ("no_pong", 4203),
    ("token_expired", 4202),
    ("unfinished", 1008),
    ("gone", 4001),
];

/// The connection of a reader that alone has sent a verb, as a list of one.
pub type Asking = [u8; 12];

pub struct DataPlane {
    pub process: Child,
    pub path: PathBuf,
}

impl DataPlane {
    pub fn start(name: &str) -> DataPlane {
        DataPlane::start_with(name, 2)
    }

    pub fn start_with(name: &str, threads: u32) -> DataPlane {
        let path = std::env::temp_dir().join(format!("{name}-{}.sock", std::process::id()));
        let process = Command::new(env!("CARGO_BIN_EXE_newsfabric-dataplane"))
            .args(["--threads", &threads.to_string(), "--control"])
            .arg(&path)
            .spawn()
            .expect("the data plane");
        DataPlane { process, path }
    }

    pub fn attach(&self) -> (Plane, u16) {
        self.attach_with(0)
    }

    /// Attach; plain pings are answered for a control plane heard in the last `pong_ms`; 0: never.
    pub fn attach_with(&self, pong_ms: u32) -> (Plane, u16) {
        let mut plane = Plane::on(self.connect());
        plane.send(1, &hello());
        let attached = plane.wait_for(129);
        let port = u16::from_le_bytes([attached[15], attached[16]]);
        plane.send_settings(pong_ms, LONG_MS);
        plane.wait_for(134);
        (plane, port)
    }
}

impl DataPlane {
    /// Start a newer data plane that takes over from this one.
    pub fn newer(&self) -> Child {
        newer(&self.path)
    }

    /// Have a newer data plane take over, and continue with that one.
    pub fn take_over(&mut self) {
        let mut newer = self.newer();
        let mut line = String::new();
        let stdout = newer.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "serving\n");
        let mut older = std::mem::replace(&mut self.process, newer);
        assert!(older.wait().expect("an exit").success());
    }

    /// Stop the process, or let it continue.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a process");
    }

    /// Return a connection to the control socket.
    pub fn connect(&self) -> UnixStream {
        let started = Instant::now();
        let socket = loop {
            match UnixStream::connect(&self.path) {
                Ok(socket) => break socket,
                Err(error) if started.elapsed() > PATIENCE => panic!("{error}"),
                Err(_) => std::thread::yield_now(),
            }
        };
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        socket
    }
}

/// Start a data plane that takes over from the one that listens at `path`.
pub fn newer(path: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_newsfabric-dataplane"))
        .args(["--take-over", "--control"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the data plane")
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Return the body of a `hello`.
pub fn hello() -> Vec<u8> {
    [&MAGIC[..], &VERSION.to_le_bytes()].concat()
}

/// Return settings with times that no test reaches, and one more verb a second: so tests pass on a
/// machine that stands still.
fn settings(pong_ms: u32, stalled_ms: u32) -> String {
    let reasons = REASONS.map(|(name, code)| {
        format!(
            r#"{{"name":"{name}","code":{code},"text":"{name}","reconnect":true,"retry_after_ms":500}}"#
        )
    });
    format!(
        r#"{{"capacity":1000,"heartbeat_ms":{LONG_MS},"linger_ms":{LONG_MS},"retry_after_ms":2000,
        "head_bytes":16384,"unfinished_ms":{LONG_MS},"message_bytes":16384,"topics":128,"verbs":256,
        "verbs_per_second":1,"refusals":20,"waiting":256,"hard_bytes":4194304,"soft_bytes":1048576,
        "soft_ms":{LONG_MS},"stalled_ms":{stalled_ms},"outbox_bytes":{outbox},"fanout_chunk":512,
        "handovers":2,"identities":1000,"identity_ms":600000,"alone_ms":60000,"drain_ms":100,
        "drain_per_second":1000,"pong_ms":{pong_ms},"websocket":true,"cookie":"session",
        "errors":{{"already_subscribed":105,"limit_exceeded":106,"too_many_requests":111}},
        "reasons":[{reasons}]}}"#,
        outbox = u64::MAX,
        reasons = reasons.join(",")
    )
}

/// The control plane's end of the socket.
pub struct Plane {
    pub socket: UnixStream,
    kept: Vec<(u8, Vec<u8>)>,
}

impl Plane {
    pub fn on(socket: UnixStream) -> Plane {
        Plane { socket, kept: Vec::new() }
    }

    pub fn send(&mut self, kind: u8, body: &[u8]) {
        let mut message = (body.len() as u32 + 1).to_le_bytes().to_vec();
        message.push(kind);
        message.extend(body);
        self.socket.write_all(&message).expect("the control socket");
    }

    /// Return the first event of this type that wasn't waited for yet; others are kept.
    pub fn wait_for(&mut self, wanted: u8) -> Vec<u8> {
        if let Some(at) = self.kept.iter().position(|(kind, _)| *kind == wanted) {
            return self.kept.remove(at).1;
        }
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "no event of type {wanted}");
            let mut head = [0; 5];
            self.socket.read_exact(&mut head).expect("an event");
            let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let mut body = vec![0; length - 1];
            self.socket.read_exact(&mut body).expect("an event");
            if head[4] == wanted {
                return body;
            }
            self.kept.push((head[4], body));
        }
    }

    /// Send settings with this `pong_ms`, and this `stalled_ms`.
    pub fn send_settings(&mut self, pong_ms: u32, stalled_ms: u32) {
        let settings = settings(pong_ms, stalled_ms);
        let length = (settings.len() as u32).to_le_bytes();
        self.send(2, &[&length[..], settings.as_bytes()].concat());
    }

    /// Wait until the data plane reports that this counter has this value.
    pub fn wait_for_count(&mut self, wanted: &str, value: u64) {
        self.count_when(wanted, |last| last == value);
    }

    /// Return the value of this counter, as soon as it is `met`.
    pub fn count_when(&mut self, wanted: &str, met: impl Fn(u64) -> bool) -> u64 {
        let (started, mut last) = (Instant::now(), None);
        loop {
            assert!(started.elapsed() < PATIENCE, "{wanted} is {last:?}");
            self.send(12, &[]);
            let counters = self.wait_for(134);
            let mut rest = &counters[2..];
            while let [size, more @ ..] = rest {
                let (name, more) = more.split_at(usize::from(*size));
                let (count, more) = more.split_at(8);
                if name == wanted.as_bytes() {
                    last = Some(u64::from_le_bytes(count.try_into().expect("eight bytes")));
                }
                rest = more;
            }
            if let Some(value) = last.filter(|value| met(*value)) {
                return value;
            }
        }
    }

    /// Answer a verb with `[]`.
    pub fn reply(&mut self, connection: Asking) {
        self.reply_all(&connection, b"[]");
    }

    /// Answer the verb of all listed connections with `push`.
    pub fn reply_all(&mut self, connections: &[u8], push: &[u8]) {
        let mut body = connections.to_vec();
        body.extend((push.len() as u32).to_le_bytes());
        body.extend(push);
        self.send(7, &body);
    }

    /// Close all listed connections, as slow readers.
    pub fn close_as_slow(&mut self, connections: &[u8]) {
        let mut body = connections.to_vec();
        body.extend(b"\x0bslow_reader");
        body.extend(500u32.to_le_bytes());
        self.send(9, &body);
    }

    /// Return the next verb of a reader without an auth state: its connection and its text.
    pub fn verb(&mut self) -> (Asking, Vec<u8>) {
        let (connection, auth, text) = self.verb_with_auth();
        assert_eq!(auth, b"");
        (connection, text)
    }

    /// Return the next verb, which no other reader sends: its connection, the auth state, the text.
    pub fn verb_with_auth(&mut self) -> (Asking, Vec<u8>, Vec<u8>) {
        let body = self.wait_for(130);
        let (count, verbs) = body.split_first_chunk::<4>().expect("a count");
        let (connection, rest) = verbs.split_first_chunk::<12>().expect("a connection");
        assert_eq!(connection[..2], [1, 0]);
        let (auth, rest) = rest[2..].split_at(u16::from_le_bytes([rest[0], rest[1]]).into());
        let (size, rest) = rest.split_first_chunk::<4>().expect("a length");
        let (text, others) = rest.split_at(u32::from_le_bytes(*size) as usize);
        if !others.is_empty() {
            let left = u32::from_le_bytes(*count) - 1;
            self.kept.insert(0, (130, [&left.to_le_bytes(), others].concat()));
        }
        (*connection, auth.to_vec(), text.to_vec())
    }

    /// Answer a verb with an auth state of `user`, issued in ms 5.
    pub fn auth(&mut self, connection: Asking, user: &[u8], ends_ms: u64, blob: &[u8]) {
        let mut body = connection.to_vec();
        body.push(user.len() as u8);
        body.extend(user);
        body.extend(5u64.to_le_bytes());
        body.extend(ends_ms.to_le_bytes());
        body.extend((blob.len() as u16).to_le_bytes());
        body.extend(blob);
        body.extend(b"\x02\0\0\0{}");
        self.send(16, &body);
    }

    /// Evict users with auth states that were issued at these times or before.
    pub fn evict(&mut self, users: &[(&[u8], u64)]) {
        let mut body = b"\x04gone".to_vec();
        body.extend((users.len() as u32).to_le_bytes());
        for (user, until) in users {
            body.push(user.len() as u8);
            body.extend(*user);
            body.extend(until.to_le_bytes());
        }
        self.send(17, &body);
    }

    pub fn subscribe(&mut self, connection: Asking) {
        self.subscribe_to(connection, 0, true);
    }

    /// Subscribe all listed connections, and replay nothing.
    pub fn subscribe_all(&mut self, connections: &[u8]) {
        self.answer_subscribe(connections, 0, true);
    }

    /// Subscribe with this batch (0: no replay). With `seen` later copies of it are dropped.
    pub fn subscribe_to(&mut self, connection: Asking, batch: u64, seen: bool) {
        self.answer_subscribe(&connection, batch, seen);
    }

    fn answer_subscribe(&mut self, connections: &[u8], batch: u64, seen: bool) {
        let mut body = connections.to_vec();
        body.extend(topic());
        body.extend(batch.to_le_bytes());
        body.extend([seen.into(), 0, 0]);
        body.extend(4u32.to_le_bytes());
        body.extend(b"subs");
        body.extend([0; 4]);
        self.send(5, &body);
    }

    pub fn publish(&mut self, number: u64, push: &[u8]) {
        let mut body = number.to_le_bytes().to_vec();
        body.extend(topic());
        body.extend(message(number, push));
        self.send(3, &body);
    }
}

/// Return the record of a message that was routed in 2096, so it isn't too old to be remembered.
pub fn message(number: u64, push: &[u8]) -> Vec<u8> {
    let routed_ms = 4_000_000_000_000_u128;
    let mut record = (routed_ms << 80 | u128::from(number)).to_be_bytes().to_vec();
    record.extend((-1i64).to_le_bytes());
    record.extend([0; 2]);
    record.extend((push.len() as u32).to_le_bytes());
    record.extend(push);
    record
}

/// Return the record of the only topic.
pub fn topic() -> Vec<u8> {
    b"\x04news\0".to_vec()
}

/// A reader on a raw WebSocket.
pub struct TestReader(pub TcpStream);

impl TestReader {
    pub fn connect(port: u16) -> TestReader {
        TestReader::on("/websocket", port)
    }

    /// Connect over a SockJS WebSocket; its `o` isn't read yet.
    pub fn on_sockjs(port: u16) -> TestReader {
        TestReader::on("/sockjs/0/x/websocket", port)
    }

    fn on(path: &str, port: u16) -> TestReader {
        let (reader, head) = TestReader::with(path, port, "");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        reader
    }

    /// Connect with more header lines in the request (each ends in CRLF); return the answer's head,
    /// too.
    pub fn with(path: &str, port: u16, more: &str) -> (TestReader, String) {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // In two parts: a head may arrive in any pieces.
        let start = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{more}Upgr");
        socket.write_all(start.as_bytes()).expect("a socket");
        socket
            .write_all(
                b"ade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            )
            .expect("a socket");
        let mut reader = TestReader(socket);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(reader.bytes(1)[0]);
        }
        (reader, String::from_utf8(head).expect("text"))
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).expect("bytes from the data plane");
        bytes
    }

    /// Return all bytes that arrive until none has arrived for a moment.
    pub fn until_silent(&mut self) -> Vec<u8> {
        self.0.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let mut bytes = Vec::new();
        let error = self.0.read_to_end(&mut bytes).expect_err("silence");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        bytes
    }

    /// Return the next frame: opcode and payload.
    pub fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.bytes(2);
        let length = match head[1] {
            126 => {
                self.bytes(2).into_iter().fold(0, |length, byte| length << 8 | usize::from(byte))
            }
            127 => {
                self.bytes(8).into_iter().fold(0, |length, byte| length << 8 | usize::from(byte))
            }
            short => usize::from(short),
        };
        (head[0] & 0x0F, self.bytes(length))
    }

    /// Send a WebSocket ping, not the verb.
    pub fn ping(&mut self) {
        self.0.write_all(b"\x89\x80\0\0\0\0").expect("a socket");
    }

    pub fn send_text(&mut self, text: &[u8]) {
        let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
        frame.extend(text);
        self.0.write_all(&frame).expect("a socket");
    }
}

/// Return a text frame in the form of [`TestReader::frame`].
pub fn text(payload: &[u8]) -> (u8, Vec<u8>) {
    (1, payload.to_vec())
}
