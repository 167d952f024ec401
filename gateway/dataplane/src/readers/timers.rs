//! When a reader is looked at without having said anything: its heartbeat, and the ends of what it may take.
//!
//! A connection has one timer, the earliest of all these. An earlier look than needed does no harm.

use super::Readers;
use crate::closing::CloseReason;
use crate::counters::Count;
use crate::frame::Decoder;
use crate::slab::{HEARD_MS, Phase};

impl Readers {
    /// Serve those whose timers have fired, `most` at once; whether there may be more.
    pub(crate) fn serve_timers(&mut self, most: usize) -> bool {
        self.ask_for_life();
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
                    self.forget(slot);
                }
                Phase::Open => heartbeats.extend(self.on_timer(slot, due_ms).then_some(slot)),
                Phase::Closing(_) => self.forget(slot),
            }
        }
        self.send_heartbeats(&heartbeats);
        heartbeats.clear();
        self.heartbeats = heartbeats;
        self.budget.renew();
        self.note_sizes();
        more
    }

    /// A reader's timer has fired, due at `due_ms`: end it, or set the next; whether it is to get its
    /// heartbeat.
    fn on_timer(&mut self, slot: u32, due_ms: u64) -> bool {
        let mut look = self.next_look_ms(slot, due_ms);
        if look.is_err() {
            // This thread may have stood still: what it has said waits in its socket then, and so does
            // the room that it has made.
            let generation = self.slab.at(slot).generation;
            self.read(slot);
            if self.phase_of(slot, generation).is_some() && self.slab.at(slot).blocked {
                self.flush(slot);
            }
            if self.phase_of(slot, generation) != Some(Phase::Open) {
                return false;
            }
            look = self.next_look_ms(slot, due_ms);
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
                let asked = self.silent.forget(slot);
                self.close(slot, reason, None);
                if asked && reason == CloseReason::NoPong {
                    // Who is gone answers no goodbye either, and others wait for its place.
                    self.forget(slot);
                }
                false
            }
        }
    }

    /// When a reader whose timer was due at `due_ms` is to be looked at next, or why it has to end.
    fn next_look_ms(&mut self, slot: u32, due_ms: u64) -> Result<u64, CloseReason<'static>> {
        if self.was_silent(slot, due_ms) {
            return Err(CloseReason::NoPong);
        }
        let now_ms = self.clock.now_ms();
        let ends = [
            (CloseReason::NoPong, self.answer_ends_ms(slot)),
            (CloseReason::SlowReader, self.stall_ends_ms(slot)),
            (CloseReason::TokenExpired, self.token_ends_ms(slot)),
            (CloseReason::Unfinished, self.message_ends_ms(slot)),
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

    /// Whether a reader hadn't been heard for two heartbeats at `due_ms`. Not by now: this thread may have
    /// stood still since, and have asked for no sign of life.
    fn was_silent(&mut self, slot: u32, due_ms: u64) -> bool {
        let heard_ms = u64::from(self.slab.at(slot).heard) * HEARD_MS;
        heard_ms + 2 * u64::from(self.settings.heartbeat_ms) + HEARD_MS < due_ms
    }

    /// When an open reader that takes nothing is given up; `None` if nothing waits for it.
    pub(super) fn stall_ends_ms(&mut self, slot: u32) -> Option<u64> {
        let stalled_ms = u64::from(self.settings.stalled_ms);
        let extra = self.slab.at(slot).extra.as_ref()?;
        (stalled_ms > 0 && !extra.outbox.is_empty()).then(|| extra.taken_ms + stalled_ms)
    }

    /// When a reader's token runs out; `None` if that is never.
    pub(super) fn token_ends_ms(&self, slot: u32) -> Option<u64> {
        let ends_ms = self.auth.of(slot)?.ends_ms();
        (ends_ms > 0).then(|| self.clock.of_unix(ends_ms))
    }

    /// When the message or frame that a reader has begun must be whole; `None` if there is none.
    pub(super) fn message_ends_ms(&mut self, slot: u32) -> Option<u64> {
        let since = self.slab.at(slot).decoder.unfinished_since(self.clock.now_ms())?;
        Some(since + u64::from(self.settings.unfinished_ms))
    }

    /// Look at a reader at `end` at the latest, if it is open and has a timer.
    pub(super) fn look_by(&mut self, slot: u32, end: Option<u64>) {
        if let (Phase::Open, Some(due), Some(end)) =
            (self.slab.at(slot).phase, self.wheel.due_ms(slot), end)
            && end < due
        {
            self.wheel.set(slot, end);
        }
    }
}
