//! The floor: N accepted sockets, and nothing but one `send()` each per message.
//!
//! No server can spend less per delivery, so others are quoted as a ratio to this.
//!
//!     fanout-floor --port 9000 --connections 10000 --messages 20 --bytes 256 --gap-ms 200
//!
//! Prints one JSON line. `--frames 10` puts ten frames into one write.

use newsfabric_fanout::{
    Arguments, address, bind, fail, processor_seconds, raise_descriptor_limit, receive, send,
    set_option, tcp_socket,
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
    let messages = arguments.number("messages", 20);
    let frames = arguments.number("frames", 1);
    let gap = Duration::from_millis(arguments.number("gap-ms", 200));
    let frame = frame_of(arguments.number("bytes", 256) as usize).repeat(frames as usize);

    let listener = listen(arguments.number("port", 9000) as u16);
    println!("listening");
    let sockets: Vec<RawFd> = (0..count).map(|_| accept(listener)).collect();
    // The crowd's last handshakes are over before anything is counted.
    sleep(Duration::from_secs(1));
    let before = processor_seconds();
    let mut refused = 0u64;
    for _ in 0..messages {
        for &socket in &sockets {
            if send(socket, &frame) != Some(frame.len()) {
                refused += 1;
            }
        }
        sleep(gap);
    }
    let seconds = processor_seconds() - before;
    let deliveries = count as u64 * messages * frames;
    println!(
        "{{\"deliveries\":{deliveries},\"refused\":{refused},\"cpu_seconds\":{seconds:.6},\"us_per_delivery\":{:.4}}}",
        seconds * 1e6 / deliveries as f64
    );
    // Until the crowd has read everything and gone.
    let mut rest = [0u8; 64];
    while sockets.iter().any(|&socket| receive(socket, &mut rest) != Some(0)) {
        sleep(Duration::from_millis(100));
    }
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
    // SAFETY: plain system calls on a descriptor of ours. accept() below is to wait.
    unsafe {
        libc::fcntl(listener, libc::F_SETFL, 0);
        if libc::listen(listener, 4096) < 0 {
            fail("listen");
        }
    }
    listener
}

fn accept(listener: RawFd) -> RawFd {
    // SAFETY: the address of the peer isn't asked for.
    let socket = unsafe { libc::accept4(listener, ptr::null_mut(), ptr::null_mut(), 0) };
    if socket < 0 {
        fail("accept");
    }
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let mut head = [0u8; 2048];
    // SAFETY: the buffer is valid for its length; this one waits.
    let got = unsafe { libc::recv(socket, head.as_mut_ptr().cast(), head.len(), 0) };
    if got <= 0 {
        fail("handshake");
    }
    send(socket, UPGRADED);
    socket
}
