//! Why connections end, as values. Pure.
//!
//! Not here: the code and the text of a reason. They are in `newsfabric/closing.py`, the project's one
//! table, and come with the control plane's settings ([`Reason`](crate::control::Reason)).

macro_rules! own_reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal, $ending:ident, $presence:ident;)+) => {
        /// A reason for which a connection is closed from here.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CloseReason<'a> {
            $($(#[doc = $doc])+ $reason,)+
            /// One that only the control plane uses, by its name.
            Other(&'a str),
        }

        impl<'a> CloseReason<'a> {
            /// Those that the data plane uses itself.
            pub const OWN: &'static [CloseReason<'static>] = &[$(CloseReason::$reason),+];

            /// The reason of this name.
            pub fn of(name: &'a str) -> CloseReason<'a> {
                match name {
                    $($name => CloseReason::$reason,)+
                    other => CloseReason::Other(other),
                }
            }

            /// Its name in settings and counters.
            pub fn name(self) -> &'a str {
                match self {
                    $(CloseReason::$reason => $name,)+
                    CloseReason::Other(name) => name,
                }
            }

            /// What follows the close frame.
            pub fn ending(self) -> Ending {
                match self {
                    $(CloseReason::$reason => Ending::$ending,)+
                    CloseReason::Other(_) => Ending::Wait,
                }
            }

            /// Whether settings may lack it: then `internal` is said in its place.
            pub fn is_optional(self) -> bool {
                match self {
                    $(CloseReason::$reason => Presence::$presence == Presence::Optional,)+
                    CloseReason::Other(_) => true,
                }
            }
        }
    };
}

/// Whether settings must have a reason. One that is added is optional, since the settings of an older
/// control plane don't have it.
#[derive(PartialEq)]
enum Presence {
    Required,
    Optional,
}

own_reasons! {
    /// The reader broke the framing.
    ProtocolError = "protocol_error", HalfClose, Required;
    /// A text isn't UTF-8, or can't be decompressed.
    InvalidPayload = "invalid_payload", HalfClose, Required;
    /// A message is longer than `message_bytes`.
    TooBig = "too_big", HalfClose, Required;
    /// The whole data plane sends its readers away.
    Drain = "drain", Wait, Required;
    /// There are `capacity` readers.
    Overload = "overload", Wait, Required;
    /// A fault on our side.
    Internal = "internal", Wait, Required;
    /// The reader doesn't take what it is sent.
    SlowReader = "slow_reader", Wait, Required;
    /// The reader went on after `refusals`.
    TooManyRequests = "too_many_requests", Wait, Required;
    /// The reader hasn't been heard for two heartbeats.
    NoPong = "no_pong", Wait, Required;
    /// The reader's token has run out.
    TokenExpired = "token_expired", Wait, Optional;
    /// A message wasn't complete after `unfinished_ms`.
    Unfinished = "unfinished", HalfClose, Optional;
}

/// The counter `closes.LABEL` of connections that readers ended with a close frame.
pub const BY_READER: &str = "reader";
/// And of those whose transport broke.
pub const LOST: &str = "lost";

/// What follows the last byte of a goodbye.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The reader answers, then TCP is closed (RFC 6455 section 7.1.1).
    Wait,
    /// No more comes from us. What the reader still sends is dropped: after a violation its
    /// answer can't be told from it, and a reset would destroy the goodbye.
    HalfClose,
    /// TCP is closed.
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
        let broken = CloseReason::OWN.iter().filter(|one| one.ending() == Ending::HalfClose);
        let broken: Vec<_> = broken.map(|one| one.name()).collect();
        assert_eq!(broken, ["protocol_error", "invalid_payload", "too_big", "unfinished"]);
    }

    #[test]
    fn settings_may_lack_what_older_control_planes_did_not_know() {
        let optional = CloseReason::OWN.iter().filter(|one| one.is_optional());
        let optional: Vec<_> = optional.map(|one| one.name()).collect();
        assert_eq!(optional, ["token_expired", "unfinished"]);
    }
}
