//! Bytes out: directly while the kernel takes them, through the outbox while it doesn't; and goodbyes.
//!
//! A connection whose socket is full is *blocked*: nothing may be written past what waits. EPOLLOUT is asked for only
//! then. While it isn't blocked it owns nothing, so a delivery is one `send` of shared bytes.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::counters::Count;
use crate::frame::{self, close_frame};
use crate::head::Framing;
use crate::policy::{disconnect_push, error_push};
use crate::publication::{Frame, Publication};
use crate::reactor::Reactor;
use crate::slab::{Ending, Phase};
use crate::sockjs;
use crate::sys::{self, MOST_SENDS, Send, Sender};

/// Frames that leave the outbox in one write.
const PARTS: usize = 64;

/// What keeps proxies from closing an idle connection. SockJS has no answer to `h`; the ping's
/// pong tells that the reader lives.
#[must_use]
pub fn heartbeat(framing: Framing) -> &'static [u8] {
    match framing {
        Framing::Raw => &frame::PING_FRAME,
        Framing::SockJs => &[0x81, 1, b'h', 0x89, 0],
    }
}

/// Append a push as a connection of this framing gets it.
pub fn put_push(out: &mut Vec<u8>, framing: Framing, push: &str) {
    match framing {
        Framing::Raw => frame::put_frame(out, frame::TEXT, false, push.as_bytes()),
        Framing::SockJs => {
            let mut payload = Vec::with_capacity(push.len() + push.len() / 4 + 8);
            sockjs::put_message(&mut payload, push);
            frame::put_frame(out, frame::TEXT, false, &payload);
        }
    }
}

/// What some readers are offered at once.
pub(crate) struct Offers<'a> {
    slots: [u32; MOST_SENDS],
    sends: [Send<'a>; MOST_SENDS],
    count: usize,
}

impl Default for Offers<'_> {
    fn default() -> Self {
        Offers { slots: [0; MOST_SENDS], sends: [Send::new(-1, &[]); MOST_SENDS], count: 0 }
    }
}

impl<'a> Offers<'a> {
    /// One more; there must be room.
    pub(crate) fn add(&mut self, slot: u32, fd: RawFd, bytes: &'a [u8]) {
        self.slots[self.count] = slot;
        self.sends[self.count] = Send::new(fd, bytes);
        self.count += 1;
    }

    /// They, each with what came of it.
    pub(crate) fn made(
        &mut self,
        sender: &mut Sender,
    ) -> impl Iterator<Item = (u32, Send<'a>)> + use<'a> {
        sender.send(&mut self.sends[..self.count]);
        self.slots.into_iter().zip(self.sends).take(self.count)
    }
}

impl Reactor {
    /// Send what must not be dropped.
    pub(crate) fn write(&mut self, slot: u32, bytes: &[u8]) {
        let connection = self.slab.at(slot);
        if connection.blocked {
            return self.queue_firm(slot, Arc::from(bytes));
        }
        if let Some(sent) = self.send_now(slot, bytes)
            && sent < bytes.len()
        {
            self.keep_rest(slot, Arc::from(&bytes[sent..]), 0);
        }
    }

    /// Queue one message's frame behind what waits, under its topic's policy.
    pub(crate) fn queue(&mut self, slot: u32, frame: &Frame, publication: &Arc<Publication>) {
        let now_ms = self.now_ms;
        let outbox = &mut self.slab.extra(slot, &self.policy).outbox;
        let fits = outbox.push(frame.clone(), publication, now_ms, &mut self.account);
        self.count_dropped(slot);
        if !fits {
            self.close(slot, "slow_reader", None);
        }
    }

    /// Send each of these its heartbeat.
    pub(crate) fn send_heartbeats(&mut self, slots: &[u32]) {
        for slots in slots.chunks(MOST_SENDS) {
            let mut offers = Offers::default();
            for &slot in slots {
                let connection = self.slab.at(slot);
                offers.add(slot, connection.fd, heartbeat(connection.framing));
            }
            for (slot, send) in offers.made(&mut self.sender) {
                if let Some(sent) = self.taken(slot, send.taken).filter(|it| *it < send.bytes.len())
                {
                    self.keep_rest(slot, Arc::from(&send.bytes[sent..]), 0);
                }
            }
        }
    }

    /// How much the kernel took; `None` if the peer is gone, which the end of the turn deals with.
    pub(crate) fn send_now(&mut self, slot: u32, bytes: &[u8]) -> Option<usize> {
        let failed = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let taken = sys::send(self.slab.at(slot).fd, bytes).map_err(failed);
        self.taken(slot, taken)
    }

    /// The same, of a send that was tried.
    pub(crate) fn taken(&mut self, slot: u32, taken: Result<usize, i32>) -> Option<usize> {
        let connection = self.slab.at(slot);
        match taken.map_err(io::Error::from_raw_os_error) {
            Ok(sent) => Some(sent),
            Err(error) if sys::would_block(&error) => Some(0),
            // Out of memory for now: as good as full, and EPOLLOUT comes back.
            Err(error) if sys::exhausted(&error) => Some(0),
            Err(_) => {
                // No more is written; whoever is iterating over readers isn't disturbed.
                connection.blocked = true;
                let name = (slot, connection.generation);
                self.doomed.push(name);
                None
            }
        }
    }

    /// The kernel took only `written` of `frame`: the rest goes first when there is room.
    pub(crate) fn keep_rest(&mut self, slot: u32, frame: Frame, written: usize) {
        let outbox = &mut self.slab.extra(slot, &self.policy).outbox;
        outbox.started(frame, written, &mut self.account);
        self.slab.extra(slot, &self.policy).behind_since_ms = self.now_ms;
        self.watch_stall(slot);
        let connection = self.slab.at(slot);
        connection.blocked = true;
        let token = Self::epoll_token(slot, connection.generation);
        let name = (slot, connection.generation);
        if self.epoll.modify(connection.fd, sys::READ | sys::WRITE, token).is_err() {
            self.doomed.push(name);
        }
    }

    /// Queue what must not be dropped behind what waits.
    pub(crate) fn queue_firm(&mut self, slot: u32, frame: Frame) {
        let open = self.slab.at(slot).phase == Phase::Open;
        let outbox = &mut self.slab.extra(slot, &self.policy).outbox;
        let fits = outbox.push_firm(frame, self.now_ms, &mut self.account);
        self.count_dropped(slot);
        if !fits && open {
            self.close(slot, "slow_reader", None);
        }
    }

    fn count_dropped(&mut self, slot: u32) {
        let Some(extra) = self.slab.at(slot).extra.as_deref_mut() else {
            return;
        };
        let dropped = extra.outbox.take_dropped();
        if dropped.conflate > 0 {
            self.counters().add_many(Count::DroppedConflate, dropped.conflate);
        }
        if dropped.drop_oldest > 0 {
            self.counters().add_many(Count::DroppedOldest, dropped.drop_oldest);
        }
    }

    /// There is room again: write what waits.
    pub(crate) fn flush(&mut self, slot: u32) {
        loop {
            let connection = self.slab.at(slot);
            let fd = connection.fd;
            let Some(extra) = connection.extra.as_deref_mut().filter(|it| !it.outbox.is_empty())
            else {
                break;
            };
            let mut parts = [io::IoSlice::new(&[]); PARTS];
            let count = extra.outbox.slices(&mut parts);
            match sys::send_all(fd, &parts[..count]) {
                Ok(sent) => {
                    extra.outbox.advance(sent, &mut self.account);
                    extra.taken_ms = self.now_ms;
                }
                Err(error) if sys::would_block(&error) || sys::exhausted(&error) => return,
                Err(_) => return self.lose(slot),
            }
        }
        self.unblock(slot);
    }

    fn unblock(&mut self, slot: u32) {
        let now_ms = self.now_ms;
        let connection = self.slab.at(slot);
        connection.blocked = false;
        let since_ms = connection.extra.as_deref().map_or(0, |extra| extra.behind_since_ms);
        if since_ms > 0 {
            let took_us = now_ms.saturating_sub(since_ms) * 1_000;
            self.counters().delays.behind.add(took_us, 1);
        }
        let connection = self.slab.at(slot);
        let token = Self::epoll_token(slot, connection.generation);
        if self.epoll.modify(connection.fd, sys::READ, token).is_err() {
            return self.lose(slot);
        }
        match connection.phase {
            Phase::Open => {
                self.answer_last_ping(slot);
                self.ask_next(slot);
                self.shrink(slot);
            }
            Phase::Closing(ending) => self.all_sent(slot, ending),
            Phase::Free | Phase::Head => {}
        }
    }

    /// Give back what an idle connection doesn't need.
    pub(crate) fn shrink(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        if connection.extra.as_ref().is_some_and(|extra| extra.is_empty()) {
            connection.extra = None;
        }
    }

    /// Send a push that is not a message.
    pub(crate) fn push(&mut self, slot: u32, push: &str) {
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Open {
            let mut bytes = Vec::with_capacity(push.len() + 16);
            put_push(&mut bytes, connection.framing, push);
            self.write(slot, &bytes);
        }
    }

    /// Say `disconnect`, then goodbye in the transport's way. Nothing if it isn't open.
    pub(crate) fn close(&mut self, slot: u32, name: &str, retry_after_ms: Option<u32>) {
        if self.slab.at(slot).phase != Phase::Open {
            return;
        }
        let reason = self.policy.reason(name);
        // What echoes says nothing of its own.
        let silent = self.parts.echo;
        if name == "too_big" && !silent {
            // A verb that can't be read is answered like one that can't be obeyed.
            self.push(slot, &error_push("", "", 107, &reason.text, false));
        }
        if name == "slow_reader" {
            // What waits would only keep the reader from hearing why it is closed.
            let count = self.slab.extra(slot, &self.policy).outbox.clear(&mut self.account);
            self.counters().add_many(Count::DroppedDisconnect, count as u64);
        }
        let violated =
            matches!(name, "protocol_error" | "invalid_payload" | "too_big" | "unfinished");
        let ending = if violated { Ending::HalfClose } else { Ending::Wait };
        let framing = self.slab.at(slot).framing;
        let wait = retry_after_ms.unwrap_or(reason.retry_after_ms);
        let mut last = Vec::with_capacity(320);
        if !silent {
            put_push(&mut last, framing, &disconnect_push(&reason, wait));
        }
        if framing == Framing::SockJs {
            let mut payload = Vec::with_capacity(128);
            sockjs::put_close(&mut payload, reason.code, &reason.text);
            frame::put_frame(&mut last, frame::TEXT, false, &payload);
        }
        last.extend_from_slice(close_frame(Some(reason.code), &reason.text).as_slice());
        self.part(slot, name, &last, ending);
    }

    /// Leave, send the last bytes and end. Whatever the reader does, it is over after the linger.
    pub(crate) fn part(&mut self, slot: u32, why: &str, last: &[u8], ending: Ending) {
        self.leave(slot, why, ending);
        let deadline = self.now_ms + u64::from(self.settings().linger_ms);
        self.wheel.set(slot, deadline);
        self.write(slot, last);
        if !self.slab.at(slot).blocked {
            self.all_sent(slot, ending);
        }
    }

    fn all_sent(&mut self, slot: u32, ending: Ending) {
        match ending {
            Ending::Wait => {}
            Ending::HalfClose => sys::finish_writing(self.slab.at(slot).fd),
            // Not now: whoever called may still be looking at the connection.
            Ending::HangUp => {
                let generation = self.slab.at(slot).generation;
                self.doomed.push((slot, generation));
            }
        }
    }
}
