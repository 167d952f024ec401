//! The older data plane's side of a take-over, in the thread that talks to control planes.
//!
//! It does nothing else while that lasts: commands of the control plane, and whoever connects, wait
//! in the kernel. So every thread has obeyed the same orders when it gives what it has.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Attachment;
use super::link::Link;
use crate::control::{self, Command, Event, Offer};
use crate::inherit::{Yielding, malformed, record};
use crate::orders::Order;
use crate::sys::{self, Epoll};

/// A control plane that doesn't read isn't waited for longer when we go.
const FAREWELL: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 4_096;

const SUCCESSOR: u64 = 0;
const REPORTS: u64 = 1;
const SIGNALS: u64 = 2;

impl Attachment {
    /// Give everything to `successor`, which reads states up to `format`; or serve on.
    pub(super) fn yield_to(&mut self, mut successor: Link, format: u16) {
        self.attempts += 1;
        self.given = Some(0);
        let yielding = Arc::new(Yielding::new(self.attempts));
        match self.give(&mut successor, format, &yielding) {
            Ok(()) => {
                self.taken_over = true;
                self.say_farewell();
            }
            Err(error) => {
                crate::tell!(Warning, "a newer data plane couldn't take over: {error}");
                yielding.serve_on();
                successor.say(&Event::Refused(&error.to_string()));
                // One that doesn't read is gone.
                let _ = successor.flush();
            }
        }
    }

    fn give(&mut self, to: &mut Link, format: u16, yielding: &Arc<Yielding>) -> io::Result<()> {
        if self.draining {
            return Err(io::Error::other("readers are being sent away"));
        }
        if format < record::FORMAT {
            return Err(io::Error::other("it doesn't read our format"));
        }
        let epoll = Epoll::new()?;
        epoll.add(to.fd(), sys::READ, SUCCESSOR)?;
        epoll.add(self.threads.reports.fd(), sys::READ, REPORTS)?;
        epoll.add(self.signals.as_raw_fd(), sys::READ, SIGNALS)?;
        self.offer(to)?;
        self.make_lanes(to)?;
        self.threads.tell(&Order::Yield(yielding.clone()));
        self.threads.deliver();
        to.flush_until(yielding.deadline)?;
        self.wait_for_commit(to, &epoll, yielding.deadline)?;
        // When these bytes are in the socket, everything is the newer one's.
        to.say(&Event::Yours);
        to.flush_until(yielding.deadline)
    }

    fn offer(&self, to: &mut Link) -> io::Result<()> {
        let offer = Event::Offer(Offer {
            pid: std::process::id(),
            format: record::FORMAT,
            threads: self.threads.orders.len() as u16,
            proxied: self.threads.proxied,
            echo: self.threads.echo,
            attachments: self.heritage.attachments,
            ports: self.threads.ports.clone(),
            settings: &self.heritage.settings,
            blob: &self.heritage.blob,
        });
        to.pass(&offer, self.door.try_clone()?);
        Ok(())
    }

    /// A socket between each thread and its successor.
    fn make_lanes(&self, to: &mut Link) -> io::Result<()> {
        let attempt = self.attempts.to_le_bytes();
        for (number, hatch) in self.threads.hatches.iter().enumerate() {
            let (ours, theirs) = sys::stream_pair()?;
            sys::send_descriptor(hatch.as_raw_fd(), &attempt, ours.as_raw_fd())?;
            to.pass(&Event::Lane(number as u16), theirs);
        }
        Ok(())
    }

    fn wait_for_commit(&mut self, to: &mut Link, epoll: &Epoll, by: Instant) -> io::Result<()> {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 4];
        let mut reports = Vec::new();
        let mut committed = false;
        while !committed || self.given != Some(self.threads.orders.len()) {
            let left = by.saturating_duration_since(Instant::now()).as_millis() as i32;
            let found = epoll.wait(&mut events, left)?;
            if left == 0 && found.is_empty() {
                return Err(io::Error::other("it wasn't ready in time"));
            }
            for event in found {
                match event.u64 {
                    SUCCESSOR => committed |= hear_commit(to)?,
                    REPORTS => self.on_reports(&mut reports),
                    SIGNALS => return Err(io::Error::other("we are told to end")),
                    _ => {}
                }
            }
            if self.given.is_none() {
                return Err(io::Error::other("not everything could be given"));
            }
        }
        Ok(())
    }

    /// What was on its way to the control plane goes there still; then it shall attach again.
    fn say_farewell(&mut self) {
        for number in 0..self.threads.hatches.len() {
            while self.on_hatch(number) {}
        }
        if let Some(plane) = &mut self.plane {
            plane.link.say(&Event::Refused("taken_over"));
            if let Err(error) = plane.link.flush_until(Instant::now() + FAREWELL) {
                self.cut_off(&error.to_string());
            }
        }
    }
}

/// Whether the newer one has said that it is ready.
fn hear_commit(successor: &mut Link) -> io::Result<bool> {
    successor.receive(&mut [0; READ_BYTES]).map_err(io::Error::other)?;
    let Some((kind, body, _)) = control::split(&successor.incoming).map_err(malformed)? else {
        return Ok(false);
    };
    match Command::decode(kind, body).map_err(malformed)? {
        Command::Commit => Ok(true),
        _ => Err(io::Error::other("it said something else than commit")),
    }
}
