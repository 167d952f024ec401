//! Any bytes get a decision; that of a complete head stays the same with later bytes.

#![no_main]

use dataplane::control::Settings;
use dataplane::head::{Decision, decide};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let settings = Settings {
        head_bytes: 1024,
        origins: vec!["https://news.example".into()],
        deflate_bytes: 1,
        cookie: "session".into(),
        websocket: true,
        ..Settings::default()
    };
    let mut answer = Vec::new();
    let decision = decide(data, &settings);
    match &decision {
        Decision::Upgrade(upgrade) => {
            assert!(upgrade.head_bytes <= data.len());
            upgrade.put(&mut answer);
        }
        Decision::Info(info) => {
            assert!(info.head_bytes <= data.len());
            info.put(&mut answer, 7, 0);
        }
        Decision::Refuse(refusal) => refusal.put(&mut answer),
        Decision::Greeting { head_bytes } => assert!(*head_bytes <= data.len()),
        Decision::Incomplete | Decision::HandOver => {}
    }
    if let Decision::Upgrade(_) | Decision::Info(_) | Decision::Greeting { .. } = decision {
        assert_eq!(decide(&[data, b"more"].concat(), &settings), decision);
    }
});
