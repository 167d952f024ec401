//! Knowledge and counts of `newsfabric-crowd`'s readers. No sockets here, and no clock: callers pass the time.

pub mod backoff;
pub mod commands;
pub mod news;
pub mod numbers;
pub mod options;
pub mod pace;
pub mod pushes;
pub mod record;
pub mod times;
