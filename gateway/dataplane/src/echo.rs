//! `--echo`, for conformance tests: a message goes back to the reader who sent it, framed and compressed as
//! a push would be. No verb reaches the control plane.

use crate::frame;
use crate::head::Framing;
use crate::reactor::Reactor;
use crate::sockjs;

impl Reactor {
    pub(crate) fn echo(&mut self, slot: u32, opcode: u8, payload: &[u8]) {
        if self.slab.at(slot).framing == Framing::Raw {
            return self.send_back(slot, opcode, payload);
        }
        let mut texts = std::mem::take(&mut self.texts);
        let read = texts.read(payload);
        for text in texts.iter() {
            let mut array = Vec::with_capacity(text.len() + 8);
            sockjs::put_message(&mut array, text);
            self.send_back(slot, frame::TEXT, &array);
        }
        self.texts = texts;
        if read.is_err() {
            self.end_abruptly(slot);
        }
    }

    fn send_back(&mut self, slot: u32, opcode: u8, payload: &[u8]) {
        let agreed = self.slab.at(slot).deflate;
        let bytes = self.maker.for_one(opcode, payload, agreed);
        self.write(slot, &bytes);
    }
}
