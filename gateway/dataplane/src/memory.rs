//! What is remembered of one topic: recent messages in the order of arrival, latest by key. Pure.
//!
//! `complete` says that nothing older than the oldest recent message exists; it holds from the
//! moment when the control plane said so with a topic's past until something is trimmed.
//!
//! `now` is in ms since the epoch.

mod saved;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::publication::{Identity, Publication, TopicPolicy};

pub use saved::Saved;

/// Publications oldest first. If `covered` is false there may be more of them elsewhere.
#[derive(Debug, Default)]
pub struct Selection {
    /// What was found.
    pub publications: Vec<Arc<Publication>>,
    /// Whether that is certainly all.
    pub covered: bool,
}

/// Recent messages and latest versions of one topic, bounded by its policy and `most_keys`.
#[derive(Debug, Default)]
pub struct TopicMemory {
    complete: bool,
    weight: usize,
    recent: VecDeque<Arc<Publication>>,
    held: HashSet<Identity>,
    // By number of renewal: the one renewed last has the highest.
    latest: BTreeMap<u64, Arc<Publication>>,
    renewals: HashMap<Box<str>, u64>,
    renewed: u64,
}

impl TopicMemory {
    /// Bytes that all this costs, roughly.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// Whether this message is among those remembered.
    #[must_use]
    pub fn holds(&self, publication: &Publication) -> bool {
        let identity = publication.identity();
        self.is_recent(publication)
            || publication
                .key()
                .and_then(|key| self.version_of(key))
                .is_some_and(|latest| latest.identity() == identity)
    }

    /// Whether this message is among the recent ones, not only the newest version of its key.
    pub fn is_recent(&self, publication: &Publication) -> bool {
        self.held.contains(&publication.identity())
    }

    /// Remember a message that has just arrived.
    pub fn add(&mut self, publication: &Arc<Publication>, policy: TopicPolicy, most_keys: usize) {
        if policy.keep > 0 {
            self.held.insert(publication.identity());
            self.weight += publication.weight();
            self.recent.push_back(publication.clone());
        }
        // Its policy may have changed.
        while self.recent.len() > policy.keep as usize {
            self.trim();
        }
        self.renew(publication, policy, most_keys);
    }

    /// Put messages, oldest first, in front of those remembered. None of them may be held.
    pub fn put_before(
        &mut self,
        older: &[Arc<Publication>],
        complete: bool,
        policy: TopicPolicy,
        most_keys: usize,
    ) {
        let space = (policy.keep as usize).saturating_sub(self.recent.len());
        let kept = &older[older.len().saturating_sub(space)..];
        for publication in kept.iter().rev() {
            // A store may have a message twice, from two routers.
            if !self.held.insert(publication.identity()) {
                continue;
            }
            self.weight += publication.weight();
            self.recent.push_front(publication.clone());
        }
        self.complete = complete && kept.len() == older.len();
        self.put_latest(older, policy, most_keys);
    }

    /// Learn versions of keys; never an older version over a newer.
    pub fn put_latest(
        &mut self,
        publications: &[Arc<Publication>],
        policy: TopicPolicy,
        most_keys: usize,
    ) {
        for publication in publications {
            self.renew(publication, policy, most_keys);
        }
    }

    /// Forget the oldest recent message; false if there is none.
    pub fn trim(&mut self) -> bool {
        let Some(publication) = self.recent.pop_front() else {
            return false;
        };
        self.held.remove(&publication.identity());
        self.weight -= publication.weight();
        self.complete = false;
        true
    }

    /// The newest `count` messages that haven't expired.
    #[must_use]
    pub fn last(&self, count: usize, now: u64) -> Selection {
        self.newest(self.recent.len(), count, now)
    }

    /// Everything that was routed at `since_ms` or later and hasn't expired.
    #[must_use]
    pub fn since(&self, since_ms: u64, now: u64) -> Selection {
        let wanted = |one: &&Arc<Publication>| !one.expired(now) && one.routed_ms() >= since_ms;
        let reaches = self.recent.front().is_some_and(|oldest| oldest.routed_ms() < since_ms);
        Selection {
            publications: self.recent.iter().filter(wanted).cloned().collect(),
            covered: self.complete || reaches,
        }
    }

    /// The newest `count` messages that arrived before the one with `id`.
    #[must_use]
    pub fn before(&self, id: &[u8; 16], count: usize, now: u64) -> Selection {
        match self.recent.iter().position(|one| one.id() == id) {
            Some(at) => self.newest(at, count, now),
            None => Selection::default(),
        }
    }

    /// `selected` and the newest version of each key, each message once, oldest first.
    #[must_use]
    pub fn with_latest(&self, selected: &[Arc<Publication>], now: u64) -> Vec<Arc<Publication>> {
        let alive = self.latest.values().filter(|one| !one.expired(now));
        let mut wanted: HashMap<Identity, Arc<Publication>> = HashMap::new();
        for publication in alive.chain(selected) {
            wanted.insert(publication.identity(), publication.clone());
        }
        let recent: Vec<Arc<Publication>> = self
            .recent
            .iter()
            .filter(|one| wanted.remove(&one.identity()).is_some())
            .cloned()
            .collect();
        let mut all: Vec<Arc<Publication>> = wanted.into_values().collect();
        all.sort_unstable_by_key(|one| *one.id());
        all.extend(recent);
        all
    }

    /// The newest `count` that haven't expired of the `end` oldest.
    fn newest(&self, end: usize, count: usize, now: u64) -> Selection {
        let alive = self.recent.range(..end).rev().filter(|one| !one.expired(now));
        let mut publications: Vec<Arc<Publication>> = alive.take(count).cloned().collect();
        publications.reverse();
        Selection { covered: self.complete || publications.len() >= count, publications }
    }

    fn version_of(&self, key: &str) -> Option<&Arc<Publication>> {
        self.renewals.get(key).and_then(|number| self.latest.get(number))
    }

    fn renew(&mut self, publication: &Arc<Publication>, policy: TopicPolicy, most_keys: usize) {
        let Some(key) = publication.key().filter(|_| policy.latest) else {
            return;
        };
        if let Some(known) = self.version_of(key) {
            if !publication.supersedes(known) {
                return;
            }
            self.forget_version(self.renewals[key]);
        }
        self.renewed += 1;
        self.renewals.insert(key.into(), self.renewed);
        self.latest.insert(self.renewed, publication.clone());
        self.weight += publication.weight();
        while self.latest.len() > most_keys {
            let Some(oldest) = self.latest.keys().next().copied() else {
                return;
            };
            if let Some(key) = self.forget_version(oldest).and_then(|one| one.key().map(Box::from))
            {
                self.renewals.remove::<str>(&key);
            }
        }
    }

    fn forget_version(&mut self, number: u64) -> Option<Arc<Publication>> {
        let forgotten = self.latest.remove(&number)?;
        self.weight -= forgotten.weight();
        Some(forgotten)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Message;
    use crate::publication::tests::{keeping, message, publication};

    const KEYS: usize = 2;

    fn latest() -> TopicPolicy {
        TopicPolicy { latest: true, ..keeping(2) }
    }

    fn version(key: &'static str, version: i64, number: u64) -> Arc<Publication> {
        publication(latest(), &Message { key, version, ..message(number, number) })
    }

    fn numbers(publications: &[Arc<Publication>]) -> Vec<u64> {
        publications.iter().map(|one| one.routed_ms()).collect()
    }

    fn remembering(policy: TopicPolicy, numbers: &[u64]) -> TopicMemory {
        let mut memory = TopicMemory::default();
        for number in numbers {
            memory.add(&publication(policy, &message(*number, *number)), policy, KEYS);
        }
        memory
    }

    #[test]
    fn as_many_are_remembered_as_the_topic_keeps() {
        let memory = remembering(keeping(2), &[1, 2, 3]);
        assert_eq!(numbers(&memory.last(9, 0).publications), [2, 3]);
        assert!(!memory.holds(&publication(keeping(2), &message(1, 1))));
        assert_eq!(memory.weight(), 2 * (2 * 2 + 512));
    }

    #[test]
    fn a_selection_is_covered_when_it_is_full_or_nothing_older_exists() {
        let mut memory = remembering(keeping(4), &[3, 4]);
        assert!(memory.last(2, 0).covered);
        assert!(!memory.last(3, 0).covered);
        assert!(memory.since(4, 0).covered);
        assert!(!memory.since(3, 0).covered);
        memory.put_before(&[publication(keeping(4), &message(1, 1))], true, keeping(4), KEYS);
        assert!(memory.last(9, 0).covered);
        assert_eq!(numbers(&memory.since(0, 0).publications), [1, 3, 4]);
        memory.trim();
        assert!(!memory.last(9, 0).covered);
    }

    #[test]
    fn the_past_takes_only_the_room_that_is_left() {
        let mut memory = remembering(keeping(2), &[3]);
        let past = [1, 2].map(|number| publication(keeping(2), &message(number, number)));
        memory.put_before(&past, true, keeping(2), KEYS);
        assert_eq!(numbers(&memory.last(9, 0).publications), [2, 3]);
        assert!(!memory.last(9, 0).covered);
    }

    #[test]
    fn history_goes_back_from_a_message_that_is_remembered() {
        let memory = remembering(keeping(9), &[1, 2, 3]);
        let of = |number| *publication(keeping(9), &message(number, number)).id();
        assert_eq!(numbers(&memory.before(&of(3), 1, 0).publications), [2]);
        assert!(!memory.before(&of(3), 3, 0).covered);
        assert!(!memory.before(&of(9), 1, 0).covered);
    }

    #[test]
    fn expired_messages_are_left_out() {
        let mut memory = TopicMemory::default();
        let short = publication(latest(), &Message { expires_ms: 50, key: "k", ..message(1, 1) });
        memory.add(&short, latest(), KEYS);
        assert_eq!(memory.last(9, 49).publications.len(), 1);
        assert!(memory.last(9, 50).publications.is_empty());
        assert!(memory.since(0, 50).publications.is_empty());
        assert!(memory.with_latest(&[], 50).is_empty());
    }

    #[test]
    fn an_older_version_never_replaces_a_newer_one() {
        let mut memory = TopicMemory::default();
        memory.put_latest(
            &[version("k", 2, 1), version("k", 1, 5), version("j", 1, 3)],
            latest(),
            KEYS,
        );
        assert_eq!(numbers(&memory.with_latest(&[], 0)), [1, 3]);
    }

    #[test]
    fn the_key_renewed_longest_ago_is_forgotten() {
        let mut memory = TopicMemory::default();
        for (key, number) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
            memory.put_latest(&[version(key, number as i64, number)], latest(), KEYS);
        }
        assert_eq!(numbers(&memory.with_latest(&[], 0)), [3, 4]);
        assert_eq!(memory.renewals.len(), 2);
        assert_eq!(memory.weight(), 2 * (2 * 2 + 512));
    }

    #[test]
    fn latest_versions_come_once_and_before_the_recent() {
        let mut memory = TopicMemory::default();
        for (key, number) in [("a", 1), ("b", 2), ("b", 3)] {
            memory.add(&version(key, 1, number), latest(), KEYS);
        }
        let selected = memory.last(1, 0).publications;
        assert_eq!(numbers(&memory.with_latest(&selected, 0)), [1, 3]);
    }
}
