//! The older data plane's side of a take-over, in the control thread.
//!
//! The thread does nothing else during a take-over: commands and new connections wait in the
//! kernel. So every I/O thread has carried out the same orders when it gives its state.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ControlThread;
use super::link::ControlLink;
use crate::control::{self, Command, Event, Offer};
use crate::sys::{self, Epoll};
use crate::take_over::{Attempt, record};
use crate::threads::Order;

/// Maximum wait for a control plane that doesn't read, before this process ends.
const FAREWELL: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 4_096;

const NEWER: u64 = 0;
const REPORTS: u64 = 1;
const SIGNALS: u64 = 2;

/// Attempts of newer data planes to take over.
#[derive(Default)]
pub(super) struct TakeOvers {
    attempts: u32,
    /// Number of threads that have given everything in the last attempt; `None` if one has failed.
    sent: Option<usize>,
    /// True if everything is another data plane's.
    pub(super) done: bool,
}

impl TakeOvers {
    fn begin(&mut self) -> Arc<Attempt> {
        self.attempts += 1;
        self.sent = Some(0);
        Arc::new(Attempt::new(self.attempts))
    }

    /// Record that a thread has given everything in an attempt, or failed; ignore earlier ones.
    pub(super) fn on_state_sent(&mut self, attempt: u32, sent: bool) {
        if attempt == self.attempts {
            self.sent = self.sent.filter(|_| sent).map(|count| count + 1);
        }
    }
}

impl ControlThread {
    /// Give everything to `newer`, which reads states up to `format`; after a failure serve on.
    pub(super) fn take_over_by(&mut self, mut newer: ControlLink, format: u16) {
        let attempt = self.take_overs.begin();
        match self.send_state(&mut newer, format, &attempt) {
            Ok(()) => {
                self.take_overs.done = true;
                self.detach_control_plane();
            }
            Err(error) => {
                crate::log!(Warning, "a newer data plane couldn't take over: {error}");
                attempt.fail();
                newer.queue(&Event::Refused { why: &error.to_string() });
                // A newer data plane that doesn't read is gone.
                let _ = newer.flush();
            }
        }
    }

    fn send_state(
        &mut self,
        to: &mut ControlLink,
        format: u16,
        attempt: &Arc<Attempt>,
    ) -> io::Result<()> {
        if self.draining {
            return Err(io::Error::other("readers are being sent away"));
        }
        if format < record::FORMAT {
            return Err(io::Error::other("it doesn't read our format"));
        }
        let epoll = Epoll::new()?;
        epoll.add(to.fd(), sys::READ, NEWER)?;
        epoll.add(self.threads.common.reports.fd(), sys::READ, REPORTS)?;
        epoll.add(self.signals.as_raw_fd(), sys::READ, SIGNALS)?;
        let offer = Offer {
            pid: std::process::id(),
            format: record::FORMAT,
            options: self.threads.common.options,
            ports: self.threads.ports.clone(),
            state: self.state.clone(),
        };
        to.queue_with_descriptor(&Event::Offer { offer }, self.listener.try_clone()?);
        self.make_state_sockets(to, attempt)?;
        self.threads.queue_for_all(&Order::SendState(attempt.clone()));
        self.threads.flush_orders();
        to.flush_until(attempt.deadline)?;
        self.wait_for_commit(to, &epoll, attempt.deadline)?;
        // Once these bytes are in the socket, everything is the newer data plane's.
        to.queue(&Event::Yours {});
        to.flush_until(attempt.deadline)
    }

    /// Connect each thread with its counterpart in the newer data plane.
    fn make_state_sockets(&self, to: &mut ControlLink, attempt: &Attempt) -> io::Result<()> {
        let number = attempt.number.to_le_bytes();
        for (thread, socket) in self.threads.handovers.iter().enumerate() {
            let (ours, theirs) = sys::stream_pair()?;
            sys::send_descriptor(socket.as_raw_fd(), &number, ours.as_raw_fd())?;
            to.queue_with_descriptor(&Event::StateSocket { thread: thread as u16 }, theirs);
        }
        Ok(())
    }

    fn wait_for_commit(
        &mut self,
        to: &mut ControlLink,
        epoll: &Epoll,
        by: Instant,
    ) -> io::Result<()> {
        let mut events = Vec::with_capacity(4);
        let mut reports = Vec::new();
        let mut committed = false;
        while !committed || self.take_overs.sent != Some(self.threads.orders.len()) {
            let left = by.saturating_duration_since(Instant::now()).as_millis() as u64;
            epoll.wait(&mut events, left)?;
            if left == 0 && events.is_empty() {
                return Err(io::Error::other("it wasn't ready in time"));
            }
            for event in &events {
                match event.data.u64() {
                    NEWER => committed |= read_commit(to)?,
                    REPORTS => self.on_reports(&mut reports),
                    SIGNALS => return Err(io::Error::other("we were ordered to end")),
                    _ => {}
                }
            }
            if self.take_overs.sent.is_none() {
                return Err(io::Error::other("not everything could be sent"));
            }
        }
        Ok(())
    }

    /// Pass pending handovers on to the control plane, then tell it to attach again.
    fn detach_control_plane(&mut self) {
        for number in 0..self.threads.handovers.len() {
            while self.on_handover(number) {}
        }
        if let Some(plane) = &mut self.control_plane {
            plane.link.queue(&Event::Refused { why: "taken_over" });
            if let Err(error) = plane.link.flush_until(Instant::now() + FAREWELL) {
                self.cut_off(&error.to_string());
            }
        }
    }
}

/// Return whether the newer data plane has sent `commit`.
fn read_commit(newer: &mut ControlLink) -> io::Result<bool> {
    newer.receive(&mut [0; READ_BYTES]).map_err(io::Error::other)?;
    match control::split(&newer.incoming)? {
        None => Ok(false),
        Some((kind, body, _)) if Command::decode(kind, body)? == Command::Commit {} => Ok(true),
        Some(_) => Err(io::Error::other("it sent something else than commit")),
    }
}
