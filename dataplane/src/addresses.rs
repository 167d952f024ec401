//! The number of connections of each address, and networks of addresses. No I/O.
//!
//! An address counts with its *place*. An IPv4 address is a place of its own. Of IPv6 the first 64
//! bits are one place, because the owner of one address there has 2^64 of them.
//!
//! A connection that was handed over still counts until the control plane reports its end (`gone`).
//! So the connections of a place are those open here and those open in the control plane.
//!
//! At a full place, all threads ask its connections for a sign of life ([`ProbeRounds`]): a network
//! that vanished silently leaves its connections open here.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Return the place under which an address is counted.
pub fn place_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// Connections by place, of all threads together.
#[derive(Debug, Default)]
pub struct Addresses(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Connections open here; kept only where the setting is on.
    here: HashMap<IpAddr, u32>,
    /// Connections open in the control plane.
    there: HashMap<IpAddr, u32>,
    /// All connections open in the control plane, and those being handed over.
    handed_over: u32,
}

impl Addresses {
    /// Count one more here and return true; return false if the place has `most` already.
    pub fn enter(&self, address: IpAddr, most: u32) -> bool {
        let (mut counts, place) = (self.lock(), place_of(address));
        let there = counts.there.get(&place).copied().unwrap_or(0);
        let here = counts.here.get(&place).copied().unwrap_or(0);
        let fits = here.saturating_add(there) < most;
        if fits {
            counts.here.insert(place, here + 1);
        }
        fits
    }

    /// Count one connection fewer here.
    pub fn leave(&self, address: IpAddr) {
        subtract_one(&mut self.lock().here, place_of(address));
    }

    /// Count a connection that is about to be handed over; return false if there are `most` already
    /// (0: any number). After true, call [`Addresses::finish_handover`] or
    /// [`Addresses::cancel_handover`].
    pub fn begin_handover(&self, most: u32) -> bool {
        let mut counts = self.lock();
        let fits = most == 0 || counts.handed_over < most;
        counts.handed_over += u32::from(fits);
        fits
    }

    /// Count a connection that the control plane has received; if `counted`, no longer as open
    /// here.
    pub fn finish_handover(&self, address: IpAddr, counted: bool) {
        let (mut counts, place) = (self.lock(), place_of(address));
        *counts.there.entry(place).or_default() += 1;
        if counted {
            subtract_one(&mut counts.here, place);
        }
    }

    /// Stop counting a connection that could not be handed over.
    pub fn cancel_handover(&self, address: IpAddr, counted: bool) {
        let mut counts = self.lock();
        counts.handed_over = counts.handed_over.saturating_sub(1);
        if counted {
            subtract_one(&mut counts.here, place_of(address));
        }
    }

    /// Stop counting a handed-over connection that is closed. Ignored if none is known.
    pub fn handover_closed(&self, address: IpAddr) {
        let mut counts = self.lock();
        if subtract_one(&mut counts.there, place_of(address)) {
            counts.handed_over = counts.handed_over.saturating_sub(1);
        }
    }

    /// Add the connections that a newly attached control plane has from earlier attachments.
    pub fn add_kept(&self, address: IpAddr, count: u32) {
        let mut counts = self.lock();
        let there = counts.there.entry(place_of(address)).or_default();
        *there = there.saturating_add(count);
        counts.handed_over = counts.handed_over.saturating_add(count);
    }

    /// Stop counting the connections of a control plane that has left: they ended with it.
    pub fn forget_handed_over(&self) {
        let mut counts = self.lock();
        let all = counts.there.drain().fold(0, |sum: u32, (_, count)| sum.saturating_add(count));
        counts.handed_over = counts.handed_over.saturating_sub(all);
    }

    /// Return the number of connections handed over, with those being handed over.
    pub fn handed_over(&self) -> u32 {
        self.lock().handed_over
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subtract one; return whether there was one.
fn subtract_one(counts: &mut HashMap<IpAddr, u32>, place: IpAddr) -> bool {
    let Some(count) = counts.get_mut(&place) else {
        return false;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(&place);
    }
    true
}

/// Minimum time between two rounds for one place.
const MIN_PROBE_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of places asked within [`MIN_PROBE_INTERVAL`]; further places have to wait.
const MOST_PLACES: usize = 1_024;

/// Places to be asked for a sign of life. Each thread handles the rounds after its last one.
#[derive(Debug, Default)]
pub struct ProbeRounds {
    last: AtomicU64,
    places: Mutex<HashMap<IpAddr, (u64, Instant)>>,
}

impl ProbeRounds {
    /// Report a full place; return whether a round begins: its connections are asked now.
    pub fn begin_round(&self, address: IpAddr, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, (_, asked)| now.saturating_duration_since(*asked) < MIN_PROBE_INTERVAL);
        let asks = places.len() < MOST_PLACES && !places.contains_key(&place_of(address));
        if asks {
            let number = self.last.load(Relaxed) + 1;
            places.insert(place_of(address), (number, now));
            self.last.store(number, Relaxed);
        }
        asks
    }

    /// Return the number of the newest round.
    pub fn last(&self) -> u64 {
        self.last.load(Relaxed)
    }

    /// Return the places of all rounds after a number.
    pub fn after(&self, number: u64) -> HashSet<IpAddr> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().filter(|(_, (its, _))| *its > number).map(|(place, _)| *place).collect()
    }
}

/// Addresses with a common prefix: `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    start: IpAddr,
    bits: u8,
}

impl Network {
    /// Return the network of `text`; `None` if it isn't one.
    pub fn parse(text: &str) -> Option<Network> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let start: IpAddr = address.parse().ok()?;
        let most = if start.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        (bits <= most).then_some(Network { start, bits })
    }

    /// Return whether the network contains an address.
    pub fn has(&self, address: IpAddr) -> bool {
        let differing = match (self.start, address.to_canonical()) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                u128::from(one.to_bits() ^ other.to_bits()) << 96
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differing.leading_zeros() >= u32::from(self.bits)
    }
}

impl TryFrom<String> for Network {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Network, &'static str> {
        Network::parse(&text).ok_or("not a network")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_place_has_so_many_connections_wherever_they_are_served() {
        let (all, one) = (Addresses::default(), ip("192.0.2.1"));
        assert!(all.enter(one, 3) && all.enter(one, 3));
        assert!(all.begin_handover(0));
        all.finish_handover(one, true);
        assert!(all.enter(one, 3));
        assert!(!all.enter(one, 3));
        assert!(all.enter(ip("192.0.2.2"), 3));
        all.handover_closed(one);
        assert!(all.enter(one, 3));
        all.leave(one);
        all.leave(one);
        all.leave(one);
        assert_eq!(all.handed_over(), 0);
        assert!(all.enter(one, 1));
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_place() {
        let all = Addresses::default();
        assert!(all.enter(ip("2001:db8::1"), 1));
        assert!(!all.enter(ip("2001:db8::ffff:0:0:2"), 1));
        assert!(all.enter(ip("2001:db8:0:1::1"), 1));
        all.leave(ip("2001:db8::7"));
        assert!(all.enter(ip("2001:db8::9"), 1));
        // A socket for both families reports an IPv4 address in this form.
        assert!(all.enter(ip("::ffff:192.0.2.1"), 1));
        assert!(all.enter(ip("::ffff:192.0.2.2"), 1));
        assert!(!all.enter(ip("192.0.2.1"), 1));
    }

    #[test]
    fn only_so_many_are_handed_over_at_once() {
        let (all, one) = (Addresses::default(), ip("192.0.2.1"));
        assert!(all.begin_handover(2) && all.begin_handover(2));
        assert!(!all.begin_handover(2));
        all.finish_handover(one, false);
        all.cancel_handover(one, false);
        assert_eq!(all.handed_over(), 1);
        assert!(all.begin_handover(2));
        all.cancel_handover(one, false);
        all.handover_closed(one);
        all.handover_closed(one);
        assert_eq!(all.handed_over(), 0);
    }

    #[test]
    fn a_control_plane_that_goes_takes_its_connections_along_and_another_says_what_it_has() {
        let (all, one) = (Addresses::default(), ip("192.0.2.1"));
        assert!(all.begin_handover(0) && all.begin_handover(0));
        all.finish_handover(one, false);
        assert!(!all.enter(one, 1));
        all.forget_handed_over();
        // The connection that was being handed over is still counted.
        assert_eq!(all.handed_over(), 1);
        assert!(all.enter(one, 1));
        all.add_kept(one, 2);
        assert_eq!(all.handed_over(), 3);
        assert!(!all.enter(one, 3));
        all.add_kept(one, u32::MAX);
        all.forget_handed_over();
        all.forget_handed_over();
        assert_eq!(all.handed_over(), 0);
    }

    #[test]
    fn a_place_is_asked_once_in_ten_seconds_however_many_come_from_there() {
        let (rounds, start) = (ProbeRounds::default(), Instant::now());
        let places = |texts: &[&str]| texts.iter().map(|text| ip(text)).collect::<HashSet<_>>();
        let asked = [0, 1, 9_999]
            .map(|ms| rounds.begin_round(ip("192.0.2.1"), start + Duration::from_millis(ms)));
        assert_eq!(asked, [true, false, false]);
        assert_eq!((rounds.last(), rounds.after(0)), (1, places(&["192.0.2.1"])));
        rounds.begin_round(ip("2001:db8::7"), start + Duration::from_secs(9));
        assert_eq!((rounds.last(), rounds.after(1)), (2, places(&["2001:db8::"])));
        rounds.begin_round(ip("192.0.2.1"), start + MIN_PROBE_INTERVAL);
        assert_eq!((rounds.last(), rounds.after(2)), (3, places(&["192.0.2.1"])));
        assert!(rounds.after(3).is_empty());
    }

    #[test]
    fn strangers_of_many_places_have_only_so_many_asked() {
        let (rounds, start) = (ProbeRounds::default(), Instant::now());
        for number in 0..2_000_u32 {
            rounds.begin_round(std::net::Ipv4Addr::from_bits(number).into(), start);
        }
        assert_eq!(rounds.last(), MOST_PLACES as u64);
        rounds.begin_round(ip("192.0.2.1"), start + MIN_PROBE_INTERVAL);
        assert_eq!(rounds.after(MOST_PLACES as u64).len(), 1);
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let has = |network: &str, address: &str| {
            Network::parse(network).map(|network| network.has(ip(address)))
        };
        assert_eq!(has("10.0.0.0/8", "10.255.0.1"), Some(true));
        assert_eq!(has("10.0.0.0/8", "11.0.0.1"), Some(false));
        assert_eq!(has("10.1.2.3", "10.1.2.3"), Some(true));
        assert_eq!(has("10.1.2.3", "10.1.2.4"), Some(false));
        assert_eq!(has("0.0.0.0/0", "192.0.2.1"), Some(true));
        assert_eq!(has("0.0.0.0/0", "::1"), Some(false));
        assert_eq!(has("10.0.0.0/8", "::ffff:10.0.0.1"), Some(true));
        assert_eq!(has("2001:db8::/32", "2001:db8:7::1"), Some(true));
        assert_eq!(has("2001:db8::/32", "2001:db9::1"), Some(false));
        assert_eq!(has("::/0", "2001:db9::1"), Some(true));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Network::parse(bad), None, "{bad}");
        }
    }
}
