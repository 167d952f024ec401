//! Descriptors that go from one process, or one descriptor table, to another (unix(7), SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{OwnedFd, RawFd};

use rustix::cmsg_space;
use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use super::{NONBLOCKING, lent};

/// As many as the kernel takes with one message (SCM_MAX_FD).
pub const MOST_DESCRIPTORS: usize = 253;
const SPACE: usize = cmsg_space!(ScmRights(MOST_DESCRIPTORS));

/// Two connected unix sockets that keep messages apart, non-blocking.
pub fn packet_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::SEQPACKET)
}

/// Two connected unix sockets that carry a stream, non-blocking.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::STREAM)
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, NONBLOCKING, None)
}

/// Send `bytes`, and `fd` with the first of them.
pub fn send_descriptor(to: RawFd, bytes: &[u8], fd: RawFd) -> Result<usize> {
    send_descriptors(to, bytes, &[fd])
}

/// Send `bytes`, at least one, and up to [`MOST_DESCRIPTORS`] with the first of them. Whatever part of
/// the bytes was taken, all descriptors were.
pub fn send_descriptors(to: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<usize> {
    let fds: Vec<_> = fds.iter().map(|fd| lent(*fd)).collect();
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "too many descriptors");
    }
    sendmsg(lent(to), &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

/// Receive into `buffer`, and the descriptor that came along; `None` also where there was no room for
/// it in this thread's table, and it is lost.
pub fn receive_descriptor(from: RawFd, buffer: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let (count, _) = receive_some(from, buffer, &mut descriptors)?;
    Ok((count, descriptors.pop()))
}

/// Receive into `buffer`; the descriptors that came along go to the end of `descriptors`.
///
/// # Errors
/// Also when there was no room for all descriptors in this thread's table: which are missing can't
/// be known then.
pub fn receive_descriptors(
    from: RawFd,
    buffer: &mut [u8],
    descriptors: &mut impl Extend<OwnedFd>,
) -> Result<usize> {
    match receive_some(from, buffer, descriptors)? {
        (count, false) => Ok(count),
        (_, true) => Err(Errno::MFILE),
    }
}

/// How many bytes came, and whether descriptors were lost. It never waits: a socket that another process
/// has passed may be a blocking one, and whoever reads it has a deadline.
fn receive_some(
    from: RawFd,
    buffer: &mut [u8],
    descriptors: &mut impl Extend<OwnedFd>,
) -> Result<(usize, bool)> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let came = recvmsg(lent(from), &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    Ok((came.bytes, came.flags.contains(ReturnFlags::CTRUNC)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    #[test]
    fn as_many_descriptors_as_one_message_takes_come_with_its_first_byte() {
        let (ours, theirs) = stream_pair().expect("a pair");
        let fds = [ours.as_raw_fd(); MOST_DESCRIPTORS];
        assert_eq!(send_descriptors(ours.as_raw_fd(), b"xy", &fds).expect("sent"), 2);
        let (mut buffer, mut came) = ([0; 1], Vec::new());
        assert_eq!(receive_descriptors(theirs.as_raw_fd(), &mut buffer, &mut came).ok(), Some(1));
        assert_eq!(came.len(), MOST_DESCRIPTORS);
        assert_eq!(receive_descriptors(theirs.as_raw_fd(), &mut buffer, &mut came).ok(), Some(1));
        assert_eq!((came.len(), &buffer), (MOST_DESCRIPTORS, b"y"));
    }

    #[test]
    fn nobody_waits_for_a_peer_that_says_nothing() {
        const PATIENCE: Duration = Duration::from_secs(5);
        // As another process may make it.
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let began = Instant::now();
        let found = receive_descriptors(ours.as_raw_fd(), &mut [0; 1], &mut Vec::new());
        assert_eq!(found, Err(Errno::AGAIN));
        assert!(began.elapsed() < PATIENCE);
    }
}
