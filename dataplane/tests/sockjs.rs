//! SockJS framing, compared with that of the Tornado engine.

use dataplane::sockjs::{BrokenJson, Texts, put_close, put_message, put_string};
use proptest::prelude::*;

fn string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, text);
    out
}

fn texts(payload: &[u8]) -> Result<Vec<String>, BrokenJson> {
    let mut texts = Texts::default();
    texts.read(payload)?;
    Ok(texts.iter().map(str::to_owned).collect())
}

#[test]
fn strings_are_escaped_as_the_tornado_engine_does() {
    for line in include_str!("vectors/strings.txt").lines() {
        let (text, element) = line.split_once(' ').expect("two fields");
        let text = String::from_utf8(unhex(text)).expect("UTF-8");
        let ours = String::from_utf8(string(&text)).expect("UTF-8");
        let theirs = String::from_utf8(unhex(element)).expect("UTF-8");
        assert_eq!(ours, theirs);
    }
}

#[test]
fn payloads_are_read_as_the_tornado_engine_does() {
    for line in include_str!("vectors/payloads.txt").lines() {
        let fields: Vec<_> = line.split(' ').map(unhex).collect();
        let (payload, verdict) = fields.split_first().expect("a payload");
        let ours = match texts(payload) {
            Err(BrokenJson) => vec![b"!".to_vec()],
            Ok(texts) => texts.iter().map(|text| format!("={text}").into()).collect(),
        };
        assert_eq!(ours, verdict, "{}", String::from_utf8_lossy(payload));
    }
}

#[test]
fn frames_of_sockjs() {
    let mut out = Vec::new();
    put_message(&mut out, r#"{"a":1}"#);
    assert_eq!(out, br#"a["{\"a\":1}"]"#);
    out.clear();
    put_close(&mut out, 1012, "drain");
    assert_eq!(out, br#"c[1012,"drain"]"#);
}

#[test]
fn nothing_of_a_broken_payload_is_kept() {
    let mut texts = Texts::default();
    assert_eq!(texts.read(br#"["a","b"]"#), Ok(()));
    assert_eq!(texts.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(texts.read(br#"["c""#), Err(BrokenJson));
    assert_eq!(texts.iter().count(), 0);
    assert_eq!(texts.read(br#""""#), Ok(()));
    assert_eq!(texts.iter().collect::<Vec<_>>(), [""]);
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let nested = |depth| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(texts(&nested(1000)).is_ok());
    assert_eq!(texts(&nested(100_000)), Err(BrokenJson));
}

fn json_like() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        r#"[\[\]{},:"\\u0-9a-fdD tné\x00-]{0,60}"#.prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..60),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(pushes in prop::collection::vec(any::<String>(), 0..6)) {
        let elements: Vec<_> = pushes.iter().map(|push| string(push)).collect();
        let array = [b"[", &elements.join(&b',')[..], b"]"].concat();
        prop_assert_eq!(texts(&array), Ok(pushes));
    }

    #[test]
    fn any_bytes_are_read_or_broken(payload in json_like()) {
        if let Ok(texts) = texts(&payload) {
            prop_assert!(texts.iter().map(String::len).sum::<usize>() <= payload.len());
        }
    }
}

fn unhex(field: &str) -> Vec<u8> {
    (0..field.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&field[at..at + 2], 16).expect("hex"))
        .collect()
}
