//! What two data planes say to each other before one takes over from the other.
//!
//! The older one speaks as to a control plane, in events; the newer one's part is two commands.

use super::codec::{Reader, put_bytes32};
use super::kinds::{CommandKind, EventKind};
use super::{MAGIC, MAX_BLOB, MAX_MESSAGE, Malformed, TAKE_OVER_VERSION};

/// What a data plane has beside its readers; `settings` is empty if none came.
#[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each field is")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer<'a> {
    pub pid: u32,
    pub format: u16,
    pub threads: u16,
    pub proxied: bool,
    pub echo: bool,
    pub attachments: u32,
    pub ports: Vec<u16>,
    pub settings: &'a [u8],
    pub blob: &'a [u8],
}

impl<'a> Offer<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pid.to_le_bytes());
        out.extend_from_slice(&self.format.to_le_bytes());
        out.extend_from_slice(&self.threads.to_le_bytes());
        out.extend([u8::from(self.proxied), u8::from(self.echo)]);
        out.extend_from_slice(&self.attachments.to_le_bytes());
        out.push(self.ports.len() as u8);
        for port in self.ports.iter().take(usize::from(self.ports.len() as u8)) {
            out.extend_from_slice(&port.to_le_bytes());
        }
        put_bytes32(out, self.settings);
        put_bytes32(out, self.blob);
    }

    fn read(from: &mut Reader<'a>) -> Result<Offer<'a>, Malformed> {
        let offer = Offer {
            pid: from.u32()?,
            format: from.u16()?,
            threads: from.u16()?,
            proxied: from.flag("proxied")?,
            echo: from.flag("echo")?,
            attachments: from.u32()?,
            ports: (0..from.u8()?).map(|_| from.u16()).collect::<Result<_, _>>()?,
            settings: from.bytes32()?,
            blob: from.bytes32()?,
        };
        if offer.threads == 0 {
            return Err(Malformed::Value("threads"));
        }
        if offer.blob.len() > MAX_BLOB || offer.settings.len() > MAX_MESSAGE {
            return Err(Malformed::Length);
        }
        Ok(offer)
    }
}

/// The command `take_over`, from a data plane that reads states up to `format`.
pub fn take_over(format: u16) -> Vec<u8> {
    let mut out = vec![9, 0, 0, 0, CommandKind::TakeOver as u8];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&TAKE_OVER_VERSION.to_le_bytes());
    out.extend_from_slice(&format.to_le_bytes());
    out
}

/// The command `commit`.
pub const COMMIT: [u8; 5] = [1, 0, 0, 0, CommandKind::Commit as u8];

/// What the older data plane says to the newer one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'a> {
    /// This is what there is; a descriptor came with it.
    Offer(Offer<'a>),
    /// Here the I/O thread of this number gives; a descriptor came with it.
    Lane(u16),
    /// It has let go.
    Yours,
    /// It serves on. Why.
    Refused(&'a str),
}

impl<'a> Answer<'a> {
    /// The answer of type `kind` with this `body`.
    ///
    /// # Errors
    /// Whoever listens there isn't a data plane.
    pub fn decode(kind: u8, body: &'a [u8]) -> Result<Answer<'a>, Malformed> {
        let mut from = Reader::new(body);
        let answer = match EventKind::of(kind) {
            Some(EventKind::Refused) => Answer::Refused(from.text8("why")?),
            Some(EventKind::Offer) => Answer::Offer(Offer::read(&mut from)?),
            Some(EventKind::Lane) => Answer::Lane(from.u16()?),
            Some(EventKind::Yours) => Answer::Yours,
            _ => return Err(Malformed::Type(kind)),
        };
        from.end()?;
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Command, Event, split};
    use proptest::prelude::*;

    fn decoded<'a>(bytes: &'a mut Vec<u8>, event: &Event<'_>) -> Answer<'a> {
        event.encode(bytes);
        let (kind, body, used) = split(bytes).expect("well formed").expect("whole");
        assert_eq!(used, bytes.len());
        Answer::decode(kind, body).expect("an answer")
    }

    #[test]
    fn what_one_data_plane_says_the_other_understands() {
        let offer = Offer {
            pid: 7,
            format: 1,
            threads: 2,
            proxied: false,
            echo: true,
            attachments: 3,
            ports: vec![80, 443],
            settings: b"settings",
            blob: b"blob",
        };
        let mut bytes = Vec::new();
        assert_eq!(decoded(&mut bytes, &Event::Offer(offer.clone())), Answer::Offer(offer));
        assert_eq!(decoded(&mut Vec::new(), &Event::Lane(1)), Answer::Lane(1));
        assert_eq!(decoded(&mut Vec::new(), &Event::Yours), Answer::Yours);
        assert_eq!(decoded(&mut Vec::new(), &Event::Refused("no")), Answer::Refused("no"));
    }

    #[test]
    fn what_the_newer_one_says_is_a_command() {
        let bytes = take_over(2);
        let (kind, body, _) = split(&bytes).expect("well formed").expect("whole");
        let wish = Command::TakeOver { version: TAKE_OVER_VERSION, format: 2 };
        assert_eq!(Command::decode(kind, body), Ok(wish));
        assert_eq!(split(&COMMIT), Ok(Some((14, &[][..], 5))));
        assert_eq!(Command::decode(14, &[]), Ok(Command::Commit));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_an_error(kind: u8, body: Vec<u8>) {
            let _ = Answer::decode(kind, &body);
        }
    }
}
