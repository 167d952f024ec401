//! Orders carried out on this thread: what is about its readers one by one is [`Readers::serve`].
//!
//! [`Readers::serve`]: crate::readers::Readers::serve

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::Reactor;
use crate::closing::CloseReason;
use crate::control::Command;
use crate::orders::{Order, Report};
use crate::sys;
use crate::take_over::Attempt;

impl Reactor {
    pub(super) fn carry_out(&mut self, order: Order) {
        match order {
            Order::Policy(policy) => {
                self.readers.set_policy(policy);
                self.open_listener();
            }
            Order::Attached(attachment) => {
                self.batches.clear();
                self.readers.attached(attachment);
            }
            Order::Detached => self.readers.detached(),
            Order::Publish(number, publication) => self.readers.publish(number, &publication),
            Order::Batch(number, batch) => self.batches.add(number, batch),
            Order::Command(kind, body) => {
                // It was decoded before, on the way here.
                if let Ok(command) = Command::decode(kind, &body) {
                    self.readers.serve(&command, &self.batches);
                }
                self.readers.counters().carried_out(body.len());
            }
            Order::Evict(eviction) => self.readers.evict(&eviction),
            Order::Drain(spread_ms, per_second) => self.start_drain(spread_ms, per_second),
            Order::Shed(reason, count, retry_ms) => {
                self.shed(CloseReason::of(&reason), count, retry_ms);
            }
            Order::GiveAll(attempt) => self.give_all(&attempt),
        }
    }

    /// Give everything to a newer data plane; the lane waits among the handovers. Returns only if that
    /// came to nothing, and then nothing has changed.
    fn give_all(&mut self, attempt: &Attempt) {
        // What was published before this order goes out from here, all of it.
        while self.readers.has_fanouts() {
            self.readers.send_some();
        }
        self.readers.end_broken();
        let given = self
            .lane(attempt)
            .and_then(|lane| self.readers.save(lane, attempt, self.listener.fd()));
        if let Err(error) = &given {
            crate::tell!(Error, "I/O thread {} couldn't give its readers: {error}", self.number);
        }
        self.readers.report(Report::Given(attempt.number, given.is_ok()));
        self.readers.send_reports();
        attempt.wait_until_failed();
    }

    fn lane(&self, attempt: &Attempt) -> io::Result<OwnedFd> {
        let mut number = [0; 4];
        loop {
            let (_, lane) = sys::receive_descriptor(self.handovers.as_raw_fd(), &mut number)?;
            // That of an attempt which failed before this thread was told may lie there still.
            if number == attempt.number.to_le_bytes() {
                return lane.ok_or_else(|| io::ErrorKind::NotFound.into());
            }
        }
    }
}
