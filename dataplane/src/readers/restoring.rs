//! Take-over, the newer data plane's side: the state of one I/O thread, received on its state socket.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;

use super::Readers;
use crate::auth::AuthState;
use crate::control::Malformed;
use crate::counters::Count;
use crate::head::Framing;
use crate::outbox;
use crate::slab::{Phase, ReaderSlot};
use crate::take_over::record::{ConnectionExtras, Record};
use crate::take_over::shared::Shared;
use crate::take_over::state_socket::Receiver;

/// The readers of a thread while they are restored.
pub struct Restoring<'a> {
    pub readers: Readers,
    pub shared: &'a Shared,
    /// Names of topics, by place.
    pub topics: Vec<Arc<str>>,
}

impl Restoring<'_> {
    /// Receive all records behind the shared part. No reader is served yet.
    ///
    /// # Errors
    /// Records are missing or wrong: this process must end, and the older data plane serves on.
    pub fn receive(mut self, state_socket: &mut Receiver) -> io::Result<Readers> {
        loop {
            match state_socket.record()? {
                (Record::Seen { start, identities }, _) => {
                    let start = self.readers.clock.since_unix(start);
                    self.readers.hub.seen.restore(start, identities.as_chunks().0);
                }
                (Record::Topic(name), _) => self.topics.push(self.shared.name(name)),
                (Record::Free(generation), _) => self.readers.slab.append_free(generation),
                (Record::Connection(saved), Some(socket)) => {
                    let (connection, beside) = *saved;
                    self.connection(connection, &beside, socket)?;
                }
                (Record::Auth(state), _) => self.auth_state(state)?,
                (Record::End(count), _) if count as usize == self.readers.slab.len() => {
                    self.readers.note_connections();
                    self.readers.budget.start_at_current();
                    return Ok(self.readers);
                }
                _ => return Err(Malformed::Value("order of records").into()),
            }
        }
    }

    fn connection(
        &mut self,
        mut connection: ReaderSlot,
        beside: &ConnectionExtras,
        socket: OwnedFd,
    ) -> io::Result<()> {
        let readers = &mut self.readers;
        if let Some(busy) = connection.busy.as_deref_mut() {
            let limits = outbox::Limits::of(&readers.settings);
            busy.outbox = self.shared.outbox(beside, limits, &mut readers.budget.account)?;
            connection.blocked = !busy.outbox.is_empty();
            // A reader that takes nothing gets the whole time again.
            busy.taken_ms = readers.clock.now_ms();
            readers.verbs.hold_all(busy);
        }
        connection.fd = socket.into_raw_fd();
        // Only counters of existing things: totals begin at 0, because the process is another.
        match (connection.phase, connection.framing) {
            (Phase::Open, Framing::Raw) => readers.counters.add(Count::ReadersWebSocket),
            (Phase::Open, Framing::SockJs) => readers.counters.add(Count::ReadersSockJs),
            (Phase::Closing(_), _) => readers.counters.add(Count::Closing),
            (Phase::Head | Phase::Free, _) => {}
        }
        let slot = readers.slab.append(connection);
        readers.watch(slot)?;
        if let Some(due) = beside.timer {
            readers.wheel.set(slot, due);
        }
        if let Some(address) = beside.counted {
            // It was admitted before.
            readers.addresses.enter(address, u32::MAX);
            readers.counted.insert(slot, address);
        }
        self.subscribe(slot, &beside.topics)?;
        Ok(())
    }

    /// Set the auth state of the last connection, whose timer already covers the expiry.
    fn auth_state(&mut self, state: AuthState) -> Result<(), Malformed> {
        match self.readers.slab.slots().checked_sub(1) {
            Some(last) if self.readers.slab.at(last).phase == Phase::Open => {
                self.readers.auth.set(last, state);
                Ok(())
            }
            _ => Err(Malformed::Value("auth")),
        }
    }

    fn subscribe(&mut self, slot: u32, places: &[u32]) -> Result<(), Malformed> {
        for place in places {
            let name = self.topics.get(*place as usize).ok_or(Malformed::Value("topic"))?;
            if self.readers.hub.audience.check_subscribe(slot, name, usize::MAX).is_some() {
                return Err(Malformed::Value("topic, which came before"));
            }
            self.readers.hub.audience.subscribe(slot, name);
        }
        Ok(())
    }
}
