//! The pace of a drain: the number of readers to notify by a given time. Pure.
//!
//! Readers that are all notified at once would reconnect to the other boxes in the same second.

/// Readers spread evenly over a time, which is longer where the rate would be too high.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    readers: u64,
    start_ms: u64,
    duration_ms: u64,
    ordered: u64,
    /// The slot at which the search for the next reader continues.
    pub next_slot: u32,
}

impl Pace {
    /// Spread `readers` from `now_ms` over `spread_ms`, but at most `per_second`.
    pub fn new(readers: u64, now_ms: u64, spread_ms: u32, per_second: u32) -> Pace {
        let least_ms = readers * 1_000 / u64::from(per_second.max(1));
        let duration_ms = if readers == 0 { 0 } else { least_ms.max(u64::from(spread_ms)) };
        Pace { readers, start_ms: now_ms, duration_ms, ordered: 0, next_slot: 0 }
    }

    /// Return the number of readers to notify now, and count them as notified.
    pub fn due(&mut self, now_ms: u64) -> u64 {
        let elapsed = now_ms.saturating_sub(self.start_ms);
        let total = if elapsed >= self.duration_ms {
            self.readers
        } else {
            self.readers * elapsed / self.duration_ms
        };
        let due = total.saturating_sub(self.ordered);
        self.ordered += due;
        due
    }

    /// Return whether the time of the drain is over, so that all readers are due.
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.start_ms) >= self.duration_ms
    }
}

/// Return for each thread how many of `count` readers it has to send away: in proportion to its
/// `readers`, and never more than it has.
pub fn shares(count: u32, readers: &[u64]) -> Vec<u32> {
    let all: u64 = readers.iter().sum();
    let count = u64::from(count).min(all);
    let (mut before, mut assigned) = (0, 0);
    let mut share = |own: &u64| {
        before += own;
        // The total due up to this thread, so that no fraction is lost by rounding.
        let due = (count * before).checked_div(all).unwrap_or(0);
        let share = due - assigned;
        assigned = due;
        u32::try_from(share).unwrap_or(u32::MAX)
    };
    readers.iter().map(&mut share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_are_spread_evenly() {
        let mut pace = Pace::new(100, 1_000, 10_000, 1_000);
        assert_eq!(pace.due(1_000), 0);
        assert_eq!(pace.due(6_000), 50);
        assert_eq!(pace.due(6_000), 0);
        assert_eq!(pace.due(20_000), 50);
        assert!(pace.is_over(11_000));
    }

    #[test]
    fn too_many_a_second_take_longer() {
        let mut pace = Pace::new(1_000, 0, 100, 100);
        assert_eq!(pace.due(1_000), 100);
        assert!(!pace.is_over(9_999));
    }

    #[test]
    fn threads_share_what_is_shed_by_their_readers() {
        assert_eq!(shares(10, &[300, 100, 0, 100]), [6, 2, 0, 2]);
        assert_eq!(shares(1, &[1, 1, 1]), [0, 0, 1]);
        assert_eq!(shares(100, &[2, 3]), [2, 3]);
        assert_eq!(shares(5, &[0, 0]), [0, 0]);
    }

    #[test]
    fn nobody_is_sent_away_at_once() {
        assert!(Pace::new(0, 5, 10_000, 1).is_over(5));
    }
}
