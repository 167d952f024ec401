//! The hub of one I/O thread: topic → readers, identities seen. Pure.
//!
//! A publication is offered once per copy and published once: [`Hub::publish`] says
//! [`Offer::Copy`] for the others. What it says for the first is a [`Cursor`] over those who are
//! subscribed at that moment: read it to its end with [`Audience::read`], in as many pieces as you
//! like, the cursors of one topic in their order. Together with commands carried out in their order
//! that makes "each topic in the order of arrival, nobody twice" true.
//!
//! Not here: frames and sockets, and what was before, which is the control plane's.
//! `now` is in ms of the thread's clock, which only goes on.
//!
//! The decision to question: every I/O thread has a hub of its own and is offered everything. So
//! nothing is locked and nothing is asked of another thread. Publications are shared by all threads;
//! what each has for itself is up to 21 bytes per identity seen.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::audience::Audience;
use crate::identities::SeenIdentities;

pub use crate::audience::{Clash, Cursor};
pub use crate::publication::{Frame, FrameMaker, Publication};

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

/// All topics of one I/O thread.
#[derive(Debug)]
pub struct Hub {
    /// Who is subscribed to what.
    pub audience: Audience,
    /// What was published or replayed lately.
    pub seen: SeenIdentities,
}

impl Hub {
    /// One that knows nothing, and will know so many identities for so long.
    pub fn new(identity_ms: u64, identities: usize) -> Hub {
        let seen = SeenIdentities::new(identity_ms, identities);
        Hub { audience: Audience::default(), seen }
    }

    /// Offer a publication: note that it was seen, and say who gets it.
    pub fn publish(&mut self, publication: &Arc<Publication>, now: u64) -> Offer {
        let identity = publication.identity();
        if self.seen.contains(&identity) {
            return Offer::Copy;
        }
        self.seen.add(&identity, now);
        self.audience.open(&publication.topic).map_or(Offer::Nobody, Offer::Readers)
    }

    /// Some reader is given these now: a copy of any that comes later is dropped.
    ///
    /// Not so of what is older than the window of identities: it can't come again, and a crowd of
    /// mailboxes would leave no room for what can. When it was routed is by `unix_ms`, as is its id.
    pub fn replayed(&mut self, publications: &[Arc<Publication>], now: u64, unix_ms: u64) {
        for publication in publications {
            if publication.routed_ms() + self.seen.window_ms >= unix_ms {
                self.seen.add(&publication.identity(), now);
            }
        }
    }
}
