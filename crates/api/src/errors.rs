//! Converts errors of the lower crates into those that the user is told.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use headwater_control::ControlError;
use headwater_transport::ReceiverFailure;
use headwater_units::{BitRate, Bytes, Duration, NodeId};
use headwater_wire::{Refusal, Spoiled};

use super::AppError;
use super::occupant::{Protocol, who_has};

impl AppError {
    /// Something in the state folder cannot be used.
    pub(crate) fn state(path: &Path, reason: impl Display) -> Self {
        AppError::Failed(format!(
            "cannot use {}: {reason}; run this as the user whose folder it is, or choose another folder with --state",
            path.display()
        ))
    }

    /// A socket cannot be had at an address; `flag` chooses another.
    pub(crate) fn no_socket(
        doing: &str,
        flag: &str,
        protocol: Protocol,
        at: SocketAddr,
        reason: &io::Error,
    ) -> Self {
        let port = at.port();
        let hint = match reason.kind() {
            io::ErrorKind::AddrInUse => {
                format!("{}: stop it, or choose another port with {flag}", who_has(protocol, at))
            }
            io::ErrorKind::AddrNotAvailable => {
                format!(
                    "this machine has no such address (`ip address` lists those it has): choose one with {flag}"
                )
            }
            io::ErrorKind::PermissionDenied if (1..1024).contains(&port) => {
                format!("ports below 1024 are root's: choose another with {flag}")
            }
            _ => format!("choose another address with {flag}"),
        };
        AppError::Failed(format!("cannot {doing} on {at}: {reason}; {hint}"))
    }

    /// Reading or writing failed.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        AppError::Io { doing: doing.into(), source }
    }

    /// Whether it is about who answered, not about whether somebody did: trying again does not help.
    pub(crate) fn is_about_trust(&self) -> bool {
        matches!(self, AppError::Identity(_))
    }

    /// Why a receiver gave up, in the user's words.
    pub(crate) fn of_failure(failure: ReceiverFailure, fetch: &GivenUp<'_>) -> Self {
        let what = fetch.what;
        let no_source =
            |missing: Bytes, hint: String| AppError::NoSource { object: what.to_owned(), missing, hint };
        match failure {
            ReceiverFailure::NoController => AppError::Unreachable {
                who: "the controller".to_owned(),
                reason: format!(
                    "it did not answer the request within {}; is it running, and is the address right? If it is only busy, \
                     give it more time with --timeout",
                    fetch.patience
                ),
            },
            ReceiverFailure::Refused(Refusal::UnknownObject) => AppError::NotFound(unknown_object(what)),
            ReceiverFailure::Refused(Refusal::NoSource) => no_source(
                Bytes::ZERO,
                "it is known, but every node that holds it is offline; start one of them (`headwater status` lists who is \
                 down) and run this again"
                    .to_owned(),
            ),
            ReceiverFailure::Refused(Refusal::Spoiled { node, how }) => {
                AppError::Verification(spoiled(what, &(fetch.label)(node), how))
            }
            ReceiverFailure::Refused(Refusal::Full) => AppError::Failed(
                "the controller has as many tasks as it takes; run this again when some are done (`headwater status` lists \
                 them)"
                    .to_owned(),
            ),
            ReceiverFailure::Refused(reason) => {
                AppError::Failed(format!("the controller refused: {reason:?}; `headwater status` shows what it knows"))
            }
            ReceiverFailure::NoSource { missing } => {
                no_source(fetch.block * u64::from(missing), fetch.why_silent())
            }
            ReceiverFailure::Late { missing } => no_source(
                fetch.block * u64::from(missing),
                "its source has given up, since the deadline cannot be met any more".to_owned(),
            ),
            ReceiverFailure::Corrupt { block } => AppError::Verification(format!(
                "block {} of {what} never matched its hash, whichever source sent it; the sources' copies are damaged: `headwater \
                 put` it again on one of them, or restart `headwater serve` there",
                block.0
            )),
            ReceiverFailure::Changed => AppError::Verification(format!(
                "'{what}' now stands for another object than when this began; run this again to fetch the new one"
            )),
            ReceiverFailure::Cancelled => AppError::Interrupted { resumable: true },
        }
    }
}

/// Digits of the beginning of an id that are enough to ask by it.
const PREFIX_DIGITS: usize = 8;

/// Nobody knows such an object.
fn unknown_object(what: &str) -> String {
    let hex = !what.is_empty() && what.len() < 64 && what.bytes().all(|b| b.is_ascii_hexdigit());
    let prefix = if hex && what.len() < PREFIX_DIGITS {
        format!("; if that is the beginning of an id, give at least {PREFIX_DIGITS} digits of it")
    } else {
        String::new()
    };
    format!(
        "no object '{what}' is known there{prefix}; `headwater ls` shows what is. Name who has it with --from ADDR,... (sources) or \
         --controller ADDR (a cluster), or `headwater put` it there"
    )
}

/// The last copy of an object is not the object.
pub(super) fn spoiled(what: &str, source: &str, how: Spoiled) -> String {
    match how {
        Spoiled::Changed => format!(
            "'{what}' on {source} has changed since it was offered: restart `headwater serve` there, or `headwater put` it \
             again, and ask for the new object"
        ),
        Spoiled::Unreadable => format!(
            "'{what}' on {source} cannot be read any more: its log says why; `headwater put` it again there, or restart \
             `headwater serve`, and run this again"
        ),
        Spoiled::Wrong => format!(
            "what {source} sends of '{what}' does not match the object's id: its copy is damaged; `headwater put` it again \
             there, or restart `headwater serve`, and run this again"
        ),
    }
}

/// A fetch that ended without its object, and what is known of its sources.
pub(crate) struct GivenUp<'a> {
    /// The object that was asked for.
    pub(crate) what: &'a str,
    /// Bytes of its blocks.
    pub(crate) block: Bytes,
    /// How long the controller had for an answer.
    pub(crate) patience: Duration,
    /// The user's own limit, and T, if it was accepted.
    pub(crate) limit: Option<BitRate>,
    pub(crate) symbol_size: Option<u16>,
    /// Sources that were to send at the end.
    pub(crate) sources: Vec<QuietSource>,
    /// Where a node is reached.
    pub(crate) label: &'a dyn Fn(NodeId) -> String,
}

/// A source that brings nothing.
pub(crate) struct QuietSource {
    pub(crate) node: NodeId,
    /// Its data sockets, best first.
    pub(crate) at: Vec<SocketAddr>,
    /// Bytes that it has sent of the object.
    pub(crate) bytes: Bytes,
    /// Whether anything ever came from it.
    pub(crate) was_heard: bool,
}

/// A limit that lets one packet through in longer than this is too small to fetch anything by.
const SLOWEST_PACKET: Duration = Duration::from_secs(5);

impl GivenUp<'_> {
    /// Why nothing comes, source by source.
    fn why_silent(&self) -> String {
        let again = "what is finished is kept, run this again when that is mended";
        let packet = Bytes::new(u64::from(self.symbol_size.unwrap_or_default()));
        if let Some(limit) = self.limit.filter(|limit| packet / *limit > SLOWEST_PACKET) {
            return format!(
                "--limit {limit} lets a packet of {packet} through every {}: raise it, as in --limit 50Mbit/s; {again}",
                packet / limit
            );
        }
        if self.sources.is_empty() {
            return format!(
                "no node that is online offers it any more: it was withdrawn (`rm`, or the end of its `serve`), or its nodes are \
                 down; `headwater status` shows who is; {again}"
            );
        }
        let each: Vec<String> = self.sources.iter().map(|source| self.why_quiet(source)).collect();
        format!("every source is silent: {}; {again}", each.join("; "))
    }

    fn why_quiet(&self, source: &QuietSource) -> String {
        let label = (self.label)(source.node);
        if source.was_heard {
            return format!(
                "{label} sent {} and then nothing more: is it still running, and the network between up?",
                source.bytes
            );
        }
        let ports: Vec<String> = source.at.iter().map(SocketAddr::to_string).collect();
        let ports = if ports.is_empty() { "of its choice".to_owned() } else { ports.join(" or ") };
        format!(
            "{label} takes orders, but nothing came back from its data port ({ports}, UDP): a firewall or NAT is between, or its \
             own --limit is tiny; open the port, or fix it there with --data-port"
        )
    }
}

impl From<ControlError> for AppError {
    fn from(error: ControlError) -> Self {
        let text = error.to_string();
        match error {
            ControlError::KeyChanged { .. } | ControlError::PinMismatch { .. } => AppError::Identity(text),
            ControlError::CannotReach { addr, reason } => {
                AppError::Unreachable { who: addr.to_string(), reason }
            }
            ControlError::Busy { addr, reason } => {
                AppError::Unreachable { who: addr.to_string(), reason: format!("it answers, but {reason}") }
            }
            ControlError::Bind { addr, source } => {
                AppError::no_socket("listen", "--listen", Protocol::Udp, addr, &source)
            }
            ControlError::State { path, reason } => AppError::state(&path, reason),
            ControlError::NoRoom { .. } => AppError::NoRoom(format!(
                "cannot write {text}; make room there, or choose another folder with --state"
            )),
            _ => AppError::Failed(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_store::StoreError;
    use headwater_units::BlockIndex;

    use super::*;

    fn address() -> SocketAddr {
        ([10, 0, 0, 1], 7000).into()
    }

    fn given_up(failure: ReceiverFailure, sources: Vec<QuietSource>, limit: Option<BitRate>) -> AppError {
        let fetch = GivenUp {
            what: "model",
            block: Bytes::kib(256),
            patience: Duration::from_secs(60),
            limit,
            symbol_size: Some(1424),
            sources,
            label: &|_| "10.0.0.2:7001".to_owned(),
        };
        AppError::of_failure(failure, &fetch)
    }

    fn quiet(bytes: u64) -> QuietSource {
        let at = vec![([10, 0, 0, 2], 41_234).into()];
        QuietSource { node: NodeId([2; 32]), at, bytes: Bytes::mib(bytes), was_heard: bytes > 0 }
    }

    /// Goal: no error leaves its reader without the next step.
    #[test]
    #[expect(clippy::too_many_lines, reason = "one flat list")]
    fn each_error_names_the_next_step() {
        let silent = ReceiverFailure::NoSource { missing: 4 };
        let spoiled = |how| {
            given_up(
                ReceiverFailure::Refused(Refusal::Spoiled { node: NodeId([2; 32]), how }),
                Vec::new(),
                None,
            )
        };
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let (one, two) = (NodeId([1; 32]), NodeId([2; 32]));
        let out = || Path::new("/out").to_owned();
        let changed = headwater_control::KeyChanged {
            addr: address(),
            expected: one,
            found: two,
            file: "/state/identity/pins.toml".into(),
            line: 3,
        };
        let cases: Vec<(AppError, u8, Vec<String>)> = vec![
            (
                ControlError::no_answer(address(), Duration::from_secs(5)).into(),
                4,
                vec![
                    "10.0.0.1:7000".into(),
                    "firewall".into(),
                    "running".into(),
                    "7000".into(),
                    "7001".into(),
                ],
            ),
            (
                ControlError::nothing_listens(address()).into(),
                4,
                vec!["nothing listens on UDP port 7000".into(), "running".into()],
            ),
            (ControlError::busy(address(), Duration::from_secs(60)).into(), 4, vec!["--timeout".into()]),
            (
                given_up(silent.clone(), vec![quiet(0)], None),
                4,
                vec!["10.0.0.2:7001".into(), "10.0.0.2:41234".into(), "NAT".into(), "--data-port".into()],
            ),
            (
                given_up(silent.clone(), vec![quiet(3)], None),
                4,
                vec!["10.0.0.2:7001 sent 3.0 MiB".into(), "running".into()],
            ),
            (
                given_up(silent.clone(), Vec::new(), None),
                4,
                vec!["withdrawn".into(), "headwater status".into()],
            ),
            (
                given_up(silent, vec![quiet(0)], Some(BitRate::new(50))),
                4,
                vec!["--limit 50 bit/s".into(), "raise it".into()],
            ),
            (given_up(ReceiverFailure::NoController, Vec::new(), None), 4, vec!["--timeout".into()]),
            (spoiled(Spoiled::Changed), 5, vec!["10.0.0.2:7001".into(), "headwater put".into()]),
            (spoiled(Spoiled::Unreadable), 5, vec!["log".into(), "headwater put".into()]),
            (spoiled(Spoiled::Wrong), 5, vec!["damaged".into(), "headwater put".into()]),
            (
                given_up(ReceiverFailure::Corrupt { block: BlockIndex(7) }, Vec::new(), None),
                5,
                vec!["headwater put".into()],
            ),
            (
                given_up(ReceiverFailure::Refused(Refusal::UnknownObject), Vec::new(), None),
                3,
                vec!["headwater ls".into(), "--from".into(), "--controller".into()],
            ),
            (
                given_up(ReceiverFailure::Refused(Refusal::NoSource), Vec::new(), None),
                4,
                vec!["headwater status".into()],
            ),
            (StoreError::DestinationExists { path: out() }.into(), 1, vec!["--force".into(), "-o".into()]),
            (StoreError::NotFound { what: "abc".into() }.into(), 3, vec!["8 digits".into(), "ls".into()]),
            (AppError::io("cannot write /out", denied()), 1, vec!["--state".into(), "-o".into()]),
            (
                StoreError::Io { doing: "create", path: out(), source: denied() }.into(),
                1,
                vec!["/out".into(), "--state".into()],
            ),
            (
                ControlError::State { path: out(), reason: denied().to_string() }.into(),
                1,
                vec!["/out".into(), "--state".into()],
            ),
            (
                ControlError::NoRoom { path: out(), source: io::ErrorKind::StorageFull.into() }.into(),
                6,
                vec!["/out".into(), "make room".into(), "--state".into()],
            ),
            (
                ControlError::PinMismatch { addr: address(), expected: one, found: two }.into(),
                7,
                vec![one.to_string(), format!("--pin {two}"), "HEADWATER_PIN".into(), "config".into()],
            ),
            (
                ControlError::KeyChanged(Box::new(changed)).into(),
                7,
                vec![
                    one.to_string(),
                    two.to_string(),
                    "line 3 of /state/identity/pins.toml".into(),
                    "--pin".into(),
                ],
            ),
            (
                ControlError::Bind { addr: address(), source: io::ErrorKind::AddrNotAvailable.into() }.into(),
                1,
                vec!["--listen".into(), "ip address".into()],
            ),
        ];
        for (error, code, steps) in cases {
            let text = error.to_string();
            assert_eq!(error.exit_code(), code, "{text}");
            for step in steps {
                assert!(text.contains(&step), "{step:?} is not in: {text}");
            }
        }
        assert!(
            unknown_object("abcd").contains("at least 8 digits")
                && !unknown_object("model").contains("digits")
        );
    }
}
