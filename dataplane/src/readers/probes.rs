//! Readers of a full place: they are asked for a sign of life, and silent ones make room.
//!
//! A network that vanishes silently leaves its readers here, counted under their address until two
//! heartbeats have passed. When the network returns, these old connections leave it no room. So a
//! new connection without room has the others asked: a reader that sends nothing for [`ANSWER_MS`]
//! ends.
//!
//! The decision to question: a reader that hasn't taken all of its frames is not asked, since a
//! ping would wait behind them. It ends when it has taken nothing for `stalled_ms`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Readers;
use crate::addresses::{ProbeRounds, place_of};
use crate::slab::Phase;
use crate::threads::Report;

/// Time that a reader has to answer.
const ANSWER_MS: u64 = 4_000;
/// Minimum time between two passes over all connections, however many places are full.
const LOOK_MS: u64 = 500;

/// Readers that were asked, and the last round that was seen.
pub(super) struct Probes {
    rounds: Arc<ProbeRounds>,
    seen: u64,
    next_ms: u64,
    /// Time at which each slot was asked, if nothing was received from it since.
    asked: HashMap<u32, u64>,
}

impl Probes {
    pub(super) fn new(rounds: Arc<ProbeRounds>) -> Probes {
        Probes { seen: rounds.last(), rounds, next_ms: 0, asked: HashMap::new() }
    }

    /// Forget a connection that was heard, is gone, or needn't answer; return whether it was asked.
    pub(super) fn forget(&mut self, slot: u32) -> bool {
        // The map is almost always empty, and this is called for each read.
        !self.asked.is_empty() && self.asked.remove(&slot).is_some()
    }
}

impl Readers {
    /// Report that this address has no room for another connection: all threads ask the others, and
    /// the control plane asks those that it serves.
    pub(crate) fn request_probe(&mut self, address: IpAddr) {
        if self.probes.rounds.begin_round(address, Instant::now()) {
            self.report(Report::Full(address));
        }
    }

    /// Close the connections that would only get the answer that there is no room.
    pub(crate) fn forget_turned_away(&mut self) {
        for slot in std::mem::take(&mut self.turned_away) {
            self.close_and_free(slot);
        }
    }

    /// Ask all connections in places that have become full.
    pub(super) fn send_probes(&mut self) {
        let (last, now_ms) = (self.probes.rounds.last(), self.clock.now_ms());
        if last == self.probes.seen || now_ms < self.probes.next_ms {
            return;
        }
        let places = self.probes.rounds.after(self.probes.seen);
        self.probes.seen = last;
        self.probes.next_ms = now_ms + LOOK_MS;
        for (&slot, &address) in &self.counted {
            let connection = self.slab.at(slot);
            let can_answer = connection.phase == Phase::Open && !connection.blocked;
            if can_answer && places.contains(&place_of(address)) {
                self.probes.asked.entry(slot).or_insert(now_ms);
                // The next look sends a heartbeat.
                self.wheel.set(slot, now_ms);
            }
        }
    }

    /// Return the time by which a reader that was asked must answer; `None` if it needn't.
    pub(super) fn probe_deadline_ms(&mut self, slot: u32) -> Option<u64> {
        let asked = *self.probes.asked.get(&slot)?;
        if self.slab.at(slot).blocked {
            self.probes.forget(slot);
            return None;
        }
        Some(asked + ANSWER_MS)
    }
}
