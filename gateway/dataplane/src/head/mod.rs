//! A new connection's request head: what to do with it. No I/O; the bytes are only looked at, so that
//! a connection that isn't ours can be handed over untouched.
//!
//! Not here: whether there is room for one more reader. Ask that after [`Decision::Upgrade`], and
//! answer [`Refusal::NotNow`] if there isn't.
//!
//! The decision to question: a handshake on one of our paths that is broken is answered here,
//! not by Tornado, so a storm of them never reaches Python. Everything else that isn't plainly ours
//! goes to Tornado, however odd it is.
//!
//! One subprotocol is chosen where it is offered, for the sake of what may stand behind it: a token. A page's
//! script can set no other header of a handshake.

mod fields;
mod handshake;
mod reply;

pub use handshake::{Framing, Upgrade, accept_key, login_verb};
pub use reply::{Busy, Info, Refusal, put_greeting};

use crate::control::Settings;
use fields::Fields;

/// Ours.
const SUBPROTOCOL: &[u8] = b"newsfabric";
/// Most header fields that are looked at.
const FIELDS: usize = 64;

/// Longest head: it is looked at in a thread's buffer of 64 KiB, where a PROXY header may stand before it.
const LONGEST: usize = 60 * 1024;

/// What to do with a connection whose first bytes were looked at.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Decision<'a> {
    /// Look again when there are more. The handshake's deadline runs.
    Incomplete,
    /// Send [`Refusal::put`]'s answer, then close.
    Refuse(Refusal),
    /// A good handshake: drop its [`Upgrade::head_bytes`], send [`Upgrade::put`]'s answer, and
    /// go on with frames.
    Upgrade(Upgrade<'a>),
    /// `/sockjs/info`: drop its [`Info::head_bytes`], send [`Info::put`]'s answer. Another
    /// request follows, or the reader hangs up.
    Info(Info<'a>),
    /// `/sockjs`: drop `head_bytes`, send [`put_greeting`]'s answer; then as after Info.
    Greeting {
        /// The head's size.
        head_bytes: usize,
    },
    /// Not for us: pass the descriptor to the control plane, bytes unread.
    HandOver,
}

/// The paths that are served here (SockJS 1.0; routes of the Tornado engine).
enum Route {
    WebSocket(Framing),
    Info,
    Greeting,
}

/// Decide by `bytes`, everything that has come of a connection yet.
pub fn decide<'a>(bytes: &'a [u8], settings: &Settings) -> Decision<'a> {
    let longest = (settings.head_bytes as usize).min(LONGEST);
    let mut storage = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut storage);
    let parsed = request.parse(bytes);
    let route = request.path.and_then(route_of);
    let known_other = request.path.is_some() && route.is_none();
    match parsed {
        Ok(httparse::Status::Complete(head_bytes)) => match route {
            // It came in one piece, and is too long all the same.
            Some(_) if head_bytes > longest => Decision::Refuse(Refusal::HeadTooLarge),
            Some(route) => serve(route, &request, head_bytes, settings),
            None => Decision::HandOver,
        },
        Ok(httparse::Status::Partial) if bytes.len() < longest => Decision::Incomplete,
        // Tornado says so.
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) if known_other => {
            Decision::HandOver
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Decision::Refuse(Refusal::HeadTooLarge)
        }
        Err(_) => Decision::Refuse(Refusal::BadRequest("bad request")),
    }
}

fn route_of(target: &str) -> Option<Route> {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    if path == "/websocket" {
        return Some(Route::WebSocket(Framing::Raw));
    }
    match path.strip_prefix("/sockjs")? {
        "" | "/" => Some(Route::Greeting),
        "/info" => Some(Route::Info),
        "/websocket" => Some(Route::WebSocket(Framing::Raw)),
        rest => {
            let (server, session) =
                rest.strip_prefix('/')?.strip_suffix("/websocket")?.split_once('/')?;
            let named = |part: &str| !part.is_empty() && !part.contains(['/', '.']);
            (named(server) && named(session)).then_some(Route::WebSocket(Framing::SockJs))
        }
    }
}

fn serve<'a>(
    route: Route,
    request: &httparse::Request<'_, 'a>,
    head_bytes: usize,
    settings: &Settings,
) -> Decision<'a> {
    let fields = Fields::of(request.headers);
    if request.method != Some("GET") {
        return Decision::HandOver;
    }
    let modern = request.version == Some(1);
    if !fields.is_addressed(modern) {
        return Decision::Refuse(Refusal::BadRequest("bad request"));
    }
    match route {
        Route::WebSocket(_) if !settings.websocket => Decision::Refuse(Refusal::NotFound),
        // The control plane upgrades nobody.
        Route::WebSocket(_) if fields.has_body => {
            Decision::Refuse(Refusal::BadRequest("Not a WebSocket handshake."))
        }
        Route::WebSocket(framing) => {
            match handshake::check(&fields, modern, framing, head_bytes, settings) {
                Ok(upgrade) => Decision::Upgrade(upgrade),
                Err(refusal) => Decision::Refuse(refusal),
            }
        }
        // Whatever makes the answer another one than the usual is Tornado's.
        _ if !modern || fields.is_special || fields.has_body => Decision::HandOver,
        _ if !fields.allowed_by(settings) => Decision::HandOver,
        Route::Info => Decision::Info(Info {
            head_bytes,
            // An empty one would be an empty answer.
            origin: fields.origin.value().filter(|origin| !origin.is_empty()),
            websocket: settings.websocket,
            cookie_needed: settings.sockjs_cookie,
        }),
        Route::Greeting => Decision::Greeting { head_bytes },
    }
}
