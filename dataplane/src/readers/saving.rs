//! Take-over, the older data plane's side: the state of one I/O thread, given over its state socket.

use std::collections::HashMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use super::Readers;
use crate::control::Topic;
use crate::slab::Phase;
use crate::take_over::Attempt;
use crate::take_over::record::{ConnectionExtras, Record};
use crate::take_over::state_socket::StateSender;

/// Maximum number of identities in one record.
const IDENTITIES: usize = 4_096;

impl Readers {
    /// Give everything, and `listener` with it. This thread's state doesn't change.
    pub(crate) fn save(
        &mut self,
        state_socket: OwnedFd,
        attempt: &Attempt,
        listener: RawFd,
    ) -> io::Result<()> {
        let mut sender = StateSender::new(state_socket, attempt.deadline);
        let thread = Record::Thread { number: self.thread, now_ms: self.clock.now_ms() };
        sender.put(&thread, Some(listener))?;
        self.send_shared(&mut sender, attempt)?;
        for (start, identities) in self.hub.seen.pieces(IDENTITIES) {
            let (start, identities) = (self.clock.to_unix(start), identities.as_flattened());
            sender.put(&Record::Seen { start, identities }, None)?;
        }
        let places = self.send_topics(&mut sender)?;
        for slot in 0..self.slab.slots() {
            self.send_slot(&mut sender, attempt, &places, slot)?;
        }
        sender.put(&Record::End(self.slab.len() as u32), None)?;
        sender.finish()
    }

    /// Give publications and frames that no other thread has given yet.
    fn send_shared(&mut self, sender: &mut StateSender, attempt: &Attempt) -> io::Result<()> {
        for slot in 0..self.slab.slots() {
            let Some(busy) = &self.slab.at(slot).busy else {
                continue;
            };
            for (frame, publication) in busy.outbox.waiting() {
                if let (number, true) = attempt.number_of(frame) {
                    sender.put(&Record::Frame { number, bytes: frame }, None)?;
                }
                if let Some(one) = publication
                    && let (number, true) = attempt.number_of(one)
                {
                    let topic = Topic { name: &one.topic, slow: one.slow };
                    let message = one.message();
                    sender.put(&Record::Publication { number, topic, message }, None)?;
                }
            }
        }
        sender.put(&Record::Shared, None)
    }

    /// Give the topics; return the place of each.
    fn send_topics(&self, sender: &mut StateSender) -> io::Result<HashMap<Arc<str>, u32>> {
        let mut places = HashMap::new();
        for topic in self.hub.audience.topics() {
            sender.put(&Record::Topic(topic), None)?;
            places.insert(topic.clone(), places.len() as u32);
        }
        Ok(places)
    }

    fn send_slot(
        &mut self,
        sender: &mut StateSender,
        attempt: &Attempt,
        places: &HashMap<Arc<str>, u32>,
        slot: u32,
    ) -> io::Result<()> {
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Free {
            return sender.put(&Record::Free(connection.generation), None);
        }
        let topics = self.hub.audience.topics_of(slot).filter_map(|name| places.get(name).copied());
        let mut beside = ConnectionExtras {
            timer: self.wheel.due_ms(slot),
            counted: self.counted.get(&slot).copied(),
            topics: topics.collect(),
            ..ConnectionExtras::default()
        };
        if let Some(busy) = &connection.busy {
            let outbox = &busy.outbox;
            let numbers = outbox.waiting().map(|(frame, publication)| {
                let publication = publication.map(|publication| attempt.number_of(publication).0);
                (attempt.number_of(frame).0, publication)
            });
            beside.frames = numbers.collect();
            (beside.written, beside.soft_since) = (outbox.written as u32, outbox.soft_since);
        }
        sender.put_connection(connection, &beside)?;
        match self.auth.of(slot) {
            None => Ok(()),
            Some(state) => sender.put(&Record::Auth(state.clone()), None),
        }
    }
}
