//! A command line that does not parse, told to programs too: `--json` is looked for before anything is read.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::output::Terminal;
use super::settings::{Layer, Settings};
use super::values::{ProgressMode, truth};

/// Says what is wrong with the command line: in clap's words on standard error, and as JSON where results would be JSON.
pub(super) fn tell(error: &clap::Error, arguments: &[OsString]) {
    #[cfg(not(feature = "laboratory"))]
    let explained = left_out(error);
    #[cfg(not(feature = "laboratory"))]
    let error = explained.as_ref().unwrap_or(error);
    if is_json(arguments) {
        let terminal = Terminal::new(true, data_on_stdout(arguments), false, ProgressMode::None);
        terminal.misuse_as_json(&message(error));
    }
    // A user who closed standard error still gets the exit code.
    drop(error.print());
}

/// The error for a command that this build lacks and others have: it is no misspelt one.
#[cfg(not(feature = "laboratory"))]
fn left_out(error: &clap::Error) -> Option<clap::Error> {
    use clap::CommandFactory;
    use clap::error::{ContextKind, ContextValue};

    const LEFT_OUT: [&str; 6] = ["demo", "lab", "emulate", "drill", "bench", "tcp"];
    let Some(ContextValue::String(command)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    LEFT_OUT.contains(&command.as_str()).then(|| {
        let words = format!("'{command}' is not in this binary: it was built without the laboratory (cargo's feature `laboratory`)");
        super::args::Cli::command().error(error.kind(), words)
    })
}

/// Whether results are wanted as JSON: by a flag, else by the environment or the usual config file.
fn is_json(arguments: &[OsString]) -> bool {
    let flag = flags(arguments).filter_map(|argument| match argument.strip_prefix("--json")? {
        "" => Some(true),
        value => truth(value.strip_prefix('=')?).ok(),
    });
    flag.last().unwrap_or_else(|| {
        let settings = Settings::gather(None, Layer::default());
        settings.is_ok_and(|settings| settings.values.json.unwrap_or_default())
    })
}

/// Whether standard output is for an object's bytes (`-o -`).
fn data_on_stdout(arguments: &[OsString]) -> bool {
    let given: Vec<&str> = flags(arguments).collect();
    let to_stdout = |pair: &[&str]| matches!(pair, ["-o" | "--output", "-"]);
    given.windows(2).any(to_stdout) || given.iter().any(|it| matches!(*it, "-o-" | "--output=-"))
}

/// Arguments before `--`, as far as they are UTF-8.
fn flags(arguments: &[OsString]) -> impl Iterator<Item = &str> {
    arguments.iter().skip(1).filter_map(|argument| argument.to_str()).take_while(|argument| *argument != "--")
}

/// Error on one line, with what clap suggests.
fn message(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a command, or more of it, is missing; --help lists what there is".to_owned();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| text.find(end)).min();
    let text = &text[..end.unwrap_or(text.len())];
    text.split_whitespace().collect::<Vec<_>>().join(" ") + "; --help says more"
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::Cli;
    use super::*;

    fn arguments(line: &str) -> Vec<OsString> {
        format!("headwater {line}").split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn json_is_seen_in_a_line_that_does_not_parse() {
        for line in ["--json nonsense", "get --json", "ls --json=yes --nonsense", "ls --json=false x --json"]
        {
            assert!(is_json(&arguments(line)), "{line}");
        }
        for line in ["ls --json=false --nonsense", "get x -- --json", "ls --jsonx"] {
            assert!(!is_json(&arguments(line)), "{line}");
        }
        assert!(
            data_on_stdout(&arguments("get x -o - --nonsense")) && data_on_stdout(&arguments("get x -o-"))
        );
        assert!(!data_on_stdout(&arguments("get x -o out -")));
    }

    #[test]
    fn what_is_wrong_stands_on_one_line_with_what_helps() {
        for (line, says) in [
            ("get", "NAME|ID"),
            ("get x --form a", "exists: '--from'"),
            ("get x --from a --limit 50", "50Mbit/s"),
            ("nonsense", "nonsense"),
            ("", "missing"),
        ] {
            let text = message(&Cli::try_parse_from(arguments(line)).unwrap_err());
            assert!(text.contains(says) && text.contains("--help") && !text.contains('\n'), "{line}: {text}");
        }
    }
}
