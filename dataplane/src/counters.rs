//! Counters for the control plane's metrics: one set per I/O thread, summed when a report is made.
//!
//! Each thread writes its own cache lines, so counting costs no more than adding to a field.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::delays::{Delays, Names};

macro_rules! counts {
    ($($count:ident = $name:literal,)+) => {
        /// A counter; the names are those of `docs/dataplane-protocol.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub enum Count {
            $($count,)+
        }

        const NAMES: &[&str] = &[$($name,)+];
    };
}

counts! {
    ReadersWebSocket = "readers.websocket",
    ReadersSockJs = "readers.sockjs-websocket",
    Closing = "closing",
    ConnectsWebSocket = "connects.websocket",
    ConnectsSockJs = "connects.sockjs-websocket",
    RejectedCapacity = "rejected.capacity",
    RejectedDraining = "rejected.draining",
    RejectedOrigin = "rejected.origin",
    RejectedAddress = "rejected.address",
    RejectedHandovers = "rejected.handovers",
    BadRequests = "bad_requests",
    HandshakeTimeouts = "handshake_timeouts",
    Abandoned = "abandoned",
    Handovers = "handovers",
    Unavailable = "unavailable",
    Accepts = "accepts",
    AcceptPauses = "accept_pauses",
    DeliveriesWebSocket = "deliveries.websocket",
    DeliveriesSockJs = "deliveries.sockjs-websocket",
    HeldDeliveries = "held_deliveries",
    AlreadySubscribed = "errors.already_subscribed",
    LimitExceeded = "errors.limit_exceeded",
    TooManyRequests = "errors.too_many_requests",
    Pings = "verbs.ping",
    DroppedDisconnect = "dropped.disconnect",
    DroppedConflate = "dropped.conflate",
    DroppedOldest = "dropped.drop_oldest",
    // Bytes of verbs that wait, or that the control plane has to answer.
    HeldBytes = "held_bytes",
    OutboxBytes = "outbox_bytes",
    // Publications that were new to this thread's hub; every thread is offered all.
    Publications = "publications",
    Copies = "copies",
    EvictedEarly = "evicted_early",
    Identities = "identities",
}

/// Counters that are equal on all threads, apart from orders in mailboxes and replays: the report
/// has the maximum, not the sum.
const SAME_ON_ALL_THREADS: [Count; 4] =
    [Count::Publications, Count::Copies, Count::EvictedEarly, Count::Identities];

#[derive(Debug)]
struct Values([AtomicU64; NAMES.len()]);

impl Default for Values {
    fn default() -> Values {
        Values([const { AtomicU64::new(0) }; NAMES.len()])
    }
}

/// The counters of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    values: Values,
    pub connections: AtomicU64,
    /// Delays of messages to this thread's readers.
    pub delays: Delays,
    closes: Mutex<BTreeMap<String, u64>>,
    /// Bytes of long commands that the thread hasn't carried out yet.
    pending_command_bytes: AtomicU64,
}

/// Size from which a command counts as owed; even thousands of shorter ones are carried out soon.
const LONG: usize = 16 * 1024;

impl Counters {
    pub fn add(&self, what: Count) {
        self.add_many(what, 1);
    }

    /// Add `many`. Only the thread that owns these counters may call it.
    pub fn add_many(&self, what: Count, many: u64) {
        let value = &self.values.0[what as usize];
        value.store(value.load(Relaxed) + many, Relaxed);
    }

    /// Subtract one from a counter of existing things.
    pub fn decrement(&self, what: Count) {
        let value = &self.values.0[what as usize];
        value.store(value.load(Relaxed).saturating_sub(1), Relaxed);
    }

    /// Set a counter of existing things.
    pub fn set(&self, what: Count, value: usize) {
        self.values.0[what as usize].store(value as u64, Relaxed);
    }

    pub fn get(&self, what: Count) -> u64 {
        self.values.0[what as usize].load(Relaxed)
    }

    pub fn readers(&self) -> u64 {
        self.get(Count::ReadersWebSocket) + self.get(Count::ReadersSockJs)
    }

    /// Record that the thread was given a command of so many bytes.
    pub fn command_queued(&self, bytes: usize) {
        if bytes >= LONG {
            self.pending_command_bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// Record that the thread has carried it out.
    pub fn command_done(&self, bytes: usize) {
        if bytes >= LONG {
            self.pending_command_bytes.fetch_sub(bytes as u64, Relaxed);
        }
    }

    /// Return the bytes of long commands that the thread has yet to carry out.
    pub fn pending_command_bytes(&self) -> u64 {
        self.pending_command_bytes.load(Relaxed)
    }

    /// Count a connection that has ended for this reason.
    pub fn closed(&self, reason: &str) {
        let mut closes = self.closes.lock().unwrap_or_else(PoisonError::into_inner);
        match closes.get_mut(reason) {
            Some(count) => *count += 1,
            None => drop(closes.insert(reason.to_owned(), 1)),
        }
    }
}

/// Return all counters as names and values, summed over the threads.
pub fn report(
    threads: &[Arc<Counters>],
    series: &Names,
    draining: bool,
    handed_over: u32,
) -> Vec<(String, u64)> {
    let mut out: Vec<(String, u64)> = Vec::new();
    for (index, name) in NAMES.iter().enumerate() {
        let each = threads.iter().map(|one| one.values.0[index].load(Relaxed));
        let alike = SAME_ON_ALL_THREADS.iter().any(|one| *one as usize == index);
        let value = if alike { each.max().unwrap_or(0) } else { each.sum() };
        out.push(((*name).to_owned(), value));
    }
    let mut closes: BTreeMap<String, u64> = BTreeMap::new();
    for one in threads {
        for (reason, count) in &*one.closes.lock().unwrap_or_else(PoisonError::into_inner) {
            *closes.entry(format!("closes.{reason}")).or_default() += count;
        }
    }
    out.extend(closes);
    series.report(&threads.iter().map(|one| &one.delays).collect::<Vec<_>>(), &mut out);
    let others = [
        ("draining", draining.into()),
        ("handed_over", handed_over.into()),
        ("threads", threads.len() as u64),
    ];
    out.extend(others.map(|(name, value)| (name.to_owned(), value)));
    for (number, one) in threads.iter().enumerate() {
        out.push((format!("thread.{number}.connections"), one.connections.load(Relaxed)));
    }
    out
}

/// Return the entries of a report that are new, or differ from those of an earlier report.
pub fn changes(earlier: &[(String, u64)], now: &[(String, u64)]) -> Vec<(String, u64)> {
    let known: HashMap<&str, u64> = earlier.iter().map(|(name, value)| (&**name, *value)).collect();
    now.iter().filter(|(name, value)| known.get(&**name) != Some(value)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_changed_is_no_change() {
        let counters: Arc<Counters> = Arc::default();
        let before = report(std::slice::from_ref(&counters), &Names::default(), false, 0);
        assert_eq!(changes(&[], &before), before);
        counters.add(Count::Accepts);
        counters.closed("drain");
        let after = report(&[counters], &Names::default(), false, 0);
        let news = [("accepts".to_owned(), 1), ("closes.drain".to_owned(), 1)];
        assert_eq!(changes(&before, &after), news);
        assert_eq!(changes(&after, &after), []);
    }

    #[test]
    fn long_commands_are_owed_until_they_are_carried_out() {
        let counters = Counters::default();
        counters.command_queued(LONG);
        counters.command_queued(LONG - 1);
        assert_eq!(counters.pending_command_bytes(), LONG as u64);
        counters.command_done(LONG - 1);
        counters.command_done(LONG);
        assert_eq!(counters.pending_command_bytes(), 0);
    }

    #[test]
    fn totals_are_summed_over_the_threads() {
        let (first, second): (Arc<Counters>, Arc<Counters>) = Default::default();
        first.add(Count::Accepts);
        second.add_many(Count::Accepts, 2);
        second.closed("drain");
        let all = report(&[first, second], &Names::default(), false, 0);
        let value = |name: &str| all.iter().find(|(one, _)| one == name).map(|(_, value)| *value);
        assert_eq!(value("accepts"), Some(3));
        assert_eq!(value("closes.drain"), Some(1));
        assert_eq!(value("dropped.drop_oldest"), Some(0));
    }
}
