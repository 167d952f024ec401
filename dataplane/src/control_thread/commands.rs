//! Commands of the control plane: checked here, and passed on to the I/O threads in their order.

use std::sync::Arc;

use super::ControlThread;
use crate::control::{self, Command, Connections, Event, Malformed, Settings, Topic, TopicMessage};
use crate::delays::{Names, Stamp};
use crate::drain;
use crate::publication::Publication;
use crate::threads::{Batch, Eviction, Order};

/// State for the next `publish`, and names that many publications share.
#[derive(Default)]
pub(super) struct Publishing {
    /// Name of the last topic: publications of one topic often follow each other.
    name: Arc<str>,
    /// Names of the series under which messages are measured.
    pub(super) series: Names,
    stamp: Option<Stamp>,
    mark: Vec<u8>,
}

impl Publishing {
    /// Forget the stamp and mark of an earlier control plane.
    pub(super) fn forget(&mut self) {
        self.stamp = None;
        self.mark.clear();
    }

    fn stamp(&mut self, taken_ms: u64, series: &str) {
        let taken_us = taken_ms.saturating_mul(1_000);
        let series = self.series.number(series);
        self.stamp = series.map(|series| Stamp { taken_us, series });
    }

    fn one(&mut self, topic: &Topic<'_>, message: &TopicMessage<'_>) -> Arc<Publication> {
        let mut publication = Publication::new(self.name(topic.name), topic.slow, message);
        publication.stamp = self.stamp.take();
        Arc::new(publication)
    }

    fn many(&mut self, topic: &Topic<'_>, messages: &[TopicMessage<'_>]) -> Batch {
        let name = self.name(topic.name);
        let made = messages.iter().map(|one| Publication::new(name.clone(), topic.slow, one));
        made.map(Arc::new).collect()
    }

    /// Return the name of a topic as a shared string.
    fn name(&mut self, name: &str) -> Arc<str> {
        if *self.name != *name {
            self.name = name.into();
        }
        self.name.clone()
    }
}

impl ControlThread {
    /// Carry out all commands that were received completely.
    pub(super) fn serve_commands(&mut self) {
        let Some(plane) = self.control_plane.as_mut() else {
            return;
        };
        let incoming = std::mem::take(&mut plane.link.incoming);
        match self.serve_all(&incoming) {
            Ok(used) => {
                if let Some(plane) = self.control_plane.as_mut() {
                    plane.link.incoming.extend_from_slice(&incoming[used..]);
                }
            }
            Err(malformed) => {
                let why = malformed.to_string();
                self.send(&Event::Refused { why: &why });
                self.flush();
                self.cut_off(&why);
            }
        }
    }

    /// Carry out all whole commands; return the number of their bytes.
    fn serve_all(&mut self, incoming: &[u8]) -> Result<usize, Malformed> {
        let mut at = 0;
        while self.control_plane.is_some()
            && let Some((kind, body, used)) = control::split(&incoming[at..])?
        {
            at += used;
            self.serve(kind, body)?;
        }
        Ok(at)
    }

    fn serve(&mut self, kind: u8, body: &[u8]) -> Result<(), Malformed> {
        match Command::decode(kind, body)? {
            Command::Settings { json } => {
                self.apply_settings(Arc::new(Settings::decode(json)?));
                self.state.settings = json.to_vec();
            }
            Command::Stamp { taken_ms, series } => self.publishing.stamp(taken_ms, series),
            Command::Mark { mark } => self.publishing.mark = mark.to_vec(),
            Command::Publish { number, topic, message } => {
                let publication = self.publishing.one(&topic, &message);
                self.threads.queue_for_all(&Order::Publish(number, publication));
                self.state.add(&std::mem::take(&mut self.publishing.mark));
            }
            Command::Batch { number, topic, messages } => {
                let batch = self.publishing.many(&topic, &messages);
                self.threads.queue_for_all(&Order::Batch(number, batch));
            }
            Command::ToReaders(connections, _) => self.pass_on(connections, kind, body),
            Command::Remember { blob } => self.state.blob = blob.to_vec(),
            Command::Evict { reason, users } => {
                let users = users.into_iter().map(|(user, ms)| (user.to_owned(), ms)).collect();
                let eviction = Eviction { reason: reason.to_owned(), users };
                self.threads.queue_for_all(&Order::Evict(Arc::new(eviction)));
            }
            Command::Drain { spread_ms, per_second } => self.drain(spread_ms, per_second),
            Command::Shed { reason, count, retry_ms } => self.shed(reason, count, retry_ms),
            Command::Count {} => self.send_counters(),
            Command::Gone { address } => self.threads.common.addresses.handover_closed(address),
            Command::Kept { kept } => {
                let addresses = &self.threads.common.addresses;
                kept.into_iter().for_each(|(address, count)| addresses.add_kept(address, count));
            }
            Command::Hello { .. } | Command::TakeOver { .. } | Command::Commit {} => {
                return Err(Malformed::Value("hello, which comes first and once"));
            }
        }
        Ok(())
    }

    /// Order each thread to send its share of `count` readers away.
    fn shed(&mut self, reason: &str, count: u32, retry_ms: u32) {
        let reason: Arc<str> = reason.into();
        let counters = self.threads.common.counters.iter();
        let readers: Vec<u64> = counters.map(|one| one.readers()).collect();
        let shares = drain::shares(count, &readers);
        for (pending, share) in self.threads.pending.iter_mut().zip(shares) {
            if share > 0 {
                pending.push(Order::Shed(reason.clone(), share, retry_ms));
            }
        }
    }

    /// Pass a command to each thread that has some of its connections; they share the bytes.
    fn pass_on(&mut self, connections: Connections<'_>, kind: u8, body: &[u8]) {
        let body: Arc<[u8]> = body.into();
        for (thread, pending) in (0..).zip(&mut self.threads.pending) {
            let here = connections.of_thread(thread).count();
            if here > 0 {
                self.threads.common.counters[usize::from(thread)].command_queued(here * body.len());
                pending.push(Order::Command(kind, body.clone()));
            }
        }
    }

    fn apply_settings(&mut self, settings: Arc<Settings>) {
        self.settings = Some(settings.clone());
        self.threads.queue_for_all(&Order::Settings(settings));
        let plane = self.control_plane.as_mut();
        if plane.is_some_and(|plane| std::mem::take(&mut plane.wants_counters)) {
            self.send_counters();
        }
    }
}
