//! The subscriptions of one I/O thread, and the progress of each fan-out. Pure.
//!
//! Both directions are dense: a topic has the slots of its readers (4 bytes each); a slot has its
//! topic and its place among that topic's readers (8 bytes). A reader of one topic takes no more
//! memory, and its leaving needs no search through a topic's 100,000 readers.
//!
//! A big fan-out is cut into chunks, and readers come and go in between. So a [`Cursor`] is open
//! during a fan-out: new readers are put behind its end, and readers that leave become holes. No
//! other reader moves, so none is served twice or skipped. Holes are filled when the last cursor
//! closes.
//!
//! The decision to question: a reader of several topics has them in a list, which is searched. The
//! list is short (a setting bounds it), and a map would cost every reader more than the search.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

/// No reader: a reader left during a fan-out.
const HOLE: u32 = u32::MAX;
/// In a link: no subscription.
const NO_TOPIC: u32 = u32::MAX;
/// In a link: several subscriptions; `place` is the number of their list.
const MANY: u32 = u32::MAX - 1;
/// Number of holes that is never worth closing before the fan-out ends.
const FEW_HOLES: usize = 1_024;
/// 2³² divided by the golden ratio: fan-outs start at places that are evenly spread.
const STRIDE: u32 = 0x9E37_79B9;

/// The subscription of one reader to a topic.
#[derive(Debug, Clone, Copy)]
struct TopicLink {
    topic: u32,
    /// Index in the topic's slots.
    place: u32,
}

const UNLINKED: TopicLink = TopicLink { topic: NO_TOPIC, place: 0 };

/// The reason why a reader can't have a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeError {
    /// The reader is subscribed to it: error 105.
    AlreadySubscribed,
    /// The reader has too many topics: error 106.
    TooMany,
}

/// A fan-out in progress. Read it to its end with [`Audience::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Number of the topic: equal for all open cursors of one topic.
    pub(crate) topic: u32,
    number: u32,
}

#[derive(Debug)]
struct Progress {
    number: u32,
    start: u32,
    done: u32,
    end: u32,
}

impl Progress {
    fn place(&self) -> usize {
        ((u64::from(self.start) + u64::from(self.done)) % u64::from(self.end)) as usize
    }
}

#[derive(Debug, Default)]
struct TopicReaders {
    name: Arc<str>,
    slots: Vec<u32>,
    holes: Vec<u32>,
    open: Vec<Progress>,
    /// The start of the next fan-out, as a fraction of the readers.
    rotation: u32,
}

/// The subscriptions of one I/O thread.
#[derive(Debug, Default)]
pub struct Audience {
    numbers: HashMap<Arc<str>, u32>,
    /// Topics by number; those in `free_topics` have no readers.
    topics: Vec<TopicReaders>,
    free_topics: Vec<u32>,
    links: Vec<TopicLink>,
    lists: Vec<Vec<TopicLink>>,
    free_lists: Vec<u32>,
    cursors: u32,
}

impl Audience {
    /// Return every topic that has readers.
    pub fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.numbers.keys()
    }

    /// Return the reason why `slot` can't subscribe to `topic`, if any; `most` topics are allowed.
    pub fn check_subscribe(&self, slot: u32, topic: &str, most: usize) -> Option<SubscribeError> {
        let (number, links) = (self.numbers.get(topic), self.links_of(slot));
        if number.is_some_and(|number| links.iter().any(|link| link.topic == *number)) {
            Some(SubscribeError::AlreadySubscribed)
        } else {
            (links.len() >= most).then_some(SubscribeError::TooMany)
        }
    }

    /// Subscribe `slot` to `topic`. Call [`Audience::check_subscribe`] before.
    pub fn subscribe(&mut self, slot: u32, topic: &str) {
        let number = self.number_of(topic);
        let readers = &mut self.topics[number as usize];
        let place = readers.slots.len() as u32;
        readers.slots.push(slot);
        self.link(slot, TopicLink { topic: number, place });
    }

    /// Remove a subscription; return false if there is none.
    pub fn unsubscribe(&mut self, slot: u32, topic: &str) -> bool {
        let number = self.numbers.get(topic).copied();
        let link = number.and_then(|number| self.unlink(slot, number));
        if let Some(link) = link {
            self.remove_from_topic(link);
        }
        link.is_some()
    }

    /// Remove all subscriptions of `slot`.
    pub fn leave(&mut self, slot: u32) {
        while let Some(&link) = self.links_of(slot).last() {
            self.unlink(slot, link.topic);
            self.remove_from_topic(link);
        }
    }

    /// Return the topics of `slot`.
    pub fn topics_of(&self, slot: u32) -> impl Iterator<Item = &Arc<str>> {
        self.links_of(slot).iter().map(|link| &self.topics[link.topic as usize].name)
    }

    /// Begin a fan-out to the present readers of `topic`; return `None` if there are none.
    pub fn open(&mut self, topic: &str) -> Option<Cursor> {
        let number = *self.numbers.get(topic)?;
        let readers = &mut self.topics[number as usize];
        if readers.slots.len() == readers.holes.len() {
            return None;
        }
        let end = readers.slots.len() as u32;
        readers.rotation = readers.rotation.wrapping_add(STRIDE);
        let start = ((u64::from(readers.rotation) * u64::from(end)) >> 32) as u32;
        self.cursors = self.cursors.wrapping_add(1);
        readers.open.push(Progress { number: self.cursors, start, done: 0, end });
        Some(Cursor { topic: number, number: self.cursors })
    }

    /// Append up to `most` next readers to `slots`; return false if those were the last.
    ///
    /// After false the cursor is closed. The fan-outs of one topic must be served one after the
    /// other, in the order in which they were opened. A reader may leave during a fan-out.
    pub fn read(&mut self, cursor: &Cursor, most: usize, slots: &mut Vec<u32>) -> bool {
        let readers = &mut self.topics[cursor.topic as usize];
        let Some(at) = readers.open.iter().position(|one| one.number == cursor.number) else {
            return false;
        };
        let progress = &mut readers.open[at];
        for _ in 0..most.min((progress.end - progress.done) as usize) {
            let slot = readers.slots[progress.place()];
            progress.done += 1;
            if slot != HOLE {
                slots.push(slot);
            }
        }
        if progress.done < progress.end {
            return true;
        }
        readers.open.remove(at);
        if readers.open.is_empty() {
            self.fill_holes(cursor.topic);
        }
        false
    }

    /// Close `other` and return true, if one reading of `first` can serve both: they have the same
    /// readers, and neither has been read yet. Else return false.
    pub fn join(&mut self, first: &Cursor, other: &Cursor) -> bool {
        let open = &mut self.topics[first.topic as usize].open;
        let unread = |cursor: &Cursor| {
            open.iter().position(|one| one.number == cursor.number && one.done == 0)
        };
        match (unread(first), unread(other)) {
            (Some(one), Some(other)) if open[one].end == open[other].end => {
                open.remove(other);
                true
            }
            _ => false,
        }
    }

    fn number_of(&mut self, topic: &str) -> u32 {
        if let Some(&number) = self.numbers.get(topic) {
            return number;
        }
        let number = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(TopicReaders::default());
            self.topics.len() as u32 - 1
        });
        let name: Arc<str> = topic.into();
        self.topics[number as usize].name = name.clone();
        self.numbers.insert(name, number);
        number
    }

    /// Remove a reader from its topic.
    fn remove_from_topic(&mut self, link: TopicLink) {
        let readers = &mut self.topics[link.topic as usize];
        readers.slots[link.place as usize] = HOLE;
        readers.holes.push(link.place);
        let (holes, live) = (readers.holes.len(), readers.slots.len() - readers.holes.len());
        if readers.open.is_empty() {
            self.fill_holes(link.topic);
        } else if holes > live + FEW_HOLES {
            self.compact(link.topic);
        }
    }

    /// Move the last readers into the holes; delete the topic if it has no readers. No cursor may
    /// be open.
    fn fill_holes(&mut self, topic: u32) {
        let mut holes = std::mem::take(&mut self.topics[topic as usize].holes);
        // From the end, so that the moved reader is never a hole.
        holes.sort_unstable_by(|one, other| other.cmp(one));
        for hole in holes {
            let slots = &mut self.topics[topic as usize].slots;
            slots.swap_remove(hole as usize);
            if let Some(&moved) = slots.get(hole as usize) {
                self.relink(moved, topic, hole);
            }
        }
        self.release(topic);
    }

    /// Delete a topic without readers, or free memory that it no longer needs.
    fn release(&mut self, topic: u32) {
        let readers = &mut self.topics[topic as usize];
        if !readers.slots.is_empty() {
            if readers.slots.capacity() > 64 && readers.slots.len() * 4 < readers.slots.capacity() {
                readers.slots.shrink_to(readers.slots.len() * 2);
            }
            return;
        }
        self.numbers.remove(&readers.name);
        *readers = TopicReaders::default();
        self.free_topics.push(topic);
    }

    /// Remove the holes while cursors are open: readers move up, and the cursors' places with them.
    fn compact(&mut self, topic: u32) {
        let mut readers = std::mem::take(&mut self.topics[topic as usize]);
        // Number of live readers before each place.
        let mut before = Vec::with_capacity(readers.slots.len() + 1);
        before.push(0);
        for slot in &readers.slots {
            before.push(before[before.len() - 1] + u32::from(*slot != HOLE));
        }
        readers.open.iter_mut().for_each(|one| move_up(one, &before));
        readers.slots.retain(|slot| *slot != HOLE);
        readers.holes.clear();
        for (place, &slot) in readers.slots.iter().enumerate() {
            self.relink(slot, topic, place as u32);
        }
        self.topics[topic as usize] = readers;
    }

    fn links_of(&self, slot: u32) -> &[TopicLink] {
        match self.links.get(slot as usize) {
            None | Some(TopicLink { topic: NO_TOPIC, .. }) => &[],
            Some(TopicLink { topic: MANY, place }) => &self.lists[*place as usize],
            Some(link) => std::slice::from_ref(link),
        }
    }

    fn link(&mut self, slot: u32, link: TopicLink) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        match self.links[slot as usize] {
            TopicLink { topic: NO_TOPIC, .. } => self.links[slot as usize] = link,
            TopicLink { topic: MANY, place } => self.lists[place as usize].push(link),
            only => {
                let list = self.free_lists.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    self.lists.len() as u32 - 1
                });
                self.lists[list as usize].extend([only, link]);
                self.links[slot as usize] = TopicLink { topic: MANY, place: list };
            }
        }
    }

    fn unlink(&mut self, slot: u32, topic: u32) -> Option<TopicLink> {
        let own = self.links.get_mut(slot as usize)?;
        if own.topic == topic {
            return Some(std::mem::replace(own, UNLINKED));
        }
        if own.topic != MANY {
            return None;
        }
        let list = &mut self.lists[own.place as usize];
        let at = list.iter().position(|link| link.topic == topic)?;
        let gone = list.swap_remove(at);
        if let [only] = list[..] {
            self.free_lists.push(own.place);
            *list = Vec::new();
            *own = only;
        }
        Some(gone)
    }

    fn relink(&mut self, slot: u32, topic: u32, place: u32) {
        let own = &mut self.links[slot as usize];
        let link = match own.topic {
            MANY => self.lists[own.place as usize].iter_mut().find(|link| link.topic == topic),
            _ => Some(own),
        };
        if let Some(link) = link {
            link.place = place;
        }
    }
}

/// Move a fan-out's progress up; `before` counts the live readers before each place.
fn move_up(progress: &mut Progress, before: &[u32]) {
    let at = |place: u32| before[place as usize];
    let reached = progress.start + progress.done;
    let wrapped = reached.saturating_sub(progress.end);
    let done = at(reached.min(progress.end)) - at(progress.start) + at(wrapped);
    *progress = Progress {
        number: progress.number,
        start: at(progress.start),
        done,
        end: at(progress.end),
    };
}
