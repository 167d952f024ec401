//! `newsfabric-crowd`: up to 20,000 readers that connect, count, reconnect and leave, in one thread. See `--help`.

mod crowd;

use crowd::Crowd;
use newsfabric_fanout::crowd::commands::{Command, Lines, command};
use newsfabric_fanout::crowd::options::{HELP, Invocation, Options, parsed};
use newsfabric_fanout::raise_descriptor_limit;
use std::io::{Read, Write};

const STDIN: u64 = u64::MAX;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match parsed(&words) {
        Ok(Invocation::Run(options)) => run(options),
        Ok(Invocation::Help) => print!("{HELP}"),
        Err(wrong) => {
            eprintln!("error: {wrong}");
            std::process::exit(2);
        }
    }
}

fn run(options: Options) {
    let mut crowd = Crowd::new(options, raise_descriptor_limit());
    crowd.epoll.add(0, libc::EPOLLIN, STDIN);
    let mut lines = Lines::default();
    let mut ready = Vec::new();
    let mut buffer = vec![0u8; 256 * 1024];
    loop {
        let pause = crowd.on_time();
        crowd.epoll.wait(&mut ready, pause);
        for &(number, events) in &ready {
            if number != STDIN {
                crowd.on_event(number as usize, events, &mut buffer);
            } else if !obey(&mut crowd, &mut lines) {
                return;
            }
        }
    }
}

/// Obeys the lines of standard input; false at its end.
fn obey(crowd: &mut Crowd, lines: &mut Lines) -> bool {
    // Larger than the buffer of `stdin`, whose content epoll couldn't see.
    let mut piece = [0u8; 1 << 16];
    let size = std::io::stdin().read(&mut piece).unwrap_or(0);
    for line in lines.take(&piece[..size]) {
        match command(&line, crowd.most()) {
            Ok(Command::Readers(count, rate)) => {
                crowd.want(count, rate);
                say("{}");
            }
            Ok(Command::Storm) => say(&format!("{{\"cut\":{}}}", crowd.storm())),
            Ok(Command::Report) => say(&crowd.report()),
            Ok(Command::Records) => say(&crowd.records()),
            Ok(Command::End) => {
                say("{}");
                return false;
            }
            Err(wrong) => say(&format!("{{\"error\":\"{wrong}\"}}")),
        }
    }
    size > 0
}

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    // A failed write means that the parent process is gone: the end of the input follows.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
