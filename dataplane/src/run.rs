//! Start of a data plane: listeners, I/O threads, and the thread that talks to the control plane.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use crate::control::{ControlState, Settings, ThreadOptions};
use crate::control_thread::ControlThread;
use crate::reactor::Reactor;
use crate::readers::Readers;
use crate::sys;
use crate::take_over::take_over;
use crate::threads::{ThreadParts, Threads};

/// Length of the accept queue, for crowds; the kernel limits it to net.core.somaxconn.
const BACKLOG: i32 = 32_768;

/// Options of the command line.
#[allow(missing_docs, reason = "the program's usage says what each is")]
#[derive(Debug, Default)]
pub struct DataPlaneOptions {
    pub control: PathBuf,
    pub host: Option<IpAddr>,
    pub port: u16,
    pub threads: Option<u16>,
    pub inherited: Option<RawFd>,
    pub shared_table: bool,
    pub proxied: bool,
    pub echo: bool,
    pub take_over: bool,
}

/// Serve until drained or taken over.
pub fn run(options: &DataPlaneOptions) -> io::Result<()> {
    let limit = sys::raise_descriptor_limit()?;
    let signals = sys::termination_signals()?;
    let (control_listener, threads, state) = if options.take_over {
        take_over(&options.control, options.shared_table)?
    } else {
        begin(options)?
    };
    if options.take_over {
        // For the process that started this one; it may have stopped reading.
        let _ = writeln!(io::stdout(), "serving");
    }
    let (port, count) = (threads.ports.first().copied().unwrap_or(0), threads.orders.len());
    crate::log!(Info, "readers on port {port}: {count} threads of {limit} descriptors");
    let taken_over = ControlThread::new(control_listener, signals, threads, state)?.run();
    if !matches!(taken_over, Ok(true)) {
        // Control planes must not attach to a path without a process behind it.
        let _ = std::fs::remove_file(&options.control);
    }
    taken_over.map(drop)
}

/// Start without readers.
fn begin(options: &DataPlaneOptions) -> io::Result<(OwnedFd, Threads, ControlState)> {
    let threads = match options.threads {
        Some(count) => count.max(1),
        None => u16::try_from(thread::available_parallelism()?.get()).unwrap_or(u16::MAX),
    };
    let listeners = listeners(options, usize::from(threads))?;
    let port = sys::local_address(listeners[0].as_raw_fd())?.port();
    let control_listener = sys::listen_unix(&options.control)?;
    let options_of_threads =
        ThreadOptions { threads, proxied: options.proxied, echo: options.echo };
    let (threads, parts) = Threads::new(options_of_threads, vec![port])?;
    let settings = Arc::new(Settings::default());
    let starting = start(parts, listeners, options.shared_table, move |parts, listener| {
        let readers = Readers::new(&parts, settings.clone(), 0)?;
        Reactor::new(parts, listener, readers)
    })?;
    starting.wait_until_ready()?;
    starting.go();
    Ok((control_listener, threads, ControlState::default()))
}

/// Return a listener for each of `count` threads.
fn listeners(options: &DataPlaneOptions, count: usize) -> io::Result<Vec<OwnedFd>> {
    let host = options.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let listen = |port| sys::listen_tcp(SocketAddr::new(host, port), BACKLOG);
    let first = match options.inherited {
        Some(fd) => inherited(fd)?,
        None => listen(options.port)?,
    };
    let port = sys::local_address(first.as_raw_fd())?.port();
    let mut all = vec![first];
    while all.len() < count {
        let shared = options.inherited.is_some();
        all.push(if shared { all[0].try_clone()? } else { listen(port)? });
    }
    Ok(all)
}

fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    sys::check_listening(fd).map_err(|error| {
        let why = format!("--fd {fd} isn't a listening socket: {error}");
        io::Error::new(error.kind(), why)
    })?;
    sys::set_nonblocking(fd)?;
    sys::set_readers_options(fd)?;
    // SAFETY: the descriptor is open, and the process that started this one gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// I/O threads that don't serve yet.
pub(crate) struct Starting {
    ready: mpsc::Receiver<io::Result<()>>,
    go: Arc<Barrier>,
    count: usize,
}

/// Start the I/O threads, each with a socket of its own, from which `build` makes its reactor. On
/// return each thread has its own descriptor table, unless `shared_table`.
pub(crate) fn start(
    parts: Vec<ThreadParts>,
    sockets: Vec<OwnedFd>,
    shared_table: bool,
    build: impl Fn(ThreadParts, OwnedFd) -> io::Result<Reactor> + Clone + Send + 'static,
) -> io::Result<Starting> {
    let count = parts.len();
    let started = Arc::new(Barrier::new(count + 1));
    let go = Arc::new(Barrier::new(count + 1));
    let (sender, ready) = mpsc::channel();
    let mut own = Vec::new();
    for (parts, socket) in parts.into_iter().zip(sockets) {
        let number = parts.number;
        let passed = [parts.handovers.as_raw_fd(), socket.as_raw_fd()];
        let keep = [&passed[..], &[parts.orders.fd(), parts.common.reports.fd()]].concat();
        own.extend(passed);
        let (started, go, sender, build) =
            (started.clone(), go.clone(), sender.clone(), build.clone());
        let body = move || {
            let left = if shared_table { Ok(()) } else { sys::leave_descriptor_table(&keep) };
            started.wait();
            match left.and_then(|()| build(parts, socket)) {
                Ok(reactor) => {
                    // Free the state that all threads were built from.
                    drop(build);
                    let _ = sender.send(Ok(()));
                    go.wait();
                    if let Err(error) = reactor.run() {
                        // Without one thread the gateway would not serve a part of its readers.
                        crate::log!(Error, "newsfabric-dataplane: I/O thread {number}: {error}");
                        std::process::abort();
                    }
                }
                // The thread that waits for all to be ready ends the process.
                Err(error) => _ = sender.send(Err(error)),
            }
        };
        thread::Builder::new().name(format!("io-{number}")).spawn(body)?;
    }
    started.wait();
    if !shared_table {
        // The threads have copies: a listener that a thread closes must have no other descriptor.
        own.into_iter().for_each(sys::close);
    }
    Ok(Starting { ready, go, count })
}

impl Starting {
    /// Wait until all threads are ready to serve, or return the error of one.
    pub fn wait_until_ready(&self) -> io::Result<()> {
        (0..self.count)
            .try_for_each(|_| self.ready.recv().unwrap_or_else(|gone| Err(io::Error::other(gone))))
    }

    pub fn go(&self) {
        self.go.wait();
    }
}
