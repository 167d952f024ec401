//! WebSocket frames as a gateway and a reader send them, and what is looked for in their texts.

/// The payload of the frame at `at` and where the next one begins; None if it isn't whole.
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

/// A client's frame with a mask of zeros (RFC 6455 section 5.3), which changes nothing.
pub fn masked(first: u8, text: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    if text.len() < 126 {
        frame.push(0x80 | text.len() as u8);
    } else {
        frame.push(0xFE);
        frame.extend((text.len() as u16).to_be_bytes());
    }
    frame.extend([0; 4]);
    frame.extend_from_slice(text);
    frame
}

/// The whole number that follows `mark` in `payload`.
pub fn number_after(mark: &[u8], payload: &[u8]) -> Option<u64> {
    let at = payload.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let digits = payload[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// The text that follows `mark` in `payload`, up to the next quote; none of ours is escaped.
pub fn text_after<'a>(mark: &[u8], payload: &'a [u8]) -> Option<&'a [u8]> {
    let at = payload.windows(mark.len()).position(|window| window == mark)? + mark.len();
    let length = payload[at..].iter().position(|&byte| byte == b'"')?;
    Some(&payload[at..at + length])
}

/// Whether `mark` is in `payload`.
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
    fn texts_and_numbers_are_found_by_what_is_before_them() {
        let push = br#"{"position":"AQGU","n":12}"#;
        assert_eq!(text_after(b"\"position\":\"", push), Some(&b"AQGU"[..]));
        assert_eq!(number_after(b"\"n\":", push), Some(12));
        assert_eq!(text_after(b"\"position\":\"", br#"{"position":null}"#), None);
    }
}
