//! The time of an I/O thread, read once per turn, and random numbers that are not secret.

use std::ffi::CStr;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A thread's own clock in ms. After a take-over it continues from the older data plane's time.
#[derive(Debug)]
pub struct Clock {
    started: Instant,
    started_ms: u64,
    now_ms: u64,
}

impl Clock {
    /// Return a clock that reads `now_ms` until the first tick.
    pub fn new(now_ms: u64) -> Clock {
        Clock { started: Instant::now(), started_ms: now_ms, now_ms }
    }

    pub fn tick(&mut self) {
        self.now_ms = self.started_ms + self.started.elapsed().as_millis() as u64;
    }

    /// Return the time of this turn.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Return this thread's time for a wall-clock time (ms since the epoch); now if it is past.
    pub fn of_unix(&self, at_ms: u64) -> u64 {
        self.now_ms.saturating_add(at_ms.saturating_sub(unix_ms()))
    }

    /// Return the wall-clock time, in ms since the epoch, for one of this thread's times.
    pub fn to_unix(&self, at_ms: u64) -> u64 {
        unix_ms().saturating_sub(self.now_ms.saturating_sub(at_ms))
    }

    /// Return this thread's time for a result of [`Clock::to_unix`]. The time's age stays the same,
    /// unless the wall clock was set in between.
    pub fn since_unix(&self, since_ms: u64) -> u64 {
        self.now_ms.saturating_sub(unix_ms().saturating_sub(since_ms))
    }
}

/// Return a random number for jitter.
pub fn random() -> u32 {
    // Each `RandomState` has keys of its own.
    RandomState::new().build_hasher().finish() as u32
}

/// Return a random number from 0 to `most`, for jitter.
pub fn random_up_to(most: u64) -> u32 {
    ((u64::from(random()) * (most + 1)) >> 32) as u32
}

/// Return a time in UTC, given in seconds since the epoch, as strftime(3) formats it.
pub fn utc(seconds: u64, format: &CStr) -> String {
    let (time, mut text) = (seconds as libc::time_t, [0_u8; 64]);
    // SAFETY: all zeros is a valid value of this type.
    let mut parts: libc::tm = unsafe { mem::zeroed() };
    // SAFETY: each pointer is to a value of its type, and the size is that of `text`.
    let length = unsafe {
        libc::gmtime_r(&raw const time, &raw mut parts);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &raw const parts)
    };
    String::from_utf8_lossy(&text[..length]).into_owned()
}

pub fn unix_ms() -> u64 {
    unix_us() / 1_000
}

pub fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_keep_to_their_bound_and_reach_it() {
        let drawn: Vec<u32> = (0..200).map(|_| random_up_to(2)).collect();
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

    #[test]
    fn a_time_of_one_thread_is_as_long_ago_for_the_thread_that_goes_on() {
        let (older, newer) = (Clock::new(1 << 40), Clock::new(1 << 41));
        for ago in [0, 1, 600_000] {
            let since = newer.since_unix(older.to_unix(older.now_ms() - ago));
            assert!((newer.now_ms() - since).abs_diff(ago) < 5_000, "{ago}: {since}");
        }
        assert_eq!(newer.since_unix(unix_ms() + 60_000), newer.now_ms());
    }
}
