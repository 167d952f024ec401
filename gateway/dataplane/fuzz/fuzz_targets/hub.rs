//! The hub answers what lists would that are searched from end to end.
//!
//! The input is operations of two bytes: what to do, and whom or what it is about. There is room for
//! everything here, so nothing is forgotten but what a topic's `keep` says.

#![no_main]

use std::collections::BTreeSet;
use std::sync::Arc;

use dataplane::control::{Message, Replay, Slow};
use dataplane::hub::{Clash, Hub, Limits, Offer, Publication, TopicPolicy};
use libfuzzer_sys::fuzz_target;

const TOPICS: [(&str, usize); 3] = [("none", 0), ("few", 2), ("more", 5)];
const MOST: usize = 2;
const LIMITS: Limits =
    Limits { topics: 9, bytes: 1 << 30, keys: 9, identities: 9_999, identity_ms: u32::MAX as u64 };

#[derive(Default)]
struct Model {
    /// (slot, topic)
    subscribed: BTreeSet<(u32, usize)>,
    seen: Vec<u8>,
    /// By topic, what is remembered: the times in ids.
    recent: [Vec<u64>; 3],
}

impl Model {
    fn readers(&self, topic: usize) -> Vec<u32> {
        self.subscribed.iter().filter(|one| one.1 == topic).map(|one| one.0).collect()
    }

    fn clash(&self, slot: u32, topic: usize) -> Option<Clash> {
        if self.subscribed.contains(&(slot, topic)) {
            Some(Clash::AlreadySubscribed)
        } else if self.subscribed.iter().filter(|one| one.0 == slot).count() >= MOST {
            Some(Clash::TooMany)
        } else {
            None
        }
    }

    fn remember(&mut self, topic: usize, ms: u64) {
        let recent = &mut self.recent[topic];
        recent.push(ms);
        recent.drain(..recent.len().saturating_sub(TOPICS[topic].1));
    }

    fn last(&self, topic: usize, count: usize) -> Vec<u64> {
        let recent = &self.recent[topic];
        recent[recent.len().saturating_sub(count)..].to_vec()
    }
}

fuzz_target!(|data: &[u8]| {
    let (mut hub, mut model) = (Hub::new(LIMITS), Model::default());
    for (time, pair) in data.chunks_exact(2).enumerate() {
        let (about, ms) = (pair[1], time as u64 + 1);
        let (slot, topic) = (u32::from(about >> 4), usize::from(about % 3));
        let name = TOPICS[topic].0;
        match pair[0] % 6 {
            0 | 1 => publish(&mut hub, &mut model, about, ms, usize::from(pair[0] >> 4) + 1),
            2 => {
                assert_eq!(hub.clash(slot, name, MOST), model.clash(slot, topic));
                if model.clash(slot, topic).is_none() {
                    hub.subscribe(slot, name);
                    model.subscribed.insert((slot, topic));
                }
            }
            3 => assert_eq!(hub.unsubscribe(slot, name), model.subscribed.remove(&(slot, topic))),
            4 => {
                hub.leave(slot);
                model.subscribed.retain(|one| one.0 != slot);
            }
            _ => {
                let count = usize::from(pair[0] >> 4);
                let replay = Replay::Last(count as u64);
                let found = hub.rewind(name, policy(topic), replay, &[], false, ms);
                let times = found.expect("nothing has to be covered");
                let times: Vec<u64> = times.iter().map(|one| one.routed_ms()).collect();
                assert_eq!(times, model.last(topic, count));
            }
        }
        assert_eq!(hub.identities(), model.seen.len());
    }
});

/// `number` is the message's identity, and decides its topic.
fn publish(hub: &mut Hub, model: &mut Model, number: u8, ms: u64, piece: usize) {
    let topic = usize::from(number % 3);
    let mut id = [0; 16];
    id[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
    id[15] = number;
    let message = Message { id, expires_ms: 0, version: -1, key: "", push: b"{}" };
    let one = Arc::new(Publication::new(TOPICS[topic].0.into(), policy(topic), &message));
    let offer = hub.publish(&one, ms);
    assert_eq!(offer == Offer::Copy, model.seen.contains(&number));
    if offer == Offer::Copy {
        return;
    }
    model.seen.push(number);
    model.remember(topic, ms);
    let mut slots = Vec::new();
    if let Offer::Readers(cursor) = &offer {
        while hub.readers(cursor, piece, &mut slots) {}
    }
    slots.sort_unstable();
    assert_eq!(slots, model.readers(topic));
}

fn policy(topic: usize) -> TopicPolicy {
    TopicPolicy { keep: TOPICS[topic].1 as u32, slow: Slow::DropOldest, latest: false }
}
