//! The decision about a new connection's request head. No I/O; the bytes are only peeked at, so
//! that a connection that isn't ours can be handed over untouched.
//!
//! Not here: whether there is room for one more reader. Check that after [`Decision::Upgrade`], and
//! answer [`HttpRefusal::Unavailable`] if there isn't.
//!
//! The decision to question: a broken handshake on one of our paths is answered here, not by
//! Tornado, so a storm of them never reaches Python. Every other request that isn't plainly ours is
//! handed to Tornado, however odd it is.
//!
//! Our subprotocol is accepted wherever it is offered, because a token may stand behind it. A
//! page's script can set no other header of a handshake.

mod fields;
mod handshake;
mod reply;

pub use handshake::{Framing, Upgrade, accept_key, login_verb};
pub use reply::{Busy, HttpRefusal, Info, put_greeting};

use crate::control::Settings;
use fields::HeaderFields;

/// Subprotocol that may stand before a token.
const SUBPROTOCOL: &[u8] = b"newsfabric";
/// Maximum number of header fields that are read.
const FIELDS: usize = 64;

/// Longest head: the thread's buffer of 64 KiB holds it, and maybe a PROXY header before it.
const LONGEST: usize = 60 * 1024;

/// The decision about a connection, by its first bytes.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Decision<'a> {
    /// Decide again when there are more bytes. The deadline of the handshake runs.
    Incomplete,
    /// Send the answer of [`HttpRefusal::put`], then close.
    Refuse(HttpRefusal),
    /// A good handshake: drop its [`Upgrade::head_bytes`], send the answer of [`Upgrade::put`], and
    /// continue with frames.
    Upgrade(Upgrade<'a>),
    /// `/sockjs/info`: drop its [`Info::head_bytes`], send the answer of [`Info::put`]. Another
    /// request follows, or the reader hangs up.
    Info(Info<'a>),
    /// `/sockjs`: drop `head_bytes`, send the answer of [`put_greeting`]; then as after Info.
    Greeting {
        /// Size of the head.
        head_bytes: usize,
    },
    /// Not ours: pass the descriptor to the control plane, with its bytes unread.
    HandOver,
}

/// The paths that are served here (SockJS 1.0; routes of the Tornado engine).
enum Route {
    WebSocket(Framing),
    Info,
    Greeting,
}

/// Decide by `bytes`, all that were received on a connection so far.
pub fn decide<'a>(bytes: &'a [u8], settings: &Settings) -> Decision<'a> {
    let longest = (settings.head_bytes as usize).min(LONGEST);
    let mut storage = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut storage);
    let parsed = request.parse(bytes);
    let route = request.path.and_then(route_of);
    let known_other = request.path.is_some() && route.is_none();
    match parsed {
        Ok(httparse::Status::Complete(head_bytes)) => match route {
            // A head that arrived in one piece can be too long, too.
            Some(_) if head_bytes > longest => Decision::Refuse(HttpRefusal::HeadTooLarge),
            Some(route) => serve(route, &request, head_bytes, settings),
            None => Decision::HandOver,
        },
        Ok(httparse::Status::Partial) if bytes.len() < longest => Decision::Incomplete,
        // Tornado refuses it.
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) if known_other => {
            Decision::HandOver
        }
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Decision::Refuse(HttpRefusal::HeadTooLarge)
        }
        Err(_) => Decision::Refuse(HttpRefusal::BadRequest("bad request")),
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
    let fields = HeaderFields::of(request.headers);
    if request.method != Some("GET") {
        return Decision::HandOver;
    }
    let is_http11 = request.version == Some(1);
    if !fields.is_addressed(is_http11) {
        return Decision::Refuse(HttpRefusal::BadRequest("bad request"));
    }
    match route {
        Route::WebSocket(_) if !settings.websocket => Decision::Refuse(HttpRefusal::NotFound),
        // Not handed over: the control plane upgrades no connection.
        Route::WebSocket(_) if fields.has_body => {
            Decision::Refuse(HttpRefusal::BadRequest("Not a WebSocket handshake."))
        }
        Route::WebSocket(framing) => {
            match handshake::check(&fields, is_http11, framing, head_bytes, settings) {
                Ok(upgrade) => Decision::Upgrade(upgrade),
                Err(refusal) => Decision::Refuse(refusal),
            }
        }
        // A request that needs an unusual answer is Tornado's.
        _ if !is_http11 || fields.is_special || fields.has_body => Decision::HandOver,
        _ if !fields.allowed_by(settings) => Decision::HandOver,
        Route::Info => Decision::Info(Info {
            head_bytes,
            // An empty origin would make an empty header field.
            origin: fields.origin.value().filter(|origin| !origin.is_empty()),
            websocket: settings.websocket,
            cookie_needed: settings.sockjs_cookie,
        }),
        Route::Greeting => Decision::Greeting { head_bytes },
    }
}
