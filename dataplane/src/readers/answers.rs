//! Commands of the control plane to single readers, and to users.

use std::sync::Arc;

use super::Readers;
use super::writing::Answer;
use crate::auth::AuthState;
use crate::clock::unix_ms;
use crate::closing::CloseReason;
use crate::control::{Acceptance, Connections, ToReaders};
use crate::counters::Count;
use crate::hub::SubscribeError;
use crate::publication::Publication;
use crate::pushes::error_push;
use crate::slab::Phase;
use crate::threads::{Batch, Eviction};

/// Number of the last batches that are kept; the control plane relies on it.
const MOST_BATCHES: usize = 32;

impl Readers {
    /// Keep the messages of a batch, by its number, for many readers.
    pub(crate) fn add_batch(&mut self, number: u64, batch: Batch) {
        if self.batches.len() >= MOST_BATCHES {
            self.batches.pop_front();
        }
        self.batches.push_back((number, batch));
    }

    /// Return the messages before live ones; `None` if the batch doesn't exist.
    fn first_messages(&self, accepted: &Acceptance<'_>) -> Option<Batch> {
        if accepted.batch > 0 {
            let found = self.batches.iter().find(|(number, _)| *number == accepted.batch);
            return found.map(|(_, batch)| batch.clone());
        }
        if accepted.messages.is_empty() {
            return Some(Batch::default());
        }
        let (topic, slow): (Arc<str>, _) = (accepted.topic.name.into(), accepted.topic.slow);
        let made = accepted.messages.iter().map(|one| Publication::new(topic.clone(), slow, one));
        Some(made.map(Arc::new).collect())
    }

    /// Carry out a command for those of `connections` that are on this thread and still open.
    pub(crate) fn serve(&mut self, connections: Connections<'_>, command: &ToReaders<'_>) {
        let (first, push) = match *command {
            ToReaders::Subscribe { ref acceptance } => {
                (self.first_messages(acceptance), acceptance.push)
            }
            ToReaders::Unsubscribe { push, .. }
            | ToReaders::Reply { push }
            | ToReaders::Auth { push, .. } => (None, push),
            ToReaders::Close { .. } => (None, &[][..]),
        };
        let several = connections.of_thread(self.thread).nth(1).is_some();
        let answer = Answer::new(push, several);
        for id in connections.of_thread(self.thread) {
            if self.phase_of(id.slot, id.generation) == Some(Phase::Open) {
                self.serve_one(id.slot, command, &answer, first.as_ref());
                self.keep_within_budget();
            }
        }
    }

    fn serve_one(
        &mut self,
        slot: u32,
        command: &ToReaders<'_>,
        answer: &Answer<'_>,
        first: Option<&Batch>,
    ) {
        match *command {
            ToReaders::Subscribe { ref acceptance } => {
                self.subscribe(slot, acceptance, answer, first);
            }
            ToReaders::Unsubscribe { topic, .. } => {
                self.hub.audience.unsubscribe(slot, topic);
                self.reply(slot, answer);
            }
            ToReaders::Reply { .. } => self.reply(slot, answer),
            ToReaders::Auth { user, issued_ms, ends_ms, auth, .. } => {
                self.auth.set(slot, AuthState::new(user, issued_ms, ends_ms, auth));
                let end = self.token_deadline_ms(slot);
                self.set_timer_at_latest(slot, end);
                self.reply(slot, answer);
            }
            ToReaders::Close { reason, retry_after_ms } => {
                self.close(slot, CloseReason::of(reason), Some(retry_after_ms));
            }
        }
    }

    fn reply(&mut self, slot: u32, answer: &Answer<'_>) {
        self.answer(slot, answer);
        self.answered(slot);
    }

    /// Close the readers of evicted users, in one pass over all auth states.
    pub(crate) fn evict(&mut self, eviction: &Eviction) {
        let gone = self.auth.all().filter(|(_, state)| {
            let until = eviction.users.get(state.user());
            until.is_some_and(|until| state.issued_ms() <= *until)
        });
        for slot in gone.map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.close(slot, CloseReason::of(&eviction.reason), None);
        }
    }

    fn subscribe(
        &mut self,
        slot: u32,
        accepted: &Acceptance<'_>,
        answer: &Answer<'_>,
        first: Option<&Batch>,
    ) {
        let most = self.settings.topics as usize;
        if let Some(error) = self.hub.audience.check_subscribe(slot, accepted.topic.name, most) {
            return self.refuse_topic(slot, accepted, error);
        }
        let Some(replay) = first else {
            crate::log!(Error, "there is no batch {}: a reader has to come again", accepted.batch);
            return self.close(slot, CloseReason::Internal, None);
        };
        if accepted.seen {
            self.hub.record_replayed(replay, self.clock.now_ms(), unix_ms());
        }
        self.hub.audience.subscribe(slot, accepted.topic.name);
        self.answer(slot, answer);
        self.replay(slot, replay);
        self.answered(slot);
    }

    fn refuse_topic(&mut self, slot: u32, accepted: &Acceptance<'_>, error: SubscribeError) {
        let (errors, most) = (&self.settings.errors, self.settings.topics);
        let (code, reason, count) = match error {
            SubscribeError::AlreadySubscribed => {
                let reason = "already subscribed".to_owned();
                (errors.already_subscribed, reason, Count::AlreadySubscribed)
            }
            SubscribeError::TooMany => {
                (errors.limit_exceeded, format!("at most {most} topics"), Count::LimitExceeded)
            }
        };
        self.counters.add(count);
        let reference = String::from_utf8_lossy(accepted.reference);
        let push = error_push(&reference, accepted.topic.name, code, &reason);
        self.push(slot, &push);
        self.answered(slot);
    }
}
