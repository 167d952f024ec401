//! Take-over, the older data plane's side: everything of one I/O thread, given over its lane.

use std::collections::HashMap;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use super::Readers;
use crate::control::Topic;
use crate::publication::{Frame, Publication};
use crate::slab::{Extra, Phase, Waiting};
use crate::take_over::Attempt;
use crate::take_over::lane::Giver;
use crate::take_over::record::{Record, SavedConnection, SavedExtra, SavedWaiting};

/// Identities in one record.
const IDENTITIES: usize = 4_096;

impl Readers {
    /// Give everything, and `listener` with it. Nothing changes here.
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
        self.give_seen(&mut giver)?;
        let places = self.give_topics(&mut giver)?;
        for slot in 0..self.slab.slots() {
            self.give_slot(&mut giver, attempt, &places, slot)?;
        }
        giver.put(&Record::End(self.slab.len() as u32), None)?;
        giver.finish()
    }

    /// Publications and frames that no other thread has given yet.
    fn give_shared(&mut self, giver: &mut Giver, attempt: &Attempt) -> io::Result<()> {
        for slot in 0..self.slab.slots() {
            let Some(extra) = &self.slab.at(slot).extra else {
                continue;
            };
            for (frame, publication) in &extra.outbox.save().entries {
                give_frame(giver, attempt, frame)?;
                if let Some(publication) = publication {
                    give_publication(giver, attempt, publication)?;
                }
            }
        }
        giver.put(&Record::Shared, None)
    }

    fn give_seen(&self, giver: &mut Giver) -> io::Result<()> {
        let mut result = Ok(());
        self.hub.seen.pieces(IDENTITIES, |start, identities| {
            if result.is_ok() {
                let identities = identities.to_vec();
                result = giver.put(&Record::Seen { start, identities }, None);
            }
        });
        result
    }

    /// Give the topics; returns the place of each.
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
        let timer = self.wheel.due_ms(slot);
        let counted = self.addresses.of(slot);
        let topics =
            self.hub.audience.subscriptions(slot).filter_map(|name| places.get(name).copied());
        let topics = topics.collect();
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Free {
            return giver.put(&Record::Free(connection.generation), None);
        }
        let mut decoder = Vec::new();
        connection.decoder.save(&mut decoder);
        let saved = SavedConnection {
            generation: connection.generation,
            phase: connection.phase,
            framing: connection.framing,
            deflate: connection.deflate,
            low_water: connection.low_water,
            heard: connection.heard,
            bucket: connection.bucket.to_bits(),
            timer,
            counted,
            decoder: &decoder,
            topics,
            extra: connection.extra.as_deref().map(|extra| saved_extra(extra, attempt)),
        };
        giver.put(&Record::Connection(Box::new(saved)), Some(connection.fd))?;
        match self.auth.of(slot) {
            None => Ok(()),
            Some(state) => {
                let record = Record::Auth {
                    user: state.user(),
                    issued_ms: state.issued_ms(),
                    ends_ms: state.ends_ms(),
                    blob: state.blob(),
                };
                giver.put(&record, None)
            }
        }
    }
}

fn give_publication(
    giver: &mut Giver,
    attempt: &Attempt,
    publication: &Arc<Publication>,
) -> io::Result<()> {
    let (number, new) = attempt.publication(publication);
    if !new {
        return Ok(());
    }
    let topic = Topic { name: &publication.topic, slow: publication.slow };
    let message = publication.message();
    giver.put(&Record::Publication { number, topic, message }, None)
}

fn give_frame(giver: &mut Giver, attempt: &Attempt, frame: &Frame) -> io::Result<()> {
    let (number, new) = attempt.frame(frame);
    if new { giver.put(&Record::Frame { number, bytes: frame }, None) } else { Ok(()) }
}

fn saved_extra<'a>(extra: &'a Extra, attempt: &Attempt) -> SavedExtra<'a> {
    let outbox = extra.outbox.save();
    let waiting = extra.waiting.iter().map(|wait| match wait {
        Waiting::Verb(verb) => SavedWaiting::Verb(verb),
        Waiting::Refusal => SavedWaiting::Refusal,
        Waiting::HangUp => SavedWaiting::HangUp,
    });
    let frames = outbox.entries.iter().map(|(frame, publication)| {
        let publication = publication.as_ref().map(|one| attempt.publication(one).0);
        (attempt.frame(frame).0, publication)
    });
    SavedExtra {
        proxied: extra.proxied,
        asked: extra.asked.as_deref(),
        waiting: waiting.collect(),
        ping: extra.ping.as_deref(),
        frames: frames.collect(),
        written: outbox.written as u32,
        soft_since: outbox.soft_since,
    }
}
