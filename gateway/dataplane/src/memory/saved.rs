//! What is remembered of a topic, for a take-over.

use std::sync::Arc;

use super::TopicMemory;
use crate::publication::Publication;

/// All that a topic's memory is made of.
#[derive(Debug, Default)]
pub struct Saved {
    /// Whether nothing older exists.
    pub complete: bool,
    /// Oldest first.
    pub recent: Vec<Arc<Publication>>,
    /// The newest version of each key, the one renewed longest ago first.
    pub latest: Vec<Arc<Publication>>,
}

impl TopicMemory {
    /// What [`TopicMemory::restore`] needs.
    #[must_use]
    pub fn save(&self) -> Saved {
        Saved {
            complete: self.complete,
            recent: self.recent.iter().cloned().collect(),
            latest: self.latest.values().cloned().collect(),
        }
    }

    /// A memory like the one that was saved.
    #[must_use]
    pub fn restore(saved: Saved) -> TopicMemory {
        let mut memory = TopicMemory { complete: saved.complete, ..TopicMemory::default() };
        for publication in saved.recent {
            memory.held.insert(publication.identity());
            memory.weight += publication.weight();
            memory.recent.push_back(publication);
        }
        for publication in saved.latest {
            if let Some(key) = publication.key() {
                memory.renewed += 1;
                memory.renewals.insert(key.into(), memory.renewed);
                memory.weight += publication.weight();
                memory.latest.insert(memory.renewed, publication);
            }
        }
        memory
    }
}
