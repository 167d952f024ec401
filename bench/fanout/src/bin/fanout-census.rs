//! Readers who note which messages each of them got, and when: for upgrades under load.
//!
//!     fanout-census --port 18143 --connections 15000 --say '{"action":"subscribe","topic":"metrics.bench"}'
//!
//! Messages carry `"n":NUMBER`, from 0. It prints `{"ready":N}` once everyone is subscribed or gone. When its
//! standard input is closed it prints one JSON line: how many were disconnected; of the messages 0 to
//! `--messages` - 1, which it reads from standard input as one line before the end, how many deliveries were
//! lost, doubled or late (behind a later one); the longest time that one reader waited between two messages;
//! and when each message came first and last (CLOCK_MONOTONIC, ns; 0 if it never did).

use newsfabric_fanout::{
    Arguments, Epoll, address, bind, connect, monotonic_ns, raise_descriptor_limit, receive, send,
    tcp_socket,
};
use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

const STDIN: u64 = u64::MAX;
/// So many connect at a time.
const AT_ONCE: usize = 256;

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
    /// Bytes that aren't a whole frame yet.
    rest: Vec<u8>,
    /// How often it got each message.
    got: Vec<u8>,
    next: usize,
    heard_ns: u64,
}

#[derive(Default)]
struct Census {
    readers: Vec<Reader>,
    settled: usize,
    gone: usize,
    late: u64,
    longest_wait_ns: u64,
    /// When each message came first and last.
    arrivals: Vec<(u64, u64)>,
}

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let count = arguments.number("connections", 1000) as usize;
    let port = arguments.number("port", 9000) as u16;
    let source: Ipv4Addr =
        arguments.text("source", "127.0.0.1").parse().expect("--source wants an IPv4 address");
    let say = masked(arguments.text("say", "").as_bytes());
    let epoll = Epoll::new();
    epoll.add(0, libc::EPOLLIN, STDIN);
    let mut census = Census::default();
    let (mut ready, mut said_ready) = (Vec::new(), false);
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        while census.readers.len() < count && census.readers.len() - census.settled < AT_ONCE {
            census.open(&epoll, source.octets(), port);
        }
        if !said_ready && census.settled == count {
            said_ready = true;
            println!("{{\"ready\":{}}}", count - census.gone);
        }
        epoll.wait(&mut ready, 100);
        for &(number, _) in &ready {
            if number == STDIN {
                return census.report();
            }
            census.on_event(&epoll, number as usize, &say, &mut buffer);
        }
    }
}

impl Census {
    fn open(&mut self, epoll: &Epoll, source: [u8; 4], port: u16) {
        let socket = tcp_socket();
        bind(socket, &address(source, 0));
        connect(socket, &address([127, 0, 0, 1], port));
        epoll.add(socket, libc::EPOLLOUT, self.readers.len() as u64);
        let (rest, got) = (Vec::new(), Vec::new());
        let state = State::Connecting;
        self.readers.push(Reader { socket, state, rest, got, next: 0, heard_ns: 0 });
    }

    fn on_event(&mut self, epoll: &Epoll, number: usize, say: &[u8], buffer: &mut [u8]) {
        let reader = &mut self.readers[number];
        match reader.state {
            State::Gone => return,
            State::Connecting => {
                send(
                    reader.socket,
                    b"GET /websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\
                      Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                      Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
                );
                epoll.change(reader.socket, libc::EPOLLIN, number as u64);
                reader.state = State::Upgrading;
                return;
            }
            _ => {}
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.lose(number),
            Some(size) => {
                reader.rest.extend_from_slice(&buffer[..size]);
                self.take(number, say);
            }
        }
    }

    fn lose(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        self.settled += usize::from(reader.state != State::Reading);
        self.gone += 1;
        reader.state = State::Gone;
        // SAFETY: the descriptor is this reader's alone, and isn't used again.
        unsafe { libc::close(reader.socket) };
    }

    fn take(&mut self, number: usize, say: &[u8]) {
        let reader = &mut self.readers[number];
        if reader.state == State::Upgrading {
            let Some(end) = reader.rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                return;
            };
            if !reader.rest.starts_with(b"HTTP/1.1 101") {
                return self.lose(number);
            }
            reader.rest.drain(..end + 4);
            reader.state = State::Subscribing;
            send(reader.socket, say);
        }
        let rest = std::mem::take(&mut self.readers[number].rest);
        let mut at = 0;
        while let Some((payload, next)) = frame_at(&rest, at) {
            match rest[at] & 0x0F {
                1 => self.on_text(number, payload),
                // RFC 6455 section 5.5.2: a ping wants a pong, or the reader is taken for dead.
                9 => drop(send(self.readers[number].socket, b"\x8a\x80\0\0\0\0")),
                _ => {}
            }
            at = next;
        }
        self.readers[number].rest = rest[at..].to_vec();
    }

    fn on_text(&mut self, number: usize, payload: &[u8]) {
        let reader = &mut self.readers[number];
        if reader.state == State::Subscribing {
            reader.state = State::Reading;
            self.settled += 1;
        }
        let Some(message) = number_of(payload) else {
            return;
        };
        let now = monotonic_ns();
        if reader.got.len() <= message {
            reader.got.resize(message + 1, 0);
        }
        reader.got[message] = reader.got[message].saturating_add(1);
        self.late += u64::from(message < reader.next);
        reader.next = reader.next.max(message + 1);
        if reader.heard_ns > 0 {
            self.longest_wait_ns = self.longest_wait_ns.max(now - reader.heard_ns);
        }
        reader.heard_ns = now;
        if self.arrivals.len() <= message {
            self.arrivals.resize(message + 1, (0, 0));
        }
        let (first, last) = &mut self.arrivals[message];
        if *first == 0 {
            *first = now;
        }
        *last = now;
    }

    fn report(&self) {
        let mut line = String::new();
        std::io::stdin().read_to_string(&mut line).expect("standard input");
        let messages: usize = line.trim().parse().expect("the number of messages");
        let (mut lost, mut doubled) = (0_u64, 0_u64);
        for reader in &self.readers {
            for message in 0..messages {
                let times = reader.got.get(message).copied().unwrap_or(0);
                lost += u64::from(times == 0);
                doubled += u64::from(times > 1);
            }
        }
        let arrivals: Vec<String> =
            self.arrivals.iter().map(|(first, last)| format!("[{first},{last}]")).collect();
        println!(
            "{{\"disconnects\":{},\"lost\":{lost},\"doubled\":{doubled},\"late\":{},\
             \"longest_wait_ns\":{},\"arrivals\":[{}]}}",
            self.gone,
            self.late,
            self.longest_wait_ns,
            arrivals.join(",")
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

/// A reader's text frame of less than 126 bytes, with a mask of zeros (RFC 6455 section 5.3).
fn masked(text: &[u8]) -> Vec<u8> {
    assert!(text.len() < 126, "--say is too long");
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text);
    frame
}

fn number_of(payload: &[u8]) -> Option<usize> {
    const MARK: &[u8] = b"\"n\":";
    let at = payload.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = payload[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + usize::from(digit - b'0')))
}
