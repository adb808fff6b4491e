//! Racks of receivers, as far as operators state them. Nothing is measured.

use std::collections::BTreeMap;

/// How many racks have several of the receivers: in each something is handed on.
pub(crate) fn shared(racks: &[Option<&str>]) -> usize {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    racks.iter().flatten().for_each(|rack| *sizes.entry(rack).or_default() += 1);
    sizes.values().filter(|size| **size > 1).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rack_with_one_receiver_is_shared_by_nobody() {
        let (a, b) = (Some("a"), Some("b"));
        assert_eq!(shared(&[a, None, b, a, Some("c"), b, None, a]), 2);
        assert_eq!(shared(&[a, None, None]), 0);
    }
}
