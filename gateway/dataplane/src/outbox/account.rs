//! What all outboxes of one thread take together. Pure.
//!
//! A frame that a thousand readers wait for is in memory once, and counts once: readers of one topic
//! who are all a little behind, because the network is, take little. Each also has a place in each
//! queue it waits in, which counts too.
//!
//! The decision to question: it counts what is in memory, not the sum of what waits for each. By the
//! sum 100,000 readers who are each three messages behind would be over the budget, and a network that
//! stutters would cost most of them their connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::publication::Frame;

/// A place in a queue, and its story's in the list of stories.
pub const PLACE_BYTES: usize = 96;

/// All that waits on one thread.
#[derive(Debug, Default)]
pub struct Account {
    bytes: usize,
    /// How many wait for each frame, by its address: as long as one waits, no other frame is there.
    frames: HashMap<usize, u32>,
}

impl Account {
    /// What all of it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One more waits for `frame`.
    pub(super) fn enter(&mut self, frame: &Frame) {
        let waiting = self.frames.entry(address(frame)).or_default();
        if *waiting == 0 {
            self.bytes += frame.len();
        }
        *waiting += 1;
        self.bytes += PLACE_BYTES;
    }

    /// One of those who wait for `frame` doesn't any more.
    pub(super) fn leave(&mut self, frame: &Frame) {
        let Entry::Occupied(mut waiting) = self.frames.entry(address(frame)) else {
            return;
        };
        self.bytes -= PLACE_BYTES;
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
