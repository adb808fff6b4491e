//! Finds the node that a text means: by its name, its address, or the beginning of its fingerprint.

use super::NodeLine;

/// Fewer digits of a fingerprint may be another's.
const SHORTEST_ID: usize = 8;

/// The nodes that a text means: those that are `up` as asked, or the others if none is.
pub(super) fn named_nodes<'a>(text: &str, nodes: &'a [NodeLine], up: bool) -> Vec<&'a NodeLine> {
    let (mut wanted, others): (Vec<_>, Vec<_>) =
        nodes.iter().filter(|node| same_node(text, node)).partition(|node| node.up == up);
    if wanted.is_empty() {
        wanted = others;
    }
    wanted
}

fn same_node(text: &str, node: &NodeLine) -> bool {
    let address = node.listen.parse().ok().map(|at: std::net::SocketAddr| at.ip());
    let id = text.len() >= SHORTEST_ID && node.id.to_string().starts_with(&text.to_ascii_lowercase());
    node.name == text || node.listen == text || id || address.is_some_and(|ip| text.parse() == Ok(ip))
}
