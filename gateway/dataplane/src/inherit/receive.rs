//! The newer data plane's side, on each I/O thread: receive everything, then be a reactor.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::lane::{Receiver, malformed};
use super::lock;
use super::record::{Carried, CarriedExtra, CarriedWait, Record};
use crate::badge::Badge;
use crate::bucket::Bucket;
use crate::control::{Malformed, Message, Topic};
use crate::counters::Count;
use crate::frame::{Decoder, Rules};
use crate::head::Framing;
use crate::hub;
use crate::memory;
use crate::outbox::{self, Outbox};
use crate::policy::Policy;
use crate::publication::{Frame, Publication, TopicPolicy};
use crate::reactor::{Parts, Reactor};
use crate::slab::{Connection, Extra, Phase, Waiting, fresh};
use crate::sys;

/// A frame that was begun under other settings may be longer than today's allow.
const ANY_FRAME: Rules =
    Rules { frame_bytes: u32::MAX as usize, message_bytes: u32::MAX as usize, deflate: true };

/// What several threads refer to: whichever of the older one's threads came first gave it.
#[derive(Debug, Default)]
struct Shared {
    publications: HashMap<u32, Arc<Publication>>,
    frames: HashMap<u32, Frame>,
    /// A topic's name is in each of its messages.
    names: HashSet<Arc<str>>,
}

/// What the threads of one take-over have in common.
#[derive(Debug)]
pub struct Commons {
    lanes: usize,
    deadline: Instant,
    /// What has come, and on how many lanes no more comes.
    gathered: Mutex<(Shared, usize)>,
    complete: Condvar,
    shared: OnceLock<Shared>,
}

impl Commons {
    /// For so many threads.
    #[must_use]
    pub fn new(lanes: usize, deadline: Instant) -> Commons {
        Commons {
            lanes,
            deadline,
            gathered: Mutex::default(),
            complete: Condvar::new(),
            shared: OnceLock::new(),
        }
    }

    fn publication(&self, number: u32, topic: &Topic<'_>, message: &Message<'_>) {
        let (shared, _) = &mut *lock(&self.gathered);
        let name = shared.name(topic.name);
        shared.names.insert(name.clone());
        let publication = Arc::new(Publication::new(name, TopicPolicy::from(topic), message));
        shared.publications.insert(number, publication);
    }

    fn frame(&self, number: u32, bytes: &[u8]) {
        lock(&self.gathered).0.frames.insert(number, bytes.into());
    }

    /// No more comes on this lane; returns what has come on all, as soon as that is complete.
    fn all(&self) -> io::Result<&Shared> {
        let mut gathered = lock(&self.gathered);
        gathered.1 += 1;
        if gathered.1 == self.lanes {
            // Nobody else has set it: there is one last lane.
            let _ = self.shared.set(std::mem::take(&mut gathered.0));
            self.complete.notify_all();
        }
        loop {
            if let Some(shared) = self.shared.get() {
                return Ok(shared);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.complete.wait_timeout(gathered, left);
            gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn publications(&self, numbers: &[u32]) -> io::Result<Vec<Arc<Publication>>> {
        numbers.iter().map(|number| self.publication(*number)).collect()
    }

    fn publication(&self, number: u32) -> io::Result<Arc<Publication>> {
        self.publications.get(&number).cloned().ok_or_else(|| wrong("publication"))
    }

    fn name(&self, name: &str) -> Arc<str> {
        self.names.get(name).cloned().unwrap_or_else(|| name.into())
    }

    fn outbox(
        &self,
        extra: &CarriedExtra<'_>,
        limits: outbox::Limits,
        account: &mut outbox::Account,
    ) -> io::Result<Outbox> {
        let mut saved = outbox::Saved {
            entries: Vec::with_capacity(extra.frames.len()),
            written: extra.written as usize,
            soft_since: extra.soft_since,
        };
        for (number, publication) in &extra.frames {
            let frame = self.frames.get(number).cloned().ok_or_else(|| wrong("frame"))?;
            let publication = publication.map(|number| self.publication(number)).transpose()?;
            saved.entries.push((frame, publication));
        }
        Outbox::restore(limits, saved, account).ok_or_else(|| wrong("outbox"))
    }
}

fn wrong(what: &'static str) -> io::Error {
    malformed(Malformed::Value(what))
}

/// Everything that comes on a lane, as a thread that is ready to run. Nothing is served yet.
///
/// # Errors
/// What came is incomplete or wrong: the process must end, and the older one serves on.
pub fn receive(
    parts: Parts,
    policy: Arc<Policy>,
    lane: &mut Receiver,
    commons: &Commons,
) -> io::Result<Reactor> {
    let (Record::Thread { number, now_ms }, Some(listener)) = lane.record()? else {
        return Err(wrong("first record"));
    };
    if number != parts.number {
        return Err(wrong("thread"));
    }
    let reactor = Reactor::new(parts, listener, policy, now_ms)?;
    gather(lane, commons)?;
    Heir { reactor, shared: commons.all()?, topics: Vec::new() }.receive(lane)
}

fn gather(lane: &mut Receiver, commons: &Commons) -> io::Result<()> {
    loop {
        match lane.record()?.0 {
            Record::Publication { number, topic, message } => {
                commons.publication(number, &topic, &message);
            }
            Record::Frame { number, bytes } => commons.frame(number, bytes),
            Record::Shared => return Ok(()),
            _ => return Err(wrong("order of records")),
        }
    }
}

impl Reactor {
    /// Everything is ours: let readers in, unless they were not let in before.
    pub(super) fn begin_to_serve(&mut self) {
        // No settings that were ever sent have a heartbeat of 0.
        if self.settings().heartbeat_ms > 0 {
            self.listen();
        }
    }
}

/// A thread while it is put together.
struct Heir<'a> {
    reactor: Reactor,
    shared: &'a Shared,
    /// By place.
    topics: Vec<Arc<str>>,
}

impl Heir<'_> {
    fn receive(mut self, lane: &mut Receiver) -> io::Result<Reactor> {
        loop {
            match lane.record()? {
                (Record::Seen { start, identities }, _) => {
                    self.reactor.hub.restore_seen(start, &identities);
                }
                (Record::Topic { name, warm, complete, recent, latest }, _) => {
                    let recent = self.shared.publications(&recent)?;
                    let latest = self.shared.publications(&latest)?;
                    let name = self.shared.name(name);
                    let memory = memory::Saved { complete, recent, latest };
                    self.topics.push(name.clone());
                    if !self.reactor.hub.restore(hub::Saved { name, warm, memory }) {
                        return Err(wrong("topic, which came before"));
                    }
                }
                (Record::Free(generation), _) => self.reactor.slab.append_free(generation),
                (Record::Connection(carried), Some(socket)) => self.connection(&carried, socket)?,
                (Record::Badge { user, issued_ms, expires_ms, blob }, _) => {
                    self.badge(Badge::new(user, issued_ms, expires_ms, blob))?;
                }
                (Record::End(count), _) if count as usize == self.reactor.slab.len() => {
                    return Ok(self.reactor);
                }
                _ => return Err(wrong("order of records")),
            }
        }
    }

    fn connection(&mut self, carried: &Carried<'_>, socket: OwnedFd) -> io::Result<()> {
        let extra = match &carried.extra {
            Some(extra) => Some(Box::new(self.extra(extra)?)),
            None => None,
        };
        let blocked = extra.as_ref().is_some_and(|extra| !extra.outbox.is_empty());
        let decoder = Decoder::restore(carried.decoder, &ANY_FRAME).map_err(|_| wrong("frame"))?;
        let reactor = &mut self.reactor;
        let fd = socket.into_raw_fd();
        let slot = reactor.slab.append(Connection {
            phase: carried.phase,
            framing: carried.framing,
            deflate: carried.deflate,
            blocked,
            low_water: carried.low_water,
            heard: carried.heard,
            bucket: Bucket::from_bits(carried.bucket),
            decoder,
            extra,
            ..fresh(fd, carried.generation)
        });
        let interest = if blocked { sys::READ | sys::WRITE } else { sys::READ };
        reactor.epoll.add(fd, interest, Reactor::epoll_token(slot, carried.generation))?;
        if let Some(due) = carried.timer {
            reactor.wheel.set(slot, due);
        }
        if let Some(address) = carried.counted {
            // It was let in before.
            reactor.parts.addresses.enter(address, u32::MAX);
            reactor.counted.insert(slot, address);
        }
        self.subscriptions(slot, &carried.topics)?;
        self.count(carried);
        Ok(())
    }

    /// It is the badge of the last connection. When it runs out its timer knows, which came before.
    fn badge(&mut self, badge: Badge) -> io::Result<()> {
        let last = self.reactor.slab.slots().checked_sub(1).ok_or_else(|| wrong("badge"))?;
        if self.reactor.slab.at(last).phase != Phase::Open {
            return Err(wrong("badge"));
        }
        self.reactor.badges.pin(last, badge);
        Ok(())
    }

    fn extra(&mut self, carried: &CarriedExtra<'_>) -> io::Result<Extra> {
        let limits = outbox::Limits::of(self.reactor.settings());
        let outbox = self.shared.outbox(carried, limits, &mut self.reactor.account)?;
        let mut extra = Extra::new(outbox);
        // Whoever takes nothing gets the time anew.
        extra.taken_ms = self.reactor.now_ms;
        extra.asked = carried.asked.map(Box::from);
        self.reactor.held_bytes += carried.asked.map_or(0, <[u8]>::len);
        extra.ping = carried.ping.map(Box::from);
        extra.proxied = carried.proxied;
        for wait in &carried.waiting {
            extra.waiting.push_back(match wait {
                CarriedWait::Verb(verb) => {
                    extra.waiting_bytes += verb.len();
                    Waiting::Verb((*verb).into())
                }
                CarriedWait::Refusal => Waiting::Refusal,
                CarriedWait::HangUp => Waiting::HangUp,
            });
        }
        self.reactor.held_bytes += extra.waiting_bytes;
        Ok(extra)
    }

    fn subscriptions(&mut self, slot: u32, places: &[u32]) -> io::Result<()> {
        for place in places {
            let name = self.topics.get(*place as usize).ok_or_else(|| wrong("topic"))?;
            if self.reactor.hub.clash(slot, name, usize::MAX).is_some() {
                return Err(wrong("topic, which came before"));
            }
            self.reactor.hub.subscribe(slot, name);
        }
        Ok(())
    }

    /// What there is now. Totals begin at 0, because the process is another.
    fn count(&mut self, carried: &Carried<'_>) {
        let counters = self.reactor.counters();
        match (carried.phase, carried.framing) {
            (Phase::Open, Framing::Raw) => counters.add(Count::ReadersWebSocket),
            (Phase::Open, Framing::SockJs) => counters.add(Count::ReadersSockJs),
            (Phase::Closing(_), _) => counters.add(Count::Closing),
            (Phase::Head | Phase::Free, _) => {}
        }
        counters.connections.store(self.reactor.slab.len() as u64, Relaxed);
    }
}
