//! A queue between two threads, with an alarm that wakes the one who reads it.
//!
//! Many may put, one takes. Whoever takes gets everything at once, so the lock is held for a swap.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The queue. Its bound is the business of those who put.
pub struct Mailbox<T> {
    items: Mutex<Vec<T>>,
    /// An eventfd.
    alarm: OwnedFd,
}

impl<T> Mailbox<T> {
    pub fn new() -> io::Result<Mailbox<T>> {
        let alarm = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { items: Mutex::new(Vec::new()), alarm })
    }

    /// Put all of `items` at the end, and wake the reader if it may be asleep.
    pub fn put_all(&self, items: &mut Vec<T>) {
        if items.is_empty() {
            return;
        }
        let mut there = self.lock();
        let first = there.is_empty();
        there.append(items);
        drop(there);
        // With more than those, whoever put the first has rung.
        if first {
            // It can only fail when it rings already.
            let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
        }
    }

    /// Take everything, in the order in which it was put. `into` must be empty.
    pub fn take(&self, into: &mut Vec<T>) {
        // It can only fail when it doesn't ring.
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        mem::swap(&mut *self.lock(), into);
    }

    /// Readable while there is something to take.
    pub fn fd(&self) -> RawFd {
        self.alarm.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // A panic ends the process, so there is nothing that could have poisoned it.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_taken_in_order_and_once() {
        let mailbox = Mailbox::new().expect("an eventfd");
        mailbox.put_all(&mut vec![1]);
        mailbox.put_all(&mut vec![2]);
        let mut taken = Vec::new();
        mailbox.take(&mut taken);
        assert_eq!(taken, [1, 2]);
        taken.clear();
        mailbox.take(&mut taken);
        assert!(taken.is_empty());
    }
}
