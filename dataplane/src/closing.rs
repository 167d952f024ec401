//! The reasons for which connections end, as values. Pure.
//!
//! Not here: the code and the text of a reason. They are in `newsfabric/closing.py`, the project's
//! one table, and arrive with the control plane's settings ([`Reason`](crate::control::Reason)).

use serde::{Deserialize, Serialize};

macro_rules! own_reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal, $ending:ident;)+) => {
        /// A reason for which the data plane closes a connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CloseReason<'a> {
            $($(#[doc = $doc])+ $reason,)+
            /// A reason that only the control plane uses, by its name.
            Other(&'a str),
        }

        impl<'a> CloseReason<'a> {
            #[cfg(test)]
            const OWN: &'static [CloseReason<'static>] = &[$(CloseReason::$reason),+];

            /// Return the reason of this name.
            pub fn of(name: &'a str) -> CloseReason<'a> {
                match name {
                    $($name => CloseReason::$reason,)+
                    other => CloseReason::Other(other),
                }
            }

            /// Return the reason's name in settings and counters.
            pub fn name(self) -> &'a str {
                match self {
                    $(CloseReason::$reason => $name,)+
                    CloseReason::Other(name) => name,
                }
            }

            /// Return the step that follows the close frame.
            pub fn after_goodbye(self) -> AfterGoodbye {
                match self {
                    $(CloseReason::$reason => AfterGoodbye::$ending,)+
                    CloseReason::Other(_) => AfterGoodbye::Wait,
                }
            }
        }
    };
}

own_reasons! {
    /// The reader broke the framing.
    ProtocolError = "protocol_error", HalfClose;
    /// A text isn't UTF-8, or a message can't be decompressed.
    InvalidPayload = "invalid_payload", HalfClose;
    /// A message is longer than `message_bytes`.
    TooBig = "too_big", HalfClose;
    /// The whole data plane sends its readers away.
    Drain = "drain", Wait;
    /// There are `capacity` readers.
    Overload = "overload", Wait;
    /// There are `per_address` connections of the reader's address.
    AddressFull = "address_full", Wait;
    /// A fault on our side.
    Internal = "internal", Wait;
    /// The reader doesn't take the frames that it is sent.
    SlowReader = "slow_reader", Wait;
    /// The reader went on after `refusals`.
    TooManyRequests = "too_many_requests", Wait;
    /// No byte was received from the reader for two heartbeats.
    NoPong = "no_pong", Wait;
    /// The reader's token has expired.
    TokenExpired = "token_expired", Wait;
    /// A message wasn't complete after `unfinished_ms`.
    Unfinished = "unfinished", HalfClose;
}

/// Label of the counter `closes.LABEL` for connections that readers ended with a close frame.
pub const BY_READER: &str = "reader";
/// Label of that counter for connections whose transport broke.
pub const LOST: &str = "lost";

/// The step after the last byte of a goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterGoodbye {
    /// Wait for the reader's answer, then close TCP (RFC 6455 section 7.1.1).
    Wait,
    /// Send no more, and drop all that the reader still sends: after a violation its answer can't
    /// be recognised, and a reset would destroy the goodbye.
    HalfClose,
    /// Close TCP at once.
    HangUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        for &reason in CloseReason::OWN {
            assert_eq!(CloseReason::of(reason.name()), reason);
        }
        assert_eq!(CloseReason::of("rebalance"), CloseReason::Other("rebalance"));
        assert_eq!(CloseReason::of("rebalance").name(), "rebalance");
    }

    #[test]
    fn whoever_broke_a_rule_of_the_transport_has_its_answer_ignored() {
        let broken =
            CloseReason::OWN.iter().filter(|one| one.after_goodbye() == AfterGoodbye::HalfClose);
        let broken: Vec<_> = broken.map(|one| one.name()).collect();
        assert_eq!(broken, ["protocol_error", "invalid_payload", "too_big", "unfinished"]);
    }
}
