//! A comparison: is io_uring cheaper than `send()` for many sockets? The floor, in several ways, in one run.
//!
//!     fanout-uring --port 9000 --connections 10000 --bytes 256 --rounds 10 --batch 32
//!
//! Prints a line when it listens and one when all readers are connected. Then each round sends one frame to every
//! reader in each of the ways; every second round has the ways in reverse order. At the end a JSON line has, for each
//! way, the median of its processor time in microseconds for each `send`, and the number of refused sends. Kernel
//! workers that belong to this process are counted too. docs/design/0027-sends-in-batches.md has the results.

use newsfabric_fanout::{
    Arguments, address, bind, fail, raise_descriptor_limit, send, set_option, tcp_socket,
};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;
use std::{mem, ptr};

const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

/// Time that readers have for a frame before the next one is sent.
const PAUSE: Duration = Duration::from_millis(100);

const ENTRIES: u32 = 1_024;
const OP_SEND: u8 = 26;
const OP_WRITE_FIXED: u8 = 5;
const REGISTER_BUFFERS: u32 = 0;
const REGISTER_FILES: u32 = 2;
const FIXED_FILE: u8 = 1;
const SKIP_SUCCESS: u8 = 1 << 6;
/// SINGLE_ISSUER and DEFER_TASKRUN: one thread, which gets completions when it asks for them.
const SETUP_FLAGS: u32 = 1 << 12 | 1 << 13;
const GETEVENTS: u32 = 1;
const OFFSET_SQES: libc::off_t = 0x1000_0000;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A system call for each send.
    Send,
    /// Batches of OP_SEND.
    Batches,
    /// Batches with registered descriptors.
    Files,
    /// OP_WRITE_FIXED: registered descriptors and a registered buffer.
    Buffers,
}

const WAYS: [(Way, &str); 4] = [
    (Way::Send, "send"),
    (Way::Batches, "uring"),
    (Way::Files, "uring_files"),
    (Way::Buffers, "uring_files_buffers"),
];

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let count = arguments.number("connections", 10_000) as usize;
    let rounds = arguments.number("rounds", 10) as usize;
    let batch = arguments.number("batch", 32).clamp(1, u64::from(ENTRIES)) as usize;
    let mut frame = vec![0x81, 126];
    let bytes = arguments.number("bytes", 256) as usize;
    frame.extend((bytes as u16).to_be_bytes());
    frame.resize(frame.len() + bytes, b'x');
    let listener = listen(arguments.number("port", 9000) as u16);
    println!("{{\"listening\":true}}");
    let sockets: Vec<RawFd> = (0..count).map(|_| accept(listener)).collect();
    println!("{{\"connections\":{count}}}");
    let mut ring = Ring::new(&sockets, &frame);
    let mut took = vec![Vec::new(); WAYS.len()];
    let mut refused = vec![0; WAYS.len()];
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..WAYS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            let before = processor_ns();
            refused[way] += match WAYS[way].0 {
                Way::Send => send_each(&sockets, &frame),
                other => ring.send_all(other, &sockets, &frame, batch),
            };
            let spent = (processor_ns() - before) as f64;
            took[way].push(spent / 1e3 / count as f64);
            sleep(PAUSE);
        }
    }
    let said = WAYS.iter().zip(&mut took).zip(&refused).map(|(((_, name), took), refused)| {
        took.sort_by(f64::total_cmp);
        format!("\"{name}\":{{\"us\":{:.3},\"refused\":{refused}}}", took[took.len() / 2])
    });
    println!("{{{}}}", said.collect::<Vec<_>>().join(","));
}

fn send_each(sockets: &[RawFd], frame: &[u8]) -> u64 {
    sockets.iter().map(|&socket| u64::from(send(socket, frame) != Some(frame.len()))).sum()
}

/// Returns the processor time of all threads of this process, with its kernel workers, and of ksoftirqd. On loopback a
/// `send` goes on to receive the packet at the other end, in ksoftirqd if not in this process.
fn processor_ns() -> u64 {
    let of_kernel = KERNEL_THREADS.with(|pids| pids.iter().map(|pid| ran_ns(*pid)).sum::<u64>());
    // SAFETY: clock_gettime fills the struct that it is given.
    let time = unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64 + of_kernel
}

thread_local! {
    static KERNEL_THREADS: Vec<u32> = kernel_threads();
}

fn kernel_threads() -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.starts_with("ksoftirqd/"))
        })
        .collect()
}

fn ran_ns(pid: u32) -> u64 {
    let schedstat = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    schedstat.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Submissions: flags, dropped, array. Completions: overflow, cqes, flags.
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
    /// Processor, its idle time, features, a work queue's descriptor, reserved.
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
    op_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    file: i32,
    reserved: [u64; 2],
}

#[repr(C)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

struct Ring {
    fd: RawFd,
    rings: *mut u8,
    entries: *mut Entry,
    sq: Offsets,
    cq: Offsets,
    tail: u32,
}

impl Ring {
    /// A ring with `sockets` registered by their index, and `frame` as the registered buffer.
    fn new(sockets: &[RawFd], frame: &[u8]) -> Ring {
        let mut parameters = Parameters { flags: SETUP_FLAGS, ..Parameters::default() };
        // SAFETY: the struct has the kernel's layout and is valid for the call.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, &raw mut parameters) }
            as RawFd;
        if fd < 0 {
            fail("io_uring_setup");
        }
        let array =
            parameters.sq.more[2] as usize + parameters.sq_entries as usize * mem::size_of::<u32>();
        let completions = parameters.cq_entries as usize * mem::size_of::<Completion>();
        let size = array.max(parameters.cq.more[1] as usize + completions);
        let rings = map(fd, size, 0).cast::<u8>();
        let entries =
            map(fd, parameters.sq_entries as usize * mem::size_of::<Entry>(), OFFSET_SQES);
        let ring = Ring {
            fd,
            rings,
            entries: entries.cast(),
            sq: parameters.sq,
            cq: parameters.cq,
            tail: 0,
        };
        for place in 0..parameters.sq_entries {
            // SAFETY: the kernel returned the offset of the array and the number of its places.
            unsafe {
                *rings.add(parameters.sq.more[2] as usize).cast::<u32>().add(place as usize) = place
            };
        }
        ring.register(REGISTER_FILES, sockets.as_ptr().cast(), sockets.len());
        let piece =
            libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        ring.register(REGISTER_BUFFERS, (&raw const piece).cast(), 1);
        ring
    }

    fn register(&self, what: u32, values: *const libc::c_void, count: usize) {
        // SAFETY: `values` has `count` elements of the registered kind.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_register, self.fd, what, values, count as u32)
        };
        if done < 0 {
            fail("io_uring_register");
        }
    }

    /// Returns the number of writes that the kernel didn't take whole.
    fn send_all(&mut self, way: Way, sockets: &[RawFd], frame: &[u8], batch: usize) -> u64 {
        let mut refused = 0;
        for (number, sockets) in sockets.chunks(batch).enumerate() {
            for (place, &socket) in sockets.iter().enumerate() {
                let place = (number * batch + place) as i32;
                let plain = Entry {
                    opcode: OP_SEND,
                    flags: SKIP_SUCCESS,
                    fd: socket,
                    address: frame.as_ptr() as u64,
                    length: frame.len() as u32,
                    op_flags: (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) as u32,
                    ..Entry::default()
                };
                let with_files = Entry { flags: SKIP_SUCCESS | FIXED_FILE, fd: place, ..plain };
                self.put(match way {
                    Way::Send | Way::Batches => plain,
                    Way::Files => with_files,
                    Way::Buffers => Entry { opcode: OP_WRITE_FIXED, op_flags: 0, ..with_files },
                });
            }
            self.submit(sockets.len());
            refused += self.take_completions(frame.len());
        }
        refused
    }

    fn put(&mut self, entry: Entry) {
        let place = self.tail & (ENTRIES - 1);
        // SAFETY: there are ENTRIES places, and a batch is submitted before it needs more.
        unsafe { *self.entries.add(place as usize) = entry };
        self.tail = self.tail.wrapping_add(1);
    }

    fn submit(&self, count: usize) {
        self.number(self.sq.tail).store(self.tail, Ordering::Release);
        // SAFETY: no signal mask is passed.
        let done = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd,
                count,
                0,
                GETEVENTS,
                ptr::null::<u8>(),
                0,
            )
        };
        if done != count as i64 {
            fail("io_uring_enter");
        }
    }

    /// Returns the number of incomplete sends. Whole `OP_SEND`s and writes have no completion (SKIP_SUCCESS).
    fn take_completions(&self, whole: usize) -> u64 {
        let (head, tail) = (self.number(self.cq.head), self.number(self.cq.tail));
        let (mut at, end, mut refused) =
            (head.load(Ordering::Relaxed), tail.load(Ordering::Acquire), 0);
        while at != end {
            let place = (at & self.number(self.cq.mask).load(Ordering::Relaxed)) as usize;
            // SAFETY: the kernel returned the offset of the completions, and the mask keeps the index inside.
            let one = unsafe {
                &*self.rings.add(self.cq.more[1] as usize).cast::<Completion>().add(place)
            };
            refused += u64::from(one.result != whole as i32);
            at = at.wrapping_add(1);
        }
        head.store(at, Ordering::Release);
        refused
    }

    fn number(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel returned the offset of this number, which it shares with us.
        unsafe { &*self.rings.add(offset as usize).cast::<AtomicU32>() }
    }
}

fn map(fd: RawFd, size: usize, offset: libc::off_t) -> *mut libc::c_void {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
    // SAFETY: a new mapping that replaces none.
    let place = unsafe { libc::mmap(ptr::null_mut(), size, rights, kind, fd, offset) };
    if place == libc::MAP_FAILED {
        fail("mmap");
    }
    place
}

fn listen(port: u16) -> RawFd {
    let listener = tcp_socket();
    set_option(listener, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    bind(listener, &address([127, 0, 0, 1], port));
    // SAFETY: plain system calls on a descriptor of ours. The socket becomes blocking for accept() below.
    unsafe {
        libc::fcntl(listener, libc::F_SETFL, 0);
        if libc::listen(listener, 4096) < 0 {
            fail("listen");
        }
    }
    listener
}

fn accept(listener: RawFd) -> RawFd {
    // SAFETY: null pointers are allowed: the address of the peer isn't requested.
    let socket = unsafe { libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), 0) };
    if socket < 0 {
        fail("accept");
    }
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let mut head = [0u8; 2048];
    // SAFETY: the buffer is valid for its length. The call blocks.
    let got = unsafe { libc::recv(socket, head.as_mut_ptr().cast(), head.len(), 0) };
    if got <= 0 {
        fail("handshake");
    }
    send(socket, UPGRADED);
    socket
}
