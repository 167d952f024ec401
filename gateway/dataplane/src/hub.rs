//! The hub of one I/O thread: topic → readers, recent messages, identities seen. Pure.
//!
//! A publication is offered once per copy and published once: [`Hub::publish`] says
//! [`Offer::Copy`] for the others. What it says for the first is a [`Cursor`] over those who are
//! subscribed at that moment: read it to its end with [`Hub::readers`], in as many pieces as you
//! like, the cursors of one topic in their order. Together with commands obeyed in their order
//! that makes "each topic in the order of arrival, nobody twice" true.
//!
//! A `subscribe` is: [`Hub::clash`]; [`Hub::rewind`] for what is replayed, or why it can't be;
//! [`Hub::subscribe`]; all without another command in between.
//!
//! Not here: frames and sockets, streams and positions (the control plane's), reading the store.
//! `now` is in ms since the epoch throughout, because messages expire at a time of day.
//!
//! The decision to question: every I/O thread has a hub of its own and is offered everything. So
//! nothing is locked and nothing is asked of another thread, and a subscribe is answered between
//! the same two publications for memory and for the audience. Publications are shared by all
//! threads; what each has for itself is a pointer and an identity per remembered message (about
//! 50 bytes), and up to 21 bytes per identity seen.

mod saved;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::audience::Audience;
use crate::control::{Replay, Settings, Uncovered};
use crate::identities::SeenIdentities;
use crate::memory::{Selection, TopicMemory};

pub use crate::audience::Cursor;
pub use crate::publication::{Frame, FrameMaker, Publication, TopicPolicy};
pub use saved::Saved;

/// What a hub remembers, at most.
///
/// At `topics` or `bytes` the topics that nobody is subscribed to are forgotten, the least
/// recently used first; when there are none, nothing is kept of new topics, and a topic that
/// grows loses its oldest messages. At `keys` a topic forgets the key renewed longest ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Topics.
    pub topics: usize,
    /// Weight of all messages.
    pub bytes: usize,
    /// Keys of one topic.
    pub keys: usize,
    /// Identities seen.
    pub identities: usize,
    /// How long those are remembered.
    pub identity_ms: u64,
}

impl Limits {
    /// Those of the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Limits {
        Limits {
            topics: settings.hub_topics as usize,
            bytes: settings.hub_bytes as usize,
            keys: settings.hub_keys as usize,
            identities: settings.identities as usize,
            identity_ms: settings.identity_ms.into(),
        }
    }
}

/// What came of a publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer {
    /// It was published before.
    Copy,
    /// It is news, but none of this thread's readers wants it.
    Nobody,
    /// Send it to these.
    Readers(Cursor),
}

/// Why a reader can't have a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// It has it: error 105.
    AlreadySubscribed,
    /// It has too many: error 106.
    TooMany,
}

#[derive(Debug, Default)]
struct Topic {
    memory: TopicMemory,
    /// Whether the control plane has said what came before.
    warm: bool,
    /// Its place among the idle; none while it has readers.
    idle: Option<u64>,
}

/// All topics of one I/O thread.
#[derive(Debug)]
pub struct Hub {
    limits: Limits,
    audience: Audience,
    seen: SeenIdentities,
    topics: HashMap<Arc<str>, Topic>,
    /// Those without readers, least recently used first.
    idle: BTreeMap<u64, Arc<str>>,
    uses: u64,
    memory_bytes: usize,
    copies: u64,
}

impl Hub {
    /// One that knows nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Hub {
        Hub {
            limits,
            audience: Audience::default(),
            seen: SeenIdentities::new(limits.identity_ms, limits.identities),
            topics: HashMap::new(),
            idle: BTreeMap::new(),
            uses: 0,
            memory_bytes: 0,
            copies: 0,
        }
    }

    /// Other limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.seen.set_limits(limits.identity_ms, limits.identities);
        self.make_room(None);
    }

    /// How many topics are remembered.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics.len()
    }

    /// What is remembered, in bytes, roughly.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// How many identities are remembered.
    #[must_use]
    pub fn identities(&self) -> usize {
        self.seen.len()
    }

    /// How many copies were dropped.
    #[must_use]
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// How many identities were forgotten before their time, because they were too many.
    #[must_use]
    pub fn evicted_early(&self) -> u64 {
        self.seen.evicted_early()
    }

    /// Offer a publication: remember it, and say who gets it.
    pub fn publish(&mut self, publication: &Arc<Publication>, now: u64) -> Offer {
        let identity = publication.identity();
        // A quiet topic remembers messages for longer than the window lasts.
        let held = |topic: &Topic| topic.memory.holds(publication);
        let topic = self.topics.get(publication.topic());
        if self.seen.contains(&identity) || topic.is_some_and(held) {
            self.copies += 1;
            return Offer::Copy;
        }
        self.seen.add(&identity, now);
        self.remember(publication);
        self.audience.open(publication.topic()).map_or(Offer::Nobody, Offer::Readers)
    }

    /// Append the next readers of a publication to `slots`, at most `most`; false if that was all.
    ///
    /// After false the cursor is used up. One that isn't read to its end keeps room occupied.
    pub fn readers(&mut self, cursor: &Cursor, most: usize, slots: &mut Vec<u32>) -> bool {
        self.audience.read(cursor, most, slots)
    }

    /// Let `first` serve the readers of `other` too, if they are the same and neither was read yet;
    /// else false. `other` is used up then.
    pub fn join(&mut self, first: &Cursor, other: &Cursor) -> bool {
        self.audience.join(first, other)
    }

    /// What came before, oldest first, and the newest versions by key. The topic is warm then.
    ///
    /// `complete` says that nothing older than `history` exists. What is remembered is left out.
    pub fn seed(
        &mut self,
        name: &str,
        policy: TopicPolicy,
        complete: bool,
        history: &[Arc<Publication>],
        latest: &[Arc<Publication>],
        now: u64,
    ) {
        let keys = self.limits.keys;
        let topic = self.use_topic(name);
        let older = not_held(&topic.memory, history);
        let versions = not_held(&topic.memory, latest);
        let before = topic.memory.weight();
        topic.memory.put_before(&older, complete, policy, keys);
        topic.memory.put_latest(&versions, policy, keys);
        topic.warm = true;
        let after = topic.memory.weight();
        self.memory_bytes = self.memory_bytes + after - before;
        for publication in &older {
            self.seen.add(&publication.identity(), now);
        }
        self.make_room(None);
    }

    /// Why `slot` can't have another topic, or this one; at most `most` are allowed.
    #[must_use]
    pub fn clash(&self, slot: u32, topic: &str, most: usize) -> Option<Clash> {
        if self.audience.has(slot, topic) {
            Some(Clash::AlreadySubscribed)
        } else if self.audience.count(slot) >= most {
            Some(Clash::TooMany)
        } else {
            None
        }
    }

    /// What a new reader gets before live messages, oldest first.
    ///
    /// That is `older` and what is remembered, as far as `replay` goes. Who asks for no number and
    /// no time gets the newest version of each key too, with `policy.latest`. With `only_if_covered`
    /// it has to be all there is.
    /// [`Replay::Given`] is `older` as it is (whichever batch it says): what comes later of it is a
    /// copy. Not so of what is older than the window of identities: it can't come again, and a crowd
    /// of mailboxes would leave no room for what can.
    pub fn rewind(
        &mut self,
        name: &str,
        policy: TopicPolicy,
        replay: Replay,
        older: &[Arc<Publication>],
        only_if_covered: bool,
        now: u64,
    ) -> Result<Vec<Arc<Publication>>, Uncovered> {
        if matches!(replay, Replay::Given(_)) {
            for publication in older {
                if publication.routed_ms() + self.limits.identity_ms >= now {
                    self.seen.add(&publication.identity(), now);
                }
            }
            return Ok(older.to_vec());
        }
        if only_if_covered && !self.is_warm(name) {
            return Err(Uncovered::Cold);
        }
        let topic = self.use_topic(name);
        let selection = match replay {
            Replay::Latest | Replay::Given(_) => {
                Selection { covered: true, ..Selection::default() }
            }
            Replay::Last(count) => topic.memory.last(count as usize, now),
            Replay::Since(ms) | Replay::SinceAndLatest(ms) => topic.memory.since(ms, now),
        };
        if only_if_covered && !selection.covered {
            return Err(Uncovered::Short);
        }
        let before = older.iter().filter(|one| !topic.memory.is_recent(one));
        let mut replayed: Vec<_> = before.cloned().collect();
        replayed.extend(selection.publications);
        if let Replay::Last(count) = replay {
            replayed.drain(..replayed.len().saturating_sub(count as usize));
        }
        if policy.latest && matches!(replay, Replay::Latest | Replay::SinceAndLatest(_)) {
            replayed = topic.memory.with_latest(&replayed, now);
        }
        Ok(replayed)
    }

    /// The newest `limit` messages, older than the one with id `before` if there is one.
    pub fn history(
        &mut self,
        name: &str,
        limit: usize,
        before: Option<&[u8; 16]>,
        now: u64,
    ) -> Result<Vec<Arc<Publication>>, Uncovered> {
        if !self.is_warm(name) {
            return Err(Uncovered::Cold);
        }
        let topic = self.use_topic(name);
        let selection = match before {
            None => topic.memory.last(limit, now),
            Some(id) => topic.memory.before(id, limit, now),
        };
        if selection.covered { Ok(selection.publications) } else { Err(Uncovered::Short) }
    }

    /// From now on `slot` gets `topic`. Ask [`Hub::clash`] before.
    pub fn subscribe(&mut self, slot: u32, name: &str) {
        if !self.topics.contains_key(name) {
            self.create(name);
        }
        let Some((name, topic)) = self.topics.get_key_value(name) else {
            return;
        };
        if let Some(place) = topic.idle {
            self.idle.remove(&place);
        }
        let name = name.clone();
        self.audience.subscribe(slot, &name);
        if let Some(topic) = self.topics.get_mut(&name) {
            topic.idle = None;
        }
    }

    /// Take a subscription back; false if there is none.
    pub fn unsubscribe(&mut self, slot: u32, name: &str) -> bool {
        let had = self.audience.unsubscribe(slot, name);
        if had {
            self.rest_if_unread(name);
        }
        had
    }

    /// Take all of a reader's subscriptions back.
    pub fn leave(&mut self, slot: u32) {
        while let Some(name) = self.audience.leave_one(slot) {
            self.rest_if_unread(&name);
        }
    }

    fn is_warm(&self, name: &str) -> bool {
        self.topics.get(name).is_some_and(|topic| topic.warm)
    }

    fn remember(&mut self, publication: &Arc<Publication>) {
        let name = publication.topic();
        if !self.topics.contains_key(name) {
            if self.topics.len() >= self.limits.topics && self.idle.is_empty() {
                return;
            }
            self.create(name);
        }
        let keys = self.limits.keys;
        let topic = self.use_topic(name);
        let before = topic.memory.weight();
        topic.memory.add(publication, publication.policy(), keys);
        let after = topic.memory.weight();
        self.memory_bytes = self.memory_bytes + after - before;
        self.make_room(None);
        self.trim(name);
    }

    /// Shorten a topic until the bytes are within their limit.
    fn trim(&mut self, name: &str) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        while self.memory_bytes > self.limits.bytes {
            let before = topic.memory.weight();
            if !topic.memory.trim() {
                return;
            }
            self.memory_bytes -= before - topic.memory.weight();
        }
    }

    /// The topic, as the one that was used last; made if there is none.
    fn use_topic(&mut self, name: &str) -> &mut Topic {
        if !self.topics.contains_key(name) {
            self.create(name);
        }
        self.uses += 1;
        let topic = self.topics.get_mut(name).expect("was made above, and spared");
        if let Some(place) = &mut topic.idle
            && let Some(name) = self.idle.remove(place)
        {
            *place = self.uses;
            self.idle.insert(self.uses, name);
        }
        topic
    }

    fn create(&mut self, name: &str) {
        let name: Arc<str> = name.into();
        self.uses += 1;
        self.topics.insert(name.clone(), Topic { idle: Some(self.uses), ..Topic::default() });
        self.idle.insert(self.uses, name.clone());
        self.make_room(Some(&name));
    }

    fn rest_if_unread(&mut self, name: &str) {
        if self.audience.readers(name) > 0 {
            return;
        }
        self.uses += 1;
        if let Some((key, _)) = self.topics.get_key_value(name) {
            self.idle.insert(self.uses, key.clone());
        }
        if let Some(topic) = self.topics.get_mut(name) {
            topic.idle = Some(self.uses);
        }
        self.make_room(None);
    }

    /// Forget idle topics, least recently used first, until the limits hold.
    fn make_room(&mut self, spare: Option<&Arc<str>>) {
        while self.topics.len() > self.limits.topics || self.memory_bytes > self.limits.bytes {
            let Some(oldest) = self.idle.first_entry() else {
                return;
            };
            if spare == Some(oldest.get()) {
                return;
            }
            if let Some(topic) = self.topics.remove(&oldest.remove()) {
                self.memory_bytes -= topic.memory.weight();
            }
        }
    }
}

fn not_held(memory: &TopicMemory, publications: &[Arc<Publication>]) -> Vec<Arc<Publication>> {
    publications.iter().filter(|one| !memory.holds(one)).cloned().collect()
}
