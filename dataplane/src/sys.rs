//! The system calls of the data plane, as safe functions over plain descriptors.
//!
//! Thin on purpose: each is one call, and errors are the system's own. Descriptors of readers are
//! plain numbers here, owned by the slab, which closes each exactly once.

mod batch;
mod passing;

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Result;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, sockopt,
};
use rustix::process::{Resource, Rlimit};

pub use batch::{MOST_SENDS, Send, Sender};
pub use passing::{
    MOST_DESCRIPTORS, packet_pair, receive_descriptor, receive_descriptors, send_descriptor,
    send_descriptors, stream_pair,
};
pub use rustix::event::epoll::{Event, EventFlags};
pub use rustix::io::Errno;

/// Return a descriptor lent by its owner.
fn lent<'a>(fd: RawFd) -> BorrowedFd<'a> {
    // SAFETY: callers that pass numbers guarantee that the descriptor stays open during the call.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Return whether descriptors or memory ran out: of this process, or of the whole machine.
pub fn exhausted(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

/// An epoll instance.
pub struct Epoll(OwnedFd);

/// Bytes can be read, or the peer hung up.
pub const READ: EventFlags = EventFlags::IN.union(EventFlags::RDHUP);
/// The peer has sent its last byte.
pub const ENDED: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP);
/// There is room to write.
pub const WRITE: EventFlags = EventFlags::OUT;
/// Neither reading nor writing is possible any more.
pub const DEAD: EventFlags = EventFlags::ERR.union(EventFlags::HUP);

impl Epoll {
    /// Return a new instance.
    pub fn new() -> Result<Epoll> {
        epoll::create(epoll::CreateFlags::CLOEXEC).map(Epoll)
    }

    /// Report `interest` of `fd` with `token`, level-triggered.
    pub fn add(&self, fd: RawFd, interest: EventFlags, token: u64) -> Result<()> {
        epoll::add(&self.0, lent(fd), epoll::EventData::new_u64(token), interest)
    }

    /// Report another `interest` from now on.
    pub fn modify(&self, fd: RawFd, interest: EventFlags, token: u64) -> Result<()> {
        epoll::modify(&self.0, lent(fd), epoll::EventData::new_u64(token), interest)
    }

    /// Report `fd` no more. Closing it does the same unless the descriptor was passed on.
    pub fn remove(&self, fd: RawFd) -> Result<()> {
        epoll::delete(&self.0, lent(fd))
    }

    /// Wait until a descriptor is ready, or `timeout_ms` are over. `events` receives the events, as
    /// many as it has room for.
    pub fn wait(&self, events: &mut Vec<Event>, timeout_ms: u64) -> Result<()> {
        events.clear();
        let timeout = timespec(Duration::from_millis(timeout_ms));
        match epoll::wait(&self.0, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ }
}

/// Make calls on a socket return at once.
pub fn set_nonblocking(fd: RawFd) -> Result<()> {
    rustix::io::ioctl_fionbio(lent(fd), true)
}

/// Flags of every socket that is made here.
pub const NONBLOCKING: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Return a listening TCP socket, non-blocking. Others may listen on the same port.
pub fn listen_tcp(address: SocketAddr, backlog: i32) -> Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = net::socket_with(family, SocketType::STREAM, NONBLOCKING, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    set_readers_options(socket.as_raw_fd())?;
    net::bind(&socket, &address)?;
    net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Return an error if `fd` isn't a listening socket.
pub fn check_listening(fd: RawFd) -> Result<()> {
    if sockopt::socket_acceptconn(lent(fd))? { Ok(()) } else { Err(Errno::INVAL) }
}

/// Set the options of readers' sockets: accepted sockets inherit both from their listener.
pub fn set_readers_options(listener: RawFd) -> Result<()> {
    sockopt::set_socket_send_buffer_size(lent(listener), SEND_BUFFER)?;
    sockopt::set_tcp_nodelay(lent(listener), true)
}

/// Bytes that the kernel may hold for one reader (it doubles the number). Without this it holds up
/// to 4 MiB, where no policy reaches the messages any more.
const SEND_BUFFER: usize = 128 * 1024;

/// Return the address to which a TCP socket is bound.
pub fn local_address(fd: RawFd) -> Result<SocketAddr> {
    net::getsockname(lent(fd))?.try_into()
}

/// Return the address at the other end of a TCP socket.
pub fn peer_address(fd: RawFd) -> Result<SocketAddr> {
    of_peer(net::getpeername(lent(fd))?)
}

/// Return a peer's address; an IPv4 peer of an IPv6 socket has its IPv4 address.
fn of_peer(address: Option<net::SocketAddrAny>) -> Result<SocketAddr> {
    let address: SocketAddr = address.ok_or(Errno::INVAL)?.try_into()?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Return the next connection, non-blocking, and its peer's address.
pub fn accept(listener: RawFd) -> Result<(OwnedFd, SocketAddr)> {
    let (socket, address) = net::acceptfrom_with(lent(listener), NONBLOCKING)?;
    Ok((socket, of_peer(address)?))
}

/// Receive into `buffer`; 0 is the peer's end.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    net::recv(lent(fd), buffer, RecvFlags::empty()).map(|(count, _)| count)
}

/// Report `fd` only when so many bytes wait: bytes that were peeked at must not wake us again.
pub fn set_low_water(fd: RawFd, bytes: usize) -> io::Result<()> {
    let value = bytes.min(1 << 20) as libc::c_int;
    let length = mem::size_of_val(&value) as libc::socklen_t;
    let pointer = (&raw const value).cast();
    // SAFETY: pointer and length describe `value`.
    check(unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, pointer, length) })
}

/// Receive the bytes that [`receive`] would, without removing them.
pub fn peek(fd: RawFd, buffer: &mut [u8]) -> Result<usize> {
    net::recv(lent(fd), buffer, RecvFlags::PEEK).map(|(count, _)| count)
}

/// Send as much of `bytes` as the kernel takes now.
pub fn send(fd: RawFd, bytes: &[u8]) -> Result<usize> {
    net::send(lent(fd), bytes, SendFlags::NOSIGNAL)
}

/// Send as much of `parts`, one after the other, as the kernel takes now.
pub fn send_all(fd: RawFd, parts: &[io::IoSlice<'_>]) -> Result<usize> {
    net::sendmsg(lent(fd), parts, &mut net::SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
}

/// Close the reading half: the peer's sends fail from now on; received bytes can still be read.
pub fn finish_reading(fd: RawFd) -> Result<()> {
    net::shutdown(lent(fd), Shutdown::Read)
}

/// Wait until `fd` can be read, or written with `to_write`; an error at the `deadline`.
pub fn wait_until(deadline: Instant, fd: RawFd, to_write: bool) -> io::Result<()> {
    let events = if to_write { PollFlags::OUT } else { PollFlags::IN };
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut one = [PollFd::from_borrowed_fd(lent(fd), events)];
        match poll(&mut one, Some(&timespec(left))) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Close the writing half; the peer reads an end.
pub fn finish_writing(fd: RawFd) {
    // A closed socket has nothing to finish.
    let _ = net::shutdown(lent(fd), Shutdown::Write);
}

/// Close a plain descriptor that nothing else owns.
pub fn close(fd: RawFd) {
    // SAFETY: callers guarantee that the descriptor is their own.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
}

/// Return a listening unix socket at `path`, for this user alone. A file at the path is replaced.
pub fn listen_unix(path: &Path) -> io::Result<OwnedFd> {
    // Remove nothing at a path that no socket can have.
    std::os::unix::net::SocketAddr::from_pathname(path)?;
    // An error is ignored: bind reports it.
    let _ = std::fs::remove_file(path);
    // With this umask no other user can connect, from bind on.
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let bound = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = bound?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// Give this thread a descriptor table of its own, in which only `keep` and 0, 1, 2 are open.
///
/// Then accepts share no lock, sends share no atomic, and RLIMIT_NOFILE counts for each thread.
/// Descriptors that other threads open from now on don't exist here, and the other way round.
pub fn leave_descriptor_table(keep: &[RawFd]) -> io::Result<()> {
    // SAFETY: takes no pointers. By contract, descriptors that this thread owns are in `keep`;
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
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } as libc::c_int)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Return a descriptor that becomes readable on SIGTERM and SIGINT, which no longer end the
/// process.
///
/// Call this before the first thread starts: threads inherit the blocked signals.
pub fn termination_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes the set valid before anything else reads it; the descriptor is new.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
        libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        check(fd)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Raise the soft limit of descriptors to the hard one, and return it.
pub fn raise_descriptor_limit() -> Result<u64> {
    let Rlimit { maximum, .. } = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(maximum.unwrap_or(u64::MAX))
}
