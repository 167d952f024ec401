//! An I/O thread: one epoll loop over its listener, its readers' sockets and its mailbox.
//!
//! The thread owns all that it uses: connections, its part of the hub, timers. Orders arrive
//! through the mailbox and are carried out in their order: so a subscribe is between the same two
//! publications for every reader. Descriptors are level-triggered: the next turn finds all that one
//! turn leaves.
//!
//! Each step of a turn is bounded (accepts, events, sends of one fan-out), so that no connection
//! makes the others wait. The time is read once per turn.

mod departures;
mod listener;
mod requests;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use crate::closing::CloseReason;
use crate::control::Command;
use crate::drain::Pace;
use crate::mailbox::Mailbox;
use crate::readers::Readers;
use crate::slab::Phase;
use crate::sys::{self, EventFlags};
use crate::take_over::Attempt;
use crate::threads::{Order, Report, ThreadParts};

use departures::DRAIN_STEP_MS;
use listener::Listener;

/// Maximum number of events in one turn.
const EVENTS: usize = 256;
/// Maximum number of timers in one turn; during a fan-out, as many as a chunk has sends.
const TIMERS: usize = 128;
const TIMERS_BETWEEN: usize = 32;

const LISTENER: u64 = u64::MAX;
const MAILBOX: u64 = u64::MAX - 1;

/// A thread that serves readers, or is about to.
pub struct Reactor {
    number: u16,
    proxied: bool,
    readers: Readers,
    listener: Listener,
    orders: Arc<Mailbox<Order>>,
    handovers: OwnedFd,
    /// Progress of the drain, if there is one.
    drain: Option<Pace>,
    /// The slot at which the search for the next reader to shed continues.
    shed_from: u32,
    /// True if timers have fired and weren't served yet.
    late: bool,
    /// True if there are more I/O threads than cores: then a busy thread yields after each turn.
    /// Measured with six threads on one core, a message amid big fan-outs of another topic: p50 19
    /// ms without, 5 ms with it.
    crowded: bool,
}

impl Reactor {
    /// Return a thread that isn't running yet, with these readers.
    pub fn new(parts: ThreadParts, listener: OwnedFd, readers: Readers) -> io::Result<Reactor> {
        readers.sockets.epoll.add(parts.orders.fd(), sys::READ, MAILBOX)?;
        let options = parts.common.options;
        Ok(Reactor {
            number: parts.number,
            proxied: options.proxied,
            readers,
            listener: Listener::new(listener),
            orders: parts.orders,
            handovers: parts.handovers,
            drain: None,
            shed_from: 0,
            late: false,
            crowded: usize::from(options.threads) > std::thread::available_parallelism()?.get(),
        })
    }

    /// Serve until drained.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let mut orders = Vec::new();
        if let Some(why) = self.readers.sockets.begin_batches().filter(|_| self.number == 0) {
            crate::log!(Info, "each send is a system call of its own: no io_uring here ({why})");
        }
        // A heartbeat of 0 means that no settings were received yet: then no reader is let in.
        if self.readers.settings.heartbeat_ms > 0 {
            self.listener.open(&self.readers.sockets.epoll);
        }
        while !self.is_drained() {
            let wait_ms = self.wait_ms();
            self.readers.sockets.epoll.wait(&mut events, wait_ms)?;
            self.readers.clock.tick();
            for event in &events {
                self.on_event(event.data.u64(), event.flags, &mut orders);
            }
            self.readers.send_some();
            self.readers.keep_within_budget();
            self.on_time();
            self.readers.end_failed();
            if events.is_empty() || self.readers.reports.are_due(self.readers.clock.now_ms()) {
                self.readers.reports.send();
            }
            if self.crowded && self.is_busy() {
                std::thread::yield_now();
            }
        }
        self.readers.note_sizes();
        self.readers.report(Report::Ended);
        self.readers.reports.send();
        Ok(())
    }

    fn on_event(&mut self, token: u64, ready: EventFlags, orders: &mut Vec<Order>) {
        match token {
            LISTENER => self.accept_some(),
            MAILBOX => {
                self.orders.take_items(orders);
                for order in orders.drain(..) {
                    self.carry_out(order);
                    self.readers.keep_within_budget();
                }
            }
            _ => {
                self.on_socket(token as u32, (token >> 32) as u32, ready);
                self.readers.keep_within_budget();
            }
        }
    }

    fn on_socket(&mut self, slot: u32, generation: u32, ready: EventFlags) {
        if self.readers.phase_of(slot, generation).is_none() {
            return;
        }
        if ready.contains(sys::WRITE) && self.readers.slab.at(slot).blocked {
            self.readers.flush(slot);
        }
        let Some(phase) = self.readers.phase_of(slot, generation) else {
            return;
        };
        if ready.intersects(sys::READ | sys::DEAD) {
            match phase {
                Phase::Head => self.decide_request(slot, ready.intersects(sys::ENDED)),
                _ => self.readers.read(slot),
            }
        }
    }

    /// Return whether there is more work at once, without any new event.
    fn is_busy(&self) -> bool {
        let readers = &self.readers;
        self.late || !readers.reports.is_empty() || readers.fanout.is_busy()
    }

    fn wait_ms(&self) -> u64 {
        if self.is_busy() {
            return 0;
        }
        let now_ms = self.readers.clock.now_ms();
        let waits = [
            self.readers.wheel.wait_ms(now_ms),
            self.drain.map(|_| DRAIN_STEP_MS),
            self.listener.opens_in_ms(now_ms),
        ];
        waits.into_iter().flatten().fold(1_000, u64::min)
    }

    fn on_time(&mut self) {
        let most = if self.readers.fanout.is_busy() { TIMERS_BETWEEN } else { TIMERS };
        self.late = self.readers.serve_timers(most);
        let now_ms = self.readers.clock.now_ms();
        if self.listener.opens_in_ms(now_ms) == Some(0) {
            self.listener.end_pause();
            self.open_listener();
        }
        self.send_some_away();
    }

    /// Accept readers, unless all are being sent away.
    fn open_listener(&mut self) {
        if self.drain.is_none() {
            self.listener.open(&self.readers.sockets.epoll);
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Settings(settings) => {
                self.readers.apply_settings(settings);
                self.open_listener();
            }
            Order::Attached(attachment) => self.readers.attached(attachment),
            Order::Detached => self.readers.detached(),
            Order::Publish(number, publication) => self.readers.publish(number, &publication),
            Order::Batch(number, batch) => self.readers.add_batch(number, batch),
            Order::Command(kind, body) => {
                // The control thread has decoded it before.
                if let Ok(Command::ToReaders(connections, command)) = Command::decode(kind, &body) {
                    self.readers.serve(connections, &command);
                    let here = connections.of_thread(self.number).count();
                    self.readers.counters.command_done(here * body.len());
                }
            }
            Order::Evict(eviction) => self.readers.evict(&eviction),
            Order::Drain(spread_ms, per_second) => self.start_drain(spread_ms, per_second),
            Order::Shed(reason, count, retry_ms) => {
                self.shed(CloseReason::of(&reason), count, retry_ms);
            }
            Order::SendState(attempt) => self.send_state(&attempt),
        }
    }

    /// Give everything to a newer data plane; the state socket waits among the handovers. Returns
    /// only if the take-over failed: then nothing has changed, but connections without room under
    /// their address are closed.
    fn send_state(&mut self, attempt: &Attempt) {
        // Publications before this order are sent from here, completely.
        while self.readers.fanout.is_busy() {
            self.readers.send_some();
        }
        self.readers.end_failed();
        // The newer data plane would not know that these connections aren't counted.
        self.readers.forget_turned_away();
        let sent = self
            .state_socket(attempt)
            .and_then(|state_socket| self.readers.save(state_socket, attempt, self.listener.fd()));
        if let Err(error) = &sent {
            crate::log!(Error, "I/O thread {} couldn't give its readers: {error}", self.number);
        }
        self.readers.report(Report::StateSent(attempt.number, sent.is_ok()));
        self.readers.reports.send();
        attempt.wait_until_failed();
    }

    fn state_socket(&self, attempt: &Attempt) -> io::Result<OwnedFd> {
        let mut number = [0; 4];
        loop {
            let (_, state_socket) =
                sys::receive_descriptor(self.handovers.as_raw_fd(), &mut number)?;
            // The socket of an attempt that failed before this thread's order may still be there.
            if number == attempt.number.to_le_bytes() {
                return state_socket.ok_or_else(|| io::ErrorKind::NotFound.into());
            }
        }
    }
}
