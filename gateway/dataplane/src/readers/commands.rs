//! The control plane's commands to single readers, and to users.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Readers;
use crate::auth::AuthState;
use crate::clock::unix_ms;
use crate::closing::CloseReason;
use crate::control::{Command, ConnectionId, Subscribe};
use crate::counters::Count;
use crate::hub::Clash;
use crate::orders::{Batch, Eviction};
use crate::policy::error_push;
use crate::publication::Publication;
use crate::slab::Phase;

/// Batches that are kept; the control plane counts on it.
const MOST_BATCHES: usize = 32;

/// What many readers are given, by number; the last that came is the last.
#[derive(Default)]
pub(crate) struct Batches(VecDeque<(u64, Batch)>);

impl Batches {
    pub(crate) fn add(&mut self, number: u64, batch: Batch) {
        if self.0.len() >= MOST_BATCHES {
            self.0.pop_front();
        }
        self.0.push_back((number, batch));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What comes before live messages; `None` if the batch isn't there.
    fn first_messages(&self, verb: &Subscribe<'_>) -> Option<Batch> {
        if verb.batch > 0 {
            let found = self.0.iter().find(|(number, _)| *number == verb.batch);
            return found.map(|(_, batch)| batch.clone());
        }
        if verb.messages.is_empty() {
            return Some(Batch::default());
        }
        let (topic, slow): (Arc<str>, _) = (verb.topic.name.into(), verb.topic.slow);
        let made = verb.messages.iter().map(|one| Publication::new(topic.clone(), slow, one));
        Some(made.map(Arc::new).collect())
    }
}

impl Readers {
    /// Do what the control plane says of one connection. Nothing if that is gone.
    pub(crate) fn serve(&mut self, command: &Command<'_>, batches: &Batches) {
        match command {
            Command::Subscribe(subscribe) => {
                if let Some(slot) = self.open_slot(subscribe.connection) {
                    self.subscribe(slot, subscribe, batches);
                }
            }
            Command::Unsubscribe { connection, topic, push } => {
                if let Some(slot) = self.open_slot(*connection) {
                    self.hub.audience.unsubscribe(slot, topic);
                    self.reply(slot, push);
                }
            }
            Command::Reply { connection, push } => {
                if let Some(slot) = self.open_slot(*connection) {
                    self.reply(slot, push);
                }
            }
            Command::Auth(auth) => {
                if let Some(slot) = self.open_slot(auth.connection) {
                    let state = AuthState::new(auth.user, auth.issued_ms, auth.ends_ms, auth.blob);
                    self.auth.set(slot, state);
                    self.watch_token(slot);
                    self.reply(slot, auth.push);
                }
            }
            Command::Close { connection, reason, retry_after_ms } => {
                if let Some(slot) = self.open_slot(*connection) {
                    self.close(slot, CloseReason::of(reason), Some(*retry_after_ms));
                }
            }
            // What isn't about one reader is the control thread's and the reactor's to carry out.
            Command::Hello { .. }
            | Command::Settings(_)
            | Command::Publish { .. }
            | Command::Stamp { .. }
            | Command::Mark(_)
            | Command::Remember(_)
            | Command::Drain { .. }
            | Command::Shed { .. }
            | Command::Count
            | Command::TakeOver { .. }
            | Command::Commit
            | Command::Batch { .. }
            | Command::Evict { .. }
            | Command::Gone(_)
            | Command::Kept(_) => {}
        }
    }

    /// The slot of a connection that is still that one, and open.
    fn open_slot(&mut self, id: ConnectionId) -> Option<u32> {
        (self.phase_of(id.slot, id.generation)? == Phase::Open).then_some(id.slot)
    }

    fn reply(&mut self, slot: u32, push: &[u8]) {
        self.push(slot, &String::from_utf8_lossy(push));
        self.answered(slot);
    }

    /// One look at every auth state, however many users they are.
    pub(crate) fn evict(&mut self, eviction: &Eviction) {
        let gone = self.auth.all().filter(|(_, state)| {
            let until = eviction.users.get(state.user());
            until.is_some_and(|until| state.issued_ms() <= *until)
        });
        for slot in gone.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(slot, CloseReason::of(&eviction.reason), None);
        }
    }

    fn subscribe(&mut self, slot: u32, verb: &Subscribe<'_>, batches: &Batches) {
        let most = self.settings().topics as usize;
        if let Some(clash) = self.hub.audience.clash(slot, verb.topic.name, most) {
            return self.refuse_topic(slot, verb, clash);
        }
        let Some(replay) = batches.first_messages(verb) else {
            crate::tell!(Error, "there is no batch {}: a reader has to come again", verb.batch);
            return self.close(slot, CloseReason::Internal, None);
        };
        if verb.seen {
            self.hub.replayed(&replay, unix_ms());
        }
        self.hub.audience.subscribe(slot, verb.topic.name);
        self.push(slot, &String::from_utf8_lossy(verb.push));
        self.replay(slot, &replay);
        self.answered(slot);
    }

    fn refuse_topic(&mut self, slot: u32, verb: &Subscribe<'_>, clash: Clash) {
        let (code, reason, count) = match clash {
            Clash::AlreadySubscribed => (105, "already subscribed".to_owned(), Count::Error105),
            Clash::TooMany => {
                (106, format!("at most {} topics", self.settings().topics), Count::Error106)
            }
        };
        self.counters.add(count);
        let reference = String::from_utf8_lossy(verb.reference);
        let push = error_push(&reference, verb.topic.name, code, &reason, false);
        self.reply(slot, push.as_bytes());
    }
}
