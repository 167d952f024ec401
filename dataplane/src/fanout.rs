//! Publications on their way to readers, in chunks. Pure; the audience knows the readers.
//!
//! A big fan-out is cut into chunks, and topics take turns, so that a big fan-out doesn't delay a
//! small one. A topic at its first turn is served before others, but two first turns never follow
//! each other while others wait: so each topic makes progress. Within a topic publications keep
//! their order. Publications that wait for the same readers are sent together, as one batch. This
//! is the only coalescing: when nothing waits, each publication is sent alone.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::audience::{Audience, Cursor};
use crate::publication::Publication;

/// Maximum number of publications in a batch, and maximum bytes.
const BATCH: usize = 32;
const BATCH_BYTES: usize = 64 * 1024;

/// The origin of a publication: the attachment, and the number in it.
pub type PublishNumber = (u32, u64);

#[derive(Debug)]
struct Job {
    order: u64,
    cursor: Cursor,
    publication: Arc<Publication>,
}

/// Publications of one topic that are being sent.
#[derive(Debug, Default)]
struct TopicQueue {
    jobs: VecDeque<Job>,
    /// Number of the first jobs that are sent together; 0 before they have begun.
    together: usize,
}

/// Some readers of a topic, and the publications to send to them now.
#[derive(Debug, Default)]
pub struct Chunk {
    /// At least one, in their order.
    pub publications: Vec<Arc<Publication>>,
    pub slots: Vec<u32>,
}

/// All fan-outs in progress on a thread.
#[derive(Debug, Default)]
pub struct Fanout {
    lines: HashMap<u32, TopicQueue>,
    /// Topics that have had no turn yet.
    fresh: VecDeque<u32>,
    /// Topics that have had a turn.
    turns: VecDeque<u32>,
    /// True if the last turn was a topic's first.
    was_first: bool,
    /// Publications from the oldest unfinished one on; true if finished.
    numbers: VecDeque<(PublishNumber, bool)>,
    first_order: u64,
    reached: Option<PublishNumber>,
}

impl Fanout {
    pub fn is_busy(&self) -> bool {
        !self.fresh.is_empty() || !self.turns.is_empty()
    }

    /// Begin to send a publication to the readers of this cursor.
    pub fn publish(
        &mut self,
        publication: &Arc<Publication>,
        cursor: Cursor,
        number: PublishNumber,
    ) {
        let order = self.begin(number);
        let topic = cursor.topic;
        let line = self.lines.entry(topic).or_default();
        if line.jobs.is_empty() {
            self.fresh.push_back(topic);
        }
        line.jobs.push_back(Job { order, cursor, publication: publication.clone() });
    }

    /// Record a publication that has no readers.
    pub fn skip(&mut self, number: PublishNumber) {
        let order = self.begin(number);
        self.finish(order);
    }

    /// Return the number up to which all are finished, if it has moved since the last call.
    pub fn take_reached(&mut self) -> Option<PublishNumber> {
        self.reached.take()
    }

    /// Fill `chunk` with the next sends for at most `budget` readers, or return false if there are
    /// none. The topic is then last in the queue. Send the chunk before the next command is carried
    /// out.
    pub fn next_chunk(
        &mut self,
        audience: &mut Audience,
        budget: usize,
        chunk: &mut Chunk,
    ) -> bool {
        chunk.publications.clear();
        chunk.slots.clear();
        let Some(topic) = self.next_topic() else {
            return false;
        };
        let line = self.lines.entry(topic).or_default();
        line.gather(audience);
        let batch = line.jobs.iter().take(line.together);
        chunk.publications.extend(batch.map(|job| job.publication.clone()));
        let more = line
            .jobs
            .front()
            .is_some_and(|job| audience.read(&job.cursor, budget.max(1), &mut chunk.slots));
        if more {
            self.turns.push_back(topic);
        } else {
            self.end_batch(topic);
        }
        true
    }

    fn next_topic(&mut self) -> Option<u32> {
        let waits = if self.was_first { self.turns.pop_front() } else { None };
        let first = if waits.is_none() { self.fresh.pop_front() } else { None };
        self.was_first = first.is_some();
        waits.or(first).or_else(|| self.turns.pop_front())
    }

    fn end_batch(&mut self, topic: u32) {
        let Some(line) = self.lines.get_mut(&topic) else {
            return;
        };
        let over: Vec<u64> = line.jobs.drain(..line.together).map(|job| job.order).collect();
        line.together = 0;
        if line.jobs.is_empty() {
            self.lines.remove(&topic);
        } else {
            self.turns.push_back(topic);
        }
        for order in over {
            self.finish(order);
        }
    }

    fn begin(&mut self, number: PublishNumber) -> u64 {
        self.numbers.push_back((number, false));
        self.first_order + self.numbers.len() as u64 - 1
    }

    fn finish(&mut self, order: u64) {
        self.numbers[(order - self.first_order) as usize].1 = true;
        while let Some((number, true)) = self.numbers.front() {
            self.reached = Some(*number);
            self.numbers.pop_front();
            self.first_order += 1;
        }
    }
}

impl TopicQueue {
    /// Begin a batch, unless one is in progress.
    fn gather(&mut self, audience: &mut Audience) {
        if self.together > 0 {
            return;
        }
        let Some(first) = self.jobs.front() else {
            return;
        };
        self.together = 1;
        let mut bytes = first.publication.push().len();
        for job in self.jobs.iter().skip(1).take(BATCH - 1) {
            bytes += job.publication.push().len();
            if bytes > BATCH_BYTES || !audience.join(&first.cursor, &job.cursor) {
                break;
            }
            self.together += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Slow;
    use crate::publication::tests::message;

    fn publish(fanout: &mut Fanout, audience: &mut Audience, topic: &str, number: u64) {
        let one = Arc::new(Publication::new(topic.into(), Slow::Disconnect, &message(1, number)));
        match audience.open(topic) {
            Some(cursor) => fanout.publish(&one, cursor, (1, number)),
            None => fanout.skip((1, number)),
        }
    }

    #[test]
    fn a_small_topic_is_served_between_the_chunks_of_a_big_one() {
        let (mut fanout, mut audience, mut chunk) =
            (Fanout::default(), Audience::default(), Chunk::default());
        for slot in 0..100 {
            audience.subscribe(slot, "big");
        }
        audience.subscribe(200, "small");
        publish(&mut fanout, &mut audience, "big", 1);
        for _ in 0..3 {
            assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
            assert_eq!(chunk.slots.len(), 10);
        }
        publish(&mut fanout, &mut audience, "small", 2);
        assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
        assert_eq!(chunk.slots, [200]);
        // The number stays below that of the unfinished fan-out.
        assert_eq!(fanout.take_reached(), None);
    }

    #[test]
    fn however_many_topics_begin_a_big_one_goes_on() {
        let (mut fanout, mut audience, mut chunk) =
            (Fanout::default(), Audience::default(), Chunk::default());
        for slot in 0..100 {
            audience.subscribe(slot, "big");
        }
        let small = ["a", "b", "c"];
        (0..).zip(small).for_each(|(slot, topic)| audience.subscribe(200 + slot, topic));
        publish(&mut fanout, &mut audience, "big", 1);
        assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
        (2..)
            .zip(small)
            .for_each(|(number, topic)| publish(&mut fanout, &mut audience, topic, number));
        let mut served = Vec::new();
        for _ in 0..6 {
            assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
            served.push(chunk.publications[0].topic.to_string());
        }
        let expected = ["big", "a", "big", "b", "big", "c"];
        assert_eq!(served, expected, "the last turn was big's first");
    }

    #[test]
    fn what_waits_for_the_same_readers_leaves_together() {
        let (mut fanout, mut audience, mut chunk) =
            (Fanout::default(), Audience::default(), Chunk::default());
        audience.subscribe(1, "a");
        publish(&mut fanout, &mut audience, "a", 1);
        publish(&mut fanout, &mut audience, "a", 2);
        audience.subscribe(2, "a");
        publish(&mut fanout, &mut audience, "a", 3);
        assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
        assert_eq!((chunk.publications.len(), &chunk.slots[..]), (2, &[1][..]));
        assert_eq!(fanout.take_reached(), Some((1, 2)));
        assert!(fanout.next_chunk(&mut audience, 10, &mut chunk));
        chunk.slots.sort_unstable();
        assert_eq!((chunk.publications.len(), &chunk.slots[..]), (1, &[1, 2][..]));
        assert_eq!(fanout.take_reached(), Some((1, 3)));
        assert!(!fanout.is_busy());
    }

    #[test]
    fn a_topic_of_nobody_is_over_at_once() {
        let (mut fanout, mut audience) = (Fanout::default(), Audience::default());
        publish(&mut fanout, &mut audience, "a", 1);
        assert_eq!(fanout.take_reached(), Some((1, 1)));
        assert!(!fanout.is_busy());
    }
}
