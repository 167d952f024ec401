//! Connections that the control plane has to serve, on their way from the I/O threads.
//!
//! They count under their address, and as handed over, until the control plane sends `gone`, or has
//! left itself.

use std::os::fd::{AsRawFd, OwnedFd};

use super::ControlThread;
use crate::control::{Event, typed};
use crate::counters::Count;
use crate::head::{Busy, HttpRefusal};
use crate::sys;
use crate::threads::Handover;

/// Maximum number of connections that wait for the control plane.
const DESCRIPTORS: usize = 1_024;
/// Minimum time between two lines about the same trouble.
const LOG_INTERVAL_MS: u64 = 60_000;

/// Time of the last line about requests that couldn't be handed over, and their number then.
#[derive(Default)]
pub(super) struct HandoverWarning {
    logged_ms: Option<u64>,
    count: u64,
}

impl ControlThread {
    /// Pass on a connection from an I/O thread to the control plane; return false if none waits.
    pub(super) fn on_handover(&mut self, number: usize) -> bool {
        let mut note = [0; 128];
        let Some(socket) = self.threads.handovers.get(number) else {
            return false;
        };
        let Ok((count, socket)) = sys::receive_descriptor(socket.as_raw_fd(), &mut note) else {
            return false;
        };
        let Some(Handover { address, counted }) = typed(&note[..count]) else {
            return false;
        };
        let Some(socket) = socket else {
            // Our descriptor table is full, so this connection is lost.
            self.threads.common.addresses.cancel_handover(address, counted);
            return true;
        };
        let readers = self.threads.readers();
        if self.control_plane.as_ref().is_some_and(|plane| plane.readers_reported != readers) {
            // The control plane lets readers in, too: it must know whether there is room.
            self.send_changes();
        }
        let plane = self.control_plane.as_mut();
        match plane.filter(|plane| plane.link.waiting_descriptors().len() < DESCRIPTORS) {
            Some(plane) => {
                plane.link.queue_with_descriptor(&Event::Handover { address }, socket);
                self.threads.common.addresses.finish_handover(address, counted);
            }
            None => {
                self.threads.common.addresses.cancel_handover(address, counted);
                self.turn_away(&socket);
            }
        }
        true
    }

    /// Log that requests couldn't be handed over, if their number has grown and a line is due.
    pub(super) fn log_rejected_handovers(&mut self, now_ms: u64) {
        let all = self.threads.common.counters.iter().map(|one| one.get(Count::RejectedHandovers));
        let count: u64 = all.sum();
        let due = self.warning.logged_ms.is_none_or(|at| now_ms >= at + LOG_INTERVAL_MS);
        if count > self.warning.count && due {
            crate::log!(
                Warning,
                "{} requests turned away: the control plane serves as many connections as it may, {}",
                count - self.warning.count,
                self.threads.common.addresses.handed_over(),
            );
            self.warning = HandoverWarning { logged_ms: Some(now_ms), count };
        }
    }

    pub(super) fn turn_away(&self, socket: &OwnedFd) {
        let retry_after_ms = self.settings.as_ref().map_or(1_000, |it| it.retry_after_ms);
        let mut answer = Vec::new();
        HttpRefusal::Unavailable { why: Busy::NoControlPlane, retry_after_ms }.put(&mut answer);
        // A reader whose socket is full before the first answer doesn't read: no loss.
        let _ = sys::send(socket.as_raw_fd(), &answer);
        sys::finish_writing(socket.as_raw_fd());
        // Unread bytes make a close a reset, which destroys the answer. Requests are small.
        let mut request = [0; 16 * 1024];
        let _ = sys::receive(socket.as_raw_fd(), &mut request);
    }
}
