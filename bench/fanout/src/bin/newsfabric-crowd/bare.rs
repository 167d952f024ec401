//! Readers that measure one server, and do as little as possible: they connect, subscribe, count frames.
//!
//!     newsfabric-crowd --port 18143 --connections 10000 --say '{"action":"subscribe","topic":"metrics.bench"}'
//!
//! Prints `{"connections":…,"seconds":…,"p50_ms":…,"p99_ms":…}` when all readers are connected: the time of all of
//! them, and of one reader from its first packet on. With `--say`, each reader must also have a reply to each line of
//! it; `%d` in it becomes the reader's number, counted from `--first`. At most `--at-once` (256) readers connect at a
//! time. Readers share `--topics` (1) evenly: `%t` in `--say` and in `--path` is the number of a reader's topic. The
//! command `count` returns the number of messages since the last report. `report` returns all figures about them and
//! resets the counts. `census MESSAGES SINCE_NS` returns, of the numbers 0 to `MESSAGES` - 1, how many deliveries were
//! lost, doubled or late (behind a later one). It also returns the longest time that one reader waited between two
//! messages, and the first arrival after SINCE_NS of a number that no reader had yet (0: none).
//!
//! `stall TEXT` sends `TEXT` on every connection, and reads nothing from then on. With `--stalled N` every Nth reader
//! stops reading as soon as it is ready, with a small receive buffer; such readers aren't measured.
//!
//! With `--deflate 1` readers offer permessage-deflate (RFC 7692), if possible without context takeover; `report`
//! states how many of the messages were compressed.
//!
//! With `--events 1` readers ask for Server-Sent Events instead of WebSocket, and `--path` is the whole request. An
//! event that has data is a message, except the first `--answers` (0) events: these make a reader ready.
//!
//! Pings are answered, as by a browser. Messages with `"sent_ns":N` (CLOCK_MONOTONIC) are measured on every
//! `--sample`th connection; with `--numbers 1` those with `"n":N` (below 65,536) are recorded by number, which
//! `census` needs. From `--source` on, each address has 8,192 connections.
//!
//! A reader whose connection ends is gone. Readers that come back are those of `pages`.

use crate::Crowd;
use flate2::Decompress;
use newsfabric_fanout::crowd::numbers::{Added, Numbers};
use newsfabric_fanout::crowd::times::Times;
use newsfabric_fanout::endpoints::Dice;
use newsfabric_fanout::events::EventStream;
use newsfabric_fanout::frames::{frame_at, inflated, masked, number_after, sent_at};
use newsfabric_fanout::{
    Arguments, Epoll, fail, monotonic_ns, open_socket, receive, send, upgrade,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::RawFd;

/// Upper bound of the numbers of messages.
const NUMBERS: u64 = 65_536;
/// Bytes of the receive buffer of readers that stall; the least that Linux allows.
const STALLED_BUFFER: i32 = 2_304;
/// RFC 7692 section 7.2.2: the bit in the first frame of a message that marks it as compressed.
const RSV1: u8 = 0x40;

#[derive(Clone, Copy, PartialEq)]
enum BareState {
    Connecting,
    Upgrading,
    /// The number of replies still to come.
    Asking(usize),
    Reading,
    Stalled,
    Gone,
}

struct BareReader {
    socket: RawFd,
    state: BareState,
    opened_ns: u64,
    /// Bytes of an incomplete frame or handshake; mostly empty.
    rest: Vec<u8>,
    frames: u32,
    /// The numbers received, and the count of those received again.
    got: Numbers,
    doubled: u64,
    heard_ns: u64,
    /// Present if the server keeps its compression context from message to message.
    context: Option<Box<Decompress>>,
    /// Present for a reader of Server-Sent Events, after the head of the reply.
    events: Option<EventStream>,
}

/// All readers of the process.
pub struct Bare {
    epoll: Epoll,
    readers: Vec<BareReader>,
    /// The number of readers, and how many of them connect at a time.
    count: usize,
    at_once: usize,
    to: SocketAddrV4,
    source: Ipv4Addr,
    began_ns: u64,
    has_reported_ready: bool,
    /// For each topic.
    hellos: Vec<Vec<u8>>,
    verbs: String,
    /// True if readers read Server-Sent Events.
    events: bool,
    answers: usize,
    first: usize,
    receive_buffer: i32,
    /// Every Nth reader stalls (2: every second); 0: none.
    stalled: usize,
    inflater: Decompress,
    dice: Dice,
    compressed: u64,
    sample: usize,
    numbered: bool,
    ready: usize,
    /// Times from a reader's first packet until it was ready.
    came: Times,
    gone: usize,
    frames: u64,
    late: u64,
    delays: Times,
    longest_wait_ns: u64,
    /// Time of the first arrival of each number; 0 if none.
    firsts: Vec<u64>,
}

impl Crowd for Bare {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn on_time(&mut self) -> i32 {
        while self.readers.len() < self.count
            && self.readers.len() - self.ready - self.gone < self.at_once
        {
            self.open();
        }
        if !self.has_reported_ready && self.ready + self.gone == self.count {
            self.has_reported_ready = true;
            println!(
                "{{\"connections\":{},\"seconds\":{:.3},\"p50_ms\":{:.3},\"p99_ms\":{:.3}}}",
                self.ready,
                (monotonic_ns() - self.began_ns) as f64 / 1e9,
                ms(&self.came, 0.5),
                ms(&self.came, 0.99),
            );
        }
        100
    }

    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]) {
        let reader = &mut self.readers[number];
        if reader.state == BareState::Connecting && events & libc::EPOLLOUT as u32 != 0 {
            let topic = (self.first + number) % self.hellos.len();
            send(reader.socket, &self.hellos[topic]);
            self.epoll.change(reader.socket, libc::EPOLLIN, number as u64);
            reader.state = BareState::Upgrading;
            return;
        }
        if reader.state == BareState::Stalled
            && events & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
        {
            return self.lose(number);
        }
        if matches!(reader.state, BareState::Stalled | BareState::Gone) {
            return;
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.lose(number),
            // Remaining bytes are read in the next turn: epoll is level-triggered.
            Some(size) => self.on_data(number, &buffer[..size]),
        }
    }

    fn run_command(&mut self, line: &str) -> Option<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = match words[..] {
            ["count"] => Some(format!("{{\"frames\":{},\"gone\":{}}}", self.frames, self.gone)),
            ["report"] => {
                let found = self.report();
                self.forget();
                Some(found)
            }
            ["census", messages, since_ns] => match (messages.parse(), since_ns.parse()) {
                (Ok(messages), Ok(since_ns)) => Some(self.census(messages, since_ns)),
                _ => None,
            },
            ["stall", ..] => Some(self.stall(line["stall".len()..].trim())),
            ["end"] => return None,
            _ => None,
        };
        Some(found.unwrap_or_else(|| {
            "{\"error\":\"the commands are: count, report, census MESSAGES SINCE_NS, stall TEXT, end\"}".into()
        }))
    }
}

fn ms(times: &Times, part: f64) -> f64 {
    times.quantile_us(part) as f64 / 1e3
}

impl Bare {
    /// The crowd that the command line asks for.
    pub fn new(arguments: &Arguments) -> Self {
        let path = arguments.text("path", "/websocket");
        let offer = match arguments.number("deflate", 0) {
            1 => {
                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
                 client_no_context_takeover\r\n"
            }
            _ => "",
        };
        let events = arguments.number("events", 0) == 1;
        let port = arguments.number("port", 9000) as u16;
        let hello = |topic: u64| {
            let path = path.replace("%t", &topic.to_string());
            if events {
                format!(
                    "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
                )
            } else {
                upgrade(&path, "localhost", offer)
            }
        };
        Self {
            epoll: Epoll::new(),
            readers: Vec::new(),
            count: arguments.number("connections", 1000) as usize,
            at_once: arguments.number("at-once", 256) as usize,
            to: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
            source: arguments
                .text("source", "127.0.0.1")
                .parse()
                .expect("--source wants an IPv4 address"),
            began_ns: monotonic_ns(),
            has_reported_ready: false,
            hellos: (0..arguments.number("topics", 1).max(1))
                .map(|n| hello(n).into_bytes())
                .collect(),
            verbs: arguments.text("say", ""),
            events,
            answers: arguments.number("answers", 0) as usize,
            first: arguments.number("first", 0) as usize,
            receive_buffer: arguments.number("receive-buffer", 0) as i32,
            stalled: arguments.number("stalled", 0) as usize,
            inflater: Decompress::new(false),
            dice: Dice::new(1),
            compressed: 0,
            sample: arguments.number("sample", 16) as usize,
            numbered: arguments.number("numbers", 0) == 1,
            ready: 0,
            came: Times::default(),
            gone: 0,
            frames: 0,
            late: 0,
            delays: Times::default(),
            longest_wait_ns: 0,
            firsts: Vec::new(),
        }
    }

    fn stall(&mut self, verb: &str) -> String {
        let frame = masked(0x81, verb.as_bytes(), self.dice.key());
        let mut stalled = 0;
        for (number, reader) in self.readers.iter_mut().enumerate() {
            if reader.state == BareState::Reading {
                self.epoll.change(reader.socket, 0, number as u64);
                reader.state = BareState::Stalled;
                send(reader.socket, &frame);
                stalled += 1;
            }
        }
        format!("{{\"stalled\":{stalled}}}")
    }

    fn forget(&mut self) {
        (self.frames, self.late, self.compressed, self.longest_wait_ns) = (0, 0, 0, 0);
        self.delays.reset();
        self.firsts.clear();
        for reader in &mut self.readers {
            (reader.frames, reader.doubled, reader.heard_ns) = (0, 0, 0);
            reader.got = Numbers::default();
        }
    }

    fn open(&mut self) {
        let number = self.readers.len();
        let room = if self.stalls(number) { STALLED_BUFFER } else { self.receive_buffer };
        let (socket, begun) = open_socket(Some(self.source.octets()), number, self.to, room);
        if !begun {
            fail("connect");
        }
        self.epoll.add(socket, libc::EPOLLOUT, number as u64);
        self.readers.push(BareReader {
            socket,
            state: BareState::Connecting,
            opened_ns: monotonic_ns(),
            rest: Vec::new(),
            frames: 0,
            got: Numbers::default(),
            doubled: 0,
            heard_ns: 0,
            context: None,
            events: None,
        });
    }

    fn lose(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        if matches!(reader.state, BareState::Reading | BareState::Stalled) {
            self.ready -= 1;
        }
        self.gone += 1;
        reader.state = BareState::Gone;
        // SAFETY: the descriptor is this reader's alone, and isn't used again.
        unsafe { libc::close(reader.socket) };
    }

    fn on_data(&mut self, number: usize, data: &[u8]) {
        if self.readers[number].events.is_some() {
            return self.take_events(number, data);
        }
        let reader = &mut self.readers[number];
        if reader.rest.is_empty() && reader.state == BareState::Reading {
            let used = self.frames_in(number, data);
            self.readers[number].rest.extend_from_slice(&data[used..]);
            return;
        }
        reader.rest.extend_from_slice(data);
        if reader.state == BareState::Upgrading {
            let Some(end) = reader.rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                return;
            };
            let wanted: &[u8] = if self.events { b"HTTP/1.1 200" } else { b"HTTP/1.1 101" };
            if !reader.rest.starts_with(wanted) {
                return self.lose(number);
            }
            let head = String::from_utf8_lossy(&reader.rest[..end]).to_ascii_lowercase();
            if self.events {
                reader.events = Some(EventStream::after(&head));
                let begun = std::mem::take(&mut reader.rest);
                reader.state = BareState::Asking(self.answers);
                if self.answers == 0 {
                    self.is_ready(number);
                }
                return self.take_events(number, &begun[end + 4..]);
            }
            if head.contains("permessage-deflate") && !head.contains("server_no_context_takeover") {
                reader.context = Some(Box::new(Decompress::new(false)));
            }
            reader.rest.drain(..end + 4);
            if self.verbs.is_empty() {
                self.is_ready(number);
            } else {
                let mine = self.first + number;
                let topic = mine % self.hellos.len();
                let verbs = self.verbs.replace("%d", &mine.to_string());
                let verbs = verbs.replace("%t", &topic.to_string());
                let dice = &mut self.dice;
                let verbs: Vec<Vec<u8>> =
                    verbs.lines().map(|verb| masked(0x81, verb.as_bytes(), dice.key())).collect();
                reader.state = BareState::Asking(verbs.len());
                send(reader.socket, &verbs.concat());
            }
        }
        let rest = std::mem::take(&mut self.readers[number].rest);
        let used = self.frames_in(number, &rest);
        self.readers[number].rest = rest[used..].to_vec();
    }

    /// Counts the events that are complete with `data`.
    fn take_events(&mut self, number: usize, data: &[u8]) {
        let mut events = self.readers[number].events.take();
        if let Some(stream) = &mut events {
            stream.feed(data, |event| self.on_text(number, event));
        }
        self.readers[number].events = events;
    }

    fn stalls(&self, number: usize) -> bool {
        self.stalled > 0 && number.is_multiple_of(self.stalled)
    }

    /// Marks a reader that has all replies as reading, or as stalled.
    fn is_ready(&mut self, number: usize) {
        let stalls = self.stalls(number);
        let reader = &mut self.readers[number];
        self.ready += 1;
        self.came.add(reader.opened_ns, monotonic_ns());
        reader.state = if stalls { BareState::Stalled } else { BareState::Reading };
        if stalls {
            self.epoll.change(reader.socket, 0, number as u64);
        }
    }

    /// Counts the whole frames in `data`; returns the number of their bytes.
    fn frames_in(&mut self, number: usize, data: &[u8]) -> usize {
        let mut at = 0;
        while let Some((payload, next)) = frame_at(data, at) {
            match data[at] & 0x0F {
                1 if data[at] & RSV1 != 0 => self.on_compressed(number, payload),
                1 => self.on_text(number, payload),
                9 => {
                    let pong = masked(0x8A, payload, self.dice.key());
                    send(self.readers[number].socket, &pong);
                }
                _ => {}
            }
            at = next;
        }
        at
    }

    fn on_compressed(&mut self, number: usize, payload: &[u8]) {
        self.compressed += 1;
        // A text that isn't examined need not be inflated.
        if self.numbered || number.is_multiple_of(self.sample) {
            let text = match &mut self.readers[number].context {
                Some(context) => inflated(context, payload),
                None => {
                    self.inflater.reset(false);
                    inflated(&mut self.inflater, payload)
                }
            };
            self.on_text(number, &text);
        } else {
            self.on_text(number, b"");
        }
    }

    fn on_text(&mut self, number: usize, payload: &[u8]) {
        let reader = &mut self.readers[number];
        match reader.state {
            BareState::Asking(more) if more > 1 => {
                reader.state = BareState::Asking(more - 1);
                return;
            }
            BareState::Asking(_) => return self.is_ready(number),
            BareState::Stalled => return,
            _ => {}
        }
        let now = monotonic_ns();
        reader.frames += 1;
        self.frames += 1;
        if self.numbered
            && let Some(message) = number_after(b"\"n\":", payload).filter(|&n| n < NUMBERS)
        {
            self.note(number, message as u32, now);
        }
        if number.is_multiple_of(self.sample)
            && let Some(sent) = sent_at(payload)
        {
            self.delays.add(sent, now);
        }
    }

    fn note(&mut self, number: usize, message: u32, now: u64) {
        let reader = &mut self.readers[number];
        self.late += u64::from(reader.got.newest().is_some_and(|newest| message < newest));
        // A reader with too many holes counts further numbers as lost.
        reader.doubled += u64::from(reader.got.add(message) == Added::Known);
        if reader.heard_ns > 0 {
            self.longest_wait_ns = self.longest_wait_ns.max(now - reader.heard_ns);
        }
        reader.heard_ns = now;
        let message = message as usize;
        if self.firsts.len() <= message {
            self.firsts.resize(message + 1, 0);
        }
        if self.firsts[message] == 0 {
            self.firsts[message] = now;
        }
    }

    fn doubled(&self) -> u64 {
        self.readers.iter().map(|reader| reader.doubled).sum()
    }

    fn census(&self, messages: u64, since_ns: u64) -> String {
        let got: u64 = self.readers.iter().map(|reader| reader.got.count()).sum();
        let since = self.firsts.iter().filter(|&&first| first > since_ns).min();
        format!(
            "{{\"gone\":{},\"lost\":{},\"doubled\":{},\"late\":{},\"longest_wait_ns\":{},\"first_since_ns\":{}}}",
            self.gone,
            (messages * self.readers.len() as u64).saturating_sub(got),
            self.doubled(),
            self.late,
            self.longest_wait_ns,
            since.copied().unwrap_or(0)
        )
    }

    fn report(&self) -> String {
        let alive = self.readers.iter().filter(|reader| reader.state == BareState::Reading);
        let fewest = alive.clone().map(|reader| reader.frames).min().unwrap_or(0);
        let most = alive.clone().map(|reader| reader.frames).max().unwrap_or(0);
        let different = alive.map(|reader| reader.got.count()).min().unwrap_or(0);
        format!(
            "{{\"connections\":{},\"gone\":{},\"frames\":{},\"compressed\":{},\"fewest\":{fewest},\"most\":{most},\
             \"different\":{different},\"twice\":{},\"delays\":{},\
             \"p50_ms\":{:.3},\"p99_ms\":{:.3},\"p999_ms\":{:.3},\"worst_ms\":{:.3}}}",
            self.ready,
            self.gone,
            self.frames,
            self.compressed,
            self.doubled(),
            self.delays.count(),
            ms(&self.delays, 0.5),
            ms(&self.delays, 0.99),
            ms(&self.delays, 0.999),
            ms(&self.delays, 1.0),
        )
    }
}
