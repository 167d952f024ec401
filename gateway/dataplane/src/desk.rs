//! Orders carried out: what the control plane decided, done to this thread's readers and its hub.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::badge::Badge;
use crate::control::{self, Command, ConnectionId, History, Message, Replay, Subscribe, Uncovered};
use crate::counters::Count;
use crate::drain::Pace;
use crate::fanout::Chunk;
use crate::head::Framing;
use crate::hub::{Clash, Limits, Offer};
use crate::orders::{Eviction, Order, Report, Seed};
use crate::policy::error_push;
use crate::publication::{FrameMaker, Publication, TopicPolicy};
use crate::reactor::{Reactor, unix_ms, unix_us};
use crate::slab::Phase;
use crate::sys::MOST_SENDS;
use crate::writer::Offers;

/// Batches that are kept; the control plane counts on it.
const MOST_BATCHES: usize = 32;

impl Reactor {
    pub(crate) fn obey(&mut self, order: Order) {
        match order {
            Order::Policy(policy) => {
                self.hub.set_limits(Limits::of(&policy.settings));
                self.maker = FrameMaker::new(&policy.settings);
                self.policy = policy;
                self.renew_budget();
                self.listen();
            }
            Order::Attached(attachment) => {
                self.attachment = attachment;
                self.batches.clear();
                self.ask_again();
            }
            Order::Detached => self.attachment = 0,
            Order::Publish(number, publication) => self.publish(number, &publication),
            Order::Seed(seed) => {
                let Seed { topic, policy, complete, history, latest } = &*seed;
                self.hub.seed(topic, *policy, *complete, history, latest, unix_ms());
            }
            Order::Batch(number, batch) => {
                if self.batches.len() >= MOST_BATCHES {
                    self.batches.pop_front();
                }
                self.batches.push_back((number, batch));
            }
            Order::Command(kind, body) => {
                // It was decoded before, on the way here.
                if let Ok(command) = Command::decode(kind, &body) {
                    self.serve(command);
                }
                self.counters().obeyed(body.len());
            }
            Order::Evict(eviction) => self.evict(&eviction),
            Order::Drain(spread_ms, per_second) => self.start_drain(spread_ms, per_second),
            Order::Shed(reason, count, retry_ms) => self.shed(&reason, count, retry_ms),
            Order::Yield(yielding) => self.yield_to(&yielding),
        }
    }

    fn serve(&mut self, command: Command<'_>) {
        match command {
            Command::Subscribe(subscribe) => self.subscribe(&subscribe),
            Command::History(history) => self.history(&history),
            Command::Unsubscribe { connection, topic, push } => {
                if let Some(slot) = self.open(connection) {
                    self.hub.unsubscribe(slot, topic);
                    self.reply(slot, push);
                }
            }
            Command::Reply { connection, push } => {
                if let Some(slot) = self.open(connection) {
                    self.reply(slot, push);
                }
            }
            Command::Badge(badge) => {
                if let Some(slot) = self.open(badge.connection) {
                    self.pin_on(slot, &badge);
                    self.reply(slot, badge.push);
                }
            }
            Command::Close { connection, reason, retry_after_ms } => {
                if let Some(slot) = self.open(connection) {
                    self.close(slot, reason, Some(retry_after_ms));
                }
            }
            _ => {}
        }
    }

    /// The slot of a connection that is still that one, and open.
    fn open(&mut self, name: ConnectionId) -> Option<u32> {
        let connection = self.slab.find(name.slot, name.generation)?;
        (connection.phase == Phase::Open).then_some(name.slot)
    }

    fn reply(&mut self, slot: u32, push: &[u8]) {
        self.push(slot, &String::from_utf8_lossy(push));
        self.answered(slot);
    }

    fn pin_on(&mut self, slot: u32, badge: &control::Badge<'_>) {
        self.badges.pin(slot, Badge::of(badge));
        // An earlier beat does no harm, and a badge that runs out sooner must not wait for a later.
        if let (Some(beat), Some(end)) = (self.wheel.due_ms(slot), self.badge_ends_ms(slot)) {
            self.wheel.set(slot, beat.min(end));
        }
    }

    /// One look at every badge, however many users they are.
    fn evict(&mut self, eviction: &Eviction) {
        let gone = self.badges.all().filter(|(_, badge)| {
            let until = eviction.users.get(badge.user());
            until.is_some_and(|until| badge.issued_ms() <= *until)
        });
        for slot in gone.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(slot, &eviction.reason, None);
        }
    }

    fn publish(&mut self, number: u64, publication: &Arc<Publication>) {
        let mark = (self.attachment, number);
        match self.hub.publish(publication, unix_ms()) {
            Offer::Readers(cursor) => self.fanout.publish(publication, cursor, mark),
            Offer::Nobody => self.fanout.skip(mark),
            Offer::Copy => return self.fanout.skip(mark),
        }
        let publications = &self.counters().publications;
        publications.store(publications.load(Relaxed) + 1, Relaxed);
    }

    fn subscribe(&mut self, verb: &Subscribe<'_>) {
        let Some(slot) = self.open(verb.connection) else {
            return;
        };
        let (name, policy) = (verb.topic.name, TopicPolicy::from(&verb.topic));
        let most = self.settings().topics as usize;
        if let Some(clash) = self.hub.clash(slot, name, most) {
            return self.refuse_topic(slot, verb, clash);
        }
        let older = match verb.replay {
            Replay::Given(number) if number > 0 => {
                let found = self.batches.iter().find(|(known, _)| *known == number);
                let Some((_, batch)) = found else {
                    return self.uncovered(slot, verb.token, Uncovered::Short);
                };
                batch.clone()
            }
            _ => self.made(name, policy, &verb.older),
        };
        let only = verb.only_if_covered;
        match self.hub.rewind(name, policy, verb.replay, &older, only, unix_ms()) {
            Ok(replay) => {
                self.hub.subscribe(slot, name);
                self.push(slot, &String::from_utf8_lossy(verb.push));
                // Whoever gave them knows how much that is, and has told the reader what it is worth.
                let whole = matches!(verb.replay, Replay::Given(_));
                let most = if whole { usize::MAX } else { self.settings().replay_bytes as usize };
                self.replay(slot, &replay, most);
                self.answered(slot);
            }
            Err(why) => self.uncovered(slot, verb.token, why),
        }
    }

    fn made(
        &self,
        name: &str,
        policy: TopicPolicy,
        messages: &[Message<'_>],
    ) -> Arc<[Arc<Publication>]> {
        let topic: Arc<str> = name.into();
        let made = messages.iter().map(|one| Publication::new(topic.clone(), policy, one));
        made.map(Arc::new).collect()
    }

    fn refuse_topic(&mut self, slot: u32, verb: &Subscribe<'_>, clash: Clash) {
        let (code, reason, count) = match clash {
            Clash::AlreadySubscribed => (105, "already subscribed".to_owned(), Count::Error105),
            Clash::TooMany => {
                (106, format!("at most {} topics", self.settings().topics), Count::Error106)
            }
        };
        self.count(count);
        let reference = String::from_utf8_lossy(verb.reference);
        let push = error_push(&reference, verb.topic.name, code, &reason, false);
        self.reply(slot, push.as_bytes());
    }

    /// Send messages that were asked for: none of them is dropped or conflated.
    fn replay(&mut self, slot: u32, replay: &[Arc<Publication>], most: usize) {
        let connection = self.slab.at(slot);
        let (framing, deflate) = (connection.framing, connection.deflate);
        let mut size = 0;
        let mut first = replay.len();
        while first > 0 {
            size += replay[first - 1].frame(framing, None, &mut self.maker).len();
            if size > most {
                break;
            }
            first -= 1;
        }
        let found = &replay[first..];
        if found.is_empty() || self.slab.at(slot).phase != Phase::Open {
            return;
        }
        let mut done = 0;
        if !self.slab.at(slot).blocked {
            let mut bytes = Vec::with_capacity(size);
            for one in found {
                bytes.extend_from_slice(one.frame(framing, deflate, &mut self.maker));
            }
            match self.send_now(slot, &bytes) {
                Some(sent) => done = sent,
                None => return,
            }
        }
        // What the kernel doesn't take waits as the frames that others wait for too.
        for one in found {
            let frame = one.frame(framing, deflate, &mut self.maker).clone();
            if done >= frame.len() {
                done -= frame.len();
            } else if self.slab.at(slot).phase != Phase::Open {
                return;
            } else if self.slab.at(slot).blocked {
                self.queue_firm(slot, frame);
            } else {
                self.keep_rest(slot, frame, std::mem::take(&mut done));
            }
        }
    }

    fn history(&mut self, verb: &History<'_>) {
        let Some(slot) = self.open(verb.connection) else {
            return;
        };
        let limit = usize::from(verb.limit);
        match self.hub.history(verb.topic.name, limit, verb.before.as_ref(), unix_ms()) {
            Ok(found) => self.send_history(slot, verb.head, &found, limit),
            Err(why) => self.uncovered(slot, verb.token, why),
        }
    }

    fn send_history(&mut self, slot: u32, head: &[u8], found: &[Arc<Publication>], limit: usize) {
        let most = self.settings().replay_bytes as usize;
        let mut size = 0;
        let fitting = found.iter().rev().take_while(|one| {
            size += one.push().len();
            size <= most
        });
        let fitting = &found[found.len() - fitting.count()..];
        let more = found.len() >= limit || fitting.len() < found.len();
        let mut push = head.to_vec();
        push.extend_from_slice(if more { b"true" } else { b"false" });
        push.extend_from_slice(b",\"messages\":[");
        for (index, one) in fitting.iter().enumerate() {
            if index > 0 {
                push.push(b',');
            }
            push.extend_from_slice(one.push());
        }
        push.extend_from_slice(b"]}");
        self.reply(slot, &push);
    }

    /// The control plane keeps no verb: it is told again which one that was.
    fn uncovered(&mut self, slot: u32, token: u32, why: Uncovered) {
        let asked = self.slab.at(slot).extra.as_ref().and_then(|extra| extra.asked.clone());
        if let Some(verb) = asked {
            let name = self.name_of(slot);
            let report = Report::Uncovered(self.attachment, name, token, why, verb);
            self.tell(report);
        }
    }

    fn start_drain(&mut self, spread_ms: u32, per_second: u32) {
        if self.drain.is_none() {
            let readers = self.counters().readers();
            self.drain = Some(Pace::new(readers, self.now_ms, spread_ms, per_second));
        }
    }

    /// Of what is under way as many sends as one turn has, of one topic or of several.
    pub(crate) fn send_some(&mut self) {
        let mut left = self.settings().fanout_chunk as usize;
        let mut chunk = std::mem::take(&mut self.chunk);
        while left > 0 && self.fanout.next_chunk(&mut self.hub, left, &mut chunk) {
            self.send_chunk(&chunk);
            left = left.saturating_sub(chunk.slots.len().max(1));
        }
        self.chunk = chunk;
        if let Some((attachment, number)) = self.fanout.take_reached() {
            let report = Report::Published(attachment, self.parts.number, number);
            self.tell(report);
        }
    }

    fn send_chunk(&mut self, chunk: &Chunk) {
        let all = &chunk.publications[..];
        let together = self.put_together(chunk);
        let (mut raw, mut sockjs, mut held) = (0, 0, 0);
        for slots in chunk.slots.chunks(MOST_SENDS) {
            let mut offers = Offers::default();
            for &slot in slots {
                let connection = self.slab.at(slot);
                if connection.phase != Phase::Open {
                    continue;
                }
                let (framing, deflate) = (connection.framing, connection.deflate);
                match framing {
                    Framing::Raw => raw += 1,
                    Framing::SockJs => sockjs += 1,
                }
                let bytes = match all {
                    [one] => &one.frame(framing, deflate, &mut self.maker)[..],
                    _ if deflate.is_none() => together.of(framing),
                    _ => &[],
                };
                if connection.blocked || bytes.is_empty() {
                    held += 1;
                    self.keep(slot, all, 0);
                } else {
                    offers.add(slot, connection.fd, bytes);
                }
            }
            for (slot, send) in offers.made(&mut self.sender) {
                match self.taken(slot, send.taken) {
                    Some(sent) if sent == send.bytes.len() => continue,
                    Some(sent) => self.keep(slot, all, sent),
                    None => {}
                }
                held += 1;
            }
        }
        let many = all.len() as u64;
        self.counters().add_many(Count::DeliveriesWebSocket, raw * many);
        self.counters().add_many(Count::DeliveriesSockJs, sockjs * many);
        self.counters().add_many(Count::HeldDeliveries, held * many);
        self.measure(all, raw + sockjs - held);
    }

    /// The frames of several publications put together, for each framing that some reader has.
    fn put_together(&mut self, chunk: &Chunk) -> Together {
        let mut together = Together::default();
        if let [_, _, ..] = chunk.publications[..] {
            for slot in &chunk.slots {
                let framing = self.slab.at(*slot).framing;
                together.put(framing, &chunk.publications, &mut self.maker);
            }
        }
        together
    }

    /// So many readers' sockets have just taken all of these. One look at the clock serves them all.
    fn measure(&self, publications: &[Arc<Publication>], readers: u64) {
        if readers == 0 {
            return;
        }
        let now_us = unix_us();
        for stamp in publications.iter().filter_map(|one| one.stamp()) {
            self.counters().delays.delivered(stamp, now_us, readers);
        }
    }

    /// Keep for a reader what its socket didn't take of these, of which it took the first `done` bytes.
    fn keep(&mut self, slot: u32, all: &[Arc<Publication>], mut done: usize) {
        let connection = self.slab.at(slot);
        let (framing, deflate) = (connection.framing, connection.deflate);
        for one in all {
            let frame = one.frame(framing, deflate, &mut self.maker);
            if done >= frame.len() {
                done -= frame.len();
            } else if self.slab.at(slot).phase != Phase::Open {
                return;
            } else if self.slab.at(slot).blocked {
                self.queue(slot, frame, one);
            } else {
                self.keep_rest(slot, frame.clone(), std::mem::take(&mut done));
            }
        }
    }
}

/// The frames of a batch put together, for each framing once.
#[derive(Default)]
struct Together {
    raw: Vec<u8>,
    sockjs: Vec<u8>,
}

impl Together {
    fn put(&mut self, framing: Framing, all: &[Arc<Publication>], maker: &mut FrameMaker) {
        let bytes = match framing {
            Framing::Raw => &mut self.raw,
            Framing::SockJs => &mut self.sockjs,
        };
        if bytes.is_empty() {
            for one in all {
                bytes.extend_from_slice(one.frame(framing, None, maker));
            }
        }
    }

    fn of(&self, framing: Framing) -> &[u8] {
        match framing {
            Framing::Raw => &self.raw,
            Framing::SockJs => &self.sockjs,
        }
    }
}
