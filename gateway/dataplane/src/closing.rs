//! Why connections end, as values. Pure.
//!
//! Not here: the code and the text of a reason. They are in `newsfabric/closing.py`, the project's one
//! table, and come with the control plane's settings ([`Reason`](crate::control::Reason)).

macro_rules! own_reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal,)+) => {
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
        }
    };
}

own_reasons! {
    /// The reader broke the framing.
    ProtocolError = "protocol_error",
    /// A text isn't UTF-8, or can't be decompressed.
    InvalidPayload = "invalid_payload",
    /// A message is longer than `message_bytes`.
    TooBig = "too_big",
    /// The whole data plane sends its readers away.
    Drain = "drain",
    /// There are `capacity` readers.
    Overload = "overload",
    /// A fault on our side.
    Internal = "internal",
    /// The reader doesn't take what it is sent.
    SlowReader = "slow_reader",
    /// The reader went on after `refusals`.
    TooManyRequests = "too_many_requests",
    /// The reader hasn't been heard for two heartbeats.
    NoPong = "no_pong",
    /// The reader's token has run out.
    TokenExpired = "token_expired",
    /// A message wasn't complete after `unfinished_ms`.
    Unfinished = "unfinished",
}

impl CloseReason<'_> {
    /// Whether settings may lack it: then `internal` is said in its place. So it is for each reason
    /// that is added, since the settings of an older control plane don't have it.
    pub fn is_optional(self) -> bool {
        match self {
            CloseReason::TokenExpired | CloseReason::Unfinished | CloseReason::Other(_) => true,
            CloseReason::ProtocolError
            | CloseReason::InvalidPayload
            | CloseReason::TooBig
            | CloseReason::Drain
            | CloseReason::Overload
            | CloseReason::Internal
            | CloseReason::SlowReader
            | CloseReason::TooManyRequests
            | CloseReason::NoPong => false,
        }
    }

    /// What follows the close frame.
    pub fn ending(self) -> Ending {
        match self {
            CloseReason::ProtocolError
            | CloseReason::InvalidPayload
            | CloseReason::TooBig
            | CloseReason::Unfinished => Ending::HalfClose,
            CloseReason::Drain
            | CloseReason::Overload
            | CloseReason::Internal
            | CloseReason::SlowReader
            | CloseReason::TooManyRequests
            | CloseReason::NoPong
            | CloseReason::TokenExpired
            | CloseReason::Other(_) => Ending::Wait,
        }
    }
}

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

/// How an open connection ended, as it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<'a> {
    /// The reader sent a close frame.
    ByReader,
    /// The transport broke.
    Lost,
    /// It was closed from here.
    Closed(CloseReason<'a>),
}

impl<'a> Ended<'a> {
    /// The label in the counters `closes.LABEL`.
    pub fn label(self) -> &'a str {
        match self {
            Ended::ByReader => "reader",
            Ended::Lost => "lost",
            Ended::Closed(reason) => reason.name(),
        }
    }
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
