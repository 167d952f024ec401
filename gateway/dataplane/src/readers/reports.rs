//! What an I/O thread has to report, kept for a moment so that it leaves many at a time.

use std::sync::Arc;

use crate::mailbox::Mailbox;
use crate::orders::Report;

/// A report waits so long for others, while readers go on talking, and until there are so many: a
/// crowd's verbs are asked and answered many at a time, instead of a few between two of its readers.
const GATHER_MS: u64 = 2;
const GATHER: usize = 256;

/// Reports on their way to the thread that talks to the control plane.
pub(super) struct Reports {
    to: Arc<Mailbox<Report>>,
    waiting: Vec<Report>,
    since_ms: u64,
}

impl Reports {
    pub(super) fn new(to: Arc<Mailbox<Report>>) -> Reports {
        Reports { to, waiting: Vec::new(), since_ms: 0 }
    }

    pub(super) fn add(&mut self, report: Report, now_ms: u64) {
        if self.waiting.is_empty() {
            self.since_ms = now_ms;
        }
        self.waiting.push(report);
    }

    pub(super) fn are_due(&self, now_ms: u64) -> bool {
        self.waiting.len() >= GATHER || now_ms >= self.since_ms + GATHER_MS
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn send(&mut self) {
        self.to.put_all(&mut self.waiting);
    }
}
