//! The thread that talks to the control plane: commands in, events out, descriptors with them.
//!
//! It holds no reader and no topic: commands are checked, and passed on to the I/O threads in the order in
//! which they come. A control plane that breaks the protocol, or doesn't read, is cut off; readers don't
//! notice. When there has been none for too long, readers are sent away.
//!
//! Whoever connects is a stranger until it has said what it is: `hello` makes it the control plane in
//! the place of the one before, `take_over` a newer data plane that gets everything.

mod handovers;
mod link;
mod reports;
mod strangers;
mod yielding;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::addresses::Addresses;
use crate::control::{self, Command, ConnectionId, Event, Malformed, Settings};
use crate::counters::{self, Counters};
use crate::delays::{Names, Stamp};
use crate::drain;
use crate::mailbox::Mailbox;
use crate::orders::{Eviction, Order, Report, Seed};
use crate::ping::Pulse;
use crate::policy::Policy;
use crate::publication::{Publication, TopicPolicy};
use crate::sys::{self, Epoll};

use handovers::Complaint;
use link::Link;
use strangers::Strangers;

/// What may wait for the control plane. All verbs that readers wait for, with their connections and
/// badges, must fit: they are asked at once when it attaches.
const OUTGOING_BYTES: usize = 192 << 20;
const READ_BYTES: usize = 256 * 1024;
const COUNTERS_MS: u64 = 1_000;
/// While the I/O threads have more than this to obey, the control plane has to wait: its answers can be
/// a megabyte each, and no outbox counts them yet.
const OWED_BYTES: u64 = 32 << 20;
const NAP: Duration = Duration::from_millis(1);
/// After everyone was told, a thread that doesn't end is not waited for longer than this.
const GRACE_MS: u64 = 2_000;

const DOOR: u64 = 0;
const PLANE: u64 = 1;
const REPORTS: u64 = 2;
const SIGNALS: u64 = 3;
const HATCHES: u64 = 16;
/// Strangers are numbered from here on.
const STRANGERS: u64 = 1 << 32;

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
    /// When the control plane was last heard.
    pub pulse: Arc<Pulse>,
    /// Connections by address.
    pub addresses: Arc<Addresses>,
    /// Ports of the listeners.
    pub ports: Vec<u16>,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back.
    pub echo: bool,
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

    /// How many readers they have.
    #[must_use]
    pub fn readers(&self) -> u32 {
        self.counters.iter().map(|one| one.readers()).sum::<u64>() as u32
    }
}

/// What outlives a data plane beside its readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heritage {
    /// How many control planes have attached.
    pub attachments: u32,
    /// The body of the last `settings`; empty if none came.
    pub settings: Vec<u8>,
    /// What was given to `remember`.
    pub blob: Vec<u8>,
}

impl Heritage {
    /// What the settings mean, if there are any.
    pub fn policy(&self) -> Result<Option<Policy>, Malformed> {
        if self.settings.is_empty() {
            return Ok(None);
        }
        Settings::decode(&self.settings).map(|settings| Some(Policy::new(settings)))
    }
}

/// How [`Attachment::run`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All readers were sent away.
    Drained,
    /// They are another data plane's, and so is the control socket.
    TakenOver,
}

/// The attached control plane.
struct Plane {
    link: Link,
    version: u16,
    published: u64,
    wants_counters: bool,
    /// As the last counters said.
    readers_told: u32,
    told: Vec<(String, u64)>,
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
    strangers: Strangers,
    heritage: Heritage,
    /// The last name of a topic: feeds are often of one topic for a while.
    name: Arc<str>,
    /// Up to which number each thread's fan-outs are over.
    published: Vec<u64>,
    /// What messages are measured under.
    series: Names,
    /// Of the next publish.
    stamp: Option<Stamp>,
    policy: Option<Arc<Policy>>,
    alone_since: u64,
    counters_at: u64,
    draining: bool,
    gone: usize,
    /// What was said last of requests that couldn't be handed over.
    complaint: Complaint,
    /// Drained or not, the process ends then.
    ends_at: Option<u64>,
    /// How many newer data planes have asked for everything.
    attempts: u32,
    /// How many threads have given everything in this attempt; none if one couldn't.
    given: Option<usize>,
    taken_over: bool,
    started: Instant,
}

impl Attachment {
    /// Listen on `door` for control planes. A data plane that wasn't taken over has no `heritage`.
    ///
    /// # Errors
    /// The system's, or `InvalidData` for settings that are none.
    pub fn new(
        door: OwnedFd,
        signals: OwnedFd,
        threads: Threads,
        heritage: Heritage,
    ) -> io::Result<Attachment> {
        let policy = heritage.policy().map_err(crate::inherit::malformed)?;
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
            strangers: Strangers::default(),
            heritage,
            name: "".into(),
            published,
            series: Names::default(),
            stamp: None,
            policy: policy.map(Arc::new),
            alone_since: 0,
            counters_at: 0,
            draining: false,
            gone: 0,
            complaint: Complaint::default(),
            ends_at: None,
            attempts: 0,
            given: Some(0),
            taken_over: false,
            started: Instant::now(),
        })
    }

    /// Serve until everyone is gone.
    pub fn run(mut self) -> io::Result<End> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut reports = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        while !self.is_over() {
            let wait = (self.counters_at + COUNTERS_MS).saturating_sub(self.now_ms());
            let count = self.epoll.wait(&mut events, wait as i32)?.len();
            for event in &events[..count] {
                let token = event.u64;
                match token {
                    DOOR => self.welcome(),
                    PLANE => self.on_plane(event.events, &mut buffer),
                    STRANGERS.. => self.on_stranger(token, &mut buffer),
                    REPORTS => self.on_reports(&mut reports),
                    SIGNALS => self.on_signal(),
                    _ => drop(self.on_hatch((token - HATCHES) as usize)),
                }
            }
            self.on_time();
            self.threads.deliver();
            self.flush();
        }
        crate::tell!(Info, "{}", if self.taken_over { "taken over" } else { "drained" });
        Ok(if self.taken_over { End::TakenOver } else { End::Drained })
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn is_over(&self) -> bool {
        let late = self.ends_at.is_some_and(|at| self.now_ms() >= at);
        self.taken_over || self.gone == self.threads.orders.len() || late
    }

    fn on_time(&mut self) {
        let now_ms = self.now_ms();
        if now_ms >= self.counters_at + COUNTERS_MS {
            self.counters_at = now_ms;
            self.send_changes();
            self.complain_of_handovers(now_ms);
            self.open_door();
        }
        self.strangers.forget_silent(now_ms);
        if let Some(policy) = self.policy.clone()
            && self.plane.is_none()
            && !self.draining
            && now_ms >= self.alone_since + u64::from(policy.settings.alone_ms)
        {
            crate::tell!(Warning, "no control plane for {} s", policy.settings.alone_ms / 1_000);
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
        crate::tell!(Info, "draining {} readers", self.threads.readers());
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

    fn cut_off(&mut self, why: &str) {
        if let Some(plane) = self.plane.take() {
            for socket in plane.link.waiting_sockets() {
                self.turn_away(socket);
            }
            self.threads.addresses.forget_handed_over();
            crate::tell!(Info, "the control plane is gone: {why}");
            self.alone_since = self.now_ms();
            self.threads.tell(&Order::Detached);
        }
    }

    fn on_plane(&mut self, ready: u32, buffer: &mut [u8]) {
        if ready & sys::WRITE != 0
            && let Some(plane) = self.plane.as_mut()
        {
            plane.link.unblock(&self.epoll);
            self.flush();
        }
        if ready & (sys::READ | sys::DEAD) == 0 {
            return;
        }
        if self.threads.counters.iter().map(Counters::owed).sum::<u64>() > OWED_BYTES {
            // epoll tells again that there is something to read.
            std::thread::sleep(NAP);
            return;
        }
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        match plane.link.receive(buffer) {
            Ok(()) => {
                self.threads.pulse.beat();
                self.obey_all();
            }
            Err(why) => self.cut_off(&why),
        }
    }

    fn obey_all(&mut self) {
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        let incoming = std::mem::take(&mut plane.link.incoming);
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
            (Ok(()), Some(plane)) => plane.link.incoming.extend_from_slice(&incoming[at..]),
            (Ok(()), None) => {}
            (Err(malformed), plane) => {
                let why = malformed.to_string();
                if let Some(plane) = plane {
                    plane.link.say(&Event::Refused(&why));
                }
                self.flush();
                self.cut_off(&why);
            }
        }
    }

    fn obey(&mut self, kind: u8, body: &[u8]) -> Result<(), Malformed> {
        match Command::decode(kind, body)? {
            Command::Settings(settings) => {
                self.heritage.settings = body.to_vec();
                self.settle(Policy::new(*settings));
            }
            Command::Stamp { published_ms, series } => {
                let published_us = published_ms.saturating_mul(1_000);
                let series = self.series.number(series);
                self.stamp = series.map(|series| Stamp { published_us, series });
            }
            Command::Publish { number, topic, message } => {
                let (name, policy) = (self.name(topic.name), TopicPolicy::from(&topic));
                let publication =
                    Publication::new(name, policy, &message).stamped(self.stamp.take());
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
            Command::Batch { number, topic, messages } => {
                let (name, policy) = (self.name(topic.name), TopicPolicy::from(&topic));
                let made = messages.iter().map(|one| Publication::new(name.clone(), policy, one));
                self.threads.tell(&Order::Batch(number, made.map(Arc::new).collect()));
            }
            Command::Subscribe(control::Subscribe { connection, .. })
            | Command::History(control::History { connection, .. })
            | Command::Unsubscribe { connection, .. }
            | Command::Reply { connection, .. }
            | Command::Badge(control::Badge { connection, .. })
            | Command::Close { connection, .. } => self.pass_on(connection, kind, body),
            Command::Remember(blob) => self.heritage.blob = blob.to_vec(),
            Command::Evict { reason, users } => {
                let users = users.into_iter().map(|(user, ms)| (user.to_owned(), ms)).collect();
                let eviction = Eviction { reason: reason.to_owned(), users };
                self.threads.tell(&Order::Evict(Arc::new(eviction)));
            }
            Command::Drain { spread_ms, per_second } => self.drain(spread_ms, per_second),
            Command::Shed { reason, count, retry_ms } => self.shed(reason, count, retry_ms),
            Command::Count => self.send_counters(),
            Command::Gone(address) => self.threads.addresses.gone(address),
            Command::Kept(all) => {
                for (address, count) in all {
                    self.threads.addresses.kept(address, count);
                }
            }
            Command::Hello { .. } | Command::TakeOver { .. } | Command::Commit => {
                return Err(Malformed::Value("hello, which comes first and once"));
            }
        }
        Ok(())
    }

    /// Each thread sends its share of `count` readers away.
    fn shed(&mut self, reason: &str, count: u32, retry_ms: u32) {
        let reason: Arc<str> = reason.into();
        let readers: Vec<u64> = self.threads.counters.iter().map(Counters::readers).collect();
        let shares = drain::shares(count, &readers);
        for (pending, share) in self.threads.pending.iter_mut().zip(shares) {
            if share > 0 {
                pending.push(Order::Shed(reason.clone(), share, retry_ms));
            }
        }
    }

    /// A topic's name to be shared.
    fn name(&mut self, name: &str) -> Arc<str> {
        if *self.name != *name {
            self.name = name.into();
        }
        self.name.clone()
    }

    fn pass_on(&mut self, connection: ConnectionId, kind: u8, body: &[u8]) {
        let thread = usize::from(connection.thread);
        if let Some(pending) = self.threads.pending.get_mut(thread) {
            self.threads.counters[thread].owe(body.len());
            pending.push(Order::Command(kind, body.into()));
        }
    }

    /// A stranger that has said `hello` is the control plane from now on.
    fn attach(&mut self, link: Link, version: u16) {
        if let Some(plane) = &mut self.plane {
            // The newest wins: that is how a control plane is upgraded.
            plane.link.say(&Event::Refused("replaced"));
            self.flush();
        }
        self.cut_off("another control plane came");
        if let Err(error) = self.epoll.modify(link.fd(), sys::READ, PLANE) {
            crate::tell!(Warning, "a control plane couldn't attach: {error}");
            return;
        }
        self.heritage.attachments += 1;
        crate::tell!(Info, "control plane {} attached", self.heritage.attachments);
        let mut plane = Plane {
            link,
            version,
            published: 0,
            wants_counters: true,
            readers_told: 0,
            told: Vec::new(),
        };
        plane.link.say(&Event::Attached {
            version,
            pid: std::process::id(),
            attachment: self.heritage.attachments,
            readers: self.threads.readers(),
            ports: &self.threads.ports,
            blob: &self.heritage.blob,
        });
        self.plane = Some(plane);
        self.stamp = None;
        // Numbers of publications begin anew.
        self.published.fill(0);
        self.threads.tell(&Order::Attached(self.heritage.attachments));
        self.obey_all();
    }

    fn settle(&mut self, policy: Policy) {
        let policy = Arc::new(policy);
        self.policy = Some(policy.clone());
        self.threads.tell(&Order::Policy(policy));
        if self.plane.as_mut().is_some_and(|plane| std::mem::take(&mut plane.wants_counters)) {
            self.send_counters();
        }
    }

    /// All counters, changed or not.
    fn send_counters(&mut self) {
        if let Some(plane) = self.plane.as_mut() {
            plane.told.clear();
        }
        self.send_changes();
    }

    /// The counters that have changed since the last time; nothing if none has.
    fn send_changes(&mut self) {
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        let threads: Vec<&Counters> = self.threads.counters.iter().collect();
        plane.readers_told = self.threads.readers();
        let handed_over = self.threads.addresses.handed_over();
        let counters = counters::report(&threads, &self.series, self.draining, handed_over);
        let changes = counters::changes(&plane.told, &counters);
        if !changes.is_empty() {
            plane.link.say(&Event::Counters(&changes));
        }
        plane.told = counters;
    }

    fn send(&mut self, event: &Event<'_>) {
        if let Some(plane) = &mut self.plane {
            plane.link.say(event);
        }
    }

    // What goes to the control plane.

    fn flush(&mut self) {
        let Some(plane) = self.plane.as_mut() else {
            return;
        };
        let link = &mut plane.link;
        if !link.blocked
            && let Err(error) = link.flush()
        {
            return self.cut_off(&error.to_string());
        }
        let waiting = link.waiting();
        if waiting > OUTGOING_BYTES {
            return self.cut_off("it doesn't read");
        }
        if link.blocked != (waiting > 0) {
            link.blocked = waiting > 0;
            let interest = if link.blocked { sys::READ | sys::WRITE } else { sys::READ };
            if let Err(error) = self.epoll.modify(link.fd(), interest, PLANE) {
                self.cut_off(&error.to_string());
            }
        }
    }
}
