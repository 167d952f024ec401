//! Frames that one connection has not been sent yet, and the test for a slow reader. Pure.
//!
//! Frames are shared with other connections; each connection pays only for an entry. A frame waits
//! here only while the socket takes no bytes. The fast path uses no outbox, and a connection that
//! isn't behind has none.
//!
//! The policy of its topic applies to every waiting message:
//!
//! * `disconnect` and our own replies are **firm**: never dropped.
//! * `conflate`: a newer version of a key replaces the waiting one. It is put at the end, so a
//!   topic stays in its order of arrival.
//! * `drop_oldest`: may be dropped, the oldest first.
//!
//! A partly written frame is never dropped, whatever its policy: the reader could not decode the
//! bytes after it.
//!
//! At the hard limit, the oldest messages that aren't firm are dropped (also conflated ones: their
//! newest versions are sent again at the next subscribe). If that makes too little room, a firm
//! message makes its reader too slow; a message that isn't firm is dropped itself. The soft limit
//! counts firm bytes alone. It applies only after they have stayed above it for `soft_ms`: a short
//! burst is forgiven.
//!
//! The memory of all outboxes of a thread is counted in their [`Account`]; every change is reported
//! to it.
//!
//! The decision to question: a dropped message leaves a hole in the queue, so that the entry
//! numbers in `stories` stay valid. Holes are removed when they outnumber the frames.

mod account;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::io::IoSlice;
use std::mem;
use std::sync::Arc;

use crate::control::{Settings, Slow};
use crate::publication::{Frame, Publication};

pub use account::{Account, QUEUE_ENTRY_BYTES};

/// Bytes counted for each frame beside its own, so that many small frames are bounded too.
pub const ENTRY_BYTES: usize = 256;
/// Number of holes that is never worth removing.
const FEW_HOLES: usize = 32;

/// Limits of the bytes that wait for one connection, and of the time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Maximum of all waiting bytes.
    pub hard_bytes: u32,
    /// Limit of the firm waiting bytes.
    pub soft_bytes: u32,
    /// Time for which `soft_bytes` may be exceeded.
    pub soft_ms: u32,
}

impl Limits {
    /// Return the limits of the settings.
    pub fn of(settings: &Settings) -> Limits {
        let Settings { hard_bytes, soft_bytes, soft_ms, .. } = *settings;
        Limits { hard_bytes, soft_bytes, soft_ms }
    }
}

/// Numbers of dropped messages, by policy.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Messages replaced by a newer version, or dropped for lack of room.
    pub conflate: u64,
    /// Messages dropped for lack of room.
    pub drop_oldest: u64,
}

#[derive(Debug)]
struct Entry {
    /// The frame; `None` for a hole.
    frame: Option<Frame>,
    /// The message; `None` if the frame is firm.
    publication: Option<Arc<Publication>>,
}

/// The topic and key of a message: equal for two versions of one key.
#[derive(Debug)]
struct ConflationKey(Arc<Publication>);

impl ConflationKey {
    /// Return the story of a message that newer versions replace.
    fn of(publication: &Arc<Publication>) -> Option<ConflationKey> {
        let conflated = publication.slow == Slow::Conflate && publication.key().is_some();
        conflated.then(|| ConflationKey(publication.clone()))
    }
}

impl PartialEq for ConflationKey {
    fn eq(&self, other: &ConflationKey) -> bool {
        (&self.0.topic, self.0.key()) == (&other.0.topic, other.0.key())
    }
}

impl Eq for ConflationKey {}

impl Hash for ConflationKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.0.topic, self.0.key()).hash(state);
    }
}

/// Queue of one connection, first in, first out. `now` is any clock in ms.
#[derive(Debug, Default)]
pub struct Outbox {
    limits: Limits,
    entries: VecDeque<Entry>,
    /// Number of the first entry; later entries have the numbers that follow.
    first: u64,
    /// No entry before this number can be dropped.
    droppable: u64,
    holes: usize,
    /// Bytes of the first entry that were written.
    pub written: usize,
    pending_bytes: usize,
    firm_bytes: usize,
    stories: HashMap<ConflationKey, u64>,
    /// Time at which the firm bytes rose above the soft limit; `None` while they are below.
    pub soft_since: Option<u64>,
    dropped: Dropped,
}

impl Outbox {
    /// Return an empty outbox.
    pub fn new(limits: Limits) -> Outbox {
        Outbox { limits, ..Outbox::default() }
    }

    /// Return an outbox with these waiting frames, in their order; a frame without a publication is
    /// firm. `None` if the first frame isn't longer than `written`.
    pub fn restore(
        limits: Limits,
        waiting: Vec<(Frame, Option<Arc<Publication>>)>,
        written: usize,
        soft_since: Option<u64>,
        account: &mut Account,
    ) -> Option<Outbox> {
        let first = waiting.first().map_or(0, |(frame, _)| frame.len());
        if written >= first.max(1) {
            return None;
        }
        let mut outbox = Outbox::new(limits);
        for (frame, publication) in waiting {
            outbox.append(frame, publication, account);
        }
        (outbox.written, outbox.soft_since) = (written, soft_since);
        Some(outbox)
    }

    /// Return all waiting frames, in their order.
    pub fn waiting(&self) -> impl Iterator<Item = (&Frame, Option<&Arc<Publication>>)> {
        let entries = self.entries.iter();
        entries.filter_map(|entry| Some((entry.frame.as_ref()?, entry.publication.as_ref())))
    }

    /// Return the number of waiting frames.
    pub fn len(&self) -> usize {
        self.entries.len() - self.holes
    }

    /// Return whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the waiting bytes, with [`ENTRY_BYTES`] for each frame.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Queue a frame of which the kernel has taken only `written` bytes. The outbox must be empty.
    pub fn push_partly_written(&mut self, frame: Frame, written: usize, account: &mut Account) {
        debug_assert!(self.is_empty() && written < frame.len());
        self.append(frame, None, account);
        self.written = written;
    }

    /// Queue a message's frame under its topic's policy; return false if the reader is too slow.
    #[must_use = "a reader that is too slow has to be closed"]
    pub fn push(
        &mut self,
        frame: Frame,
        publication: &Arc<Publication>,
        now: u64,
        account: &mut Account,
    ) -> bool {
        if publication.slow == Slow::Disconnect {
            return self.push_firm(frame, now, account);
        }
        if let Some(conflation_key) = ConflationKey::of(publication)
            && !self.conflate(&conflation_key, account)
        {
            return true;
        }
        if !self.make_room(frame.len() + ENTRY_BYTES, account) {
            self.count_dropped(publication.slow);
        } else {
            self.append(frame, Some(publication.clone()), account);
        }
        true
    }

    /// Queue a frame that must not be dropped; return false if the reader is too slow.
    ///
    /// The frame is queued in any case: on false clear the outbox, then send the goodbye.
    #[must_use = "a reader that is too slow has to be closed"]
    pub fn push_firm(&mut self, frame: Frame, now: u64, account: &mut Account) -> bool {
        let fits = self.make_room(frame.len() + ENTRY_BYTES, account);
        self.append(frame, None, account);
        fits && !self.too_long_above_soft(now)
    }

    /// Fill `slices` with the next bytes to write; return the number of slices filled. After the
    /// write call [`Outbox::advance`].
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut written = self.written;
        let frames = self.entries.iter().filter_map(|entry| entry.frame.as_ref());
        let mut count = 0;
        for (slice, frame) in slices.iter_mut().zip(frames) {
            *slice = IoSlice::new(&frame[mem::take(&mut written)..]);
            count += 1;
        }
        count
    }

    /// Remove the first `bytes` of [`Outbox::slices`], which were written.
    pub fn advance(&mut self, mut bytes: usize, account: &mut Account) {
        while let Some(entry) = self.entries.front() {
            let left = entry.frame.as_ref().map_or(0, |frame| frame.len() - self.written);
            if bytes < left {
                self.written += bytes;
                break;
            }
            bytes -= left;
            self.written = 0;
            self.remove(self.first, account);
            self.entries.pop_front();
            self.first += 1;
            self.holes -= 1;
        }
        if self.firm_bytes <= self.limits.soft_bytes as usize {
            self.soft_since = None;
        }
    }

    /// Drop all but a partly written frame; return the number of frames dropped.
    pub fn clear(&mut self, account: &mut Account) -> usize {
        let mut count = self.len();
        self.remove_from_account(account);
        let started = (self.written > 0).then(|| self.entries.pop_front()).flatten();
        self.entries.clear();
        self.stories.clear();
        (self.first, self.droppable, self.holes) = (0, 0, 0);
        (self.pending_bytes, self.firm_bytes, self.soft_since) = (0, 0, None);
        if let Some(frame) = started.and_then(|entry| entry.frame) {
            self.append(frame, None, account);
            count -= 1;
        }
        count
    }

    /// Remove all frames from the account: the outbox is about to be dropped.
    pub fn remove_from_account(&self, account: &mut Account) {
        self.entries.iter().filter_map(|entry| entry.frame.as_ref()).for_each(|frame| {
            account.remove(frame);
        });
    }

    /// Return the numbers of messages dropped since the last call.
    pub fn take_dropped(&mut self) -> Dropped {
        mem::take(&mut self.dropped)
    }

    /// Drop the waiting version of a story; if it is the newer one, keep it and return false.
    fn conflate(&mut self, conflation_key: &ConflationKey, account: &mut Account) -> bool {
        let waiting = self.stories.get(conflation_key).copied();
        // A version being written may have lost its place in `stories` to one dropped since.
        let known = [waiting, (self.written > 0).then_some(self.first)];
        let newest = known.into_iter().flatten().any(|number| {
            let known =
                self.entries[self.index(number)].publication.as_ref().and_then(ConflationKey::of);
            known.is_some_and(|known| {
                known == *conflation_key && !conflation_key.0.supersedes(&known.0)
            })
        });
        if newest {
            self.dropped.conflate += 1;
            return false;
        }
        if let Some(number) = waiting.filter(|number| !self.is_started(*number)) {
            self.dropped.conflate += 1;
            self.remove(number, account);
            self.close_holes();
        }
        true
    }

    fn make_room(&mut self, cost: usize, account: &mut Account) -> bool {
        while self.pending_bytes + cost > self.limits.hard_bytes as usize {
            let Some(number) = self.oldest_droppable() else {
                return false;
            };
            if let Some(publication) = &self.entries[self.index(number)].publication {
                let slow = publication.slow;
                self.count_dropped(slow);
            }
            self.remove(number, account);
        }
        self.close_holes();
        true
    }

    fn oldest_droppable(&mut self) -> Option<u64> {
        self.droppable = self.droppable.max(self.first);
        while let Some(entry) = self.entries.get(self.index(self.droppable)) {
            if entry.publication.is_some() && !self.is_started(self.droppable) {
                return Some(self.droppable);
            }
            self.droppable += 1;
        }
        None
    }

    fn is_started(&self, number: u64) -> bool {
        self.written > 0 && number == self.first
    }

    fn append(
        &mut self,
        frame: Frame,
        publication: Option<Arc<Publication>>,
        account: &mut Account,
    ) {
        account.add(&frame);
        let cost = frame.len() + ENTRY_BYTES;
        self.pending_bytes += cost;
        if publication.is_none() {
            self.firm_bytes += cost;
        }
        if let Some(conflation_key) = publication.as_ref().and_then(ConflationKey::of) {
            // `insert` alone would keep the old key, of a version that is being written.
            self.stories.remove(&conflation_key);
            self.stories.insert(conflation_key, self.first + self.entries.len() as u64);
        }
        self.entries.push_back(Entry { frame: Some(frame), publication });
    }

    /// Make an entry a hole, if it isn't one; a partly written entry only once it is sent.
    fn remove(&mut self, number: u64, account: &mut Account) {
        let index = self.index(number);
        let Entry { frame: Some(frame), publication } =
            mem::replace(&mut self.entries[index], Entry { frame: None, publication: None })
        else {
            return;
        };
        account.remove(&frame);
        self.holes += 1;
        let cost = frame.len() + ENTRY_BYTES;
        self.pending_bytes -= cost;
        match publication {
            None => self.firm_bytes -= cost,
            Some(publication) => self.forget_key(publication, number),
        }
    }

    fn forget_key(&mut self, publication: Arc<Publication>, number: u64) {
        if self.stories.is_empty() {
            return;
        }
        let conflation_key = ConflationKey(publication);
        if self.stories.get(&conflation_key) == Some(&number) {
            self.stories.remove(&conflation_key);
        }
    }

    fn close_holes(&mut self) {
        if self.holes <= self.len() + FEW_HOLES {
            return;
        }
        let numbers: Vec<u64> = (self.first..)
            .zip(&self.entries)
            .filter_map(|(number, entry)| entry.frame.is_some().then_some(number))
            .collect();
        self.entries.retain(|entry| entry.frame.is_some());
        for number in self.stories.values_mut() {
            // Every story waits, so its number is in the list.
            *number = numbers.partition_point(|one| one < number) as u64;
        }
        (self.first, self.droppable, self.holes) = (0, 0, 0);
    }

    fn too_long_above_soft(&mut self, now: u64) -> bool {
        if self.firm_bytes <= self.limits.soft_bytes as usize {
            self.soft_since = None;
            return false;
        }
        let since = *self.soft_since.get_or_insert(now);
        now.saturating_sub(since) > u64::from(self.limits.soft_ms)
    }

    fn count_dropped(&mut self, slow: Slow) {
        match slow {
            Slow::Conflate => self.dropped.conflate += 1,
            Slow::DropOldest => self.dropped.drop_oldest += 1,
            // Firm messages are never dropped.
            Slow::Disconnect => {}
        }
    }

    fn index(&self, number: u64) -> usize {
        (number - self.first) as usize
    }
}
