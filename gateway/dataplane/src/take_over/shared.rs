//! What several threads of an older data plane refer to: each message and each frame once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use super::lane::malformed;
use super::lock;
use super::record::SavedExtra;
use crate::control::{Malformed, Message, Topic};
use crate::outbox::{self, Outbox};
use crate::publication::{Frame, Publication};

/// What several threads refer to: whichever of the older one's threads came first gave it.
#[derive(Debug, Default)]
pub struct Shared {
    publications: HashMap<u32, Arc<Publication>>,
    frames: HashMap<u32, Frame>,
    /// A topic's name is in each of its messages.
    names: HashSet<Arc<str>>,
}

/// What all lanes of one take-over bring, until it is complete.
#[derive(Debug)]
pub struct Gathering {
    lanes: usize,
    deadline: Instant,
    /// What has come, and on how many lanes no more comes.
    gathered: Mutex<(Shared, usize)>,
    complete: Condvar,
    shared: OnceLock<Shared>,
}

impl Gathering {
    /// For so many threads.
    pub fn new(lanes: usize, deadline: Instant) -> Gathering {
        Gathering {
            lanes,
            deadline,
            gathered: Mutex::default(),
            complete: Condvar::new(),
            shared: OnceLock::new(),
        }
    }

    pub fn publication(&self, number: u32, topic: &Topic<'_>, message: &Message<'_>) {
        let (shared, _) = &mut *lock(&self.gathered);
        let name = shared.name(topic.name);
        shared.names.insert(name.clone());
        let publication = Arc::new(Publication::new(name, topic.slow, message));
        shared.publications.insert(number, publication);
    }

    pub fn frame(&self, number: u32, bytes: &[u8]) {
        lock(&self.gathered).0.frames.insert(number, bytes.into());
    }

    /// No more comes on this lane; returns what has come on all, as soon as that is complete.
    pub fn all(&self) -> io::Result<&Shared> {
        let mut gathered = lock(&self.gathered);
        gathered.1 += 1;
        if gathered.1 == self.lanes {
            // Nobody else has set it: there is one last lane.
            let _ = self.shared.set(std::mem::take(&mut gathered.0));
            self.complete.notify_all();
        }
        loop {
            if let Some(shared) = self.shared.get() {
                return Ok(shared);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.complete.wait_timeout(gathered, left);
            gathered = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Shared {
    fn publication(&self, number: u32) -> io::Result<Arc<Publication>> {
        self.publications.get(&number).cloned().ok_or_else(|| wrong("publication"))
    }

    pub fn name(&self, name: &str) -> Arc<str> {
        self.names.get(name).cloned().unwrap_or_else(|| name.into())
    }

    pub fn outbox(
        &self,
        extra: &SavedExtra<'_>,
        limits: outbox::Limits,
        account: &mut outbox::Account,
    ) -> io::Result<Outbox> {
        let mut saved = outbox::Saved {
            entries: Vec::with_capacity(extra.frames.len()),
            written: extra.written as usize,
            soft_since: extra.soft_since,
        };
        for (number, publication) in &extra.frames {
            let frame = self.frames.get(number).cloned().ok_or_else(|| wrong("frame"))?;
            let publication = publication.map(|number| self.publication(number)).transpose()?;
            saved.entries.push((frame, publication));
        }
        Outbox::restore(limits, saved, account).ok_or_else(|| wrong("outbox"))
    }
}

/// An error: what came isn't what a data plane sends.
pub fn wrong(what: &'static str) -> io::Error {
    malformed(Malformed::Value(what))
}
