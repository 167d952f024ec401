//! `newsfabric-crowd`: up to 20,000 readers in one thread, which runs commands, a line each. See `--help`.
//!
//! Readers are `pages`, which behave as a page of the fabric does, or with `--port` `bare`: those of the bench, which
//! do as little as possible, in any dialect that a peer of the gateway speaks.

mod bare;
mod pages;

use newsfabric_fanout::crowd::commands::Lines;
use newsfabric_fanout::crowd::options::{HELP, Invocation, parsed};
use newsfabric_fanout::{Arguments, Epoll, raise_descriptor_limit};
use std::io::{Read, Write};

const STDIN: u64 = u64::MAX;

/// All readers of the process.
trait Crowd {
    /// The sockets of all readers, by their numbers.
    fn epoll(&self) -> &Epoll;

    /// Does all that is due; returns the milliseconds until more is due, at most 100.
    fn on_time(&mut self) -> i32;

    /// Handles an event of a reader's socket.
    fn on_event(&mut self, number: usize, events: u32, buffer: &mut [u8]);

    /// The reply to a command, as JSON; None at the command to end.
    fn run_command(&mut self, line: &str) -> Option<String>;
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let descriptors = raise_descriptor_limit();
    if words.iter().any(|word| word == "--port") {
        return run(&mut bare::Bare::new(&Arguments::read()));
    }
    match parsed(&words) {
        Ok(Invocation::Run(options)) => run(&mut pages::Pages::new(options, descriptors)),
        Ok(Invocation::Help) => print!("{HELP}"),
        Err(wrong) => {
            eprintln!("error: {wrong}");
            std::process::exit(2);
        }
    }
}

fn run(crowd: &mut impl Crowd) {
    crowd.epoll().add(0, libc::EPOLLIN, STDIN);
    let mut lines = Lines::default();
    let mut ready = Vec::new();
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        let pause = crowd.on_time();
        crowd.epoll().wait(&mut ready, pause);
        for &(number, events) in &ready {
            if number != STDIN {
                crowd.on_event(number as usize, events, &mut buffer);
            } else if !run_commands(crowd, &mut lines) {
                return;
            }
        }
    }
}

/// Runs the commands of standard input, a line each; returns false at its end.
fn run_commands(crowd: &mut impl Crowd, lines: &mut Lines) -> bool {
    // Larger than the buffer of `stdin`, whose content epoll couldn't see.
    let mut piece = [0u8; 1 << 16];
    let size = std::io::stdin().read(&mut piece).unwrap_or(0);
    for line in lines.add(&piece[..size]) {
        let Some(reply) = crowd.run_command(&line) else {
            write_reply("{}");
            return false;
        };
        write_reply(&reply);
    }
    size > 0
}

fn write_reply(text: &str) {
    let mut out = std::io::stdout().lock();
    // A failed write means that the parent process is gone: the end of the input follows.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
