//! `newsfabric-dataplane`: the process that owns readers' sockets. Options only; see the library.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use dataplane::run::{DataPlaneOptions, run};

const USAGE: &str = "\
usage: newsfabric-dataplane --control PATH [options]

The data plane of a newsfabric gateway: it owns readers' sockets. The gateway's control plane starts it;
no other program has to. docs/dataplane-protocol.md describes their messages.

  --control PATH      unix socket on which the control plane attaches
  --host ADDRESS      address for readers (127.0.0.1)
  --port PORT         0 takes a free one (0)
  --threads N         I/O threads (one per core)
  --fd N              listen on an inherited socket, 3 or higher, instead of --host and --port
  --shared-table      don't give each thread a descriptor table of its own
  --proxy-protocol    connections begin with a PROXY header, version 1 or 2, if they come from the
                      networks in the control plane's settings
  --echo              send messages back instead of treating them as verbs (tests)
  --take-over         receive listeners and readers from the data plane at --control PATH, which ends
                      then; its other options apply here, too (except --shared-table). One line on
                      standard output reports the result: `serving` or `failed: WHY`
";

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            eprint!("{why}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            dataplane::log!(Error, "newsfabric-dataplane: {error}");
            if options.take_over {
                // For the process that started this one; it may have stopped reading.
                let _ = writeln!(io::stdout(), "failed: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<DataPlaneOptions, String> {
    let mut arguments = arguments;
    let mut options = DataPlaneOptions::default();
    let mut control = None;
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--control" => control = Some(PathBuf::from(value()?)),
            "--host" => options.host = Some(number(&name, &value()?)?),
            "--port" => options.port = number(&name, &value()?)?,
            "--threads" => options.threads = Some(number(&name, &value()?)?),
            "--fd" => options.inherited = Some(inherited(&name, &value()?)?),
            "--shared-table" => options.shared_table = true,
            "--proxy-protocol" => options.proxied = true,
            "--echo" => options.echo = true,
            "--take-over" => options.take_over = true,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    options.control = control.ok_or("--control is missing")?;
    Ok(options)
}

/// Return the descriptor of an inherited socket: 3 or higher, since 0 to 2 are standard streams.
fn inherited(name: &str, text: &str) -> Result<i32, String> {
    match number(name, text)? {
        ..=2 => Err(format!("{name} can't be {text}: a socket that is handed down is 3 or higher")),
        fd => Ok(fd),
    }
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{name} can't be {text:?}"))
}
