//! Outbox, identities and token bucket give the same answers as those of the Tornado engine.
//!
//! `tests/gateway/test_outbox_vectors.py` writes the operations and the answers.

use std::io::IoSlice;
use std::str::FromStr;
use std::sync::Arc;

use dataplane::bucket::{Bucket, Throttle};
use dataplane::control::{Settings, Slow, TopicMessage};
use dataplane::hub::Publication;
use dataplane::identities::SeenIdentities;
use dataplane::outbox::{self, Account, Outbox};

const VECTORS: &str = include_str!("vectors/outbox.txt");

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no number"))
}

fn bytes_of(hex: &str) -> [u8; 16] {
    u128::from_str_radix(hex, 16).expect("an id").to_be_bytes()
}

/// Return the publication of a word `id/version/key`.
fn publication(topic: &str, slow: Slow, word: &str) -> Arc<Publication> {
    let fields: Vec<&str> = word.split('/').collect();
    let message = TopicMessage {
        id: bytes_of(fields[0]),
        version: number(fields[1]),
        key: if fields[2] == "-" { "" } else { fields[2] },
        push: b"{}",
    };
    Arc::new(Publication::new(topic.into(), slow, &message))
}

fn frame(marker: &str, size: usize) -> Arc<[u8]> {
    let text = format!("{:04}", number::<u32>(marker)).repeat(size);
    text.as_bytes()[..size].into()
}

/// The object under test, since the last line that began one.
enum Subject {
    Nothing,
    Outbox(Outbox, Account),
    Seen(SeenIdentities),
    Bucket(Settings, Bucket),
}

fn subject_for(words: &[&str]) -> Option<Subject> {
    Some(match words {
        ["outbox", hard, soft, ms] => Subject::Outbox(
            Outbox::new(outbox::Limits {
                hard_bytes: number(hard),
                soft_bytes: number(soft),
                soft_ms: number(ms),
            }),
            Account::default(),
        ),
        ["seen", window, limit] => {
            Subject::Seen(SeenIdentities::new(number(window), number(limit)))
        }
        ["bucket", verbs, rate, refusals] => {
            let settings = Settings {
                verbs: number(verbs),
                verbs_per_second: number(rate),
                refusals: number(refusals),
                ..Settings::default()
            };
            let bucket = Bucket::full(&settings, 0);
            Subject::Bucket(settings, bucket)
        }
        _ => return None,
    })
}

fn on_outbox(outbox: &mut Outbox, account: &mut Account, words: &[&str]) -> String {
    let fits = match words {
        ["push", marker, size, now, slow, message] => {
            let slow = match *slow {
                "conflate" => Slow::Conflate,
                "drop_oldest" => Slow::DropOldest,
                _ => Slow::Disconnect,
            };
            let topic = format!("slow.{slow:?}");
            let frame = frame(marker, number(size));
            outbox.push(frame, &publication(&topic, slow, message), number(now), account)
        }
        ["firm", marker, size, now] => {
            outbox.push_firm(frame(marker, number(size)), number(now), account)
        }
        ["take", bytes] => return write_bytes(outbox, account, number(bytes)),
        ["clear"] => return outbox.clear(account).to_string(),
        ["len"] => return outbox.len().to_string(),
        _ => panic!("{words:?}"),
    };
    let dropped = outbox.take_dropped();
    let pending = outbox.pending_bytes();
    format!("{} {pending} {} {}", u8::from(fits), dropped.conflate, dropped.drop_oldest)
}

fn write_bytes(outbox: &mut Outbox, account: &mut Account, bytes: usize) -> String {
    let mut slices = [IoSlice::new(&[]); 64];
    let count = outbox.slices(&mut slices);
    let mut left = bytes;
    let mut markers = Vec::new();
    for slice in slices[..count].iter().take_while(|one| {
        let fits = left > 0;
        left = left.saturating_sub(one.len());
        fits
    }) {
        let marker = std::str::from_utf8(&slice[..4]).expect("digits");
        markers.push(number::<u32>(marker).to_string());
    }
    outbox.advance(bytes, account);
    markers.join(" ")
}

fn on_seen(seen: &mut SeenIdentities, words: &[&str]) -> String {
    let identity = |id| bytes_of(id)[6..].try_into().expect("ten bytes");
    match words {
        ["add", id, now] => {
            seen.add(&identity(id), number(now));
            seen.len().to_string()
        }
        ["has", id] => u8::from(seen.contains(&identity(id))).to_string(),
        _ => panic!("{words:?}"),
    }
}

fn on_bucket(settings: &Settings, bucket: &mut Bucket, words: &[&str]) -> String {
    match bucket.admit(settings, number(words[1])) {
        Throttle::Allow => "allow",
        Throttle::Refuse => "refuse",
        Throttle::HangUp => "close",
    }
    .to_owned()
}

#[test]
fn every_operation_is_answered_as_the_tornado_engine_answers_it() {
    let mut subject = Subject::Nothing;
    let mut answered = 0;
    for (index, line) in VECTORS.lines().enumerate() {
        let (step, expected) = line.split_once(" :").unwrap_or((line, ""));
        let words: Vec<&str> = step.split_whitespace().collect();
        if let Some(fresh) = subject_for(&words) {
            subject = fresh;
            continue;
        }
        let answer = match &mut subject {
            Subject::Nothing => panic!("{line}"),
            Subject::Outbox(outbox, account) => on_outbox(outbox, account, &words),
            Subject::Seen(seen) => on_seen(seen, &words),
            Subject::Bucket(settings, bucket) => on_bucket(settings, bucket, &words),
        };
        assert_eq!(answer, expected.trim(), "line {}: {step}", index + 1);
        answered += 1;
    }
    assert!(answered > 3_000, "{answered}");
}
