//! A push as a JSON string, with the escapes that SockJS requires.

use std::io::Write as _;

/// SockJS 1.0, "Unicode characters that must be escaped": browsers mangle these. Sorted ranges,
/// both ends included. Characters beyond U+FFFF are surrogate pairs in SockJS, so they are escaped
/// too.
#[rustfmt::skip]
const ESCAPED: [(u16, u16); 97] = [
    (0x0300, 0x0333), (0x033d, 0x0346), (0x034a, 0x034c), (0x0350, 0x0352), (0x0357, 0x0358),
    (0x035c, 0x0362), (0x0374, 0x0374), (0x037e, 0x037e), (0x0387, 0x0387), (0x0591, 0x05af),
    (0x05c4, 0x05c4), (0x0610, 0x0617), (0x0653, 0x0654), (0x0657, 0x065b), (0x065d, 0x065e),
    (0x06df, 0x06e2), (0x06eb, 0x06ec), (0x0730, 0x0730), (0x0732, 0x0733), (0x0735, 0x0736),
    (0x073a, 0x073a), (0x073d, 0x073d), (0x073f, 0x0741), (0x0743, 0x0743), (0x0745, 0x0745),
    (0x0747, 0x0747), (0x07eb, 0x07f1), (0x0951, 0x0951), (0x0958, 0x095f), (0x09dc, 0x09dd),
    (0x09df, 0x09df), (0x0a33, 0x0a33), (0x0a36, 0x0a36), (0x0a59, 0x0a5b), (0x0a5e, 0x0a5e),
    (0x0b5c, 0x0b5d), (0x0e38, 0x0e39), (0x0f43, 0x0f43), (0x0f4d, 0x0f4d), (0x0f52, 0x0f52),
    (0x0f57, 0x0f57), (0x0f5c, 0x0f5c), (0x0f69, 0x0f69), (0x0f72, 0x0f76), (0x0f78, 0x0f78),
    (0x0f80, 0x0f83), (0x0f93, 0x0f93), (0x0f9d, 0x0f9d), (0x0fa2, 0x0fa2), (0x0fa7, 0x0fa7),
    (0x0fac, 0x0fac), (0x0fb9, 0x0fb9), (0x1939, 0x193a), (0x1a17, 0x1a17), (0x1b6b, 0x1b6b),
    (0x1cda, 0x1cdb), (0x1dc0, 0x1dcf), (0x1dfc, 0x1dfc), (0x1dfe, 0x1dfe), (0x1f71, 0x1f71),
    (0x1f73, 0x1f73), (0x1f75, 0x1f75), (0x1f77, 0x1f77), (0x1f79, 0x1f79), (0x1f7b, 0x1f7b),
    (0x1f7d, 0x1f7d), (0x1fbb, 0x1fbb), (0x1fbe, 0x1fbe), (0x1fc9, 0x1fc9), (0x1fcb, 0x1fcb),
    (0x1fd3, 0x1fd3), (0x1fdb, 0x1fdb), (0x1fe3, 0x1fe3), (0x1feb, 0x1feb), (0x1fee, 0x1fef),
    (0x1ff9, 0x1ff9), (0x1ffb, 0x1ffb), (0x1ffd, 0x1ffd), (0x2000, 0x2001), (0x200c, 0x200f),
    (0x2028, 0x202f), (0x2060, 0x206f), (0x20d0, 0x20d1), (0x20d4, 0x20d7), (0x20e7, 0x20e9),
    (0x2126, 0x2126), (0x212a, 0x212b), (0x2329, 0x232a), (0x2adc, 0x2adc), (0x302b, 0x302c),
    (0xaab2, 0xaab3), (0xf900, 0xfaff), (0xfb1d, 0xfb1d), (0xfb1f, 0xfb1f), (0xfb2a, 0xfb36),
    (0xfb38, 0xfb4e), (0xfff0, 0xffff),
];

/// The first character of [`ESCAPED`]; all non-ASCII text of western languages is below it.
const FIRST_ESCAPED: u32 = 0x0300;

/// Append `text` as a JSON string, quotes included.
pub fn put_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + text.len() / 8 + 2);
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if (0x20..0x80).contains(&byte) && byte != b'"' && byte != b'\\' {
            at += 1;
            continue;
        }
        // `at` is always at the start of a character.
        let Some(character) = text[at..].chars().next() else {
            break;
        };
        let next = at + character.len_utf8();
        if must_escape(character) {
            out.extend_from_slice(&bytes[copied..at]);
            put_escape(out, character);
            copied = next;
        }
        at = next;
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

fn must_escape(character: char) -> bool {
    match u32::from(character) {
        code @ ..0x80 => code < 0x20 || code == 0x22 || code == 0x5C,
        ..FIRST_ESCAPED => false,
        code => match u16::try_from(code) {
            Ok(unit) => {
                let after = ESCAPED.partition_point(|(first, _)| *first <= unit);
                after > 0 && unit <= ESCAPED[after - 1].1
            }
            Err(_) => true,
        },
    }
}

fn put_escape(out: &mut Vec<u8>, character: char) {
    let short = match character {
        '"' => b'"',
        '\\' => b'\\',
        '\n' => b'n',
        '\r' => b'r',
        '\t' => b't',
        '\x08' => b'b',
        '\x0c' => b'f',
        _ => {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a Vec can't fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
            return;
        }
    };
    out.extend([b'\\', short]);
}
