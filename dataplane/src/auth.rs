//! Auth states of readers, as set by the command `auth`; each verb of a reader is sent with its
//! auth state. Pure.
//!
//! An auth state is one allocation of its exact size, because most readers of a box may have one.
//! Auth states lie by slot beside the connections. So an anonymous reader costs no memory while all
//! readers are anonymous, and sixteen bytes otherwise.

use serde::{Deserialize, Serialize};

use crate::control::MAX_AUTH;

/// The auth state of one reader; see the command `auth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthState(Box<[u8]>);

const USER: usize = 17;

impl AuthState {
    /// Return an auth state; of `user` only the first 255 bytes are kept.
    pub fn new(user: &str, issued_ms: u64, ends_ms: u64, blob: &[u8]) -> AuthState {
        let user = &user.as_bytes()[..user.len().min(usize::from(u8::MAX))];
        let times = [issued_ms.to_le_bytes(), ends_ms.to_le_bytes()].concat();
        AuthState([&times, &[user.len() as u8][..], user, blob].concat().into())
    }

    /// Return the user's name; empty for an anonymous reader.
    pub fn user(&self) -> &str {
        std::str::from_utf8(&self.0[USER..self.blob_at()]).unwrap_or_default()
    }

    /// Return the time of issue, in ms since the epoch.
    pub fn issued_ms(&self) -> u64 {
        self.number(0)
    }

    /// Return the time of expiry, in ms since the epoch; 0: never.
    pub fn ends_ms(&self) -> u64 {
        self.number(8)
    }

    /// Return the part that only control planes understand.
    pub fn blob(&self) -> &[u8] {
        &self.0[self.blob_at()..]
    }

    /// Return whether bytes from elsewhere contain all parts of an auth state.
    pub fn is_possible(&self) -> bool {
        let blob = self.0.get(USER - 1).and_then(|_| self.0.get(self.blob_at()..));
        blob.is_some_and(|blob| blob.len() <= MAX_AUTH)
    }

    fn blob_at(&self) -> usize {
        USER + usize::from(self.0[USER - 1])
    }

    fn number(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The auth states of one I/O thread's readers, by slot.
#[derive(Debug, Default)]
pub struct AuthStates(Vec<Option<AuthState>>);

impl AuthStates {
    /// Return the auth state of `slot`; `None` for an anonymous reader.
    pub fn of(&self, slot: u32) -> Option<&AuthState> {
        self.0.get(slot as usize)?.as_ref()
    }

    pub fn set(&mut self, slot: u32, state: AuthState) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(state);
    }

    pub fn remove(&mut self, slot: u32) {
        if let Some(place) = self.0.get_mut(slot as usize) {
            *place = None;
        }
    }

    pub fn all(&self) -> impl Iterator<Item = (u32, &AuthState)> {
        (0..).zip(&self.0).filter_map(|(slot, state)| Some((slot, state.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_auth_state_is_its_parts() {
        for (user, blob) in [("42", &b"me"[..]), ("", b""), ("a", b""), ("", b"b")] {
            let state = AuthState::new(user, 5, u64::MAX, blob);
            assert_eq!((state.user(), state.blob()), (user, blob));
            assert_eq!((state.issued_ms(), state.ends_ms()), (5, u64::MAX));
        }
    }

    #[test]
    fn a_slot_has_the_auth_state_that_was_set_last_until_it_is_removed() {
        let mut states = AuthStates::default();
        assert_eq!(states.of(7), None);
        states.remove(7);
        states.set(7, AuthState::new("42", 1, 0, b"first"));
        states.set(7, AuthState::new("42", 2, 0, b"second"));
        states.set(2, AuthState::new("7", 3, 0, b""));
        assert_eq!(states.of(7).map(AuthState::blob), Some(&b"second"[..]));
        assert_eq!(states.all().map(|(slot, _)| slot).collect::<Vec<_>>(), [2, 7]);
        states.remove(7);
        assert_eq!((states.of(7), states.of(6)), (None, None));
    }

    #[test]
    fn a_place_for_an_auth_state_is_small() {
        assert_eq!(size_of::<Option<AuthState>>(), 16);
    }
}
