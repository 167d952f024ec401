//! Messages to readers: to all readers of a topic, and replays to one of them.

use std::sync::Arc;

use super::Readers;
use super::sockets::Offers;
use crate::clock::unix_us;
use crate::counters::Count;
use crate::fanout::Chunk;
use crate::hub::PublishOutcome;
use crate::publication::{Frame, Publication};
use crate::slab::Phase;
use crate::sys::{MOST_SENDS, Send};
use crate::threads::Report;

impl Readers {
    /// Begin to send a message to the readers of its topic.
    pub(crate) fn publish(&mut self, number: u64, publication: &Arc<Publication>) {
        let publish = (self.verbs.attachment, number);
        match self.hub.publish(publication, self.clock.now_ms()) {
            PublishOutcome::Subscribers(cursor) => {
                self.fanout.publish(publication, cursor, publish)
            }
            PublishOutcome::NoSubscribers => self.fanout.skip(publish),
            PublishOutcome::Duplicate => {
                self.counters.add(Count::Copies);
                return self.fanout.skip(publish);
            }
        }
        self.counters.add(Count::Publications);
    }

    /// Send chunks of the fan-outs in progress, up to the number of sends for one turn.
    pub(crate) fn send_some(&mut self) {
        let mut left = self.settings.fanout_chunk as usize;
        let mut chunk = std::mem::take(&mut self.chunk);
        while left > 0 && self.fanout.next_chunk(&mut self.hub.audience, left, &mut chunk) {
            self.send_chunk(&chunk);
            left = left.saturating_sub(chunk.slots.len().max(1));
        }
        self.chunk = chunk;
        if let Some((attachment, number)) = self.fanout.take_reached() {
            self.report(Report::Published(attachment, self.thread, number));
        }
    }

    fn send_chunk(&mut self, chunk: &Chunk) {
        let all = &chunk.publications[..];
        let joined = self.join_frames(chunk);
        let (mut readers, mut held) = ([0; 2], 0);
        for slots in chunk.slots.chunks(MOST_SENDS) {
            let mut offers = Offers::default();
            for &slot in slots {
                let connection = self.slab.at(slot);
                if connection.phase != Phase::Open {
                    continue;
                }
                let (framing, deflate) = (connection.framing, connection.deflate);
                readers[framing as usize] += 1;
                let bytes = match all {
                    [one] => &one.frame(framing, deflate, &mut self.maker)[..],
                    _ if deflate.is_none() => &joined[framing as usize],
                    _ => &[],
                };
                if connection.blocked || bytes.is_empty() {
                    held += 1;
                    self.queue_partly_written(slot, all, 0, Readers::queue);
                } else {
                    offers.add(slot, connection.fd, bytes);
                }
            }
            for Send { slot, bytes, taken, .. } in self.sockets.make(offers) {
                match self.sockets.taken(slot, self.slab.at(slot), taken) {
                    Some(sent) if sent == bytes.len() => continue,
                    Some(sent) => self.queue_partly_written(slot, all, sent, Readers::queue),
                    None => {}
                }
                held += 1;
            }
        }
        let many = all.len() as u64;
        let [raw, sockjs] = readers;
        self.counters.add_many(Count::DeliveriesWebSocket, raw * many);
        self.counters.add_many(Count::DeliveriesSockJs, sockjs * many);
        self.counters.add_many(Count::HeldDeliveries, held * many);
        self.measure(all, raw + sockjs - held);
    }

    /// Return the joined frames of several publications, for each framing that some reader uses.
    fn join_frames(&mut self, chunk: &Chunk) -> [Vec<u8>; 2] {
        let mut joined = [Vec::new(), Vec::new()];
        if let [_, _, ..] = chunk.publications[..] {
            for slot in &chunk.slots {
                let framing = self.slab.at(*slot).framing;
                let bytes = &mut joined[framing as usize];
                if bytes.is_empty() {
                    for one in &chunk.publications {
                        bytes.extend_from_slice(one.frame(framing, None, &mut self.maker));
                    }
                }
            }
        }
        joined
    }

    /// Measure publications that so many sockets have just taken, by one look at the clock.
    fn measure(&self, publications: &[Arc<Publication>], readers: u64) {
        if readers == 0 {
            return;
        }
        let now_us = unix_us();
        for stamp in publications.iter().filter_map(|one| one.stamp) {
            self.counters.delays.delivered(stamp, now_us, readers);
        }
    }

    /// Queue the frame of a message under its topic's policy.
    fn queue(&mut self, slot: u32, frame: Frame, publication: &Arc<Publication>) {
        let outbox = &mut self.slab.busy_state(slot, &self.settings).outbox;
        let now_ms = self.clock.now_ms();
        let fits = outbox.push(frame, publication, now_ms, &mut self.budget.account);
        self.queued(slot, fits);
    }

    /// Send messages that were asked for: none of them is dropped or conflated.
    pub(super) fn replay(&mut self, slot: u32, replay: &[Arc<Publication>]) {
        let connection = self.slab.at(slot);
        let (framing, deflate) = (connection.framing, connection.deflate);
        if replay.is_empty() || connection.phase != Phase::Open {
            return;
        }
        let mut done = 0;
        if !connection.blocked {
            let mut bytes = Vec::with_capacity(
                replay.iter().map(|one| one.frame(framing, None, &mut self.maker).len()).sum(),
            );
            for one in replay {
                bytes.extend_from_slice(one.frame(framing, deflate, &mut self.maker));
            }
            match self.sockets.send(slot, connection, &bytes) {
                Some(sent) => done = sent,
                None => return,
            }
        }
        // Frames that the kernel doesn't take wait as those that other readers wait for, too.
        self.queue_partly_written(slot, replay, done, |readers, slot, frame, _| {
            readers.queue_firm(slot, frame);
        });
    }

    /// Keep the frames of `all` for a reader, without the first `done` bytes, which its socket
    /// took. A partly sent frame is kept first; `queue` queues those behind it.
    fn queue_partly_written(
        &mut self,
        slot: u32,
        all: &[Arc<Publication>],
        mut done: usize,
        queue: impl Fn(&mut Readers, u32, Frame, &Arc<Publication>),
    ) {
        let connection = self.slab.at(slot);
        let (framing, deflate) = (connection.framing, connection.deflate);
        for one in all {
            let frame = one.frame(framing, deflate, &mut self.maker);
            let connection = self.slab.at(slot);
            if done >= frame.len() {
                done -= frame.len();
            } else if connection.phase != Phase::Open {
                return;
            } else if connection.blocked {
                queue(self, slot, frame.clone(), one);
            } else {
                self.queue_rest(slot, frame.clone(), std::mem::take(&mut done));
            }
        }
    }
}
