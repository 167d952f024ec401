//! A crowd of readers in one thread: connects, subscribes, counts frames, measures delay.
//!
//!     fanout-crowd --port 18143 --connections 10000 --say '{"action":"subscribe","topic":"metrics.bench"}'
//!
//! Prints `ready {…}` once everyone is connected (and, with `--say`, subscribed), and a JSON line at
//! the end: after `--expect` frames, or `--seconds`, or (`--until-eof 1`) when its standard input is
//! closed. Messages
//! with `"sent_ns":N` (CLOCK_MONOTONIC) are measured on every 16th connection. `--source 127.0.0.2`
//! gives it ports of its own: one address has 28,000.

use newsfabric_fanout::{
    Arguments, Epoll, address, bind, connect, monotonic_ns, raise_descriptor_limit, receive, send,
    tcp_socket,
};
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

const SAMPLE: usize = 16;
const STDIN: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Connecting,
    Upgrading,
    Subscribing,
    Reading,
    Gone,
}

struct Reader {
    socket: RawFd,
    state: State,
    /// Bytes of a frame, or of the handshake, that isn't complete; mostly empty.
    rest: Vec<u8>,
    frames: u32,
}

struct Crowd {
    epoll: Epoll,
    readers: Vec<Reader>,
    hello: Vec<u8>,
    say: Vec<u8>,
    ready: usize,
    gone: usize,
    frames: u64,
    delays: Vec<u64>,
    first_ns: u64,
    last_ns: u64,
}

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let count = arguments.number("connections", 1000) as usize;
    let at_once = arguments.number("at-once", 256) as usize;
    let expect = arguments.number("expect", u64::MAX);
    let deadline = monotonic_ns() + arguments.number("seconds", 3600) * 1_000_000_000;
    let port = arguments.number("port", 9000) as u16;
    let source: Ipv4Addr =
        arguments.text("source", "127.0.0.1").parse().expect("--source wants an IPv4 address");
    let mut crowd = Crowd::new(&arguments.text("path", "/websocket"), &arguments.text("say", ""));
    if arguments.number("until-eof", 0) == 1 {
        crowd.epoll.add(0, libc::EPOLLIN, STDIN);
    }

    let start = monotonic_ns();
    let mut said_ready = false;
    let mut ready = Vec::new();
    let mut buffer = vec![0u8; 256 * 1024];
    while crowd.frames < expect && monotonic_ns() < deadline {
        while crowd.readers.len() < count
            && crowd.readers.len() - crowd.ready - crowd.gone < at_once
        {
            crowd.open(source.octets(), port);
        }
        if !said_ready && crowd.ready + crowd.gone == count {
            said_ready = true;
            let seconds = (monotonic_ns() - start) as f64 / 1e9;
            println!("ready {{\"connections\":{},\"seconds\":{seconds:.3}}}", crowd.ready);
        }
        crowd.epoll.wait(&mut ready, 100);
        for &(number, events) in &ready {
            if number == STDIN {
                crowd.report();
                return;
            }
            crowd.on_event(number as usize, events, &mut buffer);
        }
    }
    crowd.report();
}

impl Crowd {
    fn new(path: &str, say: &str) -> Self {
        let hello = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        Self {
            epoll: Epoll::new(),
            readers: Vec::new(),
            hello: hello.into_bytes(),
            say: masked(say.as_bytes()),
            ready: 0,
            gone: 0,
            frames: 0,
            delays: Vec::new(),
            first_ns: 0,
            last_ns: 0,
        }
    }

    fn open(&mut self, source: [u8; 4], port: u16) {
        let socket = tcp_socket();
        bind(socket, &address(source, 0));
        connect(socket, &address([127, 0, 0, 1], port));
        self.epoll.add(socket, libc::EPOLLOUT, self.readers.len() as u64);
        let state = State::Connecting;
        self.readers.push(Reader { socket, state, rest: Vec::new(), frames: 0 });
    }

    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]) {
        let reader = &mut self.readers[number];
        if reader.state == State::Connecting && events & libc::EPOLLOUT as u32 != 0 {
            send(reader.socket, &self.hello);
            self.epoll.change(reader.socket, libc::EPOLLIN, number as u64);
            reader.state = State::Upgrading;
            return;
        }
        if reader.state == State::Gone {
            return;
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.lose(number),
            // What is left is seen in the next turn: epoll is level-triggered.
            Some(size) => self.take(number, &buffer[..size]),
        }
    }

    fn lose(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        if reader.state == State::Reading {
            self.ready -= 1;
        }
        self.gone += 1;
        reader.state = State::Gone;
        // SAFETY: the descriptor is this reader's alone, and isn't used again.
        unsafe { libc::close(reader.socket) };
    }

    fn take(&mut self, number: usize, data: &[u8]) {
        let reader = &mut self.readers[number];
        if reader.rest.is_empty() && reader.state == State::Reading {
            let used = self.frames_in(number, data);
            self.readers[number].rest.extend_from_slice(&data[used..]);
            return;
        }
        reader.rest.extend_from_slice(data);
        if reader.state == State::Upgrading {
            let Some(end) = reader.rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                return;
            };
            if !reader.rest.starts_with(b"HTTP/1.1 101") {
                return self.lose(number);
            }
            reader.rest.drain(..end + 4);
            if self.say.len() == 6 {
                reader.state = State::Reading;
                self.ready += 1;
            } else {
                reader.state = State::Subscribing;
                send(reader.socket, &self.say);
            }
        }
        let rest = std::mem::take(&mut self.readers[number].rest);
        let used = self.frames_in(number, &rest);
        self.readers[number].rest = rest[used..].to_vec();
    }

    /// Counts the whole frames in `data`; returns how many bytes they have.
    fn frames_in(&mut self, number: usize, data: &[u8]) -> usize {
        let mut at = 0;
        while let Some((payload, next)) = frame_at(data, at) {
            if data[at] & 0x0F == 1 {
                self.on_text(number, payload);
            }
            at = next;
        }
        at
    }

    fn on_text(&mut self, number: usize, payload: &[u8]) {
        let reader = &mut self.readers[number];
        if reader.state == State::Subscribing {
            reader.state = State::Reading;
            self.ready += 1;
            return;
        }
        let now = monotonic_ns();
        reader.frames += 1;
        self.frames += 1;
        if self.first_ns == 0 {
            self.first_ns = now;
        }
        self.last_ns = now;
        if number % SAMPLE == 0 {
            if let Some(sent) = sent_ns(payload) {
                self.delays.push(now.saturating_sub(sent));
            }
        }
    }

    fn report(&mut self) {
        self.delays.sort_unstable();
        let delay = |part: f64| {
            let last = self.delays.len().saturating_sub(1);
            let at = (last as f64 * part) as usize;
            self.delays.get(at).copied().unwrap_or(0) as f64 / 1e6
        };
        let alive = self.readers.iter().filter(|reader| reader.state == State::Reading);
        let fewest = alive.clone().map(|reader| reader.frames).min().unwrap_or(0);
        let most = alive.map(|reader| reader.frames).max().unwrap_or(0);
        println!(
            "{{\"connections\":{},\"gone\":{},\"frames\":{},\"fewest\":{fewest},\"most\":{most},\
             \"seconds\":{:.6},\"p50_ms\":{:.3},\"p99_ms\":{:.3},\"worst_ms\":{:.3}}}",
            self.ready,
            self.gone,
            self.frames,
            self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9,
            delay(0.5),
            delay(0.99),
            delay(1.0),
        );
    }
}

/// The payload of the frame at `at` and where the next one begins; None if it isn't whole.
fn frame_at(data: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let head = data.get(at..at + 2)?;
    let (start, length) = match head[1] {
        126 => (at + 4, u16::from_be_bytes(data.get(at + 2..at + 4)?.try_into().ok()?) as usize),
        127 => (at + 10, u64::from_be_bytes(data.get(at + 2..at + 10)?.try_into().ok()?) as usize),
        short => (at + 2, short as usize),
    };
    let end = start.checked_add(length)?;
    Some((data.get(start..end)?, end))
}

/// A client's text frame with a mask of zeros (RFC 6455 section 5.3), which changes nothing.
fn masked(text: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x81];
    if text.len() < 126 {
        frame.push(0x80 | text.len() as u8);
    } else {
        frame.push(0xFE);
        frame.extend((text.len() as u16).to_be_bytes());
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(text);
    frame
}

fn sent_ns(payload: &[u8]) -> Option<u64> {
    const MARK: &[u8] = b"\"sent_ns\":";
    let at = payload.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = payload[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
