//! A set of numbers that arrive mostly in order. It is stored as ranges, so eight bytes if no number is missing.

/// Bound of the ranges of one set. A reader with more holes has lost so much that one more has no meaning.
pub const MOST_RANGES: usize = 64;

/// The result of adding a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Added {
    /// The number wasn't in the set; now it is.
    New,
    /// The number was in the set.
    Known,
    /// The number is not in the set, which has too many holes for one more range.
    Full,
}

/// At most [`MOST_RANGES`] ranges, each with its first and its last number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Numbers(Vec<(u32, u32)>);

impl Numbers {
    /// Adds `number`, if there is room.
    pub fn add(&mut self, number: u32) -> Added {
        let ranges = &mut self.0;
        // The number of ranges that begin at `number` or before.
        let at = ranges.partition_point(|&(first, _)| first <= number);
        if at > 0 && number <= ranges[at - 1].1 {
            return Added::Known;
        }
        let joins_left = at > 0 && ranges[at - 1].1 + 1 == number;
        let joins_right = at < ranges.len() && number + 1 == ranges[at].0;
        match (joins_left, joins_right) {
            (true, true) => ranges[at - 1].1 = ranges.remove(at).1,
            (true, false) => ranges[at - 1].1 = number,
            (false, true) => ranges[at].0 = number,
            (false, false) if ranges.len() < MOST_RANGES => {
                // Most sets stay at one range: the usual room for four would be wasted.
                if ranges.is_empty() {
                    ranges.reserve_exact(1);
                }
                ranges.insert(at, (number, number));
            }
            (false, false) => return Added::Full,
        }
        Added::New
    }

    /// The count of numbers missing between the first and the last.
    pub fn holes(&self) -> u64 {
        self.0.windows(2).map(|pair| u64::from(pair[1].0 - pair[0].1 - 1)).sum()
    }

    /// The count of numbers in the set.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// The highest number.
    pub fn newest(&self) -> Option<u32> {
        self.0.last().map(|&(_, last)| last)
    }

    /// First and last of each range.
    pub fn ranges(&self) -> &[(u32, u32)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(numbers: &[u32]) -> Numbers {
        let mut set = Numbers::default();
        for &number in numbers {
            set.add(number);
        }
        set
    }

    #[test]
    fn what_comes_in_order_is_one_range_and_what_is_missing_a_hole() {
        assert_eq!(of(&[3, 4, 5]).ranges(), [(3, 5)]);
        assert_eq!(of(&[3, 4, 7]).ranges(), [(3, 4), (7, 7)]);
        assert_eq!((of(&[3, 4, 5]).holes(), of(&[3, 4, 7, 9]).holes()), (0, 3));
        assert_eq!(of(&[0, 2, 1]).ranges(), [(0, 2)]);
        assert_eq!(of(&[u32::MAX - 1, u32::MAX]).ranges(), [(u32::MAX - 1, u32::MAX)]);
    }

    #[test]
    fn a_set_with_too_many_holes_takes_only_what_needs_no_range_more() {
        let most = MOST_RANGES as u32;
        let mut set = of(&(0..most).map(|n| 3 * n).collect::<Vec<_>>());
        assert_eq!(set.add(3 * most), Added::Full);
        assert_eq!(set.add(1), Added::New);
        assert_eq!(set.add(2), Added::New);
        assert_eq!(set.add(3 * most), Added::New);
        assert_eq!(set.ranges().len(), MOST_RANGES);
    }

    proptest! {
        #[test]
        fn it_is_a_set(added in prop::collection::vec(0_u32..40, 0..100)) {
            let (mut set, mut model) = (Numbers::default(), BTreeSet::new());
            for number in added {
                let known = if model.insert(number) { Added::New } else { Added::Known };
                prop_assert_eq!(set.add(number), known);
            }
            let numbers = set.ranges().iter().flat_map(|&(first, last)| first..=last);
            prop_assert!(numbers.eq(model.iter().copied()));
            prop_assert_eq!(set.count(), model.len() as u64);
            prop_assert_eq!(set.newest(), model.last().copied());
            prop_assert!(set.ranges().windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }
    }
}
