//! The system calls that the data plane makes, as safe functions over plain descriptors.
//!
//! Thin on purpose: each is one call, and errors are the system's own. Descriptors of readers are plain
//! numbers here and owned by the slab, which closes each exactly once.

mod batch;
mod passing;

use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::ptr;
use std::time::Instant;

use socket2::{Domain, SockAddr, Socket, Type};

pub use batch::{MOST_SENDS, Send, Sender};
pub use passing::{
    MOST_DESCRIPTORS, packet_pair, receive_descriptor, receive_descriptors, send_descriptor,
    send_descriptors, stream_pair,
};

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn owned(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: the system has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether an error only says that nothing can be done now.
pub fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Whether descriptors or memory ran out: of this process, or of the whole machine.
pub fn exhausted(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// An epoll instance.
pub struct Epoll(OwnedFd);

/// Something is to be read, or the peer hung up.
pub const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
/// The peer has sent its last byte.
pub const ENDED: u32 = (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32;
/// There is room to write.
pub const WRITE: u32 = libc::EPOLLOUT as u32;
/// Nothing can be written or read any more.
pub const DEAD: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Epoll {
    /// A new instance.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: takes no pointers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Epoll)
    }

    /// Report `interest` of `fd` with `token`, level-triggered.
    pub fn add(&self, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, interest, token)
    }

    /// Report another `interest` from now on.
    pub fn modify(&self, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, interest, token)
    }

    /// Report no more of `fd`. Closing it does the same unless the descriptor was passed on.
    pub fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    /// Wait until something is ready, or `timeout_ms` are over; negative waits for ever.
    pub fn wait<'a>(
        &self,
        events: &'a mut [libc::epoll_event],
        timeout_ms: i32,
    ) -> io::Result<&'a [libc::epoll_event]> {
        // SAFETY: the pointer and the count describe `events`, which the call fills from its start.
        let count = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                timeout_ms,
            )
        };
        match check(count) {
            Ok(count) => Ok(&events[..count as usize]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(&[]),
            Err(error) => Err(error),
        }
    }

    fn control(&self, what: libc::c_int, fd: RawFd, interest: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: interest, u64: token };
        // SAFETY: `event` outlives the call.
        check(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) }).map(drop)
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A descriptor that becomes readable when another thread says so.
pub struct Alarm(File);

impl Alarm {
    /// A new one, not ringing.
    pub fn new() -> io::Result<Alarm> {
        // SAFETY: takes no pointers.
        let fd = owned(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        Ok(Alarm(fd.into()))
    }

    /// Wake whoever waits for it.
    pub fn ring(&self) {
        // It can only fail when it rings already.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    /// Stop ringing.
    pub fn hush(&self) {
        // It can only fail when it doesn't ring.
        let _ = (&self.0).read(&mut [0; 8]);
    }

    /// Its descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A socket, lent by whoever owns its descriptor.
fn lent(fd: RawFd) -> ManuallyDrop<Socket> {
    // SAFETY: it is never dropped, so the descriptor stays its owner's.
    ManuallyDrop::new(unsafe { Socket::from_raw_fd(fd) })
}

/// Make calls on a socket return at once.
pub fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    lent(fd).set_nonblocking(true)
}

/// A listening TCP socket, non-blocking. Others may listen on the same port.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    set_readers_options(socket.as_raw_fd())?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// An error if `fd` isn't a socket that listens.
pub fn check_listening(fd: RawFd) -> io::Result<()> {
    if lent(fd).is_listener()? { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// What every reader's socket needs: accepted sockets inherit both from their listener.
pub fn set_readers_options(listener: RawFd) -> io::Result<()> {
    lent(listener).set_send_buffer_size(SEND_BUFFER)?;
    lent(listener).set_tcp_nodelay(true)
}

/// What the kernel may hold for one reader (it doubles the number). Left to itself it takes up
/// to 4 MiB, where no policy reaches the messages any more.
const SEND_BUFFER: usize = 128 * 1024;

/// The address that a TCP socket is bound to.
pub fn local_address(fd: RawFd) -> io::Result<SocketAddr> {
    Ok(lent(fd).local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?)
}

/// The address at the other end of a TCP socket.
pub fn peer_address(fd: RawFd) -> io::Result<SocketAddr> {
    lent(fd).peer_addr().and_then(of_peer)
}

/// IPv4 also where it came to a socket of IPv6.
fn of_peer(address: SockAddr) -> io::Result<SocketAddr> {
    let address = address.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// The next connection, non-blocking, and who it is from.
pub fn accept(listener: RawFd) -> io::Result<(OwnedFd, SocketAddr)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call fills what both pointers are to, and says how much of it.
    let (socket, address) = unsafe {
        SockAddr::try_init(|storage, length| {
            owned(libc::accept4(listener, storage.cast(), length, flags))
        })
    }?;
    Ok((socket, of_peer(address)?))
}

/// Receive into `buffer`; 0 is the peer's end.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and count describe `buffer`.
    size(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) })
}

/// Wake for `fd` only when so many bytes wait: what was looked at and left must not wake us again.
pub fn set_low_water(fd: RawFd, bytes: usize) -> io::Result<()> {
    let value = bytes.min(1 << 20) as libc::c_int;
    let length = mem::size_of_val(&value) as libc::socklen_t;
    let pointer = (&raw const value).cast();
    // SAFETY: pointer and length describe `value`.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, pointer, length) })
        .map(drop)
}

/// What [`receive`] would give, without taking it away.
pub fn peek(fd: RawFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and count describe `buffer`.
    size(unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_PEEK) })
}

/// Send as much of `bytes` as the kernel takes now.
pub fn send(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and count describe `bytes`.
    size(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) })
}

/// Send as much of `parts`, one after the other, as the kernel takes now.
pub fn send_all(fd: RawFd, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
    lent(fd).send_vectored_with_flags(parts, libc::MSG_NOSIGNAL)
}

/// Take nothing more in: whoever sends from now on gets an error, what has come can be read.
pub fn finish_reading(fd: RawFd) -> io::Result<()> {
    lent(fd).shutdown(Shutdown::Read)
}

/// Wait until `fd` can be read, or written with `to_write`; an error when `deadline` comes first.
pub fn wait_until(deadline: Instant, fd: RawFd, to_write: bool) -> io::Result<()> {
    let events = if to_write { libc::POLLOUT } else { libc::POLLIN };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut one = libc::pollfd { fd, events, revents: 0 };
        let timeout = left.as_millis() as libc::c_int + 1;
        // SAFETY: the pointer is to one pollfd, and the count says so.
        match check(unsafe { libc::poll(&raw mut one, 1, timeout) }) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Close the writing half; the peer reads an end.
pub fn finish_writing(fd: RawFd) {
    // A socket that is gone has nothing to finish.
    let _ = lent(fd).shutdown(Shutdown::Write);
}

/// Close a plain descriptor that nothing else owns.
pub fn close(fd: RawFd) {
    // SAFETY: takes no pointers; that the number is the caller's own is this function's contract.
    let _ = unsafe { libc::close(fd) };
}

/// A listening unix socket at `path`, for this user alone. What is there is replaced.
pub fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    // Of a path that no socket can have nothing may be removed.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    // Failing is fine: then bind says what is wrong.
    let _ = std::fs::remove_file(path);
    // SAFETY: takes no pointers. Nobody may connect between bind and chmod, so umask it is.
    let mask = unsafe { libc::umask(0o177) };
    let bound = UnixListener::bind(path);
    // SAFETY: takes no pointers.
    unsafe { libc::umask(mask) };
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// A connection to the socket at `path`, non-blocking.
pub fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let stream = UnixStream::connect(path)?;
    stream.set_nonblocking(true)?;
    Ok(stream.into())
}

/// The next control plane, non-blocking.
pub fn accept_unix(listener: RawFd) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers are allowed: the address isn't wanted.
    owned(unsafe { libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), flags) })
}

/// Give this thread a descriptor table of its own, in which only `keep` and 0, 1, 2 are open.
///
/// No lock is shared on accept and no atomic on a send then, and RLIMIT_NOFILE counts for each
/// thread. What others open from now on doesn't exist here, and the other way round.
pub fn leave_descriptor_table(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: takes no pointers. Descriptors that the thread owns are in `keep`, says the contract;
    // values that own others live on other threads, whose table stays as it is.
    check(unsafe { libc::unshare(libc::CLONE_FILES) })?;
    let mut sorted: Vec<u32> = keep.iter().map(|fd| *fd as u32).chain([0, 1, 2]).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut first = 0;
    for fd in sorted {
        if first < fd {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX)
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A descriptor that becomes readable on SIGTERM and SIGINT, which don't end the process any more.
///
/// Call it before the first thread starts: threads inherit what is blocked.
pub fn termination_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes the set valid before anything else reads it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        check(libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut()))?;
        owned(libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC))
    }
}

/// Raise the soft limit of descriptors to the hard one, and return it.
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a value of the right type.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a value of the right type.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(limit.rlim_cur)
}
