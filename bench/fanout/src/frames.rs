//! WebSocket frames as a gateway and a reader send them, and the search for fields in their texts.

use flate2::{Decompress, FlushDecompress};

/// Bound in bytes of an inflated message of ours.
const INFLATED: usize = 1 << 20;

/// The payload of the frame at `at` and the start of the next one; None if the frame isn't whole.
pub fn frame_at(data: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let head = data.get(at..at + 2)?;
    let (start, length) = match head[1] {
        126 => (at + 4, u16::from_be_bytes(data.get(at + 2..at + 4)?.try_into().ok()?) as usize),
        127 => (at + 10, u64::from_be_bytes(data.get(at + 2..at + 10)?.try_into().ok()?) as usize),
        short => (at + 2, short as usize),
    };
    let end = start.checked_add(length)?;
    Some((data.get(start..end)?, end))
}

/// A client's frame (RFC 6455 section 5.3) with `key` as its mask; `text` has less than 65,536 bytes.
pub fn masked(first: u8, text: &[u8], key: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![first];
    if text.len() < 126 {
        frame.push(0x80 | text.len() as u8);
    } else {
        frame.push(0xFE);
        frame.extend((text.len() as u16).to_be_bytes());
    }
    frame.extend(key);
    frame.extend(text.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A compressed message, inflated (RFC 7692 section 7.2.2). `inflater` must have the earlier messages of the
/// connection if the server keeps its context, and must be fresh otherwise.
pub fn inflated(inflater: &mut Decompress, payload: &[u8]) -> Vec<u8> {
    let whole = [payload, &[0, 0, 0xFF, 0xFF]].concat();
    let mut text = Vec::with_capacity(INFLATED);
    inflater
        .decompress_vec(&whole, &mut text, FlushDecompress::Sync)
        .expect("a server compresses as RFC 7692 has it");
    text
}

/// The whole number that follows `mark` in `payload`.
pub fn number_after(mark: &[u8], payload: &[u8]) -> Option<u64> {
    let at = payload.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let digits = payload[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The send time in `payload` (`"sent_ns":N`); its quotes may be escaped, as in SockJS frames.
pub fn sent_at(payload: &[u8]) -> Option<u64> {
    [&b"\"sent_ns\":"[..], b"\\\"sent_ns\\\":"].iter().find_map(|mark| number_after(mark, payload))
}

/// The text that follows `mark` in `payload`, up to the next quote; none of our texts has escapes.
pub fn text_after<'a>(mark: &[u8], payload: &'a [u8]) -> Option<&'a [u8]> {
    let at = payload.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let length = payload[at..].iter().position(|&byte| byte == b'"')?;
    Some(&payload[at..at + length])
}

/// True if `mark` is in `payload`.
pub fn has(mark: &[u8], payload: &[u8]) -> bool {
    payload.windows(mark.len()).any(|window| window == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_whole_or_not_there() {
        let long = [&[0x81, 126, 0, 200][..], &[b'x'; 200]].concat();
        assert_eq!(frame_at(&long, 0), Some((&[b'x'; 200][..], 204)));
        assert_eq!(frame_at(&long[..203], 0), None);
        assert_eq!(frame_at(b"\x81\x02hi\x81", 0), Some((&b"hi"[..], 4)));
        assert_eq!(frame_at(b"\x81\x02hi\x81", 4), None);
    }

    #[test]
    fn a_frame_of_a_client_is_masked() {
        // RFC 6455 section 5.7: "Hello".
        let hello = [0x81, 0x85, 0x37, 0xFA, 0x21, 0x3D, 0x7F, 0x9F, 0x4D, 0x51, 0x58];
        assert_eq!(masked(0x81, b"Hello", [0x37, 0xFA, 0x21, 0x3D]), hello);
        let long = masked(0x81, &[b'x'; 200], [0; 4]);
        assert_eq!(long[..4], [0x81, 0xFE, 0, 200]);
        assert_eq!(long.len(), 208);
    }

    #[test]
    fn what_is_compressed_is_inflated_with_what_came_before_or_without() {
        // RFC 7692 sections 7.2.3.1 and 7.2.3.2: "Hello", and once more with its context.
        let hello = [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00];
        let again = [0xF2, 0x00, 0x11, 0x00, 0x00];
        let mut inflater = Decompress::new(false);
        assert_eq!(inflated(&mut inflater, &hello), b"Hello");
        assert_eq!(inflated(&mut inflater, &again), b"Hello");
        inflater.reset(false);
        assert_eq!(inflated(&mut inflater, &hello), b"Hello");
    }

    #[test]
    fn when_it_was_sent_is_found_in_json_and_in_a_text_of_json() {
        assert_eq!(sent_at(br#"{"sent_ns":17,"n":2}"#), Some(17));
        assert_eq!(sent_at(br#"a["{\"sent_ns\":18,\"n\":2}"]"#), Some(18));
        assert_eq!(sent_at(br#"a["{\"n\":2}"]"#), None);
    }

    #[test]
    fn texts_and_numbers_are_found_by_what_is_before_them() {
        let push = br#"{"position":"AQGU","n":12}"#;
        assert_eq!(text_after(b"\"position\":\"", push), Some(&b"AQGU"[..]));
        assert_eq!(number_after(b"\"n\":", push), Some(12));
        assert_eq!(text_after(b"\"position\":\"", br#"{"position":null}"#), None);
    }
}
