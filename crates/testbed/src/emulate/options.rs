//! Options of an emulated network beside its scenario, and who carries out which of the scenario's faults.

use std::path::PathBuf;

use headwater_fabric::LinkId;
use headwater_sim::packet::Change;
use headwater_switch::LinkChange;
use headwater_units::{Bytes, Duration, Time};

use super::EmulateError;
use crate::soft_switch::{Groups, SNAP};

/// How a network is built; by default as [`EmulatedNet::build`](super::EmulatedNet::build) does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetOptions {
    /// Where to write all frames as they leave their ports, one file for each; see [`Capture`](crate::soft_switch::Capture).
    pub pcap: Option<PathBuf>,
    /// How much of each frame, in bytes.
    pub pcap_snap: usize,
    /// Hosts take a random time to send a packet, up to the scenario's jitter, as simulated hosts do. Else they take what
    /// this machine takes.
    pub host_jitter: bool,
    /// Members of multicast groups.
    pub groups: Groups,
    /// Bytes that switches keep of each tree of Datacast; none: they only forward.
    pub tree_store: Option<Bytes>,
    /// The scenario's faults wait for [`EmulatedNet::begin`](super::EmulatedNet::begin). Those on hosts are then its
    /// caller's to carry out; else a scenario with any is refused.
    pub hold_faults: bool,
    /// The processor, by its number, that the switch has for itself; see [`Reserved`](crate::soft_switch::Reserved).
    pub processor: Option<usize>,
}

impl Default for NetOptions {
    fn default() -> Self {
        NetOptions {
            pcap: None,
            pcap_snap: SNAP,
            host_jitter: false,
            groups: Groups::default(),
            tree_store: None,
            hold_faults: false,
            processor: None,
        }
    }
}

/// Fault of a host's programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFault {
    /// The host, by number, neither sends nor receives, and forgets nothing.
    Pause(usize),
    /// It goes on.
    Resume(usize),
    /// It loses all its state and starts anew.
    Restart(usize),
    /// It is gone without a goodbye, until it starts anew.
    Kill(usize),
}

impl HostFault {
    /// Host that it happens to.
    pub fn host(self) -> usize {
        match self {
            HostFault::Pause(host)
            | HostFault::Resume(host)
            | HostFault::Restart(host)
            | HostFault::Kill(host) => host,
        }
    }
}

/// The faults of a scenario, each ascending by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Faults {
    pub(super) on_links: Vec<(Time, LinkId, LinkChange)>,
    pub(super) on_hosts: Vec<(Duration, HostFault)>,
}

impl Faults {
    /// Sorts them by where they happen; `held` allows those on hosts.
    pub(super) fn sort(changes: &[(Time, Change)], held: bool) -> Result<Faults, EmulateError> {
        let mut faults = Faults::default();
        for (at, change) in changes {
            let fault = match *change {
                Change::Link(link, change) => {
                    faults.on_links.push((*at, link, change));
                    continue;
                }
                Change::Paused(host, true) => HostFault::Pause(host as usize),
                Change::Paused(host, false) => HostFault::Resume(host as usize),
                Change::Restart(host) => HostFault::Restart(host as usize),
                Change::Killed(host) => HostFault::Kill(host as usize),
                Change::RestartController | Change::LoseControllerState | Change::Member(..) => {
                    return Err(EmulateError::HostFault);
                }
            };
            if !held {
                return Err(EmulateError::HostFault);
            }
            faults.on_hosts.push((at.since(Time::ZERO), fault));
        }
        Ok(faults)
    }
}
