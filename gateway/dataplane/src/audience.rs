//! Who is subscribed to what on one I/O thread, and how far each fan-out has come. Pure.
//!
//! Both directions are dense: a topic has its readers' slots (4 bytes each), a slot has its
//! topic and its place among that topic's readers (8 bytes). Nothing more lies in memory for a
//! reader of one topic, and leaving needs no search through a topic's 100,000.
//!
//! A big fan-out is cut into chunks, and readers come and go in between. So a [`Cursor`] is open
//! while it lasts: those who come are put behind its end, those who go leave a hole.
//! Nobody moves, so nobody is served twice or passed over. Holes are filled when the last cursor
//! closes.
//!
//! The decision to question: a reader of several topics keeps them in a list that is searched.
//! It is short (a setting bounds it), and a map would cost every reader more than the search.

use std::collections::HashMap;
use std::sync::Arc;

/// No reader: somebody left while a fan-out was under way.
const HOLE: u32 = u32::MAX;
/// In a link: no subscription.
const NO_TOPIC: u32 = u32::MAX;
/// In a link: more than one; the place says which list.
const MANY: u32 = u32::MAX - 1;
/// So many holes are never worth closing before the fan-out ends.
const FEW_HOLES: usize = 1_024;
/// 2³² by the golden ratio: starts are spread evenly whatever their number.
const STRIDE: u32 = 0x9E37_79B9;

/// One reader's subscription to a topic.
#[derive(Debug, Clone, Copy)]
struct Link {
    topic: u32,
    /// The index in the topic's slots.
    place: u32,
}

const UNLINKED: Link = Link { topic: NO_TOPIC, place: 0 };

/// One fan-out under way. Read it to its end with [`Audience::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct Cursor {
    topic: u32,
    number: u32,
}

impl Cursor {
    /// The topic's number. It is the same for all cursors of one topic that are open.
    #[must_use]
    pub fn topic(&self) -> u32 {
        self.topic
    }
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

#[derive(Debug)]
struct Readers {
    name: Arc<str>,
    slots: Vec<u32>,
    holes: Vec<u32>,
    open: Vec<Progress>,
    /// Where the next fan-out starts, as a fraction of the readers.
    rotation: u32,
}

/// The subscriptions of one I/O thread.
#[derive(Debug, Default)]
pub struct Audience {
    numbers: HashMap<Arc<str>, u32>,
    topics: Vec<Option<Readers>>,
    free_topics: Vec<u32>,
    links: Vec<Link>,
    lists: Vec<Vec<Link>>,
    free_lists: Vec<u32>,
    cursors: u32,
}

impl Audience {
    /// From now on `slot` gets `topic`. It must not have it already.
    pub fn subscribe(&mut self, slot: u32, topic: &Arc<str>) {
        let number = self.number_of(topic);
        let Some(readers) = &mut self.topics[number as usize] else {
            return;
        };
        let place = readers.slots.len() as u32;
        readers.slots.push(slot);
        self.link(slot, Link { topic: number, place });
    }

    /// Take a subscription back; false if there is none.
    pub fn unsubscribe(&mut self, slot: u32, topic: &str) -> bool {
        let Some(&number) = self.numbers.get(topic) else {
            return false;
        };
        let Some(link) = self.unlink(slot, number) else {
            return false;
        };
        self.vacate(link);
        true
    }

    /// Take one of `slot`'s subscriptions back, and say which; none if there are no more.
    pub fn leave_one(&mut self, slot: u32) -> Option<Arc<str>> {
        let topic = self.links_of(slot).last()?.topic;
        let name = self.topics[topic as usize].as_ref()?.name.clone();
        self.unsubscribe(slot, &name);
        Some(name)
    }

    /// Whether `slot` has `topic`.
    #[must_use]
    pub fn has(&self, slot: u32, topic: &str) -> bool {
        let number = self.numbers.get(topic);
        number.is_some_and(|number| self.links_of(slot).iter().any(|link| link.topic == *number))
    }

    /// How many subscriptions `slot` has.
    #[must_use]
    pub fn count(&self, slot: u32) -> usize {
        self.links_of(slot).len()
    }

    /// The topics of `slot`.
    pub fn subscriptions(&self, slot: u32) -> impl Iterator<Item = &Arc<str>> {
        let readers = |link: &Link| self.topics[link.topic as usize].as_ref();
        self.links_of(slot).iter().filter_map(readers).map(|readers| &readers.name)
    }

    /// How many readers `topic` has.
    #[must_use]
    pub fn readers(&self, topic: &str) -> usize {
        let readers = self.numbers.get(topic).and_then(|&one| self.topics[one as usize].as_ref());
        readers.map_or(0, |readers| readers.slots.len() - readers.holes.len())
    }

    /// Begin a fan-out to those who are subscribed to `topic` now; none if nobody is.
    pub fn open(&mut self, topic: &str) -> Option<Cursor> {
        let number = *self.numbers.get(topic)?;
        let readers = self.topics[number as usize].as_mut()?;
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

    /// Append the next readers to `slots`, at most `most`; false if that was all.
    ///
    /// After false the cursor is closed. Fan-outs of one topic must be served one after the
    /// other, in the order in which they were opened. A reader may leave while it is served.
    pub fn read(&mut self, cursor: &Cursor, most: usize, slots: &mut Vec<u32>) -> bool {
        let Some(readers) = self.topics.get_mut(cursor.topic as usize).and_then(Option::as_mut)
        else {
            return false;
        };
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

    /// Let whoever reads `first` serve `other` too, if they have the same readers and neither was
    /// read yet. Then `other` is closed; else false.
    pub fn join(&mut self, first: &Cursor, other: &Cursor) -> bool {
        let Some(readers) = self.topics.get_mut(first.topic as usize).and_then(Option::as_mut)
        else {
            return false;
        };
        let unread = |cursor: &Cursor| {
            let found = readers.open.iter().position(|one| one.number == cursor.number)?;
            (readers.open[found].done == 0).then_some((found, readers.open[found].end))
        };
        match (unread(first), unread(other)) {
            (Some((_, end)), Some((at, other_end)))
                if first.topic == other.topic && end == other_end =>
            {
                readers.open.remove(at);
                true
            }
            _ => false,
        }
    }

    fn number_of(&mut self, topic: &Arc<str>) -> u32 {
        if let Some(&number) = self.numbers.get(topic) {
            return number;
        }
        let number = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(None);
            self.topics.len() as u32 - 1
        });
        self.topics[number as usize] = Some(Readers {
            name: topic.clone(),
            slots: Vec::new(),
            holes: Vec::new(),
            open: Vec::new(),
            rotation: 0,
        });
        self.numbers.insert(topic.clone(), number);
        number
    }

    /// Take a reader out of its topic.
    fn vacate(&mut self, link: Link) {
        let Some(readers) = &mut self.topics[link.topic as usize] else {
            return;
        };
        readers.slots[link.place as usize] = HOLE;
        readers.holes.push(link.place);
        let (holes, live) = (readers.holes.len(), readers.slots.len() - readers.holes.len());
        if readers.open.is_empty() {
            self.fill_holes(link.topic);
        } else if holes > live + FEW_HOLES {
            self.close_up(link.topic);
        }
    }

    /// Put the last readers into the holes; forget the topic if there are none.
    /// No cursor may be open.
    fn fill_holes(&mut self, topic: u32) {
        let Some(readers) = &mut self.topics[topic as usize] else {
            return;
        };
        let mut holes = std::mem::take(&mut readers.holes);
        // From the end, so that what is moved is never a hole.
        holes.sort_unstable_by(|one, other| other.cmp(one));
        for hole in holes {
            let Some(readers) = &mut self.topics[topic as usize] else {
                return;
            };
            readers.slots.swap_remove(hole as usize);
            if let Some(&moved) = readers.slots.get(hole as usize) {
                self.relink(moved, topic, hole);
            }
        }
        self.give_back(topic);
    }

    /// Forget a topic without readers, or the room that it doesn't need any more.
    fn give_back(&mut self, topic: u32) {
        let Some(readers) = &mut self.topics[topic as usize] else {
            return;
        };
        if !readers.slots.is_empty() {
            if readers.slots.capacity() > 64 && readers.slots.len() * 4 < readers.slots.capacity() {
                readers.slots.shrink_to(readers.slots.len() * 2);
            }
            return;
        }
        self.numbers.remove(&readers.name);
        self.topics[topic as usize] = None;
        self.free_topics.push(topic);
    }

    /// Close the holes while cursors are open: everybody moves up, the cursors too.
    fn close_up(&mut self, topic: u32) {
        let Some(mut readers) = self.topics[topic as usize].take() else {
            return;
        };
        // How many live readers there are before each place.
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
        self.topics[topic as usize] = Some(readers);
    }

    fn links_of(&self, slot: u32) -> &[Link] {
        match self.links.get(slot as usize) {
            None | Some(Link { topic: NO_TOPIC, .. }) => &[],
            Some(Link { topic: MANY, place }) => &self.lists[*place as usize],
            Some(link) => std::slice::from_ref(link),
        }
    }

    fn link(&mut self, slot: u32, link: Link) {
        if self.links.len() <= slot as usize {
            self.links.resize(slot as usize + 1, UNLINKED);
        }
        match self.links[slot as usize] {
            Link { topic: NO_TOPIC, .. } => self.links[slot as usize] = link,
            Link { topic: MANY, place } => self.lists[place as usize].push(link),
            only => {
                let list = self.free_lists.pop().unwrap_or_else(|| {
                    self.lists.push(Vec::new());
                    self.lists.len() as u32 - 1
                });
                self.lists[list as usize].extend([only, link]);
                self.links[slot as usize] = Link { topic: MANY, place: list };
            }
        }
    }

    fn unlink(&mut self, slot: u32, topic: u32) -> Option<Link> {
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

/// Where a fan-out is when the holes are closed; `before` counts the readers before each place.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(audience: &mut Audience, topic: &str) -> Vec<u32> {
        let mut slots = Vec::new();
        if let Some(cursor) = audience.open(topic) {
            while audience.read(&cursor, 2, &mut slots) {}
        }
        slots.sort_unstable();
        slots
    }

    #[test]
    fn a_reader_of_one_topic_costs_twelve_bytes() {
        assert_eq!(size_of::<Link>() + size_of::<u32>(), 12);
    }

    #[test]
    fn everyone_who_is_subscribed_is_served_once() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        for slot in 0..5 {
            audience.subscribe(slot, &topic);
        }
        assert!(audience.unsubscribe(1, "news.x"));
        assert!(!audience.unsubscribe(1, "news.x"));
        assert!(!audience.unsubscribe(1, "news.y"));
        assert_eq!(all(&mut audience, "news.x"), [0, 2, 3, 4]);
        assert_eq!(audience.readers("news.x"), 4);
    }

    #[test]
    fn fan_outs_start_at_different_readers() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        for slot in 0..8 {
            audience.subscribe(slot, &topic);
        }
        let mut firsts = Vec::new();
        for _ in 0..8 {
            let cursor = audience.open("news.x").expect("readers");
            let mut slots = Vec::new();
            while audience.read(&cursor, 1, &mut slots) {}
            firsts.push(slots[0]);
        }
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() > 5, "{firsts:?}");
    }

    #[test]
    fn whoever_comes_during_a_fan_out_is_not_in_it_and_whoever_goes_is_not_any_more() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        for slot in 0..4 {
            audience.subscribe(slot, &topic);
        }
        let cursor = audience.open("news.x").expect("readers");
        let mut slots = Vec::new();
        assert!(audience.read(&cursor, 1, &mut slots));
        let left = (0..4).find(|slot| *slot != slots[0]).expect("three more");
        audience.unsubscribe(left, "news.x");
        audience.subscribe(9, &topic);
        audience.subscribe(left, &topic);
        while audience.read(&cursor, 1, &mut slots) {}
        slots.sort_unstable();
        let expected: Vec<u32> = (0..4).filter(|slot| *slot != left).collect();
        assert_eq!(slots, expected);
    }

    #[test]
    fn fan_outs_to_the_same_readers_become_one() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        audience.subscribe(0, &topic);
        let first = audience.open("news.x").expect("a reader");
        let second = audience.open("news.x").expect("a reader");
        audience.subscribe(1, &topic);
        let third = audience.open("news.x").expect("readers");
        assert!(audience.join(&first, &second));
        assert!(!audience.join(&first, &third), "it has another reader");
        let mut slots = Vec::new();
        while audience.read(&first, 9, &mut slots) {}
        assert_eq!(slots, [0]);
        assert_eq!(audience.topics[0].as_ref().map(|readers| readers.open.len()), Some(1));
        while audience.read(&third, 9, &mut slots) {}
        slots.sort_unstable();
        assert_eq!(slots, [0, 0, 1]);
    }

    #[test]
    fn nothing_is_left_of_a_topic_without_readers() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        audience.subscribe(0, &topic);
        audience.subscribe(0, &Arc::from("news.y"));
        assert_eq!(audience.leave_one(0).as_deref(), Some("news.y"));
        assert_eq!(audience.leave_one(0).as_deref(), Some("news.x"));
        assert_eq!(audience.leave_one(0), None);
        assert!(audience.numbers.is_empty());
        assert!(audience.open("news.x").is_none());
        assert!(audience.lists.iter().all(Vec::is_empty));
    }

    #[test]
    fn many_who_leave_during_a_fan_out_leave_no_endless_holes() {
        let (mut audience, topic) = (Audience::default(), Arc::from("news.x"));
        audience.subscribe(0, &topic);
        audience.subscribe(1, &topic);
        let cursor = audience.open("news.x").expect("readers");
        let mut slots = Vec::new();
        assert!(audience.read(&cursor, 1, &mut slots));
        for slot in 2..10_000 {
            audience.subscribe(slot, &topic);
            audience.unsubscribe(slot, "news.x");
        }
        let readers = audience.topics[0].as_ref().expect("the topic");
        assert!(readers.slots.len() <= 2 * FEW_HOLES, "{}", readers.slots.len());
        while audience.read(&cursor, 1, &mut slots) {}
        slots.sort_unstable();
        assert_eq!(slots, [0, 1]);
    }

    proptest! {
        /// Fan-outs against a list of who has to be served yet.
        #[test]
        fn a_fan_out_serves_those_of_its_beginning_who_stay(
            steps in prop::collection::vec((0_u8..6, 0_u32..12, 0_usize..3), 1..300),
        ) {
            let names: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
            let mut audience = Audience::default();
            let mut model: Vec<(u32, usize)> = Vec::new();
            // Topic, cursor, who has to be served.
            let mut jobs: Vec<(usize, Cursor, Vec<u32>)> = Vec::new();
            for (step, slot, topic) in steps {
                let name = &names[topic];
                match step {
                    0 | 1 if !model.contains(&(slot, topic)) => {
                        audience.subscribe(slot, name);
                        model.push((slot, topic));
                    }
                    2 => {
                        let had = model.contains(&(slot, topic));
                        prop_assert_eq!(audience.unsubscribe(slot, name), had);
                        model.retain(|one| *one != (slot, topic));
                        jobs.iter_mut().filter(|job| job.0 == topic)
                            .for_each(|job| job.2.retain(|one| *one != slot));
                    }
                    3 => {
                        while audience.leave_one(slot).is_some() {}
                        model.retain(|one| one.0 != slot);
                        jobs.iter_mut().for_each(|job| job.2.retain(|one| *one != slot));
                    }
                    4 => {
                        let due: Vec<u32> =
                            model.iter().filter(|one| one.1 == topic).map(|one| one.0).collect();
                        let cursor = audience.open(name);
                        prop_assert_eq!(cursor.is_some(), !due.is_empty());
                        if let Some(cursor) = cursor {
                            jobs.push((topic, cursor, due));
                        }
                    }
                    5 => {
                        if let Some(at) = jobs.iter().position(|job| job.0 == topic) {
                            if slot > 8 {
                                if let Some(number) = audience.numbers.get(&**name).copied() {
                                    audience.close_up(number);
                                }
                            }
                            let mut slots = Vec::new();
                            let more = audience.read(&jobs[at].1, 3, &mut slots);
                            for one in slots {
                                let due = jobs[at].2.iter().position(|other| *other == one);
                                prop_assert!(due.is_some(), "{} is served too much", one);
                                jobs[at].2.swap_remove(due.expect("checked"));
                            }
                            if !more {
                                prop_assert!(jobs[at].2.is_empty());
                                jobs.remove(at);
                            }
                        }
                    }
                    _ => {}
                }
                for slot in 0..12 {
                    let mut expected: Vec<&str> =
                        model.iter().filter(|one| one.0 == slot).map(|one| &*names[one.1]).collect();
                    let mut found: Vec<&str> =
                        audience.subscriptions(slot).map(|name| &**name).collect();
                    expected.sort_unstable();
                    found.sort_unstable();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
