//! Puts a data plane together: listeners, I/O threads, the thread that talks to the control plane.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::addresses::Addresses;
use crate::control::Settings;
use crate::control_thread::{ControlState, ControlThread, End, Threads};
use crate::counters::Counters;
use crate::mailbox::Mailbox;
use crate::ping::Pulse;
use crate::policy::Policy;
use crate::reactor::Reactor;
use crate::sys;
use crate::take_over::{self, TakenOver};
use crate::thread_parts::ThreadParts;

/// A crowd that comes at once waits here; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 32_768;

/// What the command line says.
#[derive(Debug)]
pub struct Options {
    /// Where the control plane attaches.
    pub control: PathBuf,
    /// Where readers come in.
    pub host: IpAddr,
    /// 0 takes a free one.
    pub port: u16,
    /// How many I/O threads; None for one per core.
    pub threads: Option<u16>,
    /// A listening socket that was inherited. All threads share it.
    pub inherited: Option<RawFd>,
    /// Whether each thread gets a descriptor table of its own.
    pub private_tables: bool,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back.
    pub echo: bool,
    /// Whether everything but `control` and `private_tables` comes from the data plane that lives.
    pub take_over: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            control: PathBuf::new(),
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            threads: None,
            inherited: None,
            private_tables: true,
            proxied: false,
            echo: false,
            take_over: false,
        }
    }
}

/// What kind of data plane it is, beyond its settings.
#[derive(Debug, Clone, Copy)]
pub struct ThreadOptions {
    /// How many I/O threads it has.
    pub threads: u16,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back.
    pub echo: bool,
}

/// The I/O threads before they run, and the other end of each.
pub struct IoThreads {
    /// What each is threads_made of.
    pub parts: Vec<ThreadParts>,
    /// How the thread that talks to the control plane sees them.
    pub threads: Threads,
}

impl IoThreads {
    /// So many threads, for listeners on `ports`.
    pub fn new(thread_options: &ThreadOptions, ports: Vec<u16>) -> io::Result<IoThreads> {
        let count = usize::from(thread_options.threads);
        let counters: Arc<Vec<Counters>> =
            Arc::new((0..count).map(|_| Counters::default()).collect());
        let reports = Arc::new(Mailbox::new()?);
        let (addresses, pulse) = (Arc::new(Addresses::default()), Arc::new(Pulse::default()));
        let (mut parts, mut orders, mut handovers) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..thread_options.threads {
            let mailbox = Arc::new(Mailbox::new()?);
            let (end, other_end) = sys::packet_pair()?;
            orders.push(mailbox.clone());
            handovers.push(end);
            parts.push(ThreadParts {
                number,
                orders: mailbox,
                reports: reports.clone(),
                handovers: other_end,
                counters: counters.clone(),
                pulse: pulse.clone(),
                addresses: addresses.clone(),
                proxied: thread_options.proxied,
                echo: thread_options.echo,
            });
        }
        let pending = vec![Vec::new(); count];
        let ThreadOptions { proxied, echo, .. } = *thread_options;
        let threads = Threads {
            orders,
            reports,
            handovers,
            counters,
            pulse,
            addresses,
            ports,
            proxied,
            echo,
            pending,
        };
        Ok(IoThreads { parts, threads })
    }
}

/// Serve until drained, or taken over.
pub fn run(options: &Options) -> io::Result<()> {
    let limit = sys::raise_descriptor_limit()?;
    let signals = sys::termination_signals()?;
    let (control_listener, threads, state) = if options.take_over {
        let TakenOver { control_listener, threads, state, pid, took } =
            take_over::take_over(&options.control, options.private_tables)?;
        let (readers, ms) = (threads.readers(), took.as_millis());
        crate::tell!(Info, "took {readers} readers over from data plane {pid} in {ms} ms");
        // For whoever has started us. One that doesn't listen any more need not know.
        let _ = writeln!(io::stdout(), "serving");
        (control_listener, threads, state)
    } else {
        let (control_listener, threads) = begin(options)?;
        (control_listener, threads, ControlState::default())
    };
    let (port, count) = (threads.ports.first().copied().unwrap_or(0), threads.orders.len());
    crate::tell!(Info, "readers on port {port}: {count} threads of {limit} descriptors");
    let served = ControlThread::new(control_listener, signals, threads, state)?.run();
    if !matches!(served, Ok(End::TakenOver)) {
        // Nobody attaches to a path without a process behind it.
        let _ = std::fs::remove_file(&options.control);
    }
    served.map(drop)
}

/// Start with nobody.
fn begin(options: &Options) -> io::Result<(OwnedFd, Threads)> {
    let threads = match options.threads {
        Some(count) => count.max(1),
        None => u16::try_from(thread::available_parallelism()?.get()).unwrap_or(u16::MAX),
    };
    let thread_options = ThreadOptions { threads, proxied: options.proxied, echo: options.echo };
    let listeners = listeners(options, usize::from(threads))?;
    let port = sys::local_address(listeners[0].as_raw_fd())?.port();
    let control_listener = sys::listen_unix(&options.control)?;
    let threads_made = IoThreads::new(&thread_options, vec![port])?;
    let policy = Arc::new(Policy::new(Settings::default()));
    start(threads_made.parts, listeners, &policy, options.private_tables)?;
    Ok((control_listener, threads_made.threads))
}

fn listeners(options: &Options, count: usize) -> io::Result<Vec<OwnedFd>> {
    if let Some(inherited) = options.inherited {
        sys::check_listening(inherited).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("--fd {inherited} isn't a listening socket: {error}"),
            )
        })?;
        // SAFETY: it is open, and whoever started us says that it is ours.
        let first = unsafe { OwnedFd::from_raw_fd(inherited) };
        sys::set_nonblocking(inherited)?;
        sys::set_readers_options(inherited)?;
        let mut all = vec![first];
        for _ in 1..count {
            let another = all[0].try_clone()?;
            all.push(another);
        }
        return Ok(all);
    }
    let first = sys::listen_tcp(SocketAddr::new(options.host, options.port), BACKLOG)?;
    let address = sys::local_address(first.as_raw_fd())?;
    let mut all = vec![first];
    for _ in 1..count {
        all.push(sys::listen_tcp(address, BACKLOG)?);
    }
    Ok(all)
}

/// Start the I/O threads. When this returns, each has its own descriptor table if it shall have one.
fn start(
    parts: Vec<ThreadParts>,
    listeners: Vec<OwnedFd>,
    policy: &Arc<Policy>,
    private_tables: bool,
) -> io::Result<()> {
    let ready = Arc::new(Barrier::new(parts.len() + 1));
    let mut own = Vec::new();
    for (parts, listener) in parts.into_iter().zip(listeners) {
        let (number, shared) = (parts.number, parts.shared_descriptors());
        let reactor = Reactor::empty(parts, listener, policy.clone())?;
        let mut keep = reactor.own_descriptors();
        own.extend_from_slice(&keep);
        keep.extend(shared);
        spawn(number, keep, private_tables, ready.clone(), move || reactor.run())?;
    }
    ready.wait();
    if private_tables {
        // They are the threads' now: a listener that a thread closes must be closed.
        own.into_iter().for_each(sys::close);
    }
    Ok(())
}

/// Start one I/O thread, which serves with `keep` alone in its descriptor table, if it shall have its
/// own. All wait for each other at `ready`, and whoever starts them too.
pub fn spawn(
    number: u16,
    keep: Vec<RawFd>,
    private_tables: bool,
    ready: Arc<Barrier>,
    serve: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let body = move || {
        let left = if private_tables { sys::leave_descriptor_table(&keep) } else { Ok(()) };
        ready.wait();
        if let Err(error) = left.and_then(|()| serve()) {
            // Without one thread the gateway would be deaf to a part of its readers.
            crate::tell!(Error, "newsfabric-dataplane: I/O thread {number}: {error}");
            std::process::abort();
        }
    };
    thread::Builder::new().name(format!("io-{number}")).spawn(body).map(drop)
}
