//! What a hub knows, topic by topic, for a take-over.

use std::sync::Arc;

use super::{Hub, Topic};
use crate::memory::{self, TopicMemory};
use crate::publication::Identity;

/// All that is known of a topic but who is subscribed to it.
#[derive(Debug)]
pub struct Saved {
    /// Its name.
    pub name: Arc<str>,
    /// Whether the control plane has said what came before.
    pub warm: bool,
    /// What is remembered.
    pub memory: memory::Saved,
}

impl Hub {
    /// Every topic; of those without readers the least recently used first, then the others.
    pub fn save(&self) -> impl Iterator<Item = Saved> {
        let idle = self.idle.values();
        let read = self.topics.iter().filter(|(_, topic)| topic.idle.is_none());
        let names = idle.chain(read.map(|(name, _)| name));
        names.filter_map(|name| {
            let topic = self.topics.get(name)?;
            Some(Saved { name: name.clone(), warm: topic.warm, memory: topic.memory.save() })
        })
    }

    /// Know a topic as it was saved; call it in the order of [`Hub::save`]. False if it is known.
    #[must_use]
    pub fn restore(&mut self, saved: Saved) -> bool {
        if self.topics.contains_key(&saved.name) {
            return false;
        }
        self.uses += 1;
        let memory = TopicMemory::restore(saved.memory);
        self.memory_bytes += memory.weight();
        self.idle.insert(self.uses, saved.name.clone());
        let topic = Topic { memory, warm: saved.warm, idle: Some(self.uses) };
        self.topics.insert(saved.name, topic);
        true
    }

    /// The identities seen, in pieces of at most `most`, oldest first.
    pub fn seen(&self, most: usize, each: impl FnMut(u64, &[Identity])) {
        self.seen.pieces(most, each);
    }

    /// Know a piece of those.
    pub fn restore_seen(&mut self, start: u64, piece: &[Identity]) {
        self.seen.restore(start, piece);
    }

    /// The topics of `slot`.
    pub fn subscriptions(&self, slot: u32) -> impl Iterator<Item = &Arc<str>> {
        self.audience.subscriptions(slot)
    }
}

#[cfg(test)]
mod tests {
    use crate::control::{Message, Replay};
    use crate::hub::{Hub, Limits, Offer};
    use crate::publication::tests::{keeping, message};
    use crate::publication::{Publication, TopicPolicy};
    use proptest::prelude::*;
    use std::sync::Arc;

    const LIMITS: Limits =
        Limits { topics: 3, bytes: 6_000, keys: 2, identities: 30, identity_ms: 60_000 };

    fn on(topic: &str, key: &str, number: u64) -> Arc<Publication> {
        let policy = TopicPolicy { latest: true, ..keeping(3) };
        let one = Message { key, ..message(number, number) };
        Arc::new(Publication::new(topic.into(), policy, &one))
    }

    fn taken_over(hub: &Hub) -> Hub {
        let mut again = Hub::new(LIMITS);
        hub.seen(2, |start, piece| again.restore_seen(start, piece));
        for saved in hub.save() {
            assert!(again.restore(saved));
        }
        for slot in 0..4 {
            for name in hub.subscriptions(slot) {
                again.subscribe(slot, name);
            }
        }
        again
    }

    proptest! {
        #[test]
        fn a_hub_that_was_taken_over_goes_on_as_if_nothing_had_been(
            steps in prop::collection::vec((0_u8..5, 0_u32..4, 0_u64..60, 0_usize..5), 1..100),
            at in 0_usize..100,
        ) {
            let (mut one, mut other) = (Hub::new(LIMITS), Hub::new(LIMITS));
            let names = ["a", "b", "c", "d", "e"];
            for (index, (step, slot, number, topic)) in steps.into_iter().enumerate() {
                let now = index as u64 * 3_000;
                if index == at {
                    other = taken_over(&one);
                }
                let name = names[topic];
                let both = |hub: &mut Hub| match step {
                    0 | 1 => {
                        let key = ["", "j", "k", "l"][slot as usize];
                        match hub.publish(&on(names[number as usize % 5], key, number), now) {
                            Offer::Copy => vec![0],
                            Offer::Nobody => vec![],
                            Offer::Readers(cursor) => {
                                let mut slots = Vec::new();
                                while hub.readers(&cursor, 9, &mut slots) {}
                                slots.sort_unstable();
                                slots
                            }
                        }
                    }
                    2 if hub.clash(slot, name, 9).is_none() => {
                        hub.subscribe(slot, name);
                        vec![]
                    }
                    3 => vec![hub.unsubscribe(slot, name).into()],
                    _ => {
                        let policy = TopicPolicy { latest: true, ..keeping(3) };
                        hub.seed(name, policy, number % 2 == 0, &[], &[], now);
                        vec![]
                    }
                };
                let (seen, expected) = (both(&mut other), both(&mut one));
                if index >= at {
                    prop_assert_eq!(seen, expected);
                    prop_assert_eq!(one.topics(), other.topics());
                    prop_assert_eq!(one.memory_bytes(), other.memory_bytes());
                    let last = |hub: &mut Hub| {
                        let policy = TopicPolicy { latest: true, ..keeping(3) };
                        let all = hub.rewind(name, policy, Replay::Last(2), &[], true, now);
                        all.map(|all| all.iter().map(|one| one.routed_ms()).collect::<Vec<_>>())
                    };
                    prop_assert_eq!(last(&mut one), last(&mut other));
                }
            }
        }
    }
}
