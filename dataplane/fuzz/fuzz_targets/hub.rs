//! The hub gives the same answers as lists that are searched from end to end.
//!
//! The input is operations of two bytes: the kind, and its subject. There is room for everything
//! here, so no identity is forgotten.

#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use dataplane::control::{Slow, TopicMessage};
use dataplane::hub::{Hub, Publication, PublishOutcome, SubscribeError};
use libfuzzer_sys::fuzz_target;

const TOPICS: [&str; 3] = ["a", "b", "c"];
const MOST: usize = 2;

#[derive(Default)]
struct Model {
    /// (slot, topic)
    subscribed: BTreeSet<(u32, usize)>,
    seen: Vec<u8>,
}

impl Model {
    fn readers(&self, topic: usize) -> Vec<u32> {
        self.subscribed.iter().filter(|one| one.1 == topic).map(|one| one.0).collect()
    }

    fn check_subscribe(&self, slot: u32, topic: usize) -> Option<SubscribeError> {
        if self.subscribed.contains(&(slot, topic)) {
            Some(SubscribeError::AlreadySubscribed)
        } else if self.subscribed.iter().filter(|one| one.0 == slot).count() >= MOST {
            Some(SubscribeError::TooMany)
        } else {
            None
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut hub, mut model) = (Hub::new(u32::MAX.into(), 9_999), Model::default());
    for (time, pair) in data.chunks_exact(2).enumerate() {
        let (about, ms) = (pair[1], time as u64 + 1);
        let (slot, topic) = (u32::from(about >> 4), usize::from(about % 3));
        let name = TOPICS[topic];
        match pair[0] % 5 {
            0 | 1 => publish(&mut hub, &mut model, about, ms, usize::from(pair[0] >> 4) + 1),
            2 => {
                let error = model.check_subscribe(slot, topic);
                assert_eq!(hub.audience.check_subscribe(slot, name, MOST), error);
                if error.is_none() {
                    hub.audience.subscribe(slot, name);
                    model.subscribed.insert((slot, topic));
                }
            }
            3 => assert_eq!(
                hub.audience.unsubscribe(slot, name),
                model.subscribed.remove(&(slot, topic))
            ),
            _ => {
                hub.audience.leave(slot);
                model.subscribed.retain(|one| one.0 != slot);
            }
        }
        assert_eq!(hub.seen.len(), model.seen.len());
    }
});

/// `number` is the message's identity, and decides its topic.
fn publish(hub: &mut Hub, model: &mut Model, number: u8, ms: u64, piece: usize) {
    let topic = usize::from(number % 3);
    let mut id = [0; 16];
    id[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
    id[15] = number;
    let message = TopicMessage { id, version: -1, key: "", push: b"{}" };
    let one = Arc::new(Publication::new(TOPICS[topic].into(), Slow::DropOldest, &message));
    let offer = hub.publish(&one, ms);
    assert_eq!(offer == PublishOutcome::Duplicate, model.seen.contains(&number));
    if offer == PublishOutcome::Duplicate {
        return;
    }
    model.seen.push(number);
    let mut slots = Vec::new();
    if let PublishOutcome::Subscribers(cursor) = &offer {
        while hub.audience.read(cursor, piece, &mut slots) {}
    }
    slots.sort_unstable();
    assert_eq!(slots, model.readers(topic));
}
