//! Bytes in: frames to verbs, verbs one after the other to the control plane.
//!
//! One verb of a connection is with the control plane at a time, and is kept until it is answered. So answers
//! come in order without anyone numbering them, and a verb that a dying control plane took
//! with it is asked again. The others wait here, bounded in number and in bytes.

use crate::bucket::Admission;
use crate::counters::Count;
use crate::frame::{self, Event, NO_STATUS, Violation, close_frame, pong_frame};
use crate::head::Framing;
use crate::orders::Report;
use crate::ping::pong;
use crate::policy::error_push;
use crate::reactor::Reactor;
use crate::slab::{Ending, HEARD_MS, Phase, Waiting};
use crate::sys;

/// Verbs wait while more than this waits for the reader.
const VERBS_WAIT_ABOVE: usize = 64 * 1024;
/// Bytes of verbs that wait in one connection.
const WAITING_BYTES: usize = 64 * 1024;
/// Bytes of verbs that wait or are asked, in all connections of all threads: a crowd of 100,000 may log in
/// at once. A control plane that attaches is asked them again, all at once.
const HELD_BYTES: usize = 128 << 20;
/// So many pings of one read are answered one by one. RFC 6455 section 5.5.3: of those behind them the most
/// recent is enough; 10,000 fit into a read, and everybody else would wait for their answers.
pub(crate) const PONGS: u32 = 64;

impl Reactor {
    /// Something is to be read from a reader, or from one who is saying goodbye.
    pub(crate) fn read(&mut self, slot: u32) {
        let mut buffer = std::mem::take(&mut self.buffer);
        self.read_into(slot, &mut buffer);
        self.buffer = buffer;
    }

    fn read_into(&mut self, slot: u32, buffer: &mut [u8]) {
        let heard = (self.now_ms / HEARD_MS) as u32;
        let connection = self.slab.at(slot);
        let count = match sys::receive(connection.fd, buffer) {
            Ok(0) => return self.lose(slot),
            Ok(count) => count,
            Err(error) if sys::would_block(&error) => return,
            Err(_) => return self.lose(slot),
        };
        connection.heard = heard;
        if !matches!(connection.phase, Phase::Open | Phase::Closing(Ending::Wait)) {
            return;
        }
        let generation = connection.generation;
        let deflate = connection.deflate.is_some();
        // The decoder lends out what it holds while the connection is used.
        let mut decoder = std::mem::take(&mut connection.decoder);
        let policy = self.policy.clone();
        let (mut at, mut end) = (0, None);
        self.pongs = PONGS;
        while end.is_none() {
            match decoder.step(&mut buffer[at..count], policy.frames(deflate)) {
                Ok((used, Some(event))) => {
                    at += used;
                    end = self.on_frame(slot, event).err();
                    if self.slab.find(slot, generation).is_none() {
                        return;
                    }
                }
                Ok((_, None)) => break,
                Err(violation) => end = Some(violation),
            }
        }
        if let Some(violation) = end {
            self.violated(slot, violation);
        } else {
            self.slab.at(slot).decoder = decoder;
            self.watch_unfinished(slot);
            if self.pongs == 0 {
                self.answer_last_ping(slot);
            }
        }
    }

    /// What a reader has begun to say, it must say in time: up to a whole message is kept till then.
    fn watch_unfinished(&mut self, slot: u32) {
        let Some(end) = self.message_ends_ms(slot) else {
            return;
        };
        let open = self.slab.at(slot).phase == Phase::Open;
        if open && self.wheel.due_ms(slot).is_some_and(|beat| end < beat) {
            // An earlier beat does no harm, if the message is whole then.
            self.wheel.set(slot, end);
        }
    }

    /// When the message or frame that a reader has begun must be whole; `None` if there is none.
    pub(crate) fn message_ends_ms(&mut self, slot: u32) -> Option<u64> {
        let since = self.slab.at(slot).decoder.unfinished_since(self.now_ms)?;
        Some(since + u64::from(self.policy.settings.unfinished_ms))
    }

    /// Answer the ping that was put off, unless it must wait for the socket too.
    pub(crate) fn answer_last_ping(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        if connection.blocked || connection.phase != Phase::Open {
            return;
        }
        let ping = connection.extra.as_deref_mut().and_then(|extra| extra.ping.take());
        if let Some(payload) = ping {
            self.write(slot, pong_frame(&payload).as_slice());
            self.shrink(slot);
        }
    }

    fn violated(&mut self, slot: u32, violation: Violation) {
        match self.slab.at(slot).phase {
            Phase::Open => self.close(
                slot,
                match violation {
                    Violation::Protocol => "protocol_error",
                    Violation::InvalidPayload => "invalid_payload",
                    Violation::TooBig => "too_big",
                },
                None,
            ),
            // It can't be told any more when the reader answers our goodbye.
            Phase::Closing(Ending::Wait) => {
                let connection = self.slab.at(slot);
                connection.phase = Phase::Closing(Ending::HalfClose);
                if !connection.blocked {
                    sys::finish_writing(connection.fd);
                }
            }
            _ => {}
        }
    }

    fn on_frame(&mut self, slot: u32, event: Event<'_>) -> Result<(), Violation> {
        let connection = self.slab.at(slot);
        let open = connection.phase == Phase::Open;
        match event {
            Event::Close { code, .. } => self.on_close(slot, code),
            _ if !open => {}
            Event::Text(text) => self.on_message(slot, frame::TEXT, text.as_bytes()),
            Event::Binary(payload) => self.on_message(slot, frame::BINARY, payload),
            Event::Compressed { text, payload } => return self.inflate(slot, text, payload),
            Event::Ping(payload) if connection.blocked || self.pongs == 0 => {
                self.extra(slot).ping = Some(payload.into());
            }
            Event::Ping(payload) => {
                self.pongs -= 1;
                self.write(slot, pong_frame(payload).as_slice());
            }
            Event::Pong(_) => {}
        }
        Ok(())
    }

    fn on_close(&mut self, slot: u32, code: u16) {
        match self.slab.at(slot).phase {
            Phase::Open => {
                // RFC 6455 section 5.5.1: answer with the same code; 7.1.1: the server closes TCP.
                let answer = close_frame((code != NO_STATUS).then_some(code), "");
                self.part(slot, "reader", answer.as_slice(), Ending::HangUp);
            }
            Phase::Closing(Ending::Wait) => self.forget(slot),
            _ => {}
        }
    }

    fn inflate(&mut self, slot: u32, text: bool, payload: &[u8]) -> Result<(), Violation> {
        let most = self.settings().message_bytes as usize;
        let mut inflater = self.inflater.take().unwrap_or_default();
        let result = inflater.inflate(payload, most).and_then(|message| {
            if text && simdutf8::basic::from_utf8(message).is_err() {
                return Err(Violation::InvalidPayload);
            }
            let opcode = if text { frame::TEXT } else { frame::BINARY };
            self.on_message(slot, opcode, message);
            Ok(())
        });
        self.inflater = Some(inflater);
        result
    }

    fn on_message(&mut self, slot: u32, opcode: u8, payload: &[u8]) {
        if self.parts.echo {
            return self.echo(slot, opcode, payload);
        }
        if self.slab.at(slot).framing == Framing::Raw {
            return self.received(slot, payload);
        }
        let mut texts = std::mem::take(&mut self.texts);
        let read = texts.read(payload);
        for text in texts.iter() {
            self.received(slot, text.as_bytes());
        }
        self.texts = texts;
        if read.is_err() {
            self.end_abruptly(slot);
        }
    }

    /// End a connection whose SockJS frame is broken JSON: abruptly, as SockJS 1.0 has it, without
    /// frames of its own before the close frame.
    pub(crate) fn end_abruptly(&mut self, slot: u32) {
        let reason = self.policy.reason("protocol_error");
        let last = close_frame(Some(reason.code), &reason.text);
        self.part(slot, "protocol_error", last.as_slice(), Ending::HangUp);
    }

    /// A verb has come in.
    fn received(&mut self, slot: u32, verb: &[u8]) {
        if self.slab.at(slot).phase != Phase::Open {
            return;
        }
        let now_ms = self.now_ms as u32;
        let policy = self.policy.clone();
        match self.slab.at(slot).bucket.admit(&policy.settings, now_ms) {
            Admission::Welcome => self.ask(slot, verb),
            Admission::Refused => self.in_turn(slot, Waiting::Refusal),
            Admission::HangUp => self.in_turn(slot, Waiting::HangUp),
        }
    }

    /// Answer a flood when the verbs before it are answered. How many such answers can wait is
    /// bounded by the setting `refusals`: after them comes the end.
    fn in_turn(&mut self, slot: u32, answer: Waiting) {
        if self.may_ask(slot) {
            return self.answer_flood(slot, &answer);
        }
        let extra = self.extra(slot);
        if !matches!(extra.waiting.back(), Some(Waiting::HangUp)) {
            extra.waiting.push_back(answer);
        }
    }

    fn answer_flood(&mut self, slot: u32, answer: &Waiting) {
        match answer {
            Waiting::HangUp => self.close(slot, "too_many_requests", None),
            _ => self.busy(slot),
        }
    }

    fn busy(&mut self, slot: u32) {
        self.count(Count::Error111);
        self.push(slot, &error_push("", "", 111, "too many requests", true));
    }

    pub(crate) fn ask(&mut self, slot: u32, verb: &[u8]) {
        let most = self.settings().waiting as usize;
        let held = self.held_bytes + verb.len();
        let may_hold = held <= HELD_BYTES / self.parts.counters.len();
        if self.may_ask(slot) {
            if self.answers_ping(slot, verb) {
                return;
            }
            return if may_hold { self.report(slot, verb.into()) } else { self.busy(slot) };
        }
        let extra = self.extra(slot);
        let full = extra.waiting.len() >= most || extra.waiting_bytes + verb.len() > WAITING_BYTES;
        if full || !may_hold {
            return self.busy(slot);
        }
        extra.waiting.push_back(Waiting::Verb(verb.into()));
        extra.waiting_bytes += verb.len();
        self.held_bytes = held;
    }

    /// Whether a verb that comes now may go on at once.
    fn may_ask(&mut self, slot: u32) -> bool {
        let attached = self.attachment > 0;
        let connection = self.slab.at(slot);
        attached
            && connection.extra.as_ref().is_none_or(|extra| {
                extra.asked.is_none()
                    && extra.waiting.is_empty()
                    && extra.outbox.pending_bytes() <= VERBS_WAIT_ABOVE
            })
    }

    /// Answer a verb whose turn has come, if it is a plain ping and the control plane is well.
    fn answers_ping(&mut self, slot: u32, verb: &[u8]) -> bool {
        let Some(pong) = pong(verb) else {
            return false;
        };
        if self.parts.pulse.silent_ms() >= u64::from(self.settings().pong_ms) {
            return false;
        }
        self.count(Count::Pings);
        self.push(slot, &pong);
        true
    }

    fn report(&mut self, slot: u32, verb: Box<[u8]>) {
        let name = self.name_of(slot);
        self.held_bytes += verb.len();
        let extra = self.extra(slot);
        extra.asked = Some(verb.clone());
        let badge = self.badges.of(slot).map_or_else(Box::default, |badge| badge.blob().into());
        self.tell(Report::Verb(self.attachment, name, badge, verb));
    }

    /// The verb that was asked is answered: go on with the next.
    pub(crate) fn answered(&mut self, slot: u32) {
        if let Some(extra) = self.slab.at(slot).extra.as_deref_mut() {
            let asked = extra.asked.take();
            self.held_bytes -= asked.map_or(0, |verb| verb.len());
            self.ask_next(slot);
            self.shrink(slot);
        }
    }

    /// Ask the next verb that waits, if its turn has come.
    pub(crate) fn ask_next(&mut self, slot: u32) {
        if self.attachment == 0 || self.slab.at(slot).phase != Phase::Open {
            return;
        }
        while let Some(extra) = self.slab.at(slot).extra.as_deref_mut() {
            if extra.asked.is_some() || extra.outbox.pending_bytes() > VERBS_WAIT_ABOVE {
                return;
            }
            match extra.waiting.pop_front() {
                None => return,
                Some(Waiting::Verb(verb)) => {
                    extra.waiting_bytes -= verb.len();
                    self.held_bytes -= verb.len();
                    if !self.answers_ping(slot, &verb) {
                        return self.report(slot, verb);
                    }
                }
                Some(flood) => self.answer_flood(slot, &flood),
            }
        }
    }

    /// Another control plane is there: ask again what the last one didn't answer.
    pub(crate) fn ask_again(&mut self) {
        for slot in 0..self.slab.slots() {
            let connection = self.slab.at(slot);
            if connection.phase != Phase::Open {
                continue;
            }
            let asked = connection.extra.as_mut().and_then(|extra| extra.asked.take());
            match asked {
                Some(verb) => {
                    self.held_bytes -= verb.len();
                    self.report(slot, verb);
                }
                None => self.ask_next(slot),
            }
        }
    }
}
