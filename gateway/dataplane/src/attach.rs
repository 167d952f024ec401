//! The thread that talks to the control plane: commands in, events out, descriptors with them.
//!
//! It holds no reader and no topic: commands are checked, and passed on to the I/O threads in the order in
//! which they come. A control plane that breaks the protocol, or doesn't read, is cut off; readers don't
//! notice. When there has been none for too long, readers are sent away.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::control::{self, Command, ConnectionId, Event, Malformed};
use crate::counters::{self, Counters};
use crate::head::Refusal;
use crate::mailbox::Mailbox;
use crate::orders::{Order, Report, Seed};
use crate::policy::Policy;
use crate::publication::{Publication, TopicPolicy};
use crate::sys::{self, Epoll};

/// What may wait for the control plane.
const OUTGOING_BYTES: usize = 64 << 20;
const DESCRIPTORS: usize = 1_024;
const READ_BYTES: usize = 256 * 1024;
const COUNTERS_MS: u64 = 1_000;
/// After everyone was told, a thread that doesn't end is not waited for longer than this.
const GRACE_MS: u64 = 2_000;

const DOOR: u64 = 0;
const PLANE: u64 = 1;
const REPORTS: u64 = 2;
const SIGNALS: u64 = 3;
const HATCHES: u64 = 16;

/// The I/O threads, seen from here.
pub struct Threads {
    /// What each is told.
    pub orders: Vec<Arc<Mailbox<Order>>>,
    /// What all tell.
    pub reports: Arc<Mailbox<Report>>,
    /// Descriptors come out here.
    pub hatches: Vec<OwnedFd>,
    /// What they count.
    pub counters: Arc<Vec<Counters>>,
    /// Ports of the listeners.
    pub ports: Vec<u16>,
    /// Orders of this turn, by thread: a thread that gets several at once can coalesce them.
    pub pending: Vec<Vec<Order>>,
}

impl Threads {
    fn tell(&mut self, order: &Order) {
        for pending in &mut self.pending {
            pending.push(order.clone());
        }
    }

    fn deliver(&mut self) {
        for (mailbox, pending) in self.orders.iter().zip(&mut self.pending) {
            mailbox.put_all(pending);
        }
    }

    fn readers(&self) -> u32 {
        self.counters.iter().map(|one| one.readers()).sum::<u64>() as u32
    }
}

/// An attached control plane, or one that hasn't said hello yet.
struct Plane {
    socket: OwnedFd,
    greeted: bool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` was sent.
    sent: usize,
    /// Descriptors that wait, each with the place in `outgoing` with which it goes.
    descriptors: VecDeque<(usize, OwnedFd)>,
    blocked: bool,
    published: u64,
    wants_counters: bool,
    /// As the last counters said.
    readers_told: u32,
}

/// The thread.
pub struct Attachment {
    epoll: Epoll,
    door: OwnedFd,
    /// Until the next counters.
    door_shut: bool,
    signals: OwnedFd,
    threads: Threads,
    plane: Option<Plane>,
    attachments: u32,
    /// The last name of a topic: feeds are often of one topic for a while.
    name: Arc<str>,
    /// Up to which number each thread's fan-outs are over.
    published: Vec<u64>,
    policy: Option<Arc<Policy>>,
    blob: Vec<u8>,
    alone_since: u64,
    counters_at: u64,
    draining: bool,
    gone: usize,
    /// Drained or not, the process ends then.
    ends_at: Option<u64>,
    started: Instant,
}

impl Attachment {
    /// Listen on `door` for control planes.
    pub fn new(door: OwnedFd, signals: OwnedFd, threads: Threads) -> io::Result<Attachment> {
        let epoll = Epoll::new()?;
        epoll.add(door.as_raw_fd(), sys::READ, DOOR)?;
        epoll.add(signals.as_raw_fd(), sys::READ, SIGNALS)?;
        epoll.add(threads.reports.fd(), sys::READ, REPORTS)?;
        for (number, hatch) in threads.hatches.iter().enumerate() {
            epoll.add(hatch.as_raw_fd(), sys::READ, HATCHES + number as u64)?;
        }
        let published = vec![0; threads.orders.len()];
        Ok(Attachment {
            epoll,
            door,
            door_shut: false,
            signals,
            threads,
            plane: None,
            attachments: 0,
            name: "".into(),
            published,
            policy: None,
            blob: Vec::new(),
            alone_since: 0,
            counters_at: 0,
            draining: false,
            gone: 0,
            ends_at: None,
            started: Instant::now(),
        })
    }

    /// Serve until everyone is gone.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut reports = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        while !self.is_over() {
            let wait = (self.counters_at + COUNTERS_MS).saturating_sub(self.now_ms());
            let count = self.epoll.wait(&mut events, wait as i32)?.len();
            for event in &events[..count] {
                match event.u64 {
                    DOOR => self.welcome(),
                    PLANE => self.on_plane(event.events, &mut buffer),
                    REPORTS => self.on_reports(&mut reports),
                    SIGNALS => self.on_signal(),
                    hatch => self.on_hatch((hatch - HATCHES) as usize),
                }
            }
            self.on_time();
            self.threads.deliver();
            self.flush();
        }
        eprintln!("drained");
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn is_over(&self) -> bool {
        let late = self.ends_at.is_some_and(|at| self.now_ms() >= at);
        self.gone == self.threads.orders.len() || late
    }

    fn on_time(&mut self) {
        let now_ms = self.now_ms();
        if now_ms >= self.counters_at + COUNTERS_MS {
            self.counters_at = now_ms;
            self.send_counters();
            self.open_door();
        }
        let alone = self.plane.as_ref().is_none_or(|plane| !plane.greeted);
        if let Some(policy) = self.policy.clone()
            && alone
            && !self.draining
            && now_ms >= self.alone_since + u64::from(policy.settings.alone_ms)
        {
            eprintln!("no control plane for {} s", policy.settings.alone_ms / 1_000);
            self.drain(policy.settings.drain_ms, policy.settings.drain_per_second);
        }
    }

    fn on_signal(&mut self) {
        // One is enough. Those that follow stay where they are.
        let _ = self.epoll.remove(self.signals.as_raw_fd());
        match self.policy.clone() {
            Some(policy) => {
                self.drain(policy.settings.drain_ms, policy.settings.drain_per_second);
            }
            None => self.ends_at = Some(0),
        }
    }

    fn drain(&mut self, spread_ms: u32, per_second: u32) {
        if self.draining {
            return;
        }
        self.draining = true;
        eprintln!("draining {} readers", self.threads.readers());
        let readers = u64::from(self.threads.readers());
        let linger = self.policy.as_ref().map_or(0, |policy| policy.settings.linger_ms);
        // Every thread spreads its readers over the same time, whatever its share of them is: then
        // the sum keeps to the pace.
        let least_ms = (readers * 1_000).div_ceil(u64::from(per_second.max(1)));
        let spread_ms = u64::from(spread_ms).max(least_ms);
        self.ends_at = Some(self.now_ms() + spread_ms + u64::from(linger) + GRACE_MS);
        let spread_ms = u32::try_from(spread_ms).unwrap_or(u32::MAX);
        self.threads.tell(&Order::Drain(spread_ms, per_second));
    }

    // The control plane's connection.

    fn welcome(&mut self) {
        let socket = match sys::accept_unix(self.door.as_raw_fd()) {
            Ok(socket) => socket,
            Err(error) if sys::exhausted(&error) => return self.shut_door(),
            Err(_) => return,
        };
        if let Some(plane) = self.plane.as_mut().filter(|plane| plane.greeted) {
            // The newest wins: that is how a control plane is upgraded. It must say hello first.
            Event::Refused("replaced").encode(&mut plane.outgoing);
            self.flush();
        }
        self.cut_off("another control plane came");
        if self.epoll.add(socket.as_raw_fd(), sys::READ, PLANE).is_ok() {
            self.plane = Some(Plane {
                socket,
                greeted: false,
                incoming: Vec::new(),
                outgoing: Vec::new(),
                sent: 0,
                descriptors: VecDeque::new(),
                blocked: false,
                published: 0,
                wants_counters: false,
                readers_told: 0,
            });
        }
    }

    /// Descriptors ran out: who stands before the door would wake us without end.
    fn shut_door(&mut self) {
        self.door_shut = self.epoll.remove(self.door.as_raw_fd()).is_ok();
    }

    fn open_door(&mut self) {
        if self.door_shut {
            self.door_shut = self.epoll.add(self.door.as_raw_fd(), sys::READ, DOOR).is_err();
        }
    }

    fn cut_off(&mut self, why: &str) {
        let Some(plane) = self.plane.take() else {
            return;
        };
        for (_, socket) in &plane.descriptors {
            self.turn_away(socket);
        }
        if plane.greeted {
            eprintln!("the control plane is gone: {why}");
            self.alone_since = self.now_ms();
            self.threads.tell(&Order::Detached);
        }
    }

    fn on_plane(&mut self, ready: u32, buffer: &mut [u8]) {
        if ready & sys::WRITE != 0
            && let Some(plane) = self.plane.as_mut()
        {
            plane.unblock(&self.epoll);
            self.flush();
        }
        if ready & (sys::READ | sys::DEAD) == 0 {
            return;
        }
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        match sys::receive(plane.socket.as_raw_fd(), buffer) {
            Ok(0) => self.cut_off("it hung up"),
            Ok(count) => {
                plane.incoming.extend_from_slice(&buffer[..count]);
                self.obey_all();
            }
            Err(error) if sys::would_block(&error) => {}
            Err(error) => self.cut_off(&error.to_string()),
        }
    }

    fn obey_all(&mut self) {
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        let incoming = std::mem::take(&mut plane.incoming);
        let mut at = 0;
        let mut result = Ok(());
        while result.is_ok() && self.plane.is_some() {
            match control::split(&incoming[at..]) {
                Ok(Some((kind, body, used))) => {
                    at += used;
                    result = self.obey(kind, body);
                }
                Ok(None) => break,
                Err(malformed) => result = Err(malformed),
            }
        }
        match (result, self.plane.as_mut()) {
            (Ok(()), Some(plane)) => plane.incoming.extend_from_slice(&incoming[at..]),
            (Ok(()), None) => {}
            (Err(malformed), plane) => {
                let why = malformed.to_string();
                if let Some(plane) = plane {
                    Event::Refused(&why).encode(&mut plane.outgoing);
                }
                self.flush();
                self.cut_off(&why);
            }
        }
    }

    fn obey(&mut self, kind: u8, body: &[u8]) -> Result<(), Malformed> {
        let greeted = self.plane.as_ref().is_some_and(|plane| plane.greeted);
        let command = Command::decode(kind, body)?;
        if matches!(command, Command::Hello { .. }) == greeted {
            return Err(Malformed::Value("hello, which comes first and once"));
        }
        match command {
            Command::Hello { version } => return self.attach(version),
            Command::Settings(settings) => self.settle(Policy::new(*settings)),
            Command::Publish { number, topic, message } => {
                let publication =
                    Publication::new(self.name(topic.name), TopicPolicy::from(&topic), &message);
                self.threads.tell(&Order::Publish(number, Arc::new(publication)));
            }
            Command::Seed { topic, complete, history, latest } => {
                let name = self.name(topic.name);
                let policy = TopicPolicy::from(&topic);
                let made = |all: Vec<control::Message<'_>>| {
                    let made = all.iter().map(|one| Publication::new(name.clone(), policy, one));
                    made.map(Arc::new).collect()
                };
                let (history, latest) = (made(history), made(latest));
                let seed = Seed { topic: name.clone(), policy, complete, history, latest };
                self.threads.tell(&Order::Seed(Arc::new(seed)));
            }
            Command::Subscribe(control::Subscribe { connection, .. })
            | Command::History(control::History { connection, .. })
            | Command::Unsubscribe { connection, .. }
            | Command::Reply { connection, .. }
            | Command::Close { connection, .. } => self.pass_on(connection, kind, body),
            Command::Remember(blob) => self.blob = blob.to_vec(),
            Command::Drain { spread_ms, per_second } => self.drain(spread_ms, per_second),
            Command::Count => self.send_counters(),
        }
        Ok(())
    }

    /// A topic's name to be shared.
    fn name(&mut self, name: &str) -> Arc<str> {
        if *self.name != *name {
            self.name = name.into();
        }
        self.name.clone()
    }

    fn pass_on(&mut self, connection: ConnectionId, kind: u8, body: &[u8]) {
        if let Some(pending) = self.threads.pending.get_mut(usize::from(connection.thread)) {
            pending.push(Order::Command(kind, body.into()));
        }
    }

    fn attach(&mut self, version: u16) -> Result<(), Malformed> {
        if version != control::VERSION {
            return Err(Malformed::Value("version"));
        }
        self.attachments += 1;
        eprintln!("control plane {} attached", self.attachments);
        let attached = Event::Attached {
            pid: std::process::id(),
            attachment: self.attachments,
            readers: self.threads.readers(),
            ports: &self.threads.ports,
            blob: &self.blob,
        };
        if let Some(plane) = self.plane.as_mut() {
            plane.greeted = true;
            plane.wants_counters = true;
            attached.encode(&mut plane.outgoing);
        }
        // Numbers of publications begin anew.
        self.published.fill(0);
        self.threads.tell(&Order::Attached(self.attachments));
        Ok(())
    }

    fn settle(&mut self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy = Some(policy.clone());
        self.threads.tell(&Order::Policy(policy));
        if self.plane.as_mut().is_some_and(|plane| std::mem::take(&mut plane.wants_counters)) {
            self.send_counters();
        }
    }

    fn send_counters(&mut self) {
        let threads: Vec<&Counters> = self.threads.counters.iter().collect();
        let counters = counters::report(&threads, self.draining);
        self.send(&Event::Counters(&counters));
        if let Some(plane) = self.plane.as_mut() {
            plane.readers_told = self.threads.readers();
        }
    }

    fn send(&mut self, event: &Event<'_>) {
        if let Some(plane) = self.plane.as_mut().filter(|plane| plane.greeted) {
            event.encode(&mut plane.outgoing);
        }
    }

    // What comes from the threads.

    fn on_reports(&mut self, reports: &mut Vec<Report>) {
        self.threads.reports.take(reports);
        let mut verbs = Vec::new();
        for report in reports.drain(..) {
            match report {
                // What was asked in an earlier attachment is asked again by its thread.
                Report::Verb(attachment, name, verb) if attachment == self.attachments => {
                    verbs.push((name, verb));
                }
                Report::Uncovered(attachment, connection, token, why)
                    if attachment == self.attachments =>
                {
                    self.send(&Event::Uncovered { connection, token, why });
                }
                Report::Published(attachment, thread, number) if attachment == self.attachments => {
                    self.published[usize::from(thread)] = number;
                }
                Report::Verb(..) | Report::Uncovered(..) | Report::Published(..) => {}
                Report::Gone => self.gone += 1,
            }
        }
        // A batch must stay below the longest message.
        for batch in verbs.chunks(256) {
            let batch: Vec<_> = batch.iter().map(|(name, verb)| (*name, &verb[..])).collect();
            self.send(&Event::Verbs(&batch));
        }
        self.send_published();
    }

    fn send_published(&mut self) {
        let published = self.published.iter().copied().min().unwrap_or(0);
        if let Some(plane) = self.plane.as_mut().filter(|plane| plane.greeted)
            && published > plane.published
        {
            plane.published = published;
            Event::Published(published).encode(&mut plane.outgoing);
        }
    }

    fn on_hatch(&mut self, number: usize) {
        let mut address = [0; 128];
        let Some(hatch) = self.threads.hatches.get(number) else {
            return;
        };
        let Ok((count, Some(socket))) = sys::receive_descriptor(hatch.as_raw_fd(), &mut address)
        else {
            return;
        };
        let address = String::from_utf8_lossy(&address[..count]);
        let readers = self.threads.readers();
        if self.plane.as_ref().is_some_and(|plane| plane.greeted && plane.readers_told != readers) {
            // The control plane lets readers in too: it must know whether there is room.
            self.send_counters();
        }
        let plane = self.plane.as_mut().filter(|plane| plane.greeted);
        match plane.filter(|plane| plane.descriptors.len() < DESCRIPTORS) {
            Some(plane) => {
                plane.descriptors.push_back((plane.outgoing.len(), socket));
                Event::Handover { address: &address }.encode(&mut plane.outgoing);
            }
            None => self.turn_away(&socket),
        }
    }

    fn turn_away(&self, socket: &OwnedFd) {
        let retry_after_ms = self.policy.as_ref().map_or(1_000, |it| it.settings.retry_after_ms);
        let mut answer = Vec::new();
        Refusal::NotNow { why: "control", retry_after_ms }.put(&mut answer);
        // A reader that doesn't take it has a full socket before the first answer: no loss.
        let _ = sys::send(socket.as_raw_fd(), &answer);
        sys::finish_writing(socket.as_raw_fd());
        // What was not read makes a close a reset, which destroys the answer. Requests are small.
        let mut request = [0; 16 * 1024];
        let _ = sys::receive(socket.as_raw_fd(), &mut request);
    }

    // What goes to the control plane.

    fn flush(&mut self) {
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        if !plane.blocked
            && let Err(error) = plane.flush()
        {
            return self.cut_off(&error.to_string());
        }
        let waiting = plane.outgoing.len() - plane.sent;
        if waiting > OUTGOING_BYTES {
            return self.cut_off("it doesn't read");
        }
        if plane.blocked != (waiting > 0) {
            plane.blocked = waiting > 0;
            let interest = if plane.blocked { sys::READ | sys::WRITE } else { sys::READ };
            if let Err(error) = self.epoll.modify(plane.socket.as_raw_fd(), interest, PLANE) {
                self.cut_off(&error.to_string());
            }
        }
    }
}

impl Plane {
    /// Send what the socket takes.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.outgoing.len() {
            let fd = self.socket.as_raw_fd();
            let mut places = self.descriptors.iter().map(|(at, _)| *at);
            let carried = places.next().filter(|at| *at == self.sent);
            // A descriptor goes with the first byte of its message, so a write ends before the next.
            let end = match carried {
                Some(_) => places.next(),
                None => self.descriptors.front().map(|(at, _)| *at),
            };
            let bytes = &self.outgoing[self.sent..end.unwrap_or(self.outgoing.len())];
            let sent = match (carried, self.descriptors.front()) {
                (Some(_), Some((_, passed))) => sys::send_descriptor(fd, bytes, passed.as_raw_fd()),
                _ => sys::send(fd, bytes),
            };
            match sent {
                Ok(sent) => {
                    if carried.is_some() {
                        self.descriptors.pop_front();
                    }
                    self.sent += sent;
                }
                Err(error) if sys::would_block(&error) => break,
                Err(error) => return Err(error),
            }
        }
        self.compact();
        Ok(())
    }

    /// There is room again.
    fn unblock(&mut self, epoll: &Epoll) {
        self.blocked = false;
        // It can only fail for want of memory; the socket is then written when there is news.
        let _ = epoll.modify(self.socket.as_raw_fd(), sys::READ, PLANE);
    }

    fn compact(&mut self) {
        if self.sent == self.outgoing.len() || self.sent > READ_BYTES {
            self.outgoing.drain(..self.sent);
            for (at, _) in &mut self.descriptors {
                *at -= self.sent;
            }
            self.sent = 0;
        }
    }
}
