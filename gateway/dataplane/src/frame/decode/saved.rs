//! An unfinished frame or message as bytes, for a take-over by a newer data plane.
//!
//! ```text
//! u8 version  u8 head_len  head  u8 has_frame  [u8 fin u8 opcode u8 compressed u64 size 4 mask]
//! u64 received  u8 opcode  u8 compressed  u64 counted  u8 control_len  control  payload
//! ```
//! Little-endian. What was read is checked as if a reader had sent it.

use super::super::{BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT};
use super::{CONTROL_BYTES, Head, LONGEST_HEAD, Message, Partial, Rules};

const VERSION: u8 = 1;

pub(super) fn write(partial: &Partial, out: &mut Vec<u8>) {
    out.extend([VERSION, partial.head_len as u8]);
    out.extend_from_slice(&partial.head_bytes[..partial.head_len]);
    out.push(partial.frame.is_some().into());
    if let Some(frame) = partial.frame {
        out.extend([frame.fin.into(), frame.opcode, frame.compressed.into()]);
        out.extend((frame.size as u64).to_le_bytes());
        out.extend(frame.mask);
    }
    out.extend((partial.received as u64).to_le_bytes());
    out.extend([partial.message.opcode, partial.message.compressed.into()]);
    out.extend((partial.message.counted as u64).to_le_bytes());
    // Between frames, what the last control frame brought lies there still.
    let control = partial.frame.map_or(&[][..], |_| &partial.control);
    out.push(control.len() as u8);
    out.extend_from_slice(control);
    out.extend_from_slice(&partial.payload);
}

pub(super) fn read(saved: &[u8], rules: &Rules) -> Option<Partial> {
    let mut rest = saved;
    let mut partial = Partial::default();
    if byte(&mut rest)? != VERSION {
        return None;
    }
    partial.head_len = byte(&mut rest)?.into();
    if partial.head_len > LONGEST_HEAD {
        return None;
    }
    let head = take(&mut rest, partial.head_len)?;
    partial.head_bytes[..head.len()].copy_from_slice(head);
    partial.frame = if flag(&mut rest)? { Some(frame(&mut rest)?) } else { None };
    partial.received = number(&mut rest)?;
    partial.message = Message {
        opcode: byte(&mut rest)?,
        compressed: flag(&mut rest)?,
        counted: number(&mut rest)?,
    };
    let control = byte(&mut rest)?.into();
    partial.control = take(&mut rest, control)?.to_vec();
    partial.payload = rest.to_vec();
    is_possible(&partial, rules).then_some(partial)
}

fn is_possible(partial: &Partial, rules: &Rules) -> bool {
    let message = partial.message;
    let frame_fits = partial.frame.is_none_or(|frame| {
        let control = frame.opcode & 0x8 != 0;
        let limit = if control { CONTROL_BYTES } else { rules.frame_bytes };
        let held = if control { partial.control.len() } else { partial.payload.len() };
        frame.size <= limit && partial.received <= held.min(frame.size)
    });
    frame_fits
        && matches!(message.opcode, CONTINUATION | TEXT | BINARY)
        && (rules.deflate || !message.compressed)
        && partial.payload.len() <= rules.message_bytes
        && partial.control.len() <= CONTROL_BYTES
}

fn frame(rest: &mut &[u8]) -> Option<Head> {
    let fin = flag(rest)?;
    let opcode = byte(rest)?;
    let compressed = flag(rest)?;
    let size = number(rest)?;
    let &[a, b, c, d] = take(rest, 4)? else {
        return None;
    };
    matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG).then_some(Head {
        fin,
        opcode,
        compressed,
        size,
        mask: [a, b, c, d],
    })
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(count)?;
    *rest = after;
    Some(taken)
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    take(rest, 1).map(|bytes| bytes[0])
}

fn flag(rest: &mut &[u8]) -> Option<bool> {
    match byte(rest)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = take(rest, 8)?.try_into().ok()?;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}
