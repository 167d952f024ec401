//! The enums of messages, made from the rows of `table.rs`: commands are read, events are written.
//!
//! A form that `gateway/native/table.py` names has its type here, and its reader or writer in
//! `codec.rs`.

/// The type of a field, by its form.
macro_rules! form {
    (flag) => { bool };
    (u16) => { u16 };
    (u32) => { u32 };
    (u64) => { u64 };
    (text8) => { &'a str };
    (name8) => { &'a str };
    (series) => { &'a str };
    (bytes16) => { &'a [u8] };
    (bytes32) => { &'a [u8] };
    (auth) => { &'a [u8] };
    (blob) => { &'a [u8] };
    (magic) => { Magic };
    (address) => { IpAddr };
    (topic) => { Topic<'a> };
    (message) => { TopicMessage<'a> };
    (messages) => { Vec<TopicMessage<'a>> };
    (acceptance) => { Acceptance<'a> };
    (users) => { Vec<(&'a str, u64)> };
    (kept) => { Vec<(IpAddr, u32)> };
    (ports) => { &'a [u16] };
    (verbs) => { &'a Verbs };
    (counters) => { &'a [(String, u64)] };
    (offer) => { Offer };
}

macro_rules! commands {
    (
        Command { $($name:ident = $number:literal { $($field:ident: $form:ident),* })* }
        ToReaders { $($to:ident = $type:literal { $($its:ident: $its_form:ident),* })* }
    ) => {
        /// Types of commands, the messages to a data plane.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
        #[repr(u8)]
        pub enum CommandKind { $($name = $number,)* $($to = $type,)* }

        /// A command to connections. All but `close` answer a verb.
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each does")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ToReaders<'a> { $($to { $($its: form!($its_form)),* },)* }

        /// A command of the control plane; `TakeOver` and `Commit` are a newer data plane's. Their
        /// versions may differ from ours.
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each does")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Command<'a> {
            $($name { $($field: form!($form)),* },)*
            ToReaders(Connections<'a>, ToReaders<'a>),
        }

        impl<'a> Command<'a> {
            /// Return the command of type `kind` with this `body`.
            pub fn decode(kind: u8, body: &'a [u8]) -> Result<Command<'a>, Malformed> {
                let mut from = FieldReader::new(body);
                let command = match kind {
                    $($number => Command::$name {
                        $($field: from.named(stringify!($field)).$form()?),*
                    },)*
                    $($type => Command::ToReaders(
                        from.connections()?,
                        ToReaders::$to { $($its: from.named(stringify!($its)).$its_form()?),* },
                    ),)*
                    _ => return Err(Malformed::Type(kind)),
                };
                from.end()?;
                Ok(command)
            }
        }
    };
}

macro_rules! events {
    ($($name:ident = $number:literal { $($field:ident: $form:ident),* })*) => {
        /// Types of events, the messages from a data plane.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each is")]
        #[repr(u8)]
        pub enum EventKind { $($name = $number,)* }

        impl EventKind {
            /// Return the type with this number.
            pub fn of(number: u8) -> Option<EventKind> {
                match number {
                    $($number => Some(EventKind::$name),)*
                    _ => None,
                }
            }
        }

        /// An event of the data plane.
        #[allow(missing_docs, reason = "docs/dataplane-protocol.md says what each means")]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event<'a> { $($name { $($field: form!($form)),* },)* }

        impl Event<'_> {
            /// Append the event to `out`.
            pub fn encode(&self, out: &mut Vec<u8>) {
                put_with_length(out, |out| match self {
                    $(Event::$name { $($field),* } => {
                        out.push($number);
                        $(put::$form(out, $field);)*
                    })*
                });
            }
        }
    };
}
