//! The types of all messages: the table in `docs/dataplane-protocol.md`, which a test compares.

macro_rules! kinds {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $number:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
        #[repr(u8)]
        pub enum $name { $($variant = $number,)* }

        impl $name {
            /// Return the type with this number.
            pub fn of(number: u8) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Types of commands, the messages to a data plane.
    CommandKind {
        Hello = 1,
        Settings = 2,
        Publish = 3,
        Subscribe = 5,
        Unsubscribe = 6,
        Reply = 7,
        Close = 9,
        Remember = 10,
        Drain = 11,
        Count = 12,
        TakeOver = 13,
        Commit = 14,
        Batch = 15,
        Auth = 16,
        Evict = 17,
        Shed = 20,
        Gone = 21,
        Kept = 22,
        Stamp = 23,
        Mark = 24,
    }
}

kinds! {
    /// Types of events, the messages from a data plane.
    EventKind {
        Attached = 129,
        Verbs = 130,
        Published = 132,
        Handover = 133,
        Counters = 134,
        Refused = 135,
        Offer = 136,
        Lane = 137,
        Yours = 138,
        Full = 139,
    }
}
