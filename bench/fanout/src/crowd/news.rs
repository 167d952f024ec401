//! The events of all readers since the last report.

use super::times::Times;

/// Counts of events; `--help` describes each.
#[derive(Default)]
#[allow(missing_docs)]
pub struct Counts {
    pub refused: u64,
    pub failed: u64,
    pub foreign: u64,
    pub broken: u64,
    pub moved: u64,
    pub stopped: u64,
    pub returned: u64,
    pub gaps: u64,
    pub errors: u64,
    pub messages: u64,
    pub strange: u64,
    pub doubled: u64,
    pub repeats: u64,
    pub unnoted: u64,
}

/// Durations; `--help` describes each.
#[derive(Default)]
#[allow(missing_docs)]
pub struct AllTimes {
    pub receive: Times,
    pub resume: Times,
    pub connect: Times,
    pub arrive: Times,
}

/// The state at the moment of the report.
#[allow(missing_docs)]
pub struct Moment {
    pub present: usize,
    pub wanted: usize,
    pub arrived: u64,
    pub left: u64,
    pub holes: u64,
}

/// A report without the state of its moment.
#[derive(Default)]
pub struct News {
    /// Callers increase these.
    pub counts: Counts,
    /// Callers add to these.
    pub times: AllTimes,
}

impl News {
    /// The report as JSON; later events are in the next one.
    pub fn report(&mut self, moment: &Moment) -> String {
        let counts = std::mem::take(&mut self.counts);
        let numbers = [
            ("present", moment.present as u64),
            ("wanted", moment.wanted as u64),
            ("arrived", moment.arrived),
            ("left", moment.left),
            ("holes", moment.holes),
            ("refused", counts.refused),
            ("failed", counts.failed),
            ("foreign", counts.foreign),
            ("broken", counts.broken),
            ("moved", counts.moved),
            ("stopped", counts.stopped),
            ("returned", counts.returned),
            ("gaps", counts.gaps),
            ("errors", counts.errors),
            ("messages", counts.messages),
            ("strange", counts.strange),
            ("doubled", counts.doubled),
            ("repeats", counts.repeats),
            ("unnoted", counts.unnoted),
        ];
        let numbers = numbers.map(|(name, count)| format!("\"{name}\":{count}")).join(",");
        let AllTimes { receive, resume, connect, arrive } = &mut self.times;
        format!(
            "{{{numbers},\"receive\":{},\"resume\":{},\"connect\":{},\"arrive\":{}}}",
            receive.report(),
            resume.report(),
            connect.report(),
            arrive.report(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_begin_anew_with_each_report() {
        let mut news = News::default();
        news.counts.doubled += 2;
        news.times.resume.add(0, 5_000);
        let moment = Moment { present: 3, wanted: 4, arrived: 5, left: 1, holes: 0 };
        let text = news.report(&moment);
        assert!(
            text.starts_with("{\"present\":3,\"wanted\":4,\"arrived\":5,\"left\":1,"),
            "{text}"
        );
        assert!(text.contains("\"doubled\":2,") && text.contains("\"resume\":{\"count\":1,"));
        let text = news.report(&moment);
        assert!(text.contains("\"doubled\":0,") && text.contains("\"resume\":{\"count\":0,"));
    }
}
