//! The data plane of a newsfabric gateway: it owns the readers' sockets, a control plane decides.
//!
//! Modules without I/O come first; each can be tested by itself. The others are a thin shell.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod addresses;
pub mod audience;
pub mod badge;
pub mod bucket;
pub mod control;
pub mod counters;
pub mod deflate;
pub mod delays;
pub mod drain;
pub mod fanout;
pub mod frame;
pub mod head;
pub mod hub;
pub mod identities;
pub mod memory;
pub mod outbox;
pub mod ping;
pub mod policy;
pub mod proxy;
pub mod publication;
pub mod sockjs;
pub mod wheel;

pub mod attach;
pub mod budget;
mod desk;
pub mod door;
mod echo;
pub mod inherit;
pub mod log;
pub mod mailbox;
pub mod orders;
pub mod reactor;
mod reader;
pub mod run;
pub mod slab;
pub mod sys;
mod writer;
