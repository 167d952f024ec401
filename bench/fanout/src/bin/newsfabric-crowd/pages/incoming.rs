//! The data that a page receives: replies to its requests, and frames.

use super::{PageStep, Pages, SILENCE_NS};
use newsfabric_fanout::crowd::backoff::{Advice, advice};
use newsfabric_fanout::crowd::pushes::{Push, PushPosition, PushedMessage};
use newsfabric_fanout::crowd::record::Got;
use newsfabric_fanout::endpoints::{answer, parse};
use newsfabric_fanout::frames::{frame_at, masked};
use newsfabric_fanout::{monotonic_ns, realtime_ns, send};

/// Bound of incomplete data in bytes: a push of a 64 KiB body, all of it escaped, and a replay's next one.
const MOST_REST: usize = 1 << 20;
const BOX_REFUSES: u64 = 1013;
const BAD_POSITION: u64 = 112;

impl Pages {
    pub(super) fn on_data(&mut self, number: usize, data: &[u8]) {
        let reader = &mut self.readers[number];
        reader.heard_ns = monotonic_ns();
        if reader.step == PageStep::Reading && reader.rest.is_empty() {
            let used = self.frames_in(number, data);
            return self.keep(number, &data[used..]);
        }
        reader.rest.extend_from_slice(data);
        let mut rest = std::mem::take(&mut reader.rest);
        match reader.step {
            PageStep::Answered => return self.answered(number, &rest, false),
            PageStep::Upgrading => {
                let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
                    return self.keep(number, &rest);
                };
                if !rest.starts_with(b"HTTP/1.1 101") {
                    return self.refuse(number);
                }
                rest.drain(..end + 4);
                self.subscribe(number);
            }
            _ => {}
        }
        let used = self.frames_in(number, &rest);
        self.keep(number, &rest[used..]);
    }

    /// Keeps `rest` for the next read, unless the data before it ended the connection.
    fn keep(&mut self, number: usize, rest: &[u8]) {
        if self.readers[number].socket < 0 {
            return;
        }
        if rest.len() > MOST_REST {
            return self.fail(number);
        }
        self.readers[number].rest = rest.to_vec();
    }

    pub(super) fn answered(&mut self, number: usize, data: &[u8], ended: bool) {
        let Some((_, body)) = answer(data, ended) else {
            return if ended { self.fail(number) } else { self.keep(number, data) };
        };
        let offer = parse(body, self.options.own);
        self.news.counts.foreign += offer.foreign as u64;
        let reader = &mut self.readers[number];
        (reader.offered, reader.retry_ms) = (offer.gateways, offer.retry_ms);
        if self.readers[number].offered.is_empty() {
            return self.refuse(number);
        }
        self.next_box(number);
    }

    fn subscribe(&mut self, number: usize) {
        let reader = &mut self.readers[number];
        let position = match &reader.position {
            None => String::new(),
            Some(text) => format!(",\"position\":\"{}\"", String::from_utf8_lossy(text)),
        };
        let topic = &self.options.topics[usize::from(reader.topic)];
        let verb = format!("{{\"action\":\"subscribe\",\"topic\":\"{topic}\"{position}}}");
        send(reader.socket, &masked(0x81, verb.as_bytes(), self.dice.key()));
        reader.step = PageStep::Subscribing;
    }

    /// Handles the whole frames in `data`; returns the number of their bytes.
    fn frames_in(&mut self, number: usize, data: &[u8]) -> usize {
        let now = realtime_ns();
        let mut at = 0;
        while let Some(&[first, second]) = data.get(at..at + 2) {
            // RFC 6455 sections 5.1 and 5.4: no server masks; and ours sends whole messages, uncompressed.
            if first & 0xF0 != 0x80 || second & 0x80 != 0 {
                self.fail(number);
                return data.len();
            }
            let Some((payload, next)) = frame_at(data, at) else {
                break;
            };
            match first & 0x0F {
                1 => self.on_text(number, payload, now),
                8 => {
                    let code = payload
                        .get(..2)
                        .map_or(1005, |two| 256 * u64::from(two[0]) + u64::from(two[1]));
                    self.sent_away(number, code, 0, true);
                }
                9 => {
                    let pong = masked(0x8A, payload, self.dice.key());
                    send(self.readers[number].socket, &pong);
                }
                _ => {}
            }
            at = next;
            if !matches!(self.readers[number].step, PageStep::Reading | PageStep::Subscribing) {
                return data.len();
            }
        }
        at
    }

    fn on_text(&mut self, number: usize, payload: &[u8], now: u64) {
        let push = self.pushes.read(payload);
        let is_reading = self.readers[number].step == PageStep::Reading;
        let position = match push {
            Push::Message(message) if is_reading => self.on_message(number, message, now),
            Push::Strange(position) if is_reading => {
                self.news.counts.strange += 1;
                position
            }
            Push::Subscribed(recovered, position) if !is_reading => {
                self.subscribed(number, recovered, now);
                position
            }
            Push::Disconnect(code, pause_ms, reconnect) => {
                return self.sent_away(number, code, pause_ms, reconnect);
            }
            Push::Error(code) => return self.on_error(number, code),
            _ => None,
        };
        if position.is_some() {
            self.readers[number].position = position;
        }
    }

    fn sent_away(&mut self, number: usize, code: u64, pause_ms: u64, reconnect: bool) {
        if code == BOX_REFUSES && self.readers[number].step == PageStep::Subscribing {
            return self.refuse(number);
        }
        self.news.counts.moved += 1;
        let advice = advice(code);
        if advice == Advice::Stop || !reconnect {
            self.news.counts.stopped += 1;
            self.close(number);
            self.readers[number].step = PageStep::Stopped;
        } else if advice == Advice::Now && self.readers[number].lasted() {
            self.close(number);
            self.wait(number, pause_ms);
        } else {
            self.come_back(number, pause_ms);
        }
    }

    fn on_error(&mut self, number: usize, code: u64) {
        self.news.counts.errors += 1;
        if !self.has_logged_error {
            self.has_logged_error = true;
            eprintln!("error: a reader's verb was refused with code {code}; more are only counted");
        }
        if code == BAD_POSITION {
            self.readers[number].position = None;
        }
        self.come_back(number, 0);
    }

    fn subscribed(&mut self, number: usize, recovered: bool, now: u64) {
        let reader = &mut self.readers[number];
        let at = monotonic_ns();
        self.news.times.connect.add(reader.asked_ns, at);
        if reader.record.was_in() {
            self.news.counts.returned += 1;
        } else {
            self.news.times.arrive.add(reader.began_ns, at);
        }
        self.news.counts.gaps += u64::from(reader.record.subscribed(now, recovered));
        reader.step = PageStep::Reading;
        reader.open_ns = at;
        reader.here_since_ns = now;
        reader.offered = Vec::new();
        self.present += 1;
        self.timer(number, at + SILENCE_NS);
    }

    /// Returns the position in the message.
    fn on_message(
        &mut self,
        number: usize,
        message: PushedMessage,
        now: u64,
    ) -> Option<PushPosition> {
        let reader = &mut self.readers[number];
        if message.topic != reader.topic {
            self.news.counts.strange += 1;
            return message.position;
        }
        self.news.counts.messages += 1;
        match reader.record.got(message.publisher, message.number, message.agrees) {
            Got::New if message.sent_ns > reader.here_since_ns => {
                self.news.times.receive.add(message.due_ns, now);
            }
            // The messages that a reader missed while away have no meaning for the normal delay.
            Got::New if message.sent_ns > reader.record.since_ns() => {
                self.news.times.resume.add(message.due_ns, now);
            }
            Got::New => {}
            Got::Repeat => self.news.counts.repeats += 1,
            Got::Doubled => self.news.counts.doubled += 1,
            Got::Unnoted => self.news.counts.unnoted += 1,
        }
        message.position
    }
}
