//! Texts that were read can be written, and are then read as the same.

#![no_main]

use dataplane::sockjs::{Texts, put_string};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut texts = Texts::default();
    if texts.read(data).is_err() {
        return;
    }
    let read: Vec<_> = texts.iter().map(str::to_owned).collect();
    let elements: Vec<_> = read
        .iter()
        .map(|text| {
            let mut element = Vec::new();
            put_string(&mut element, text);
            element
        })
        .collect();
    let array = [b"[", &elements.join(&b',')[..], b"]"].concat();
    texts.read(&array).expect("what was written");
    assert!(texts.iter().eq(read));
});
