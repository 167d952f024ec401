//! What comes from the I/O threads as reports.

use super::ControlThread;
use crate::control::Event;
use crate::orders::Report;

impl ControlThread {
    pub(super) fn on_reports(&mut self, reports: &mut Vec<Report>) {
        self.threads.reports.take(reports);
        let (mut verbs, mut known) = (Vec::new(), Vec::new());
        for report in reports.drain(..) {
            match report {
                // What was asked in an earlier attachment is asked again by its thread.
                Report::Verb(attachment, name, auth, verb)
                    if attachment == self.state.attachments =>
                {
                    if auth.is_empty() {
                        verbs.push((name, verb));
                    } else {
                        known.push((name, auth, verb));
                    }
                }
                Report::Published(attachment, thread, number)
                    if attachment == self.state.attachments =>
                {
                    self.published[usize::from(thread)] = number;
                }
                Report::Verb(..) | Report::Published(..) => {}
                Report::Ended => self.ended += 1,
                Report::Given(attempt, given) => self.take_overs.on_given(attempt, given),
            }
        }
        // A batch must stay below the longest message.
        for batch in verbs.chunks(256) {
            let batch: Vec<_> = batch.iter().map(|(name, verb)| (*name, &verb[..])).collect();
            self.send(&Event::Verbs(&batch));
        }
        for batch in known.chunks(256) {
            let parts = batch.iter().map(|(name, auth, verb)| (*name, &auth[..], &verb[..]));
            self.send(&Event::VerbsWithAuth(&parts.collect::<Vec<_>>()));
        }
        self.send_published();
    }

    fn send_published(&mut self) {
        let published = self.published.iter().copied().min().unwrap_or(0);
        if let Some(plane) = &mut self.control_plane
            && published > plane.published
        {
            plane.published = published;
            plane.link.say(&Event::Published(published));
        }
    }
}
