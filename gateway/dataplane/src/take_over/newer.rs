//! The newer data plane: asks for everything, waits until its threads have it, commits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use super::COMMIT_WITHIN;
use super::lane::{Receiver, malformed};
use super::record::{self, Record};
use super::shared::{Gathering, wrong};
use crate::control::{self, Answer, Malformed, Settings};
use crate::control_thread::{ControlState, Threads};
use crate::policy::Policy;
use crate::reactor::Reactor;
use crate::readers::{Readers, Restoring};
use crate::run::{IoThreads, ThreadOptions, spawn};
use crate::sys;
use crate::thread_parts::ThreadParts;

/// The older one gives up first, and says why.
const LONGER: Duration = Duration::from_secs(5);

/// What was taken over, and is served from now on.
pub struct TakenOver {
    /// Where control planes come in.
    pub control_listener: OwnedFd,
    /// The I/O threads; they serve already.
    pub threads: Threads,
    /// What the thread that talks to control planes must know.
    pub state: ControlState,
    /// Whose it was.
    pub pid: u32,
    /// How long that took; readers waited for most of it.
    pub took: Duration,
}

/// Everything from the data plane that listens at `control`.
///
/// # Errors
/// There is none, or it serves on: then this process must end.
pub fn take_over(control: &Path, private_tables: bool) -> io::Result<TakenOver> {
    let began = Instant::now();
    let socket = sys::connect_unix(control).map_err(|error| {
        let why = format!("no data plane to take over at {}: {error}", control.display());
        io::Error::new(error.kind(), why)
    })?;
    let mut handshake = Handshake::new(socket)?;
    let (offer, control_listener) = handshake.offer()?;
    let lanes = handshake.lanes(offer.options.threads)?;
    let policy = offer.state.policy().map_err(malformed)?;
    let policy = Arc::new(policy.unwrap_or_else(|| Policy::new(Settings::default())));
    let made = IoThreads::new(&offer.options, offer.ports)?;
    let receiving = start(made.parts, &policy, lanes, private_tables)?;
    receiving.wait_until_ready(&mut handshake)?;
    handshake.commit()?;
    receiving.go.wait();
    let (state, pid, took) = (offer.state, offer.pid, began.elapsed());
    Ok(TakenOver { control_listener, threads: made.threads, state, pid, took })
}

/// What the older one has beside its readers.
struct Offered {
    pid: u32,
    options: ThreadOptions,
    ports: Vec<u16>,
    state: ControlState,
}

/// The control socket of the older one.
struct Handshake {
    socket: OwnedFd,
    receiver: Receiver,
}

impl Handshake {
    fn new(socket: OwnedFd) -> io::Result<Handshake> {
        let deadline = Instant::now() + COMMIT_WITHIN + LONGER;
        let receiver = Receiver::new(socket.try_clone()?, deadline);
        let handshake = Handshake { socket, receiver };
        handshake.say(&control::take_over(record::FORMAT))?;
        Ok(handshake)
    }

    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        // A few bytes always have room.
        sys::send(self.socket.as_raw_fd(), bytes).map(drop)
    }

    fn answer(&mut self) -> io::Result<(Answer<'_>, Option<OwnedFd>)> {
        let (kind, body, descriptor) = self.receiver.message(|kind| matches!(kind, 136 | 137))?;
        match Answer::decode(kind, body).map_err(malformed)? {
            Answer::Refused(why) => {
                Err(io::Error::other(format!("the older one serves on: {why}")))
            }
            answer => Ok((answer, descriptor)),
        }
    }

    fn offer(&mut self) -> io::Result<(Offered, OwnedFd)> {
        let (Answer::Offer(offer), Some(control_listener)) = self.answer()? else {
            return Err(malformed(Malformed::Value("offer")));
        };
        if offer.format > record::FORMAT {
            return Err(malformed(Malformed::Value("format")));
        }
        let offered = Offered {
            pid: offer.pid,
            options: ThreadOptions {
                threads: offer.threads,
                proxied: offer.proxied,
                echo: offer.echo,
            },
            ports: offer.ports,
            state: ControlState {
                attachments: offer.attachments,
                settings: offer.settings.to_vec(),
                blob: offer.blob.to_vec(),
            },
        };
        Ok((offered, control_listener))
    }

    fn lanes(&mut self, count: u16) -> io::Result<Vec<OwnedFd>> {
        let mut lanes = Vec::new();
        for number in 0..count {
            match self.answer()? {
                (Answer::Lane(named), Some(lane)) if named == number => lanes.push(lane),
                _ => return Err(malformed(Malformed::Value("lane"))),
            }
        }
        Ok(lanes)
    }

    /// Why the older one serves on, if it has said so.
    fn reason(&mut self) -> Option<io::Error> {
        self.receiver.set_deadline(Instant::now() + Duration::from_millis(200));
        let error = self.answer().err()?;
        (error.kind() == io::ErrorKind::Other).then_some(error)
    }

    /// Say that we are ready. After this all is ours, or the older one serves on (the error).
    fn commit(&mut self) -> io::Result<()> {
        self.say(&control::COMMIT)?;
        let timed_out = match self.verdict() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => error,
            verdict => return verdict,
        };
        // From here on it can't say `yours` any more. Perhaps it just has.
        sys::finish_reading(self.receiver.fd())?;
        self.receiver.set_deadline(Instant::now() + Duration::from_secs(1));
        match self.answer() {
            Ok((Answer::Yours, _)) => Ok(()),
            _ => Err(timed_out),
        }
    }

    fn verdict(&mut self) -> io::Result<()> {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        match self.answer() {
            Ok((Answer::Yours, _)) => Ok(()),
            Ok(_) => Err(malformed(Malformed::Value("verdict"))),
            // It would have said that it serves on. So it died, and what it had is ours.
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Threads that receive.
struct Receiving {
    count: usize,
    results: mpsc::Receiver<io::Result<()>>,
    go: Arc<Barrier>,
}

fn start(
    parts: Vec<ThreadParts>,
    policy: &Arc<Policy>,
    lanes: Vec<OwnedFd>,
    private_tables: bool,
) -> io::Result<Receiving> {
    let deadline = Instant::now() + COMMIT_WITHIN + LONGER;
    let count = parts.len();
    let gathering = Arc::new(Gathering::new(count, deadline));
    let (ready, go) = (Arc::new(Barrier::new(count + 1)), Arc::new(Barrier::new(count + 1)));
    let (results_in, results) = mpsc::channel();
    let mut own = Vec::new();
    for (parts, lane) in parts.into_iter().zip(lanes) {
        let (number, handovers) = (parts.number, parts.handovers.as_raw_fd());
        let mut keep = vec![handovers, lane.as_raw_fd()];
        own.extend_from_slice(&keep);
        keep.extend(parts.shared_descriptors());
        let (gathering, policy) = (gathering.clone(), policy.clone());
        let (results, go) = (results_in.clone(), go.clone());
        let serve = move || {
            let mut lane = Receiver::new(lane, deadline);
            let (reactor, result) = match receive(parts, policy, &mut lane, &gathering) {
                Ok(reactor) => (Some(reactor), Ok(())),
                Err(error) => (None, Err(error)),
            };
            drop((lane, gathering));
            // Whoever counts the results ends the process if one of them is bad.
            let _ = results.send(result);
            let Some(mut reactor) = reactor else {
                return Ok(());
            };
            go.wait();
            reactor.begin_to_serve();
            reactor.run()
        };
        spawn(number, keep, private_tables, ready.clone(), serve)?;
    }
    ready.wait();
    if private_tables {
        own.into_iter().for_each(sys::close);
    }
    Ok(Receiving { count, results, go })
}

impl Receiving {
    fn wait_until_ready(&self, handshake: &mut Handshake) -> io::Result<()> {
        for _ in 0..self.count {
            let result = self.results.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)));
            // A lane that broke is the sign of what the older one has to say.
            result.map_err(|error| handshake.reason().unwrap_or(error))?;
        }
        Ok(())
    }
}

/// Everything that comes on a lane, as a thread that is ready to run. Nothing is served yet.
///
/// # Errors
/// What came is incomplete or wrong: the process must end, and the older one serves on.
fn receive(
    parts: ThreadParts,
    policy: Arc<Policy>,
    lane: &mut Receiver,
    gathering: &Gathering,
) -> io::Result<Reactor> {
    let (Record::Thread { number, now_ms }, Some(listener)) = lane.record()? else {
        return Err(wrong("first record"));
    };
    if number != parts.number {
        return Err(wrong("thread"));
    }
    let readers = Readers::new(&parts, policy, now_ms)?;
    gather(lane, gathering)?;
    let readers = Restoring::new(readers, gathering.all()?).receive(lane)?;
    Reactor::new(parts, listener, readers)
}

fn gather(lane: &mut Receiver, gathering: &Gathering) -> io::Result<()> {
    loop {
        match lane.record()?.0 {
            Record::Publication { number, topic, message } => {
                gathering.publication(number, &topic, &message);
            }
            Record::Frame { number, bytes } => gathering.frame(number, bytes),
            Record::Shared => return Ok(()),
            _ => return Err(wrong("order of records")),
        }
    }
}
