//! When the next reader comes or goes, so that there are as many as wanted.

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Due {
    /// One more reader.
    Come,
    /// One reader less.
    Go,
}

/// Evenly, one after the other. Times are nanoseconds of one clock.
#[derive(Default)]
pub struct Pace {
    wanted: usize,
    gap_ns: u64,
    next_ns: u64,
}

impl Pace {
    /// From `now` on so many are `wanted`, and `per_second` come or go.
    pub fn set(&mut self, wanted: usize, per_second: f64, now: u64) {
        self.wanted = wanted;
        self.gap_ns = (1e9 / per_second) as u64;
        // Whoever says so every second brings no more than the rate allows.
        self.next_ns = self.next_ns.clamp(now, now.saturating_add(self.gap_ns));
    }

    /// How many are wanted.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// What is due at `now`, when so many are `there`. Ask again until it is nothing.
    pub fn due(&mut self, there: usize, now: u64) -> Option<Due> {
        if self.next_ns(there) > now {
            return None;
        }
        self.next_ns = self.next_ns.saturating_add(self.gap_ns);
        Some(if there < self.wanted { Due::Come } else { Due::Go })
    }

    /// When something is due; never is the end of time.
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
    fn saying_it_again_brings_nobody_sooner() {
        let mut pace = Pace::default();
        let mut there = 0;
        for second in 0..10 {
            pace.set(10, 0.5, second * S);
            there += due_until(&mut pace, there, second * S);
        }
        assert_eq!(there, 5);
    }
}
