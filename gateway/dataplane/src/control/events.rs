//! Events: what the data plane tells.

use super::codec::{put_bytes16, put_bytes32, put_connection, put_text8};
use super::{ConnectionId, Offer};

/// Why a subscribe or a history could not be answered from memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncovered {
    /// The topic's past was never seeded, or it was forgotten.
    Cold = 0,
    /// There may be more than is remembered.
    Short = 1,
}

/// What the data plane tells. Events are written straight into the outgoing buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The answer to `hello`.
    Attached {
        /// The version that is spoken from here on.
        version: u16,
        /// This process.
        pid: u32,
        /// How many control planes attached so far, this one included.
        attachment: u32,
        /// Open connections.
        readers: u32,
        /// Ports of the listeners.
        ports: &'a [u16],
        /// What was given to `remember`.
        blob: &'a [u8],
    },
    /// What readers said.
    Verbs(&'a [(ConnectionId, &'a [u8])]),
    /// What readers with badges said: whose, the badge, the verb.
    Badged(&'a [(ConnectionId, &'a [u8], &'a [u8])]),
    /// Memory isn't enough to answer.
    Uncovered {
        /// Whose verb.
        connection: ConnectionId,
        /// The command's.
        token: u32,
        /// What is missing.
        why: Uncovered,
        /// The verb, as it came.
        text: &'a [u8],
    },
    /// All fan-outs up to this number are over.
    Published(u64),
    /// A request for the control plane; its descriptor goes with the first byte.
    Handover {
        /// The reader's address.
        address: &'a str,
    },
    /// Names and values.
    Counters(&'a [(String, u64)]),
    /// Why the connection to the control plane is about to be closed.
    Refused(&'a str),
    /// What a newer data plane is about to get. The listening control socket goes with it.
    Offer(Offer<'a>),
    /// The socket on which the I/O thread of this number gives its readers goes with it.
    Lane(u16),
    /// All is the newer data plane's: this one has let go of it.
    Yours,
}

impl Event<'_> {
    /// Append the event to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Event::Attached { version, pid, attachment, readers, ports, blob } => {
                out.push(129);
                out.extend_from_slice(&version.to_le_bytes());
                for number in [pid, attachment, readers] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.push(ports.len() as u8);
                for port in ports.iter().take(usize::from(ports.len() as u8)) {
                    out.extend_from_slice(&port.to_le_bytes());
                }
                put_bytes32(out, blob);
            }
            Event::Verbs(verbs) => {
                out.push(130);
                out.extend_from_slice(&(verbs.len() as u32).to_le_bytes());
                for (connection, text) in *verbs {
                    put_connection(out, *connection);
                    put_bytes32(out, text);
                }
            }
            Event::Uncovered { connection, token, why, text } => {
                out.push(131);
                put_connection(out, *connection);
                out.extend_from_slice(&token.to_le_bytes());
                out.push(*why as u8);
                put_bytes32(out, text);
            }
            Event::Published(number) => {
                out.push(132);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Event::Handover { address } => {
                out.push(133);
                put_text8(out, address);
            }
            Event::Counters(counters) => {
                out.push(134);
                out.extend_from_slice(&(counters.len() as u16).to_le_bytes());
                for (name, value) in *counters {
                    put_text8(out, name);
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            Event::Refused(why) => {
                out.push(135);
                put_text8(out, why);
            }
            Event::Offer(offer) => {
                out.push(136);
                offer.put(out);
            }
            Event::Lane(thread) => {
                out.push(137);
                out.extend_from_slice(&thread.to_le_bytes());
            }
            Event::Yours => out.push(138),
            Event::Badged(verbs) => {
                out.push(139);
                out.extend_from_slice(&(verbs.len() as u32).to_le_bytes());
                for (connection, badge, text) in *verbs {
                    put_connection(out, *connection);
                    put_bytes16(out, badge);
                    put_bytes32(out, text);
                }
            }
        }
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }
}
