//! Inflating is bounded, and a message doesn't depend on the one before.

#![no_main]

use dataplane::deflate::{Deflater, Inflater};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let mut inflater = Inflater::default();
    let first = inflater.inflate(data, LIMIT).map(<[u8]>::to_vec);
    assert_eq!(inflater.inflate(data, LIMIT).map(<[u8]>::to_vec), first);
    if let Ok(message) = first {
        assert!(message.len() <= LIMIT);
        let mut out = Vec::new();
        if Deflater::new(6).compress(&message, &mut out) {
            assert_eq!(inflater.inflate(&out, LIMIT), Ok(message.as_slice()));
        }
    }
});
