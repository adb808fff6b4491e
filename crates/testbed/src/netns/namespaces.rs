//! The namespaces of one run: made together, and gone when their maker is.

use std::ffi::OsStr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::guard::{self, Guard};
use super::{NetError, tool};

/// Name of the namespace in which links are limited and frames switched.
const MIDDLE: &str = "mid";

/// A namespace for each host and one between them. Dropping them kills what runs inside and removes them.
///
/// Runs in parallel, in one process or several, never touch each other: the names begin with the process's id and a
/// number of its own.
pub(crate) struct Namespaces {
    run_id: String,
    middle: String,
    hosts: Vec<String>,
    /// Dropped last, after [`Namespaces::drop`] has removed everything: then it finds nothing to do.
    _guard: Guard,
}

impl Namespaces {
    /// Makes empty ones. Left-overs of dead runs are removed first.
    pub(crate) fn create(hosts: usize) -> Result<Self, NetError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        guard::remove_leftovers()?;
        let run_id =
            format!("{}{}-{}", guard::PREFIX, std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let namespaces = Namespaces {
            middle: format!("{run_id}-{MIDDLE}"),
            hosts: (0..hosts).map(|host| format!("{run_id}-h{host}")).collect(),
            _guard: Guard::start(&run_id)?,
            run_id,
        };
        for namespace in namespaces.names() {
            tool::run("ip", &["netns", "add", namespace])?;
        }
        // The middle only forwards frames: its own IPv6 chatter would wait in the queues that we measure, and where containers run
        // a bridge shows each frame to the firewall, which takes much of the processor's time.
        let entered = format!("--net=/run/netns/{}", namespaces.middle);
        let quiet = "set_to() { [ ! -w $2 ] || echo $1 > $2; }
            set_to 1 /proc/sys/net/ipv6/conf/default/disable_ipv6
            for f in /proc/sys/net/bridge/bridge-nf-call-*; do set_to 0 $f; done";
        tool::run("nsenter", &[&entered, "--", "sh", "-c", quiet])?;
        Ok(namespaces)
    }

    /// Beginning of all their names: `hw-<process id>-<number>`.
    pub(crate) fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The one between the hosts.
    pub(crate) fn middle(&self) -> &str {
        &self.middle
    }

    /// How many hosts there are.
    pub(crate) fn len(&self) -> usize {
        self.hosts.len()
    }

    /// A host's.
    pub(crate) fn host(&self, host: usize) -> Result<&str, NetError> {
        let name = self.hosts.get(host).map(String::as_str);
        name.ok_or(NetError::UnknownHost { host, hosts: self.hosts.len() })
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.middle).chain(&self.hosts)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for namespace in self.names() {
            // The guard tries once more, and the next run after it.
            let _ = guard::remove(namespace);
        }
    }
}

/// A command that runs `program` in a namespace; its process id will be the program's own.
pub(crate) fn command_in(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    // Not `ip netns exec`: that remounts /sys, which user namespaces inside containers may not.
    let mut command = tool::command("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg(program);
    command
}
