//! The pace of a drain: how many readers should have been told by when. Pure.
//!
//! All at once they would fall on the other boxes in the same second.

/// Readers spread evenly over a time, or over longer if that were too many a second.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    readers: u64,
    start_ms: u64,
    duration_ms: u64,
    told: u64,
    /// Where the search for the next reader goes on.
    pub next_slot: u32,
}

impl Pace {
    /// So many `readers` from `now_ms` on, over `spread_ms`, but at most `per_second`.
    #[must_use]
    pub fn new(readers: u64, now_ms: u64, spread_ms: u32, per_second: u32) -> Pace {
        let least_ms = readers * 1_000 / u64::from(per_second.max(1));
        let duration_ms = if readers == 0 { 0 } else { least_ms.max(u64::from(spread_ms)) };
        Pace { readers, start_ms: now_ms, duration_ms, told: 0, next_slot: 0 }
    }

    /// How many are to be told now; they count as told.
    pub fn due(&mut self, now_ms: u64) -> u64 {
        let elapsed = now_ms.saturating_sub(self.start_ms);
        let total = if elapsed >= self.duration_ms {
            self.readers
        } else {
            self.readers * elapsed / self.duration_ms
        };
        let due = total.saturating_sub(self.told);
        self.told += due;
        due
    }

    /// Whether everyone has been told.
    #[must_use]
    pub fn is_over(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.start_ms) >= self.duration_ms
    }
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
    fn nobody_is_sent_away_at_once() {
        assert!(Pace::new(0, 5, 10_000, 1).is_over(5));
    }
}
