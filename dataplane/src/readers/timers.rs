//! Timers of readers: heartbeats, and deadlines for an answer, a stall, a token and a message.
//!
//! A connection has one timer, for the earliest of these. A look that is too early does no harm.

use super::Readers;
use crate::closing::CloseReason;
use crate::counters::Count;
use crate::frame::Decoder;
use crate::slab::{Phase, RECEIVED_UNIT_MS};

impl Readers {
    /// Serve at most `most` timers that have fired; return whether there may be more.
    pub(crate) fn serve_timers(&mut self, most: usize) -> bool {
        self.send_probes();
        let mut heartbeats = std::mem::take(&mut self.heartbeats);
        let mut more = true;
        for _ in 0..most {
            let Some((slot, due_ms)) = self.wheel.pop(self.clock.now_ms()) else {
                more = false;
                break;
            };
            match self.slab.at(slot).phase {
                Phase::Free => {}
                Phase::Head => {
                    self.counters.add(Count::HandshakeTimeouts);
                    self.close_and_free(slot);
                }
                Phase::Open => heartbeats.extend(self.on_timer(slot, due_ms).then_some(slot)),
                Phase::Closing(_) => self.close_and_free(slot),
            }
        }
        self.send_heartbeats(&heartbeats);
        heartbeats.clear();
        self.heartbeats = heartbeats;
        self.budget.lower_limit();
        self.note_sizes();
        more
    }

    /// Serve a reader's timer, which was due at `due_ms`: end the reader, or set its next timer.
    /// Return whether it gets a heartbeat.
    fn on_timer(&mut self, slot: u32, due_ms: u64) -> bool {
        let mut look = self.next_timer_ms(slot, due_ms);
        if look.is_err() {
            // This thread may have stood still: then the reader's bytes wait in the socket, and so
            // does the room that it has made.
            let generation = self.slab.at(slot).generation;
            self.read(slot);
            if self.phase_of(slot, generation).is_some() && self.slab.at(slot).blocked {
                self.flush(slot);
            }
            if self.phase_of(slot, generation) != Some(Phase::Open) {
                return false;
            }
            look = self.next_timer_ms(slot, due_ms);
        }
        match look {
            Ok(next) => {
                self.wheel.set(slot, next);
                !self.slab.at(slot).blocked
            }
            Err(reason) => {
                if reason == CloseReason::Unfinished {
                    self.slab.at(slot).decoder = Decoder::default();
                }
                let asked = self.probes.forget(slot);
                self.close(slot, reason, None);
                if asked && reason == CloseReason::NoPong {
                    // A reader that is gone answers no goodbye, and others wait for its place.
                    self.close_and_free(slot);
                }
                false
            }
        }
    }

    /// Return the time of the next look at a reader, or the reason why it has to end.
    fn next_timer_ms(&mut self, slot: u32, due_ms: u64) -> Result<u64, CloseReason<'static>> {
        if self.was_silent(slot, due_ms) {
            return Err(CloseReason::NoPong);
        }
        let now_ms = self.clock.now_ms();
        let ends = [
            (CloseReason::NoPong, self.probe_deadline_ms(slot)),
            (CloseReason::SlowReader, self.stall_deadline_ms(slot)),
            (CloseReason::TokenExpired, self.token_deadline_ms(slot)),
            (CloseReason::Unfinished, self.message_deadline_ms(slot)),
        ];
        let mut next = now_ms + u64::from(self.settings.heartbeat_ms);
        for (reason, end) in ends {
            match end {
                Some(end) if end <= now_ms => return Err(reason),
                Some(end) => next = next.min(end),
                None => {}
            }
        }
        Ok(next)
    }

    /// Return whether a reader hadn't been heard for two heartbeats at `due_ms`. Not now: since
    /// then this thread may have stood still, and have sent no ping.
    fn was_silent(&mut self, slot: u32, due_ms: u64) -> bool {
        let last_received_ms = u64::from(self.slab.at(slot).last_received) * RECEIVED_UNIT_MS;
        last_received_ms + 2 * u64::from(self.settings.heartbeat_ms) + RECEIVED_UNIT_MS < due_ms
    }

    /// Return the time at which a reader that takes nothing is closed; `None` if nothing waits.
    pub(super) fn stall_deadline_ms(&mut self, slot: u32) -> Option<u64> {
        let stalled_ms = u64::from(self.settings.stalled_ms);
        let busy = self.slab.at(slot).busy.as_ref()?;
        (stalled_ms > 0 && !busy.outbox.is_empty()).then(|| busy.taken_ms + stalled_ms)
    }

    /// Return the time at which a reader's token expires; `None` if never.
    pub(super) fn token_deadline_ms(&self, slot: u32) -> Option<u64> {
        let ends_ms = self.auth.of(slot)?.ends_ms();
        (ends_ms > 0).then(|| self.clock.of_unix(ends_ms))
    }

    /// Return the time by which an unfinished message must be complete; `None` without one.
    pub(super) fn message_deadline_ms(&mut self, slot: u32) -> Option<u64> {
        let since = self.slab.at(slot).decoder.unfinished_since(self.clock.now_ms())?;
        Some(since + u64::from(self.settings.unfinished_ms))
    }

    /// Look at a reader at `end` at the latest, if it is open and has a timer.
    pub(super) fn set_timer_at_latest(&mut self, slot: u32, end: Option<u64>) {
        if let (Phase::Open, Some(due), Some(end)) =
            (self.slab.at(slot).phase, self.wheel.due_ms(slot), end)
            && end < due
        {
            self.wheel.set(slot, end);
        }
    }
}
