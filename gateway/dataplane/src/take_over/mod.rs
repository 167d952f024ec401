//! Take-over: a newer data plane receives everything from an older one, and no reader notices.
//!
//! The older one's I/O threads stop between two turns, give what they have straight to the newer
//! one's (each over a socket of its own, because descriptors live in the threads' private tables),
//! and wait. When the newer one has everything it says `commit`; with the older one's answer
//! `yours` the readers are the newer one's, and the older process ends without touching a socket.
//! Until that answer the older one can change its mind at any moment, and go on as if nothing had
//! been: it still has every descriptor, and nothing was read or written meanwhile.
//!
//! `docs/dataplane-protocol.md` has the messages, `docs/design/0006-take-over.md` what happens when either dies.
//!
//! The decision to question: readers wait while it lasts, instead of being moved one by one. So
//! "nothing lost or doubled" follows from one moment in which nobody serves them, and that
//! moment is short (a fifth of a second for 15,000 readers on two cores).

pub(crate) mod lane;
mod newer;
pub mod record;
pub(crate) mod shared;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use newer::take_over;

/// After this time without a `commit` the older data plane serves on.
pub const COMMIT_WITHIN: Duration = Duration::from_secs(5);

/// One attempt of a newer data plane, seen by the older one's threads.
#[derive(Debug)]
pub struct Attempt {
    /// Its number.
    pub number: u32,
    /// When it is given up.
    pub deadline: Instant,
    /// What was given by some thread already, by address, and the number it has.
    given: Mutex<HashMap<usize, u32>>,
    failed: Mutex<bool>,
    changed: Condvar,
}

impl Attempt {
    /// One that begins now.
    pub fn new(number: u32) -> Attempt {
        Attempt {
            number,
            deadline: Instant::now() + COMMIT_WITHIN,
            given: Mutex::default(),
            failed: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// It came to nothing: everybody serves on.
    pub fn fail(&self) {
        *lock(&self.failed) = true;
        self.changed.notify_all();
    }

    /// Return when it has come to nothing. If it succeeds the process ends meanwhile.
    pub(crate) fn wait_until_failed(&self) {
        drop(self.changed.wait_while(lock(&self.failed), |failed| !*failed));
    }

    /// The number of a message or frame, and whether it is new: then it must be given. It is known by its
    /// address, which stays what it is: whoever has given something keeps it until this is over.
    pub(crate) fn number_of<T: ?Sized>(&self, shared: &Arc<T>) -> (u32, bool) {
        let mut given = lock(&self.given);
        let next = given.len() as u32;
        match given.entry(Arc::as_ptr(shared).cast::<()>() as usize) {
            Entry::Occupied(found) => (*found.get(), false),
            Entry::Vacant(place) => (*place.insert(next), true),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the process, so there is nothing that could have poisoned it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
