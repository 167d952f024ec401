//! Bytes out: directly while the kernel takes them, else through the outbox; and goodbyes.
//!
//! A connection whose socket is full is *blocked*: later bytes must wait behind its outbox. Only
//! then epoll watches for EPOLLOUT. A connection that isn't blocked owns no bytes: a delivery is
//! one `send` of shared ones.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io;
use std::sync::{Arc, Weak};

use super::Readers;
use super::sockets::Offers;
use crate::closing::{AfterGoodbye, CloseReason};
use crate::counters::Count;
use crate::frame::{self, close_frame};
use crate::head::Framing;
use crate::publication::Frame;
use crate::pushes::{disconnect_push, error_push};
use crate::slab::Phase;
use crate::sockjs;
use crate::sys::{self, Errno, MOST_SENDS, Send};

/// Maximum number of frames that leave the outbox in one write.
const PARTS: usize = 64;

/// Return the bytes that keep proxies from closing an idle connection. SockJS has no answer to `h`;
/// the pong for the ping shows that the reader lives.
fn heartbeat(framing: Framing) -> &'static [u8] {
    match framing {
        Framing::Raw => &frame::PING_FRAME,
        Framing::SockJs => &[0x81, 1, b'h', 0x89, 0],
    }
}

/// Return the unsent rest of `bytes`, preceded by the last sent byte if there is one, and the
/// number of written bytes in it. So the frame counts as begun, and is finished before all others.
fn rest_of(bytes: &[u8], sent: usize) -> (Frame, usize) {
    let written = sent.min(1);
    (Arc::from(&bytes[sent - written..]), written)
}

/// A push to one reader or to `several`. For several it is framed once and is in memory once,
/// however many of them don't take it at once.
pub(super) struct Answer<'a> {
    push: Cow<'a, str>,
    several: bool,
    /// The push as a frame, by framing.
    frames: [OnceCell<Frame>; 2],
}

impl Answer<'_> {
    pub(super) fn new(push: &[u8], several: bool) -> Answer<'_> {
        Answer { push: String::from_utf8_lossy(push), several, frames: Default::default() }
    }
}

fn framed(framing: Framing, push: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(push.len() + 16);
    put_push(&mut bytes, framing, push);
    bytes
}

/// Append a push as a connection of this framing gets it.
fn put_push(out: &mut Vec<u8>, framing: Framing, push: &str) {
    match framing {
        Framing::Raw => frame::put_frame(out, frame::TEXT, false, push.as_bytes()),
        Framing::SockJs => {
            let mut payload = Vec::with_capacity(push.len() + push.len() / 4 + 8);
            sockjs::put_message(&mut payload, push);
            frame::put_frame(out, frame::TEXT, false, &payload);
        }
    }
}

impl Readers {
    /// Send bytes that must not be dropped.
    pub(crate) fn write(&mut self, slot: u32, bytes: &[u8]) {
        self.write_or_queue(slot, bytes, |sent| rest_of(bytes, sent));
    }

    /// Send `bytes`. If the kernel doesn't take all of them, `kept` makes the frame that waits, and
    /// returns the number of its written bytes.
    fn write_or_queue(
        &mut self,
        slot: u32,
        bytes: &[u8],
        kept: impl FnOnce(usize) -> (Frame, usize),
    ) {
        let connection = self.slab.at(slot);
        if connection.blocked {
            self.queue_firm(slot, kept(0).0);
        } else if let Some(sent) = self.sockets.send(slot, connection, bytes)
            && sent < bytes.len()
        {
            let (frame, written) = kept(sent);
            self.queue_rest(slot, frame, written);
        }
    }

    /// Send a heartbeat to each of these slots.
    pub(super) fn send_heartbeats(&mut self, slots: &[u32]) {
        for slots in slots.chunks(MOST_SENDS) {
            let mut offers = Offers::default();
            for &slot in slots {
                let connection = self.slab.at(slot);
                offers.add(slot, connection.fd, heartbeat(connection.framing));
            }
            for Send { slot, bytes, taken, .. } in self.sockets.make(offers) {
                let sent = self.sockets.taken(slot, self.slab.at(slot), taken);
                if let Some(sent) = sent.filter(|sent| *sent < bytes.len()) {
                    let (frame, written) = rest_of(bytes, sent);
                    self.queue_rest(slot, frame, written);
                }
            }
        }
    }

    /// Keep a frame of which the kernel took only `written` bytes: the rest is sent first.
    pub(super) fn queue_rest(&mut self, slot: u32, frame: Frame, written: usize) {
        let busy = self.slab.busy_state(slot, &self.settings);
        busy.outbox.push_partly_written(frame, written, &mut self.budget.account);
        busy.behind_since_ms = self.clock.now_ms();
        busy.taken_ms = self.clock.now_ms();
        let end = self.stall_deadline_ms(slot);
        self.set_timer_at_latest(slot, end);
        let connection = self.slab.at(slot);
        connection.blocked = true;
        if self.sockets.update(slot, connection).is_err() {
            self.sockets.end_after_turn(slot, connection);
        }
    }

    /// Queue a frame that must not be dropped.
    pub(super) fn queue_firm(&mut self, slot: u32, frame: Frame) {
        let outbox = &mut self.slab.busy_state(slot, &self.settings).outbox;
        let fits = outbox.push_firm(frame, self.clock.now_ms(), &mut self.budget.account);
        self.queued(slot, fits);
    }

    /// Count messages dropped by queueing; close the reader as too slow if the frame doesn't fit.
    pub(super) fn queued(&mut self, slot: u32, fits: bool) {
        let dropped = self.slab.busy_state(slot, &self.settings).outbox.take_dropped();
        self.counters.add_many(Count::DroppedConflate, dropped.conflate);
        self.counters.add_many(Count::DroppedOldest, dropped.drop_oldest);
        if !fits {
            self.close(slot, CloseReason::SlowReader, None);
        }
    }

    /// Write the waiting frames, as there is room again.
    pub(crate) fn flush(&mut self, slot: u32) {
        loop {
            let connection = self.slab.at(slot);
            let fd = connection.fd;
            let Some(busy) = connection.busy.as_deref_mut().filter(|it| !it.outbox.is_empty())
            else {
                break;
            };
            let mut parts = [io::IoSlice::new(&[]); PARTS];
            let count = busy.outbox.slices(&mut parts);
            match sys::send_all(fd, &parts[..count]) {
                Ok(sent) => {
                    busy.outbox.advance(sent, &mut self.budget.account);
                    busy.taken_ms = self.clock.now_ms();
                }
                Err(error) if error == Errno::AGAIN || sys::exhausted(error) => return,
                Err(_) => return self.on_lost(slot),
            }
        }
        self.unblock(slot);
    }

    fn unblock(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        connection.blocked = false;
        let since_ms = connection.busy.as_deref().map_or(0, |busy| busy.behind_since_ms);
        if since_ms > 0 {
            let took_us = self.clock.now_ms().saturating_sub(since_ms) * 1_000;
            self.counters.delays.behind.add(took_us, 1);
        }
        if self.sockets.update(slot, connection).is_err() {
            return self.on_lost(slot);
        }
        match connection.phase {
            Phase::Open => {
                self.answer_last_ping(slot);
                self.ask_next(slot);
                self.slab.at(slot).free_if_idle();
            }
            Phase::Closing(ending) => self.all_sent(slot, ending),
            Phase::Free | Phase::Head => {}
        }
    }

    /// Send a push that is not a message.
    pub(crate) fn push(&mut self, slot: u32, push: &str) {
        let connection = self.slab.at(slot);
        if connection.phase == Phase::Open {
            let bytes = framed(connection.framing, push);
            self.write(slot, &bytes);
        }
    }

    /// Send a push that other readers may get too, or have got last.
    pub(super) fn answer(&mut self, slot: u32, answer: &Answer<'_>) {
        let connection = self.slab.at(slot);
        if connection.phase != Phase::Open {
            return;
        }
        let framing = connection.framing;
        let known = &answer.frames[framing as usize];
        let last = &mut self.shared_last[framing as usize];
        if known.get().is_none() {
            let bytes = framed(framing, &answer.push);
            let same = last.as_ref().and_then(Weak::upgrade).filter(|last| **last == *bytes);
            if same.is_none() && !answer.several {
                return self.write(slot, &bytes);
            }
            let frame = known.get_or_init(|| same.unwrap_or_else(|| bytes.into()));
            *last = Some(Arc::downgrade(frame));
        }
        if let Some(frame) = known.get() {
            self.write_or_queue(slot, frame, |sent| (frame.clone(), sent));
        }
    }

    /// Send `disconnect`, then the transport's goodbye. Do nothing if the connection isn't open.
    pub(crate) fn close(&mut self, slot: u32, why: CloseReason<'_>, retry_after_ms: Option<u32>) {
        if self.slab.at(slot).phase != Phase::Open {
            return;
        }
        let reason = self.settings.reason(why);
        // With `--echo` no push of ours is sent.
        let silent = self.echo;
        if why == CloseReason::TooBig && !silent {
            // An unreadable verb is answered like one that can't be obeyed.
            self.push(slot, &error_push("", "", 107, &reason.text));
            if self.slab.at(slot).phase != Phase::Open {
                // The reader was too slow even for this push.
                return;
            }
        }
        if why == CloseReason::SlowReader {
            // Waiting frames would only keep the reader from learning why it is closed.
            let outbox = &mut self.slab.busy_state(slot, &self.settings).outbox;
            let count = outbox.clear(&mut self.budget.account);
            self.counters.add_many(Count::DroppedDisconnect, count as u64);
        }
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
        self.end(slot, why.name(), &last, why.after_goodbye());
    }

    /// Leave the hub and send the last bytes. The connection ends after the linger time at the
    /// latest.
    pub(super) fn end(&mut self, slot: u32, label: &str, last: &[u8], ending: AfterGoodbye) {
        self.unregister(slot, label, ending);
        self.linger(slot);
        self.write(slot, last);
        if !self.slab.at(slot).blocked {
            self.all_sent(slot, ending);
        }
    }

    /// Set the deadline of a goodbye, after which the connection is dropped.
    pub(crate) fn linger(&mut self, slot: u32) {
        let deadline = self.clock.now_ms() + u64::from(self.settings.linger_ms);
        self.wheel.set(slot, deadline);
    }

    fn all_sent(&mut self, slot: u32, ending: AfterGoodbye) {
        let connection = self.slab.at(slot);
        match ending {
            AfterGoodbye::Wait => {}
            AfterGoodbye::HalfClose => sys::finish_writing(connection.fd),
            AfterGoodbye::HangUp => self.sockets.end_after_turn(slot, connection),
        }
    }
}
