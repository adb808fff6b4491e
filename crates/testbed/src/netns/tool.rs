//! Running `ip`, `bridge`, `tc`, `nft` and `nsenter`: the one place where this crate starts system tools.
//!
//! Every failure names the whole command and what it printed, because "exit code 2" of an anonymous `tc` helps
//! nobody. System folders are appended to `PATH`: unprivileged users often lack `/usr/sbin`, where `nft` lives.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::{Command, Stdio};

use super::NetError;

/// A command for `tool` that also finds it in the system folders.
pub(crate) fn command(tool: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(tool);
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    path.push(":/usr/sbin:/sbin");
    command.env("PATH", path);
    command
}

/// Runs `tool` with `args`, returns what it printed.
pub(crate) fn run(tool: &str, args: &[&str]) -> Result<String, NetError> {
    feed(tool, args, "")
}

/// Runs `tool` with `args` and `input` on its standard input, returns what it printed.
pub(crate) fn feed(tool: &str, args: &[&str], input: &str) -> Result<String, NetError> {
    let shown = || std::iter::once(tool).chain(args.iter().copied()).collect::<Vec<_>>().join(" ");
    let started = |source| NetError::Start { command: shown(), source };
    let mut child = command(tool)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => {
                NetError::MissingTool { tool: tool.to_owned(), package: package_of(tool) }
            }
            _ => started(source),
        })?;
    // A tool that fails early closes its end; its exit status and stderr then say more than our EPIPE.
    // The inputs here (at most a few tens of KiB) are written before the tools print anything.
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(started)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let command = match failed_line(&printed, input) {
        Some(line) => format!("{} ({line})", shown()),
        None => shown(),
    };
    Err(NetError::Failed { command, status: output.status, stderr: printed })
}

/// Runs many `ip`, `bridge` or `tc` commands inside `namespace` with one process.
pub(crate) fn batch(tool: &str, namespace: &str, lines: &[String]) -> Result<(), NetError> {
    match lines {
        [] => Ok(()),
        _ => feed(tool, &["-n", namespace, "-batch", "-"], &(lines.join("\n") + "\n")).map(drop),
    }
}

/// The input line that a batch of `ip`, `bridge` or `tc` complains about: `Command failed -:3`.
fn failed_line<'a>(stderr: &str, input: &'a str) -> Option<&'a str> {
    let after = stderr.rsplit_once("Command failed -:")?.1;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    input.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)
}

/// The Debian package that brings `tool`.
fn package_of(tool: &str) -> &'static str {
    match tool {
        "ip" | "tc" | "bridge" => "iproute2",
        "nft" => "nftables",
        _ => "util-linux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_the_command_and_what_it_printed() {
        let error = feed("sh", &["-c", "echo no such thing >&2; exit 3"], "").unwrap_err().to_string();
        assert!(error.contains("sh -c") && error.contains("no such thing"), "{error}");
    }

    #[test]
    fn failed_batch_names_the_line_at_fault() {
        let input = "link add a\nlink add b\n";
        assert_eq!(failed_line("RTNETLINK: busy\nCommand failed -:2", input), Some("link add b"));
        assert_eq!(failed_line("something else", input), None);
        assert_eq!(failed_line("Command failed -:9", input), None);
    }

    #[test]
    fn missing_tool_is_named_with_a_package() {
        let error = run("no-such-tool-anywhere", &[]).unwrap_err();
        assert!(matches!(error, NetError::MissingTool { .. }), "{error}");
    }
}
