//! Readers of a place that is full: they are asked for a sign of life, and who gives none makes room.
//!
//! A network that goes without a word leaves its readers here, who count with their address until two
//! heartbeats have passed; when it is back they stand in their own way. So a newcomer for whom there is no
//! room has the others asked: who says nothing for [`ANSWER_MS`] ends.
//!
//! The decision to question: a reader who hasn't taken all that it was sent is left alone, since a ping would
//! wait behind that. It ends when it has taken nothing for `stalled_ms`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::Readers;
use crate::addresses::{Rounds, place_of};
use crate::slab::Phase;
use crate::threads::Report;

/// So long a reader has to answer.
const ANSWER_MS: u64 = 4_000;
/// All connections are looked through so often at most, however many places are full.
const LOOK_MS: u64 = 500;

/// Who was asked, and which rounds were seen.
pub(super) struct Silent {
    rounds: Arc<Rounds>,
    seen: u64,
    next_ms: u64,
    /// When each slot was asked of which nothing was heard since.
    asked: HashMap<u32, u64>,
}

impl Silent {
    pub(super) fn new(rounds: Arc<Rounds>) -> Silent {
        Silent { seen: rounds.last(), rounds, next_ms: 0, asked: HashMap::new() }
    }

    /// That connection was heard, is gone, or needn't answer; whether it should have.
    pub(super) fn forget(&mut self, slot: u32) -> bool {
        // Almost always nobody was asked, and this is called for all that is read.
        !self.asked.is_empty() && self.asked.remove(&slot).is_some()
    }
}

impl Readers {
    /// There is no room for another connection of this address: have all threads ask the others, and the
    /// control plane those that it serves.
    pub(crate) fn have_asked(&mut self, address: IpAddr) {
        if self.silent.rounds.ask(address, Instant::now()) {
            self.report(Report::Full(address));
        }
    }

    /// End those who were to be told that there is no room.
    pub(crate) fn forget_turned_away(&mut self) {
        for slot in std::mem::take(&mut self.turned_away) {
            self.forget(slot);
        }
    }

    /// Ask all in the places that have become full.
    pub(super) fn ask_for_life(&mut self) {
        let (last, now_ms) = (self.silent.rounds.last(), self.clock.now_ms());
        if last == self.silent.seen || now_ms < self.silent.next_ms {
            return;
        }
        let places = self.silent.rounds.after(self.silent.seen);
        self.silent.seen = last;
        self.silent.next_ms = now_ms + LOOK_MS;
        for (&slot, &address) in &self.counted {
            let connection = self.slab.at(slot);
            let can_answer = connection.phase == Phase::Open && !connection.blocked;
            if can_answer && places.contains(&place_of(address)) {
                self.silent.asked.entry(slot).or_insert(now_ms);
                // The next look sends a heartbeat.
                self.wheel.set(slot, now_ms);
            }
        }
    }

    /// When a reader who was asked and wasn't heard since must be; `None` if it needn't.
    pub(super) fn answer_ends_ms(&mut self, slot: u32) -> Option<u64> {
        let asked = *self.silent.asked.get(&slot)?;
        if self.slab.at(slot).blocked {
            self.silent.forget(slot);
            return None;
        }
        Some(asked + ANSWER_MS)
    }
}
