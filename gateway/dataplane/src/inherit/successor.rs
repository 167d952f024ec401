//! The newer data plane: asks for everything, waits until its threads have it, commits.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use super::lane::{Receiver, malformed};
use super::receive::{Commons, receive};
use super::{PATIENCE, record};
use crate::attach::{Heritage, Threads};
use crate::control::{self, Answer, Malformed, Settings};
use crate::policy::Policy;
use crate::reactor::Parts;
use crate::run::{Crew, Nature, spawn};
use crate::sys;

/// The older one gives up first, and says why.
const LONGER: Duration = Duration::from_secs(5);

/// What was taken over, and is served from now on.
pub struct Estate {
    /// Where control planes come in.
    pub door: OwnedFd,
    /// The I/O threads; they serve already.
    pub threads: Threads,
    /// What the thread that talks to control planes must know.
    pub heritage: Heritage,
    /// Whose it was.
    pub pid: u32,
    /// How long that took; readers waited for most of it.
    pub took: Duration,
}

/// Everything from the data plane that listens at `control`.
///
/// # Errors
/// There is none, or it serves on: then this process must end.
pub fn take_over(control: &Path, private_tables: bool) -> io::Result<Estate> {
    let began = Instant::now();
    let socket = sys::connect_unix(control).map_err(|error| {
        let why = format!("no data plane to take over at {}: {error}", control.display());
        io::Error::new(error.kind(), why)
    })?;
    let mut parley = Parley::new(socket)?;
    let (offer, door) = parley.offer()?;
    let lanes = parley.lanes(offer.nature.threads)?;
    let policy = offer.heritage.policy().map_err(malformed)?;
    let policy = Arc::new(policy.unwrap_or_else(|| Policy::new(Settings::default())));
    let crew = Crew::new(&offer.nature, offer.ports)?;
    let receiving = start(crew.parts, &policy, lanes, private_tables)?;
    receiving.wait_until_ready(&mut parley)?;
    parley.commit()?;
    receiving.go.wait();
    let (heritage, pid, took) = (offer.heritage, offer.pid, began.elapsed());
    Ok(Estate { door, threads: crew.threads, heritage, pid, took })
}

/// What the older one has beside its readers.
struct Offered {
    pid: u32,
    nature: Nature,
    ports: Vec<u16>,
    heritage: Heritage,
}

/// The control socket of the older one.
struct Parley {
    socket: OwnedFd,
    receiver: Receiver,
}

impl Parley {
    fn new(socket: OwnedFd) -> io::Result<Parley> {
        let deadline = Instant::now() + PATIENCE + LONGER;
        let receiver = Receiver::new(socket.try_clone()?, deadline);
        let parley = Parley { socket, receiver };
        parley.say(&control::take_over(record::FORMAT))?;
        Ok(parley)
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
        let (Answer::Offer(offer), Some(door)) = self.answer()? else {
            return Err(malformed(Malformed::Value("offer")));
        };
        if offer.format > record::FORMAT {
            return Err(malformed(Malformed::Value("format")));
        }
        let offered = Offered {
            pid: offer.pid,
            nature: Nature { threads: offer.threads, proxied: offer.proxied, echo: offer.echo },
            ports: offer.ports,
            heritage: Heritage {
                attachments: offer.attachments,
                settings: offer.settings.to_vec(),
                blob: offer.blob.to_vec(),
            },
        };
        Ok((offered, door))
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
    parts: Vec<Parts>,
    policy: &Arc<Policy>,
    lanes: Vec<OwnedFd>,
    private_tables: bool,
) -> io::Result<Receiving> {
    let deadline = Instant::now() + PATIENCE + LONGER;
    let count = parts.len();
    let commons = Arc::new(Commons::new(count, deadline));
    let (ready, go) = (Arc::new(Barrier::new(count + 1)), Arc::new(Barrier::new(count + 1)));
    let (results_in, results) = mpsc::channel();
    let mut own = Vec::new();
    for (parts, lane) in parts.into_iter().zip(lanes) {
        let (number, hatch) = (parts.number, parts.hatch.as_raw_fd());
        let mut keep = vec![hatch, lane.as_raw_fd()];
        own.extend_from_slice(&keep);
        keep.extend(parts.shared_descriptors());
        let (commons, policy) = (commons.clone(), policy.clone());
        let (results, go) = (results_in.clone(), go.clone());
        let serve = move || {
            let mut lane = Receiver::new(lane, deadline);
            let (reactor, result) = match receive(parts, policy, &mut lane, &commons) {
                Ok(reactor) => (Some(reactor), Ok(())),
                Err(error) => (None, Err(error)),
            };
            drop((lane, commons));
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
    fn wait_until_ready(&self, parley: &mut Parley) -> io::Result<()> {
        for _ in 0..self.count {
            let result = self.results.recv().unwrap_or_else(|gone| Err(io::Error::other(gone)));
            // A lane that broke is the sign of what the older one has to say.
            result.map_err(|error| parley.reason().unwrap_or(error))?;
        }
        Ok(())
    }
}
