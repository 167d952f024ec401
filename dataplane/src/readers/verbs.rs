//! Readers' verbs, passed to the control plane one after the other.
//!
//! The control plane has one verb of a connection at a time, and the verb is kept until it is
//! answered. So answers arrive in order without numbers, and a verb that was lost with a control
//! plane is asked again. Other verbs wait here, bounded in number and in bytes.

use std::sync::Arc;

use super::Readers;
use crate::bucket::Throttle;
use crate::closing::CloseReason;
use crate::control::ConnectionId;
use crate::counters::Count;
use crate::ping::{ControlLiveness, pong};
use crate::pushes::too_many_push;
use crate::slab::{BusyState, Phase, Waiting};
use crate::threads::Report;

/// Bytes in a reader's outbox above which its verbs wait.
const VERBS_WAIT_ABOVE: usize = 64 * 1024;
/// Maximum bytes of verbs that wait in one connection.
const WAITING_BYTES: usize = 64 * 1024;
/// Maximum bytes of verbs that wait or are asked, in all connections of all threads: a crowd of
/// 100,000 may log in at once. A control plane that attaches is asked the unanswered ones again,
/// all at once.
const HELD_BYTES: usize = 128 << 20;

/// The attachment that answers verbs, and the bytes of verbs that are kept.
pub(super) struct VerbQueues {
    /// 0 while no control plane is attached.
    pub(super) attachment: u32,
    /// Time at which the control plane was last heard from.
    liveness: Arc<ControlLiveness>,
    /// Bytes of verbs that wait or are asked, in all connections of this thread.
    pub(super) held_bytes: usize,
    most_bytes: usize,
}

impl VerbQueues {
    /// Return the state for one of so many `threads`.
    pub(super) fn new(liveness: Arc<ControlLiveness>, threads: usize) -> VerbQueues {
        VerbQueues { attachment: 0, liveness, held_bytes: 0, most_bytes: HELD_BYTES / threads }
    }

    /// Return whether a new verb may be asked at once.
    fn may_ask(&self, busy: Option<&BusyState>) -> bool {
        let free = |busy: &BusyState| {
            busy.asked.is_none()
                && busy.waiting.is_empty()
                && busy.outbox.pending_bytes() <= VERBS_WAIT_ABOVE
        };
        self.attachment > 0 && busy.is_none_or(free)
    }

    fn has_room(&self, verb: &[u8]) -> bool {
        self.held_bytes + verb.len() <= self.most_bytes
    }

    /// Keep a verb until those before it are answered; return false if there is no room.
    fn wait(&mut self, busy: &mut BusyState, verb: &[u8], most: usize) -> bool {
        let fits = busy.waiting.len() < most
            && busy.waiting_bytes + verb.len() <= WAITING_BYTES
            && self.has_room(verb);
        if fits {
            busy.waiting.push_back(Waiting::Verb(verb.into()));
            busy.waiting_bytes += verb.len();
            self.held_bytes += verb.len();
        }
        fits
    }

    fn next(&mut self, busy: &mut BusyState) -> Option<Waiting> {
        let next = busy.waiting.pop_front()?;
        if let Waiting::Verb(verb) = &next {
            busy.waiting_bytes -= verb.len();
            self.held_bytes -= verb.len();
        }
        Some(next)
    }

    /// Take back the verb that was asked.
    fn take_asked(&mut self, busy: &mut BusyState) -> Option<Box<[u8]>> {
        let asked = busy.asked.take()?;
        self.held_bytes -= asked.len();
        Some(asked)
    }

    /// Drop all verbs of a connection that ends.
    pub(super) fn drop_all(&mut self, busy: &mut BusyState) {
        self.take_asked(busy);
        busy.waiting.clear();
        self.held_bytes -= std::mem::take(&mut busy.waiting_bytes);
    }

    /// Count the verbs of a connection that was taken over.
    pub(super) fn hold_all(&mut self, busy: &mut BusyState) {
        let bytes = |one: &Waiting| if let Waiting::Verb(verb) = one { verb.len() } else { 0 };
        busy.waiting_bytes = busy.waiting.iter().map(bytes).sum();
        let asked = busy.asked.as_ref().map_or(0, |verb| verb.len());
        self.held_bytes += asked + busy.waiting_bytes;
    }
}

impl Readers {
    /// Ask a newly attached control plane all verbs that the last one didn't answer.
    pub(crate) fn attached(&mut self, attachment: u32) {
        self.batches.clear();
        self.verbs.attachment = attachment;
        for slot in 0..self.slab.slots() {
            let connection = self.slab.at(slot);
            if connection.phase != Phase::Open {
                continue;
            }
            let busy = connection.busy.as_deref_mut();
            match busy.and_then(|busy| self.verbs.take_asked(busy)) {
                Some(verb) => self.ask_control_plane(slot, verb),
                None => self.ask_next(slot),
            }
        }
    }

    pub(crate) fn detached(&mut self) {
        self.verbs.attachment = 0;
    }

    pub(crate) fn has_control_plane(&self) -> bool {
        self.verbs.attachment > 0
    }

    /// Handle a verb of a reader, within its rate.
    pub(super) fn on_verb(&mut self, slot: u32, verb: &[u8]) {
        let connection = self.slab.at(slot);
        if connection.phase != Phase::Open {
            return;
        }
        match connection.bucket.admit(&self.settings, self.clock.now_ms() as u32) {
            Throttle::Allow => self.answer_verb(slot, verb),
            Throttle::Refuse => self.refuse_in_turn(slot, Waiting::Refusal),
            Throttle::HangUp => self.refuse_in_turn(slot, Waiting::HangUp),
        }
    }

    /// Refuse a verb of a flood when the verbs before it are answered. Refused verbs that follow
    /// each other meanwhile get one answer together: it names none of them.
    fn refuse_in_turn(&mut self, slot: u32, answer: Waiting) {
        if self.verbs.may_ask(self.slab.at(slot).busy.as_deref()) {
            return self.serve_waiting(slot, answer);
        }
        let waiting = &mut self.busy_state(slot).waiting;
        match (waiting.back(), &answer) {
            (Some(Waiting::HangUp), _) | (Some(Waiting::Refusal), Waiting::Refusal) => {}
            _ => waiting.push_back(answer),
        }
    }

    fn refuse_verb(&mut self, slot: u32) {
        self.counters.add(Count::TooManyRequests);
        self.push(slot, &too_many_push(&self.settings));
    }

    /// Have a verb answered, in its turn.
    pub(crate) fn answer_verb(&mut self, slot: u32, verb: &[u8]) {
        if !self.verbs.may_ask(self.slab.at(slot).busy.as_deref()) {
            let most = self.settings.waiting as usize;
            let busy = self.slab.busy_state(slot, &self.settings);
            if !self.verbs.wait(busy, verb, most) {
                self.refuse_verb(slot);
            }
        } else if !self.answer_ping(slot, verb) {
            if self.verbs.has_room(verb) {
                self.ask_control_plane(slot, verb.into());
            } else {
                self.refuse_verb(slot);
            }
        }
    }

    /// Answer a verb whose turn has come, if it is a plain ping and the control plane is alive.
    fn answer_ping(&mut self, slot: u32, verb: &[u8]) -> bool {
        let Some(pong) = pong(verb) else {
            return false;
        };
        if self.verbs.liveness.silent_ms() >= u64::from(self.settings.pong_ms) {
            return false;
        }
        self.counters.add(Count::Pings);
        self.push(slot, &pong);
        true
    }

    fn ask_control_plane(&mut self, slot: u32, verb: Box<[u8]>) {
        let generation = self.slab.at(slot).generation;
        let id = ConnectionId { thread: self.thread, slot, generation };
        self.verbs.held_bytes += verb.len();
        self.slab.busy_state(slot, &self.settings).asked = Some(verb.clone());
        let auth = self.auth.of(slot).map_or_else(Box::default, |state| state.blob().into());
        self.report(Report::Verb(self.verbs.attachment, id, auth, verb));
    }

    /// Continue with the next verb, as the one that was asked is answered.
    pub(super) fn answered(&mut self, slot: u32) {
        if let Some(busy) = self.slab.at(slot).busy.as_deref_mut() {
            self.verbs.take_asked(busy);
            self.ask_next(slot);
            self.slab.at(slot).free_if_idle();
        }
    }

    /// Ask the next waiting verb, if its turn has come.
    pub(super) fn ask_next(&mut self, slot: u32) {
        if !self.has_control_plane() || self.slab.at(slot).phase != Phase::Open {
            return;
        }
        while let Some(busy) = self.slab.at(slot).busy.as_deref_mut()
            && busy.asked.is_none()
            && busy.outbox.pending_bytes() <= VERBS_WAIT_ABOVE
            && let Some(next) = self.verbs.next(busy)
        {
            self.serve_waiting(slot, next);
        }
    }

    fn serve_waiting(&mut self, slot: u32, next: Waiting) {
        match next {
            Waiting::Verb(verb) => {
                if !self.answer_ping(slot, &verb) {
                    self.ask_control_plane(slot, verb);
                }
            }
            Waiting::Refusal => self.refuse_verb(slot),
            Waiting::HangUp => self.close(slot, CloseReason::TooManyRequests, None),
        }
    }
}
