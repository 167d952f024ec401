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
    /// That is `older` and what is remembered, as far as `replay` goes, and with `policy.latest`
    /// the newest version of each key. With `only_if_covered` it has to be all there is.
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
            Replay::None | Replay::Given(_) => Selection { covered: true, ..Selection::default() },
            Replay::Last(count) => topic.memory.last(count as usize, now),
            Replay::Since(ms) => topic.memory.since(ms, now),
        };
        if only_if_covered && !selection.covered {
            return Err(Uncovered::Short);
        }
        let mut replayed = not_held(&topic.memory, older);
        replayed.extend(selection.publications);
        if let Replay::Last(count) = replay {
            replayed.drain(..replayed.len().saturating_sub(count as usize));
        }
        if policy.latest {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Message;
    use crate::publication::tests::{id, keeping, message};
    use proptest::prelude::*;

    const LIMITS: Limits =
        Limits { topics: 3, bytes: 1 << 20, keys: 10, identities: 1_000, identity_ms: 60_000 };

    fn on(topic: &str, keep: u32, message: &Message<'_>) -> Arc<Publication> {
        Arc::new(Publication::new(topic.into(), keeping(keep), message))
    }

    fn numbers(publications: &[Arc<Publication>]) -> Vec<u64> {
        publications.iter().map(|one| one.routed_ms()).collect()
    }

    fn served(hub: &mut Hub, offer: &Offer) -> Vec<u32> {
        let mut slots = Vec::new();
        if let Offer::Readers(cursor) = offer {
            while hub.readers(cursor, 2, &mut slots) {}
        }
        slots.sort_unstable();
        slots
    }

    fn last(hub: &mut Hub, topic: &str) -> Vec<u64> {
        let all = hub.rewind(topic, keeping(9), Replay::Last(99), &[], false, 0);
        numbers(&all.expect("nothing has to be covered"))
    }

    #[test]
    fn a_publication_goes_to_those_subscribed_and_its_copies_to_nobody() {
        let mut hub = Hub::new(LIMITS);
        hub.subscribe(1, "a");
        hub.subscribe(2, "a");
        hub.subscribe(3, "b");
        let offer = hub.publish(&on("a", 9, &message(1, 7)), 0);
        assert_eq!(served(&mut hub, &offer), [1, 2]);
        assert_eq!(hub.publish(&on("a", 9, &message(2, 7)), 0), Offer::Copy);
        assert_eq!(hub.publish(&on("c", 9, &message(3, 8)), 0), Offer::Nobody);
        assert_eq!(hub.copies(), 1);
    }

    #[test]
    fn a_copy_of_what_is_remembered_is_known_after_the_window() {
        let mut hub = Hub::new(LIMITS);
        hub.publish(&on("a", 1, &message(1, 1)), 0);
        hub.publish(&on("a", 1, &message(2, 2)), 0);
        hub.publish(&on("b", 1, &message(3, 3)), 10_000_000);
        assert_eq!(hub.identities(), 1);
        assert_eq!(hub.publish(&on("a", 1, &message(2, 2)), 10_000_000), Offer::Copy);
        assert_eq!(hub.publish(&on("a", 1, &message(1, 1)), 10_000_000), Offer::Nobody);
    }

    #[test]
    fn a_reader_has_a_topic_once_and_only_so_many() {
        let mut hub = Hub::new(LIMITS);
        assert_eq!(hub.clash(1, "a", 1), None);
        hub.subscribe(1, "a");
        assert_eq!(hub.clash(1, "a", 1), Some(Clash::AlreadySubscribed));
        assert_eq!(hub.clash(1, "b", 1), Some(Clash::TooMany));
        assert!(hub.unsubscribe(1, "a"));
        assert!(!hub.unsubscribe(1, "a"));
        assert_eq!(hub.clash(1, "b", 1), None);
    }

    #[test]
    fn what_is_given_is_replayed_as_it_is_and_its_copies_are_dropped() {
        let mut hub = Hub::new(LIMITS);
        hub.publish(&on("a", 3, &message(5, 5)), 0);
        let given = [on("a", 3, &message(5, 5)), on("a", 3, &message(4, 4))];
        let all = hub.rewind("a", keeping(3), Replay::Given(0), &given, false, 0);
        assert_eq!(all.map(|all| numbers(&all)), Ok(vec![5, 4]));
        assert_eq!(hub.publish(&on("a", 3, &message(4, 4)), 0), Offer::Copy);
        assert_eq!(last(&mut hub, "a"), [5]);
    }

    #[test]
    fn what_is_given_and_older_than_the_window_takes_no_room_in_it() {
        let mut hub = Hub::new(LIMITS);
        let given = [on("a", 3, &message(4, 4)), on("a", 3, &message(70_000, 5))];
        let all = hub.rewind("a", keeping(3), Replay::Given(0), &given, false, 80_000);
        assert_eq!(all.map(|all| all.len()), Ok(2));
        assert_eq!(hub.identities(), 1);
    }

    #[test]
    fn a_cold_topic_and_a_short_memory_say_so() {
        let mut hub = Hub::new(LIMITS);
        hub.publish(&on("a", 3, &message(5, 5)), 0);
        let ask = |hub: &mut Hub, replay| {
            hub.rewind("a", keeping(3), replay, &[], true, 0).map(|all| numbers(&all))
        };
        assert_eq!(ask(&mut hub, Replay::None), Err(Uncovered::Cold));
        hub.seed("a", keeping(3), false, &[on("a", 3, &message(4, 4))], &[], 0);
        assert_eq!(ask(&mut hub, Replay::None), Ok(vec![]));
        assert_eq!(ask(&mut hub, Replay::Last(2)), Ok(vec![4, 5]));
        assert_eq!(ask(&mut hub, Replay::Last(3)), Err(Uncovered::Short));
        assert_eq!(ask(&mut hub, Replay::Since(5)), Ok(vec![5]));
        assert_eq!(ask(&mut hub, Replay::Since(4)), Err(Uncovered::Short));
        let history = |hub: &mut Hub, limit, before: Option<[u8; 16]>| {
            hub.history("a", limit, before.as_ref(), 0).map(|all| numbers(&all))
        };
        assert_eq!(history(&mut hub, 1, None), Ok(vec![5]));
        assert_eq!(history(&mut hub, 1, Some(id(5, 5))), Ok(vec![4]));
        assert_eq!(history(&mut hub, 9, None), Err(Uncovered::Short));
        assert_eq!(history(&mut hub, 9, Some(id(9, 9))), Err(Uncovered::Short));
    }

    #[test]
    fn what_came_from_elsewhere_goes_before_what_is_remembered_and_counts() {
        let mut hub = Hub::new(LIMITS);
        hub.publish(&on("a", 9, &message(3, 3)), 0);
        let older = [1, 2, 3].map(|number| on("a", 9, &message(number, number)));
        let ask = |hub: &mut Hub, replay| {
            hub.rewind("a", keeping(9), replay, &older, false, 0).map(|all| numbers(&all))
        };
        assert_eq!(ask(&mut hub, Replay::Since(0)), Ok(vec![1, 2, 3]));
        assert_eq!(ask(&mut hub, Replay::Last(2)), Ok(vec![2, 3]));
    }

    #[test]
    fn a_topic_that_has_latest_replays_them_too() {
        let mut hub = Hub::new(LIMITS);
        let policy = TopicPolicy { latest: true, ..keeping(1) };
        for (key, number) in [("a", 1), ("b", 2), ("b", 3)] {
            let one =
                Publication::new("t".into(), policy, &Message { key, ..message(number, number) });
            hub.publish(&Arc::new(one), 0);
        }
        let all = hub.rewind("t", policy, Replay::None, &[], false, 0);
        assert_eq!(all.map(|all| numbers(&all)), Ok(vec![1, 3]));
    }

    #[test]
    fn idle_topics_are_forgotten_the_least_recently_used_first() {
        let mut hub = Hub::new(LIMITS);
        hub.subscribe(1, "read");
        for (topic, number) in [("read", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5)] {
            hub.publish(&on(topic, 9, &message(number, number)), 0);
        }
        assert_eq!(hub.topics(), 3);
        assert_eq!(last(&mut hub, "read"), [1]);
        assert_eq!(last(&mut hub, "a"), [2, 4]);
        assert_eq!(last(&mut hub, "c"), [5]);
        hub.leave(1);
        hub.publish(&on("d", 9, &message(6, 6)), 0);
        assert_eq!(last(&mut hub, "c"), [5]);
        assert_eq!(last(&mut hub, "read"), [1]);
    }

    #[test]
    fn without_room_nothing_is_kept_of_a_new_topic_and_it_is_published_all_the_same() {
        let mut hub = Hub::new(Limits { topics: 1, ..LIMITS });
        hub.subscribe(1, "a");
        assert_eq!(hub.publish(&on("b", 9, &message(1, 1)), 0), Offer::Nobody);
        assert_eq!(hub.topics(), 1);
        assert_eq!(hub.publish(&on("b", 9, &message(1, 1)), 0), Offer::Copy);
    }

    #[test]
    fn a_topic_that_grows_too_big_loses_its_oldest_messages() {
        let one = on("a", 9, &message(1, 1)).weight();
        let mut hub = Hub::new(Limits { bytes: 2 * one, ..LIMITS });
        hub.subscribe(1, "a");
        for number in 1..=3 {
            let offer = hub.publish(&on("a", 9, &message(number, number)), 0);
            served(&mut hub, &offer);
        }
        assert_eq!(last(&mut hub, "a"), [2, 3]);
        assert_eq!(hub.memory_bytes(), 2 * one);
        hub.leave(1);
        hub.publish(&on("b", 9, &message(4, 4)), 0);
        assert_eq!(last(&mut hub, "a"), [0; 0]);
    }

    proptest! {
        /// Readers come and go, copies come in any order, fan-outs take their time.
        #[test]
        fn nobody_gets_an_identity_twice_and_each_topic_comes_in_its_order(
            steps in prop::collection::vec((0_u8..8, 0_u32..4, 0_u64..40, 0_usize..2), 1..400),
        ) {
            let mut hub = Hub::new(Limits { topics: 1, bytes: 5_000, ..LIMITS });
            let names = ["a", "b"];
            let mut jobs: [Vec<(u64, Cursor)>; 2] = Default::default();
            let mut published: Vec<u64> = Vec::new();
            // What each reader got, by topic, since it came.
            let mut got: [[Vec<u64>; 2]; 4] = Default::default();
            for (step, slot, number, topic) in steps {
                let name = names[topic];
                let reader = slot as usize;
                // A message is of one topic.
                let home = number as usize % 2;
                match step {
                    0 | 1 if hub.clash(slot, name, 9).is_none() => {
                        let all = hub.rewind(name, keeping(4), Replay::Last(9), &[], false, 0);
                        got[reader][topic] = numbers(&all.expect("nothing has to be covered"));
                        hub.subscribe(slot, name);
                    }
                    2 => {
                        hub.unsubscribe(slot, name);
                        got[reader][topic].clear();
                    }
                    3 => {
                        hub.leave(slot);
                        got[reader] = Default::default();
                    }
                    4 | 5 => {
                        let offer = hub.publish(&on(names[home], 4, &message(number, number)), 0);
                        prop_assert_eq!(offer == Offer::Copy, published.contains(&number));
                        if offer != Offer::Copy {
                            published.push(number);
                        }
                        if let Offer::Readers(cursor) = offer {
                            jobs[home].push((number, cursor));
                        }
                    }
                    _ => {
                        if let Some((number, cursor)) = jobs[topic].first() {
                            let mut slots = Vec::new();
                            let more = hub.readers(cursor, 1, &mut slots);
                            for slot in slots {
                                prop_assert!(hub.clash(slot, name, 9).is_some());
                                got[slot as usize][topic].push(*number);
                            }
                            if !more {
                                jobs[topic].remove(0);
                            }
                        }
                    }
                }
                prop_assert!(hub.memory_bytes() <= 5_000);
                for seen in got.iter().flatten() {
                    let order: Vec<usize> = seen
                        .iter()
                        .map(|one| published.iter().position(|other| other == one).expect("published"))
                        .collect();
                    prop_assert!(order.is_sorted_by(|one, next| one < next), "{:?}", seen);
                }
            }
            prop_assert!(hub.topics() <= 2);
        }
    }
}
