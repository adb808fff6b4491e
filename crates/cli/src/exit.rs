//! Exit codes and their text in `--help`. Each failure of a command has its own: [`AppError::exit_code`].
//!
//! [`AppError::exit_code`]: headwater_api::AppError::exit_code

/// Done.
pub(crate) const OK: u8 = 0;
/// A failure without a code of its own.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, which includes a wrong config file or variable.
pub(crate) const USAGE: u8 = 2;
/// `lab run`: a claim misses. `drill`: one failed.
#[cfg(feature = "laboratory")]
pub(crate) const MISSED: u8 = 3;
/// The object is where it should be, but not by its deadline; or was given up for that.
pub(crate) const LATE: u8 = 8;
/// A thread that the process depends on panicked; what the standard library ends with when `main` panics.
pub(crate) const PANICKED: u8 = 101;
/// Stopped by the user.
pub(crate) const INTERRUPTED: u8 = 130;

/// The second meaning of exit code 3.
#[cfg(feature = "laboratory")]
macro_rules! missed {
    () => {
        "; for `lab run` and `drill`: a claim is a miss"
    };
}
#[cfg(not(feature = "laboratory"))]
macro_rules! missed {
    () => {
        ""
    };
}

/// Note in the short help about a binary without the laboratory.
#[cfg(feature = "laboratory")]
macro_rules! left_out {
    () => {
        ""
    };
}
#[cfg(not(feature = "laboratory"))]
macro_rules! left_out {
    () => {
        "Built without the laboratory: no demo, lab, emulate, drill, bench, debug tcp or debug shuffle\n"
    };
}

/// At the end of `--help`.
pub(crate) const MANUAL: &str = concat!(
    "\
Settings:
  Options that describe a machine (uplink, controller, state and so on) may also be set in a TOML config file or in the
  environment; a flag wins over a variable, a variable over the file. `headwater config` prints all of them.

Units:
  Rates need bits or bytes: 50Mbit/s and 50Mbps are bits, 50MB/s and 50MiB/s bytes (eight bits each); k, M and G are
  powers of 1000, Ki, Mi and Gi of 1024. A bare number is refused. Rates are printed in bits per second, results with
  the bytes beside them. Sizes are 500GiB or 500GB; times are 250ms, 2s, 5min or 1h, and a bare number is seconds.

Exit codes:
  0    success; the result is there and verified
  1    failure; the message says what failed and what to do
  2    wrong usage, config file or environment; nothing was started
  3    not found: no such object, block or file",
    missed!(),
    "
  4    no source: the controller or all sources are out of reach, or none has what is missing
  5    verification failed: a hash does not match, a source is corrupt, an object changed
  6    no room: disk full or quota reached; what is finished is kept
  7    identity refused: a fingerprint is not the pinned or remembered one
  8    late: the deadline was missed
  101  a defect of headwater: a thread panicked; what is finished is kept, run the same command again
  130  interrupted; what is finished is kept, run the same command again to resume

Daemons and `serve` end with 0 when they are told to stop (SIGTERM, Ctrl-C): first they finish what they serve, for at most
--drain. On SIGHUP they read their settings again. docs/operations.md says more."
);

/// At the end of `-h`.
pub(crate) const SHORT: &str = concat!(
    left_out!(),
    "\
Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 no source,
  5 verification failed, 6 no room, 7 identity refused, 8 late,
  101 panicked, 130 interrupted
Units: 256MiB, 10GB; 100Mbit/s (bits) or 12MB/s (bytes); 2s
More: --help"
);
