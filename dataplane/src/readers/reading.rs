//! Bytes in: from frames to messages, and from messages to verbs.

use super::Readers;
use crate::closing::{AfterGoodbye, BY_READER, CloseReason};
use crate::deflate::Inflater;
use crate::frame::{self, Event, NO_STATUS, Violation, close_frame, pong_frame};
use crate::head::Framing;
use crate::slab::{Phase, RECEIVED_UNIT_MS};
use crate::sockjs::{self, Texts};
use crate::sys::{self, Errno};

/// Bytes of one read. More than a message may have, so that most messages arrive in one piece.
const READ_BYTES: usize = 64 * 1024;
/// Number of pings in one read that get a pong each. Of those after them only the most recent gets
/// one (RFC 6455 section 5.5.3): a read has room for 10,000, and all other readers would wait for
/// their pongs.
const PONGS: u32 = 64;

/// Memory that is used for one connection after the other.
#[derive(Default)]
pub(crate) struct Input {
    /// Taken out while it is used.
    pub(crate) buffer: Vec<u8>,
    texts: Texts,
    inflater: Option<Inflater>,
    /// Number of further pings of this read that get a pong each.
    pongs: u32,
}

impl Input {
    pub(super) fn new() -> Input {
        Input { buffer: vec![0; READ_BYTES], ..Input::default() }
    }
}

impl Readers {
    /// Read from a reader, or from one whose goodbye is in progress.
    pub(crate) fn read(&mut self, slot: u32) {
        let mut buffer = std::mem::take(&mut self.input.buffer);
        self.read_into(slot, &mut buffer);
        self.input.buffer = buffer;
    }

    fn read_into(&mut self, slot: u32, buffer: &mut [u8]) {
        let connection = self.slab.at(slot);
        let count = match sys::receive(connection.fd, buffer) {
            Ok(0) => return self.on_lost(slot),
            Ok(count) => count,
            Err(Errno::AGAIN) => return,
            Err(_) => return self.on_lost(slot),
        };
        connection.last_received = (self.clock.now_ms() / RECEIVED_UNIT_MS) as u32;
        self.probes.forget(slot);
        if !matches!(connection.phase, Phase::Open | Phase::Closing(AfterGoodbye::Wait)) {
            return;
        }
        let (generation, deflate) = (connection.generation, connection.deflate.is_some());
        // Taken out: the decoder lends its memory while the connection is used.
        let mut decoder = std::mem::take(&mut connection.decoder);
        let message_bytes = self.settings.message_bytes as usize;
        let rules = frame::Rules { message_bytes, deflate };
        let (mut at, mut end) = (0, None);
        self.input.pongs = PONGS;
        while end.is_none() {
            match decoder.step(&mut buffer[at..count], &rules) {
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
            // A message must be complete in time: up to a whole one is kept until then.
            let end = self.message_deadline_ms(slot);
            self.set_timer_at_latest(slot, end);
            if self.input.pongs == 0 {
                self.answer_last_ping(slot);
            }
        }
    }

    /// Answer the deferred ping, unless the socket is still full.
    pub(super) fn answer_last_ping(&mut self, slot: u32) {
        let connection = self.slab.at(slot);
        if connection.blocked || connection.phase != Phase::Open {
            return;
        }
        let ping = connection.busy.as_deref_mut().and_then(|busy| busy.ping.take());
        if let Some(payload) = ping {
            self.write(slot, pong_frame(&payload).as_slice());
            self.slab.at(slot).free_if_idle();
        }
    }

    fn violated(&mut self, slot: u32, violation: Violation) {
        let connection = self.slab.at(slot);
        match connection.phase {
            Phase::Open => {
                let reason = match violation {
                    Violation::Protocol => CloseReason::ProtocolError,
                    Violation::InvalidPayload => CloseReason::InvalidPayload,
                    Violation::TooBig => CloseReason::TooBig,
                };
                self.close(slot, reason, None);
            }
            // The reader's answer to our goodbye can't be recognised any more.
            Phase::Closing(AfterGoodbye::Wait) => {
                connection.phase = Phase::Closing(AfterGoodbye::HalfClose);
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
            Event::Ping(payload) if connection.blocked || self.input.pongs == 0 => {
                self.busy_state(slot).ping = Some(payload.into());
            }
            Event::Ping(payload) => {
                self.input.pongs -= 1;
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
                self.end(slot, BY_READER, answer.as_slice(), AfterGoodbye::HangUp);
            }
            Phase::Closing(AfterGoodbye::Wait) => self.close_and_free(slot),
            _ => {}
        }
    }

    fn inflate(&mut self, slot: u32, text: bool, payload: &[u8]) -> Result<(), Violation> {
        let most = self.settings.message_bytes as usize;
        let mut inflater = self.input.inflater.take().unwrap_or_default();
        let result = inflater.inflate(payload, most).and_then(|message| {
            if text && simdutf8::basic::from_utf8(message).is_err() {
                return Err(Violation::InvalidPayload);
            }
            let opcode = if text { frame::TEXT } else { frame::BINARY };
            self.on_message(slot, opcode, message);
            Ok(())
        });
        self.input.inflater = Some(inflater);
        result
    }

    fn on_message(&mut self, slot: u32, opcode: u8, payload: &[u8]) {
        if self.slab.at(slot).framing == Framing::Raw {
            return self.on_text(slot, opcode, payload);
        }
        let mut texts = std::mem::take(&mut self.input.texts);
        let read = texts.read(payload);
        for text in texts.iter() {
            self.on_text(slot, frame::TEXT, text.as_bytes());
        }
        self.input.texts = texts;
        if read.is_err() {
            self.end_abruptly(slot);
        }
    }

    /// Handle the text of one message, or one string of a SockJS array.
    fn on_text(&mut self, slot: u32, opcode: u8, text: &[u8]) {
        if self.echo { self.send_back(slot, opcode, text) } else { self.on_verb(slot, text) }
    }

    /// End a connection whose SockJS frame is broken JSON: abruptly (SockJS 1.0), without a SockJS
    /// frame before the close frame.
    fn end_abruptly(&mut self, slot: u32) {
        let reason = self.settings.reason(CloseReason::ProtocolError);
        let last = close_frame(Some(reason.code), &reason.text);
        self.end(slot, CloseReason::ProtocolError.name(), last.as_slice(), AfterGoodbye::HangUp);
    }

    /// Send a text back as a push (`--echo`, for conformance tests); no control plane is asked.
    fn send_back(&mut self, slot: u32, opcode: u8, text: &[u8]) {
        let connection = self.slab.at(slot);
        let (framing, agreed) = (connection.framing, connection.deflate);
        let bytes = match framing {
            Framing::Raw => self.maker.for_one(opcode, text, agreed),
            Framing::SockJs => {
                let mut array = Vec::with_capacity(text.len() + 8);
                sockjs::put_message(&mut array, &String::from_utf8_lossy(text));
                self.maker.for_one(opcode, &array, agreed)
            }
        };
        self.write(slot, &bytes);
    }
}
