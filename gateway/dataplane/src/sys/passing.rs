//! Descriptors that go from one process, or one descriptor table, to another (unix(7), SCM_RIGHTS).

use std::io;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use socket2::{Domain, Socket, Type};

use super::size;

/// As many as the kernel takes with one message (SCM_MAX_FD).
pub const MOST_DESCRIPTORS: usize = 253;

/// Room for a header and as many descriptors, aligned like a header. CMSG_SPACE of 253 is 1,032.
type Ancillary = [u64; 129];

/// Two connected unix sockets that keep messages apart, non-blocking.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(Type::SEQPACKET)
}

/// Two connected unix sockets that carry a stream, non-blocking.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(Type::STREAM)
}

fn pair(kind: Type) -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = Socket::pair(Domain::UNIX, kind.nonblocking(), None)?;
    Ok((one.into(), other.into()))
}

/// Send `bytes`, and `fd` with the first of them.
pub fn send_descriptor(to: RawFd, bytes: &[u8], fd: RawFd) -> io::Result<usize> {
    send_descriptors(to, bytes, &[fd])
}

/// Send `bytes`, at least one, and up to [`MOST_DESCRIPTORS`] with the first of them. Whatever part of
/// the bytes was taken, all descriptors were.
pub fn send_descriptors(to: RawFd, bytes: &[u8], fds: &[RawFd]) -> io::Result<usize> {
    assert!(fds.len() <= MOST_DESCRIPTORS);
    let part = [io::IoSlice::new(bytes)];
    let mut ancillary: Ancillary = [0; 129];
    // SAFETY: all zeros is a valid value of this type.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part.as_ptr().cast_mut().cast();
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let bytes = mem::size_of_val(fds) as u32;
        header.msg_control = ancillary.as_mut_ptr().cast();
        // SAFETY: only computes.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
        // SAFETY: `ancillary` has room for one header and as many descriptors as are asserted
        // above, and is aligned for it, so the first header lies inside, and its data too.
        unsafe {
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes) as _;
            let data = libc::CMSG_DATA(first).cast::<libc::c_int>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(*fd);
            }
        }
    }
    // SAFETY: the header describes `part` and `ancillary`, which outlive the call.
    size(unsafe { libc::sendmsg(to, &header, libc::MSG_NOSIGNAL) })
}

/// Receive into `buffer`, and the descriptor that came along; `None` also where there was no room for
/// it in this thread's table, and it is lost.
pub fn receive_descriptor(from: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
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
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<usize> {
    match receive_some(from, buffer, descriptors)? {
        (count, false) => Ok(count),
        (_, true) => Err(io::Error::from_raw_os_error(libc::EMFILE)),
    }
}

/// How many bytes came, and whether descriptors were lost. It never waits: a socket that another process
/// has passed may be a blocking one, and whoever reads it has a deadline.
fn receive_some(
    from: RawFd,
    buffer: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<(usize, bool)> {
    const FLAGS: libc::c_int = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    let mut ancillary: Ancillary = [0; 129];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a valid value of this type.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = ancillary.as_mut_ptr().cast();
    header.msg_controllen = mem::size_of::<Ancillary>() as _;
    // SAFETY: the header describes `buffer` and `ancillary`, which outlive the call.
    let count = size(unsafe { libc::recvmsg(from, &mut header, FLAGS) })?;
    // SAFETY: the kernel filled the header; CMSG_FIRSTHDR is null or points into `ancillary`, and
    // so do as many descriptors as the header's length says. They were made for us just now.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&header);
        if !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_RIGHTS
        {
            let bytes = (*first).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
            let data = libc::CMSG_DATA(first).cast::<libc::c_int>();
            for index in 0..bytes / mem::size_of::<libc::c_int>() {
                descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
            }
        }
    }
    Ok((count, header.msg_flags & libc::MSG_CTRUNC != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::would_block;
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
        assert!(found.is_err_and(|error| would_block(&error)));
        assert!(began.elapsed() < PATIENCE);
    }
}
