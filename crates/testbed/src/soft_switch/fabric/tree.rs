//! Along which ports a group's frames are copied.
//!
//! A tree over all switches is searched breadth first from the switch of the first member, with one link of the path to each
//! member's switch in both directions. Every switch sends towards that first one, so a frame from anywhere gets to the
//! members' part of the tree; from there on each branch that has members gets a copy. A tree has no loop and no switch
//! sends back where a frame came from, so no frame visits a switch twice.
//!
//! Where links are down that would join them, the parts of a network have a tree each.

use std::collections::{BTreeSet, VecDeque};

use headwater_switch::PortIndex;

use super::wiring::{Far, Link, Near, SwitchAt};

/// The cable from a switch to the one that it was found from.
#[derive(Clone, Copy, Debug)]
struct Towards {
    port: PortIndex,
    switch: usize,
    /// The other switch's port to this cable.
    back: PortIndex,
}

/// By switch, the ports of a group of these hosts.
pub(super) fn ports<F>(
    links: &[Link],
    switches: &[SwitchAt<F>],
    uplinks: &[Vec<u32>],
    members: &[u32],
) -> Vec<Vec<PortIndex>> {
    let mut ports = vec![BTreeSet::new(); switches.len()];
    let mut found: Vec<Option<Option<Towards>>> = vec![None; switches.len()];
    // From where the path to the first member is part of the group's tree.
    let mut joined = vec![false; switches.len()];
    for &member in members {
        let Some((mut at, port)) = uplinks[member as usize].iter().find_map(|&it| port_to(links, it)) else {
            continue;
        };
        if found[at].is_none() {
            search(links, switches, at, &mut found);
        }
        ports[at].insert(port);
        while let Some(Some(towards)) = found[at]
            && !std::mem::replace(&mut joined[at], true)
        {
            ports[towards.switch].insert(towards.back);
            at = towards.switch;
        }
    }
    for (ports, found) in ports.iter_mut().zip(found) {
        ports.extend(found.flatten().map(|towards| towards.port));
    }
    ports.into_iter().map(|ports| ports.into_iter().collect()).collect()
}

/// Finds all switches that are joined to `root`, nearest first.
fn search<F>(links: &[Link], switches: &[SwitchAt<F>], root: usize, found: &mut [Option<Option<Towards>>]) {
    found[root] = Some(None);
    let mut open = VecDeque::from([root]);
    while let Some(switch) = open.pop_front() {
        for &link in &switches[switch].links {
            let Near::Switch { port: back, .. } = links[link as usize].near else { continue };
            let Some((next, port)) = port_to(links, link) else { continue };
            if found[next].is_none() {
                found[next] = Some(Some(Towards { port, switch, back }));
                open.push_back(next);
            }
        }
    }
}

/// The switch at the far end of a link and its port to the same cable, if both directions are there and up.
fn port_to(links: &[Link], link: u32) -> Option<(usize, PortIndex)> {
    let there = &links[link as usize];
    let back = &links[there.back? as usize];
    match (there.far, back.near) {
        (Far::Switch(_), Near::Switch { switch, port }) if !there.is_down() && !back.is_down() => {
            Some((switch, port))
        }
        _ => None,
    }
}
