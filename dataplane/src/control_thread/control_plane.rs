//! The connection to the control plane: attaching, reading, writing, and cutting off.

use std::time::Duration;

use super::link::ControlLink;
use super::{CONTROL_PLANE, ControlThread};
use crate::control::{self, Event};
use crate::counters;
use crate::sys::{self, EventFlags};
use crate::threads::Order;

/// Maximum bytes that wait for the control plane. All unanswered verbs of readers, with their
/// connections and auth states, must fit: they are sent at once when it attaches.
const OUTGOING_BYTES: usize = 192 << 20;
/// Bytes of commands owed by the I/O threads above which the control plane has to wait: its answers
/// can be a megabyte each, and no outbox counts them yet.
const OWED_BYTES: u64 = 32 << 20;
const BACKPRESSURE_PAUSE: Duration = Duration::from_millis(1);

/// The attached control plane.
pub(super) struct ControlPlane {
    pub(super) link: ControlLink,
    /// True if the socket is watched for room to write.
    blocked: bool,
    /// Number up to which it was notified that fan-outs are over.
    pub(super) published: u64,
    pub(super) wants_counters: bool,
    /// Number of readers in the last counters.
    pub(super) readers_reported: u32,
    sent: Vec<(String, u64)>,
}

impl ControlThread {
    pub(super) fn cut_off(&mut self, why: &str) {
        if let Some(plane) = self.control_plane.take() {
            for socket in plane.link.waiting_descriptors() {
                self.turn_away(socket);
            }
            self.threads.common.addresses.forget_handed_over();
            crate::log!(Info, "the control plane is gone: {why}");
            self.alone_since = self.now_ms();
            self.threads.queue_for_all(&Order::Detached);
        }
    }

    pub(super) fn on_control_plane(&mut self, ready: EventFlags, buffer: &mut [u8]) {
        if ready.contains(sys::WRITE) {
            self.flush();
        }
        if !ready.intersects(sys::READ | sys::DEAD) {
            return;
        }
        if self.threads.common.counters.iter().map(|one| one.pending_command_bytes()).sum::<u64>()
            > OWED_BYTES
        {
            // epoll reports again that there are bytes to read.
            std::thread::sleep(BACKPRESSURE_PAUSE);
            return;
        }
        let Some(plane) = self.control_plane.as_mut() else {
            return;
        };
        match plane.link.receive(buffer) {
            Ok(()) => {
                self.threads.common.liveness.record_received();
                self.serve_commands();
            }
            Err(why) => self.cut_off(&why),
        }
    }

    /// Make a peer that has sent `hello` the control plane.
    pub(super) fn attach(&mut self, link: ControlLink) {
        if let Some(plane) = &mut self.control_plane {
            // The newest wins: that is how a control plane is upgraded.
            plane.link.queue(&Event::Refused { why: "replaced" });
            self.flush();
        }
        self.cut_off("another control plane came");
        if let Err(error) = self.epoll.modify(link.fd(), sys::READ, CONTROL_PLANE) {
            crate::log!(Warning, "a control plane couldn't attach: {error}");
            return;
        }
        self.state.attachments += 1;
        crate::log!(Info, "control plane {} attached", self.state.attachments);
        let mut plane = ControlPlane {
            link,
            blocked: false,
            published: 0,
            wants_counters: true,
            readers_reported: 0,
            sent: Vec::new(),
        };
        plane.link.queue(&Event::Attached {
            version: control::VERSION,
            pid: std::process::id(),
            attachment: self.state.attachments,
            readers: self.threads.readers(),
            ports: &self.threads.ports,
            blob: &self.state.blob,
        });
        self.control_plane = Some(plane);
        self.publishing.forget();
        // Numbers of publications begin anew.
        self.published.fill(0);
        self.threads.queue_for_all(&Order::Attached(self.state.attachments));
        self.serve_commands();
    }

    /// Send all counters, changed or not.
    pub(super) fn send_counters(&mut self) {
        if let Some(plane) = self.control_plane.as_mut() {
            plane.sent.clear();
        }
        self.send_changes();
    }

    /// Send the counters that have changed since the last time, if any.
    pub(super) fn send_changes(&mut self) {
        let Some(plane) = self.control_plane.as_mut() else {
            return;
        };
        plane.readers_reported = self.threads.readers();
        let handed_over = self.threads.common.addresses.handed_over();
        let series = &self.publishing.series;
        let counters =
            counters::report(&self.threads.common.counters, series, self.draining, handed_over);
        let changes = counters::changes(&plane.sent, &counters);
        if !changes.is_empty() {
            plane.link.queue(&Event::Counters { counters: &changes });
        }
        plane.sent = counters;
    }

    pub(super) fn send(&mut self, event: &Event<'_>) {
        if let Some(plane) = &mut self.control_plane {
            plane.link.queue(event);
        }
    }

    /// Send waiting bytes to the control plane, as many as its socket takes.
    pub(super) fn flush(&mut self) {
        let Some(plane) = self.control_plane.as_mut() else {
            return;
        };
        let link = &mut plane.link;
        if let Err(error) = link.flush() {
            return self.cut_off(&error.to_string());
        }
        let waiting = link.waiting();
        if waiting > OUTGOING_BYTES {
            return self.cut_off("it doesn't read");
        }
        if plane.blocked != (waiting > 0) {
            plane.blocked = waiting > 0;
            let interest = if plane.blocked { sys::READ | sys::WRITE } else { sys::READ };
            if let Err(error) = self.epoll.modify(link.fd(), interest, CONTROL_PLANE) {
                self.cut_off(&error.to_string());
            }
        }
    }
}
