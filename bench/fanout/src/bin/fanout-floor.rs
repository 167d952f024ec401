//! The floor: N accepted sockets, and only one `send()` each per message.
//!
//! No server can spend less per delivery, so the cost of others is given as a ratio to this.
//!
//!     fanout-floor --port 9000 --connections 10000 --bytes 256
//!
//! Prints a line when it listens and one when all are connected. Then it reads rounds from its standard input, one a
//! line, until the input ends. `MESSAGES FRAMES GAP_MS` sends MESSAGES times one write of FRAMES frames to every
//! socket, GAP_MS apart, and prints a JSON line. The program that starts it measures its processor time.

use newsfabric_fanout::{
    Arguments, address, bind, fail, monotonic_ns, raise_descriptor_limit, send, set_option,
    tcp_socket,
};
use std::os::fd::RawFd;
use std::ptr;
use std::thread::sleep;
use std::time::Duration;

const UPGRADED: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";

fn main() {
    let arguments = Arguments::read();
    raise_descriptor_limit();
    let count = arguments.number("connections", 10_000) as usize;
    let frame = frame_of(arguments.number("bytes", 256) as usize);
    let listener = listen(arguments.number("port", 9000) as u16);
    println!("{{\"listening\":true}}");
    let sockets: Vec<RawFd> = (0..count).map(|_| accept(listener)).collect();
    println!("{{\"connections\":{count}}}");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let numbers: Vec<u64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
        let [messages, frames, gap_ms] = numbers[..] else {
            eprintln!("error: expected MESSAGES FRAMES GAP_MS, got {line:?}");
            std::process::exit(2);
        };
        let refused = send_round(&sockets, messages, &frame.repeat(frames as usize), gap_ms);
        println!("{{\"messages\":{messages},\"refused\":{refused}}}");
    }
}

/// Returns the number of writes that the kernel didn't take whole.
fn send_round(sockets: &[RawFd], messages: u64, bytes: &[u8], gap_ms: u64) -> u64 {
    let mut refused = 0;
    let start = monotonic_ns();
    for message in 1..=messages {
        for &socket in sockets {
            refused += u64::from(send(socket, bytes) != Some(bytes.len()));
        }
        let next = start + message * gap_ms * 1_000_000;
        sleep(Duration::from_nanos(next.saturating_sub(monotonic_ns())));
    }
    refused
}

fn frame_of(bytes: usize) -> Vec<u8> {
    let mut frame = vec![0x81];
    match bytes {
        0..126 => frame.push(bytes as u8),
        126..65_536 => {
            frame.push(126);
            frame.extend((bytes as u16).to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend((bytes as u64).to_be_bytes());
        }
    }
    frame.resize(frame.len() + bytes, b'x');
    frame
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
