//! The thread that talks to the control plane: commands in, events and descriptors out.
//!
//! It holds no reader and no topic: commands are checked, and passed on to the I/O threads in their
//! order. A control plane that breaks the protocol, or doesn't read, is cut off; readers don't
//! notice. After too long without a control plane, readers are sent away.
//!
//! A new connection is unidentified until its first message: `hello` makes it the control plane in
//! place of the earlier one, `take_over` a newer data plane that is given everything.

mod commands;
mod control_plane;
mod handovers;
mod link;
mod take_over;
mod unidentified;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::control::{ControlState, Event, Settings, Verbs};
use crate::sys::{self, Epoll};
use crate::threads::{Order, Report, Threads};

use commands::Publishing;
use control_plane::ControlPlane;
use handovers::HandoverWarning;
use take_over::TakeOvers;
use unidentified::UnidentifiedPeers;

/// Maximum number of verbs in one event, which so stays below the longest message. An I/O thread
/// should not have more to do at once than 32 answers of a megabyte, made as one.
const VERBS_AT_ONCE: usize = 32;
const READ_BYTES: usize = 256 * 1024;
const COUNTERS_MS: u64 = 1_000;
/// Time that threads have to end after the drain and the linger time.
const GRACE_MS: u64 = 2_000;

const LISTENER: u64 = 0;
const CONTROL_PLANE: u64 = 1;
const REPORTS: u64 = 2;
const SIGNALS: u64 = 3;
const HANDOVERS: u64 = 16;
/// Tokens of unidentified peers are numbered from here.
const UNIDENTIFIED: u64 = 1 << 32;

/// The control thread, with its state of the control plane and of the I/O threads.
pub struct ControlThread {
    epoll: Epoll,
    listener: OwnedFd,
    /// True if no connection is accepted until the next counters are sent.
    listener_paused: bool,
    signals: OwnedFd,
    threads: Threads,
    control_plane: Option<ControlPlane>,
    unidentified: UnidentifiedPeers,
    state: ControlState,
    publishing: Publishing,
    /// Number up to which the fan-outs of each thread are over.
    published: Vec<u64>,
    settings: Option<Arc<Settings>>,
    alone_since: u64,
    counters_at: u64,
    draining: bool,
    ended: usize,
    /// The last line logged about requests that couldn't be handed over.
    warning: HandoverWarning,
    /// Time at which the process ends, even if it isn't drained.
    ends_at: Option<u64>,
    take_overs: TakeOvers,
    started: Instant,
}

impl ControlThread {
    /// Listen on `listener` for control planes. `state` is empty without an older data plane.
    ///
    /// # Errors
    /// An error of the system, or `InvalidData` for invalid settings.
    pub fn new(
        listener: OwnedFd,
        signals: OwnedFd,
        threads: Threads,
        state: ControlState,
    ) -> io::Result<ControlThread> {
        let settings = state.decoded()?.map(Arc::new);
        let epoll = Epoll::new()?;
        epoll.add(listener.as_raw_fd(), sys::READ, LISTENER)?;
        epoll.add(signals.as_raw_fd(), sys::READ, SIGNALS)?;
        epoll.add(threads.common.reports.fd(), sys::READ, REPORTS)?;
        for (number, socket) in threads.handovers.iter().enumerate() {
            epoll.add(socket.as_raw_fd(), sys::READ, HANDOVERS + number as u64)?;
        }
        let published = vec![0; threads.orders.len()];
        Ok(ControlThread {
            epoll,
            listener,
            listener_paused: false,
            signals,
            threads,
            control_plane: None,
            unidentified: UnidentifiedPeers::default(),
            state,
            publishing: Publishing::default(),
            published,
            settings,
            alone_since: 0,
            counters_at: 0,
            draining: false,
            ended: 0,
            warning: HandoverWarning::default(),
            ends_at: None,
            take_overs: TakeOvers::default(),
            started: Instant::now(),
        })
    }

    /// Serve until the end; return true if another data plane has the readers and the socket.
    pub fn run(mut self) -> io::Result<bool> {
        let mut events = Vec::with_capacity(64);
        let mut reports = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        while !self.is_over() {
            let wait = (self.counters_at + COUNTERS_MS).saturating_sub(self.now_ms());
            self.epoll.wait(&mut events, wait)?;
            for event in &events {
                let token = event.data.u64();
                match token {
                    LISTENER => self.accept(),
                    CONTROL_PLANE => self.on_control_plane(event.flags, &mut buffer),
                    UNIDENTIFIED.. => self.on_unidentified(token, &mut buffer),
                    REPORTS => self.on_reports(&mut reports),
                    SIGNALS => self.on_signal(),
                    _ => drop(self.on_handover((token - HANDOVERS) as usize)),
                }
            }
            self.on_time();
            self.threads.flush_orders();
            self.flush();
        }
        crate::log!(Info, "{}", if self.take_overs.done { "taken over" } else { "drained" });
        Ok(self.take_overs.done)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    fn is_over(&self) -> bool {
        let late = self.ends_at.is_some_and(|at| self.now_ms() >= at);
        self.take_overs.done || self.ended == self.threads.orders.len() || late
    }

    fn on_time(&mut self) {
        let now_ms = self.now_ms();
        if now_ms >= self.counters_at + COUNTERS_MS {
            self.counters_at = now_ms;
            self.send_changes();
            self.log_rejected_handovers(now_ms);
            self.resume_listener();
        }
        self.unidentified.drop_expired(now_ms);
        if let Some(settings) = &self.settings
            && self.control_plane.is_none()
            && !self.draining
            && now_ms >= self.alone_since + u64::from(settings.alone_ms)
        {
            crate::log!(Warning, "no control plane for {} s", settings.alone_ms / 1_000);
            self.drain_as_set();
        }
    }

    fn on_signal(&mut self) {
        // The first signal is enough; later ones stay unread.
        let _ = self.epoll.remove(self.signals.as_raw_fd());
        self.drain_as_set();
    }

    /// Drain with the times of the settings; without settings there are no readers, so end.
    fn drain_as_set(&mut self) {
        match &self.settings {
            Some(settings) => self.drain(settings.drain_ms, settings.drain_per_second),
            None => self.ends_at = Some(0),
        }
    }

    fn drain(&mut self, spread_ms: u32, per_second: u32) {
        if self.draining {
            return;
        }
        self.draining = true;
        crate::log!(Info, "draining {} readers", self.threads.readers());
        let readers = u64::from(self.threads.readers());
        let linger = self.settings.as_ref().map_or(0, |it| it.linger_ms);
        // Every thread spreads its readers over the same time, however many it has: then the sum
        // keeps to the rate.
        let least_ms = (readers * 1_000).div_ceil(u64::from(per_second.max(1)));
        let spread_ms = u64::from(spread_ms).max(least_ms);
        self.ends_at = Some(self.now_ms() + spread_ms + u64::from(linger) + GRACE_MS);
        let spread_ms = u32::try_from(spread_ms).unwrap_or(u32::MAX);
        self.threads.queue_for_all(&Order::Drain(spread_ms, per_second));
    }

    fn on_reports(&mut self, reports: &mut Vec<Report>) {
        self.threads.common.reports.take_items(reports);
        let (mut verbs, mut count) = (Verbs::new(), 0);
        let attached = self.state.attachments;
        for report in reports.drain(..) {
            match report {
                Report::Verb(attachment, name, auth, verb) if attachment == attached => {
                    verbs.entry((auth, verb)).or_default().push(name);
                    count += 1;
                    if count % VERBS_AT_ONCE == 0 {
                        self.send(&Event::Verbs { verbs: &std::mem::take(&mut verbs) });
                    }
                }
                Report::Published(attachment, thread, number) if attachment == attached => {
                    self.published[usize::from(thread)] = number;
                }
                // A verb asked in an earlier attachment is asked again by its thread.
                Report::Verb(..) | Report::Published(..) => {}
                Report::Full(address) => self.send(&Event::Full { address }),
                Report::Ended => self.ended += 1,
                Report::StateSent(attempt, sent) => self.take_overs.on_state_sent(attempt, sent),
            }
        }
        if !verbs.is_empty() {
            self.send(&Event::Verbs { verbs: &verbs });
        }
        let published = self.published.iter().copied().min().unwrap_or(0);
        if let Some(plane) = &mut self.control_plane
            && published > plane.published
        {
            plane.published = published;
            plane.link.queue(&Event::Published { number: published });
        }
    }
}
