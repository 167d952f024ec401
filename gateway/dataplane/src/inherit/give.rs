//! The older data plane's side, on each I/O thread: stop, give everything, wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::Yielding;
use super::lane::Giver;
use super::record::{Carried, CarriedExtra, CarriedWait, Record};
use crate::control::Topic;
use crate::orders::Report;
use crate::publication::{Frame, Publication};
use crate::reactor::Reactor;
use crate::slab::{Extra, Phase, Waiting};
use crate::sys;

/// Identities in one record.
const IDENTITIES: usize = 4_096;

impl Reactor {
    /// Give everything to a newer data plane; the lane waits in the hatch. Returns only if that
    /// came to nothing, and then nothing has changed.
    pub(crate) fn yield_to(&mut self, yielding: &Arc<Yielding>) {
        // What was published before this order goes out from here, all of it.
        while self.fanout.is_busy() {
            self.send_some();
        }
        self.end_doomed();
        let given = self.give_all(yielding);
        if let Err(error) = &given {
            crate::tell!(
                Error,
                "I/O thread {} couldn't give its readers: {error}",
                self.parts.number
            );
        }
        self.tell(Report::Yielded(yielding.attempt, given.is_ok()));
        self.send_reports();
        yielding.wait();
    }

    fn give_all(&mut self, yielding: &Yielding) -> io::Result<()> {
        let mut giver = Giver::new(self.lane(yielding)?, yielding.deadline);
        let thread = Record::Thread { number: self.parts.number, now_ms: self.now_ms };
        giver.put(&thread, Some(self.listener.as_raw_fd()))?;
        self.give_shared(&mut giver, yielding)?;
        self.give_seen(&mut giver)?;
        let places = self.give_topics(&mut giver, yielding)?;
        for slot in 0..self.slab.slots() {
            self.give_slot(&mut giver, yielding, &places, slot)?;
        }
        giver.put(&Record::End(self.slab.len() as u32), None)?;
        giver.finish()
    }

    fn lane(&self, yielding: &Yielding) -> io::Result<OwnedFd> {
        let mut attempt = [0; 4];
        loop {
            let hatch = self.parts.hatch.as_raw_fd();
            let (_, lane) = sys::receive_descriptor(hatch, &mut attempt)?;
            // That of an attempt which failed before this thread was told may lie there still.
            if attempt == yielding.attempt.to_le_bytes() {
                return lane.ok_or_else(|| io::ErrorKind::NotFound.into());
            }
        }
    }

    /// Publications and frames that no other thread has given yet.
    fn give_shared(&mut self, giver: &mut Giver, yielding: &Yielding) -> io::Result<()> {
        for topic in self.hub.save() {
            for publication in topic.memory.recent.iter().chain(&topic.memory.latest) {
                give_publication(giver, yielding, publication)?;
            }
        }
        for slot in 0..self.slab.slots() {
            let Some(extra) = &self.slab.at(slot).extra else {
                continue;
            };
            for (frame, publication) in &extra.outbox.save().entries {
                give_frame(giver, yielding, frame)?;
                if let Some(publication) = publication {
                    give_publication(giver, yielding, publication)?;
                }
            }
        }
        giver.put(&Record::Shared, None)
    }

    fn give_seen(&self, giver: &mut Giver) -> io::Result<()> {
        let mut result = Ok(());
        self.hub.seen(IDENTITIES, |start, identities| {
            if result.is_ok() {
                let identities = identities.to_vec();
                result = giver.put(&Record::Seen { start, identities }, None);
            }
        });
        result
    }

    /// Give the topics; returns the place of each.
    fn give_topics(
        &self,
        giver: &mut Giver,
        yielding: &Yielding,
    ) -> io::Result<HashMap<Arc<str>, u32>> {
        let mut places = HashMap::new();
        let numbers = |publications: &[Arc<Publication>]| {
            publications.iter().map(|one| yielding.publication(one).0).collect()
        };
        for topic in self.hub.save() {
            let record = Record::Topic {
                name: &topic.name,
                warm: topic.warm,
                complete: topic.memory.complete,
                recent: numbers(&topic.memory.recent),
                latest: numbers(&topic.memory.latest),
            };
            giver.put(&record, None)?;
            places.insert(topic.name, places.len() as u32);
        }
        Ok(places)
    }

    fn give_slot(
        &mut self,
        giver: &mut Giver,
        yielding: &Yielding,
        places: &HashMap<Arc<str>, u32>,
        slot: u32,
    ) -> io::Result<()> {
        let timer = self.wheel.due_ms(slot);
        let counted = self.counted.get(&slot).copied();
        let topics = self.hub.subscriptions(slot).filter_map(|name| places.get(name).copied());
        let topics = topics.collect();
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Free {
            return giver.put(&Record::Free(connection.generation), None);
        }
        let mut decoder = Vec::new();
        connection.decoder.save(&mut decoder);
        let carried = Carried {
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
            extra: connection.extra.as_deref().map(|extra| carried_extra(extra, yielding)),
        };
        giver.put(&Record::Connection(Box::new(carried)), Some(connection.fd))?;
        match self.badges.of(slot) {
            None => Ok(()),
            Some(badge) => {
                let record = Record::Badge {
                    user: badge.user(),
                    issued_ms: badge.issued_ms(),
                    expires_ms: badge.expires_ms(),
                    blob: badge.blob(),
                };
                giver.put(&record, None)
            }
        }
    }
}

fn give_publication(
    giver: &mut Giver,
    yielding: &Yielding,
    publication: &Arc<Publication>,
) -> io::Result<()> {
    let (number, new) = yielding.publication(publication);
    if !new {
        return Ok(());
    }
    let policy = publication.policy();
    let topic = Topic {
        name: publication.topic(),
        keep: policy.keep,
        slow: policy.slow,
        latest: policy.latest,
    };
    let message = publication.message();
    giver.put(&Record::Publication { number, topic, message }, None)
}

fn give_frame(giver: &mut Giver, yielding: &Yielding, frame: &Frame) -> io::Result<()> {
    let (number, new) = yielding.frame(frame);
    if new { giver.put(&Record::Frame { number, bytes: frame }, None) } else { Ok(()) }
}

fn carried_extra<'a>(extra: &'a Extra, yielding: &Yielding) -> CarriedExtra<'a> {
    let outbox = extra.outbox.save();
    let waiting = extra.waiting.iter().map(|wait| match wait {
        Waiting::Verb(verb) => CarriedWait::Verb(verb),
        Waiting::Refusal => CarriedWait::Refusal,
        Waiting::HangUp => CarriedWait::HangUp,
    });
    let frames = outbox.entries.iter().map(|(frame, publication)| {
        let publication = publication.as_ref().map(|one| yielding.publication(one).0);
        (yielding.frame(frame).0, publication)
    });
    CarriedExtra {
        proxied: extra.proxied,
        asked: extra.asked.as_deref(),
        waiting: waiting.collect(),
        ping: extra.ping.as_deref(),
        frames: frames.collect(),
        written: outbox.written as u32,
        soft_since: outbox.soft_since,
    }
}
