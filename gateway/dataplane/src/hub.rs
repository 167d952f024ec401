//! The hub of one I/O thread: topic → readers, identities seen. Pure.
//!
//! A publication is offered once per copy and published once: [`Hub::publish`] says
//! [`Offer::Copy`] for the others. What it says for the first is a [`Cursor`] over those who are
//! subscribed at that moment: read it to its end with [`Hub::readers`], in as many pieces as you
//! like, the cursors of one topic in their order. Together with commands carried out in their order
//! that makes "each topic in the order of arrival, nobody twice" true.
//!
//! Not here: frames and sockets, and what was before, which is the control plane's.
//! `now` is in ms since the epoch throughout.
//!
//! The decision to question: every I/O thread has a hub of its own and is offered everything. So
//! nothing is locked and nothing is asked of another thread. Publications are shared by all threads;
//! what each has for itself is up to 21 bytes per identity seen.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::audience::Audience;
use crate::control::Settings;
use crate::identities::SeenIdentities;
use crate::publication::Identity;

pub use crate::audience::Cursor;
pub use crate::publication::{Frame, FrameMaker, Publication};

/// How many identities are remembered, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Identities seen.
    pub identities: usize,
    /// How long those are remembered.
    pub identity_ms: u64,
}

impl Limits {
    /// Those of the settings.
    pub fn of(settings: &Settings) -> Limits {
        Limits {
            identities: settings.identities as usize,
            identity_ms: settings.identity_ms.into(),
        }
    }
}

/// What came of a publication.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer {
    /// It was published before.
    Copy,
    /// It is news, but none of this thread's readers wants it.
    Nobody,
    /// Send it to these.
    Readers(Cursor),
}

/// Why a reader can't have a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// It has it: error 105.
    AlreadySubscribed,
    /// It has too many: error 106.
    TooMany,
}

/// All topics of one I/O thread.
#[derive(Debug)]
pub struct Hub {
    limits: Limits,
    audience: Audience,
    seen: SeenIdentities,
    copies: u64,
}

impl Hub {
    /// One that knows nothing.
    pub fn new(limits: Limits) -> Hub {
        Hub {
            limits,
            audience: Audience::default(),
            seen: SeenIdentities::new(limits.identity_ms, limits.identities),
            copies: 0,
        }
    }

    /// Other limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.seen.set_limits(limits.identity_ms, limits.identities);
    }

    /// How many identities are remembered.
    pub fn identities(&self) -> usize {
        self.seen.len()
    }

    /// How many copies were dropped.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// How many identities were forgotten before their time, because they were too many.
    pub fn evicted_early(&self) -> u64 {
        self.seen.evicted_early()
    }

    /// Offer a publication: note that it was seen, and say who gets it.
    pub fn publish(&mut self, publication: &Arc<Publication>, now: u64) -> Offer {
        let identity = publication.identity();
        if self.seen.contains(&identity) {
            self.copies += 1;
            return Offer::Copy;
        }
        self.seen.add(&identity, now);
        self.audience.open(publication.topic()).map_or(Offer::Nobody, Offer::Readers)
    }

    /// Some reader is given these now: a copy of any that comes later is dropped.
    ///
    /// Not so of what is older than the window of identities: it can't come again, and a crowd of
    /// mailboxes would leave no room for what can.
    pub fn replayed(&mut self, publications: &[Arc<Publication>], now: u64) {
        for publication in publications {
            if publication.routed_ms() + self.limits.identity_ms >= now {
                self.seen.add(&publication.identity(), now);
            }
        }
    }

    /// Append the next readers of a publication to `slots`, at most `most`; false if that was all.
    ///
    /// After false the cursor is used up. One that isn't read to its end keeps room occupied.
    pub fn readers(&mut self, cursor: &Cursor, most: usize, slots: &mut Vec<u32>) -> bool {
        self.audience.read(cursor, most, slots)
    }

    /// Let `first` serve the readers of `other` too, if they are the same and neither was read yet;
    /// else false. `other` is used up then.
    pub fn join(&mut self, first: &Cursor, other: &Cursor) -> bool {
        self.audience.join(first, other)
    }

    /// Why `slot` can't have another topic, or this one; at most `most` are allowed.
    pub fn clash(&self, slot: u32, topic: &str, most: usize) -> Option<Clash> {
        if self.audience.has(slot, topic) {
            Some(Clash::AlreadySubscribed)
        } else if self.audience.count(slot) >= most {
            Some(Clash::TooMany)
        } else {
            None
        }
    }

    /// From now on `slot` gets `topic`. Ask [`Hub::clash`] before.
    pub fn subscribe(&mut self, slot: u32, topic: &str) {
        self.audience.subscribe(slot, topic);
    }

    /// Take a subscription back; false if there is none.
    pub fn unsubscribe(&mut self, slot: u32, topic: &str) -> bool {
        self.audience.unsubscribe(slot, topic)
    }

    /// Take all of a reader's subscriptions back.
    pub fn leave(&mut self, slot: u32) {
        while self.audience.leave_one(slot) {}
    }

    /// The topics of `slot`.
    pub fn subscriptions(&self, slot: u32) -> impl Iterator<Item = &Arc<str>> {
        self.audience.subscriptions(slot)
    }

    /// Every topic that has readers.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.audience.topics()
    }

    /// The identities seen, in pieces of at most `most`, oldest first.
    pub fn seen(&self, most: usize, each: impl FnMut(u64, &[Identity])) {
        self.seen.pieces(most, each);
    }

    /// Know a piece of those.
    pub fn restore_seen(&mut self, start: u64, piece: &[Identity]) {
        self.seen.restore(start, piece);
    }
}
