//! The data plane of a newsfabric gateway: it owns the readers' sockets, and a control plane
//! decides.
//!
//! Modules without I/O come first; each can be tested alone. The other modules are a thin shell.
//! Public items are those that the program, the tests of whole modules and the fuzz targets use.

#![deny(unsafe_op_in_unsafe_fn)]

mod addresses;
mod audience;
mod auth;
pub mod bucket;
mod clock;
mod closing;
pub mod control;
mod counters;
pub mod deflate;
mod delays;
mod drain;
mod fanout;
pub mod frame;
pub mod head;
pub mod hub;
pub mod identities;
pub mod outbox;
pub mod ping;
pub mod proxy;
mod publication;
mod pushes;
pub mod sockjs;
pub mod wheel;

mod control_thread;
pub mod log;
mod mailbox;
mod reactor;
mod readers;
pub mod run;
mod slab;
pub mod sys;
pub mod take_over;
mod threads;
