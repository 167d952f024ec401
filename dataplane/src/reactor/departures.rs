//! Readers that are sent away: all of them in a drain, or some of them to other boxes.

use super::Reactor;
use crate::clock::random_up_to;
use crate::closing::CloseReason;
use crate::drain::Pace;
use crate::slab::Phase;

/// Interval at which readers are notified during a drain.
pub(super) const DRAIN_STEP_MS: u64 = 50;

impl Reactor {
    pub(super) fn start_drain(&mut self, spread_ms: u32, per_second: u32) {
        if self.drain.is_none() {
            let (readers, now_ms) = (self.readers.counters.readers(), self.readers.clock.now_ms());
            self.drain = Some(Pace::new(readers, now_ms, spread_ms, per_second));
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let now_ms = self.readers.clock.now_ms();
        self.drain.is_some_and(|pace| pace.is_over(now_ms)) && self.readers.slab.is_empty()
    }

    pub(super) fn send_some_away(&mut self) {
        let Some(mut pace) = self.drain else {
            return;
        };
        let (slots, now_ms) = (self.readers.slab.slots(), self.readers.clock.now_ms());
        for _ in 0..pace.due(now_ms) {
            let mut others = pace.next_slot..slots;
            let open = others.find(|slot| self.readers.slab.at(*slot).phase == Phase::Open);
            pace.next_slot = others.start;
            if let Some(slot) = open {
                self.send_away(slot);
            }
        }
        if pace.is_over(now_ms) {
            // Connections whose handshakes were in progress when the drain began.
            for slot in 0..slots {
                match self.readers.slab.at(slot).phase {
                    Phase::Open => self.send_away(slot),
                    Phase::Head => self.readers.close_and_free(slot),
                    _ => {}
                }
            }
        }
        self.drain = Some(pace);
    }

    fn send_away(&mut self, slot: u32) {
        // Full jitter around the reason's own time, so that readers don't return in one second.
        let usual = self.readers.settings.reason(CloseReason::Drain).retry_after_ms;
        let wait = random_up_to(2 * u64::from(usual));
        self.readers.close(slot, CloseReason::Drain, Some(wait));
    }

    /// Send `count` readers away, other ones than the last time as long as there are some.
    pub(super) fn shed(&mut self, reason: CloseReason<'_>, count: u32, retry_ms: u32) {
        let (slots, from) = (self.readers.slab.slots(), self.shed_from);
        let mut left = count;
        for slot in (0..slots).map(|step| (from + step) % slots) {
            if left == 0 {
                break;
            }
            self.shed_from = slot + 1;
            if self.readers.slab.at(slot).phase == Phase::Open {
                let wait = random_up_to(retry_ms.into());
                self.readers.close(slot, reason, Some(wait));
                left -= 1;
            }
        }
    }
}
