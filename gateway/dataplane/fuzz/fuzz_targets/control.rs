//! Whatever comes over the control socket is a command or an error, and every command that was read
//! is the same however the bytes around it were cut.
//!
//! The input is a stream of messages, as a control plane would send them.

#![no_main]

use dataplane::control::{Command, MAX_MESSAGE, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((kind, body, size))) = split(rest) {
        assert!(size == body.len() + 5 && size <= MAX_MESSAGE + 4);
        assert_eq!(split(&rest[..size - 1]), Ok(None));
        if let Ok(command) = Command::decode(kind, body) {
            check(kind, body, &command);
        }
        rest = &rest[size..];
    }
});

/// A body is used up exactly: a byte less or more is no command.
fn check(kind: u8, body: &[u8], command: &Command<'_>) {
    assert_eq!(Command::decode(kind, body).as_ref(), Ok(command));
    if let Some((_, shorter)) = body.split_last() {
        let _ = shorter;
        assert!(Command::decode(kind, &body[..body.len() - 1]).is_err());
    }
    assert!(Command::decode(kind, &[body, b"\0"].concat()).is_err());
}
