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
    assert_eq!(ask(&mut hub, Replay::Latest), Err(Uncovered::Cold));
    hub.seed("a", keeping(3), false, &[on("a", 3, &message(4, 4))], &[], 0);
    assert_eq!(ask(&mut hub, Replay::Latest), Ok(vec![]));
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
fn a_topic_that_has_latest_replays_them_to_who_asks_for_no_past() {
    let mut hub = Hub::new(LIMITS);
    let policy = TopicPolicy { latest: true, ..keeping(1) };
    for (key, number) in [("a", 1), ("b", 2), ("b", 3)] {
        let one = Publication::new("t".into(), policy, &Message { key, ..message(number, number) });
        hub.publish(&Arc::new(one), 0);
    }
    let mut ask = |replay| hub.rewind("t", policy, replay, &[], false, 0).map(|all| numbers(&all));
    assert_eq!(ask(Replay::Latest), Ok(vec![1, 3]));
    assert_eq!(ask(Replay::SinceAndLatest(0)), Ok(vec![1, 3]));
    assert_eq!(ask(Replay::Last(1)), Ok(vec![3]));
    assert_eq!(ask(Replay::Since(0)), Ok(vec![3]));
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
