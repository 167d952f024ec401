//! A crowd of readers who come and go as browsers do, for `make surge`: in one thread.
//!
//!     surge-crowd --desk-port 18100 --topic news.breaking --run a1b2
//!
//! Each reader asks the frontdesk for `/endpoints.json`, connects to one of the boxes offered, tries the next one where it is
//! refused, and comes again when its box is drained, from the position that it had. It reads commands, one a line, and answers
//! each with a line of JSON, until its standard input ends:
//!
//! - `arrive COUNT PER_SECOND`, `leave COUNT PER_SECOND`: so many readers, evenly; the oldest leave first.
//! - `report`: what happened since the last one: how many are there; who was refused (a box that says no, or none offered);
//!   how long those who came for the first time took from asking the frontdesk to `subscribed` (ms), and of that the box.
//! - `census FILE GRACE_NS`: FILE has a line `N SENT_NS` for each message. A reader is owed those sent after it had subscribed
//!   and until GRACE_NS before it left; how many deliveries were owed, lost, doubled. What a reader who left hadn't had, nor
//!   anything newer, isn't lost but late.
//!
//! Messages have `"run":RUN`, `"n":N` and `"sent_ns":N` (CLOCK_MONOTONIC) in their bodies.

use newsfabric_fanout::endpoints::{Dice, Gateway, answer, disconnect, draw, parse};
use newsfabric_fanout::frames::{frame_at, has, masked, number_after, text_after};
use newsfabric_fanout::{
    Arguments, Epoll, address, bind, connect, monotonic_ns, raise_descriptor_limit, receive,
    reset_on_close, send, set_option, tcp_socket,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

const STDIN: u64 = u64::MAX;
const MS: u64 = 1_000_000;
/// For each step until `subscribed`; then the next box is tried.
const PATIENCE_NS: u64 = 10_000 * MS;
/// One of so many deliveries is measured.
const SAMPLE: u64 = 8;
/// Numbers of messages are below this.
const NUMBERS: u64 = 1 << 20;
const BOX_REFUSES: u64 = 1013;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    /// Until its time has come.
    Waiting,
    Asking,
    Answered,
    Connecting,
    Upgrading,
    Subscribing,
    Reading,
    Left,
}

struct Reader {
    socket: RawFd,
    step: Step,
    /// Its timers are those of this turn.
    turn: u32,
    /// Bytes of what isn't complete; mostly empty.
    rest: Vec<u8>,
    offered: Vec<Gateway>,
    retry_ms: u64,
    began_ns: u64,
    connected_ns: u64,
    position: Vec<u8>,
    since_ns: u64,
    until_ns: u64,
    away_ns: u64,
    seen: Vec<u64>,
    here: Vec<u64>,
}

/// What happened since the last report.
#[derive(Default)]
struct News {
    refused: u64,
    failed: u64,
    broken: u64,
    moved: u64,
    returned: u64,
    gaps: u64,
    frames: u64,
    doubled: u64,
    repeats: u64,
    arrivals_us: Vec<u64>,
    boxes_us: Vec<u64>,
    delays_us: Vec<u64>,
}

/// Readers who are to come or go, evenly from `next_ns` on.
#[derive(Default)]
struct Pace {
    left: u64,
    gap_ns: u64,
    next_ns: u64,
}

impl Pace {
    fn of(count: u64, per_second: f64) -> Self {
        let gap_ns = (1e9 / per_second) as u64;
        Self { left: count, gap_ns, next_ns: monotonic_ns() }
    }

    /// Whether one is due.
    fn due(&mut self, now: u64) -> bool {
        if self.left == 0 || self.next_ns > now {
            return false;
        }
        self.left -= 1;
        self.next_ns += self.gap_ns;
        true
    }
}

struct Crowd {
    epoll: Epoll,
    readers: Vec<Reader>,
    timers: BinaryHeap<Reverse<(u64, usize, u32)>>,
    arriving: Pace,
    leaving: Pace,
    gone: usize,
    present: u64,
    dice: Dice,
    source: [u8; 4],
    desk: u16,
    ask: Vec<u8>,
    hello: Vec<u8>,
    topic: String,
    run: Vec<u8>,
    news: News,
    refused_in_all: u64,
    doubled_in_all: u64,
}

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let mut crowd = Crowd::new(&arguments);
    crowd.epoll.add(0, libc::EPOLLIN, STDIN);
    let mut ready = Vec::new();
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        let pause = crowd.on_time();
        crowd.epoll.wait(&mut ready, pause);
        for &(number, events) in &ready {
            if number != STDIN {
                crowd.on_event(number as usize, events, &mut buffer);
            } else if !crowd.obey() {
                return;
            }
        }
    }
}

impl Crowd {
    fn new(arguments: &Arguments) -> Self {
        let source: Ipv4Addr =
            arguments.text("source", "127.0.0.2").parse().expect("--source wants an IPv4 address");
        let ask = "GET /endpoints.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let hello = "GET /websocket HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Version: 13\r\n\r\n";
        Self {
            epoll: Epoll::new(),
            readers: Vec::new(),
            timers: BinaryHeap::new(),
            arriving: Pace::default(),
            leaving: Pace::default(),
            gone: 0,
            present: 0,
            dice: Dice::new(arguments.number("seed", 1)),
            source: source.octets(),
            desk: arguments.number("desk-port", 18100) as u16,
            ask: ask.into(),
            hello: hello.into(),
            topic: arguments.text("topic", "news.breaking"),
            run: format!("\"run\":\"{}\"", arguments.text("run", "")).into_bytes(),
            news: News::default(),
            refused_in_all: 0,
            doubled_in_all: 0,
        }
    }

    /// Does what a line of standard input says; false at its end.
    fn obey(&mut self) -> bool {
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [verb @ ("arrive" | "leave"), count, rate] => {
                match (count.parse(), rate.parse::<f64>()) {
                    (Ok(count), Ok(rate)) if rate > 0.0 => {
                        let pace = Pace::of(count, rate);
                        if verb == "arrive" {
                            self.arriving = pace
                        } else {
                            self.leaving = pace
                        }
                        println!("{{}}");
                    }
                    _ => self.complain(&line),
                }
            }
            ["report"] => self.report(),
            ["census", file, grace] => match grace.parse() {
                Ok(grace) => self.census(file, grace),
                Err(_) => self.complain(&line),
            },
            _ => self.complain(&line),
        }
        true
    }

    fn complain(&self, line: &str) {
        eprintln!("error: no command {line:?}");
        println!("{{\"error\":true}}");
    }

    /// Those whose time has come; returns how many milliseconds there are until the next.
    fn on_time(&mut self) -> i32 {
        let now = monotonic_ns();
        while self.arriving.due(now) {
            self.readers.push(Reader::new());
            self.ask_desk(self.readers.len() - 1);
        }
        while self.leaving.due(now) {
            self.leave(now);
        }
        while let Some(&Reverse((due, number, turn))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            if self.readers[number].turn != turn {
                continue;
            }
            match self.readers[number].step {
                Step::Reading | Step::Left => {}
                Step::Waiting => self.ask_desk(number),
                _ => self.fail(number),
            }
        }
        let next = self.timers.peek().map_or(u64::MAX, |&Reverse((due, ..))| due);
        let pace = |pace: &Pace| if pace.left > 0 { pace.next_ns } else { u64::MAX };
        let next = next.min(pace(&self.arriving)).min(pace(&self.leaving));
        (next.saturating_sub(now) / MS + 1).min(100) as i32
    }

    fn timer(&mut self, number: usize, at: u64) {
        let reader = &mut self.readers[number];
        reader.turn += 1;
        self.timers.push(Reverse((at, number, reader.turn)));
    }

    fn wait(&mut self, number: usize, milliseconds: u64) {
        self.close(number);
        self.readers[number].step = Step::Waiting;
        let more = self.dice.share();
        let pause = milliseconds as f64 * (1.0 + more / 2.0) * MS as f64;
        self.timer(number, monotonic_ns() + pause as u64);
    }

    fn close(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        if reader.step == Step::Reading {
            self.present -= 1;
            reader.away_ns = monotonic_ns();
        }
        reader.rest.clear();
        if reader.socket >= 0 {
            // SAFETY: the descriptor is this reader's alone, and isn't used again.
            unsafe { libc::close(reader.socket) };
            reader.socket = -1;
        }
    }

    fn open(&mut self, number: usize, port: u16) {
        let socket = tcp_socket();
        // The kernel then looks for a port that is free towards the server, not free at all.
        set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        bind(socket, &address(self.source, 0));
        // Thousands of ports would be of no use for a minute afterwards (TIME_WAIT).
        reset_on_close(socket);
        connect(socket, &address([127, 0, 0, 1], port));
        self.epoll.add(socket, libc::EPOLLOUT, number as u64);
        self.readers[number].socket = socket;
        self.timer(number, monotonic_ns() + PATIENCE_NS);
    }

    fn ask_desk(&mut self, number: usize) {
        self.close(number);
        let reader = &mut self.readers[number];
        if reader.began_ns == 0 {
            reader.began_ns = monotonic_ns();
        }
        reader.step = Step::Asking;
        self.open(number, self.desk);
    }

    /// The next of the boxes that were offered, or the frontdesk again after a while.
    fn next_box(&mut self, number: usize) {
        self.close(number);
        match draw(&mut self.readers[number].offered, &mut self.dice) {
            Some(gateway) => {
                self.readers[number].step = Step::Connecting;
                self.readers[number].connected_ns = monotonic_ns();
                self.open(number, gateway.port);
            }
            None => self.wait(number, self.readers[number].retry_ms),
        }
    }

    fn refuse(&mut self, number: usize) {
        self.news.refused += 1;
        self.refused_in_all += 1;
        self.next_box(number);
    }

    /// Nobody answers, or not in time, or with something else.
    fn fail(&mut self, number: usize) {
        self.news.failed += 1;
        if matches!(self.readers[number].step, Step::Asking | Step::Answered) {
            self.wait(number, 1000);
        } else {
            self.next_box(number);
        }
    }

    /// The one who has been here longest.
    fn leave(&mut self, now: u64) {
        let Some(number) = (self.gone..self.readers.len()).next() else {
            return;
        };
        self.gone += 1;
        self.close(number);
        let reader = &mut self.readers[number];
        // Who isn't connected just now has been away since then, and is owed nothing of that time.
        reader.until_ns = if reader.step == Step::Reading { now } else { reader.away_ns };
        reader.step = Step::Left;
    }

    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]) {
        let reader = &mut self.readers[number];
        let writable = events & libc::EPOLLOUT as u32 != 0;
        let lost = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        match reader.step {
            Step::Waiting | Step::Left => return,
            Step::Asking | Step::Connecting if lost => return self.fail(number),
            Step::Asking | Step::Connecting if writable => {
                let asks = reader.step == Step::Asking;
                send(reader.socket, if asks { &self.ask } else { &self.hello });
                reader.step = if asks { Step::Answered } else { Step::Upgrading };
                self.epoll.change(reader.socket, libc::EPOLLIN, number as u64);
                return;
            }
            _ => {}
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.ended(number),
            // What is left is seen in the next turn: epoll is level-triggered.
            Some(size) => self.take(number, &buffer[..size]),
        }
    }

    fn ended(&mut self, number: usize) {
        match self.readers[number].step {
            Step::Answered => {
                let rest = std::mem::take(&mut self.readers[number].rest);
                self.answered(number, &rest, true);
            }
            Step::Reading => {
                self.news.broken += 1;
                self.wait(number, 500);
            }
            _ => self.fail(number),
        }
    }

    fn take(&mut self, number: usize, data: &[u8]) {
        let reader = &mut self.readers[number];
        if reader.step == Step::Reading && reader.rest.is_empty() {
            let used = self.frames_in(number, data);
            self.keep(number, &data[used..]);
            return;
        }
        reader.rest.extend_from_slice(data);
        let mut rest = std::mem::take(&mut reader.rest);
        match reader.step {
            Step::Answered => return self.answered(number, &rest, false),
            Step::Upgrading => {
                let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return self.keep(number, &rest);
                };
                if !rest.starts_with(b"HTTP/1.1 101") {
                    return self.refuse(number);
                }
                rest.drain(..end + 4);
                self.subscribe(number);
            }
            _ => {}
        }
        let used = self.frames_in(number, &rest);
        self.keep(number, &rest[used..]);
    }

    /// Unless the connection ended with what was taken before.
    fn keep(&mut self, number: usize, rest: &[u8]) {
        if self.readers[number].socket >= 0 {
            self.readers[number].rest = rest.to_vec();
        }
    }

    fn answered(&mut self, number: usize, data: &[u8], ended: bool) {
        let Some((_, body)) = answer(data, ended) else {
            return if ended { self.fail(number) } else { self.keep(number, data) };
        };
        let (offered, retry_ms) = parse(body);
        (self.readers[number].offered, self.readers[number].retry_ms) = (offered, retry_ms);
        if self.readers[number].offered.is_empty() {
            return self.refuse(number);
        }
        self.next_box(number);
    }

    fn subscribe(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        let position = match &reader.position[..] {
            [] => String::new(),
            text => format!(",\"position\":\"{}\"", String::from_utf8_lossy(text)),
        };
        let verb = format!("{{\"action\":\"subscribe\",\"topic\":\"{}\"{position}}}", self.topic);
        send(reader.socket, &masked(0x81, verb.as_bytes(), self.dice.key()));
        reader.step = Step::Subscribing;
        reader.here.clear();
    }

    /// Takes the whole frames in `data`; returns how many bytes they have.
    fn frames_in(&mut self, number: usize, data: &[u8]) -> usize {
        let mut at = 0;
        while let Some((payload, next)) = frame_at(data, at) {
            match data[at] & 0x0F {
                1 => self.on_text(number, payload),
                9 => {
                    let pong = masked(0x8A, payload, self.dice.key());
                    send(self.readers[number].socket, &pong);
                }
                _ => {}
            }
            at = next;
            if self.readers[number].socket < 0 {
                return data.len();
            }
            if !matches!(self.readers[number].step, Step::Reading | Step::Subscribing) {
                return data.len();
            }
        }
        at
    }

    fn on_text(&mut self, number: usize, payload: &[u8]) {
        if let Some((code, pause)) = disconnect(payload) {
            return self.sent_away(number, code, pause);
        }
        if let Some(position) = text_after(b"\"position\":\"", payload) {
            self.readers[number].position = position.to_vec();
        }
        match text_after(b"{\"type\":\"", payload) {
            Some(b"message") if has(&self.run, payload) => self.on_message(number, payload),
            Some(b"subscribed") => self.subscribed(number, payload),
            Some(b"error") => {
                eprintln!("error: {}", String::from_utf8_lossy(payload));
                self.fail(number);
            }
            _ => {}
        }
    }

    fn sent_away(&mut self, number: usize, code: u64, pause: u64) {
        if code == BOX_REFUSES && self.readers[number].step == Step::Subscribing {
            return self.refuse(number);
        }
        self.news.moved += 1;
        self.wait(number, pause);
    }

    fn subscribed(&mut self, number: usize, payload: &[u8]) {
        let now = monotonic_ns();
        let reader = &mut self.readers[number];
        if reader.step != Step::Subscribing {
            return;
        }
        reader.step = Step::Reading;
        self.present += 1;
        if reader.since_ns == 0 {
            reader.since_ns = now;
            self.news.arrivals_us.push((now - reader.began_ns) / 1000);
            self.news.boxes_us.push((now - reader.connected_ns) / 1000);
        } else {
            self.news.returned += 1;
            self.news.gaps += u64::from(!has(b"\"recovered\":true", payload));
        }
        reader.offered = Vec::new();
    }

    fn on_message(&mut self, number: usize, payload: &[u8]) {
        let (Some(n), Some(sent)) =
            (number_after(b"\"n\":", payload), number_after(b"\"sent_ns\":", payload))
        else {
            return;
        };
        if n >= NUMBERS {
            return;
        }
        self.news.frames += 1;
        let reader = &mut self.readers[number];
        let twice = !mark(&mut reader.here, n);
        let known = !mark(&mut reader.seen, n);
        self.news.doubled += u64::from(twice);
        self.doubled_in_all += u64::from(twice);
        self.news.repeats += u64::from(known && !twice);
        if !known && (n + number as u64) % SAMPLE == 0 && sent > reader.since_ns {
            self.news.delays_us.push(monotonic_ns().saturating_sub(sent) / 1000);
        }
    }

    fn report(&mut self) {
        let news = std::mem::take(&mut self.news);
        println!(
            "{{\"present\":{},\"arrived\":{},\"left\":{},\"to_come\":{},\"to_leave\":{},\"refused\":{},\"failed\":{},\"broken\":{},\
             \"moved\":{},\"returned\":{},\"gaps\":{},\"frames\":{},\"doubled\":{},\"repeats\":{},\
             \"arrivals_us\":{:?},\"boxes_us\":{:?},\"delays_us\":{:?}}}",
            self.present,
            self.readers.len(),
            self.gone,
            self.arriving.left,
            self.leaving.left,
            news.refused,
            news.failed,
            news.broken,
            news.moved,
            news.returned,
            news.gaps,
            news.frames,
            news.doubled,
            news.repeats,
            news.arrivals_us,
            news.boxes_us,
            news.delays_us,
        );
    }

    fn census(&self, file: &str, grace: u64) {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let messages: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| {
                let (n, sent) = line.split_once(' ')?;
                Some((n.parse().ok()?, sent.parse().ok()?))
            })
            .collect();
        let (mut owed, mut lost, mut late, mut short) = (0_u64, 0_u64, 0_u64, 0_u64);
        for reader in &self.readers {
            if reader.since_ns == 0 {
                continue;
            }
            let left = reader.step == Step::Left;
            let until = if left { reader.until_ns } else { u64::MAX };
            let newest = if left { highest(&reader.seen) } else { u64::MAX };
            let mut missing = 0;
            for &(n, sent) in &messages {
                if sent > reader.since_ns && sent.saturating_add(grace) < until {
                    owed += 1;
                    let there = marked(&reader.seen, n);
                    missing += u64::from(!there && n < newest);
                    late += u64::from(!there && n > newest);
                }
            }
            lost += missing;
            short += u64::from(missing > 0);
        }
        let never = self.readers.iter().filter(|reader| reader.since_ns == 0).count();
        println!(
            "{{\"messages\":{},\"readers\":{},\"never_in\":{never},\"owed\":{owed},\"lost\":{lost},\"late\":{late},\"readers_with_losses\":{short},\
             \"doubled\":{},\"refused\":{}}}",
            messages.len(),
            self.readers.len(),
            self.doubled_in_all,
            self.refused_in_all,
        );
    }
}

impl Reader {
    fn new() -> Self {
        Self {
            socket: -1,
            step: Step::Waiting,
            turn: 0,
            rest: Vec::new(),
            offered: Vec::new(),
            retry_ms: 1000,
            began_ns: 0,
            connected_ns: 0,
            position: Vec::new(),
            since_ns: 0,
            until_ns: 0,
            away_ns: 0,
            seen: Vec::new(),
            here: Vec::new(),
        }
    }
}

/// Notes `n`; false if it was noted before.
fn mark(bits: &mut Vec<u64>, n: u64) -> bool {
    let (word, bit) = ((n / 64) as usize, 1 << (n % 64));
    if bits.len() <= word {
        bits.resize(word + 1, 0);
    }
    let fresh = bits[word] & bit == 0;
    bits[word] |= bit;
    fresh
}

/// The greatest number that was noted; 0 for none.
fn highest(bits: &[u64]) -> u64 {
    bits.iter()
        .enumerate()
        .rev()
        .find(|&(_, &word)| word != 0)
        .map_or(0, |(at, word)| at as u64 * 64 + 63 - u64::from(word.leading_zeros()))
}

fn marked(bits: &[u64], n: u64) -> bool {
    bits.get((n / 64) as usize).is_some_and(|word| word & (1 << (n % 64)) != 0)
}
