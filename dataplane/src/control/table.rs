//! The messages of the control protocol: made by `scripts/protocol` from
//! `gateway/native/table.py`.

use std::net::IpAddr;

use super::codec::{FieldReader, put, put_with_length};
use super::{Acceptance, Connections, Magic, Malformed, Offer, Topic, TopicMessage, Verbs};

/// The version of the protocol, which both ends must speak.
pub const VERSION: u16 = 10;

commands! {
    Command {
        Hello = 1 { magic: magic, version: u16 }
        Settings = 2 { json: bytes32 }
        Publish = 3 { number: u64, topic: topic, message: message }
        Remember = 10 { blob: blob }
        Drain = 11 { spread_ms: u32, per_second: u32 }
        Count = 12 {}
        TakeOver = 13 { magic: magic, version: u16, format: u16 }
        Commit = 14 {}
        Batch = 15 { number: u64, topic: topic, messages: messages }
        Evict = 17 { reason: text8, users: users }
        Shed = 20 { reason: text8, count: u32, retry_ms: u32 }
        Gone = 21 { address: address }
        Kept = 22 { kept: kept }
        Stamp = 23 { taken_ms: u64, series: series }
        Mark = 24 { mark: bytes16 }
    }

    ToReaders {
        Subscribe = 5 { acceptance: acceptance }
        Unsubscribe = 6 { topic: name8, push: bytes32 }
        Reply = 7 { push: bytes32 }
        Close = 9 { reason: text8, retry_after_ms: u32 }
        Auth = 16 { user: text8, issued_ms: u64, ends_ms: u64, auth: auth, push: bytes32 }
    }
}

events! {
    Attached = 129 { version: u16, pid: u32, attachment: u32, readers: u32, ports: ports, blob: blob }
    Verbs = 130 { verbs: verbs }
    Published = 132 { number: u64 }
    Handover = 133 { address: address }
    Counters = 134 { counters: counters }
    Refused = 135 { why: text8 }
    Offer = 136 { offer: offer }
    StateSocket = 137 { thread: u16 }
    Yours = 138 {}
    Full = 139 { address: address }
}
