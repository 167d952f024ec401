//! The newer data plane: asks for everything, waits until its threads have it, commits.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::COMMIT_WITHIN;
use super::lane::Receiver;
use super::record::{self, Record};
use super::shared::Gathering;
use crate::control::{self, ControlState, Event, EventKind, Malformed, Offer, Settings};
use crate::reactor::Reactor;
use crate::readers::{Readers, Restoring};
use crate::run::start;
use crate::sys;
use crate::threads::{ThreadParts, Threads};

/// The older one gives up first, and says why.
const LONGER: Duration = Duration::from_secs(5);

/// Everything from the data plane that listens at `control`: where control planes come in, the I/O threads,
/// which serve already, and what the thread that talks to control planes must know.
///
/// # Errors
/// There is none, or it serves on: then this process must end.
pub fn take_over(
    control: &Path,
    shared_table: bool,
) -> io::Result<(OwnedFd, Threads, ControlState)> {
    let began = Instant::now();
    let deadline = began + COMMIT_WITHIN + LONGER;
    let socket = UnixStream::connect(control).map_err(|error| {
        let why = format!("no data plane to take over at {}: {error}", control.display());
        io::Error::new(error.kind(), why)
    })?;
    socket.set_nonblocking(true)?;
    let mut older = Older(Receiver::new(socket.into(), deadline));
    older.say(&control::take_over(record::FORMAT))?;
    let (offer, control_listener) = older.offer()?;
    let lanes = older.lanes(offer.options.threads)?;
    let settings = Arc::new(offer.state.decoded()?.unwrap_or_default());
    let gathering = Arc::new(Gathering::new(lanes.len()));
    let (threads, parts) = Threads::new(offer.options, offer.ports)?;
    let starting = start(parts, lanes, shared_table, move |parts, lane| {
        receive(parts, settings.clone(), &mut Receiver::new(lane, deadline), &gathering)
    })?;
    // A lane that broke is the sign of what the older one has to say.
    starting.wait_until_ready().map_err(|error| older.reason().unwrap_or(error))?;
    older.commit()?;
    starting.go();
    let (readers, pid, ms) = (threads.readers(), offer.pid, began.elapsed().as_millis());
    crate::tell!(Info, "took {readers} readers over from data plane {pid} in {ms} ms");
    Ok((control_listener, threads, offer.state))
}

/// The older data plane, on its control socket.
struct Older(Receiver);

impl Older {
    fn say(&self, bytes: &[u8]) -> io::Result<()> {
        // A few bytes always have room.
        Ok(sys::send(self.0.fd(), bytes).map(drop)?)
    }

    fn answer(&mut self) -> io::Result<(Event<'_>, Option<OwnedFd>)> {
        let carries =
            |kind| matches!(EventKind::of(kind), Some(EventKind::Offer | EventKind::Lane));
        let (message, descriptor) = self.0.message(carries)?;
        match Event::decode(message[0], &message[1..])? {
            Event::Refused(why) => Err(io::Error::other(format!("the older one serves on: {why}"))),
            answer => Ok((answer, descriptor)),
        }
    }

    fn offer(&mut self) -> io::Result<(Offer, OwnedFd)> {
        match self.answer()? {
            (Event::Offer(offer), Some(listener)) if offer.format == record::FORMAT => {
                Ok((offer, listener))
            }
            _ => Err(Malformed::Value("offer").into()),
        }
    }

    fn lanes(&mut self, count: u16) -> io::Result<Vec<OwnedFd>> {
        let mut lanes = Vec::new();
        for number in 0..count {
            match self.answer()? {
                (Event::Lane(named), Some(lane)) if named == number => lanes.push(lane),
                _ => return Err(Malformed::Value("lane").into()),
            }
        }
        Ok(lanes)
    }

    /// Why the older one serves on, if it has said so.
    fn reason(&mut self) -> Option<io::Error> {
        self.0.set_deadline(Instant::now() + Duration::from_millis(200));
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
        sys::finish_reading(self.0.fd())?;
        self.0.set_deadline(Instant::now() + Duration::from_secs(1));
        match self.answer() {
            Ok((Event::Yours, _)) => Ok(()),
            _ => Err(timed_out),
        }
    }

    fn verdict(&mut self) -> io::Result<()> {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        match self.answer() {
            Ok((Event::Yours, _)) => Ok(()),
            Ok(_) => Err(Malformed::Value("verdict").into()),
            // It would have said that it serves on. So it died, and what it had is ours.
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Everything that comes on a lane, as a thread that is ready to run. Nothing is served yet.
///
/// # Errors
/// What came is incomplete or wrong: the process must end, and the older one serves on.
fn receive(
    parts: ThreadParts,
    settings: Arc<Settings>,
    lane: &mut Receiver,
    gathering: &Gathering,
) -> io::Result<Reactor> {
    let (Record::Thread { number, now_ms }, Some(listener)) = lane.record()? else {
        return Err(Malformed::Value("first record").into());
    };
    if number != parts.number {
        return Err(Malformed::Value("thread").into());
    }
    let readers = Readers::new(&parts, settings, now_ms)?;
    let shared = gathering.receive(lane)?;
    let restoring = Restoring { readers, shared: &shared, topics: Vec::new() };
    Reactor::new(parts, listener, restoring.receive(lane)?)
}
