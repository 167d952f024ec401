//! The hub of one I/O thread: topic → readers, identities seen. Pure.
//!
//! A publication is offered once per copy and published once: [`Hub::publish`] returns
//! [`PublishOutcome::Duplicate`] for later copies. For the first copy it returns a [`Cursor`] over
//! the readers subscribed at that moment. Read the cursor to its end with [`Audience::read`], in any number of
//! pieces; read the cursors of one topic in their order. Because commands are carried out in their
//! order too, each reader gets each topic in the order of arrival, and no message twice.
//!
//! Not here: frames, sockets, and earlier messages, which the control plane keeps. `now` is in ms
//! of the thread's clock, which never goes back.
//!
//! The decision to question: every I/O thread has a hub of its own and is offered every
//! publication. So no lock is needed, and no thread asks another. Publications are shared by all
//! threads; each thread's own memory is up to 21 bytes per identity seen.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::audience::Audience;
use crate::identities::SeenIdentities;

pub use crate::audience::{Cursor, SubscribeError};
pub use crate::publication::{Frame, FrameMaker, Publication};

/// The result of offering a publication.
#[derive(Debug, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The identity was seen before.
    Duplicate,
    /// The identity is new, but no reader of this thread is subscribed.
    NoSubscribers,
    /// The identity is new: send the publication to the readers of this cursor.
    Subscribers(Cursor),
}

/// All topics of one I/O thread.
#[derive(Debug)]
pub struct Hub {
    /// The subscriptions.
    pub audience: Audience,
    /// Identities that were published or replayed recently.
    pub seen: SeenIdentities,
}

impl Hub {
    /// Return an empty hub that remembers at most `identities` identities, each for `identity_ms`.
    pub fn new(identity_ms: u64, identities: usize) -> Hub {
        let seen = SeenIdentities::new(identity_ms, identities);
        Hub { audience: Audience::default(), seen }
    }

    /// Offer a publication: record its identity, and return its readers.
    pub fn publish(&mut self, publication: &Arc<Publication>, now: u64) -> PublishOutcome {
        let identity = publication.identity();
        if self.seen.contains(&identity) {
            return PublishOutcome::Duplicate;
        }
        self.seen.add(&identity, now);
        self.audience
            .open(&publication.topic)
            .map_or(PublishOutcome::NoSubscribers, PublishOutcome::Subscribers)
    }

    /// Record that a reader is now given these publications: later copies of them are dropped.
    ///
    /// A publication routed longer ago than the window of identities isn't recorded: no copy of it
    /// can arrive any more, and a crowd of mailboxes would push out identities that can. The time
    /// of routing is that of the publication's id; `unix_ms` is now.
    pub fn record_replayed(&mut self, publications: &[Arc<Publication>], now: u64, unix_ms: u64) {
        for publication in publications {
            if publication.routed_ms() + self.seen.window_ms >= unix_ms {
                self.seen.add(&publication.identity(), now);
            }
        }
    }
}
