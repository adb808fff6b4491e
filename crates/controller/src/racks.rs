//! Racks of receivers that pass on to each other what arrives ([`super::overlay`]).
//!
//! ```text
//!              class 0          to one of each other rack, who hands it on in its own
//!          .----------> r0 ----------------------------> r2 ------> r3
//!   source +             `---> r1                                         racks: r0 r1 | r2 r3
//!          `----------> r1 ...
//! ```
//! A class enters a rack with several receivers once, at one of them: its *entry*. So each byte crosses into each rack about once,
//! and still leaves the source about once; the tree of a class has one more level. A receiver without a known rack, or the only one
//! of its rack, is a rack by itself, and nothing changes for it.
//!
//! Racks are those that operators state. Nothing is measured.

use std::collections::BTreeSet;

/// By receiver of a mesh: the classes of others that it takes into its rack and hands on there. `racks` are those in which the
/// receivers stand, in the order of their classes.
///
/// The receivers of a rack take the classes of the others in turn. Where all racks have as many receivers, all send as much as without
/// racks, (n - 1) / n of the object.
pub(crate) fn entries(racks: &[Option<&str>]) -> Vec<Vec<u8>> {
    let mut enters = vec![Vec::new(); racks.len()];
    let known: BTreeSet<&str> = racks.iter().flatten().copied().collect();
    for rack in known {
        let is_here = |class: &usize| racks[*class] == Some(rack);
        let (here, elsewhere): (Vec<usize>, Vec<usize>) = (0..racks.len()).partition(is_here);
        if here.len() < 2 {
            continue;
        }
        for (class, entry) in elsewhere.into_iter().zip(here.iter().cycle()) {
            // There are at most as many classes as an index can tell apart.
            enters[*entry].push(class as u8);
        }
    }
    enters
}

/// How many racks have several of the receivers: in each something is handed on.
pub(crate) fn shared(racks: &[Option<&str>]) -> usize {
    let known: BTreeSet<&str> = racks.iter().flatten().copied().collect();
    let several = |rack: &&str| racks.iter().filter(|its| **its == Some(*rack)).count() > 1;
    known.into_iter().filter(several).count()
}

/// By receiver: from which source it has its class. Each source has as many as any other, as nearly as that can be, and those of its
/// own rack first. All are given by their racks; there is a source.
pub(crate) fn spread(receivers: &[Option<&str>], sources: &[Option<&str>]) -> Vec<usize> {
    let most = receivers.len().div_ceil(sources.len());
    let mut classes = vec![0; sources.len()];
    let mut chosen: Vec<Option<usize>> = vec![None; receivers.len()];
    for only_near in [true, false] {
        for (rack, chosen) in receivers.iter().zip(&mut chosen).filter(|(_, chosen)| chosen.is_none()) {
            let is_near = |source: &usize| rack.is_some() && sources[*source] == *rack;
            let may = |source: &usize| classes[*source] < most && (is_near(source) || !only_near);
            *chosen = (0..sources.len()).filter(may).min_by_key(|source| classes[*source]);
            if let Some(source) = *chosen {
                classes[source] += 1;
            }
        }
    }
    chosen
        .into_iter()
        .map(|source| {
            source.expect("sources have room for as many classes as there are receivers, rounded up")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<&str> = Some("a");
    const B: Option<&str> = Some("b");
    const C: Option<&str> = Some("c");

    #[test]
    fn each_class_enters_each_shared_rack_once() {
        assert_eq!(entries(&[A, A, B, B]), [vec![2], vec![3], vec![0], vec![1]]);
        assert_eq!(entries(&[A, A, A, B, B]), [vec![3], vec![4], vec![], vec![0, 2], vec![1]]);
        for alone in [&[A, B, C][..], &[None, None, A], &[A, A]] {
            assert!(entries(alone).iter().all(Vec::is_empty), "{alone:?}");
        }
        let odd = [A, None, B, A, C, B, None, A];
        let enters = entries(&odd);
        for rack in [A, B] {
            let mates = |class: &usize| odd[*class] == rack;
            let mut taken: Vec<u8> = (0..8).filter(mates).flat_map(|at| enters[at].clone()).collect();
            taken.sort_unstable();
            let others: Vec<u8> = (0..8).filter(|at| !mates(at)).map(|at| at as u8).collect();
            assert_eq!(taken, others);
        }
        assert!([1, 4, 6].iter().all(|alone| enters[*alone].is_empty()));
        assert_eq!((shared(&odd), shared(&[A, None, None])), (2, 0));
    }

    #[test]
    fn sources_have_as_many_classes_and_near_ones_first() {
        assert_eq!(spread(&[None; 5], &[None, None]), [0, 1, 0, 1, 0]);
        assert_eq!(spread(&[A, B, A, B], &[B, A]), [1, 0, 1, 0]);
        assert_eq!(spread(&[A, A, A, A], &[A, B]), [0, 0, 1, 1], "the far one is not idle");
        assert_eq!(spread(&[None, A], &[A, B, C]), [1, 0]);
    }
}
