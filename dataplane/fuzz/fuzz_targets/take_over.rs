//! Any bytes on a state socket are records or an error; a record that was read is read again
//! from its own bytes.
//!
//! The input is a stream of records, as an older data plane gives them.

#![no_main]

use dataplane::take_over::record::{Record, length};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some(size)) = length(rest) {
        assert!(size >= 5);
        if size > rest.len() {
            return;
        }
        let (record, others) = rest.split_at(size);
        if let Ok(read) = Record::decode(&record[4..]) {
            let mut bytes = Vec::new();
            read.put(&mut bytes);
            assert_eq!(length(&bytes), Ok(Some(bytes.len())));
            let mut again = Vec::new();
            Record::decode(&bytes[4..]).expect("ours").put(&mut again);
            assert_eq!(again, bytes);
        }
        rest = others;
    }
});
