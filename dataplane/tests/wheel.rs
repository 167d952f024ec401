//! The timer wheel beside a plain list of deadlines.

use std::collections::BTreeMap;

use dataplane::wheel::{Wheel, first_beat};
use proptest::prelude::*;

const TICK: u32 = 100;

fn wheel() -> Wheel {
    Wheel::new(1_000, TICK, 8)
}

fn fired(wheel: &mut Wheel, now_ms: u64) -> Vec<u32> {
    let mut slots: Vec<_> =
        std::iter::from_fn(|| wheel.pop(now_ms)).map(|(slot, _)| slot).collect();
    slots.sort_unstable();
    slots
}

#[test]
fn a_timer_fires_within_a_tick_and_never_early() {
    let mut wheel = wheel();
    wheel.set(3, 1_250);
    assert!(fired(&mut wheel, 1_249).is_empty());
    assert!(fired(&mut wheel, 1_299).is_empty());
    assert_eq!(fired(&mut wheel, 1_300), [3]);
    assert!(fired(&mut wheel, 9_999).is_empty());
}

#[test]
fn a_timer_of_many_turns_waits_for_its_own() {
    let mut wheel = wheel();
    wheel.set(0, 1_000 + 30_000);
    wheel.set(1, 1_000 + 400);
    for now in (1_000..31_000).step_by(100).filter(|now| *now != 1_400) {
        assert!(!fired(&mut wheel, now).contains(&0), "{now}");
    }
    assert_eq!(fired(&mut wheel, 31_000), [0]);
}

#[test]
fn setting_again_moves_a_timer_and_cancelling_removes_it() {
    let mut wheel = wheel();
    wheel.set(1, 1_100);
    wheel.set(2, 1_100);
    wheel.set(3, 1_100);
    wheel.set(1, 1_200);
    wheel.cancel(2);
    wheel.cancel(7);
    assert_eq!(fired(&mut wheel, 1_100), [3]);
    assert_eq!(fired(&mut wheel, 1_200), [1]);
    assert_eq!(wheel.wait_ms(1_200), None);
}

#[test]
fn after_a_long_sleep_everything_that_was_due_fires() {
    let mut wheel = wheel();
    for slot in 0..100 {
        wheel.set(slot, 1_000 + u64::from(slot) * 1_000);
    }
    assert_eq!(fired(&mut wheel, 51_000), Vec::from_iter(0..=50));
    assert_eq!(wheel.wait_ms(51_000), Some(100));
    assert_eq!(fired(&mut wheel, u64::MAX), Vec::from_iter(51..100));
    assert_eq!(wheel.wait_ms(60_000), None);
}

#[test]
fn a_timer_that_fires_late_says_when_it_was_due() {
    let mut wheel = wheel();
    wheel.set(3, 1_250);
    assert_eq!(wheel.pop(99_999), Some((3, 1_300)));
}

#[test]
fn a_timer_may_be_set_while_others_fire() {
    let mut wheel = wheel();
    wheel.set(1, 1_100);
    wheel.set(2, 1_100);
    let (first, _) = wheel.pop(1_100).expect("one of the two");
    wheel.set(first, 0);
    wheel.cancel(3 - first);
    assert_eq!(wheel.pop(1_100), None);
    assert_eq!(wheel.pop(1_200), Some((first, 1_200)));
}

#[test]
fn first_beats_are_spread() {
    assert_eq!(first_beat(7, 25_000, 0), 7 + 5_000);
    assert_eq!(first_beat(0, 25_000, 1 << 31), 15_000);
    assert_eq!(first_beat(0, 25_000, u32::MAX), 24_999);
}

#[derive(Debug, Clone)]
enum WheelStep {
    Set(u32, u64),
    Cancel(u32),
    Sleep(u64),
}

fn any_step() -> impl Strategy<Value = WheelStep> {
    prop_oneof![
        4 => (0..20u32, 0..5_000u64).prop_map(|(slot, after)| WheelStep::Set(slot, after)),
        1 => (0..20u32).prop_map(WheelStep::Cancel),
        3 => (0..300u64).prop_map(WheelStep::Sleep),
        1 => (0..9_000u64).prop_map(WheelStep::Sleep),
    ]
}

proptest! {
    #[test]
    fn the_wheel_does_what_a_list_of_deadlines_does(
        steps in prop::collection::vec(any_step(), 0..80),
        buckets in 1..40u16,
    ) {
        let tick = u64::from(TICK);
        let mut wheel = Wheel::new(0, TICK, buckets);
        let mut list = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                WheelStep::Set(slot, after) => {
                    wheel.set(slot, now + after);
                    // Rounded up, and never in the tick that has been served.
                    let due = (now + after).div_ceil(tick).max(now / tick + 1);
                    list.insert(slot, due);
                }
                WheelStep::Cancel(slot) => {
                    wheel.cancel(slot);
                    list.remove(&slot);
                }
                WheelStep::Sleep(ms) => {
                    now += ms;
                    let due: Vec<_> = list
                        .iter()
                        .filter(|(_, due)| **due <= now / tick)
                        .map(|(slot, _)| *slot)
                        .collect();
                    prop_assert_eq!(fired(&mut wheel, now), due.clone());
                    list.retain(|slot, _| !due.contains(slot));
                }
            }
            prop_assert_eq!(wheel.wait_ms(now).is_some(), !list.is_empty());
            prop_assert!((0..20).all(|slot| wheel.due_ms(slot).is_some() == list.contains_key(&slot)));
        }
    }
}
