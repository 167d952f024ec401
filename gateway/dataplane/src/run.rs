//! Puts a data plane together: listeners, I/O threads, the thread that talks to the control plane.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::addresses::Addresses;
use crate::attach::{Attachment, End, Heritage, Threads};
use crate::control::Settings;
use crate::counters::Counters;
use crate::inherit::{self, Estate};
use crate::mailbox::Mailbox;
use crate::ping::Pulse;
use crate::policy::Policy;
use crate::reactor::{Parts, Reactor};
use crate::sys;

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
pub struct Nature {
    /// How many I/O threads it has.
    pub threads: u16,
    /// Whether connections begin with a PROXY header.
    pub proxied: bool,
    /// Whether messages are sent back.
    pub echo: bool,
}

/// The I/O threads before they run, and the other end of each.
pub struct Crew {
    /// What each is made of.
    pub parts: Vec<Parts>,
    /// How the thread that talks to the control plane sees them.
    pub threads: Threads,
}

impl Crew {
    /// So many threads, for listeners on `ports`.
    pub fn new(nature: &Nature, ports: Vec<u16>) -> io::Result<Crew> {
        let count = usize::from(nature.threads);
        let counters: Arc<Vec<Counters>> =
            Arc::new((0..count).map(|_| Counters::default()).collect());
        let reports = Arc::new(Mailbox::new()?);
        let (addresses, pulse) = (Arc::new(Addresses::default()), Arc::new(Pulse::default()));
        let (mut parts, mut orders, mut hatches) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..nature.threads {
            let mailbox = Arc::new(Mailbox::new()?);
            let (hatch, other_end) = sys::packet_pair()?;
            orders.push(mailbox.clone());
            hatches.push(hatch);
            parts.push(Parts {
                number,
                orders: mailbox,
                reports: reports.clone(),
                hatch: other_end,
                counters: counters.clone(),
                pulse: pulse.clone(),
                addresses: addresses.clone(),
                proxied: nature.proxied,
                echo: nature.echo,
            });
        }
        let pending = vec![Vec::new(); count];
        let Nature { proxied, echo, .. } = *nature;
        let threads = Threads {
            orders,
            reports,
            hatches,
            counters,
            pulse,
            addresses,
            ports,
            proxied,
            echo,
            pending,
        };
        Ok(Crew { parts, threads })
    }
}

/// Serve until drained, or taken over.
pub fn run(options: &Options) -> io::Result<()> {
    let limit = sys::raise_descriptor_limit()?;
    let signals = sys::termination_signals()?;
    let (door, threads, heritage) = if options.take_over {
        let Estate { door, threads, heritage, pid, took } =
            inherit::take_over(&options.control, options.private_tables)?;
        let (readers, ms) = (threads.readers(), took.as_millis());
        crate::tell!(Info, "took {readers} readers over from data plane {pid} in {ms} ms");
        // For whoever has started us. One that doesn't listen any more need not know.
        let _ = writeln!(io::stdout(), "serving");
        (door, threads, heritage)
    } else {
        let (door, threads) = begin(options)?;
        (door, threads, Heritage::default())
    };
    let (port, count) = (threads.ports.first().copied().unwrap_or(0), threads.orders.len());
    crate::tell!(Info, "readers on port {port}: {count} threads of {limit} descriptors");
    let served = Attachment::new(door, signals, threads, heritage)?.run();
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
    let nature = Nature { threads, proxied: options.proxied, echo: options.echo };
    let listeners = listeners(options, usize::from(threads))?;
    let port = sys::local_address(listeners[0].as_raw_fd())?.port();
    let door = sys::listen_unix(&options.control)?;
    let crew = Crew::new(&nature, vec![port])?;
    let policy = Arc::new(Policy::new(Settings::default()));
    let mut reactors = Vec::new();
    for (parts, listener) in crew.parts.into_iter().zip(listeners) {
        reactors.push(Reactor::new(parts, listener, policy.clone(), 0)?);
    }
    start(reactors, options.private_tables)?;
    Ok((door, crew.threads))
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
    let first = sys::listen_tcp(SocketAddr::new(options.host, options.port), BACKLOG, true)?;
    let address = sys::local_address(first.as_raw_fd())?;
    let mut all = vec![first];
    for _ in 1..count {
        all.push(sys::listen_tcp(address, BACKLOG, true)?);
    }
    Ok(all)
}

/// Start the I/O threads. When this returns, each has its own descriptor table if it shall have one.
fn start(reactors: Vec<Reactor>, private_tables: bool) -> io::Result<()> {
    let ready = Arc::new(Barrier::new(reactors.len() + 1));
    let mut own = Vec::new();
    for reactor in reactors {
        let mut keep = reactor.own_descriptors();
        own.extend_from_slice(&keep);
        keep.extend(reactor.parts().shared_descriptors());
        let number = reactor.parts().number;
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
