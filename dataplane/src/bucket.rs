//! A reader's rate limit for verbs: a token bucket.
//!
//! A verb without a token gets error 111; a reader that continues nevertheless is disconnected.
//! `now` is any clock in ms, truncated to 32 bits: it may wrap.
//!
//! The decision to question: tokens are counted in thousandths, so that one ms earns a whole number
//! of them and no number is ever rounded.

use serde::{Deserialize, Serialize};

use crate::control::Settings;

const TOKEN: u32 = 1_000;
const MOST_TOKENS: u32 = u32::MAX / TOKEN;
const MOST_REFUSALS: u32 = u16::MAX as u32 - 1;

/// The decision about one verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throttle {
    /// Accept the verb.
    Allow,
    /// Answer error 111.
    Refuse,
    /// Close: too many requests.
    HangUp,
}

/// The token bucket of one reader. Any values of its fields are valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    updated: u32,
    /// Tokens, in thousandths.
    tokens: u32,
    /// Refusals in a row, saturating. Older releases have a `u8` here and few refusals: postcard
    /// writes a small `u16` in the same single byte.
    refused: u16,
}

impl Bucket {
    /// Return the bucket of a new reader: full.
    pub fn full(settings: &Settings, now: u32) -> Bucket {
        Bucket { updated: now, tokens: size(settings), refused: 0 }
    }

    /// Decide about one verb. Call it once for each verb, before the verb is parsed.
    pub fn admit(&mut self, settings: &Settings, now: u32) -> Throttle {
        let size = size(settings);
        let elapsed = now.wrapping_sub(self.updated);
        // A clock that goes back earns no tokens.
        let elapsed = if elapsed > i32::MAX as u32 { 0 } else { elapsed };
        // N tokens per second are N thousandths per ms.
        let earned = elapsed.saturating_mul(settings.verbs_per_second);
        self.tokens = self.tokens.saturating_add(earned).min(size);
        self.updated = now;
        if self.tokens >= TOKEN {
            self.tokens -= TOKEN;
            if self.tokens >= size / 2 {
                self.refused = 0;
            }
            return Throttle::Allow;
        }
        self.refused = self.refused.saturating_add(1);
        if u32::from(self.refused) <= settings.refusals.min(MOST_REFUSALS) {
            Throttle::Refuse
        } else {
            Throttle::HangUp
        }
    }
}

fn size(settings: &Settings) -> u32 {
    settings.verbs.min(MOST_TOKENS) * TOKEN
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(verbs: u32, verbs_per_second: u32, refusals: u32) -> Settings {
        Settings { verbs, verbs_per_second, refusals, ..Settings::default() }
    }

    #[test]
    fn a_full_bucket_lets_a_burst_in_and_then_as_many_as_are_refilled() {
        let limits = settings(3, 10, 5);
        let mut bucket = Bucket::full(&limits, 0);
        for _ in 0..3 {
            assert_eq!(bucket.admit(&limits, 0), Throttle::Allow);
        }
        assert_eq!(bucket.admit(&limits, 99), Throttle::Refuse);
        assert_eq!(bucket.admit(&limits, 100), Throttle::Allow);
        assert_eq!(bucket.admit(&limits, 150), Throttle::Refuse);
    }

    #[test]
    fn a_reader_that_goes_on_is_hung_up_on() {
        let limits = settings(1, 1, 2);
        let mut bucket = Bucket::full(&limits, 0);
        let seen: Vec<Throttle> = (0..5).map(|_| bucket.admit(&limits, 0)).collect();
        use Throttle::{Allow, HangUp, Refuse};
        assert_eq!(seen, [Allow, Refuse, Refuse, HangUp, HangUp]);
    }

    #[test]
    fn a_burst_of_many_times_the_bucket_is_refused_verb_by_verb() {
        let limits = settings(1, 1, 1_024);
        let mut bucket = Bucket::full(&limits, 0);
        assert_eq!(bucket.admit(&limits, 0), Throttle::Allow);
        assert!((0..1_024).all(|_| bucket.admit(&limits, 0) == Throttle::Refuse));
        assert_eq!(bucket.admit(&limits, 0), Throttle::HangUp);
    }

    #[test]
    fn refusals_are_forgiven_when_the_bucket_is_half_full_again() {
        let limits = settings(4, 1, 1);
        let mut bucket = Bucket::full(&limits, 0);
        for _ in 0..4 {
            bucket.admit(&limits, 0);
        }
        assert_eq!(bucket.admit(&limits, 0), Throttle::Refuse);
        assert_eq!(bucket.admit(&limits, 3_000), Throttle::Allow);
        for _ in 0..2 {
            bucket.admit(&limits, 3_000);
        }
        assert_eq!(bucket.admit(&limits, 3_000), Throttle::Refuse);
    }

    #[test]
    fn a_clock_that_wraps_or_goes_back_does_no_harm() {
        let limits = settings(1, 1, 5);
        let mut bucket = Bucket::full(&limits, u32::MAX - 500);
        assert_eq!(bucket.admit(&limits, u32::MAX - 500), Throttle::Allow);
        assert_eq!(bucket.admit(&limits, 499), Throttle::Allow);
        assert_eq!(bucket.admit(&limits, 498), Throttle::Refuse);
    }

    proptest! {
        #[test]
        fn it_admits_what_exact_arithmetic_admits(
            verbs in 1_u32..50,
            rate in 1_u32..50,
            refusals in 0_u32..5,
            pauses in prop::collection::vec(0_u32..2_000, 1..200),
        ) {
            let limits = settings(verbs, rate, refusals);
            let mut bucket = Bucket::full(&limits, 0);
            let (mut tokens, mut now, mut refused) = (u64::from(verbs) * 1_000, 0, 0);
            for pause in pauses {
                now += pause;
                tokens = (tokens + u64::from(pause * rate)).min(u64::from(verbs) * 1_000);
                let expected = if tokens >= 1_000 {
                    tokens -= 1_000;
                    if tokens * 2 >= u64::from(verbs) * 1_000 {
                        refused = 0;
                    }
                    Throttle::Allow
                } else {
                    refused += 1;
                    if refused <= refusals { Throttle::Refuse } else { Throttle::HangUp }
                };
                prop_assert_eq!(bucket.admit(&limits, now), expected);
            }
        }
    }
}
