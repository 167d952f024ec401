//! Durations, as an HdrHistogram in microseconds, exact to three digits.

use hdrhistogram::Histogram;
use std::fmt::Write;

/// Bound: a longer duration counts as an hour.
const MOST_US: u64 = 3_600_000_000;

/// The durations since the last `take`.
pub struct Times(Histogram<u32>);

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, MOST_US, 3).expect("the bounds are good"))
    }
}

impl Times {
    /// Adds one duration; a clock that was set back gives 0, not a negative one.
    pub fn add(&mut self, from_ns: u64, to_ns: u64) {
        self.0.saturating_record(to_ns.saturating_sub(from_ns) / 1000);
    }

    /// The duration that this part of all durations doesn't exceed.
    pub fn quantile_us(&self, part: f64) -> u64 {
        self.0.value_at_quantile(part)
    }

    /// The count of durations.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Forgets all durations.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// All durations as JSON, then resets. `counts` has each duration (µs) with its frequency.
    pub fn report(&mut self) -> String {
        let mut text = format!(
            "{{\"count\":{},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\"most_us\":{},\"counts\":[",
            self.0.len(),
            self.quantile_us(0.5),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            self.0.max(),
        );
        for (n, one) in self.0.iter_recorded().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            let (value, count) = (one.value_iterated_to(), one.count_since_last_iteration());
            write!(text, "{comma}[{value},{count}]").expect("a String takes all");
        }
        self.0.reset();
        text + "]}"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_and_counts_are_of_what_came_since_the_last_time() {
        let mut times = Times::default();
        for us in 1..=1000 {
            times.add(5000, 5000 + us * 1000);
        }
        let text = times.report();
        assert!(text.starts_with(
            "{\"count\":1000,\"p50_us\":500,\"p99_us\":990,\"p999_us\":999,\"most_us\":1000,\"counts\":[[1,1],[2,1],"
        ));
        let nothing =
            "{\"count\":0,\"p50_us\":0,\"p99_us\":0,\"p999_us\":0,\"most_us\":0,\"counts\":[]}";
        assert_eq!(times.report(), nothing);
    }

    #[test]
    fn the_same_time_is_counted_and_three_digits_are_exact() {
        let mut times = Times::default();
        times.add(0, 7_000);
        times.add(0, 7_999);
        times.add(0, 1_234_567_000);
        let text = times.report();
        assert!(text.contains("[[7,2],[123"), "{text}");
    }

    #[test]
    fn a_clock_that_was_set_back_and_one_far_ahead_end_nothing() {
        let mut times = Times::default();
        times.add(2_000, 1_000);
        times.add(0, u64::MAX);
        assert!(times.report().starts_with("{\"count\":2,"));
    }
}
