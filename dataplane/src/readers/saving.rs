//! Take-over, the older data plane's side: the state of one I/O thread, given over its lane.

use std::collections::HashMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use super::Readers;
use crate::control::Topic;
use crate::slab::Phase;
use crate::take_over::Attempt;
use crate::take_over::lane::Giver;
use crate::take_over::record::{Beside, Record};

/// Maximum number of identities in one record.
const IDENTITIES: usize = 4_096;

impl Readers {
    /// Give everything, and `listener` with it. This thread's state doesn't change.
    pub(crate) fn save(
        &mut self,
        lane: OwnedFd,
        attempt: &Attempt,
        listener: RawFd,
    ) -> io::Result<()> {
        let mut giver = Giver::new(lane, attempt.deadline);
        let thread = Record::Thread { number: self.thread, now_ms: self.clock.now_ms() };
        giver.put(&thread, Some(listener))?;
        self.give_shared(&mut giver, attempt)?;
        for (start, identities) in self.hub.seen.pieces(IDENTITIES) {
            let (start, identities) = (self.clock.to_unix(start), identities.as_flattened());
            giver.put(&Record::Seen { start, identities }, None)?;
        }
        let places = self.give_topics(&mut giver)?;
        for slot in 0..self.slab.slots() {
            self.give_slot(&mut giver, attempt, &places, slot)?;
        }
        giver.put(&Record::End(self.slab.len() as u32), None)?;
        giver.finish()
    }

    /// Give publications and frames that no other thread has given yet.
    fn give_shared(&mut self, giver: &mut Giver, attempt: &Attempt) -> io::Result<()> {
        for slot in 0..self.slab.slots() {
            let Some(extra) = &self.slab.at(slot).extra else {
                continue;
            };
            for (frame, publication) in extra.outbox.waiting() {
                if let (number, true) = attempt.number_of(frame) {
                    giver.put(&Record::Frame { number, bytes: frame }, None)?;
                }
                if let Some(one) = publication
                    && let (number, true) = attempt.number_of(one)
                {
                    let topic = Topic { name: &one.topic, slow: one.slow };
                    let message = one.message();
                    giver.put(&Record::Publication { number, topic, message }, None)?;
                }
            }
        }
        giver.put(&Record::Shared, None)
    }

    /// Give the topics; return the place of each.
    fn give_topics(&self, giver: &mut Giver) -> io::Result<HashMap<Arc<str>, u32>> {
        let mut places = HashMap::new();
        for topic in self.hub.audience.topics() {
            giver.put(&Record::Topic(topic), None)?;
            places.insert(topic.clone(), places.len() as u32);
        }
        Ok(places)
    }

    fn give_slot(
        &mut self,
        giver: &mut Giver,
        attempt: &Attempt,
        places: &HashMap<Arc<str>, u32>,
        slot: u32,
    ) -> io::Result<()> {
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Free {
            return giver.put(&Record::Free(connection.generation), None);
        }
        let topics =
            self.hub.audience.subscriptions(slot).filter_map(|name| places.get(name).copied());
        let mut beside = Beside {
            timer: self.wheel.due_ms(slot),
            counted: self.counted.get(&slot).copied(),
            topics: topics.collect(),
            ..Beside::default()
        };
        if let Some(extra) = &connection.extra {
            let outbox = &extra.outbox;
            let numbers = outbox.waiting().map(|(frame, publication)| {
                let publication = publication.map(|publication| attempt.number_of(publication).0);
                (attempt.number_of(frame).0, publication)
            });
            beside.frames = numbers.collect();
            (beside.written, beside.soft_since) = (outbox.written as u32, outbox.soft_since);
        }
        giver.put_connection(connection, &beside)?;
        match self.auth.of(slot) {
            None => Ok(()),
            Some(state) => giver.put(&Record::Auth(state.clone()), None),
        }
    }
}
