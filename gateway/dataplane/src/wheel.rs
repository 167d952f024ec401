//! A hashed timer wheel: one timer per connection slot, twelve bytes each. No clock: time is passed
//! in, in milliseconds of whatever clock the caller has.
//!
//! A timer fires within one tick after it was due, never before. Setting, cancelling and
//! firing cost a few writes, however many timers there are; one that is due later than a
//! turn of the wheel costs one more look at each turn.
//!
//! The decision to question: timers are nodes of intrusive lists, linked by slot number, so a slab's
//! index is the timer's handle and nothing is allocated while the slab doesn't grow.

/// No slot, no neighbour.
const NONE: u32 = u32::MAX;
/// Marks a `prev` that is a bucket, not a slot.
const BUCKET: u32 = 1 << 31;
/// Slots are below this.
pub const MAX_SLOTS: u32 = BUCKET;

#[derive(Debug, Clone, Copy)]
struct Node {
    next: u32,
    /// A slot; a bucket, with [`BUCKET`] set, for the first of a list; NONE for no timer.
    prev: u32,
    /// The tick in which it fires.
    due: u32,
}

const UNSET: Node = Node { next: NONE, prev: NONE, due: 0 };

/// Timers by slot.
#[derive(Debug)]
pub struct Wheel {
    nodes: Vec<Node>,
    /// First slot of each bucket's list. One more at the end: what the tick in hand hasn't fired.
    buckets: Vec<u32>,
    start_ms: u64,
    tick_ms: u64,
    /// The tick in hand, counted from `start_ms`.
    tick: u32,
    armed: usize,
}

impl Wheel {
    /// A wheel that starts at `now_ms`. `tick_ms` is its precision; `buckets` is rounded up to a
    /// power of two, and with `tick_ms` should cover the usual timer in one turn.
    pub fn new(now_ms: u64, tick_ms: u32, buckets: u16) -> Self {
        let count = usize::from(buckets.max(1)).next_power_of_two();
        Self {
            nodes: Vec::new(),
            buckets: vec![NONE; count + 1],
            start_ms: now_ms,
            tick_ms: u64::from(tick_ms.max(1)),
            tick: 0,
            armed: 0,
        }
    }

    /// Set the timer of `slot`, in place of the one it may have. What is due already fires at the
    /// next tick. Slots from [`MAX_SLOTS`] on have no timer.
    pub fn set(&mut self, slot: u32, due_ms: u64) {
        if slot >= MAX_SLOTS {
            return;
        }
        self.cancel(slot);
        if self.nodes.len() <= slot as usize {
            self.nodes.resize(slot as usize + 1, UNSET);
        }
        let ticks = due_ms.saturating_sub(self.start_ms).div_ceil(self.tick_ms);
        let due = u32::try_from(ticks).unwrap_or(NONE).max(self.tick + 1);
        self.link(slot, due);
        self.armed += 1;
    }

    /// Take back the timer of `slot`, if there is one.
    pub fn cancel(&mut self, slot: u32) {
        if self.is_set(slot) {
            self.unlink(slot);
            self.armed -= 1;
        }
    }

    /// Whether `slot` has a timer that hasn't fired.
    pub fn is_set(&self, slot: u32) -> bool {
        self.nodes.get(slot as usize).is_some_and(|node| node.prev != NONE)
    }

    /// When the timer of `slot` fires at the earliest, in ms; `None` if it has none.
    pub fn due_ms(&self, slot: u32) -> Option<u64> {
        let node = self.nodes.get(slot as usize).filter(|node| node.prev != NONE)?;
        Some(self.start_ms.saturating_add(u64::from(node.due).saturating_mul(self.tick_ms)))
    }

    /// The next slot whose timer has fired by `now_ms`; the timer is gone then.
    /// Call it until there is none. In between, timers may be set and cancelled.
    pub fn pop(&mut self, now_ms: u64) -> Option<u32> {
        let elapsed = now_ms.saturating_sub(self.start_ms) / self.tick_ms;
        let now = u32::try_from(elapsed).unwrap_or(NONE - 1);
        if self.armed == 0 {
            self.tick = self.tick.max(now);
            return None;
        }
        loop {
            if let Some(slot) = self.pop_in_hand() {
                return Some(slot);
            }
            if self.tick >= now {
                return None;
            }
            self.turn(now);
        }
    }

    /// How many timers are set.
    pub fn len(&self) -> usize {
        self.armed
    }

    /// Whether no timer is set.
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Milliseconds until [`Wheel::pop`] should be called again; `None` while no timer is set.
    pub fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        let next = self.start_ms.saturating_add((u64::from(self.tick) + 1) * self.tick_ms);
        (!self.is_empty()).then(|| next.saturating_sub(now_ms))
    }

    /// Go on to the next tick, and take its bucket in hand. After a long sleep each bucket is
    /// looked at once, not once for each turn that was missed.
    fn turn(&mut self, now: u32) {
        let turn = self.in_hand();
        let skipped = now.saturating_sub(turn as u32);
        self.tick = (self.tick + 1).max(skipped);
        let bucket = self.bucket(self.tick);
        let first = std::mem::replace(&mut self.buckets[bucket], NONE);
        self.buckets[turn] = first;
        if first != NONE {
            self.nodes[first as usize].prev = BUCKET | turn as u32;
        }
    }

    fn pop_in_hand(&mut self) -> Option<u32> {
        loop {
            let slot = self.buckets[self.in_hand()];
            if slot == NONE {
                return None;
            }
            self.unlink(slot);
            let due = self.nodes[slot as usize].due;
            if due <= self.tick {
                self.armed -= 1;
                return Some(slot);
            }
            self.link(slot, due);
        }
    }

    fn link(&mut self, slot: u32, due: u32) {
        let bucket = self.bucket(due);
        let next = std::mem::replace(&mut self.buckets[bucket], slot);
        if next != NONE {
            self.nodes[next as usize].prev = slot;
        }
        self.nodes[slot as usize] = Node { next, prev: BUCKET | bucket as u32, due };
    }

    fn unlink(&mut self, slot: u32) {
        let Node { next, prev, .. } = self.nodes[slot as usize];
        if prev & BUCKET == 0 {
            self.nodes[prev as usize].next = next;
        } else {
            self.buckets[(prev & !BUCKET) as usize] = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        self.nodes[slot as usize].prev = NONE;
    }

    fn bucket(&self, tick: u32) -> usize {
        tick as usize & (self.in_hand() - 1)
    }

    /// The index of the list in hand, and how many other buckets there are.
    fn in_hand(&self) -> usize {
        self.buckets.len() - 1
    }
}

/// When a heartbeat of every `interval_ms` is due first: between a fifth of it and all of it, as
/// `random` says, so that a crowd that came at once spreads out.
pub fn first_beat(now_ms: u64, interval_ms: u32, random: u32) -> u64 {
    let interval = u64::from(interval_ms);
    let shortest = interval / 5;
    let spread = interval - shortest;
    now_ms + shortest + ((spread * u64::from(random)) >> 32)
}
