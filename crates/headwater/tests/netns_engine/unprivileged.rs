//! Users who are nobody special.

use std::os::unix::fs::chown;
use std::process::Command;

use headwater_testbed::netns::in_user_namespace;
use rustix::process::geteuid;

use super::common::{Printed, alone, it, tiny};

/// Nobody.
const USER: u32 = 65534;

/// The same command as a user without privileges, if this one has any.
fn unprivileged(command: &Command) -> Command {
    if !geteuid().is_root() {
        return copy(Command::new(command.get_program()), command);
    }
    let mut other = Command::new("setpriv");
    let user = USER.to_string();
    other.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(command.get_program());
    copy(other, command)
}

/// With the arguments and surroundings of another.
fn copy(mut command: Command, like: &Command) -> Command {
    command.args(like.get_args());
    command.envs(like.get_envs().filter_map(|(name, value)| Some((name, value?))));
    like.get_current_dir().into_iter().for_each(|folder| _ = command.current_dir(folder));
    command
}

fn works(command: &Command) -> bool {
    unprivileged(command).output().is_ok_and(|output| output.status.success())
}

/// Goal: who may not make namespaces gets his results from inside a user namespace, or is told what is missing.
#[test]
fn without_privileges_a_run_goes_on_in_a_user_namespace() {
    let _alone = alone();
    let mut version = Command::new(env!("CARGO_BIN_EXE_headwater"));
    version.arg("--version");
    if !works(&version) {
        eprintln!(
            "skipped: a user without privileges cannot run the program where it lies, or there is no setpriv"
        );
        return;
    }
    let folder = tiny(200, "");
    if geteuid().is_root() {
        chown(folder.path(), Some(USER), Some(USER)).unwrap();
    }
    let mut add = in_user_namespace("ip");
    add.args(["netns", "add", "probe"]);
    let allowed = works(&add);
    let said = Printed::by(unprivileged(&it(&folder)));
    if allowed {
        assert!(said.err.contains("going on in a user namespace"), "{}", said.err);
        let said = said.ends_well();
        if let Some(time) = said.value("time") {
            // 200 packets of 1507 bytes at 4 Mbit/s are 0.606 s.
            assert!((0.6..0.8).contains(&time), "{time} s");
        }
    } else {
        let reasons = said.skipped.join("\n") + &said.err;
        assert!(said.measured.is_empty() && reasons.contains("user namespace"), "{said:?}");
    }
}
