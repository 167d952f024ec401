//! Readers that are sent away: all of them in a drain, or some to other boxes.

use super::Reactor;
use crate::clock::random_up_to;
use crate::closing::CloseReason;
use crate::drain::Pace;
use crate::slab::Phase;

/// While draining, readers are told so often.
const DRAIN_STEP_MS: u64 = 50;

/// How far a drain is, and where the search for the next to be shed goes on.
#[derive(Default)]
pub(super) struct Departures {
    drain: Option<Pace>,
    /// Where the search for the next reader to be shed goes on.
    shed_from: u32,
}

impl Departures {
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// When the next are due, in ms; `None` if nobody is.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.drain.map(|_| DRAIN_STEP_MS)
    }

    fn is_over(&self, now_ms: u64) -> bool {
        self.drain.is_some_and(|pace| pace.is_over(now_ms))
    }

    fn next_to_shed(&mut self, slots: u32) -> u32 {
        let slot = if self.shed_from >= slots { 0 } else { self.shed_from };
        self.shed_from = slot + 1;
        slot
    }
}

impl Reactor {
    pub(super) fn start_drain(&mut self, spread_ms: u32, per_second: u32) {
        if !self.departures.is_draining() {
            let (readers, now_ms) = (self.readers.counters().readers(), self.readers.now_ms());
            self.departures.drain = Some(Pace::new(readers, now_ms, spread_ms, per_second));
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        self.departures.is_over(self.readers.now_ms()) && self.readers.is_empty()
    }

    pub(super) fn send_some_away(&mut self) {
        let Some(mut pace) = self.departures.drain else {
            return;
        };
        let (slots, now_ms) = (self.readers.slots(), self.readers.now_ms());
        for _ in 0..pace.due(now_ms) {
            while pace.next_slot < slots && self.readers.at(pace.next_slot).phase != Phase::Open {
                pace.next_slot += 1;
            }
            if pace.next_slot >= slots {
                break;
            }
            self.send_away(pace.next_slot);
        }
        if pace.is_over(now_ms) {
            // Handshakes that were under way when the drain began.
            for slot in 0..slots {
                match self.readers.at(slot).phase {
                    Phase::Open => self.send_away(slot),
                    Phase::Head => self.readers.forget(slot),
                    _ => {}
                }
            }
        }
        self.departures.drain = Some(pace);
    }

    fn send_away(&mut self, slot: u32) {
        // Full jitter around the reason's own time, so that they don't come back in one second.
        let usual = self.readers.policy().reason(CloseReason::Drain).retry_after_ms;
        let wait = random_up_to(2 * u64::from(usual));
        self.readers.close(slot, CloseReason::Drain, Some(wait));
    }

    /// Send `count` readers away, each other ones than the last time as long as there are some.
    pub(super) fn shed(&mut self, reason: CloseReason<'_>, count: u32, retry_ms: u32) {
        let slots = self.readers.slots();
        let mut left = count;
        for _ in 0..slots {
            if left == 0 {
                break;
            }
            let slot = self.departures.next_to_shed(slots);
            if self.readers.at(slot).phase == Phase::Open {
                let wait = random_up_to(retry_ms.into());
                self.readers.close(slot, reason, Some(wait));
                left -= 1;
            }
        }
    }
}
