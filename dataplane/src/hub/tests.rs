use super::*;
use crate::control::{Slow, TopicMessage};
use crate::publication::tests::message;
use proptest::prelude::*;

fn new_hub() -> Hub {
    Hub::new(60_000, 1_000)
}

fn on(topic: &str, message: &TopicMessage<'_>) -> Arc<Publication> {
    Arc::new(Publication::new(topic.into(), Slow::Disconnect, message))
}

fn served(hub: &mut Hub, offer: &PublishOutcome) -> Vec<u32> {
    let mut slots = Vec::new();
    if let PublishOutcome::Subscribers(cursor) = offer {
        while hub.audience.read(cursor, 2, &mut slots) {}
    }
    slots.sort_unstable();
    slots
}

#[test]
fn a_publication_goes_to_those_subscribed_and_its_copies_to_nobody() {
    let mut hub = new_hub();
    hub.audience.subscribe(1, "a");
    hub.audience.subscribe(2, "a");
    hub.audience.subscribe(3, "b");
    let offer = hub.publish(&on("a", &message(1, 7)), 0);
    assert_eq!(served(&mut hub, &offer), [1, 2]);
    assert_eq!(hub.publish(&on("a", &message(2, 7)), 0), PublishOutcome::Duplicate);
    assert_eq!(hub.publish(&on("c", &message(3, 8)), 0), PublishOutcome::NoSubscribers);
}

#[test]
fn a_reader_has_a_topic_once_and_only_so_many() {
    let mut hub = new_hub();
    assert_eq!(hub.audience.check_subscribe(1, "a", 1), None);
    hub.audience.subscribe(1, "a");
    assert_eq!(hub.audience.check_subscribe(1, "a", 1), Some(SubscribeError::AlreadySubscribed));
    assert_eq!(hub.audience.check_subscribe(1, "b", 1), Some(SubscribeError::TooMany));
    assert!(hub.audience.unsubscribe(1, "a"));
    assert!(!hub.audience.unsubscribe(1, "a"));
    assert_eq!(hub.audience.check_subscribe(1, "b", 1), None);
}

#[test]
fn a_copy_of_what_was_replayed_is_dropped() {
    let mut hub = new_hub();
    hub.record_replayed(&[on("a", &message(4, 4))], 0, 0);
    assert_eq!(hub.publish(&on("a", &message(5, 4)), 0), PublishOutcome::Duplicate);
}

#[test]
fn what_is_replayed_and_older_than_the_window_takes_no_room_in_it() {
    let mut hub = new_hub();
    hub.record_replayed(&[on("a", &message(4, 4)), on("a", &message(70_000, 5))], 0, 80_000);
    assert_eq!(hub.seen.len(), 1);
}

/// Return the hub of a data plane that has taken over.
fn taken_over(hub: &mut Hub) -> Hub {
    let mut again = new_hub();
    hub.seen.pieces(2).for_each(|(start, piece)| again.seen.restore(start, piece));
    for slot in 0..4 {
        for name in hub.audience.topics_of(slot) {
            again.audience.subscribe(slot, name);
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
        let (mut one, mut other) = (new_hub(), new_hub());
        let names = ["a", "b", "c", "d", "e"];
        for (index, (step, slot, number, topic)) in steps.into_iter().enumerate() {
            let now = index as u64 * 3_000;
            if index == at {
                other = taken_over(&mut one);
            }
            let name = names[topic];
            let both = |hub: &mut Hub| match step {
                0 | 1 => {
                    let one = on(names[number as usize % 5], &message(number, number));
                    match hub.publish(&one, now) {
                        PublishOutcome::Duplicate => vec![u32::MAX],
                        offer => served(hub, &offer),
                    }
                }
                2 if hub.audience.check_subscribe(slot, name, 9).is_none() => {
                    hub.audience.subscribe(slot, name);
                    vec![]
                }
                3 => vec![hub.audience.unsubscribe(slot, name).into()],
                _ => {
                    hub.audience.leave(slot);
                    vec![]
                }
            };
            let (seen, expected) = (both(&mut other), both(&mut one));
            if index >= at {
                prop_assert_eq!(seen, expected);
                prop_assert_eq!(one.seen.len(), other.seen.len());
            }
        }
    }

    /// Plays readers that come and go, copies in any order, and fan-outs in pieces.
    #[test]
    fn nobody_gets_an_identity_twice_and_each_topic_comes_in_its_order(
        steps in prop::collection::vec((0_u8..8, 0_u32..4, 0_u64..40, 0_usize..2), 1..400),
    ) {
        let mut hub = new_hub();
        let names = ["a", "b"];
        let mut jobs: [Vec<(u64, Cursor)>; 2] = Default::default();
        let mut published: Vec<u64> = Vec::new();
        // Messages of each reader, by topic, since it connected.
        let mut got: [[Vec<u64>; 2]; 4] = Default::default();
        for (step, slot, number, topic) in steps {
            let name = names[topic];
            let reader = slot as usize;
            // A message belongs to one topic.
            let home = number as usize % 2;
            match step {
                0 | 1 if hub.audience.check_subscribe(slot, name, 9).is_none() => hub.audience.subscribe(slot, name),
                2 => {
                    hub.audience.unsubscribe(slot, name);
                    got[reader][topic].clear();
                }
                3 => {
                    hub.audience.leave(slot);
                    got[reader] = Default::default();
                }
                4 | 5 => {
                    let offer = hub.publish(&on(names[home], &message(number, number)), 0);
                    prop_assert_eq!(offer == PublishOutcome::Duplicate, published.contains(&number));
                    if offer != PublishOutcome::Duplicate {
                        published.push(number);
                    }
                    if let PublishOutcome::Subscribers(cursor) = offer {
                        jobs[home].push((number, cursor));
                    }
                }
                _ => {
                    if let Some((number, cursor)) = jobs[topic].first() {
                        let mut slots = Vec::new();
                        let more = hub.audience.read(cursor, 1, &mut slots);
                        for slot in slots {
                            prop_assert!(hub.audience.check_subscribe(slot, name, 9).is_some());
                            got[slot as usize][topic].push(*number);
                        }
                        if !more {
                            jobs[topic].remove(0);
                        }
                    }
                }
            }
            for seen in got.iter().flatten() {
                let order: Vec<usize> = seen
                    .iter()
                    .map(|one| published.iter().position(|other| other == one).expect("published"))
                    .collect();
                prop_assert!(order.is_sorted_by(|one, next| one < next), "{:?}", seen);
            }
        }
    }
}
