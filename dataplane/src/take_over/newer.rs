//! The newer data plane: asks for everything, waits until its threads have it, commits.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::COMMIT_WITHIN;
use super::record::{self, Record};
use super::shared::SharedCollector;
use super::state_socket::Receiver;
use crate::control::{self, ControlState, Event, EventKind, Malformed, Offer, Settings};
use crate::reactor::Reactor;
use crate::readers::{Readers, Restoring};
use crate::run::start;
use crate::sys;
use crate::threads::{ThreadParts, Threads};

/// Extra time: the older data plane times out first, and sends the reason.
const EXTRA_WAIT: Duration = Duration::from_secs(5);

/// Take everything over from the data plane that listens at `control`: return the listener for
/// control planes, the I/O threads, which serve already, and the control thread's state.
///
/// # Errors
/// There is no data plane, or it serves on: then this process must end.
pub fn take_over(
    control: &Path,
    shared_table: bool,
) -> io::Result<(OwnedFd, Threads, ControlState)> {
    let began = Instant::now();
    let deadline = began + COMMIT_WITHIN + EXTRA_WAIT;
    let socket = UnixStream::connect(control).map_err(|error| {
        let why = format!("no data plane to take over at {}: {error}", control.display());
        io::Error::new(error.kind(), why)
    })?;
    socket.set_nonblocking(true)?;
    let mut older = Older(Receiver::new(socket.into(), deadline));
    older.send(&control::take_over(record::FORMAT))?;
    let (offer, control_listener) = older.offer()?;
    let state_sockets = older.state_sockets(offer.options.threads)?;
    let settings = Arc::new(offer.state.decoded()?.unwrap_or_default());
    let gathering = Arc::new(SharedCollector::new(state_sockets.len()));
    let (threads, parts) = Threads::new(offer.options, offer.ports)?;
    let starting = start(parts, state_sockets, shared_table, move |parts, state_socket| {
        receive(parts, settings.clone(), &mut Receiver::new(state_socket, deadline), &gathering)
    })?;
    // After a broken state socket, the older data plane has sent the reason.
    starting.wait_until_ready().map_err(|error| older.reason().unwrap_or(error))?;
    older.commit()?;
    starting.go();
    let (readers, pid, ms) = (threads.readers(), offer.pid, began.elapsed().as_millis());
    crate::log!(Info, "took {readers} readers over from data plane {pid} in {ms} ms");
    Ok((control_listener, threads, offer.state))
}

/// The older data plane, on its control socket.
struct Older(Receiver);

impl Older {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // There is always room for a few bytes.
        Ok(sys::send(self.0.fd(), bytes).map(drop)?)
    }

    fn answer(&mut self) -> io::Result<(Event<'_>, Option<OwnedFd>)> {
        let carries =
            |kind| matches!(EventKind::of(kind), Some(EventKind::Offer | EventKind::StateSocket));
        let (message, descriptor) = self.0.message(carries)?;
        match Event::decode(message[0], &message[1..])? {
            Event::Refused { why } => {
                Err(io::Error::other(format!("the older one serves on: {why}")))
            }
            answer => Ok((answer, descriptor)),
        }
    }

    fn offer(&mut self) -> io::Result<(Offer, OwnedFd)> {
        match self.answer()? {
            (Event::Offer { offer }, Some(listener)) if offer.format == record::FORMAT => {
                Ok((offer, listener))
            }
            _ => Err(Malformed::Value("offer").into()),
        }
    }

    fn state_sockets(&mut self, count: u16) -> io::Result<Vec<OwnedFd>> {
        let mut state_sockets = Vec::new();
        for number in 0..count {
            match self.answer()? {
                (Event::StateSocket { thread: named }, Some(state_socket)) if named == number => {
                    state_sockets.push(state_socket)
                }
                _ => return Err(Malformed::Value("state_socket").into()),
            }
        }
        Ok(state_sockets)
    }

    /// Return the reason why the older data plane serves on, if it has sent one.
    fn reason(&mut self) -> Option<io::Error> {
        self.0.set_deadline(Instant::now() + Duration::from_millis(200));
        let error = self.answer().err()?;
        (error.kind() == io::ErrorKind::Other).then_some(error)
    }

    /// Send `commit`. After this everything is ours, or the older data plane serves on (an error).
    fn commit(&mut self) -> io::Result<()> {
        self.send(&control::COMMIT)?;
        let timed_out = match self.verdict() {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => error,
            verdict => return verdict,
        };
        // From here on the older data plane can't send `yours`; it may just have done so.
        sys::finish_reading(self.0.fd())?;
        self.0.set_deadline(Instant::now() + Duration::from_secs(1));
        match self.answer() {
            Ok((Event::Yours {}, _)) => Ok(()),
            _ => Err(timed_out),
        }
    }

    fn verdict(&mut self) -> io::Result<()> {
        use io::ErrorKind::{ConnectionReset, UnexpectedEof};
        match self.answer() {
            Ok((Event::Yours {}, _)) => Ok(()),
            Ok(_) => Err(Malformed::Value("verdict").into()),
            // If it served on, it would have sent `refused`. So it died, and everything is ours.
            Err(error) if matches!(error.kind(), UnexpectedEof | ConnectionReset) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Return a thread that is ready to run, from the records of a state socket. It doesn't serve yet.
///
/// # Errors
/// Records are missing or wrong: this process must end, and the older data plane serves on.
fn receive(
    parts: ThreadParts,
    settings: Arc<Settings>,
    state_socket: &mut Receiver,
    gathering: &SharedCollector,
) -> io::Result<Reactor> {
    let (Record::Thread { number, now_ms }, Some(listener)) = state_socket.record()? else {
        return Err(Malformed::Value("first record").into());
    };
    if number != parts.number {
        return Err(Malformed::Value("thread").into());
    }
    let readers = Readers::new(&parts, settings, now_ms)?;
    let shared = gathering.receive(state_socket)?;
    let restoring = Restoring { readers, shared: &shared, topics: Vec::new() };
    Reactor::new(parts, listener, restoring.receive(state_socket)?)
}
