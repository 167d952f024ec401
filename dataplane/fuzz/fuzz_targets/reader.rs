//! The verbs of a SockJS reader are the same however its bytes are cut: frames, inflated if they
//! are compressed, then the strings in them. The input's first byte says where to cut.

#![no_main]

use dataplane::deflate::Inflater;
use dataplane::frame::{Decoder, Event, Rules};
use dataplane::sockjs::Texts;
use libfuzzer_sys::fuzz_target;

const RULES: Rules = Rules { message_bytes: 500, deflate: true };

fuzz_target!(|data: &[u8]| {
    let Some((&first, stream)) = data.split_first() else {
        return;
    };
    assert_eq!(frames_of(stream.chunks(usize::from(first).max(1))), frames_of([stream]));
});

/// Return the verbs, with `None` where the connection ended badly.
fn frames_of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Option<String>> {
    let (mut decoder, mut inflater) = (Decoder::default(), Inflater::default());
    let (mut texts, mut verbs) = (Texts::default(), Vec::new());
    for part in parts {
        let mut buffer = part.to_vec();
        let mut at = 0;
        loop {
            let payload = match decoder.step(&mut buffer[at..], &RULES) {
                Ok((_, None)) => break,
                Ok((used, Some(event))) => {
                    at += used;
                    match event {
                        Event::Text(text) => Ok(text.as_bytes()),
                        Event::Binary(payload) => Ok(payload),
                        Event::Compressed { payload, .. } => {
                            inflater.inflate(payload, RULES.message_bytes)
                        }
                        _ => continue,
                    }
                }
                Err(violation) => Err(violation),
            };
            let Ok(payload) = payload else {
                verbs.push(None);
                return verbs;
            };
            assert!(payload.len() <= RULES.message_bytes);
            if texts.read(payload).is_err() {
                assert_eq!(texts.iter().count(), 0, "nothing in it counts");
                verbs.push(None);
                return verbs;
            }
            verbs.extend(texts.iter().map(|text| Some(text.to_owned())));
        }
    }
    verbs
}
