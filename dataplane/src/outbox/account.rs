//! The memory that all outboxes of one thread take together. Pure.
//!
//! A frame that a thousand readers wait for is in memory once, and counts once. So readers of one
//! topic that are all a little behind, because of the network, take little memory. Each reader's
//! entry in a queue counts too.
//!
//! The decision to question: the account counts bytes in memory, not the sum over all readers. By
//! that sum 100,000 readers that are three messages behind would exceed the budget, and a short
//! fault of the network would cost most of them their connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::publication::Frame;

/// Bytes of an entry in a queue, with its entry in the map of stories.
pub const QUEUE_ENTRY_BYTES: usize = 96;

/// All frames that wait on one thread.
#[derive(Debug, Default)]
pub struct Account {
    bytes: usize,
    /// Number of entries per waiting frame, by address: no other frame gets it while one waits.
    frames: HashMap<usize, u32>,
}

impl Account {
    /// Return the bytes of all waiting frames and entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Count one more entry that waits for `frame`.
    pub(super) fn add(&mut self, frame: &Frame) {
        let waiting = self.frames.entry(address(frame)).or_default();
        if *waiting == 0 {
            self.bytes += frame.len();
        }
        *waiting += 1;
        self.bytes += QUEUE_ENTRY_BYTES;
    }

    /// Count one entry fewer that waits for `frame`.
    pub(super) fn remove(&mut self, frame: &Frame) {
        let Entry::Occupied(mut waiting) = self.frames.entry(address(frame)) else {
            return;
        };
        self.bytes -= QUEUE_ENTRY_BYTES;
        *waiting.get_mut() -= 1;
        if *waiting.get() == 0 {
            waiting.remove();
            self.bytes -= frame.len();
        }
    }
}

fn address(frame: &Frame) -> usize {
    frame.as_ptr() as usize
}
