//! One bound for all outboxes of a thread, and one for how long a reader may take nothing.
//!
//! Each outbox has limits of its own, but ten thousand readers who take nothing fill ten thousand
//! of them. So all that waits on a thread has a share of the process's memory
//! (`outbox_bytes` by the number of threads: readers are spread over threads evenly, and what
//! threads counted together would be one more cache line that all of them write). Over its share the
//! thread closes those who are furthest behind, as slow readers, until an eighth is free again: so
//! all connections are looked at once for at least so many bytes that came in between.
//!
//! Whoever has taken nothing for `stalled_ms` while something waits is closed too, however little
//! that is. A reader takes something when the kernel does: its buffer has room again.

use crate::reactor::Reactor;
use crate::slab::Phase;

/// A frame that was partly written is finished for the goodbye behind it, unless it is longer: then
/// the reader would keep it for as long as the goodbye may take, and the connection ends at once. So it
/// does if that is most of what waits, or it was closing before: its goodbye would free nothing, and those who
/// are hardly behind would be closed too.
const GOODBYE_BEHIND: usize = 128 * 1024;

impl Reactor {
    /// This thread's share of what may wait in outboxes; no bound if there is none.
    fn share(&self) -> usize {
        match self.settings().outbox_bytes / self.parts.counters.len() as u64 {
            0 => usize::MAX,
            share => usize::try_from(share).unwrap_or(usize::MAX),
        }
    }

    /// Close those who are furthest behind if all that waits takes too much. Nobody may be
    /// iterating over readers.
    pub(crate) fn keep_within_budget(&mut self) {
        if self.account.bytes() > self.close_above {
            self.close_the_furthest_behind();
        }
    }

    fn close_the_furthest_behind(&mut self) {
        let share = self.share();
        let enough = share - share / 8;
        let mut behind = Vec::new();
        for slot in 0..self.slab.slots() {
            let connection = self.slab.at(slot);
            let waiting = connection.extra.as_ref().map_or(0, |extra| extra.outbox.pending_bytes());
            if waiting > 0 {
                behind.push((waiting, slot));
            }
        }
        behind.sort_unstable();
        while self.account.bytes() > enough
            && let Some((waiting, slot)) = behind.pop()
        {
            self.close(slot, "slow_reader", None);
            let left = self.slab.at(slot).extra.as_ref();
            let most = GOODBYE_BEHIND.min(waiting / 2);
            if left.is_some_and(|extra| extra.outbox.pending_bytes() > most) {
                self.forget(slot);
            }
        }
        // What goodbyes take is not to be searched for again and again.
        self.close_above = share.max(self.account.bytes() + share / 8);
    }

    /// The share is another, or what took more than it has gone.
    pub(crate) fn renew_budget(&mut self) {
        let share = self.share();
        self.close_above =
            self.close_above.min(share.max(self.account.bytes().saturating_add(share / 8)));
    }

    /// When an open reader that takes nothing is given up; `None` if nothing waits for it.
    pub(crate) fn stall_ends_ms(&mut self, slot: u32) -> Option<u64> {
        let stalled_ms = u64::from(self.settings().stalled_ms);
        let extra = self.slab.at(slot).extra.as_ref()?;
        (stalled_ms > 0 && !extra.outbox.is_empty()).then(|| extra.taken_ms + stalled_ms)
    }

    /// Something begins to wait: look whether it still does when it is too long.
    pub(crate) fn watch_stall(&mut self, slot: u32) {
        self.slab.extra(slot, &self.policy).taken_ms = self.now_ms;
        let open = self.slab.at(slot).phase == Phase::Open;
        if let (true, Some(beat), Some(end)) =
            (open, self.wheel.due_ms(slot), self.stall_ends_ms(slot))
            && end < beat
        {
            self.wheel.set(slot, end);
        }
    }
}
