//! The events of a reader's bytes are the same, however these are cut, and wherever a take-over
//! happens. The input's first byte says where to cut, and whether deflate was negotiated.

#![no_main]

use dataplane::frame::{Decoder, Rules};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&first, stream)) = data.split_first() else {
        return;
    };
    let rules = Rules { message_bytes: 500, deflate: first & 0x80 != 0 };
    let size = usize::from(first & 0x7F).max(1);
    let whole = events([stream], &rules);
    assert_eq!(events(stream.chunks(size), &rules), whole);
});

fn events<'a>(parts: impl IntoIterator<Item = &'a [u8]>, rules: &Rules) -> Vec<String> {
    let mut decoder = Decoder::default();
    let mut seen = Vec::new();
    for part in parts {
        let mut buffer = part.to_vec();
        let mut at = 0;
        loop {
            match decoder.step(&mut buffer[at..], rules) {
                Ok((used, Some(event))) => {
                    at += used;
                    seen.push(format!("{event:?}"));
                }
                Ok((used, None)) => {
                    assert_eq!(at + used, part.len());
                    break;
                }
                Err(violation) => {
                    seen.push(format!("{violation:?}"));
                    return seen;
                }
            }
        }
        let saved = postcard::to_extend(&decoder, Vec::new()).expect("bytes");
        decoder = postcard::from_bytes(&saved).expect("what was saved");
        assert!(decoder.is_possible());
    }
    seen
}
