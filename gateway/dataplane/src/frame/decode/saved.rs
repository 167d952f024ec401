//! An unfinished frame or message as bytes, for a take-over by a newer data plane.
//!
//! ```text
//! u8 version  u8 head_len  head  u8 has_frame  [u8 fin u8 opcode u8 compressed u64 size 4 mask]
//! u64 received  u8 opcode  u8 compressed  u64 counted  u8 control_len  control  payload
//! ```
//! Little-endian. What was read is checked as if a reader had sent it.

use super::super::{BINARY, CLOSE, CONTINUATION, CONTROL_BYTES, PING, PONG, TEXT};
use super::{Head, Message, Partial, Rules};
use crate::control::{Fields, Malformed};

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

pub(super) fn read(saved: &[u8], rules: &Rules) -> Result<Partial, Malformed> {
    let mut from = Fields::new(saved);
    if from.u8()? != VERSION {
        return Err(Malformed::Value("version"));
    }
    let mut partial = Partial { head_len: from.u8()?.into(), ..Partial::default() };
    let head = from.take(partial.head_len)?;
    let place = partial.head_bytes.get_mut(..head.len()).ok_or(Malformed::Value("head"))?;
    place.copy_from_slice(head);
    partial.frame = if from.flag("frame")? { Some(frame(&mut from)?) } else { None };
    partial.received = from.u64()? as usize;
    partial.message = Message {
        opcode: from.u8()?,
        compressed: from.flag("compressed")?,
        counted: from.u64()? as usize,
    };
    let control = from.u8()?.into();
    partial.control = from.take(control)?.to_vec();
    partial.payload = from.rest().to_vec();
    if is_possible(&partial, rules) { Ok(partial) } else { Err(Malformed::Value("frame")) }
}

fn is_possible(partial: &Partial, rules: &Rules) -> bool {
    let message = partial.message;
    let frame_fits = partial.frame.is_none_or(|frame| {
        let control = frame.opcode & 0x8 != 0;
        let limit = if control { CONTROL_BYTES } else { rules.message_bytes };
        let held = if control { partial.control.len() } else { partial.payload.len() };
        frame.size <= limit && partial.received <= held.min(frame.size)
    });
    frame_fits
        && matches!(message.opcode, CONTINUATION | TEXT | BINARY)
        && (rules.deflate || !message.compressed)
        && partial.payload.len() <= rules.message_bytes
        && partial.control.len() <= CONTROL_BYTES
}

fn frame(from: &mut Fields<'_>) -> Result<Head, Malformed> {
    let head = Head {
        fin: from.flag("fin")?,
        opcode: from.u8()?,
        compressed: from.flag("compressed")?,
        size: from.u64()? as usize,
        mask: from.array()?,
    };
    match head.opcode {
        CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG => Ok(head),
        _ => Err(Malformed::Value("opcode")),
    }
}
