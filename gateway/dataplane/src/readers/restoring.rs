//! Take-over, the newer data plane's side: everything of one I/O thread, as it comes on its lane.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;

use super::Readers;
use crate::auth::AuthState;
use crate::bucket::Bucket;
use crate::counters::Count;
use crate::frame::{Decoder, Rules};
use crate::head::Framing;
use crate::outbox;
use crate::slab::{Connection, Extra, Phase, Waiting, fresh};
use crate::take_over::lane::Receiver;
use crate::take_over::record::{Record, SavedConnection, SavedExtra, SavedWaiting};
use crate::take_over::shared::{Shared, wrong};

/// A frame that was begun under other settings may be longer than today's allow.
const ANY_FRAME: Rules = Rules { message_bytes: u32::MAX as usize, deflate: true };

/// The readers of a thread while they are put together.
pub struct Restoring<'a> {
    readers: Readers,
    shared: &'a Shared,
    /// By place.
    topics: Vec<Arc<str>>,
}

impl<'a> Restoring<'a> {
    /// To be put into `readers`, who are none yet, with what was `shared`.
    pub fn new(readers: Readers, shared: &'a Shared) -> Restoring<'a> {
        Restoring { readers, shared, topics: Vec::new() }
    }

    /// Take all that comes behind the shared part. Nothing is served yet.
    ///
    /// # Errors
    /// What came is incomplete or wrong: the process must end, and the older one serves on.
    pub fn receive(mut self, lane: &mut Receiver) -> io::Result<Readers> {
        loop {
            match lane.record()? {
                (Record::Seen { start, identities }, _) => {
                    self.readers.hub.seen.restore(start, &identities);
                }
                (Record::Topic(name), _) => self.topics.push(self.shared.name(name)),
                (Record::Free(generation), _) => self.readers.slab.append_free(generation),
                (Record::Connection(saved), Some(socket)) => self.connection(&saved, socket)?,
                (Record::Auth { user, issued_ms, ends_ms, blob }, _) => {
                    self.auth_state(AuthState::new(user, issued_ms, ends_ms, blob))?;
                }
                (Record::End(count), _) if count as usize == self.readers.slab.len() => {
                    self.readers.note_connections();
                    self.readers.budget.begin();
                    return Ok(self.readers);
                }
                _ => return Err(wrong("order of records")),
            }
        }
    }

    fn connection(&mut self, saved: &SavedConnection<'_>, socket: OwnedFd) -> io::Result<()> {
        let extra = match &saved.extra {
            Some(extra) => Some(Box::new(self.extra(extra)?)),
            None => None,
        };
        let decoder = Decoder::restore(saved.decoder, &ANY_FRAME).map_err(|_| wrong("frame"))?;
        let readers = &mut self.readers;
        let slot = readers.slab.append(Connection {
            phase: saved.phase,
            framing: saved.framing,
            deflate: saved.deflate,
            blocked: extra.as_ref().is_some_and(|extra| !extra.outbox.is_empty()),
            low_water: saved.low_water,
            heard: saved.heard,
            bucket: Bucket::from_bits(saved.bucket),
            decoder,
            extra,
            ..fresh(socket.into_raw_fd(), saved.generation)
        });
        readers.watch(slot)?;
        if let Some(due) = saved.timer {
            readers.wheel.set(slot, due);
        }
        if let Some(address) = saved.counted {
            // It was let in before.
            readers.addresses.enter(slot, address, u32::MAX);
        }
        self.subscriptions(slot, &saved.topics)?;
        self.count(saved);
        Ok(())
    }

    /// That of the last connection. When it runs out its timer knows, which came before.
    fn auth_state(&mut self, state: AuthState) -> io::Result<()> {
        let last = self.readers.slab.slots().checked_sub(1).ok_or_else(|| wrong("auth"))?;
        if self.readers.slab.at(last).phase != Phase::Open {
            return Err(wrong("auth"));
        }
        self.readers.auth.set(last, state);
        Ok(())
    }

    fn extra(&mut self, saved: &SavedExtra<'_>) -> io::Result<Extra> {
        let limits = outbox::Limits::of(self.readers.settings());
        let outbox = self.shared.outbox(saved, limits, &mut self.readers.budget.account)?;
        let mut extra = Extra {
            outbox,
            // Whoever takes nothing gets the time anew.
            taken_ms: self.readers.now_ms(),
            asked: saved.asked.map(Box::from),
            ping: saved.ping.map(Box::from),
            proxied: saved.proxied,
            ..Extra::default()
        };
        for waiting in &saved.waiting {
            extra.waiting.push_back(match waiting {
                SavedWaiting::Verb(verb) => {
                    extra.waiting_bytes += verb.len();
                    Waiting::Verb((*verb).into())
                }
                SavedWaiting::Refusal => Waiting::Refusal,
                SavedWaiting::HangUp => Waiting::HangUp,
            });
        }
        self.readers.verbs.hold_all(&extra);
        Ok(extra)
    }

    fn subscriptions(&mut self, slot: u32, places: &[u32]) -> io::Result<()> {
        for place in places {
            let name = self.topics.get(*place as usize).ok_or_else(|| wrong("topic"))?;
            if self.readers.hub.audience.clash(slot, name, usize::MAX).is_some() {
                return Err(wrong("topic, which came before"));
            }
            self.readers.hub.audience.subscribe(slot, name);
        }
        Ok(())
    }

    /// What there is now. Totals begin at 0, because the process is another.
    fn count(&mut self, saved: &SavedConnection<'_>) {
        let counters = &self.readers.counters;
        match (saved.phase, saved.framing) {
            (Phase::Open, Framing::Raw) => counters.add(Count::ReadersWebSocket),
            (Phase::Open, Framing::SockJs) => counters.add(Count::ReadersSockJs),
            (Phase::Closing(_), _) => counters.add(Count::Closing),
            (Phase::Head | Phase::Free, _) => {}
        }
    }
}
