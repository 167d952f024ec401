//! A timer wheel: one timer per connection slot. No clock: time is passed in, in milliseconds of whatever
//! clock the caller has.
//!
//! A timer fires within one tick after it was due, never before. Setting, cancelling and firing cost a
//! few writes, however many timers there are.
//!
//! The decision to question: a timer that is moved or cancelled leaves its slot in the old bucket, where it
//! is passed over. That is four bytes until the wheel gets there, at most once for each tick and slot.

/// No timer; ticks are below it.
const NONE: u32 = u32::MAX;

/// Timers by slot.
#[derive(Debug)]
pub struct Wheel {
    /// The tick in which each slot's timer fires.
    due: Vec<u32>,
    /// Slots by their ticks, which one turn of the wheel after the other share.
    buckets: Vec<Vec<u32>>,
    /// What of the bucket of `tick` wasn't looked at yet.
    in_hand: Vec<u32>,
    /// Counted from `start_ms`.
    tick: u32,
    start_ms: u64,
    tick_ms: u64,
    armed: usize,
}

impl Wheel {
    /// None yet. `tick_ms` is their precision, which with `buckets` should cover the usual timer in one turn.
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

    /// Set the timer of `slot`, in place of the one it may have. What is due already fires at the
    /// next tick.
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

    /// Take back the timer of `slot`, if there is one.
    pub fn cancel(&mut self, slot: u32) {
        if let Some(due) = self.due.get_mut(slot as usize) {
            self.armed -= usize::from(*due != NONE);
            *due = NONE;
        }
    }

    /// When the timer of `slot` fires at the earliest, in ms; `None` if it has none.
    pub fn due_ms(&self, slot: u32) -> Option<u64> {
        self.due.get(slot as usize).filter(|due| **due != NONE).map(|due| self.ms_of(*due))
    }

    /// The next slot whose timer has fired by `now_ms`, and when it should have; the timer is gone then.
    /// Call it until there is none. In between, timers may be set and cancelled.
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
            // After a long sleep each bucket is looked at once, not once for each turn that was missed.
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

    /// Milliseconds until [`Wheel::pop`] should be called again; `None` while no timer is set.
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

/// When a heartbeat of every `interval_ms` is due first: between a fifth of it and all of it, as
/// `random` says, so that a crowd that came at once spreads out.
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
