//! Later bytes don't change the decision about a PROXY header.

#![no_main]

use dataplane::proxy::{Proxied, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let whole = parse(data);
    if let Ok(Proxied::Header { bytes, .. }) = whole {
        assert_eq!(parse(&data[..bytes]), whole);
        assert_eq!(parse(&data[..bytes - 1]), Ok(Proxied::Incomplete));
    }
});
