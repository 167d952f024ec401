//! Readers' messages: a JSON array of strings, or one string.

use super::BrokenJson;

/// Maximum nesting of skipped values; deeper is refused. The stack has room for ten times that.
const DEPTH: usize = 1024;

/// The texts of one payload, in memory that is reused: keep one per thread.
#[derive(Debug, Default)]
pub struct Texts {
    text: String,
    /// End of each text in `text`.
    ends: Vec<usize>,
}

impl Texts {
    /// Read a message's payload; afterwards [`Texts::iter`] returns its texts.
    ///
    /// An empty payload has no texts (SockJS 1.0: ignored). Any other value in the place of a
    /// string counts as an empty text: that is no verb, and is answered with an error.
    ///
    /// # Errors
    /// The payload isn't JSON in UTF-8 (RFC 8259), is nested too deep, or has half a surrogate
    /// pair: close with 1002.
    pub fn read(&mut self, payload: &[u8]) -> Result<(), BrokenJson> {
        self.text.clear();
        self.ends.clear();
        if payload.is_empty() {
            return Ok(());
        }
        let json = simdutf8::basic::from_utf8(payload).map_err(|_| BrokenJson)?;
        let mut cursor = JsonCursor { json, at: 0 };
        let read = self.read_payload(&mut cursor);
        if read.is_none() {
            self.text.clear();
            self.ends.clear();
        }
        read.ok_or(BrokenJson)
    }

    /// Return the texts of the last payload, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.text[start..*end])
    }

    fn read_payload(&mut self, cursor: &mut JsonCursor<'_>) -> Option<()> {
        cursor.skip_space();
        if cursor.peek() == Some(b'[') {
            cursor.list(b']', |cursor| self.read_element(cursor))?;
        } else {
            self.read_element(cursor)?;
        }
        cursor.skip_space();
        cursor.peek().is_none().then_some(())
    }

    fn read_element(&mut self, cursor: &mut JsonCursor<'_>) -> Option<()> {
        if cursor.peek() == Some(b'"') {
            cursor.string(Some(&mut self.text))?;
        } else {
            cursor.skip_value(DEPTH)?;
        }
        self.ends.push(self.text.len());
        Some(())
    }
}

/// A place in a JSON text. Every method returns `None` where the grammar is broken.
struct JsonCursor<'a> {
    json: &'a str,
    at: usize,
}

impl JsonCursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.json.as_bytes().get(self.at).copied()
    }

    fn skip_byte(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_byte(byte).then_some(())
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Read a string, unescaped into `out` if that is given.
    fn string(&mut self, mut out: Option<&mut String>) -> Option<()> {
        self.expect(b'"')?;
        loop {
            let start = self.at;
            while !matches!(self.peek()?, b'"' | b'\\' | 0..0x20) {
                self.at += 1;
            }
            if let Some(out) = out.as_deref_mut() {
                out.push_str(&self.json[start..self.at]);
            }
            if self.skip_byte(b'"') {
                return Some(());
            }
            self.expect(b'\\')?;
            let character = self.escape()?;
            if let Some(out) = out.as_deref_mut() {
                out.push(character);
            }
        }
    }

    fn escape(&mut self) -> Option<char> {
        let kind = self.peek()?;
        self.at += 1;
        Some(match kind {
            b'"' | b'\\' | b'/' => char::from(kind),
            b'b' => '\x08',
            b'f' => '\x0c',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return None,
        })
    }

    /// Read the digits after `\u`, and the second half of a surrogate pair.
    fn unicode(&mut self) -> Option<char> {
        let first = self.hex()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        self.expect(b'\\')?;
        self.expect(b'u')?;
        let second = self.hex()?.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + second)
    }

    fn hex(&mut self) -> Option<u32> {
        let mut number = 0;
        for _ in 0..4 {
            number = number << 4 | char::from(self.peek()?).to_digit(16)?;
            self.at += 1;
        }
        Some(number)
    }

    /// Skip any value, with at most so many nested brackets.
    fn skip_value(&mut self, depth: usize) -> Option<()> {
        let closing = match self.peek()? {
            b'"' => return self.string(None),
            b't' => return self.word("true"),
            b'f' => return self.word("false"),
            b'n' => return self.word("null"),
            b'[' => b']',
            b'{' => b'}',
            _ => return self.number(),
        };
        let depth = depth.checked_sub(1)?;
        self.list(closing, |cursor| {
            if closing == b'}' {
                cursor.string(None)?;
                cursor.skip_space();
                cursor.expect(b':')?;
                cursor.skip_space();
            }
            cursor.skip_value(depth)
        })
    }

    /// Read an opening bracket, elements with commas between, and the closing one.
    fn list(
        &mut self,
        closing: u8,
        mut element: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.at += 1;
        self.skip_space();
        if self.skip_byte(closing) {
            return Some(());
        }
        loop {
            self.skip_space();
            element(self)?;
            self.skip_space();
            if self.skip_byte(closing) {
                return Some(());
            }
            self.expect(b',')?;
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let found = self.json.as_bytes()[self.at..].starts_with(word.as_bytes());
        self.at += word.len();
        found.then_some(())
    }

    fn number(&mut self) -> Option<()> {
        self.skip_byte(b'-');
        if !self.skip_byte(b'0') {
            self.digits()?;
        }
        if self.skip_byte(b'.') {
            self.digits()?;
        }
        if self.skip_byte(b'e') || self.skip_byte(b'E') {
            let _ = self.skip_byte(b'+') || self.skip_byte(b'-');
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}
