//! The answer to a ping is the one that any JSON library would give.
//!
//! The input is the part between `{"action":"ping"` and the end: so most inputs are nearly pings.

#![no_main]

use dataplane::ping::pong;
use dataplane::sockjs::Texts;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = pong(data);
    let verb = [br#"{"action":"ping""#, data].concat();
    let Some(push) = pong(&verb) else {
        return;
    };
    let rest = data.strip_suffix(b"}").expect("an object ends");
    assert_eq!(push.as_bytes(), [br#"{"type":"pong""#, rest, b"}"].concat());
    // The pong is JSON, and one value: an array of it has one element that isn't a string.
    let mut texts = Texts::default();
    texts.read(format!("[{push}]").as_bytes()).expect("JSON");
    assert!(texts.iter().eq([""]));
});
