//! The messages between two data planes before a take-over.
//!
//! The older one speaks as to a control plane, in events; the newer one's part is two commands.

use serde::{Deserialize, Serialize};

use super::codec::FieldReader;
use super::{CommandKind, Event, EventKind, Malformed, Settings};
use super::{MAGIC, MAX_BLOB, MAX_MESSAGE, TAKE_OVER_VERSION};

/// Options of a data plane beyond its settings.
#[allow(missing_docs, reason = "the program's usage says what each is")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadOptions {
    pub threads: u16,
    pub proxied: bool,
    pub echo: bool,
}

/// State that a data plane keeps for later control planes, and for a newer data plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlState {
    /// Number of control planes that have attached.
    pub attachments: u32,
    /// The last `settings`, as JSON; empty if none was received.
    pub settings: Vec<u8>,
    /// The blob of `remember`, and each `mark` since.
    pub blob: Vec<u8>,
}

impl ControlState {
    /// Return the decoded settings, if there are any.
    pub fn decoded(&self) -> Result<Option<Settings>, Malformed> {
        let json = (!self.settings.is_empty()).then_some(&self.settings);
        json.map(|json| Settings::decode(json)).transpose()
    }

    /// Add a mark to the blob; a mark is dropped without a blob, or without room.
    pub fn add(&mut self, mark: &[u8]) {
        if !self.blob.is_empty() && self.blob.len() + mark.len() <= MAX_BLOB {
            self.blob.extend_from_slice(mark);
        }
    }
}

/// The state of a data plane beside its readers.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    pub pid: u32,
    pub format: u16,
    pub options: ThreadOptions,
    pub ports: Vec<u16>,
    pub state: ControlState,
}

impl Offer {
    pub(super) fn is_possible(&self) -> bool {
        self.options.threads > 0
            && self.state.blob.len() <= MAX_BLOB
            && self.state.settings.len() <= MAX_MESSAGE
    }
}

/// Return the command `take_over` of a data plane that reads states up to `format`.
pub fn take_over(format: u16) -> Vec<u8> {
    let mut out = vec![9, 0, 0, 0, CommandKind::TakeOver as u8];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&TAKE_OVER_VERSION.to_le_bytes());
    out.extend_from_slice(&format.to_le_bytes());
    out
}

/// The command `commit`.
pub const COMMIT: [u8; 5] = [1, 0, 0, 0, CommandKind::Commit as u8];

impl<'a> Event<'a> {
    /// Return an event of an older data plane to a newer one: of all events, only these are read by
    /// us.
    ///
    /// # Errors
    /// The peer isn't a data plane.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Event<'a>, Malformed> {
        let mut from = FieldReader::new(body);
        let event = match EventKind::of(kind) {
            Some(EventKind::Refused) => Event::Refused { why: from.named("why").text8()? },
            Some(EventKind::Offer) => Event::Offer { offer: from.named("offer").offer()? },
            Some(EventKind::StateSocket) => Event::StateSocket { thread: from.u16()? },
            Some(EventKind::Yours) => Event::Yours {},
            _ => return Err(Malformed::Type(kind)),
        };
        from.end()?;
        Ok(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Command, Magic, split};
    use proptest::prelude::*;

    #[test]
    fn what_one_data_plane_says_the_other_understands() {
        let offer = Offer {
            pid: 7,
            format: 1,
            options: ThreadOptions { threads: 2, proxied: false, echo: true },
            ports: vec![80, 443],
            state: ControlState {
                attachments: 3,
                settings: b"settings".to_vec(),
                blob: b"blob".to_vec(),
            },
        };
        let (state_socket, refused) =
            (Event::StateSocket { thread: 1 }, Event::Refused { why: "no" });
        for event in [Event::Offer { offer }, state_socket, Event::Yours {}, refused] {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            let (kind, body, used) = split(&bytes).expect("well formed").expect("whole");
            assert_eq!(used, bytes.len());
            assert_eq!(Event::decode(kind, body), Ok(event));
        }
    }

    #[test]
    fn what_the_newer_one_says_is_a_command() {
        let bytes = take_over(2);
        let (kind, body, _) = split(&bytes).expect("well formed").expect("whole");
        let request = Command::TakeOver { magic: Magic, version: TAKE_OVER_VERSION, format: 2 };
        assert_eq!(Command::decode(kind, body), Ok(request));
        assert_eq!(split(&COMMIT), Ok(Some((14, &[][..], 5))));
        assert_eq!(Command::decode(14, &[]), Ok(Command::Commit {}));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_an_error(kind: u8, body: Vec<u8>) {
            let _ = Event::decode(kind, &body);
        }
    }
}
