//! Many sends in one system call (io_uring(7)), where the kernel lets us; else one call each.
//!
//! Not a loop of its own: a batch is submitted, done and looked at before the call returns, so whoever sends
//! need not know how. Readiness stays epoll's.
//!
//! The decision to question: descriptors and buffers aren't registered. That gains nothing here
//! (docs/design/0027-sends-in-batches.md).

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Sends in one batch, at most. A power of two.
pub const MOST_SENDS: usize = 128;

const OP_SEND: u8 = 26;
/// SINGLE_ISSUER and DEFER_TASKRUN: one thread, which asks for what is done.
const SETUP_FLAGS: u32 = 1 << 12 | 1 << 13;
const GETEVENTS: u32 = 1;
const OFFSET_ENTRIES: libc::off_t = 0x1000_0000;

/// Bytes for a socket, and how many of them it took, or the system's error number.
#[derive(Debug, Clone, Copy)]
pub struct Send<'a> {
    /// The socket.
    pub fd: RawFd,
    /// What it is offered.
    pub bytes: &'a [u8],
    /// What came of it.
    pub taken: Result<usize, i32>,
}

impl<'a> Send<'a> {
    /// One that wasn't tried yet.
    pub fn new(fd: RawFd, bytes: &'a [u8]) -> Send<'a> {
        Send { fd, bytes, taken: Err(libc::EAGAIN) }
    }

    /// Try it now, by itself.
    fn one(&mut self) {
        let failed = |error: io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        self.taken = super::send(self.fd, self.bytes).map_err(failed);
    }
}

/// Sends for one thread.
#[derive(Default)]
pub struct Sender {
    ring: Option<Ring>,
}

impl Sender {
    /// One for this thread, in batches if possible; else why not.
    pub fn new() -> (Sender, Option<io::Error>) {
        match Ring::new() {
            Ok(ring) => (Sender { ring: Some(ring) }, None),
            Err(error) => (Sender::default(), Some(error)),
        }
    }

    /// Offer each socket its bytes; nothing waits. At most [`MOST_SENDS`].
    pub fn send(&mut self, sends: &mut [Send<'_>]) {
        let done = match &mut self.ring {
            Some(ring) if sends.len() > 1 => ring.send(sends),
            _ => Ok(0),
        };
        match done {
            Ok(done) => sends[done..].iter_mut().for_each(Send::one),
            Err(_) => {
                // None of them was tried, and none will be that way.
                self.ring = None;
                sends.iter_mut().for_each(Send::one);
            }
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Submissions: flags, dropped, array. Completions: overflow, completions, flags.
    more: [u32; 3],
    reserved: u32,
    address: u64,
}

#[repr(C)]
#[derive(Default)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    /// A processor, its idle time, features, a work queue's descriptor, reserved.
    other: [u32; 7],
    sq: Offsets,
    cq: Offsets,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    message_flags: u32,
    user_data: u64,
    reserved: [u64; 3],
}

#[repr(C)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// An area that the kernel shares with us.
struct Area {
    start: *mut u8,
    size: usize,
}

impl Area {
    fn new(fd: &OwnedFd, size: usize, offset: libc::off_t) -> io::Result<Area> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping, which replaces none.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), size, rights, kind, fd.as_raw_fd(), offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Area { start: start.cast(), size })
    }

    /// The place of `T` number `index` of those from `offset` on.
    fn place<T>(&self, offset: u32, index: usize) -> *mut T {
        let at = offset as usize + index * mem::size_of::<T>();
        assert!(at + mem::size_of::<T>() <= self.size);
        // SAFETY: it lies inside the mapping.
        unsafe { self.start.add(at).cast() }
    }

    fn number(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel said that there is a number, which it shares with us.
        unsafe { &*self.place::<AtomicU32>(offset, 0) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: it was mapped like that, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

struct Ring {
    fd: OwnedFd,
    rings: Area,
    entries: Area,
    sq: Offsets,
    cq: Offsets,
    tail: u32,
}

// SAFETY: the areas are used through `&mut self` alone.
unsafe impl std::marker::Send for Ring {}

impl Ring {
    /// To be used on this thread alone.
    fn new() -> io::Result<Ring> {
        let mut told = Parameters { flags: SETUP_FLAGS, ..Parameters::default() };
        // SAFETY: the struct has the kernel's layout and outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, MOST_SENDS, &raw mut told) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the system has just made this descriptor, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let Parameters { sq_entries, cq_entries, sq, cq, .. } = told;
        let places = sq.more[2] as usize + sq_entries as usize * mem::size_of::<u32>();
        let completions = cq_entries as usize * mem::size_of::<Completion>();
        let rings = Area::new(&fd, places.max(cq.more[1] as usize + completions), 0)?;
        let size = sq_entries as usize * mem::size_of::<Entry>();
        let entries = Area::new(&fd, size, OFFSET_ENTRIES)?;
        for place in 0..sq_entries {
            // SAFETY: an element of the array of places, which nobody reads yet.
            unsafe { rings.place::<u32>(sq.more[2], place as usize).write(place) };
        }
        Ok(Ring { fd, rings, entries, sq, cq, tail: 0 })
    }

    /// Send the first of `sends`; returns how many. An error means that none was.
    fn send(&mut self, sends: &mut [Send<'_>]) -> io::Result<usize> {
        let count = sends.len().min(MOST_SENDS);
        for (index, send) in sends[..count].iter().enumerate() {
            let entry = Entry {
                opcode: OP_SEND,
                fd: send.fd,
                address: send.bytes.as_ptr() as u64,
                length: send.bytes.len() as u32,
                message_flags: (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u32,
                user_data: index as u64,
                ..Entry::default()
            };
            let place = self.tail.wrapping_add(index as u32) as usize % MOST_SENDS;
            // SAFETY: a place of the submissions, of which the kernel has taken all that were told.
            unsafe { self.entries.place::<Entry>(0, place).write(entry) };
        }
        let end = self.tail.wrapping_add(count as u32);
        self.rings.number(self.sq.tail).store(end, Ordering::Release);
        let begun = match self.enter(count, count) {
            Ok(begun) => begun,
            Err(error) => {
                self.rings.number(self.sq.tail).store(self.tail, Ordering::Release);
                return Err(error);
            }
        };
        // Those that the kernel had no memory for are sent by themselves.
        self.tail = self.tail.wrapping_add(begun as u32);
        self.rings.number(self.sq.tail).store(self.tail, Ordering::Release);
        let mut done = self.take_completions(sends);
        while done < begun {
            // The kernel reads the bytes until they are done: there is no going on without it.
            let _ = self.enter(0, 1);
            done += self.take_completions(sends);
        }
        Ok(begun)
    }

    fn enter(&self, submitted: usize, wanted: usize) -> io::Result<usize> {
        loop {
            // SAFETY: no signal mask is given; what the entries point to outlives their completions.
            let begun = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_enter,
                    self.fd.as_raw_fd(),
                    submitted,
                    wanted,
                    GETEVENTS,
                    ptr::null::<libc::sigset_t>(),
                    0,
                )
            };
            if begun >= 0 {
                return Ok(begun as usize);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    fn take_completions(&self, sends: &mut [Send<'_>]) -> usize {
        let head = self.rings.number(self.cq.head);
        let end = self.rings.number(self.cq.tail).load(Ordering::Acquire);
        let mask = self.rings.number(self.cq.mask).load(Ordering::Relaxed);
        let (mut at, mut count) = (head.load(Ordering::Relaxed), 0);
        while at != end {
            let place = self.rings.place::<Completion>(self.cq.more[1], (at & mask) as usize);
            // SAFETY: the kernel has written it, and doesn't again before the head has moved.
            let Completion { user_data, result, .. } = unsafe { place.read() };
            sends[user_data as usize].taken = usize::try_from(result).map_err(|_| -result);
            at = at.wrapping_add(1);
            count += 1;
        }
        head.store(at, Ordering::Release);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    /// As many pairs as don't fit into one batch.
    fn pairs(count: usize) -> Vec<(UnixStream, UnixStream)> {
        (0..count).map(|_| UnixStream::pair().expect("a pair")).collect()
    }

    /// In batches if this kernel can, and one by one.
    fn both() -> [Sender; 2] {
        [Sender::new().0, Sender::default()]
    }

    #[test]
    fn each_socket_gets_its_own_bytes_again_and_again() {
        for mut sender in both() {
            let mut pairs = pairs(MOST_SENDS);
            for round in 0..5_u8 {
                let said: Vec<[u8; 2]> = (0..MOST_SENDS).map(|at| [at as u8, round]).collect();
                let sends = pairs.iter().zip(&said);
                let mut sends: Vec<_> =
                    sends.map(|((one, _), bytes)| Send::new(one.as_raw_fd(), bytes)).collect();
                sender.send(&mut sends);
                assert!(sends.iter().all(|send| send.taken == Ok(2)), "{sends:?}");
                for ((_, other), bytes) in pairs.iter_mut().zip(&said) {
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
            let (full, gone) = (pairs[0].0.as_raw_fd(), -1);
            let mut sends = [
                Send::new(full, &much),
                Send::new(gone, b"x"),
                Send::new(pairs[1].0.as_raw_fd(), b"fine"),
            ];
            pairs[0].0.set_nonblocking(true).expect("a socket");
            sender.send(&mut sends);
            let part = sends[0].taken.expect("some of it");
            assert!(0 < part && part < much.len());
            assert_eq!((sends[1].taken, sends[2].taken), (Err(libc::EBADF), Ok(4)));
            let mut again = [Send::new(full, &much), Send::new(full, b"x")];
            sender.send(&mut again);
            assert_eq!(again[0].taken, Err(libc::EAGAIN));
        }
    }
}
