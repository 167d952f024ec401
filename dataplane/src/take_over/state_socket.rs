//! The socket between an I/O thread and its newer counterpart: records, with their descriptors.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::{Duration, Instant};

use super::record::{self, ConnectionExtras, Record};
use crate::control::Malformed;
use crate::slab::ReaderSlot;
use crate::sys::{self, Errno};

/// Bytes written or read at a time.
const PIECE: usize = 64 * 1024;
/// Pause before the next try, while the kernel has too many descriptors in transit.
const PAUSE: Duration = Duration::from_millis(1);

/// The sending end. Records are sent in big pieces; the last piece by [`StateSender::finish`].
pub struct StateSender {
    socket: OwnedFd,
    deadline: Instant,
    bytes: Vec<u8>,
    descriptors: Vec<RawFd>,
}

impl StateSender {
    /// Send over `socket`, until `deadline`.
    pub fn new(socket: OwnedFd, deadline: Instant) -> StateSender {
        StateSender { socket, deadline, bytes: Vec::new(), descriptors: Vec::new() }
    }

    /// Give a record, and the descriptor that is sent with it.
    pub fn put(&mut self, record: &Record<'_>, descriptor: Option<RawFd>) -> io::Result<()> {
        record.put(&mut self.bytes);
        self.descriptors.extend(descriptor);
        self.send_piece()
    }

    /// Give a connection with its socket.
    pub fn put_connection(
        &mut self,
        connection: &ReaderSlot,
        beside: &ConnectionExtras,
    ) -> io::Result<()> {
        record::put_connection(&mut self.bytes, connection, beside);
        self.descriptors.push(connection.fd);
        self.send_piece()
    }

    fn send_piece(&mut self) -> io::Result<()> {
        if self.bytes.len() >= PIECE || self.descriptors.len() == sys::MOST_DESCRIPTORS {
            return self.finish();
        }
        Ok(())
    }

    /// Send all bytes that were put.
    pub fn finish(&mut self) -> io::Result<()> {
        let mut sent = 0;
        while sent < self.bytes.len() {
            let fd = self.socket.as_raw_fd();
            match sys::send_descriptors(fd, &self.bytes[sent..], &self.descriptors) {
                Ok(count) => {
                    sent += count;
                    self.descriptors.clear();
                }
                Err(Errno::AGAIN) => {
                    sys::wait_until(self.deadline, fd, true)?;
                }
                // All threads together have too many descriptors in transit.
                Err(Errno::TOOMANYREFS) if Instant::now() < self.deadline => thread::sleep(PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        self.bytes.clear();
        Ok(())
    }
}

/// The receiving end.
pub struct Receiver {
    socket: OwnedFd,
    deadline: Instant,
    bytes: Vec<u8>,
    /// Number of bytes of `bytes` that were used.
    used: usize,
    descriptors: VecDeque<OwnedFd>,
    buffer: Vec<u8>,
}

impl Receiver {
    /// Receive from `socket`, until `deadline`.
    pub fn new(socket: OwnedFd, deadline: Instant) -> Receiver {
        Receiver {
            socket,
            deadline,
            bytes: Vec::new(),
            used: 0,
            descriptors: VecDeque::new(),
            buffer: vec![0; PIECE],
        }
    }

    /// Return the next record, and the descriptor that was sent with it.
    ///
    /// # Errors
    /// Of the kind `InvalidData` if the bytes are no record, of another kind if none arrived.
    pub fn record(&mut self) -> io::Result<(Record<'_>, Option<OwnedFd>)> {
        let (message, descriptor) = self.message(record::carries_descriptor)?;
        Ok((Record::decode(message)?, descriptor))
    }

    /// Return the next message of any kind, from its type on, and its descriptor if its type
    /// `carries` one.
    ///
    /// # Errors
    /// As [`Receiver::record`].
    pub fn message(&mut self, carries: fn(u8) -> bool) -> io::Result<(&[u8], Option<OwnedFd>)> {
        let end = loop {
            let waiting = &self.bytes[self.used..];
            match record::length(waiting)? {
                Some(length) if length <= waiting.len() => break self.used + length,
                _ => self.fill()?,
            }
        };
        let start = self.used + 4;
        self.used = end;
        let mut descriptor = None;
        if carries(self.bytes[start]) {
            let missing = Malformed::Value("descriptor, which is missing");
            descriptor = Some(self.descriptors.pop_front().ok_or(missing)?);
        }
        Ok((&self.bytes[start..end], descriptor))
    }

    /// Return the descriptor of the socket.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Set another deadline.
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    fn fill(&mut self) -> io::Result<()> {
        self.bytes.drain(..self.used);
        self.used = 0;
        let fd = self.socket.as_raw_fd();
        match sys::receive_descriptors(fd, &mut self.buffer, &mut self.descriptors) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => self.bytes.extend_from_slice(&self.buffer[..count]),
            Err(Errno::AGAIN) => {
                sys::wait_until(self.deadline, fd, false)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
