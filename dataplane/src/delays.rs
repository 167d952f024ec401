//! Histograms of message delays, by series. No clock: callers pass microseconds.
//!
//! A series is a name that the control plane gives in `stamp`: it knows classes and ways, the data
//! plane doesn't. The decision to question: all series have the same buckets, about powers of two.
//! So adding is a search among fifteen numbers, and both engines' histograms can be summed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of series; further ones aren't measured.
pub const SERIES: usize = 128;
/// Maximum bytes of a series' name.
pub const NAME_BYTES: usize = 64;
/// Upper ends of the buckets in microseconds; one more bucket has no end.
pub const BOUNDS_US: [u64; 15] = [
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 250_000, 500_000, 1_000_000,
    2_000_000, 4_000_000, 8_000_000, 30_000_000,
];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// The time at which a router took a message in, and the series of its deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Microseconds since the epoch, by that router's clock.
    pub taken_us: u64,
    /// Less than [`SERIES`].
    pub series: u16,
}

#[derive(Debug, Default)]
pub struct Totals {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Totals {
    /// Add `many` deliveries of `took_us` each. Only the owning thread may call it.
    pub fn add(&self, took_us: u64, many: u64) {
        let bucket = &self.buckets[BOUNDS_US.partition_point(|end| *end < took_us)];
        bucket.store(bucket.load(Relaxed) + many, Relaxed);
        let sum = self.sum_us.load(Relaxed).saturating_add(took_us.saturating_mul(many));
        self.sum_us.store(sum, Relaxed);
    }

    fn values(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().chain([&self.sum_us]).map(|one| one.load(Relaxed))
    }
}

/// Histograms of one thread: of each series, and of the time that readers were behind.
#[derive(Debug)]
pub struct Delays {
    series: Box<[Totals]>,
    /// Times from the first frame that waited for a reader until none waited.
    pub behind: Totals,
}

impl Default for Delays {
    fn default() -> Delays {
        let series = (0..SERIES).map(|_| Totals::default()).collect();
        Delays { series, behind: Totals::default() }
    }
}

impl Delays {
    /// Count a message with this stamp, which the sockets of `many` readers took now.
    pub fn delivered(&self, stamp: Stamp, now_us: u64, many: u64) {
        if let Some(totals) = self.series.get(usize::from(stamp.series)) {
            // Clocks differ: a delivery before the time of its stamp counts as 0.
            totals.add(now_us.saturating_sub(stamp.taken_us), many);
        }
    }
}

/// The names of series, in the order of their numbers.
#[derive(Debug, Default)]
pub struct Names(Vec<Box<str>>);

impl Names {
    /// Return the number of a series; `None` if there are too many.
    pub fn number(&mut self, name: &str) -> Option<u16> {
        let found = self.0.iter().position(|known| **known == *name);
        let number = found.unwrap_or(self.0.len());
        if number >= SERIES {
            return None;
        }
        if found.is_none() {
            self.0.push(name.into());
        }
        Some(number as u16)
    }

    /// Append values above 0 as `delay.NAME.BUCKET`, `delay.NAME.sum_us`, `behind.BUCKET` and
    /// `behind.sum_us`.
    pub fn report(&self, threads: &[&Delays], out: &mut Vec<(String, u64)>) {
        for (number, name) in self.0.iter().enumerate() {
            let all = threads.iter().map(|one| &one.series[number]);
            put(out, &format!("delay.{name}"), all);
        }
        put(out, "behind", threads.iter().map(|one| &one.behind));
    }
}

fn put<'a>(out: &mut Vec<(String, u64)>, name: &str, threads: impl Iterator<Item = &'a Totals>) {
    let mut sums = [0u64; BUCKETS + 1];
    for totals in threads {
        for (sum, value) in sums.iter_mut().zip(totals.values()) {
            *sum = sum.saturating_add(value);
        }
    }
    for (index, sum) in sums.into_iter().enumerate().filter(|(_, sum)| *sum > 0) {
        let last = if index < BUCKETS { index.to_string() } else { "sum_us".to_owned() };
        out.push((format!("{name}.{last}"), sum));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(names: &Names, threads: &[&Delays]) -> Vec<(String, u64)> {
        let mut out = Vec::new();
        names.report(threads, &mut out);
        out
    }

    fn named(values: &[(&str, u64)]) -> Vec<(String, u64)> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn deliveries_are_counted_in_their_series_and_bucket_over_all_threads() {
        let (mut names, one, other) = (Names::default(), Delays::default(), Delays::default());
        let series = names.number("gold,oregon").expect("room");
        let stamp = Stamp { taken_us: 1_000_000, series };
        one.delivered(stamp, 1_001_000, 2);
        one.delivered(stamp, 1_001_001, 1);
        other.delivered(stamp, 1_000_500, 3);
        let all = reported(&names, &[&one, &other]);
        let sum = 2 * 1_000 + 1_001 + 3 * 500;
        let wanted = [
            ("delay.gold,oregon.0", 5),
            ("delay.gold,oregon.1", 1),
            ("delay.gold,oregon.sum_us", sum),
        ];
        assert_eq!(all, named(&wanted));
    }

    #[test]
    fn what_took_longest_is_in_the_last_bucket_and_what_comes_before_its_time_in_the_first() {
        let (mut names, one) = (Names::default(), Delays::default());
        let stamp = Stamp { taken_us: 5, series: names.number("s").expect("room") };
        one.delivered(stamp, 30_000_006, 1);
        one.delivered(stamp, 0, 1);
        let wanted = [("delay.s.0", 1), ("delay.s.15", 1), ("delay.s.sum_us", 30_000_001)];
        assert_eq!(reported(&names, &[&one]), named(&wanted));
    }

    #[test]
    fn a_series_keeps_its_number_and_there_are_only_so_many() {
        let mut names = Names::default();
        for number in 0..SERIES {
            assert_eq!(names.number(&number.to_string()), Some(number as u16));
        }
        assert_eq!(names.number("one more"), None);
        assert_eq!(names.number("7"), Some(7));
    }

    #[test]
    fn how_long_readers_were_behind_has_no_series() {
        let one = Delays::default();
        one.behind.add(40_000, 1);
        let wanted = [("behind.6", 1), ("behind.sum_us", 40_000)];
        assert_eq!(reported(&Names::default(), &[&one]), named(&wanted));
    }
}
