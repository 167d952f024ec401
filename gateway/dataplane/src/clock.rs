//! The time of an I/O thread, read once a turn, and random numbers that are no secrets.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A thread's own clock in ms. That of a data plane that was taken over goes on.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    started_ms: u64,
    now_ms: u64,
}

impl Clock {
    /// It says `now_ms` until it is read again.
    pub fn new(now_ms: u64) -> Clock {
        Clock { started: Instant::now(), started_ms: now_ms, now_ms }
    }

    /// Read the time.
    pub fn tick(&mut self) {
        self.now_ms = self.started_ms + self.started.elapsed().as_millis() as u64;
    }

    /// The time of this turn.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// This thread's time for a time of the wall clock in ms since the epoch; now if that is past.
    pub fn of_unix(&self, at_ms: u64) -> u64 {
        self.now_ms.saturating_add(at_ms.saturating_sub(unix_ms()))
    }
}

/// xorshift64*, for jitter.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Another sequence for each thread.
    pub fn of_thread(number: u16) -> Random {
        Random(unix_ms().wrapping_mul(2 * (u64::from(number) + 1) + 1) | 1)
    }

    /// Any number.
    pub fn draw(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32
    }

    /// A number from 0 to `most`.
    pub fn up_to(&mut self, most: u64) -> u32 {
        ((u64::from(self.draw()) * (most + 1)) >> 32) as u32
    }
}

/// A time of the wall clock by the Gregorian calendar.
pub struct Utc {
    /// Since 1970-01-01.
    pub days: u64,
    pub year: u64,
    /// From 1.
    pub month: u64,
    /// From 1.
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Utc {
    /// So many seconds after the epoch.
    pub fn of_unix(seconds: u64) -> Utc {
        let days = seconds / 86_400;
        // Years of this reckoning begin in March, so that leap days come last; day 0 is in year 0.
        let day = days + 719_468;
        let (era, day_of_era) = (day / 146_097, day % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        Utc {
            days,
            year: era * 400 + year_of_era + u64::from(month >= 10),
            month: (month + 2) % 12 + 1,
            day: day_of_year - (153 * month + 2) / 5 + 1,
            hour: seconds / 3_600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }
}

/// ms since the epoch.
pub fn unix_ms() -> u64 {
    unix_us() / 1_000
}

/// Microseconds since the epoch.
pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_keep_to_their_bound_and_reach_it() {
        let mut random = Random::of_thread(3);
        let drawn: Vec<u32> = (0..200).map(|_| random.up_to(2)).collect();
        assert!((0..=2).all(|one| drawn.contains(&one)));
        assert!(drawn.iter().all(|one| *one <= 2));
    }

    #[test]
    fn a_clock_goes_on_from_where_another_stood() {
        let mut clock = Clock::new(1 << 40);
        assert_eq!(clock.now_ms(), 1 << 40);
        clock.tick();
        assert!(clock.now_ms() >= 1 << 40);
        assert_eq!(clock.of_unix(1), clock.now_ms());
    }
}
