//! The messages that one reader received, to check for exactly once. `loadtest/records.py` does the same for locust's
//! own readers, and makes the census of both. Times are nanoseconds of the machine's clock.
//!
//! A reader takes some hundred bytes: it keeps ranges of numbers, two sets for each publisher, and no message. Records
//! of readers that had the same in the same tenth of a second are one entry, so that 20,000 make some hundred.

use super::numbers::{Added, Numbers};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A message sent this shortly before a reader left isn't owed to it: a reader needs this long to catch up.
const GRACE_NS: u64 = 5_000_000_000;
/// A reader without a connection for this long at the end has failed.
const OUTSIDE_NS: u64 = 15_000_000_000;
/// A reader is owed the messages from the first whole tenth of a second up to the last one.
const GRAIN_NS: u64 = 100_000_000;

/// The result of receiving a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Got {
    /// Received for the first time.
    New,
    /// Received again after a reconnect, under the same identity: the protocol allows it, and readers drop the repeat.
    Repeat,
    /// Received twice within a subscription, or under another identity.
    Doubled,
    /// Not recorded: the reader has too many holes. The message will count as lost.
    Unnoted,
}

struct Had {
    publisher: u16,
    seen: Numbers,
    /// The numbers of the current subscription.
    here: Numbers,
}

/// The messages of one topic that one reader had.
pub struct ReaderRecord {
    since_ns: u64,
    away_ns: u64,
    /// The time of the last subscription; 0 while the reader is away.
    back_ns: u64,
    had: Vec<Had>,
    doubled: u32,
    repeats: u32,
    gaps: u32,
}

impl ReaderRecord {
    /// A reader that is about to connect.
    pub fn new(now: u64) -> Self {
        Self {
            since_ns: 0,
            away_ns: now,
            back_ns: 0,
            had: Vec::new(),
            doubled: 0,
            repeats: 0,
            gaps: 0,
        }
    }

    /// True if the reader was ever subscribed.
    pub fn was_in(&self) -> bool {
        self.since_ns > 0
    }

    /// The time of the first subscription; 0 if there was none.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Notes that the connection has ended.
    pub fn away(&mut self, now: u64) {
        if self.caught_up(now) {
            self.away_ns = now;
        }
        self.back_ns = 0;
    }

    /// Notes a subscription. Returns true for a gap: not all that was missed is certainly there (`recovered`).
    pub fn subscribed(&mut self, now: u64, recovered: bool) -> bool {
        let gap = self.was_in() && !recovered;
        if !self.was_in() {
            self.since_ns = now;
        }
        self.back_ns = now;
        self.gaps += u32::from(gap);
        for had in &mut self.had {
            had.here = Numbers::default();
        }
        gap
    }

    /// Notes message `number` of `publisher`; `agrees`: under the same identity as before, if known.
    pub fn got(&mut self, publisher: u16, number: u32, agrees: bool) -> Got {
        let at = match self.had.binary_search_by_key(&publisher, |had| had.publisher) {
            Ok(at) => at,
            Err(at) => {
                let (seen, here) = Default::default();
                self.had.reserve_exact(1);
                self.had.insert(at, Had { publisher, seen, here });
                at
            }
        };
        let had = &mut self.had[at];
        let here = had.here.add(number);
        match had.seen.add(number) {
            Added::New => Got::New,
            Added::Full => Got::Unnoted,
            Added::Known if here != Added::Known && agrees => {
                self.repeats += 1;
                Got::Repeat
            }
            Added::Known => {
                self.doubled += 1;
                Got::Doubled
            }
        }
    }

    /// The count of numbers missing below the newest of their publisher: these are on the way, or lost.
    pub fn holes(&self) -> u64 {
        self.had.iter().map(|had| had.seen.holes()).sum()
    }

    fn caught_up(&self, now: u64) -> bool {
        self.back_ns > 0 && now >= self.back_ns + GRACE_NS
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    topic: u16,
    left: bool,
    since_ns: u64,
    until_ns: u64,
    had: Vec<(u16, Vec<(u32, u32)>)>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    readers: u32,
    doubled: u32,
    repeats: u32,
    gaps: u32,
    outside: u32,
}

/// Closed records, those that are alike as one entry.
#[derive(Clone, Default)]
pub struct Entries(BTreeMap<Group, Sums>);

impl Entries {
    /// Closes the record of a reader of topic number `topic`, which has `left` or stays until the end.
    pub fn add(&mut self, record: &ReaderRecord, topic: u16, now: u64, left: bool) {
        let until = if record.caught_up(now) { now } else { record.away_ns };
        let (since_ns, until_ns) = match record.since_ns {
            0 => (0, 0),
            since => (since.div_ceil(GRAIN_NS) * GRAIN_NS, until / GRAIN_NS * GRAIN_NS),
        };
        let had =
            record.had.iter().map(|had| (had.publisher, had.seen.ranges().to_vec())).collect();
        let outside =
            record.back_ns == 0 && !left && now.saturating_sub(record.away_ns) > OUTSIDE_NS;
        let sums = self.0.entry(Group { topic, left, since_ns, until_ns, had }).or_default();
        sums.readers += 1;
        sums.doubled += record.doubled;
        sums.repeats += record.repeats;
        sums.gaps += record.gaps;
        sums.outside += u32::from(outside);
    }

    /// All entries as JSON, in the form of the census.
    pub fn json(&self, topics: &[String], publishers: &[String]) -> String {
        let mut text = String::from("{\"entries\":[");
        for (n, (group, sums)) in self.0.iter().enumerate() {
            let topic = &topics[usize::from(group.topic)];
            let comma = if n > 0 { "," } else { "" };
            let since = match group.since_ns {
                0 => String::new(),
                since => format!("\"{topic}\":{since}"),
            };
            let had: Vec<String> = group
                .had
                .iter()
                .map(|(publisher, ranges)| {
                    let ranges: Vec<String> =
                        ranges.iter().map(|(first, last)| format!("[{first},{last}]")).collect();
                    let publisher = &publishers[usize::from(*publisher)];
                    format!("[\"{topic}\",\"{publisher}\",[{}]]", ranges.join(","))
                })
                .collect();
            let Sums { readers, doubled, repeats, gaps, outside } = sums;
            write!(
                text,
                "{comma}{{\"readers\":{readers},\"since\":{{{since}}},\"until\":{},\"left\":{},\"had\":[{}],\
                 \"doubled\":{doubled},\"repeats\":{repeats},\"gaps\":{gaps},\"outside\":{outside}}}",
                group.until_ns,
                group.left,
                had.join(","),
            )
            .expect("a String takes all");
        }
        text + "]}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A reader subscribed at second 5 that has these messages.
    fn record(numbers: &[u32]) -> ReaderRecord {
        let mut record = ReaderRecord::new(S);
        assert!(!record.subscribed(5 * S, false));
        for &number in numbers {
            assert_eq!(record.got(0, number, true), Got::New);
        }
        record
    }

    fn json(records: &[&ReaderRecord], now: u64, left: bool) -> String {
        let mut entries = Entries::default();
        for record in records {
            entries.add(record, 0, now, left);
        }
        entries.json(&["news".into()], &["p".into(), "q".into()])
    }

    #[test]
    fn what_comes_twice_within_a_subscription_is_doubled() {
        let mut record = record(&[0, 1, 2]);
        assert_eq!(record.got(0, 1, true), Got::Doubled);
        assert_eq!(record.got(1, 1, true), Got::New);
    }

    #[test]
    fn what_comes_again_after_a_resume_is_a_repeat_once_and_under_its_identity_only() {
        let mut record = record(&[0, 1, 2]);
        assert!(!record.subscribed(9 * S, true));
        assert_eq!(record.got(0, 2, true), Got::Repeat);
        assert_eq!(record.got(0, 2, true), Got::Doubled);
        assert_eq!(record.got(0, 1, false), Got::Doubled);
        assert_eq!(record.got(0, 3, true), Got::New);
        assert_eq!((record.repeats, record.doubled), (1, 2));
    }

    #[test]
    fn a_resume_that_may_have_missed_something_is_a_gap_and_the_first_subscription_is_not() {
        let mut record = ReaderRecord::new(S);
        assert!(!record.subscribed(5 * S, false));
        assert!(record.subscribed(6 * S, false));
        assert!(!record.subscribed(7 * S, true));
        assert_eq!(record.gaps, 1);
    }

    #[test]
    fn what_is_missing_below_the_newest_is_a_hole() {
        let mut record = record(&[0, 1, 4]);
        assert_eq!(record.holes(), 2);
        assert_eq!(record.got(0, 2, true), Got::New);
        assert_eq!(record.got(1, 7, true), Got::New);
        assert_eq!(record.holes(), 1);
    }

    #[test]
    fn readers_who_had_the_same_are_one_entry() {
        let (one, mut other) = (record(&[0, 1]), record(&[0]));
        other.got(0, 1, true);
        other.got(0, 1, true);
        assert_eq!(
            json(&[&one, &other], 60 * S, false),
            "{\"entries\":[{\"readers\":2,\"since\":{\"news\":5000000000},\"until\":60000000000,\"left\":false,\
             \"had\":[[\"news\",\"p\",[[0,1]]]],\"doubled\":1,\"repeats\":0,\"gaps\":0,\"outside\":0}]}"
        );
        let more = record(&[0, 2]);
        assert!(json(&[&one, &more], 60 * S, true).contains("[[0,0],[2,2]]"));
    }

    #[test]
    fn a_reader_is_owed_whole_tenths_of_a_second() {
        let mut record = ReaderRecord::new(S);
        record.subscribed(5 * S + 1, false);
        let text = json(&[&record], 60 * S + 99_999_999, true);
        assert!(text.contains("{\"news\":5100000000},\"until\":60000000000,"), "{text}");
    }

    #[test]
    fn who_leaves_while_away_or_just_back_is_owed_what_came_before() {
        let mut record = record(&[]);
        record.away(20 * S);
        assert!(json(&[&record], 30 * S, true).contains("\"until\":20000000000,"));
        record.subscribed(29 * S, true);
        assert!(json(&[&record], 30 * S, true).contains("\"until\":20000000000,"));
        // Away again before it has caught up: the first time counts.
        record.away(30 * S);
        record.subscribed(31 * S, true);
        assert!(json(&[&record], 32 * S, true).contains("\"until\":20000000000,"));
        assert!(json(&[&record], 36 * S, true).contains("\"until\":36000000000,"));
    }

    #[test]
    fn who_has_no_connection_for_long_at_the_end_is_outside() {
        let (mut gone, never) = (record(&[]), ReaderRecord::new(30 * S));
        gone.away(30 * S);
        assert!(json(&[&gone], 45 * S, false).contains("\"outside\":0"));
        assert!(json(&[&gone], 46 * S, false).contains("\"outside\":1"));
        assert!(json(&[&gone], 46 * S, true).contains("\"outside\":0"));
        let text = json(&[&never], 46 * S, false);
        assert!(text.contains("\"since\":{},\"until\":0") && text.contains("\"outside\":1"));
    }

    #[test]
    fn a_number_that_is_not_noted_is_reported() {
        let mut record = record(&(0..64).map(|n| 2 * n).collect::<Vec<_>>());
        assert_eq!(record.got(0, 1000, true), Got::Unnoted);
    }
}
