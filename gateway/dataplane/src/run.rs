//! Puts a data plane together: listeners, I/O threads, the thread that talks to the control plane.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::attach::{Attachment, Threads};
use crate::control::Settings;
use crate::counters::Counters;
use crate::door::Addresses;
use crate::mailbox::Mailbox;
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
        }
    }
}

/// Serve until drained.
pub fn run(options: &Options) -> io::Result<()> {
    let limit = sys::raise_descriptor_limit()?;
    let signals = sys::termination_signals()?;
    let count = match options.threads {
        Some(count) => usize::from(count.max(1)),
        None => thread::available_parallelism()?.get(),
    };
    let listeners = listeners(options, count)?;
    let port = sys::local_address(listeners[0].as_raw_fd())?.port();
    let door = sys::listen_unix(&options.control)?;
    let counters: Arc<Vec<Counters>> = Arc::new((0..count).map(|_| Counters::default()).collect());
    let reports = Arc::new(Mailbox::new()?);
    let addresses = Arc::new(Addresses::default());
    let mut reactors = Vec::new();
    let mut orders = Vec::new();
    let mut hatches = Vec::new();
    for (number, listener) in listeners.into_iter().enumerate() {
        let mailbox = Arc::new(Mailbox::new()?);
        let (hatch, other_end) = sys::packet_pair()?;
        orders.push(mailbox.clone());
        hatches.push(hatch);
        let parts = Parts {
            number: number as u16,
            listener,
            orders: mailbox,
            reports: reports.clone(),
            hatch: other_end,
            counters: counters.clone(),
            addresses: addresses.clone(),
            proxied: options.proxied,
            echo: options.echo,
        };
        reactors.push(Reactor::new(parts, Arc::new(Policy::new(Settings::default())))?);
    }
    start(reactors, options.private_tables)?;
    eprintln!("readers on port {port}: {count} threads of {limit} descriptors");
    let pending = vec![Vec::new(); count];
    let threads = Threads { orders, reports, hatches, counters, ports: vec![port], pending };
    let served = Attachment::new(door, signals, threads)?.run();
    // Nobody attaches to a path without a process behind it.
    let _ = std::fs::remove_file(&options.control);
    served
}

fn listeners(options: &Options, count: usize) -> io::Result<Vec<OwnedFd>> {
    if let Some(inherited) = options.inherited {
        // SAFETY: whoever started us says that this descriptor is ours.
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
    let owned: Vec<Vec<RawFd>> = reactors.iter().map(|one| one.own_descriptors()).collect();
    for (number, reactor) in reactors.into_iter().enumerate() {
        let ready = ready.clone();
        let mut keep = owned[number].clone();
        keep.extend(reactor.shared_descriptors());
        thread::Builder::new().name(format!("io-{number}")).spawn(move || {
            let left = if private_tables { sys::leave_descriptor_table(&keep) } else { Ok(()) };
            ready.wait();
            if let Err(error) = left.and_then(|()| reactor.run()) {
                // Without one thread the gateway would be deaf to a part of its readers.
                eprintln!("newsfabric-dataplane: I/O thread {number}: {error}");
                std::process::abort();
            }
        })?;
    }
    ready.wait();
    if private_tables {
        // They are the threads' now: a listener that a thread closes must be closed.
        owned.into_iter().flatten().for_each(sys::close);
    }
    Ok(())
}
