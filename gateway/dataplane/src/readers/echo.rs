//! `--echo`, for conformance tests: a message goes back to the reader who sent it, framed and compressed as
//! a push would be. No verb reaches the control plane.

use super::Readers;
use crate::head::Framing;
use crate::sockjs;

impl Readers {
    /// Send back one message, or one string of a SockJS array.
    pub(super) fn send_back(&mut self, slot: u32, opcode: u8, text: &[u8]) {
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
