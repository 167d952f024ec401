//! The options of `newsfabric-crowd`.

use crate::endpoints::Target;
use std::net::Ipv4Addr;

/// The text of `--help`.
pub const HELP: &str = "\
newsfabric-crowd: up to 20,000 readers of a news fabric, in one thread.

Each reader does what a page does: it asks a frontdesk for /endpoints.json, connects to one of the gateways offered by
their weights, subscribes, keeps its position, and comes back with it after a wait (full jitter, from 0.5 up to 30 s)
whatever ends the connection. It counts what it got: each message once, or not.

  --frontdesks URLS       http://ADDRESS:PORT with commas; a reader goes to the next when one has no gateway [needed]
  --topics NAMES          with commas; a reader reads one of them, in turn [needed]
  --source ADDRESS        of 127/8: the first address that readers come from; each has 8,192 [127.0.0.2]
  --seed N                for masks, waits and choices [a random one]
  --i-own-this-target     addresses that aren't loopback may be put under load
  --help

With --port it has readers of the bench instead, which do as little as possible; bare.rs describes their options.

It reads commands, a line each, and answers each with a line of JSON, until the command `end` or the end of its input:

  readers COUNT PER_SECOND   so many are to be there; they come or go at that rate, the oldest first
  storm                      cut every connection at once; the readers come back
  report                     what happened since the last report; all times in microseconds
  records                    what each reader had: readers who had the same are one entry
  end

Messages are counted whose bodies have \"loadtest\" (their publisher's name), \"n\" (their number, from 0, of that publisher
on that topic), \"sent_ns\" and \"due_ns\" (the machine's clock). A delay counts from \"due_ns\", when the message was to be
published, so a publisher that is held up hides nothing. In a report:

  present, wanted, arrived, left    readers subscribed now, wanted, ever begun, ever left
  receive, resume, connect, arrive  how long: due to received; the same of what a reader missed while away;
                                    asking the frontdesk to subscribed; the same of who is new, with all tries
  refused, failed                   boxes that were full or drained, or none offered; nobody answered (in time), or wrongly
  broken, moved, stopped            connections that ended without a word; with one; for good
  returned, gaps, errors            resumes; of these, that may have missed something; verbs that were refused
  messages, strange, foreign        of the test; of others; gateways that may not be connected to
  doubled, repeats, unnoted         twice in a subscription; again after a resume (allowed); too many holes to note it
  holes                             numbers missing now below the newest that a reader had: on the way, or lost

A reader takes some 400 bytes, and 150 for each publisher of its topic: it keeps ranges of numbers (64 at most), no
messages. There may be 256 publishers. The kernel's sockets come on top. Each reader needs a descriptor (ulimit -n -H).

Examples:

  (echo readers 1000 200; sleep 30; echo report; sleep 1; echo end) |
      newsfabric-crowd --frontdesks http://127.0.0.1:18100 --topics news.breaking
  newsfabric-crowd --frontdesks http://10.0.0.5:8100,http://10.1.0.5:8100 --topics news.breaking,sport.football \\
      --i-own-this-target
";

/// Bound of topics.
const MOST_TOPICS: usize = 100;

/// The action that the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Invocation {
    /// Print the help.
    Help,
    /// Run.
    Run(CrowdOptions),
}

/// Checked options.
#[derive(Debug, PartialEq)]
pub struct CrowdOptions {
    /// At least one.
    pub frontdesks: Vec<Target>,
    /// At least one.
    pub topics: Vec<String>,
    /// The first source address of connections to loopback.
    pub source: Ipv4Addr,
    /// None: a random one.
    pub seed: Option<u64>,
    /// True if addresses other than loopback are allowed.
    pub own: bool,
}

/// The options in `words`, or the error in one line.
pub fn parsed(words: &[String]) -> Result<Invocation, String> {
    let own = words.iter().any(|word| word == "--i-own-this-target");
    let mut found = CrowdOptions {
        frontdesks: Vec::new(),
        topics: Vec::new(),
        source: Ipv4Addr::new(127, 0, 0, 2),
        seed: None,
        own,
    };
    let mut words = words.iter();
    while let Some(name) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{name} wants a value"));
        match name.as_str() {
            "--help" => return Ok(Invocation::Help),
            "--i-own-this-target" => {}
            "--frontdesks" => {
                let urls = value()?.split(',').map(|url| url.trim().trim_end_matches('/'));
                let targets = urls.map(|url| Target::of(url, "http://", own));
                found.frontdesks = targets.collect::<Result<_, _>>()?;
            }
            "--topics" => found.topics = topics(value()?)?,
            "--source" => found.source = source(value()?)?,
            "--seed" => {
                let seed = value()?.parse();
                found.seed = Some(seed.map_err(|_| "--seed wants a whole number".to_owned())?);
            }
            _ => return Err(format!("no option {name:?}; --help shows them")),
        }
    }
    if found.frontdesks.is_empty() || found.topics.is_empty() {
        return Err("--frontdesks and --topics are needed; --help shows how".into());
    }
    Ok(Invocation::Run(found))
}

fn topics(text: &str) -> Result<Vec<String>, String> {
    let topics: Vec<String> = text.split(',').map(|topic| topic.trim().to_owned()).collect();
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if topics.len() > MOST_TOPICS
        || !topics.iter().all(|topic| !topic.is_empty() && topic.bytes().all(good))
    {
        return Err(format!("--topics wants 1 to {MOST_TOPICS} topics with commas"));
    }
    Ok(topics)
}

fn source(text: &str) -> Result<Ipv4Addr, String> {
    let good = |address: &Ipv4Addr| address.is_loopback() && address.octets()[3] <= 250;
    let wrong = || "--source wants an address of 127/8 that ends in 250 or less".to_owned();
    text.parse().ok().filter(good).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Invocation, String> {
        parsed(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    const GOOD: &str = "--frontdesks http://127.0.0.1:18100 --topics news.breaking";

    #[test]
    fn two_options_are_needed_and_the_others_have_defaults() {
        let Ok(Invocation::Run(found)) = of(GOOD) else { panic!() };
        assert_eq!(found.topics, ["news.breaking"]);
        assert_eq!(found.frontdesks[0].at, "127.0.0.1:18100".parse().unwrap());
        assert_eq!(found.source, Ipv4Addr::new(127, 0, 0, 2));
        assert_eq!((found.seed, found.own), (None, false));
        assert_eq!(of("--help"), Ok(Invocation::Help));
    }

    #[test]
    fn wrong_options_are_refused_in_one_line() {
        for (more, error) in [
            ("--seed x", "--seed wants a whole number"),
            ("--seed", "--seed wants a value"),
            ("--source 10.0.0.1", "--source wants an address of 127/8 that ends in 250 or less"),
            ("--source 127.0.0.251", "--source wants an address of 127/8 that ends in 250 or less"),
            ("--topics a,,b", "--topics wants 1 to 100 topics with commas"),
            ("--topics a\"b", "--topics wants 1 to 100 topics with commas"),
            ("--fast", "no option \"--fast\"; --help shows them"),
        ] {
            assert_eq!(of(&format!("{GOOD} {more}")), Err(error.into()));
        }
        assert_eq!(of(""), Err("--frontdesks and --topics are needed; --help shows how".into()));
    }

    #[test]
    fn an_address_that_is_not_loopback_must_be_ones_own_wherever_the_option_stands() {
        let far = "--frontdesks http://127.0.0.1:1,http://10.0.0.1:80 --topics a";
        let refused = "10.0.0.1 is not loopback: it needs --i-own-this-target";
        assert_eq!(of(far), Err(refused.into()));
        assert!(of(&format!("{far} --i-own-this-target")).is_ok());
        assert!(of(&format!("--i-own-this-target {far}")).is_ok());
    }
}
