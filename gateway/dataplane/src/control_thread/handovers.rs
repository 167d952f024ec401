//! Connections that are the control plane's to serve, on their way from the I/O threads.
//!
//! They go on counting with their address, and among those that are handed over, until the control plane
//! says `gone`, or is gone itself.

use std::os::fd::{AsRawFd, OwnedFd};

use super::ControlThread;
use crate::control::{Event, typed};
use crate::counters::Count;
use crate::head::{Busy, Refusal};
use crate::sys;
use crate::threads::Handover;

/// Connections that may wait for the control plane.
const DESCRIPTORS: usize = 1_024;
/// The same trouble is told so often.
const COMPLAIN_MS: u64 = 60_000;

/// How many requests couldn't be handed over when that was said last, and when it was.
#[derive(Default)]
pub(super) struct Complaint {
    said_ms: Option<u64>,
    count: u64,
}

impl ControlThread {
    /// A connection that is the control plane's to serve; false if there is none.
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
            // Our table is full: that costs this request.
            self.threads.common.addresses.turned_away(address, counted);
            return true;
        };
        let readers = self.threads.readers();
        if self.control_plane.as_ref().is_some_and(|plane| plane.readers_told != readers) {
            // The control plane lets readers in too: it must know whether there is room.
            self.send_changes();
        }
        let plane = self.control_plane.as_mut();
        match plane.filter(|plane| plane.link.waiting_descriptors().len() < DESCRIPTORS) {
            Some(plane) => {
                let text = address.to_string();
                plane.link.pass(&Event::Handover(&text), socket);
                self.threads.common.addresses.arrived(address, counted);
            }
            None => {
                self.threads.common.addresses.turned_away(address, counted);
                self.turn_away(&socket);
            }
        }
        true
    }

    /// Say that requests couldn't be handed over, if that is news.
    pub(super) fn complain_of_handovers(&mut self, now_ms: u64) {
        let all = self.threads.common.counters.iter().map(|one| one.get(Count::RejectedHandovers));
        let count: u64 = all.sum();
        let due = self.complaint.said_ms.is_none_or(|at| now_ms >= at + COMPLAIN_MS);
        if count > self.complaint.count && due {
            crate::tell!(
                Warning,
                "{} requests turned away: the control plane serves as many connections as it may, {}",
                count - self.complaint.count,
                self.threads.common.addresses.handed_over(),
            );
            self.complaint = Complaint { said_ms: Some(now_ms), count };
        }
    }

    pub(super) fn turn_away(&self, socket: &OwnedFd) {
        let retry_after_ms = self.settings.as_ref().map_or(1_000, |it| it.retry_after_ms);
        let mut answer = Vec::new();
        Refusal::NotNow { why: Busy::Control, retry_after_ms }.put(&mut answer);
        // A reader that doesn't take it has a full socket before the first answer: no loss.
        let _ = sys::send(socket.as_raw_fd(), &answer);
        sys::finish_writing(socket.as_raw_fd());
        // What was not read makes a close a reset, which destroys the answer. Requests are small.
        let mut request = [0; 16 * 1024];
        let _ = sys::receive(socket.as_raw_fd(), &mut request);
    }
}
