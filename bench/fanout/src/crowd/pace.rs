//! The times at which readers arrive or leave, so that there are as many as wanted.

/// The event that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Due {
    /// A reader arrives.
    Come,
    /// A reader leaves.
    Go,
}

/// An even pace, one reader after the other. Times are nanoseconds of one clock.
#[derive(Default)]
pub struct Pace {
    wanted: usize,
    gap_ns: u64,
    next_ns: u64,
}

impl Pace {
    /// Sets the `wanted` number of readers, and the rate at which they arrive or leave, from `now` on.
    pub fn set(&mut self, wanted: usize, per_second: f64, now: u64) {
        self.wanted = wanted;
        self.gap_ns = (1e9 / per_second) as u64;
        // A caller that repeats this every second doesn't exceed the rate.
        self.next_ns = self.next_ns.clamp(now, now.saturating_add(self.gap_ns));
    }

    /// The wanted number of readers.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// The event that is due at `now` with `there` readers. Call again until it returns None.
    pub fn due(&mut self, there: usize, now: u64) -> Option<Due> {
        if self.next_ns(there) > now {
            return None;
        }
        self.next_ns = self.next_ns.saturating_add(self.gap_ns);
        Some(if there < self.wanted { Due::Come } else { Due::Go })
    }

    /// The time of the next event; `u64::MAX` if there is none.
    pub fn next_ns(&self, there: usize) -> u64 {
        if there == self.wanted { u64::MAX } else { self.next_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn due_until(pace: &mut Pace, there: usize, now: u64) -> usize {
        (0..).take_while(|&n| pace.due(there + n, now) == Some(Due::Come)).count()
    }

    #[test]
    fn readers_come_evenly_until_enough_are_there() {
        let mut pace = Pace::default();
        pace.set(10, 2.0, 100 * S);
        assert_eq!(due_until(&mut pace, 0, 100 * S), 1);
        assert_eq!(due_until(&mut pace, 1, 100 * S + S / 2 - 1), 0);
        assert_eq!(due_until(&mut pace, 1, 103 * S), 6);
        assert_eq!(due_until(&mut pace, 7, 200 * S), 3);
        assert_eq!(pace.next_ns(10), u64::MAX);
    }

    #[test]
    fn they_go_when_fewer_are_wanted() {
        let mut pace = Pace::default();
        pace.set(2, 1e6, 0);
        assert_eq!(pace.due(4, S), Some(Due::Go));
        assert_eq!(pace.due(3, S), Some(Due::Go));
        assert_eq!(pace.due(2, S), None);
    }

    #[test]
    fn a_repeated_command_brings_no_reader_sooner() {
        let mut pace = Pace::default();
        let mut there = 0;
        for second in 0..10 {
            pace.set(10, 0.5, second * S);
            there += due_until(&mut pace, there, second * S);
        }
        assert_eq!(there, 5);
    }
}
