use super::*;
use proptest::prelude::*;

fn all(audience: &mut Audience, topic: &str) -> Vec<u32> {
    let mut slots = Vec::new();
    if let Some(cursor) = audience.open(topic) {
        while audience.read(&cursor, 2, &mut slots) {}
    }
    slots.sort_unstable();
    slots
}

#[test]
fn a_reader_of_one_topic_costs_twelve_bytes() {
    assert_eq!(size_of::<TopicLink>() + size_of::<u32>(), 12);
}

#[test]
fn everyone_who_is_subscribed_is_served_once() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    for slot in 0..5 {
        audience.subscribe(slot, topic);
    }
    assert!(audience.unsubscribe(1, "news.x"));
    assert!(!audience.unsubscribe(1, "news.x"));
    assert!(!audience.unsubscribe(1, "news.y"));
    assert_eq!(all(&mut audience, "news.x"), [0, 2, 3, 4]);
}

#[test]
fn fan_outs_start_at_different_readers() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    for slot in 0..8 {
        audience.subscribe(slot, topic);
    }
    let mut firsts = Vec::new();
    for _ in 0..8 {
        let cursor = audience.open("news.x").expect("readers");
        let mut slots = Vec::new();
        while audience.read(&cursor, 1, &mut slots) {}
        firsts.push(slots[0]);
    }
    firsts.sort_unstable();
    firsts.dedup();
    assert!(firsts.len() > 5, "{firsts:?}");
}

#[test]
fn whoever_comes_during_a_fan_out_is_not_in_it_and_whoever_goes_is_not_any_more() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    for slot in 0..4 {
        audience.subscribe(slot, topic);
    }
    let cursor = audience.open("news.x").expect("readers");
    let mut slots = Vec::new();
    assert!(audience.read(&cursor, 1, &mut slots));
    let left = (0..4).find(|slot| *slot != slots[0]).expect("three more");
    audience.unsubscribe(left, "news.x");
    audience.subscribe(9, topic);
    audience.subscribe(left, topic);
    while audience.read(&cursor, 1, &mut slots) {}
    slots.sort_unstable();
    let expected: Vec<u32> = (0..4).filter(|slot| *slot != left).collect();
    assert_eq!(slots, expected);
}

#[test]
fn fan_outs_to_the_same_readers_become_one() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    audience.subscribe(0, topic);
    let first = audience.open("news.x").expect("a reader");
    let second = audience.open("news.x").expect("a reader");
    audience.subscribe(1, topic);
    let third = audience.open("news.x").expect("readers");
    assert!(audience.join(&first, &second));
    assert!(!audience.join(&first, &third), "it has another reader");
    let mut slots = Vec::new();
    while audience.read(&first, 9, &mut slots) {}
    assert_eq!(slots, [0]);
    assert_eq!(audience.topics[0].open.len(), 1);
    while audience.read(&third, 9, &mut slots) {}
    slots.sort_unstable();
    assert_eq!(slots, [0, 0, 1]);
}

#[test]
fn nothing_is_left_of_a_topic_without_readers() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    audience.subscribe(0, topic);
    audience.subscribe(0, "news.y");
    audience.leave(0);
    assert!(audience.numbers.is_empty());
    assert!(audience.open("news.x").is_none());
    assert!(audience.lists.iter().all(Vec::is_empty));
}

#[test]
fn many_who_leave_during_a_fan_out_leave_no_endless_holes() {
    let (mut audience, topic) = (Audience::default(), "news.x");
    audience.subscribe(0, topic);
    audience.subscribe(1, topic);
    let cursor = audience.open("news.x").expect("readers");
    let mut slots = Vec::new();
    assert!(audience.read(&cursor, 1, &mut slots));
    for slot in 2..10_000 {
        audience.subscribe(slot, topic);
        audience.unsubscribe(slot, "news.x");
    }
    let readers = &audience.topics[0];
    assert!(readers.slots.len() <= 2 * FEW_HOLES, "{}", readers.slots.len());
    while audience.read(&cursor, 1, &mut slots) {}
    slots.sort_unstable();
    assert_eq!(slots, [0, 1]);
}

proptest! {
    /// Compares fan-outs with a list of the readers that are still to be served.
    #[test]
    fn a_fan_out_serves_those_of_its_beginning_who_stay(
        steps in prop::collection::vec((0_u8..6, 0_u32..12, 0_usize..3), 1..300),
    ) {
        let names: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        let mut audience = Audience::default();
        let mut model: Vec<(u32, usize)> = Vec::new();
        // Topic, cursor, readers still to be served.
        let mut jobs: Vec<(usize, Cursor, Vec<u32>)> = Vec::new();
        for (step, slot, topic) in steps {
            let name = &names[topic];
            match step {
                0 | 1 if !model.contains(&(slot, topic)) => {
                    audience.subscribe(slot, name);
                    model.push((slot, topic));
                }
                2 => {
                    let had = model.contains(&(slot, topic));
                    prop_assert_eq!(audience.unsubscribe(slot, name), had);
                    model.retain(|one| *one != (slot, topic));
                    jobs.iter_mut().filter(|job| job.0 == topic)
                        .for_each(|job| job.2.retain(|one| *one != slot));
                }
                3 => {
                    audience.leave(slot);
                    model.retain(|one| one.0 != slot);
                    jobs.iter_mut().for_each(|job| job.2.retain(|one| *one != slot));
                }
                4 => {
                    let due: Vec<u32> =
                        model.iter().filter(|one| one.1 == topic).map(|one| one.0).collect();
                    let cursor = audience.open(name);
                    prop_assert_eq!(cursor.is_some(), !due.is_empty());
                    if let Some(cursor) = cursor {
                        jobs.push((topic, cursor, due));
                    }
                }
                5 => {
                    if let Some(at) = jobs.iter().position(|job| job.0 == topic) {
                        if slot > 8
                            && let Some(number) = audience.numbers.get(&**name).copied() {
                                audience.compact(number);
                            }
                        let mut slots = Vec::new();
                        let more = audience.read(&jobs[at].1, 3, &mut slots);
                        for one in slots {
                            let due = jobs[at].2.iter().position(|other| *other == one);
                            prop_assert!(due.is_some(), "{} is served too much", one);
                            jobs[at].2.swap_remove(due.expect("checked"));
                        }
                        if !more {
                            prop_assert!(jobs[at].2.is_empty());
                            jobs.remove(at);
                        }
                    }
                }
                _ => {}
            }
            for slot in 0..12 {
                let mut expected: Vec<&str> =
                    model.iter().filter(|one| one.0 == slot).map(|one| &*names[one.1]).collect();
                let mut found: Vec<&str> =
                    audience.topics_of(slot).map(|name| &**name).collect();
                expected.sort_unstable();
                found.sort_unstable();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
