//! What comes from the I/O threads as reports.

use super::Attachment;
use crate::control::{BADGES, Event};
use crate::orders::Report;

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
}
