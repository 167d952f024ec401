//! Request heads: which are ours, which are refused and how, which are handed over.

use dataplane::control::Settings;
use dataplane::head::{Busy, Decision, Framing, HttpRefusal, Info, accept_key, decide, login_verb};
use proptest::prelude::*;

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const HANDSHAKE: [(&str, &str); 5] = [
    ("Host", "box.example:8080"),
    ("Upgrade", "websocket"),
    ("Connection", "keep-alive, Upgrade"),
    ("Sec-WebSocket-Key", KEY),
    ("Sec-WebSocket-Version", "13"),
];

fn settings() -> Settings {
    Settings {
        head_bytes: 8192,
        origins: vec!["*".into()],
        deflate_bytes: 1,
        cookie: "session".into(),
        websocket: true,
        ..Settings::default()
    }
}

fn request(line: &str, fields: &[(&str, &str)]) -> String {
    let fields: String =
        fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{line}\r\n{fields}\r\n")
}

/// Return a handshake with some fields replaced, added, or (with an empty value) left out.
fn handshake(path: &str, changes: &[(&str, &str)]) -> String {
    let mut fields = HANDSHAKE.to_vec();
    for change in changes {
        fields.retain(|(name, _)| *name != change.0);
        fields.extend((!change.1.is_empty()).then_some(*change));
    }
    request(&format!("GET {path} HTTP/1.1"), &fields)
}

fn refusal(head: &str) -> HttpRefusal {
    match decide(head.as_bytes(), &settings()) {
        Decision::Refuse(refusal) => refusal,
        other => panic!("{head}: {other:?}"),
    }
}

fn framing(head: &str) -> Option<Framing> {
    match decide(head.as_bytes(), &settings()) {
        Decision::Upgrade(upgrade) => {
            assert_eq!(upgrade.head_bytes, head.len());
            Some(upgrade.framing)
        }
        _ => None,
    }
}

fn answer(put: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    put(&mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn the_handshake_of_the_rfc() {
    // RFC 6455 section 1.3.
    assert_eq!(accept_key(KEY.as_bytes()), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let head = handshake("/websocket", &[]);
    let Decision::Upgrade(upgrade) = decide(head.as_bytes(), &settings()) else {
        panic!("no upgrade");
    };
    assert_eq!(
        answer(|out| upgrade.put(out)),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    );
}

#[test]
fn paths_of_websockets() {
    for path in ["/websocket", "/websocket?token=x/../y", "/sockjs/websocket"] {
        assert_eq!(framing(&handshake(path, &[])), Some(Framing::Raw), "{path}");
    }
    for path in ["/sockjs/000/abc/websocket", "/sockjs/info/info/websocket?x"] {
        assert_eq!(framing(&handshake(path, &[])), Some(Framing::SockJs), "{path}");
    }
    for path in [
        "/",
        "/websocket/",
        "/websocketx",
        "/sockjs/0/websocket",
        "/sockjs/0/a/b/websocket",
        "/sockjs/0.1/a/websocket",
        "/sockjs/0/a.b/websocket",
        "/sockjs//a/websocket",
        "/sockjs/0//websocket",
        "/sockjs/0/a/websocket/",
        "/sockjsx/0/a/websocket",
        "/events?topic=x",
        "/sockjs/0/a/xhr",
        "/sockjs/iframe.html",
        "http://box.example/websocket",
        "/%77ebsocket",
    ] {
        let head = handshake(path, &[]);
        assert_eq!(decide(head.as_bytes(), &settings()), Decision::HandOver, "{path}");
    }
}

#[test]
fn fields_may_be_written_in_many_ways() {
    for changes in [
        [("Upgrade", "WebSocket"), ("Connection", "upgrade")],
        [("Upgrade", "h2c, websocket"), ("Connection", "close,\tUPGRADE ")],
        [("sec-websocket-protocol", "chat"), ("X-Long-Name-That-Nobody-Ever-Asks-For", "x")],
        [("Content-Length", "0"), ("Origin", "https://evil.example")],
    ] {
        assert_eq!(framing(&handshake("/websocket", &changes)), Some(Framing::Raw));
    }
    let last = "Connection: keep-alive\r\nConnection: Upgrade\r\n";
    let head = handshake("/websocket", &[]).replace("Connection: keep-alive, Upgrade\r\n", last);
    assert_eq!(framing(&head), Some(Framing::Raw));
}

#[test]
fn broken_handshakes_are_refused_in_sockjs_words() {
    let no_upgrade = HttpRefusal::BadRequest("Can \"Upgrade\" only to \"WebSocket\".");
    let no_connection = HttpRefusal::BadRequest("\"Connection\" must be \"Upgrade\".");
    let broken = HttpRefusal::BadRequest("Not a WebSocket handshake.");
    for (field, value, expected) in [
        ("Upgrade", "", no_upgrade),
        ("Upgrade", "h2c", no_upgrade),
        ("Connection", "", no_connection),
        ("Connection", "close", no_connection),
        ("Sec-WebSocket-Key", "", broken),
        ("Sec-WebSocket-Key", "short", broken),
        ("Sec-WebSocket-Key", "dGhl", broken),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQAA", broken),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZ!==", broken),
        ("Sec-WebSocket-Version", "8", HttpRefusal::WrongVersion),
        ("Sec-WebSocket-Version", "", HttpRefusal::WrongVersion),
        ("Sec-WebSocket-Version", "13, 8", HttpRefusal::WrongVersion),
    ] {
        for path in ["/websocket", "/sockjs/0/a/websocket"] {
            assert_eq!(refusal(&handshake(path, &[(field, value)])), expected, "{field}");
        }
    }
    let old = handshake("/websocket", &[]).replace("HTTP/1.1", "HTTP/1.0");
    assert_eq!(refusal(&old), broken);
    for field in ["Origin", "Sec-WebSocket-Key"] {
        let doubled = format!("GET /websocket HTTP/1.1\r\n{field}: a\r\n{field}: b\r\n");
        let head = handshake("/websocket", &[]).replace("GET /websocket HTTP/1.1\r\n", &doubled);
        assert_eq!(refusal(&head), broken, "{field}");
    }
}

#[test]
fn a_request_names_its_host_once_and_plainly() {
    let bad = Decision::Refuse(HttpRefusal::BadRequest("bad request"));
    let paths =
        ["/websocket", "/sockjs/websocket", "/sockjs/0/a/websocket", "/sockjs/info", "/sockjs"];
    for path in paths {
        let asked = |hosts: &str| {
            let head = handshake(path, &[("Host", "")]);
            head.replacen("HTTP/1.1\r\n", &format!("HTTP/1.1\r\n{hosts}"), 1)
        };
        for hosts in [
            "",
            "Host: a\r\nHost: b\r\n",
            "Host: a\r\nhost: a\r\n",
            "Host: a\r\nHost:\r\n",
            "Host: a, b\r\n",
            "Host: a,b\r\n",
            "Host: a b\r\n",
            "Host: a/b\r\n",
            "Host: user@a\r\n",
            "Host: a%zz\r\n",
            "Host: a%4\r\n",
            "Host: \u{e4}\r\n",
        ] {
            assert_eq!(decide(asked(hosts).as_bytes(), &settings()), bad, "{path} {hosts:?}");
        }
        for host in ["box.example:8080", "[2001:db8::1]:80", "[fe80::1%25eth0]", "a_b~c"] {
            let head = asked(&format!("Host: {host}\r\n"));
            let decision = decide(head.as_bytes(), &settings());
            assert!(!matches!(decision, Decision::Refuse(_)), "{path} {host}: {decision:?}");
        }
    }
}

#[test]
fn a_key_of_24_random_characters_will_do() {
    let head = handshake("/websocket", &[("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZR==")]);
    assert_eq!(framing(&head), Some(Framing::Raw));
}

#[test]
fn pages_of_other_origins_are_kept_out() {
    let only = Settings {
        origins: vec!["https://News.example".into(), "https://other.example:8443".into()],
        ..settings()
    };
    for (origin, allowed) in [
        ("", true),
        ("https://news.example", true),
        ("HTTPS://NEWS.EXAMPLE", true),
        ("https://other.example:8443", true),
        ("https://box.example:8080", true),
        ("http://BOX.example:8080/", true),
        ("https://box.example", false),
        ("https://evil.example", false),
        ("https://news.example.evil.example", false),
        ("http://news.example", false),
        ("null", false),
        ("box.example:8080", false),
    ] {
        let head = handshake("/websocket", &[("Origin", origin)]);
        let decision = decide(head.as_bytes(), &only);
        let upgraded = matches!(decision, Decision::Upgrade(_));
        assert_eq!(upgraded, allowed, "{origin}");
        assert!(upgraded || decision == Decision::Refuse(HttpRefusal::BadOrigin));
    }
    let evil = handshake("/websocket", &[("Origin", "https://evil.example")]);
    for any in [vec!["*".into()], vec![]] {
        let any = Settings { origins: any, ..settings() };
        assert!(matches!(decide(evil.as_bytes(), &any), Decision::Upgrade(_)));
    }
}

#[test]
fn deflate_is_agreed_only_where_it_is_on() {
    let offer = [("Sec-WebSocket-Extensions", "x, permessage-deflate; client_max_window_bits")];
    let head = handshake("/websocket", &offer);
    for deflate in [true, false] {
        let settings = Settings { deflate_bytes: deflate.into(), ..settings() };
        let Decision::Upgrade(upgrade) = decide(head.as_bytes(), &settings) else {
            panic!("no upgrade");
        };
        let answer = answer(|out| upgrade.put(out));
        assert_eq!(answer.contains("Sec-WebSocket-Extensions: permessage-deflate;"), deflate);
        assert!(answer.ends_with("\r\n\r\n"));
    }
}

#[test]
fn other_methods_are_not_for_us_and_a_handshake_has_no_body() {
    let head = handshake("/websocket", &[]);
    for method in ["POST", "HEAD", "OPTIONS", "BREW"] {
        let other = head.replacen("GET", method, 1);
        assert_eq!(decide(other.as_bytes(), &settings()), Decision::HandOver, "{method}");
    }
    for body in [("Content-Length", "5"), ("Transfer-Encoding", "chunked")] {
        let with_body = handshake("/websocket", &[body]);
        let refusal = HttpRefusal::BadRequest("Not a WebSocket handshake.");
        assert_eq!(decide(with_body.as_bytes(), &settings()), Decision::Refuse(refusal));
        let of_info = with_body.replacen("/websocket", "/sockjs/info", 1);
        assert_eq!(decide(of_info.as_bytes(), &settings()), Decision::HandOver);
    }
}

#[test]
fn where_there_are_no_websockets_info_says_so_and_upgrades_find_nothing() {
    let settings = Settings { websocket: false, sockjs_cookie: true, ..settings() };
    let head = request("GET /sockjs/info HTTP/1.1", &[("Host", "x")]);
    let Decision::Info(info) = decide(head.as_bytes(), &settings) else {
        panic!("no info");
    };
    let text = answer(|out| info.put(out, 7, 0));
    let body = "{\"websocket\":false,\"cookie_needed\":true,\"origins\":[\"*:*\"],\"entropy\":7}";
    assert!(text.ends_with(body), "{text}");
    for path in ["/websocket", "/sockjs/websocket", "/sockjs/0/s/websocket"] {
        let upgrade = handshake(path, &[]);
        assert_eq!(decide(upgrade.as_bytes(), &settings), Decision::Refuse(HttpRefusal::NotFound));
    }
    assert!(answer(|out| HttpRefusal::NotFound.put(out)).starts_with("HTTP/1.1 404 Not Found\r\n"));
}

#[test]
fn an_empty_origin_is_answered_like_none() {
    let head = request("GET /sockjs/info HTTP/1.1", &[("Host", "x"), ("Origin", "")]);
    let Decision::Info(info) = decide(head.as_bytes(), &settings()) else {
        panic!("no info");
    };
    assert_eq!(info.origin, None);
}

#[test]
fn an_origin_without_a_host_is_not_that_of_an_empty_host() {
    let listed = Settings { origins: vec!["https://news.example".into()], ..settings() };
    for origin in ["", "null"] {
        let head = request("GET /sockjs/info HTTP/1.1", &[("Host", ""), ("Origin", origin)]);
        assert_eq!(decide(head.as_bytes(), &listed), Decision::HandOver, "{origin:?}");
    }
}

#[test]
fn info_is_answered_with_the_pages_origin() {
    let head =
        request("GET /sockjs/info?t=1 HTTP/1.1", &[("Host", "x"), ("Origin", "https://a.example")]);
    let Decision::Info(info) = decide(head.as_bytes(), &settings()) else {
        panic!("no info");
    };
    assert_eq!(
        answer(|out| info.put(out, 4_294_967_295, 784_111_777)),
        "HTTP/1.1 200 OK\r\n\
         Content-Type: application/json; charset=UTF-8\r\n\
         Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Cache-Control: no-store, no-cache, no-transform, must-revalidate, max-age=0\r\n\
         Vary: Origin\r\n\
         Access-Control-Allow-Origin: https://a.example\r\n\
         Access-Control-Allow-Credentials: true\r\n\
         Content-Length: 79\r\n\r\n\
         {\"websocket\":true,\"cookie_needed\":false,\"origins\":[\"*:*\"],\"entropy\":4294967295}"
    );
    for (origin, allowed) in
        [(None, "*"), (Some(&b"null"[..]), "null\r\nAccess-Control-Allow-Credentials: true")]
    {
        let info = Info { head_bytes: 0, origin, websocket: true, cookie_needed: false };
        let answer = answer(|out| info.put(out, 1, 0));
        assert!(answer.contains(&format!("Allow-Origin: {allowed}\r\nContent-Length:")));
    }
}

#[test]
fn the_greeting_is_kept_for_a_year() {
    for path in ["/sockjs", "/sockjs/"] {
        let head = request(&format!("GET {path} HTTP/1.1"), &[("Host", "x")]);
        let expected = Decision::Greeting { head_bytes: head.len() };
        assert_eq!(decide(head.as_bytes(), &settings()), expected);
    }
    let greeting = answer(|out| dataplane::head::put_greeting(out, 951_782_400));
    assert!(greeting.contains("Date: Tue, 29 Feb 2000 00:00:00 GMT\r\n"), "{greeting}");
    assert!(greeting.contains("Expires: Wed, 28 Feb 2001 00:00:00 GMT\r\n"), "{greeting}");
    assert!(greeting.ends_with("Content-Length: 19\r\n\r\nWelcome to SockJS!\n"));
}

#[test]
fn pages_that_want_more_than_a_plain_get_are_handed_over() {
    for field in [("If-None-Match", "\"x\""), ("Connection", "close"), ("Content-Length", "1")] {
        let head = request("GET /sockjs/info HTTP/1.1", &[("Host", "x"), field]);
        assert_eq!(decide(head.as_bytes(), &settings()), Decision::HandOver);
    }
    let old = request("GET /sockjs/info HTTP/1.0", &[("Host", "x")]);
    assert_eq!(decide(old.as_bytes(), &settings()), Decision::HandOver);
    let only = Settings { origins: vec!["https://news.example".into()], ..settings() };
    let evil =
        request("GET /sockjs/info HTTP/1.1", &[("Host", "x"), ("Origin", "https://evil.example")]);
    assert_eq!(decide(evil.as_bytes(), &only), Decision::HandOver);
}

#[test]
fn heads_that_are_too_long_are_refused_or_handed_over() {
    let padding = "x".repeat(8192);
    let ours = handshake("/websocket", &[("X", &padding)]);
    assert_eq!(decide(&ours.as_bytes()[..8191], &settings()), Decision::Incomplete);
    assert_eq!(refusal(&ours[..8192]), HttpRefusal::HeadTooLarge);
    let theirs = handshake("/events", &[("X", &padding)]);
    assert_eq!(decide(&theirs.as_bytes()[..8192], &settings()), Decision::HandOver);
    let endless = format!("GET /{padding}");
    assert_eq!(refusal(&endless[..8192]), HttpRefusal::HeadTooLarge);
    let many = vec![("X", "y"); 100];
    let head = request("GET /websocket HTTP/1.1", &many);
    assert_eq!(refusal(&head), HttpRefusal::HeadTooLarge);
}

#[test]
fn what_is_not_http_is_refused() {
    for garbage in
        ["\x16\x03\x01\x02", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET  / HTTP/1.1\r\n", "\0\0\0\0"]
    {
        assert_eq!(refusal(garbage), HttpRefusal::BadRequest("bad request"), "{garbage}");
    }
    let broken = refusal("GET /websocket HTTP/1.1\r\nno colon\r\n\r\n");
    assert_eq!(broken, HttpRefusal::BadRequest("bad request"));
}

#[test]
fn refusals_end_the_connection() {
    let draining = HttpRefusal::Unavailable { why: Busy::Draining, retry_after_ms: 2_500 };
    assert_eq!(
        answer(|out| draining.put(out)),
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Cache-Control: no-store\r\nRetry-After: 2\r\nContent-Length: 17\r\nConnection: close\r\n\r\n\
         not now: draining"
    );
    let version = answer(|out| HttpRefusal::WrongVersion.put(out));
    assert!(version.starts_with("HTTP/1.1 426 Upgrade Required\r\n"));
    assert!(version.contains("\r\nSec-WebSocket-Version: 13\r\n"));
    for (refusal, status) in [
        (HttpRefusal::BadOrigin, 403),
        (HttpRefusal::HeadTooLarge, 431),
        (HttpRefusal::BadRequest("bad request"), 400),
    ] {
        let answer = answer(|out| refusal.put(out));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")));
    }
}

fn any_head() -> impl Strategy<Value = Vec<u8>> {
    let path = prop_oneof![
        Just("/websocket"),
        Just("/sockjs/0/a/websocket"),
        Just("/sockjs/info"),
        Just("/x"),
    ];
    let line = (prop_oneof![4 => Just("GET"), 1 => Just("POST")], path)
        .prop_map(|(method, path)| format!("{method} {path} HTTP/1.1"));
    let changes =
        prop::collection::vec((prop::sample::select(HANDSHAKE.to_vec()), "[ -~]{0,20}"), 0..3);
    prop_oneof![
        3 => (line, changes).prop_map(|(line, changes)| {
            let mut fields = HANDSHAKE.to_vec();
            fields.extend(changes.iter().map(|(field, value)| (field.0, value.as_str())));
            request(&line, &fields).into_bytes()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..100),
    ]
}

proptest! {
    #[test]
    fn a_head_is_decided_once_it_is_complete(head in any_head(), tail: Vec<u8>) {
        let whole = decide(&head, &settings());
        let early = (0..head.len()).find(|size| {
            decide(&head[..*size], &settings()) != Decision::Incomplete
        });
        match early {
            // Only a broken head is recognised before its end.
            Some(size) => {
                let refused = decide(&head[..size], &settings());
                prop_assert!(matches!(refused, Decision::Refuse(_)));
                prop_assert_eq!(refused, whole);
            }
            None if whole != Decision::Incomplete => {
                let followed = [head.as_slice(), &tail].concat();
                prop_assert_eq!(decide(&followed, &settings()), whole);
            }
            None => {}
        }
    }
}

fn token(head: &str, settings: &Settings) -> Option<String> {
    match decide(head.as_bytes(), settings) {
        Decision::Upgrade(upgrade) => {
            upgrade.token.map(|token| String::from_utf8_lossy(token).into_owned())
        }
        other => panic!("{head}: {other:?}"),
    }
}

#[test]
fn a_token_may_stand_behind_our_subprotocol() {
    for (offer, spoken, expected) in [
        ("newsfabric, a.b.c", true, Some("a.b.c")),
        ("newsfabric,a.b.c,d", true, Some("a.b.c")),
        ("chat, newsfabric , a.b.c", true, Some("a.b.c")),
        ("newsfabric", true, None),
        ("newsfabric, ", true, None),
        ("Newsfabric, a.b.c", false, None),
        ("chat, a.b.c", false, None),
        ("", false, None),
    ] {
        let head = handshake("/websocket", &[("Sec-WebSocket-Protocol", offer)]);
        assert_eq!(token(&head, &settings()).as_deref(), expected, "{offer}");
        let Decision::Upgrade(upgrade) = decide(head.as_bytes(), &settings()) else {
            panic!("{head}");
        };
        let answer = answer(|out| upgrade.put(out));
        let confirmed = answer.contains("\r\nSec-WebSocket-Protocol: newsfabric\r\n");
        assert_eq!((upgrade.protocol, confirmed), (spoken, spoken), "{offer}");
    }
    let both = "Sec-WebSocket-Protocol: newsfabric\r\nSec-WebSocket-Protocol: a.b.c\r\nUpgrade";
    let head = handshake("/websocket", &[]).replacen("Upgrade", both, 1);
    assert_eq!(token(&head, &settings()).as_deref(), Some("a.b.c"));
}

#[test]
fn a_cookie_counts_for_pages_of_ours_alone() {
    let listed = Settings { origins: vec!["https://news.example".into()], ..settings() };
    let cookie = ("Cookie", "theme=dark; session=a.b.c; x=y");
    for (field, value, any, only) in [
        ("Origin", "https://news.example", None, Some("a.b.c")),
        ("Origin", "HTTPS://NEWS.example", None, Some("a.b.c")),
        ("Origin", "https://box.example:8080", Some("a.b.c"), Some("a.b.c")),
        ("Sec-Fetch-Site", "same-origin", Some("a.b.c"), Some("a.b.c")),
        ("Sec-Fetch-Site", "same-site", None, None),
        ("Sec-Fetch-Site", "cross-site", None, None),
        ("Accept", "*/*", None, None),
    ] {
        let head = handshake("/websocket", &[(field, value), cookie]);
        assert_eq!(token(&head, &settings()).as_deref(), any, "{value}");
        assert_eq!(token(&head, &listed).as_deref(), only, "{value}");
    }
    let evil = handshake("/websocket", &[("Origin", "https://evil.example"), cookie]);
    assert_eq!(token(&evil, &settings()), None);
    let own = ("Origin", "https://box.example:8080");
    for (value, expected) in [
        ("session=", Some("")),
        ("sessions=a", None),
        ("xsession=a; session = b", None),
        ("Session=a", None),
        ("session", None),
        ("a=session=b", None),
    ] {
        let head = handshake("/websocket", &[own, ("Cookie", value)]);
        assert_eq!(token(&head, &settings()).as_deref(), expected, "{value}");
        let none = Settings { cookie: String::new(), ..settings() };
        assert_eq!(token(&head, &none), None);
    }
    // A token behind the subprotocol was sent on purpose.
    let head =
        handshake("/websocket", &[own, cookie, ("Sec-WebSocket-Protocol", "newsfabric, token")]);
    assert_eq!(token(&head, &settings()).as_deref(), Some("token"));
}

#[test]
fn a_login_verb_is_json_whatever_the_token() {
    assert_eq!(login_verb(b"a.b-_~+/="), br#"{"action":"login","token":"a.b-_~+/="}"#);
    for odd in [&b"quo\"te"[..], b"back\\slash", b"new\nline", b"\xff", b"a b"] {
        assert_eq!(login_verb(odd), br#"{"action":"login","token":""}"#);
    }
}
