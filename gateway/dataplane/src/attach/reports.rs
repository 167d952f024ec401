//! What comes from the I/O threads: reports, and connections that are the control plane's to serve.

use std::os::fd::{AsRawFd, OwnedFd};

use super::Attachment;
use crate::control::{BADGES, Event};
use crate::head::Refusal;
use crate::orders::Report;
use crate::sys;

/// Connections that may wait for the control plane.
const DESCRIPTORS: usize = 1_024;

impl Attachment {
    pub(super) fn on_reports(&mut self, reports: &mut Vec<Report>) {
        self.threads.reports.take(reports);
        let (mut verbs, mut badged) = (Vec::new(), Vec::new());
        for report in reports.drain(..) {
            match report {
                // What was asked in an earlier attachment is asked again by its thread.
                Report::Verb(attachment, name, badge, verb)
                    if attachment == self.heritage.attachments =>
                {
                    if badge.is_empty() || !self.speaks_badges() {
                        verbs.push((name, verb));
                    } else {
                        badged.push((name, badge, verb));
                    }
                }
                Report::Uncovered(attachment, connection, token, why, text)
                    if attachment == self.heritage.attachments =>
                {
                    self.send(&Event::Uncovered { connection, token, why, text: &text });
                }
                Report::Published(attachment, thread, number)
                    if attachment == self.heritage.attachments =>
                {
                    self.published[usize::from(thread)] = number;
                }
                Report::Verb(..) | Report::Uncovered(..) | Report::Published(..) => {}
                Report::Gone => self.gone += 1,
                Report::Yielded(attempt, given) if attempt == self.attempts => {
                    self.given = self.given.filter(|_| given).map(|count| count + 1);
                }
                Report::Yielded(..) => {}
            }
        }
        // A batch must stay below the longest message.
        for batch in verbs.chunks(256) {
            let batch: Vec<_> = batch.iter().map(|(name, verb)| (*name, &verb[..])).collect();
            self.send(&Event::Verbs(&batch));
        }
        for batch in badged.chunks(256) {
            let parts = batch.iter().map(|(name, badge, verb)| (*name, &badge[..], &verb[..]));
            self.send(&Event::Badged(&parts.collect::<Vec<_>>()));
        }
        self.send_published();
    }

    /// To one that is older a reader with a badge is nobody in particular.
    fn speaks_badges(&self) -> bool {
        self.plane.as_ref().is_some_and(|plane| plane.version >= BADGES)
    }

    fn send_published(&mut self) {
        let published = self.published.iter().copied().min().unwrap_or(0);
        if let Some(plane) = &mut self.plane
            && published > plane.published
        {
            plane.published = published;
            plane.link.say(&Event::Published(published));
        }
    }

    /// A connection that is the control plane's to serve; false if there is none.
    pub(super) fn on_hatch(&mut self, number: usize) -> bool {
        let mut address = [0; 128];
        let Some(hatch) = self.threads.hatches.get(number) else {
            return false;
        };
        let Ok((count, Some(socket))) = sys::receive_descriptor(hatch.as_raw_fd(), &mut address)
        else {
            return false;
        };
        let address = String::from_utf8_lossy(&address[..count]);
        let readers = self.threads.readers();
        if self.plane.as_ref().is_some_and(|plane| plane.readers_told != readers) {
            // The control plane lets readers in too: it must know whether there is room.
            self.send_changes();
        }
        let plane = self.plane.as_mut();
        match plane.filter(|plane| plane.link.waiting_descriptors() < DESCRIPTORS) {
            Some(plane) => plane.link.pass(&Event::Handover { address: &address }, socket),
            None => self.turn_away(&socket),
        }
        true
    }

    pub(super) fn turn_away(&self, socket: &OwnedFd) {
        let retry_after_ms = self.policy.as_ref().map_or(1_000, |it| it.settings.retry_after_ms);
        let mut answer = Vec::new();
        Refusal::NotNow { why: "control", retry_after_ms }.put(&mut answer);
        // A reader that doesn't take it has a full socket before the first answer: no loss.
        let _ = sys::send(socket.as_raw_fd(), &answer);
        sys::finish_writing(socket.as_raw_fd());
        // What was not read makes a close a reset, which destroys the answer. Requests are small.
        let mut request = [0; 16 * 1024];
        let _ = sys::receive(socket.as_raw_fd(), &mut request);
    }
}
