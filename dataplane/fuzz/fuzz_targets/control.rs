//! Any bytes on the control socket are commands or an error, and a body is used up exactly. Our
//! events can be split off again, whatever content readers gave them.
//!
//! The input is a stream of messages, as a control plane sends them.

#![no_main]

use dataplane::control::{Command, ConnectionId, Event, MAX_MESSAGE, Text, split};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((kind, body, size))) = split(rest) {
        assert!(size == body.len() + 5 && size <= MAX_MESSAGE + 4);
        assert_eq!(split(&rest[..size - 1]), Ok(None));
        let decoded = Command::decode(kind, body);
        if decoded.is_ok() {
            assert!(Command::decode(kind, &[body, b"\0"].concat()).is_err());
            if let Some((_, shorter)) = body.split_last() {
                assert!(Command::decode(kind, shorter).is_err());
            }
        }
        rest = &rest[size..];
    }
    let reader = ConnectionId { thread: 1, slot: 2, generation: 3 };
    let name = String::from_utf8_lossy(data);
    let auth: Text = data[..data.len().min(1024)].into();
    let verbs = [(Text::default(), data.into()), (auth, data.into()), Default::default()];
    let verbs = verbs.map(|verb| (verb, vec![reader; 2])).into();
    let events = [
        Event::Verbs { verbs: &verbs },
        Event::Counters { counters: &[(name.to_string(), 7)] },
        Event::Refused { why: &name },
    ];
    let mut out = Vec::new();
    for event in &events {
        event.encode(&mut out);
    }
    let mut at = 0;
    for _ in &events {
        let (_, _, size) = split(&out[at..]).expect("ours").expect("whole");
        at += size;
    }
    assert_eq!(at, out.len());
});
