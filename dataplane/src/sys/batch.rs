//! Many sends in one system call (io_uring(7)), where the kernel permits it; else one call each.
//!
//! Not an event loop: a batch is submitted and completed before the call returns, so the caller
//! need not know how it was sent. Readiness is still reported by epoll.
//!
//! The decision to question: descriptors and buffers aren't registered. That would gain nothing
//! here (docs/design/0027-sends-in-batches.md).

use std::io;
use std::os::fd::RawFd;

use io_uring::{IoUring, opcode, types::Fd};
use rustix::io::{Errno, Result};

/// Maximum number of sends in one batch. A power of two.
pub const MOST_SENDS: usize = 128;

/// Bytes for a socket, and the number of them that it took.
#[derive(Debug, Clone, Copy)]
pub struct Send<'a> {
    /// The socket.
    pub fd: RawFd,
    /// Slot of the socket's connection.
    pub slot: u32,
    /// The bytes offered.
    pub bytes: &'a [u8],
    /// The result: the number of bytes taken.
    pub taken: Result<usize>,
}

impl<'a> Send<'a> {
    /// Return a send that wasn't tried yet.
    pub fn new(fd: RawFd, slot: u32, bytes: &'a [u8]) -> Send<'a> {
        Send { fd, slot, bytes, taken: Err(Errno::AGAIN) }
    }

    /// Send alone, in a call of its own.
    fn one(&mut self) {
        self.taken = super::send(self.fd, self.bytes);
    }
}

/// Sends for one thread.
#[derive(Default)]
pub struct Sender {
    ring: Option<IoUring>,
}

impl Sender {
    /// Return a sender for this thread, and the error if it can't send in batches.
    pub fn new() -> (Sender, Option<io::Error>) {
        // One thread submits, and asks for the completions itself.
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        match builder.build(MOST_SENDS as u32) {
            Ok(ring) => (Sender { ring: Some(ring) }, None),
            Err(error) => (Sender::default(), Some(error)),
        }
    }

    /// Offer each socket its bytes, without waiting. At most [`MOST_SENDS`].
    pub fn send(&mut self, sends: &mut [Send<'_>]) {
        let done = match &mut self.ring {
            Some(ring) if sends.len() > 1 => {
                let done = send_batch(ring, sends);
                if done < sends.len() {
                    // The other sends are still in the ring's queue, so it can't be used any more.
                    self.ring = None;
                }
                done
            }
            _ => 0,
        };
        sends[done..].iter_mut().for_each(Send::one);
    }
}

/// Try a batch of `sends`; return the number tried: fewer if the kernel took no more.
fn send_batch(ring: &mut IoUring, sends: &mut [Send<'_>]) -> usize {
    let count = sends.len().min(MOST_SENDS);
    let mut queue = ring.submission();
    for (index, send) in (0..).zip(&sends[..count]) {
        let entry = opcode::Send::new(Fd(send.fd), send.bytes.as_ptr(), send.bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
            .build()
            .user_data(index);
        // SAFETY: the bytes outlive the kernel's use of them, which is awaited below.
        unsafe { queue.push(&entry) }.expect("the last batch is over, so there is room");
    }
    drop(queue);
    let (mut begun, mut done) = (0, 0);
    while done < count {
        match ring.submit_and_wait(count - done) {
            Ok(more) => begun += more,
            // Sends that the kernel has begun must be awaited, whatever happens.
            Err(error) if done == begun && error.kind() != io::ErrorKind::Interrupted => break,
            Err(_) => {}
        }
        for completion in ring.completion() {
            let result = completion.result();
            let taken = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            sends[completion.user_data() as usize].taken = taken;
            done += 1;
        }
    }
    begun
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// Return so many connected pairs.
    fn pairs(count: usize) -> Vec<(UnixStream, UnixStream)> {
        (0..count).map(|_| UnixStream::pair().expect("a pair")).collect()
    }

    /// Return a sender with batches, if this kernel permits them, and one without.
    fn both() -> [Sender; 2] {
        [Sender::new().0, Sender::default()]
    }

    #[test]
    fn each_socket_gets_its_own_bytes_again_and_again() {
        for mut sender in both() {
            let mut pairs = pairs(MOST_SENDS);
            for round in 0..5_u8 {
                let sent: Vec<[u8; 2]> = (0..MOST_SENDS).map(|at| [at as u8, round]).collect();
                let sends = pairs.iter().zip(&sent);
                let mut sends: Vec<_> =
                    sends.map(|((one, _), bytes)| Send::new(one.as_raw_fd(), 0, bytes)).collect();
                sender.send(&mut sends);
                assert!(sends.iter().all(|send| send.taken == Ok(2)), "{sends:?}");
                for ((_, other), bytes) in pairs.iter_mut().zip(&sent) {
                    let mut got = [0; 2];
                    other.read_exact(&mut got).expect("two bytes");
                    assert_eq!(got, *bytes);
                }
            }
        }
    }

    #[test]
    fn a_socket_that_is_full_takes_a_part_or_nothing_and_one_that_is_gone_is_an_error() {
        for mut sender in both() {
            let mut pairs = pairs(3);
            let much = vec![7; 4 << 20];
            drop(pairs.remove(1).1);
            let (full, gone) = (pairs[0].0.as_raw_fd(), i32::MAX);
            let mut sends = [
                Send::new(full, 0, &much),
                Send::new(gone, 0, b"x"),
                Send::new(pairs[1].0.as_raw_fd(), 0, b"fine"),
            ];
            pairs[0].0.set_nonblocking(true).expect("a socket");
            sender.send(&mut sends);
            let part = sends[0].taken.expect("some of it");
            assert!(0 < part && part < much.len());
            assert_eq!((sends[1].taken, sends[2].taken), (Err(Errno::BADF), Ok(4)));
            let mut again = [Send::new(full, 0, &much), Send::new(full, 0, b"x")];
            sender.send(&mut again);
            assert_eq!(again[0].taken, Err(Errno::AGAIN));
        }
    }
}
