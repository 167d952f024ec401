//! The pauses of a reader before it reconnects: as in `clients/js`, with full jitter.

const BASE_MS: u64 = 500;
const CAP_MS: u64 = 30_000;
/// A connection that was open for this long resets the backoff.
const STABLE_MS: u64 = 60_000;
const MOST_ASKED_MS: u64 = 600_000;

/// The reaction that a close code asks for; the table of codes is `docs/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice {
    /// Stop: the next attempt would end in the same way.
    Stop,
    /// Reconnect after the pause that was requested.
    Now,
    /// Back off, then reconnect.
    BackOff,
}

/// The reaction that `code` asks for; its range decides, so that codes added later are obeyed, too.
pub fn advice(code: u64) -> Advice {
    match code {
        // RFC 6455 section 7.4.1: the peer regards our frames as broken.
        4000..=4099 | 1002 | 1007 | 1009 => Advice::Stop,
        4200..=4299 => Advice::Now,
        _ => Advice::BackOff,
    }
}

/// The pauses of one reader: each random between 0 and a bound that doubles.
#[derive(Default)]
pub struct Backoff(u8);

impl Backoff {
    /// The next pause in milliseconds: the requested `asked_ms` plus a random part. `share` is drawn from 0 up to 1,
    /// and the last connection was open for `open_ms`.
    pub fn next(&mut self, asked_ms: u64, share: f64, open_ms: u64) -> u64 {
        if open_ms >= STABLE_MS {
            self.0 = 0;
        }
        let bound = CAP_MS.min(BASE_MS << self.0.min(10));
        self.0 = self.0.saturating_add(1);
        asked_ms.min(MOST_ASKED_MS) + (share * bound as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_half_a_minute_and_all_below_it_may_come() {
        let mut backoff = Backoff::default();
        let waits: Vec<u64> = (0..8).map(|_| backoff.next(0, 0.5, 0)).collect();
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 15_000, 15_000]);
        assert_eq!(backoff.next(0, 0.0, 0), 0);
    }

    #[test]
    fn what_was_asked_for_is_obeyed_as_far_as_it_makes_sense() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.next(640, 0.5, 0), 640 + 250);
        assert_eq!(backoff.next(u64::MAX, 0.0, 0), MOST_ASKED_MS);
    }

    #[test]
    fn who_was_there_for_a_minute_starts_afresh() {
        let mut backoff = Backoff::default();
        for _ in 0..300 {
            backoff.next(0, 0.5, STABLE_MS - 1);
        }
        assert_eq!(backoff.next(0, 0.5, STABLE_MS), 250);
    }

    #[test]
    fn the_range_of_a_code_decides() {
        let codes = [4001, 1009, 4202, 4101, 1012, 1006];
        use Advice::{BackOff, Now, Stop};
        assert_eq!(codes.map(advice), [Stop, Stop, Now, BackOff, BackOff, BackOff]);
    }
}
