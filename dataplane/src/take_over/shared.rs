//! Messages and frames to which several threads of an older data plane refer: each is sent once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Barrier, PoisonError, RwLock, RwLockReadGuard};

use super::record::{ConnectionExtras, Record};
use super::state_socket::Receiver;
use crate::control::{Malformed, Topic, TopicMessage};
use crate::outbox::{self, Outbox};
use crate::publication::{Frame, Publication};

/// The messages and frames; each was given by the first of the older one's threads that needed it.
#[derive(Debug, Default)]
pub struct Shared {
    publications: HashMap<u32, Arc<Publication>>,
    frames: HashMap<u32, Frame>,
    /// Names of topics, shared by their messages.
    names: HashSet<Arc<str>>,
}

/// The messages and frames from all state sockets of one take-over, until they are complete.
#[derive(Debug)]
pub struct SharedCollector {
    gathered: RwLock<Shared>,
    /// Threads wait here whose state sockets have delivered their part.
    complete: Barrier,
}

impl SharedCollector {
    pub fn new(state_sockets: usize) -> SharedCollector {
        SharedCollector { gathered: RwLock::default(), complete: Barrier::new(state_sockets) }
    }

    /// Receive the part of this state socket; return the parts of all when they are complete. If
    /// another state socket breaks, this never returns: the thread that waits until all are ready
    /// ends the process.
    pub fn receive(&self, state_socket: &mut Receiver) -> io::Result<RwLockReadGuard<'_, Shared>> {
        loop {
            let (record, _) = state_socket.record()?;
            let mut gathered = self.gathered.write().unwrap_or_else(PoisonError::into_inner);
            match record {
                Record::Publication { number, topic, message } => {
                    gathered.add(number, &topic, &message);
                }
                Record::Frame { number, bytes } => _ = gathered.frames.insert(number, bytes.into()),
                Record::Shared => break,
                _ => return Err(Malformed::Value("order of records").into()),
            }
        }
        self.complete.wait();
        Ok(self.gathered.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Shared {
    fn add(&mut self, number: u32, topic: &Topic<'_>, message: &TopicMessage<'_>) {
        let name = self.name(topic.name);
        self.names.insert(name.clone());
        let publication = Publication::new(name, topic.slow, message);
        self.publications.insert(number, Arc::new(publication));
    }

    fn publication(&self, number: u32) -> Result<Arc<Publication>, Malformed> {
        self.publications.get(&number).cloned().ok_or(Malformed::Value("publication"))
    }

    pub fn name(&self, name: &str) -> Arc<str> {
        self.names.get(name).cloned().unwrap_or_else(|| name.into())
    }

    pub fn outbox(
        &self,
        beside: &ConnectionExtras,
        limits: outbox::Limits,
        account: &mut outbox::Account,
    ) -> Result<Outbox, Malformed> {
        let mut waiting = Vec::with_capacity(beside.frames.len());
        for (number, publication) in &beside.frames {
            let frame = self.frames.get(number).cloned().ok_or(Malformed::Value("frame"))?;
            let publication = publication.map(|number| self.publication(number)).transpose()?;
            waiting.push((frame, publication));
        }
        Outbox::restore(limits, waiting, beside.written as usize, beside.soft_since, account)
            .ok_or(Malformed::Value("outbox"))
    }
}
