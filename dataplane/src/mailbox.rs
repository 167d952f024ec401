//! A queue between threads, with an alarm that wakes the consumer.
//!
//! Many threads put, one takes. A take removes all items at once, so the lock is held only for a
//! swap.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// The queue. The callers that put items are responsible for its bound.
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

    /// Append all of `items`, and wake the consumer if it may be asleep.
    pub fn put_all(&self, items: &mut Vec<T>) {
        if items.is_empty() {
            return;
        }
        let mut there = self.lock();
        let first = there.is_empty();
        there.append(items);
        drop(there);
        // If the queue wasn't empty, the alarm was raised when its first item was put.
        if first {
            // A write can only fail if the alarm is already raised.
            let _ = rustix::io::write(&self.alarm, &1_u64.to_ne_bytes());
        }
    }

    /// Take all items, in the order in which they were put. `into` must be empty.
    pub fn take_items(&self, into: &mut Vec<T>) {
        // A read can only fail if the alarm isn't raised.
        let _ = rustix::io::read(&self.alarm, &mut [0; 8]);
        mem::swap(&mut *self.lock(), into);
    }

    /// Return the alarm's descriptor: readable while there are items to take.
    pub fn fd(&self) -> RawFd {
        self.alarm.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // A panic ends the process, so the lock can't be poisoned.
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
        mailbox.take_items(&mut taken);
        assert_eq!(taken, [1, 2]);
        taken.clear();
        mailbox.take_items(&mut taken);
        assert!(taken.is_empty());
    }
}
