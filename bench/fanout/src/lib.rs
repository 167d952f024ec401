//! Shared by the floor and the crowd: arguments, sockets, an epoll set, clocks; and `newsfabric-crowd`'s counts.
//!
//! A tool for one machine and one operator: on any error it ends with a message.

pub mod crowd;
pub mod endpoints;
pub mod events;
pub mod frames;

use std::collections::HashMap;
use std::io;
use std::mem;
use std::net::SocketAddrV4;
use std::os::fd::RawFd;

/// Ends the program with `what` and the last error of the system.
pub fn fail(what: &str) -> ! {
    eprintln!("error: {what}: {}", io::Error::last_os_error());
    std::process::exit(1);
}

/// `--name value` pairs of the command line.
pub struct Arguments(HashMap<String, String>);

impl Arguments {
    /// Reads the command line; ends the program if it isn't pairs.
    pub fn read() -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let mut pairs = HashMap::new();
        for pair in words.chunks(2) {
            match pair {
                [name, value] if name.starts_with("--") => {
                    pairs.insert(name[2..].to_owned(), value.clone());
                }
                _ => {
                    eprintln!("error: expected --name value pairs, got {pair:?}");
                    std::process::exit(2);
                }
            }
        }
        Self(pairs)
    }

    /// The text of `name`, or `default`.
    pub fn text(&self, name: &str, default: &str) -> String {
        self.0.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }

    /// The number of `name`, or `default`; ends the program if the value is no number.
    pub fn number(&self, name: &str, default: u64) -> u64 {
        let Some(text) = self.0.get(name) else {
            return default;
        };
        text.parse().unwrap_or_else(|_| {
            eprintln!("error: --{name} wants a whole number, got {text:?}");
            std::process::exit(2);
        })
    }
}

/// CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of the machine.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds: nearly the same clock for all machines.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    // SAFETY: clock_gettime fills the struct that it is given.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(clock, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A random number from the kernel, which can't be predicted.
pub fn random_number() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is valid for its length.
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } < 0 {
        fail("getrandom");
    }
    u64::from_ne_bytes(bytes)
}

/// Raises the descriptor limit to its maximum; returns the limit.
pub fn raise_descriptor_limit() -> usize {
    // SAFETY: both calls are given a valid struct.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        usize::try_from(limit.rlim_max).unwrap_or(usize::MAX)
    }
}

/// Connections from one address: it has 28,000 ports, and the kernel finds one slowly when most are taken.
const PER_ADDRESS: usize = 8_192;

/// The source address of connection `number` of a crowd; the first connection has `source`.
fn source_of(source: [u8; 4], number: usize) -> [u8; 4] {
    let [a, b, c, first] = source;
    [a, b, c, first + (number / PER_ADDRESS) as u8]
}

/// An IPv4 address, from its four numbers and a port.
pub fn address(host: [u8; 4], port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(host) },
        sin_zero: [0; 8],
    }
}

/// A TCP socket that never blocks and never delays (TCP_NODELAY).
pub fn tcp_socket() -> RawFd {
    // SAFETY: plain system calls; the option's value outlives its call.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
        if fd < 0 {
            fail("socket");
        }
        set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
        fd
    }
}

/// Sets an integer option of a socket.
pub fn set_option(fd: RawFd, level: i32, name: i32, value: i32) {
    // SAFETY: the value is an int and outlives the call.
    unsafe {
        let size = mem::size_of::<i32>() as u32;
        libc::setsockopt(fd, level, name, (&raw const value).cast(), size);
    }
}

/// Makes a close of `fd` a reset, after which no state of the connection remains in the kernel.
fn reset_on_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = mem::size_of::<libc::linger>() as u32;
    // SAFETY: the value has the option's type and outlives the call.
    unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size);
    }
}

/// Binds `fd` to `at`.
pub fn bind(fd: RawFd, at: &libc::sockaddr_in) {
    let size = mem::size_of::<libc::sockaddr_in>() as u32;
    // SAFETY: the address is valid for its size.
    if unsafe { libc::bind(fd, (at as *const libc::sockaddr_in).cast(), size) } < 0 {
        fail("bind");
    }
}

/// Begins to connect `fd` to `to`; false if that fails at once.
fn connect(fd: RawFd, to: &libc::sockaddr_in) -> bool {
    let size = mem::size_of::<libc::sockaddr_in>() as u32;
    // SAFETY: the address is valid for its size.
    let done = unsafe { libc::connect(fd, (to as *const libc::sockaddr_in).cast(), size) };
    done == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EINPROGRESS)
}

/// A socket that begins to connect to `to`; false if that fails at once. `source` is the first address of a crowd on
/// loopback, of which the socket is number `number`; a `receive_buffer` of 0 is the system's.
pub fn open_socket(
    source: Option<[u8; 4]>,
    number: usize,
    to: SocketAddrV4,
    receive_buffer: i32,
) -> (RawFd, bool) {
    let socket = tcp_socket();
    if receive_buffer > 0 {
        set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, receive_buffer);
    }
    if let Some(source) = source {
        // The kernel then looks for a port that is free towards this server, rather than for an unused one.
        set_option(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
        bind(socket, &address(source_of(source, number), 0));
    }
    // A normal close would make thousands of ports unusable for a minute afterwards (TIME_WAIT).
    reset_on_close(socket);
    (socket, connect(socket, &address(to.ip().octets(), to.port())))
}

/// The request for a WebSocket; `more`: further whole lines of its head.
pub fn upgrade(path: &str, host: &str, more: &str) -> String {
    // No secret: the key only shows that the server speaks WebSocket.
    format!(
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
    )
}

/// Sends as much of `bytes` as the socket takes now; None if it takes nothing.
pub fn send(fd: RawFd, bytes: &[u8]) -> Option<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is valid for its length.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).ok()
}

/// Receives into `buffer`; None if there is nothing now, Some(0) at the end.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> Option<usize> {
    let flags = libc::MSG_DONTWAIT;
    // SAFETY: the buffer is valid for its length.
    let got = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    if got >= 0 {
        return Some(got as usize);
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => None,
        _ => Some(0),
    }
}

/// An epoll set: file descriptors to wait for, each with a number chosen by the caller.
pub struct Epoll(RawFd);

impl Epoll {
    /// An empty set.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        // SAFETY: the call has no pointer arguments.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            fail("epoll_create1");
        }
        Self(fd)
    }

    /// Waits for `events` of `fd`, known as `number`.
    pub fn add(&self, fd: RawFd, events: i32, number: u64) {
        self.control(libc::EPOLL_CTL_ADD, fd, events, number);
    }

    /// Waits for other `events` of `fd`.
    pub fn change(&self, fd: RawFd, events: i32, number: u64) {
        self.control(libc::EPOLL_CTL_MOD, fd, events, number);
    }

    fn control(&self, what: i32, fd: RawFd, events: i32, number: u64) {
        let mut event = libc::epoll_event { events: events as u32, u64: number };
        // SAFETY: the event is valid for the call.
        if unsafe { libc::epoll_ctl(self.0, what, fd, &mut event) } < 0 {
            fail("epoll_ctl");
        }
    }

    /// Waits at most `milliseconds`; sets `ready` to the numbers and events of ready descriptors.
    pub fn wait(&self, ready: &mut Vec<(u64, u32)>, milliseconds: i32) {
        const MOST: usize = 512;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        // SAFETY: the array is valid for its length.
        let count =
            unsafe { libc::epoll_wait(self.0, events.as_mut_ptr(), MOST as i32, milliseconds) };
        ready.clear();
        for event in events.iter().take(count.max(0) as usize) {
            ready.push((event.u64, event.events));
        }
    }
}
