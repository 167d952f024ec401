//! The common bound of all outboxes of a thread.
//!
//! Each outbox has limits of its own, but ten thousand readers that take nothing fill ten thousand
//! outboxes. So all frames that wait on a thread have a share of the process's memory:
//! `outbox_bytes` divided by the number of threads. Readers are spread over threads evenly, and a
//! common count would be one more cache line that all threads write. Above its share, the thread
//! closes the readers that are furthest behind, as slow readers, until an eighth is free. So a pass
//! over all connections is made only after at least so many new bytes.

use super::Readers;
use crate::closing::CloseReason;
use crate::outbox::Account;

/// Maximum bytes in the outbox of a reader that was just closed: a partly written frame, and the
/// goodbye behind it. Above that the connection ends at once: the reader would keep the frame for
/// the whole linger time. It also ends at once if more than half of its bytes are left, or it was
/// closing before: else its goodbye would free too little, and readers that are hardly behind would
/// be closed, too.
const GOODBYE_BEHIND: usize = 128 * 1024;

/// The bound of all outboxes, and the bytes in them.
pub(super) struct Budget {
    pub(super) account: Account,
    share: usize,
    /// Bytes up to which no reader is closed to make room.
    close_above: usize,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { account: Account::default(), share: usize::MAX, close_above: usize::MAX }
    }

    /// Set this thread's share of `outbox_bytes`, where 0 is no bound.
    pub(super) fn set_share(&mut self, outbox_bytes: u64, threads: usize) {
        self.share = match outbox_bytes / threads as u64 {
            0 => usize::MAX,
            share => usize::try_from(share).unwrap_or(usize::MAX),
        };
        self.lower_limit();
    }

    /// Begin with the outboxes of an older data plane: frames that wait already may go on waiting.
    pub(super) fn start_at_current(&mut self) {
        self.close_above = usize::MAX;
        self.lower_limit();
    }

    /// Lower the bound, after the share has changed or bytes above it were freed.
    pub(super) fn lower_limit(&mut self) {
        let room = self.account.bytes().saturating_add(self.share / 8);
        self.close_above = self.close_above.min(self.share.max(room));
    }

    /// Return whether enough is free again.
    fn has_room(&self) -> bool {
        self.account.bytes() <= self.share - self.share / 8
    }

    /// Raise the bound over the bytes of goodbyes, so that they don't cause search after search.
    fn raise_limit(&mut self) {
        self.close_above = self.share.max(self.account.bytes() + self.share / 8);
    }
}

impl Readers {
    /// Close the readers that are furthest behind, if all outboxes together take too much. The
    /// caller must not be iterating over readers.
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
                self.close_and_free(slot);
            }
        }
        self.budget.raise_limit();
    }
}
