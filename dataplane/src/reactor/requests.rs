//! New connections: accept, request head, then upgrade or handover to the control plane.
//!
//! A head is only peeked at (`MSG_PEEK`) until its owner is known, so that other requests are
//! handed over untouched. An incomplete head raises the socket's low-water mark: level-triggered
//! epoll would report the same bytes again and again.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, IntoRawFd};

use super::Reactor;
use crate::clock::{random, unix_ms};
use crate::closing::{AfterGoodbye, CloseReason};
use crate::control::put_typed;
use crate::counters::Count;
use crate::frame;
use crate::head::{self, Busy, Decision, Framing, HttpRefusal, Upgrade};
use crate::proxy::{self, Proxied};
use crate::slab::Phase;
use crate::sockjs;
use crate::sys::{self, Errno};
use crate::threads::Handover;
use crate::wheel;

/// Maximum accepts in one turn, so that a storm of readers doesn't stop the others.
const AT_ONCE: usize = 64;
/// Maximum number of connections over capacity that get a goodbye at once; further ones get a bare
/// 503. As many connections of full addresses, on all threads together, get an answer; further ones
/// none.
const TURNED_AWAY_AT_ONCE: u64 = 1_000;

impl Reactor {
    pub(super) fn accept_some(&mut self) {
        for _ in 0..AT_ONCE {
            match sys::accept(self.listener.fd()) {
                Ok((socket, address)) => self.let_in(socket.into_raw_fd(), address),
                Err(Errno::AGAIN) => return,
                Err(error) if sys::exhausted(error) => return self.pause(),
                // The connection ended in the backlog, or had a network error (accept(2)).
                Err(_) => {}
            }
        }
    }

    fn pause(&mut self) {
        self.readers.counters.add(Count::AcceptPauses);
        self.listener.pause(&self.readers.sockets.epoll, self.readers.clock.now_ms());
    }

    fn let_in(&mut self, fd: i32, address: SocketAddr) {
        let slot = self.readers.insert(fd);
        if !self.comes_from_proxy(address.ip()) {
            if !self.admit_address(slot, address.ip()) {
                return self.readers.close_and_free(slot);
            }
            if self.proxied {
                // No header comes first, and the reader's address is known.
                self.readers.busy_state(slot).proxied = Some(address);
            }
        }
        if self.readers.watch(slot).is_err() {
            // There is no memory, or no epoll watch.
            self.readers.close_and_free(slot);
            return self.pause();
        }
        self.await_request(slot);
    }

    fn await_request(&mut self, slot: u32) {
        let unfinished_ms = u64::from(self.readers.settings.unfinished_ms);
        self.readers.wheel.set(slot, self.readers.clock.now_ms() + unfinished_ms);
    }

    /// Return whether connections from there must begin with a PROXY header; others must not.
    fn comes_from_proxy(&self, address: IpAddr) -> bool {
        let networks = &self.readers.settings.proxy_from;
        self.proxied && networks.iter().any(|one| one.has(address))
    }

    /// Count a connection under its address; return false if it must be closed. Without room it may
    /// continue only to get that answer.
    fn admit_address(&mut self, slot: u32, address: IpAddr) -> bool {
        let most = self.readers.settings.per_address;
        if most == 0 {
            return true;
        }
        if self.readers.addresses.enter(address, most) {
            self.readers.counted.insert(slot, address);
            return true;
        }
        self.readers.counters.add(Count::RejectedAddress);
        self.readers.request_probe(address);
        let threads = self.readers.all_counters.len();
        let is_remembered = self.readers.turned_away.len() < TURNED_AWAY_AT_ONCE as usize / threads;
        if is_remembered {
            self.readers.turned_away.insert(slot);
        }
        is_remembered
    }

    /// Peek at a readable connection whose request isn't decided yet. After `ended` no more bytes
    /// arrive: then an incomplete head is dropped, or it would wake us for ever.
    pub(super) fn decide_request(&mut self, slot: u32, ended: bool) {
        let mut buffer = std::mem::take(&mut self.readers.input.buffer);
        self.decide_head(slot, ended, &mut buffer);
        self.readers.input.buffer = buffer;
    }

    fn decide_head(&mut self, slot: u32, ended: bool, buffer: &mut [u8]) {
        let fd = self.readers.slab.at(slot).fd;
        let wanted =
            (self.readers.settings.head_bytes as usize + proxy::V2_BYTES).min(buffer.len());
        let seen = match sys::peek(fd, &mut buffer[..wanted]) {
            Ok(0) => return self.abandon(slot),
            Ok(seen) => seen,
            Err(Errno::AGAIN) => return,
            Err(_) => return self.abandon(slot),
        };
        let done = self.readers.slab.at(slot).busy.as_ref().is_some_and(|it| it.proxied.is_some());
        if self.proxied && !done {
            return self.take_proxy_header(slot, ended, &mut buffer[..seen]);
        }
        let settings = self.readers.settings.clone();
        let (head, scratch) = buffer.split_at_mut(seen);
        let decision = head::decide(head, &settings);
        let is_served =
            matches!(decision, Decision::Info(_) | Decision::Greeting { .. } | Decision::HandOver);
        if is_served && self.readers.turned_away.contains(&slot) {
            return self.not_now(slot, Busy::Address);
        }
        match decision {
            Decision::Incomplete if ended => self.abandon(slot),
            Decision::Incomplete => self.wait_for_more(slot, seen),
            Decision::Refuse(refusal) => self.refuse(slot, refusal),
            Decision::Upgrade(upgrade) => self.upgrade(slot, &upgrade),
            Decision::Info(info) => {
                let mut answer = Vec::with_capacity(512);
                info.put(&mut answer, random(), unix_ms() / 1_000);
                self.answer(slot, info.head_bytes, &answer, scratch);
            }
            Decision::Greeting { head_bytes } => {
                let mut answer = Vec::with_capacity(512);
                head::put_greeting(&mut answer, unix_ms() / 1_000);
                self.answer(slot, head_bytes, &answer, scratch);
            }
            Decision::HandOver => self.hand_over(slot),
        }
    }

    /// Remove the PROXY header. Epoll is level-triggered: bytes behind it wake us in the next turn.
    fn take_proxy_header(&mut self, slot: u32, ended: bool, seen: &mut [u8]) {
        let fd = self.readers.slab.at(slot).fd;
        match proxy::parse(seen) {
            Ok(Proxied::Incomplete) if ended => self.abandon(slot),
            Ok(Proxied::Incomplete) => self.wait_for_more(slot, seen.len()),
            Ok(Proxied::Header { bytes, reader }) => {
                let address = reader.or_else(|| sys::peer_address(fd).ok());
                match address {
                    Some(address)
                        if self.admit_address(slot, address.ip())
                            && drop_bytes(fd, seen, bytes).is_ok() =>
                    {
                        self.readers.busy_state(slot).proxied = Some(address);
                        self.reset_low_water(slot);
                    }
                    _ => self.readers.close_and_free(slot),
                }
            }
            Err(proxy::NotProxied) => {
                self.readers.counters.add(Count::BadRequests);
                self.readers.close_and_free(slot);
            }
        }
    }

    /// Drop a connection that ended before its request was complete.
    fn abandon(&mut self, slot: u32) {
        self.readers.counters.add(Count::Abandoned);
        self.readers.close_and_free(slot);
    }

    fn wait_for_more(&mut self, slot: u32, seen: usize) {
        let connection = self.readers.slab.at(slot);
        connection.low_water = true;
        if sys::set_low_water(connection.fd, seen + 1).is_err() {
            self.readers.close_and_free(slot);
        }
    }

    fn reset_low_water(&mut self, slot: u32) {
        let connection = self.readers.slab.at(slot);
        if connection.low_water {
            connection.low_water = false;
            // Only a closed socket fails, and the next read reports that.
            let _ = sys::set_low_water(connection.fd, 1);
        }
    }

    fn refuse(&mut self, slot: u32, refusal: HttpRefusal) {
        let count = match refusal {
            HttpRefusal::BadOrigin => Some(Count::RejectedOrigin),
            HttpRefusal::Unavailable { why: Busy::Capacity, .. } => Some(Count::RejectedCapacity),
            HttpRefusal::Unavailable { why: Busy::Draining, .. } => Some(Count::RejectedDraining),
            HttpRefusal::Unavailable { why: Busy::Handovers, .. } => Some(Count::RejectedHandovers),
            HttpRefusal::Unavailable { why: Busy::NoControlPlane, .. } => Some(Count::Unavailable),
            HttpRefusal::BadRequest(_)
            | HttpRefusal::NotFound
            | HttpRefusal::WrongVersion
            | HttpRefusal::HeadTooLarge => Some(Count::BadRequests),
            // Counted in `admit_address`.
            HttpRefusal::Unavailable { why: Busy::Address, .. } => None,
        };
        if let Some(count) = count {
            self.readers.counters.add(count);
        }
        let mut answer = Vec::with_capacity(256);
        refusal.put(&mut answer);
        self.reset_low_water(slot);
        // The answer is small and the socket's buffer empty; an unsent rest does no harm.
        let fd = self.readers.slab.at(slot).fd;
        let _ = sys::send(fd, &answer);
        sys::finish_writing(fd);
        // Unread bytes would make a close a reset, which destroys the answer.
        self.readers.slab.at(slot).phase = Phase::Closing(AfterGoodbye::HalfClose);
        self.readers.counters.add(Count::Closing);
        self.readers.linger(slot);
    }

    fn not_now(&mut self, slot: u32, why: Busy) {
        let settings = &self.readers.settings;
        let retry_after_ms = match why {
            Busy::Address => settings.reason(CloseReason::AddressFull).retry_after_ms,
            _ => settings.retry_after_ms,
        };
        self.refuse(slot, HttpRefusal::Unavailable { why, retry_after_ms });
    }

    /// Answer a request on our paths, and wait for the next one.
    fn answer(&mut self, slot: u32, head_bytes: usize, answer: &[u8], scratch: &mut [u8]) {
        let fd = self.readers.slab.at(slot).fd;
        let eaten = drop_bytes(fd, scratch, head_bytes).is_ok();
        // Only a reader that asks again and again without reading has too little room.
        if !eaten || !sys::send(fd, answer).is_ok_and(|sent| sent == answer.len()) {
            return self.abandon(slot);
        }
        self.reset_low_water(slot);
        self.await_request(slot);
    }

    fn upgrade(&mut self, slot: u32, upgrade: &Upgrade<'_>) {
        if self.drain.is_some() {
            return self.not_now(slot, Busy::Draining);
        }
        let all = self.readers.all_counters.iter();
        let readers: u64 = all.clone().map(|one| one.readers()).sum();
        let full = readers >= u64::from(self.readers.settings.capacity);
        let turned_away = self.readers.turned_away.contains(&slot);
        if (full || turned_away)
            && all.map(|one| one.get(Count::Closing)).sum::<u64>() >= TURNED_AWAY_AT_ONCE
        {
            return self.not_now(slot, if turned_away { Busy::Address } else { Busy::Capacity });
        }
        let mut answer = Vec::with_capacity(256);
        upgrade.put(&mut answer);
        if upgrade.framing == Framing::SockJs {
            frame::put_frame(&mut answer, frame::TEXT, false, sockjs::OPEN);
        }
        let fd = self.readers.slab.at(slot).fd;
        let mut eaten = [0; 2048];
        if drop_bytes(fd, &mut eaten, upgrade.head_bytes).is_err() {
            return self.readers.close_and_free(slot);
        }
        self.reset_low_water(slot);
        let heartbeat_ms = self.readers.settings.heartbeat_ms;
        let first_ms = wheel::first_beat(self.readers.clock.now_ms(), heartbeat_ms, random());
        self.readers.open(slot, upgrade, first_ms);
        self.readers.write(slot, &answer);
        // A page can't read the 503 of a WebSocket handshake, but it can read a push.
        if turned_away {
            self.readers.close(slot, CloseReason::AddressFull, None);
        } else if full {
            self.readers.counters.add(Count::RejectedCapacity);
            self.readers.close(slot, CloseReason::Overload, None);
        } else if let Some(token) = upgrade.token {
            // Handled as the reader's first verb.
            self.readers.answer_verb(slot, &head::login_verb(token));
        }
    }

    fn hand_over(&mut self, slot: u32) {
        // Also in a drain: a session of the control plane's own learns of it at its next poll.
        if !self.readers.has_control_plane() {
            return self.not_now(slot, Busy::NoControlPlane);
        }
        self.reset_low_water(slot);
        let connection = self.readers.slab.at(slot);
        let fd = connection.fd;
        let proxied = connection.busy.as_ref().and_then(|it| it.proxied);
        let Some(address) = proxied.or_else(|| sys::peer_address(fd).ok()) else {
            return self.readers.close_and_free(slot);
        };
        let most = self.readers.settings.handovers;
        if !self.readers.addresses.begin_handover(most) {
            return self.not_now(slot, Busy::Handovers);
        }
        let (address, mut note) = (address.ip(), Vec::new());
        let counted = self.readers.counted.contains_key(&slot);
        put_typed(&mut note, &Handover { address, counted });
        // The passed descriptor keeps the socket open, and epoll would go on reporting it.
        let passed = self
            .readers
            .sockets
            .epoll
            .remove(fd)
            .and_then(|()| sys::send_descriptor(self.handovers.as_raw_fd(), &note, fd));
        match passed {
            Ok(_) => {
                self.readers.counters.add(Count::Handovers);
                // Its count under the address was passed on with it.
                self.readers.counted.remove(&slot);
                self.readers.close_and_free(slot);
            }
            Err(error) => {
                self.readers.addresses.cancel_handover(address, false);
                if self.readers.watch(slot).is_err() {
                    return self.readers.close_and_free(slot);
                }
                // The handover socket was full: the next turn reports the request again.
                if error != Errno::AGAIN {
                    self.not_now(slot, Busy::NoControlPlane);
                }
            }
        }
    }
}

/// Read and drop so many bytes that were peeked at.
fn drop_bytes(fd: i32, scratch: &mut [u8], mut count: usize) -> io::Result<()> {
    while count > 0 {
        let room = count.min(scratch.len());
        match sys::receive(fd, &mut scratch[..room])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            eaten => count -= eaten,
        }
    }
    Ok(())
}
