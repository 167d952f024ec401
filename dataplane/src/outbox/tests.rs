use super::*;
use crate::control::TopicMessage;
use crate::publication::tests::message;
use proptest::prelude::*;

const LIMITS: Limits = Limits { hard_bytes: 2_000, soft_bytes: 1_000, soft_ms: 100 };

fn frame(text: &str) -> Frame {
    Arc::from(text.as_bytes())
}

fn of(slow: Slow, key: &'static str, version: i64) -> Arc<Publication> {
    Arc::new(Publication::new(
        "news.x".into(),
        slow,
        &TopicMessage { key, version, ..message(1, 1) },
    ))
}

fn waiting(outbox: &Outbox) -> String {
    let mut slices = [IoSlice::new(&[]); 64];
    let count = outbox.slices(&mut slices);
    slices[..count].iter().map(|one| String::from_utf8_lossy(one)).collect()
}

#[test]
fn frames_leave_in_the_order_in_which_they_came() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    for text in ["one", "two", "three"] {
        assert!(outbox.push_firm(frame(text), 0, &mut account));
    }
    assert_eq!(outbox.pending_bytes(), 11 + 3 * ENTRY_BYTES);
    outbox.advance(4, &mut account);
    assert_eq!(waiting(&outbox), "wothree");
    outbox.advance(7, &mut account);
    assert!(outbox.is_empty());
    assert_eq!(outbox.pending_bytes(), 0);
}

#[test]
fn only_so_many_slices_are_filled_as_there_are() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    for text in ["one", "two", "three"] {
        assert!(outbox.push_firm(frame(text), 0, &mut account));
    }
    let mut slices = [IoSlice::new(&[]); 2];
    assert_eq!(outbox.slices(&mut slices), 2);
    assert_eq!(&*slices[1], b"two");
}

#[test]
fn a_newer_version_takes_the_waiting_one_away_and_goes_to_the_end() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    for (text, key, version) in [("a1", "a", 1), ("b1", "b", 1), ("a2", "a", 2), ("a0", "a", 0)] {
        assert!(outbox.push(frame(text), &of(Slow::Conflate, key, version), 0, &mut account));
    }
    assert_eq!(waiting(&outbox), "b1a2");
    assert_eq!(outbox.take_dropped(), Dropped { conflate: 2, drop_oldest: 0 });
    assert_eq!(outbox.take_dropped(), Dropped::default());
}

#[test]
fn a_frame_that_was_started_is_never_taken_away() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    assert!(outbox.push(frame("a1"), &of(Slow::Conflate, "a", 1), 0, &mut account));
    outbox.advance(1, &mut account);
    assert!(outbox.push(frame("a2"), &of(Slow::Conflate, "a", 2), 0, &mut account));
    assert!(outbox.push(frame("a3"), &of(Slow::Conflate, "a", 3), 0, &mut account));
    assert_eq!(waiting(&outbox), "1a3");
    assert_eq!(outbox.clear(&mut account), 1);
    assert_eq!(waiting(&outbox), "1");
}

#[test]
fn nothing_older_follows_a_version_that_is_being_written() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    let big = frame(&"x".repeat(1_400));
    assert!(outbox.push(frame("a2"), &of(Slow::Conflate, "a", 2), 0, &mut account));
    outbox.advance(1, &mut account);
    assert!(outbox.push(frame("a3"), &of(Slow::Conflate, "a", 3), 0, &mut account));
    // There is no room for a3 any more.
    assert!(outbox.push(big, &of(Slow::DropOldest, "", -1), 0, &mut account));
    assert_eq!(outbox.len(), 2);
    assert!(outbox.push(frame("a1"), &of(Slow::Conflate, "a", 1), 0, &mut account));
    assert_eq!(outbox.len(), 2);
}

#[test]
fn the_rest_of_a_frame_goes_first() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    outbox.push_partly_written(frame("started"), 5, &mut account);
    assert!(outbox.push_firm(frame("!"), 0, &mut account));
    assert_eq!(waiting(&outbox), "ed!");
}

#[test]
fn at_the_hard_limit_the_oldest_that_may_be_dropped_go() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    assert!(outbox.push_firm(frame("firm"), 0, &mut account));
    for text in ["1", "2", "3", "4", "5", "6", "7", "8"] {
        assert!(outbox.push(frame(text), &of(Slow::DropOldest, "", -1), 0, &mut account));
    }
    assert_eq!(waiting(&outbox), "firm345678");
    assert_eq!(outbox.take_dropped().drop_oldest, 2);
}

#[test]
fn a_reader_is_too_slow_when_what_is_firm_has_no_room() {
    let (mut outbox, mut account) =
        (Outbox::new(Limits { soft_bytes: 2_000, ..LIMITS }), Account::default());
    let big = frame(&"x".repeat(1_000));
    assert!(outbox.push_firm(big.clone(), 0, &mut account));
    assert!(outbox.push(frame("1"), &of(Slow::DropOldest, "", -1), 0, &mut account));
    assert!(!outbox.push(big, &of(Slow::Disconnect, "", -1), 0, &mut account));
    let mut full = Outbox::new(Limits { soft_bytes: 2_000, ..LIMITS });
    assert!(full.push_firm(frame(&"x".repeat(1_744)), 0, &mut account));
    assert!(full.push(frame("1"), &of(Slow::DropOldest, "", -1), 0, &mut account));
    assert_eq!(full.take_dropped().drop_oldest, 1);
    assert_eq!(full.clear(&mut account), 1);
}

#[test]
fn a_burst_above_the_soft_limit_is_forgiven() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    let big = frame(&"x".repeat(500));
    assert!(outbox.push_firm(big, 0, &mut account));
    assert!(outbox.push_firm(frame("1"), 100, &mut account));
    assert!(outbox.push_firm(frame("2"), 200, &mut account));
    outbox.advance(500, &mut account);
    assert!(outbox.push_firm(frame("3"), 900, &mut account));
}

#[test]
fn staying_above_the_soft_limit_is_too_slow() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    assert!(outbox.push_firm(frame(&"x".repeat(500)), 0, &mut account));
    assert!(outbox.push_firm(frame("1"), 50, &mut account));
    assert!(outbox.push_firm(frame("2"), 150, &mut account));
    assert!(!outbox.push_firm(frame("3"), 151, &mut account));
}

#[test]
fn a_story_that_never_stops_changing_takes_no_more_room() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    outbox.push_partly_written(frame("started"), 1, &mut account);
    for version in 0..10_000 {
        assert!(outbox.push(frame("a"), &of(Slow::Conflate, "a", version), 0, &mut account));
    }
    assert!(outbox.entries.len() <= 2 * FEW_HOLES, "{}", outbox.entries.len());
    assert_eq!(waiting(&outbox), "tarteda");
}

#[test]
fn a_frame_that_many_wait_for_counts_once_and_each_place_too() {
    let mut account = Account::default();
    let shared = frame(&"x".repeat(1_000));
    let mut outboxes = [Outbox::new(LIMITS), Outbox::new(LIMITS), Outbox::new(LIMITS)];
    for outbox in &mut outboxes {
        assert!(outbox.push(shared.clone(), &of(Slow::DropOldest, "", -1), 0, &mut account));
    }
    assert_eq!(account.bytes(), 1_000 + 3 * QUEUE_ENTRY_BYTES);
    assert!(outboxes[0].push_firm(frame("own"), 0, &mut account));
    assert_eq!(account.bytes(), 1_003 + 4 * QUEUE_ENTRY_BYTES);
    outboxes[0].advance(1_000, &mut account);
    assert_eq!(account.bytes(), 1_003 + 3 * QUEUE_ENTRY_BYTES);
    assert_eq!(outboxes[1].clear(&mut account), 1);
    outboxes[2].remove_from_account(&mut account);
    assert_eq!(account.bytes(), 3 + QUEUE_ENTRY_BYTES);
}

#[test]
fn what_is_partly_written_goes_on_counting_when_the_rest_is_cleared() {
    let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
    outbox.push_partly_written(frame("started"), 3, &mut account);
    assert!(outbox.push_firm(frame("more"), 0, &mut account));
    assert_eq!(outbox.clear(&mut account), 1);
    assert_eq!(account.bytes(), 7 + QUEUE_ENTRY_BYTES);
    outbox.advance(4, &mut account);
    assert_eq!(account.bytes(), 0);
}

/// The rules of the module's docs, word for word, on a list.
#[derive(Default)]
struct Naive {
    entries: Vec<(String, Option<Arc<Publication>>)>,
    written: usize,
    since: Option<u64>,
    dropped: Dropped,
}

impl Naive {
    fn bytes(&self, firm_only: bool) -> usize {
        let counted = |one: &&(String, Option<_>)| !firm_only || one.1.is_none();
        self.entries.iter().filter(counted).map(|one| one.0.len() + ENTRY_BYTES).sum()
    }

    fn droppable(&self) -> impl Iterator<Item = usize> {
        let started = usize::from(self.written > 0);
        (started..self.entries.len()).filter(|at| self.entries[*at].1.is_some())
    }

    fn make_room(&mut self, cost: usize) -> bool {
        while self.bytes(false) + cost > LIMITS.hard_bytes as usize {
            let Some(at) = self.droppable().next() else {
                return false;
            };
            let gone = self.entries.remove(at).1.expect("droppable");
            self.count(gone.slow);
        }
        true
    }

    fn count(&mut self, slow: Slow) {
        match slow {
            Slow::Conflate => self.dropped.conflate += 1,
            _ => self.dropped.drop_oldest += 1,
        }
    }

    fn push_firm(&mut self, text: &str, now: u64) -> bool {
        let fits = self.make_room(text.len() + ENTRY_BYTES);
        self.entries.push((text.to_owned(), None));
        if self.bytes(true) <= LIMITS.soft_bytes as usize {
            self.since = None;
            return fits;
        }
        fits && now - *self.since.get_or_insert(now) <= u64::from(LIMITS.soft_ms)
    }

    fn push(&mut self, text: &str, publication: &Arc<Publication>, now: u64) -> bool {
        let slow = publication.slow;
        if slow == Slow::Disconnect {
            return self.push_firm(text, now);
        }
        if slow == Slow::Conflate && publication.key().is_some() {
            let same = |one: &Arc<Publication>| one.slow == slow && one.key() == publication.key();
            let found = self.entries.iter().rposition(|one| one.1.as_ref().is_some_and(same));
            if let Some(at) = found {
                let known = self.entries[at].1.as_ref().expect("found");
                if !publication.supersedes(known) {
                    self.count(slow);
                    return true;
                }
                if at > 0 || self.written == 0 {
                    self.count(slow);
                    self.entries.remove(at);
                }
            }
        }
        if self.make_room(text.len() + ENTRY_BYTES) {
            self.entries.push((text.to_owned(), Some(publication.clone())));
        } else {
            self.count(slow);
        }
        true
    }

    fn advance(&mut self, bytes: usize) {
        self.written += bytes;
        while self.entries.first().is_some_and(|one| self.written >= one.0.len()) {
            self.written -= self.entries.remove(0).0.len();
        }
        if self.bytes(true) <= LIMITS.soft_bytes as usize {
            self.since = None;
        }
    }

    fn clear(&mut self) {
        self.entries.truncate(usize::from(self.written > 0));
        self.since = None;
        if let Some(one) = self.entries.first_mut() {
            one.1 = None;
        }
    }

    fn waiting(&self) -> String {
        let all: String = self.entries.iter().map(|one| &*one.0).collect();
        all[self.written..].to_owned()
    }
}

proptest! {
    #[test]
    fn it_equals_a_list_with_the_same_rules(
        steps in prop::collection::vec((0_u8..7, 0_usize..3, -1_i64..6, 1_usize..400), 1..200),
    ) {
        let (mut outbox, mut account) = (Outbox::new(LIMITS), Account::default());
        let mut naive = Naive::default();
        let mut now = 0;
        for (number, (step, key, version, size)) in steps.into_iter().enumerate() {
            now += size as u64 / 4;
            let text = format!("{number:04}").repeat(size.div_ceil(4));
            let slow = [Slow::Conflate, Slow::DropOldest, Slow::Disconnect][step as usize % 3];
            let one = of(slow, ["a", "b", ""][key], version);
            match step {
                0..4 => prop_assert_eq!(
                    outbox.push(frame(&text), &one, now, &mut account),
                    naive.push(&text, &one, now)
                ),
                4 => prop_assert_eq!(
                    outbox.push_firm(frame(&text), now, &mut account),
                    naive.push_firm(&text, now)
                ),
                5 => {
                    let bytes = (size * 3).min(naive.waiting().len());
                    outbox.advance(bytes, &mut account);
                    naive.advance(bytes);
                }
                // A take-over must not change the outbox.
                6 if size > 300 => {
                    let all = outbox.waiting();
                    let all = all.map(|(frame, it)| (frame.clone(), it.cloned())).collect();
                    let (written, soft_since) = (outbox.written, outbox.soft_since);
                    outbox.remove_from_account(&mut account);
                    prop_assert_eq!(account.bytes(), 0);
                    let restored = Outbox::restore(LIMITS, all, written, soft_since, &mut account);
                    let restored = restored.expect("what was saved");
                    outbox = Outbox { dropped: outbox.dropped, ..restored };
                }
                _ if size < 20 => {
                    outbox.clear(&mut account);
                    naive.clear();
                }
                _ => {}
            }
            prop_assert_eq!(waiting(&outbox), naive.waiting());
            prop_assert_eq!(outbox.len(), naive.entries.len());
            prop_assert_eq!(outbox.pending_bytes(), naive.bytes(false));
            // No frame is shared here.
            let entries = outbox.len() * (ENTRY_BYTES - QUEUE_ENTRY_BYTES);
            prop_assert_eq!(account.bytes(), naive.bytes(false) - entries);
            prop_assert_eq!(outbox.dropped, naive.dropped);
        }
    }
}
