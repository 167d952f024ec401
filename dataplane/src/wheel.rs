//! A timer wheel: one timer per connection slot. No clock: callers pass the time, in milliseconds
//! of any clock.
//!
//! A timer fires within one tick after it was due, never before. Setting, cancelling and firing
//! cost a few writes, however many timers there are.
//!
//! The decision to question: a timer that is moved or cancelled leaves its slot in the old bucket,
//! where it is skipped later. That costs four bytes until the wheel gets there, at most once per
//! tick and slot.

/// No timer; all ticks are below it.
const NONE: u32 = u32::MAX;

/// Timers by slot.
#[derive(Debug)]
pub struct Wheel {
    /// The tick at which each slot's timer fires.
    due: Vec<u32>,
    /// Slots by tick; ticks of different turns of the wheel share a bucket.
    buckets: Vec<Vec<u32>>,
    /// Slots of the bucket of `tick` that weren't examined yet.
    in_hand: Vec<u32>,
    /// Current tick, counted from `start_ms`.
    tick: u32,
    start_ms: u64,
    tick_ms: u64,
    armed: usize,
}

impl Wheel {
    /// Return a wheel without timers. `tick_ms` is the precision; one turn (`buckets` ticks) should
    /// cover the usual timer.
    pub fn new(now_ms: u64, tick_ms: u32, buckets: u16) -> Wheel {
        Wheel {
            due: Vec::new(),
            buckets: vec![Vec::new(); buckets.max(1).into()],
            in_hand: Vec::new(),
            tick: 0,
            start_ms: now_ms,
            tick_ms: u64::from(tick_ms.max(1)),
            armed: 0,
        }
    }

    /// Set the timer of `slot`, in place of an earlier one. A timer that is already due fires at
    /// the next tick.
    pub fn set(&mut self, slot: u32, due_ms: u64) {
        let ticks = due_ms.saturating_sub(self.start_ms).div_ceil(self.tick_ms);
        let due = u32::try_from(ticks).unwrap_or(NONE).clamp(self.tick + 1, NONE - 1);
        if self.due.len() <= slot as usize {
            self.due.resize(slot as usize + 1, NONE);
        }
        let before = std::mem::replace(&mut self.due[slot as usize], due);
        self.armed += usize::from(before == NONE);
        if before != due {
            let bucket = self.bucket(due);
            self.buckets[bucket].push(slot);
        }
    }

    /// Cancel the timer of `slot`, if there is one.
    pub fn cancel(&mut self, slot: u32) {
        if let Some(due) = self.due.get_mut(slot as usize) {
            self.armed -= usize::from(*due != NONE);
            *due = NONE;
        }
    }

    /// Return the earliest time at which the timer of `slot` fires, in ms; `None` without a timer.
    pub fn due_ms(&self, slot: u32) -> Option<u64> {
        self.due.get(slot as usize).filter(|due| **due != NONE).map(|due| self.ms_of(*due))
    }

    /// Remove a timer that is due by `now_ms`; return its slot and the time at which it was due.
    /// Call this until it returns `None`; timers may be set and cancelled in between.
    pub fn pop(&mut self, now_ms: u64) -> Option<(u32, u64)> {
        let elapsed = now_ms.saturating_sub(self.start_ms) / self.tick_ms;
        let now = u32::try_from(elapsed).unwrap_or(NONE).min(NONE - 2);
        loop {
            if let Some((slot, due)) = self.pop_in_hand() {
                return Some((slot, self.ms_of(due)));
            }
            if self.tick >= now {
                return None;
            }
            // After a long sleep each bucket is examined once, not once for each missed turn.
            self.tick = (self.tick + 1).max(now.saturating_sub(self.buckets.len() as u32));
            let bucket = self.bucket(self.tick);
            self.in_hand = std::mem::take(&mut self.buckets[bucket]);
        }
    }

    fn pop_in_hand(&mut self) -> Option<(u32, u32)> {
        while let Some(slot) = self.in_hand.pop() {
            let due = self.due[slot as usize];
            if due <= self.tick {
                self.cancel(slot);
                return Some((slot, due));
            }
            let bucket = self.bucket(due);
            if due != NONE && bucket == self.bucket(self.tick) {
                self.buckets[bucket].push(slot);
            }
        }
        None
    }

    /// Return the ms until [`Wheel::pop`] should be called again; `None` while no timer is set.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        (self.armed > 0).then(|| self.ms_of(self.tick + 1).saturating_sub(now_ms))
    }

    fn bucket(&self, tick: u32) -> usize {
        tick as usize % self.buckets.len()
    }

    fn ms_of(&self, tick: u32) -> u64 {
        self.start_ms.saturating_add(u64::from(tick) * self.tick_ms)
    }
}

/// Return the time of the first heartbeat, if one is due every `interval_ms`: after a fifth of the
/// interval to all of it, by `random`. So readers that arrived at once are spread out.
pub fn first_beat(now_ms: u64, interval_ms: u32, random: u32) -> u64 {
    let interval = u64::from(interval_ms);
    let shortest = interval / 5;
    now_ms + shortest + (((interval - shortest) * u64::from(random)) >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_that_were_taken_back_leave_nothing_behind_for_long() {
        let mut wheel = Wheel::new(0, 100, 8);
        for now in (0..100_000).step_by(50) {
            wheel.set(7, now + 700);
            wheel.cancel(7);
            assert_eq!(wheel.pop(now), None);
        }
        let left: usize = wheel.buckets.iter().map(Vec::len).sum();
        assert!(left <= 8 * 2, "{left}");
    }
}
