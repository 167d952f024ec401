//! Events: messages from the data plane.

use std::collections::BTreeMap;

use super::codec::{
    put_bytes16, put_bytes32, put_connections, put_ports, put_text8, put_typed, put_with_length,
};
use super::kinds::EventKind;
use super::{ConnectionId, Offer};

/// A reader's verb, or the blob of its auth state.
pub type Text = Box<[u8]>;

/// Connections by auth state (empty for none) and verb: those that have sent the same are together.
pub type Verbs = BTreeMap<(Text, Text), Vec<ConnectionId>>;

/// An event of the data plane.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each means")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    Attached {
        version: u16,
        pid: u32,
        attachment: u32,
        readers: u32,
        ports: &'a [u16],
        blob: &'a [u8],
    },
    Verbs(&'a Verbs),
    Published(u64),
    Handover(&'a str),
    Full(&'a str),
    Counters(&'a [(String, u64)]),
    Refused(&'a str),
    Offer(Offer),
    Lane(u16),
    Yours,
}

impl Event<'_> {
    /// Append the event to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_with_length(out, |out| self.put(out));
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Event::Attached { version, pid, attachment, readers, ports, blob } => {
                out.push(EventKind::Attached as u8);
                out.extend_from_slice(&version.to_le_bytes());
                for number in [pid, attachment, readers] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                put_ports(out, ports);
                put_bytes32(out, blob);
            }
            Event::Verbs(verbs) => {
                out.push(EventKind::Verbs as u8);
                out.extend_from_slice(&(verbs.len() as u32).to_le_bytes());
                for ((auth, text), connections) in *verbs {
                    put_connections(out, connections);
                    put_bytes16(out, auth);
                    put_bytes32(out, text);
                }
            }
            Event::Published(number) => {
                out.push(EventKind::Published as u8);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Event::Handover(address) => {
                out.push(EventKind::Handover as u8);
                put_text8(out, address);
            }
            Event::Full(address) => {
                out.push(EventKind::Full as u8);
                put_text8(out, address);
            }
            Event::Counters(counters) => {
                out.push(EventKind::Counters as u8);
                out.extend_from_slice(&(counters.len() as u16).to_le_bytes());
                for (name, value) in *counters {
                    put_text8(out, name);
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            Event::Refused(why) => {
                out.push(EventKind::Refused as u8);
                put_text8(out, why);
            }
            Event::Offer(offer) => {
                out.push(EventKind::Offer as u8);
                put_typed(out, offer);
            }
            Event::Lane(thread) => {
                out.push(EventKind::Lane as u8);
                out.extend_from_slice(&thread.to_le_bytes());
            }
            Event::Yours => out.push(EventKind::Yours as u8),
        }
    }
}
