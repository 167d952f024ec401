//! Readers that behave as pages: their sockets and timers. Their knowledge and counts are in `newsfabric_fanout::crowd`.

mod incoming;

use crate::Crowd;
use newsfabric_fanout::crowd::backoff::Backoff;
use newsfabric_fanout::crowd::commands::{CrowdCommand, command};
use newsfabric_fanout::crowd::news::{Moment, News};
use newsfabric_fanout::crowd::options::CrowdOptions;
use newsfabric_fanout::crowd::pace::{Due, Pace};
use newsfabric_fanout::crowd::pushes::{PushPosition, Pushes};
use newsfabric_fanout::crowd::record::{Entries, ReaderRecord};
use newsfabric_fanout::endpoints::{Dice, Target, WeightedGateway, draw};
use newsfabric_fanout::{
    Epoll, monotonic_ns, open_socket, random_number, realtime_ns, receive, send, upgrade,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddrV4;
use std::os::fd::RawFd;

const MS: u64 = 1_000_000;
/// The time limit of each step until `subscribed`; after it the next box is tried.
const PATIENCE_NS: u64 = 10_000 * MS;
/// The limit for a silent connection; a gateway sends at least every 25 s.
const SILENCE_NS: u64 = 60_000 * MS;
/// Minimum age of a connection that may reconnect at once: a gateway that ends each would be flooded otherwise.
const LASTED_NS: u64 = 1_000 * MS;
const MOST_READERS: usize = 20_000;
/// Descriptors beside the readers': standard streams, epoll and a reserve.
const OTHER_DESCRIPTORS: usize = 16;

#[derive(Clone, Copy, PartialEq, Debug)]
enum PageStep {
    /// There is no such reader (any more).
    Nobody,
    /// Waiting for its timer.
    Waiting,
    Asking,
    Answered,
    Connecting,
    Upgrading,
    Subscribing,
    Reading,
    /// A gateway sent the reader away for good.
    Stopped,
}

struct PageReader {
    socket: RawFd,
    step: PageStep,
    topic: u16,
    frontdesk: u16,
    /// Timers with another turn are outdated.
    turn: u32,
    backoff: Backoff,
    retry_ms: u64,
    /// Times: first attempt to connect, current request to a frontdesk, subscription, last bytes received.
    began_ns: u64,
    asked_ns: u64,
    open_ns: u64,
    heard_ns: u64,
    /// Start of its subscription, by the machine's real-time clock.
    here_since_ns: u64,
    /// Bytes of an incomplete frame or reply; mostly empty.
    rest: Vec<u8>,
    offered: Vec<WeightedGateway>,
    /// The gateway that the reader connects to.
    target: Option<Target>,
    position: Option<PushPosition>,
    record: ReaderRecord,
}

/// All readers of the process.
pub struct Pages {
    options: CrowdOptions,
    epoll: Epoll,
    most: usize,
    readers: Vec<PageReader>,
    /// All readers that haven't left, the oldest first; `free` has the places of those that left.
    order: VecDeque<usize>,
    free: Vec<usize>,
    timers: BinaryHeap<Reverse<(u64, usize, u32)>>,
    pace: Pace,
    dice: Dice,
    pushes: Pushes,
    present: usize,
    arrived: u64,
    left: u64,
    entries: Entries,
    news: News,
    has_logged_error: bool,
}

impl Crowd for Pages {
    fn epoll(&self) -> &Epoll {
        &self.epoll
    }

    fn run_command(&mut self, line: &str) -> Option<String> {
        Some(match command(line, self.most) {
            Ok(CrowdCommand::Readers(count, rate)) => {
                self.want(count, rate);
                "{}".into()
            }
            Ok(CrowdCommand::Storm) => format!("{{\"cut\":{}}}", self.storm()),
            Ok(CrowdCommand::Report) => self.report(),
            Ok(CrowdCommand::Records) => self.records(),
            Ok(CrowdCommand::End) => return None,
            Err(wrong) => format!("{{\"error\":\"{wrong}\"}}"),
        })
    }

    fn on_time(&mut self) -> i32 {
        let now = monotonic_ns();
        while let Some(due) = self.pace.due(self.order.len(), now) {
            match due {
                Due::Come => self.begin(now),
                Due::Go => self.leave(),
            }
        }
        while let Some(&Reverse((due, number, turn))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            let reader = &self.readers[number];
            if reader.turn != turn {
                continue;
            }
            match reader.step {
                PageStep::Nobody | PageStep::Stopped => {}
                PageStep::Waiting => self.ask_frontdesk(number),
                PageStep::Reading if now < reader.heard_ns + SILENCE_NS => {
                    self.timer(number, reader.heard_ns + SILENCE_NS);
                }
                PageStep::Reading => {
                    self.news.counts.broken += 1;
                    self.come_back(number, 0);
                }
                _ => self.fail(number),
            }
        }
        let next = self.timers.peek().map_or(u64::MAX, |&Reverse((due, ..))| due);
        let next = next.min(self.pace.next_ns(self.order.len()));
        (next.saturating_sub(now) / MS + 1).min(100) as i32
    }

    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]) {
        let reader = &self.readers[number];
        let writable = events & libc::EPOLLOUT as u32 != 0;
        let lost = events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        match reader.step {
            PageStep::Nobody | PageStep::Waiting | PageStep::Stopped => return,
            PageStep::Asking | PageStep::Connecting if lost => return self.fail(number),
            PageStep::Asking | PageStep::Connecting if writable => return self.connected(number),
            _ => {}
        }
        match receive(reader.socket, buffer) {
            None => {}
            Some(0) => self.ended(number),
            // Remaining bytes are read in the next turn: epoll is level-triggered.
            Some(size) => self.on_data(number, &buffer[..size]),
        }
    }
}

impl Pages {
    /// An empty crowd of a process that may have `descriptors` descriptors.
    pub fn new(options: CrowdOptions, descriptors: usize) -> Self {
        Self {
            epoll: Epoll::new(),
            most: MOST_READERS.min(descriptors.saturating_sub(OTHER_DESCRIPTORS)),
            readers: Vec::new(),
            order: VecDeque::new(),
            free: Vec::new(),
            timers: BinaryHeap::new(),
            pace: Pace::default(),
            dice: Dice::new(options.seed.unwrap_or_else(random_number)),
            pushes: Pushes::new(options.topics.clone()),
            present: 0,
            arrived: 0,
            left: 0,
            entries: Entries::default(),
            news: News::default(),
            has_logged_error: false,
            options,
        }
    }

    // --- its commands ----------------------------------------------------------------------------

    /// Sets the number of wanted readers, and the rate at which readers arrive or leave.
    fn want(&mut self, count: usize, per_second: f64) {
        self.pace.set(count, per_second, monotonic_ns());
    }

    /// Cuts every connection; returns their number.
    fn storm(&mut self) -> usize {
        let there: Vec<usize> =
            self.order.iter().copied().filter(|&n| self.readers[n].socket >= 0).collect();
        for &number in &there {
            self.come_back(number, 0);
        }
        there.len()
    }

    /// The events since the last report, as JSON.
    fn report(&mut self) -> String {
        let holes = self.order.iter().map(|&n| self.readers[n].record.holes()).sum();
        self.news.report(&Moment {
            present: self.present,
            wanted: self.pace.wanted(),
            arrived: self.arrived,
            left: self.left,
            holes,
        })
    }

    /// The messages that each reader received, as JSON.
    fn records(&self) -> String {
        let now = realtime_ns();
        let mut entries = self.entries.clone();
        for &number in &self.order {
            let reader = &self.readers[number];
            entries.add(&reader.record, reader.topic, now, false);
        }
        entries.json(self.pushes.topics(), self.pushes.publishers())
    }

    // --- readers that arrive, wait and leave ------------------------------------------------------

    fn begin(&mut self, now: u64) {
        let topic = (self.arrived % self.options.topics.len() as u64) as u16;
        let frontdesk = (self.arrived % self.options.frontdesks.len() as u64) as u16;
        let reader = PageReader::new(topic, frontdesk, now);
        self.arrived += 1;
        let number = match self.free.pop() {
            Some(number) => {
                // A timer of the earlier reader in this place is not for the new one.
                let turn = self.readers[number].turn;
                self.readers[number] = PageReader { turn, ..reader };
                number
            }
            None => {
                self.readers.push(reader);
                self.readers.len() - 1
            }
        };
        self.order.push_back(number);
        self.ask_frontdesk(number);
    }

    /// Removes the oldest reader.
    fn leave(&mut self) {
        let Some(number) = self.order.pop_front() else {
            return;
        };
        // The record is added first: a reader that is present until now hasn't been away.
        let reader = &self.readers[number];
        self.entries.add(&reader.record, reader.topic, realtime_ns(), true);
        self.close(number);
        let reader = &mut self.readers[number];
        reader.turn += 1;
        reader.step = PageStep::Nobody;
        reader.position = None;
        reader.record = ReaderRecord::new(0);
        self.free.push(number);
        self.left += 1;
    }

    fn timer(&mut self, number: usize, at: u64) {
        let reader = &mut self.readers[number];
        reader.turn += 1;
        self.timers.push(Reverse((at, number, reader.turn)));
    }

    /// Closes the socket, and asks a frontdesk after the requested pause plus a backoff.
    fn come_back(&mut self, number: usize, asked_ms: u64) {
        let open_ns = self.close(number);
        let share = self.dice.share();
        let pause = self.readers[number].backoff.next(asked_ms, share, open_ns / MS);
        self.wait(number, pause);
    }

    fn wait(&mut self, number: usize, pause_ms: u64) {
        self.readers[number].step = PageStep::Waiting;
        self.timer(number, monotonic_ns() + pause_ms * MS);
    }

    /// Returns how long the subscription lasted, in nanoseconds.
    fn close(&mut self, number: usize) -> u64 {
        let reader = &mut self.readers[number];
        let mut open_ns = 0;
        if reader.step == PageStep::Reading {
            self.present -= 1;
            reader.record.away(realtime_ns());
            open_ns = monotonic_ns() - reader.open_ns;
        }
        reader.step = PageStep::Waiting;
        reader.rest = Vec::new();
        if reader.socket >= 0 {
            // SAFETY: the descriptor is this reader's alone, and isn't used again.
            unsafe { libc::close(reader.socket) };
            reader.socket = -1;
        }
        open_ns
    }

    fn open(&mut self, number: usize, at: SocketAddrV4, step: PageStep) {
        // An address that isn't loopback is reached from the machine's own.
        let source = at.ip().is_loopback().then(|| self.options.source.octets());
        let (socket, begun) = open_socket(source, number, at, 0);
        self.readers[number].socket = socket;
        self.readers[number].step = step;
        if begun {
            self.epoll.add(socket, libc::EPOLLOUT, number as u64);
            self.timer(number, monotonic_ns() + PATIENCE_NS);
        } else {
            self.news.counts.failed += 1;
            self.come_back(number, 0);
        }
    }

    fn ask_frontdesk(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        reader.asked_ns = monotonic_ns();
        reader.target = None;
        let at = self.options.frontdesks[usize::from(reader.frontdesk)].at;
        self.open(number, at, PageStep::Asking);
    }

    /// Connects to the next of the offered boxes, or after the last backs off and asks the next frontdesk.
    fn next_box(&mut self, number: usize) {
        self.close(number);
        let reader = &mut self.readers[number];
        match draw(&mut reader.offered, &mut self.dice) {
            Some(WeightedGateway { target, .. }) => {
                let at = target.at;
                reader.target = Some(target);
                self.open(number, at, PageStep::Connecting);
            }
            None => self.next_frontdesk(number, self.readers[number].retry_ms),
        }
    }

    fn next_frontdesk(&mut self, number: usize, asked_ms: u64) {
        let reader = &mut self.readers[number];
        reader.frontdesk = (reader.frontdesk + 1) % self.options.frontdesks.len() as u16;
        self.come_back(number, asked_ms);
    }

    fn refuse(&mut self, number: usize) {
        self.news.counts.refused += 1;
        self.next_box(number);
    }

    /// Handles a server that gave no reply, a late one or a wrong one.
    fn fail(&mut self, number: usize) {
        self.news.counts.failed += 1;
        if matches!(self.readers[number].step, PageStep::Asking | PageStep::Answered) {
            self.next_frontdesk(number, 0);
        } else {
            self.next_box(number);
        }
    }

    // --- data from a socket ---------------------------------------------------------------------

    fn connected(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        let request = match reader.target.take() {
            Some(Target { at, path }) => {
                reader.step = PageStep::Upgrading;
                upgrade(&path, &at.to_string(), "")
            }
            None => {
                reader.step = PageStep::Answered;
                let Target { at, path } = &self.options.frontdesks[usize::from(reader.frontdesk)];
                format!(
                    "GET {path}/endpoints.json HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
                )
            }
        };
        send(reader.socket, request.as_bytes());
        self.epoll.change(reader.socket, libc::EPOLLIN, number as u64);
    }

    fn ended(&mut self, number: usize) {
        match self.readers[number].step {
            PageStep::Answered => {
                let rest = std::mem::take(&mut self.readers[number].rest);
                self.answered(number, &rest, true);
            }
            PageStep::Reading => {
                self.news.counts.broken += 1;
                self.come_back(number, 0);
            }
            _ => self.fail(number),
        }
    }
}

impl PageReader {
    fn new(topic: u16, frontdesk: u16, now: u64) -> Self {
        Self {
            socket: -1,
            step: PageStep::Waiting,
            topic,
            frontdesk,
            turn: 0,
            backoff: Backoff::default(),
            retry_ms: 0,
            began_ns: now,
            asked_ns: now,
            open_ns: 0,
            heard_ns: now,
            here_since_ns: 0,
            rest: Vec::new(),
            offered: Vec::new(),
            target: None,
            position: None,
            record: ReaderRecord::new(realtime_ns()),
        }
    }

    fn lasted(&self) -> bool {
        self.step == PageStep::Reading && monotonic_ns() >= self.open_ns + LASTED_NS
    }
}
