//! A crowd of readers in one thread: connects, subscribes, counts frames, measures delay.
//!
//!     fanout-crowd --port 18143 --connections 10000 --say '{"action":"subscribe","topic":"metrics.bench"}'
//!
//! Prints `{"connections":…,"seconds":…,"p50_ms":…,"p99_ms":…}` when all readers are connected: the time of all of
//! them, and of one reader from its first packet on. With `--say`, each reader must also have a reply to each line of
//! it; `%d` in it becomes the reader's number, counted from `--first`. At most `--at-once` (256) readers connect at a
//! time. Readers share `--topics` (1) evenly: `%t` in `--say` and in `--path` is the number of a reader's topic. Then
//! the program reads commands, one a line, until its standard input ends. `count` prints the number of messages since
//! the last report. `report` prints all figures about them and resets the counts. `census MESSAGES SINCE_NS` prints,
//! of the numbers 0 to `MESSAGES` - 1, how many deliveries were lost, doubled or late (behind a later one). It also
//! prints the longest time that one reader waited between two messages, and the first arrival after SINCE_NS of a
//! number that no reader had yet (0: none).
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
//! The program measures one gateway for the bench and does as little else as possible, in any dialect that a peer
//! speaks. Readers that reconnect, and are counted, are those of `newsfabric-crowd`.

use flate2::Decompress;
use newsfabric_fanout::crowd::times::Times;
use newsfabric_fanout::endpoints::Dice;
use newsfabric_fanout::events::EventStream;
use newsfabric_fanout::frames::{frame_at, inflated, masked, number_after, sent_at};
use newsfabric_fanout::{
    Arguments, Epoll, address, bind, connect, fail, monotonic_ns, raise_descriptor_limit, receive,
    reset_on_close, send, set_option, source_of, tcp_socket,
};
use std::net::Ipv4Addr;
use std::os::fd::RawFd;

const STDIN: u64 = u64::MAX;
/// Upper bound of the numbers of messages.
const NUMBERS: u64 = 65_536;
/// Bytes of the receive buffer of readers that stall; the least that Linux allows.
const STALLED_BUFFER: i32 = 2_304;
/// RFC 7692 section 7.2.2: the bit in the first frame of a message that marks it as compressed.
const RSV1: u8 = 0x40;

#[derive(Clone, Copy, PartialEq)]
enum State {
    Connecting,
    Upgrading,
    /// The number of replies still to come.
    Asking(usize),
    Reading,
    Stalled,
    Gone,
}

struct Reader {
    socket: RawFd,
    state: State,
    opened_ns: u64,
    /// Bytes of an incomplete frame or handshake; mostly empty.
    rest: Vec<u8>,
    frames: u32,
    /// The count of deliveries of each number.
    got: Vec<u8>,
    /// The highest number received, plus one.
    next: usize,
    heard_ns: u64,
    /// Present if the server keeps its compression context from message to message.
    context: Option<Box<Decompress>>,
    /// Present for a reader of Server-Sent Events, after the head of the reply.
    events: Option<EventStream>,
}

struct Crowd {
    epoll: Epoll,
    readers: Vec<Reader>,
    /// For each topic.
    hellos: Vec<Vec<u8>>,
    say: String,
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
    pings: u64,
    delays: Vec<u64>,
    first_ns: u64,
    last_ns: u64,
    longest_wait_ns: u64,
    /// Time of the first arrival of each number; 0 if none.
    firsts: Vec<u64>,
}

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let count = arguments.number("connections", 1000) as usize;
    let at_once = arguments.number("at-once", 256) as usize;
    let port = arguments.number("port", 9000) as u16;
    let source: Ipv4Addr =
        arguments.text("source", "127.0.0.1").parse().expect("--source wants an IPv4 address");
    let mut crowd = Crowd::new(&arguments);
    crowd.epoll.add(0, libc::EPOLLIN, STDIN);

    let start = monotonic_ns();
    let mut said_ready = false;
    let mut ready = Vec::new();
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        while crowd.readers.len() < count
            && crowd.readers.len() - crowd.ready - crowd.gone < at_once
        {
            crowd.open(source.octets(), port);
        }
        if !said_ready && crowd.ready + crowd.gone == count {
            said_ready = true;
            let seconds = (monotonic_ns() - start) as f64 / 1e9;
            println!(
                "{{\"connections\":{},\"seconds\":{seconds:.3},\"p50_ms\":{:.3},\"p99_ms\":{:.3}}}",
                crowd.ready,
                crowd.came.quantile_us(0.5) as f64 / 1e3,
                crowd.came.quantile_us(0.99) as f64 / 1e3,
            );
        }
        crowd.epoll.wait(&mut ready, 100);
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
        let path = arguments.text("path", "/websocket");
        let offer = match arguments.number("deflate", 0) {
            1 => {
                "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
                 client_no_context_takeover\r\n"
            }
            _ => "",
        };
        let events = arguments.number("events", 0) == 1;
        let wish = if events {
            "Accept: text/event-stream\r\n".to_owned()
        } else {
            format!(
                "Upgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{offer}"
            )
        };
        let hello = |topic: u64| {
            let path = path.replace("%t", &topic.to_string());
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{wish}\r\n")
        };
        Self {
            epoll: Epoll::new(),
            readers: Vec::new(),
            hellos: (0..arguments.number("topics", 1).max(1))
                .map(|n| hello(n).into_bytes())
                .collect(),
            say: arguments.text("say", ""),
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
            pings: 0,
            delays: Vec::new(),
            first_ns: 0,
            last_ns: 0,
            longest_wait_ns: 0,
            firsts: Vec::new(),
        }
    }

    /// Obeys one line of standard input; false at its end.
    fn obey(&mut self) -> bool {
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["count"] => println!("{{\"frames\":{},\"gone\":{}}}", self.frames, self.gone),
            ["report"] => {
                self.report();
                self.forget();
            }
            ["census", messages, since_ns] => match (messages.parse(), since_ns.parse()) {
                (Ok(messages), Ok(since_ns)) => self.census(messages, since_ns),
                _ => eprintln!("error: census wants two whole numbers, got {line:?}"),
            },
            ["stall", ..] => self.stall(line["stall".len()..].trim()),
            _ => eprintln!("error: no command {line:?}"),
        }
        true
    }

    fn stall(&mut self, verb: &str) {
        let said = masked(0x81, verb.as_bytes(), self.dice.key());
        let mut stalled = 0;
        for (number, reader) in self.readers.iter_mut().enumerate() {
            if reader.state == State::Reading {
                self.epoll.change(reader.socket, 0, number as u64);
                reader.state = State::Stalled;
                send(reader.socket, &said);
                stalled += 1;
            }
        }
        println!("{{\"stalled\":{stalled}}}");
    }

    fn forget(&mut self) {
        (self.frames, self.late, self.pings, self.first_ns) = (0, 0, 0, 0);
        self.compressed = 0;
        self.longest_wait_ns = 0;
        self.delays.clear();
        self.firsts.clear();
        for reader in &mut self.readers {
            (reader.frames, reader.next, reader.heard_ns) = (0, 0, 0);
            reader.got.clear();
        }
    }

    fn open(&mut self, source: [u8; 4], port: u16) {
        let socket = tcp_socket();
        // The kernel then looks for a port that is free towards this server, rather than for an unused one.
        set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        let room =
            if self.stalls(self.readers.len()) { STALLED_BUFFER } else { self.receive_buffer };
        if room > 0 {
            set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, room);
        }
        bind(socket, &address(source_of(source, self.readers.len()), 0));
        // A normal close would make thousands of ports unusable for a minute after every run (TIME_WAIT).
        reset_on_close(socket);
        if !connect(socket, &address([127, 0, 0, 1], port)) {
            fail("connect");
        }
        self.epoll.add(socket, libc::EPOLLOUT, self.readers.len() as u64);
        self.readers.push(Reader {
            socket,
            state: State::Connecting,
            opened_ns: monotonic_ns(),
            rest: Vec::new(),
            frames: 0,
            got: Vec::new(),
            next: 0,
            heard_ns: 0,
            context: None,
            events: None,
        });
    }

    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]) {
        let reader = &mut self.readers[number];
        if reader.state == State::Connecting && events & libc::EPOLLOUT as u32 != 0 {
            let topic = (self.first + number) % self.hellos.len();
            send(reader.socket, &self.hellos[topic]);
            self.epoll.change(reader.socket, libc::EPOLLIN, number as u64);
            reader.state = State::Upgrading;
            return;
        }
        if reader.state == State::Stalled && events & (libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
        {
            return self.lose(number);
        }
        if matches!(reader.state, State::Stalled | State::Gone) {
            return;
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.lose(number),
            // Remaining bytes are read in the next turn: epoll is level-triggered.
            Some(size) => self.take(number, &buffer[..size]),
        }
    }

    fn lose(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        if matches!(reader.state, State::Reading | State::Stalled) {
            self.ready -= 1;
        }
        self.gone += 1;
        reader.state = State::Gone;
        // SAFETY: the descriptor is this reader's alone, and isn't used again.
        unsafe { libc::close(reader.socket) };
    }

    fn take(&mut self, number: usize, data: &[u8]) {
        if self.readers[number].events.is_some() {
            return self.take_events(number, data);
        }
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
            let wanted: &[u8] = if self.events { b"HTTP/1.1 200" } else { b"HTTP/1.1 101" };
            if !reader.rest.starts_with(wanted) {
                return self.lose(number);
            }
            let head = String::from_utf8_lossy(&reader.rest[..end]).to_ascii_lowercase();
            if self.events {
                reader.events = Some(EventStream::after(&head));
                let begun = std::mem::take(&mut reader.rest);
                reader.state = State::Asking(self.answers);
                if self.answers == 0 {
                    self.is_ready(number);
                }
                return self.take_events(number, &begun[end + 4..]);
            }
            if head.contains("permessage-deflate") && !head.contains("server_no_context_takeover") {
                reader.context = Some(Box::new(Decompress::new(false)));
            }
            reader.rest.drain(..end + 4);
            if self.say.is_empty() {
                self.is_ready(number);
            } else {
                let mine = self.first + number;
                let topic = mine % self.hellos.len();
                let say = self.say.replace("%d", &mine.to_string());
                let say = say.replace("%t", &topic.to_string());
                let dice = &mut self.dice;
                let verbs: Vec<Vec<u8>> =
                    say.lines().map(|verb| masked(0x81, verb.as_bytes(), dice.key())).collect();
                reader.state = State::Asking(verbs.len());
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
            stream.take(data, |event| self.on_text(number, event));
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
        reader.state = if stalls { State::Stalled } else { State::Reading };
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
                    self.pings += 1;
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
            State::Asking(more) if more > 1 => {
                reader.state = State::Asking(more - 1);
                return;
            }
            State::Asking(_) => return self.is_ready(number),
            State::Stalled => return,
            _ => {}
        }
        let now = monotonic_ns();
        reader.frames += 1;
        self.frames += 1;
        if self.first_ns == 0 {
            self.first_ns = now;
        }
        self.last_ns = now;
        if self.numbered
            && let Some(message) = number_after(b"\"n\":", payload).filter(|&n| n < NUMBERS)
        {
            self.note(number, message as usize, now);
        }
        if number.is_multiple_of(self.sample)
            && let Some(sent) = sent_at(payload)
        {
            self.delays.push(now.saturating_sub(sent));
        }
    }

    fn note(&mut self, number: usize, message: usize, now: u64) {
        let reader = &mut self.readers[number];
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
        if self.firsts.len() <= message {
            self.firsts.resize(message + 1, 0);
        }
        if self.firsts[message] == 0 {
            self.firsts[message] = now;
        }
    }

    fn census(&self, messages: usize, since_ns: u64) {
        let (mut lost, mut doubled) = (0_u64, 0_u64);
        for reader in &self.readers {
            for message in 0..messages {
                let times = reader.got.get(message).copied().unwrap_or(0);
                lost += u64::from(times == 0);
                doubled += u64::from(times > 1);
            }
        }
        let since = self.firsts.iter().filter(|&&first| first > since_ns).min();
        println!(
            "{{\"gone\":{},\"lost\":{lost},\"doubled\":{doubled},\"late\":{},\
             \"longest_wait_ns\":{},\"first_since_ns\":{}}}",
            self.gone,
            self.late,
            self.longest_wait_ns,
            since.copied().unwrap_or(0)
        );
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
        let most = alive.clone().map(|reader| reader.frames).max().unwrap_or(0);
        let came = |reader: &Reader| reader.got.iter().filter(|&&times| times > 0).count();
        let different = alive.map(came).min().unwrap_or(0);
        let twice: u64 = self
            .readers
            .iter()
            .flat_map(|reader| &reader.got)
            .map(|&times| u64::from(times.saturating_sub(1)))
            .sum();
        println!(
            "{{\"connections\":{},\"gone\":{},\"frames\":{},\"compressed\":{},\"fewest\":{fewest},\"most\":{most},\
             \"different\":{different},\"twice\":{twice},\"pings\":{},\"delays\":{},\"seconds\":{:.6},\"p50_ms\":{:.3},\"p99_ms\":{:.3},\"p999_ms\":{:.3},\"worst_ms\":{:.3}}}",
            self.ready,
            self.gone,
            self.frames,
            self.compressed,
            self.pings,
            self.delays.len(),
            self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9,
            delay(0.5),
            delay(0.99),
            delay(0.999),
            delay(1.0),
        );
    }
}
