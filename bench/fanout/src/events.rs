//! Server-Sent Events (WHATWG HTML section 9.2), as received in the body of an HTTP/1.1 reply.

/// The received part of one reader's stream that isn't a whole event yet.
pub struct EventStream {
    body: EventBody,
    /// The text without the framing of chunks.
    text: Vec<u8>,
}

enum EventBody {
    /// Not chunked: the body ends with the connection.
    Plain,
    /// Chunked (RFC 9112 section 7.1): the received part of the line that has the size of the next chunk.
    Line(Vec<u8>),
    /// The number of bytes still missing of a chunk.
    Chunk(usize),
}

impl EventStream {
    /// The stream that follows the reply's `head`, which is in lower case.
    pub fn after(head: &str) -> Self {
        let chunked = head.contains("\r\ntransfer-encoding: chunked");
        Self {
            body: if chunked { EventBody::Line(Vec::new()) } else { EventBody::Plain },
            text: Vec::new(),
        }
    }

    /// Takes the next bytes; calls `on_event` with the fields of each event that is now whole and has data.
    pub fn feed(&mut self, data: &[u8], mut on_event: impl FnMut(&[u8])) {
        self.unpack(data);
        let (mut event, mut line, mut has_data) = (0, 0, false);
        while let Some(length) = self.text[line..].iter().position(|&byte| byte == b'\n') {
            let (start, end) = (line, line + length);
            line = end + 1;
            match &self.text[start..end] {
                b"" | b"\r" => {
                    // A block without data is no event: a comment, or an id alone.
                    if has_data {
                        on_event(&self.text[event..start]);
                    }
                    (event, has_data) = (line, false);
                }
                field => has_data |= field.starts_with(b"data:"),
            }
        }
        self.text.drain(..event);
    }

    /// Adds the text in `data`.
    fn unpack(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match &mut self.body {
                EventBody::Plain => {
                    self.text.extend_from_slice(data);
                    return;
                }
                EventBody::Line(line) => {
                    let end = data.iter().position(|&byte| byte == b'\n');
                    line.extend_from_slice(&data[..end.unwrap_or(data.len())]);
                    let Some(end) = end else { return };
                    data = &data[end + 1..];
                    // A chunk itself ends with a line end, which is an empty line here.
                    if let Some(size) = chunk_size(line) {
                        self.body = EventBody::Chunk(size);
                    } else {
                        line.clear();
                    }
                }
                EventBody::Chunk(left) => {
                    let (mine, rest) = data.split_at(data.len().min(*left));
                    self.text.extend_from_slice(mine);
                    *left -= mine.len();
                    data = rest;
                    if *left == 0 {
                        self.body = EventBody::Line(Vec::new());
                    }
                }
            }
        }
    }
}

/// The size of the chunk that `line` announces; None if the line is empty.
fn chunk_size(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let digits = line.split(|&byte| byte == b';').next().filter(|digits| !digits.is_empty())?;
    let digits = String::from_utf8_lossy(digits);
    Some(
        usize::from_str_radix(digits.trim(), 16).expect("a server sends chunks as RFC 9112 has it"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "http/1.1 200 ok\r\ncontent-type: text/event-stream";
    const CHUNKED: &str = "http/1.1 200 ok\r\ntransfer-encoding: chunked";

    /// All events of a stream that is received in `pieces`.
    fn events(head: &str, pieces: &[&[u8]]) -> Vec<String> {
        let mut stream = EventStream::after(head);
        let mut found = Vec::new();
        for piece in pieces {
            stream.feed(piece, |event| found.push(String::from_utf8_lossy(event).into_owned()));
        }
        found
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        let text = b"id: 1\ndata: a\n\ndata: b\r\ndata: c\r\n\r\ndata: d\n";
        assert_eq!(events(PLAIN, &[text]), ["id: 1\ndata: a\n", "data: b\r\ndata: c\r\n"]);
    }

    #[test]
    fn a_block_without_data_is_no_event() {
        let text = b":\n\nretry: 2000\n\nid: 1\n\n:\ndata: a\n\n";
        assert_eq!(events(PLAIN, &[text]), [":\ndata: a\n"]);
    }

    #[test]
    fn a_chunk_may_hold_several_events_or_a_part_of_one() {
        let text = b"13\r\ndata: a\n\ndata: b\n\nd\r\n7;x=y\r\nata: c\n\r\n1\r\n\n\r\n0\r\n\r\n";
        assert_eq!(events(CHUNKED, &[text]), ["data: a\n", "data: b\n", "data: c\n"]);
    }

    #[test]
    fn where_a_stream_is_cut_makes_no_difference() {
        let plain = b":\n\ndata: a\n\nid: 2\ndata: b\n\n";
        let chunked = b"3\r\n:\n\n\r\nA\r\ndata: a\n\ni\r\nf\r\nd: 2\ndata: b\n\n\n\r\n";
        for (head, text) in [(PLAIN, &plain[..]), (CHUNKED, &chunked[..])] {
            let singly: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(events(head, &singly), ["data: a\n", "id: 2\ndata: b\n"]);
            for at in 0..text.len() {
                let (before, behind) = text.split_at(at);
                assert_eq!(events(head, &[before, behind]), events(head, &singly), "{at}");
            }
        }
    }
}
