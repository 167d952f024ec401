//! The commands that the program reads while it runs, a line each. The reply to each is a line of JSON.

/// Bound of a line in bytes; no command is longer.
pub const MOST_LINE: usize = 4096;

/// A command.
#[derive(Debug, PartialEq)]
pub enum CrowdCommand {
    /// The wanted number of readers, and the rate per second at which they arrive or leave; the oldest leave first.
    Readers(usize, f64),
    /// Cut every connection; the readers reconnect.
    Storm,
    /// Report the events since the last report.
    Report,
    /// Report the messages of each reader.
    Records,
    /// End the program.
    End,
}

/// The command in `line`, for at most `most` readers; otherwise the error in words.
pub fn command(line: &str, most: usize) -> Result<CrowdCommand, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["readers", count, rate] => {
            let count = count.parse().ok().filter(|&count| count <= most);
            let rate = rate.parse().ok().filter(|&rate: &f64| rate > 0.0 && rate.is_finite());
            match (count, rate) {
                (Some(count), Some(rate)) => Ok(CrowdCommand::Readers(count, rate)),
                _ => Err(format!("readers wants a number up to {most} and a rate above 0")),
            }
        }
        ["storm"] => Ok(CrowdCommand::Storm),
        ["report"] => Ok(CrowdCommand::Report),
        ["records"] => Ok(CrowdCommand::Records),
        ["end"] => Ok(CrowdCommand::End),
        _ => Err("the commands are: readers COUNT PER_SECOND, storm, report, records, end".into()),
    }
}

/// Whole lines, assembled from the pieces that a pipe delivers.
#[derive(Default)]
pub struct Lines(Vec<u8>);

impl Lines {
    /// The lines that end in `piece`. A line over the bound is cut, and is then no command.
    pub fn add(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in piece {
            if byte == b'\n' {
                lines.push(String::from_utf8_lossy(&self.0).into_owned());
                self.0.clear();
            } else if self.0.len() < MOST_LINE {
                self.0.push(byte);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_wrong_in_words() {
        assert_eq!(command("readers 20 2.5\r", 20), Ok(CrowdCommand::Readers(20, 2.5)));
        assert_eq!(command(" storm ", 20), Ok(CrowdCommand::Storm));
        for wrong in ["readers 21 1", "readers 1 0", "readers 1 inf", "readers -1 1", "readers x 1"]
        {
            let error = "readers wants a number up to 20 and a rate above 0";
            assert_eq!(command(wrong, 20), Err(error.into()), "{wrong}");
        }
        for wrong in ["", "storm now", "readers 1", "REPORT"] {
            assert!(command(wrong, 20).unwrap_err().starts_with("the commands are"), "{wrong}");
        }
    }

    #[test]
    fn lines_come_in_any_pieces() {
        let mut lines = Lines::default();
        assert_eq!(lines.add(b"report\nst"), ["report"]);
        assert_eq!(lines.add(b"orm\n\nend"), ["storm", ""]);
        assert_eq!(lines.add(&[b'x'; 9000]), [""; 0]);
        assert_eq!(lines.add(b"\n")[0].len(), MOST_LINE);
    }
}
