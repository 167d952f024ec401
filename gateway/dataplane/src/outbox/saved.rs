//! What waits for a reader, for a take-over.

use std::sync::Arc;

use super::{Account, Limits, Outbox, Story};
use crate::control::Slow;
use crate::publication::{Frame, Publication};

/// All that an outbox is made of.
#[derive(Debug, Default)]
pub struct Saved {
    /// In their order; without a publication it is firm.
    pub entries: Vec<(Frame, Option<Arc<Publication>>)>,
    /// How much of the first is written.
    pub written: usize,
    /// Since when there is too much that is firm.
    pub soft_since: Option<u64>,
}

impl Outbox {
    /// What [`Outbox::restore`] needs.
    pub fn save(&self) -> Saved {
        let entries = self.entries.iter().filter_map(|entry| {
            entry.frame.as_ref().map(|frame| (frame.clone(), entry.publication.clone()))
        });
        Saved { entries: entries.collect(), written: self.written, soft_since: self.soft_since }
    }

    /// An outbox like the one that was saved; `None` if there is none like that.
    pub fn restore(limits: Limits, saved: Saved, account: &mut Account) -> Option<Outbox> {
        let first = saved.entries.first().map_or(0, |(frame, _)| frame.len());
        if saved.written >= first.max(1) {
            return None;
        }
        let mut outbox = Outbox::new(limits);
        for (frame, publication) in saved.entries {
            let story = publication
                .clone()
                .filter(|one| one.slow() == Slow::Conflate && one.key().is_some())
                .map(Story);
            let number = outbox.append(frame, publication, account);
            if let Some(story) = story {
                outbox.stories.remove(&story);
                outbox.stories.insert(story, number);
            }
        }
        (outbox.written, outbox.soft_since) = (saved.written, saved.soft_since);
        Some(outbox)
    }
}
