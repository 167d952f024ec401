//! One bound for all outboxes of a thread.
//!
//! Each outbox has limits of its own, but ten thousand readers who take nothing fill ten thousand
//! of them. So all that waits on a thread has a share of the process's memory
//! (`outbox_bytes` by the number of threads: readers are spread over threads evenly, and what
//! threads counted together would be one more cache line that all of them write). Over its share the
//! thread closes those who are furthest behind, as slow readers, until an eighth is free again: so
//! all connections are looked at once for at least so many bytes that came in between.

use super::Readers;
use crate::closing::CloseReason;
use crate::outbox::Account;

/// A frame that was partly written is finished for the goodbye behind it, unless it is longer: then
/// the reader would keep it for as long as the goodbye may take, and the connection ends at once. So it
/// does if that is most of what waits, or it was closing before: its goodbye would free nothing, and those who
/// are hardly behind would be closed too.
const GOODBYE_BEHIND: usize = 128 * 1024;

/// What may wait in all outboxes, and what does.
pub(super) struct Budget {
    pub(super) account: Account,
    share: usize,
    /// As long as all that waits takes no more, nobody has to go for it.
    close_above: usize,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { account: Account::default(), share: usize::MAX, close_above: usize::MAX }
    }

    /// This thread's part of `outbox_bytes`, where 0 is no bound.
    pub(super) fn set_share(&mut self, outbox_bytes: u64, threads: usize) {
        self.share = match outbox_bytes / threads as u64 {
            0 => usize::MAX,
            share => usize::try_from(share).unwrap_or(usize::MAX),
        };
        self.renew();
    }

    /// The outboxes are those of an older data plane: what waits in them already may wait on.
    pub(super) fn begin(&mut self) {
        self.close_above = usize::MAX;
        self.renew();
    }

    /// The share is another, or what took more than it has gone.
    pub(super) fn renew(&mut self) {
        let room = self.account.bytes().saturating_add(self.share / 8);
        self.close_above = self.close_above.min(self.share.max(room));
    }

    /// Whether enough is free again.
    fn has_room(&self) -> bool {
        self.account.bytes() <= self.share - self.share / 8
    }

    /// Those who could go have gone. What goodbyes take is not to be searched for again and again.
    fn settle(&mut self) {
        self.close_above = self.share.max(self.account.bytes() + self.share / 8);
    }
}

impl Readers {
    /// Close those who are furthest behind if all that waits takes too much. Nobody may be
    /// iterating over readers.
    pub(crate) fn keep_within_budget(&mut self) {
        if self.budget.account.bytes() <= self.budget.close_above {
            return;
        }
        let mut behind: Vec<(usize, u32)> = (0..self.slab.slots())
            .map(|slot| (self.slab.at(slot).outbox_bytes(), slot))
            .filter(|(waiting, _)| *waiting > 0)
            .collect();
        behind.sort_unstable();
        while !self.budget.has_room()
            && let Some((waiting, slot)) = behind.pop()
        {
            self.close(slot, CloseReason::SlowReader, None);
            if self.slab.at(slot).outbox_bytes() > GOODBYE_BEHIND.min(waiting / 2) {
                self.forget(slot);
            }
        }
        self.budget.settle();
    }
}
