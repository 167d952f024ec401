//! Passing of descriptors to another process or descriptor table (unix(7), SCM_RIGHTS).

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

/// Maximum number of descriptors that the kernel takes with one message (SCM_MAX_FD).
pub const MOST_DESCRIPTORS: usize = 253;
const SPACE: usize = cmsg_space!(ScmRights(MOST_DESCRIPTORS));

/// Return two connected unix sockets that keep message boundaries, non-blocking.
pub fn packet_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::SEQPACKET)
}

/// Return two connected unix sockets that carry a stream, non-blocking.
pub fn stream_pair() -> Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::STREAM)
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, kind, NONBLOCKING, None)
}

/// Send `bytes`, and `fd` with the first byte.
pub fn send_descriptor(to: RawFd, bytes: &[u8], fd: RawFd) -> Result<usize> {
    send_descriptors(to, bytes, &[fd])
}

/// Send `bytes`, at least one, and up to [`MOST_DESCRIPTORS`] with the first byte. If any of the
/// bytes were taken, all descriptors were.
pub fn send_descriptors(to: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<usize> {
    let fds: Vec<_> = fds.iter().map(|fd| lent(*fd)).collect();
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)), "too many descriptors");
    }
    sendmsg(lent(to), &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
}

/// Receive into `buffer`, and return the descriptor that was sent with the bytes. `None` also if it
/// was lost for lack of room in this thread's table.
pub fn receive_descriptor(from: RawFd, buffer: &mut [u8]) -> Result<(usize, Option<OwnedFd>)> {
    let mut descriptors = Vec::new();
    let (count, _) = receive_some(from, buffer, &mut descriptors)?;
    Ok((count, descriptors.pop()))
}

/// Receive into `buffer`; append the descriptors that were sent with the bytes to `descriptors`.
///
/// # Errors
/// Also if there was no room for all descriptors in this thread's table: it can't be known which of
/// them are missing.
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

/// Return the number of bytes received, and whether descriptors were lost. Never waits: a socket
/// that another process has passed may be a blocking one, and its reader has a deadline.
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
        // Blocking, as another process may have made it.
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let began = Instant::now();
        let found = receive_descriptors(ours.as_raw_fd(), &mut [0; 1], &mut Vec::new());
        assert_eq!(found, Err(Errno::AGAIN));
        assert!(began.elapsed() < PATIENCE);
    }
}
