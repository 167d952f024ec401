//! Who readers are, as the control plane says it: kept for it, and given back with their verbs. Pure.
//!
//! A badge is one piece of memory of its exact size, because most readers of a box may have one. They
//! lie by slot beside the connections, so a reader without one costs nothing as long as nobody
//! has one, and sixteen bytes then.

use crate::control;

/// See [`crate::control::Badge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Badge(Box<[u8]>);

const USER: usize = 17;

impl Badge {
    /// What the command says, without its answer.
    #[must_use]
    pub fn of(told: &control::Badge<'_>) -> Badge {
        Badge::new(told.user, told.issued_ms, told.expires_ms, told.blob)
    }

    /// A badge of these; of a `user` the first 255 bytes count.
    #[must_use]
    pub fn new(user: &str, issued_ms: u64, expires_ms: u64, blob: &[u8]) -> Badge {
        let user = &user.as_bytes()[..user.len().min(usize::from(u8::MAX))];
        let times = [issued_ms.to_le_bytes(), expires_ms.to_le_bytes()].concat();
        Badge([&times, &[user.len() as u8][..], user, blob].concat().into())
    }

    /// The user's name; empty for nobody.
    #[must_use]
    pub fn user(&self) -> &str {
        std::str::from_utf8(&self.0[USER..self.blob_at()]).unwrap_or_default()
    }

    /// When it was issued, in ms since the epoch.
    #[must_use]
    pub fn issued_ms(&self) -> u64 {
        self.number(0)
    }

    /// When it runs out, in ms since the epoch; 0: never.
    #[must_use]
    pub fn expires_ms(&self) -> u64 {
        self.number(8)
    }

    /// What it means to control planes.
    #[must_use]
    pub fn blob(&self) -> &[u8] {
        &self.0[self.blob_at()..]
    }

    fn blob_at(&self) -> usize {
        USER + usize::from(self.0[USER - 1])
    }

    fn number(&self, at: usize) -> u64 {
        self.0[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

/// The badges of one I/O thread's readers, by slot.
#[derive(Debug, Default)]
pub struct Badges(Vec<Option<Badge>>);

impl Badges {
    /// The badge of `slot`, if it has one.
    #[must_use]
    pub fn of(&self, slot: u32) -> Option<&Badge> {
        self.0.get(slot as usize)?.as_ref()
    }

    /// From now on `slot` has this one.
    pub fn pin(&mut self, slot: u32, badge: Badge) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize_with(slot + 1, || None);
        }
        self.0[slot] = Some(badge);
    }

    /// From now on `slot` has none.
    pub fn take_off(&mut self, slot: u32) {
        if let Some(place) = self.0.get_mut(slot as usize) {
            *place = None;
        }
    }

    /// All there are, with their slots.
    pub fn all(&self) -> impl Iterator<Item = (u32, &Badge)> {
        (0..).zip(&self.0).filter_map(|(slot, badge)| Some((slot, badge.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_badge_is_its_parts() {
        for (user, blob) in [("42", &b"me"[..]), ("", b""), ("a", b""), ("", b"b")] {
            let badge = Badge::new(user, 5, u64::MAX, blob);
            assert_eq!((badge.user(), badge.blob()), (user, blob));
            assert_eq!((badge.issued_ms(), badge.expires_ms()), (5, u64::MAX));
        }
    }

    #[test]
    fn a_slot_has_the_badge_that_was_pinned_last_until_it_is_taken_off() {
        let mut badges = Badges::default();
        assert_eq!(badges.of(7), None);
        badges.take_off(7);
        badges.pin(7, Badge::new("42", 1, 0, b"first"));
        badges.pin(7, Badge::new("42", 2, 0, b"second"));
        badges.pin(2, Badge::new("7", 3, 0, b""));
        assert_eq!(badges.of(7).map(Badge::blob), Some(&b"second"[..]));
        assert_eq!(badges.all().map(|(slot, _)| slot).collect::<Vec<_>>(), [2, 7]);
        badges.take_off(7);
        assert_eq!((badges.of(7), badges.of(6)), (None, None));
    }

    #[test]
    fn a_place_for_a_badge_is_small() {
        assert_eq!(size_of::<Option<Badge>>(), 16);
    }
}
