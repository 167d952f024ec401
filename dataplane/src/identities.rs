//! Identities seen recently, so that copies and repeats are dropped.
//!
//! A window bounded in time and in number. Identities leave it in groups of ten seconds: that costs
//! one timestamp per group instead of one per identity. Above the limit, the oldest group is
//! evicted early. A repeat that arrives later counts as a new message, and readers' libraries drop
//! it. `now` is in ms of a clock that never goes back, and that a newer data plane continues.
//!
//! The decision to question: no set of the standard library. Identities are stored once, in order
//! of arrival (10 bytes each). A table of their numbers in that order finds them (4 bytes each, at
//! most three quarters full): 16 to 21 bytes for each identity instead of the 40 of a set and a
//! queue. Every I/O thread has a window of its own, up to a million and a half (`HubLimits` in
//! `gateway/memory/hub.py`).

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use crate::publication::Identity;

const GROUP_MS: u64 = 10_000;
/// An empty place in the table.
const NONE: u32 = u32::MAX;
const SMALLEST_TABLE: usize = 64;

/// Identities that were seen within about ten seconds.
#[derive(Debug)]
struct Group {
    start: u64,
    count: usize,
}

/// The set of identities of the last `window_ms` (up to ten seconds more), at most `limit`.
#[derive(Debug)]
pub struct SeenIdentities {
    /// Time for which identities are remembered.
    pub window_ms: u64,
    /// Maximum number; a new limit takes effect at the next [`SeenIdentities::add`].
    pub limit: usize,
    /// Number of identities that were evicted before their time.
    pub evicted_early: u64,
    order: VecDeque<Identity>,
    /// Number of the first identity in `order`; numbers wrap.
    first: u32,
    groups: VecDeque<Group>,
    /// Numbers of identities, found by hashing with linear probing. The size is a power of two.
    table: Vec<u32>,
    // Publishers choose identities, so the hash must be a secret.
    hasher: RandomState,
}

impl SeenIdentities {
    /// Return an empty window.
    pub fn new(window_ms: u64, limit: usize) -> SeenIdentities {
        SeenIdentities {
            window_ms,
            limit,
            order: VecDeque::new(),
            first: 0,
            groups: VecDeque::new(),
            table: vec![NONE; SMALLEST_TABLE],
            hasher: RandomState::new(),
            evicted_early: 0,
        }
    }

    /// Return the number of identities.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Return whether the window is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Return whether an identity was seen.
    pub fn contains(&self, identity: &Identity) -> bool {
        self.table[self.find(identity)] != NONE
    }

    /// Remember `identity` as seen now, unless it is known already.
    pub fn add(&mut self, identity: &Identity, now: u64) {
        self.expire(now);
        if self.contains(identity) {
            return;
        }
        self.count_in_group(now - now % GROUP_MS);
        self.append(identity);
        while self.order.len() > self.limit {
            self.evict();
        }
    }

    /// Forget the groups that have left the window.
    pub fn expire(&mut self, now: u64) {
        while self.groups.front().is_some_and(|one| one.start + GROUP_MS + self.window_ms <= now) {
            self.forget_oldest_group();
        }
        self.shrink();
    }

    /// Return all identities, oldest first, in pieces of at most `most`, each with its group's
    /// start.
    pub fn pieces(&mut self, most: usize) -> impl Iterator<Item = (u64, &[Identity])> {
        let mut rest = &*self.order.make_contiguous();
        self.groups.iter().flat_map(move |group| {
            let (own, others) = rest.split_at(group.count);
            rest = others;
            own.chunks(most).map(|piece| (group.start, piece))
        })
    }

    /// Remember a piece from [`SeenIdentities::pieces`]; pieces must be restored in their order.
    pub fn restore(&mut self, start: u64, piece: &[Identity]) {
        for identity in piece {
            if self.contains(identity) {
                continue;
            }
            self.count_in_group(start);
            self.append(identity);
        }
    }

    fn count_in_group(&mut self, start: u64) {
        match self.groups.back_mut() {
            // The start of a restored group may be later than `start`.
            Some(group) if group.start >= start => group.count += 1,
            _ => self.groups.push_back(Group { start, count: 1 }),
        }
    }

    fn append(&mut self, identity: &Identity) {
        self.grow_for(self.order.len() + 1);
        if self.first.wrapping_add(self.order.len() as u32) == NONE {
            // After 2³² identities: this number means an empty place, so number all anew.
            self.resize(self.table.len());
        }
        let place = self.find(identity);
        self.table[place] = self.first.wrapping_add(self.order.len() as u32);
        self.order.push_back(*identity);
    }

    fn evict(&mut self) {
        let before = self.order.len();
        if self.groups.len() > 1 {
            self.forget_oldest_group();
        } else if let Some(group) = self.groups.front_mut() {
            // All were seen within ten seconds: forget the older half.
            let half = (group.count / 2).max(1);
            group.count -= half;
            self.forget(half);
        }
        self.evicted_early += (before - self.order.len()) as u64;
    }

    fn forget_oldest_group(&mut self) {
        let count = self.groups.pop_front().map_or(0, |group| group.count);
        self.forget(count);
    }

    fn forget(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(place) = self.order.front().map(|identity| self.find(identity)) {
                self.empty(place);
                self.order.pop_front();
                self.first = self.first.wrapping_add(1);
            }
        }
    }

    /// Return the place of `identity` in the table, or the empty place where it belongs.
    fn find(&self, identity: &Identity) -> usize {
        let mut place = self.home(identity);
        while self.table[place] != NONE && self.at(self.table[place]) != identity {
            place = (place + 1) & self.mask();
        }
        place
    }

    /// Empty a place, and move later entries up that had skipped it (there are no tombstones).
    fn empty(&mut self, mut hole: usize) {
        let mask = self.mask();
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            if self.table[next] == NONE {
                break;
            }
            let home = self.home(self.at(self.table[next]));
            // Not an entry whose home lies behind the hole: it could not be found any more.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.table[hole] = self.table[next];
                hole = next;
            }
        }
        self.table[hole] = NONE;
    }

    fn at(&self, number: u32) -> &Identity {
        &self.order[number.wrapping_sub(self.first) as usize]
    }

    fn home(&self, identity: &Identity) -> usize {
        self.hasher.hash_one(identity) as usize & self.mask()
    }

    fn mask(&self) -> usize {
        self.table.len() - 1
    }

    fn grow_for(&mut self, count: usize) {
        if count * 4 > self.table.len() * 3 {
            self.resize(self.table.len() * 2);
        }
    }

    fn shrink(&mut self) {
        if self.table.len() > SMALLEST_TABLE && self.order.len() * 8 < self.table.len() {
            self.order.shrink_to(self.order.len() * 2);
            self.resize(self.table.len() / 2);
        }
    }

    /// Number all identities from 0 again, in a table of `size` places.
    fn resize(&mut self, size: usize) {
        self.first = 0;
        self.table.clear();
        self.table.resize(size, NONE);
        self.table.shrink_to_fit();
        for number in 0..self.order.len() {
            let place = self.find(&self.order[number]);
            self.table[place] = number as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(number: u64) -> Identity {
        let mut identity = [0; 10];
        identity[2..].copy_from_slice(&number.to_be_bytes());
        identity
    }

    #[test]
    fn an_identity_is_seen_until_its_group_leaves_the_window() {
        let mut seen = SeenIdentities::new(60_000, 100);
        seen.add(&identity(1), 15_000);
        seen.expire(79_999);
        assert!(seen.contains(&identity(1)));
        seen.expire(80_000);
        assert!(!seen.contains(&identity(1)));
    }

    #[test]
    fn what_was_seen_is_taken_over_with_its_age() {
        let mut seen = SeenIdentities::new(60_000, 100);
        for number in 0..10 {
            seen.add(&identity(number), number * 5_000);
        }
        let mut again = SeenIdentities::new(60_000, 100);
        seen.pieces(2).for_each(|(start, piece)| again.restore(start, piece));
        for now in [70_000, 80_000, 90_000, 110_000] {
            seen.expire(now);
            again.expire(now);
            let left = |seen: &SeenIdentities| {
                (0..10).filter(|one| seen.contains(&identity(*one))).collect::<Vec<u64>>()
            };
            assert_eq!(left(&seen), left(&again));
        }
        assert!(again.is_empty());
    }

    #[test]
    fn the_oldest_group_goes_early_when_there_are_too_many() {
        let mut seen = SeenIdentities::new(600_000, 3);
        for (number, now) in [(1, 0), (2, 1), (3, 10_000), (4, 10_001)] {
            seen.add(&identity(number), now);
        }
        let left: Vec<u64> = (1..=4).filter(|one| seen.contains(&identity(*one))).collect();
        assert_eq!(left, [3, 4]);
        assert_eq!(seen.evicted_early, 2);
    }

    #[test]
    fn after_four_billion_it_goes_on() {
        let mut seen = SeenIdentities::new(600_000, 100);
        seen.first = u32::MAX - 2;
        for number in 1..=5 {
            seen.add(&identity(number), 0);
            assert!((1..=number).all(|one| seen.contains(&identity(one))), "{number}");
        }
        seen.expire(1_000_000);
        assert!(seen.is_empty() && seen.table.iter().all(|place| *place == NONE));
    }

    #[test]
    fn of_one_group_the_older_half_goes() {
        let mut seen = SeenIdentities::new(600_000, 4);
        for number in 1..=5 {
            seen.add(&identity(number), 0);
        }
        let left: Vec<u64> = (1..=5).filter(|one| seen.contains(&identity(*one))).collect();
        assert_eq!(left, [3, 4, 5]);
    }

    #[test]
    fn what_was_taken_over_keeps_its_time_to_the_ms_and_outlives_nothing() {
        let mut seen = SeenIdentities::new(10_000, 100);
        seen.restore(50_001, &[identity(1)]);
        seen.add(&identity(2), 50_002);
        seen.expire(70_000);
        assert_eq!(seen.len(), 2);
        seen.expire(70_001);
        assert!(seen.is_empty());
    }

    #[test]
    fn as_many_as_a_gateway_remembers_cost_thirty_megabytes() {
        let mut seen = SeenIdentities::new(900_000, 1_550_000);
        for number in 0..1_550_000 {
            seen.add(&identity(number), 0);
        }
        let bytes = seen.table.capacity() * 4 + seen.order.capacity() * size_of::<Identity>();
        assert!(bytes < 30 << 20, "{bytes}");
    }

    proptest! {
        #[test]
        fn it_equals_a_list_of_groups(
            limit in 1_usize..40,
            steps in prop::collection::vec((0_u64..60, 0_u64..9_000), 1..300),
        ) {
            let mut seen = SeenIdentities::new(20_000, limit);
            let mut model: Vec<(u64, Vec<u64>)> = Vec::new();
            let mut now = 0;
            for (number, pause) in steps {
                now += pause;
                seen.add(&identity(number), now);
                model.retain(|(start, _)| start + 30_000 > now);
                if !model.iter().any(|(_, group)| group.contains(&number)) {
                    let start = now - now % 10_000;
                    if model.last().is_none_or(|(last, _)| *last < start) {
                        model.push((start, Vec::new()));
                    }
                    model.last_mut().expect("just made").1.push(number);
                    if model.iter().map(|(_, group)| group.len()).sum::<usize>() > limit {
                        if model.len() > 1 {
                            model.remove(0);
                        } else {
                            let half = (model[0].1.len() / 2).max(1);
                            model[0].1.drain(..half);
                        }
                    }
                }
                for one in 0..60 {
                    let expected = model.iter().any(|(_, group)| group.contains(&one));
                    prop_assert_eq!(seen.contains(&identity(one)), expected);
                }
                prop_assert!(seen.len() <= limit);
            }
        }
    }
}
