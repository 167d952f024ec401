//! An I/O thread: one epoll loop over its listener, its readers' sockets and its mailbox.
//!
//! It owns everything it touches: connections, its part of the hub, timers. Orders come through the
//! mailbox and are carried out in their order; that is what puts a subscribe between two publications
//! for everybody. Descriptors are level-triggered: what one turn leaves, the next one finds.
//!
//! The turn is bounded at every step (accepts, events, sends of one fan-out), so that no one makes
//! the others wait. Time is read once a turn.

mod departures;
mod listener;
mod orders;
mod requests;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::mailbox::Mailbox;
use crate::orders::{Order, Report};
use crate::policy::Policy;
use crate::readers::{Batches, Readers};
use crate::slab::Phase;
use crate::sys;
use crate::thread_parts::ThreadParts;

use departures::Departures;
use listener::Listener;

pub use requests::Handover;

/// Events of one turn.
const EVENTS: usize = 256;
/// Timers that fire in one turn, and while a fan-out is under way: then as many as its chunk has sends.
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
    batches: Batches,
    departures: Departures,
    /// Whether there are timers that have fired and weren't looked at.
    late: bool,
    /// There are more I/O threads than cores, so they take turns by chunks. Six threads on one core
    /// and another topic's message amid big fan-outs: p50 19 ms without that, 5 ms with it.
    crowded: bool,
}

impl Reactor {
    /// A thread that isn't running yet, with these readers on it.
    pub fn new(parts: ThreadParts, listener: OwnedFd, readers: Readers) -> io::Result<Reactor> {
        readers.epoll().add(parts.orders.fd(), sys::READ, MAILBOX)?;
        Ok(Reactor {
            number: parts.number,
            proxied: parts.proxied,
            readers,
            listener: Listener::new(listener),
            handovers: parts.handovers,
            batches: Batches::default(),
            departures: Departures::default(),
            late: false,
            crowded: parts.counters.len() > std::thread::available_parallelism()?.get(),
            orders: parts.orders,
        })
    }

    /// One that begins with nobody.
    pub fn empty(
        parts: ThreadParts,
        listener: OwnedFd,
        policy: Arc<Policy>,
    ) -> io::Result<Reactor> {
        let readers = Readers::new(&parts, policy, 0)?;
        Reactor::new(parts, listener, readers)
    }

    /// The descriptors that only this thread uses.
    pub fn own_descriptors(&self) -> Vec<RawFd> {
        vec![self.readers.epoll().fd(), self.listener.fd(), self.handovers.as_raw_fd()]
    }

    /// Everything is ours: let readers in, unless they were not let in before.
    pub fn begin_to_serve(&mut self) {
        // No settings that were ever sent have a heartbeat of 0.
        if self.readers.settings().heartbeat_ms > 0 {
            self.listener.open(self.readers.epoll());
        }
    }

    /// Serve until drained.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let mut orders = Vec::new();
        if let Some(why) = self.readers.begin_batches().filter(|_| self.number == 0) {
            crate::tell!(Info, "each send is a system call of its own: no io_uring here ({why})");
        }
        while !self.is_drained() {
            let count = self.readers.epoll().wait(&mut events, self.wait_ms())?.len();
            self.readers.begin_turn();
            for event in &events[..count] {
                self.on_event(event.u64, event.events, &mut orders);
            }
            self.readers.send_some();
            self.readers.keep_within_budget();
            self.on_time();
            self.readers.end_broken();
            if count == 0 || self.readers.reports_are_due() {
                self.readers.send_reports();
            }
            if self.crowded && self.is_busy() {
                std::thread::yield_now();
            }
        }
        self.readers.note_sizes();
        self.readers.report(Report::Ended);
        self.readers.send_reports();
        Ok(())
    }

    fn on_event(&mut self, token: u64, ready: u32, orders: &mut Vec<Order>) {
        match token {
            LISTENER => self.accept_some(),
            MAILBOX => {
                self.orders.take(orders);
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

    fn on_socket(&mut self, slot: u32, generation: u32, ready: u32) {
        if self.readers.phase_of(slot, generation).is_none() {
            return;
        }
        if ready & sys::WRITE != 0 && self.readers.at(slot).blocked {
            self.readers.flush(slot);
        }
        let Some(phase) = self.readers.phase_of(slot, generation) else {
            return;
        };
        if ready & (sys::READ | sys::DEAD) != 0 {
            match phase {
                Phase::Head => self.look_at_head(slot, ready & sys::ENDED != 0),
                _ => self.readers.read(slot),
            }
        }
    }

    /// Whether there is more to do at once, whatever comes.
    fn is_busy(&self) -> bool {
        self.late || self.readers.is_busy()
    }

    fn wait_ms(&self) -> i32 {
        if self.is_busy() {
            return 0;
        }
        let now_ms = self.readers.now_ms();
        let waits = [
            self.readers.next_timer_ms(),
            self.departures.next_ms(),
            self.listener.opens_in_ms(now_ms),
        ];
        waits.into_iter().flatten().fold(1_000, u64::min) as i32
    }

    fn on_time(&mut self) {
        let most = if self.readers.has_fanouts() { TIMERS_BETWEEN } else { TIMERS };
        self.late = self.readers.serve_timers(most);
        let now_ms = self.readers.now_ms();
        if self.listener.opens_in_ms(now_ms) == Some(0) {
            self.listener.end_pause();
            self.open_listener();
        }
        self.send_some_away();
    }

    /// Let readers in, unless all are being sent away.
    fn open_listener(&mut self) {
        if !self.departures.is_draining() {
            self.listener.open(self.readers.epoll());
        }
    }
}
