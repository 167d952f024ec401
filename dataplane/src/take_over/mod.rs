//! Take-over: a newer data plane receives everything from an older one, and no reader notices.
//!
//! The I/O threads of the older data plane stop between two turns. They give their state directly
//! to the newer one's threads, each over a socket of its own, because descriptors are in the
//! threads' private tables. Then they wait. When the newer one has everything it sends `commit`.
//! With the older one's answer `yours` the readers are the newer one's, and the older process ends
//! without touching a socket. Until that answer the older one can serve on at any moment: it still
//! has every descriptor, and no byte was read or written meanwhile.
//!
//! `docs/dataplane-protocol.md` has the messages, `docs/design/0006-take-over.md` the failures of
//! either side.
//!
//! The decision to question: all readers wait during a take-over, instead of being moved one by
//! one. So "nothing lost or doubled" follows from one moment in which no process serves them. That
//! moment is short (a fifth of a second for 15,000 readers on two cores).

mod newer;
pub mod record;
pub(crate) mod shared;
pub(crate) mod state_socket;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use newer::take_over;

/// Time without a `commit` after which the older data plane serves on.
pub const COMMIT_WITHIN: Duration = Duration::from_secs(5);

/// An attempt of a newer data plane, as the older one's threads see it.
#[derive(Debug)]
pub struct Attempt {
    /// Number of the attempt.
    pub number: u32,
    /// Time at which the attempt is given up.
    pub deadline: Instant,
    /// Numbers of the messages and frames that some thread has given, by address.
    numbers: Mutex<HashMap<usize, u32>>,
    failed: Mutex<bool>,
    changed: Condvar,
}

impl Attempt {
    /// Return an attempt that begins now.
    pub fn new(number: u32) -> Attempt {
        Attempt {
            number,
            deadline: Instant::now() + COMMIT_WITHIN,
            numbers: Mutex::default(),
            failed: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Mark the attempt as failed: all threads serve on.
    pub fn fail(&self) {
        *lock(&self.failed) = true;
        self.changed.notify_all();
    }

    /// Return when the attempt has failed. If it succeeds, the process ends meanwhile.
    pub(crate) fn wait_until_failed(&self) {
        drop(self.changed.wait_while(lock(&self.failed), |failed| !*failed));
    }

    /// Return the number of a message or frame, and whether it is new: then it must be given. Its
    /// address identifies it: the thread that has given it keeps it until the attempt is over.
    pub(crate) fn number_of<T: ?Sized>(&self, shared: &Arc<T>) -> (u32, bool) {
        let mut numbers = lock(&self.numbers);
        let next = numbers.len() as u32;
        match numbers.entry(Arc::as_ptr(shared).cast::<()>() as usize) {
            Entry::Occupied(found) => (*found.get(), false),
            Entry::Vacant(place) => (*place.insert(next), true),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the process, so the lock can't be poisoned.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
