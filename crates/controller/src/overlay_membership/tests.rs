use proptest::prelude::*;

use super::*;

const OBJECT: ObjectId = ObjectId([9; 32]);

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

fn source() -> NodeId {
    node(255)
}

/// These may be asked, and the source.
fn only(may: impl Fn(NodeId) -> bool) -> Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool> {
    Known::of_all(may, |_| false, Some(source()))
}

fn all() -> Known<impl Fn(NodeId) -> bool, impl Fn(NodeId) -> bool> {
    only(|_| true)
}

/// An overlay of `count` receivers, from 1 on, in racks of `rack` if that is not 0.
fn begun(count: u8, rack: u8) -> Overlays {
    let rack = |n: u8| n.checked_div(rack).map(|number| number.to_string());
    let one = |n| Beginner { node: node(n), rack: rack(n), weight: 1.0 };
    let mut overlays = Overlays::default();
    overlays.begin(OBJECT, 1000, &[source()], &(1..=count).map(one).collect::<Vec<_>>());
    overlays
}

impl Overlays {
    fn only(&self) -> &Overlay {
        &self.overlays[&OBJECT]
    }

    /// Those who have a stripe from a node.
    fn children_of(&self, parent: NodeId, stripe: usize) -> Vec<NodeId> {
        let has =
            |(node, member): (&NodeId, &Member)| (member.parents[stripe] == Some(parent)).then_some(*node);
        self.only().members.iter().filter_map(has).collect()
    }

    fn check(&self, holders: &BTreeSet<NodeId>) -> Result<(), TestCaseError> {
        let overlay = self.only();
        for (stripe, (node, member)) in
            (0..usize::from(overlay.of)).flat_map(|stripe| overlay.members.iter().map(move |it| (stripe, it)))
        {
            prop_assert_eq!(
                member.children[stripe].iter().copied().collect::<BTreeSet<_>>(),
                self.children_of(*node, stripe).into_iter().collect()
            );
            prop_assert_ne!(member.parents[stripe], Some(*node));
            let is_free = member.passes_on && member.free(stripe) > 0;
            prop_assert_eq!(overlay.free[stripe].contains(node), is_free);
            let mates = member.rack.as_ref().map(|rack| overlay.racks[rack].contains(node));
            prop_assert_ne!(mates, Some(false));
            prop_assert!(!member.is_done || member.parents[stripe].is_none());
            let is_root =
                |at: &NodeId| holders.contains(at) || overlay.members.get(at).is_none_or(|it| it.is_done);
            let way = std::iter::successors(Some(*node), |at| {
                if is_root(at) { None } else { overlay.members[at].parents[stripe] }
            });
            prop_assert!(
                way.take(overlay.members.len() + 2).count() <= overlay.members.len() + 1,
                "a circle"
            );
        }
        let listed = overlay.free.iter().chain(overlay.racks.values()).flatten();
        for node in listed {
            prop_assert!(overlay.members.contains_key(node), "{node:?} is gone");
        }
        Ok(())
    }
}

#[test]
fn those_that_pass_on_come_first_from_the_source_on() {
    // Equal receivers stand inside the trees by their numbers.
    assert_eq!(begun(200, 0).in_sending_order(OBJECT), (1..=200).map(node).collect::<Vec<_>>());
    // Of racks, the parent in the first tree that one stands inside comes before it.
    let overlays = begun(200, 7);
    let order = overlays.in_sending_order(OBJECT);
    let place: BTreeMap<NodeId, usize> = order.iter().copied().zip(0..).collect();
    assert_eq!((place.len(), order.len()), (200, 200), "each once");
    let mut inner = 0;
    for (node, at) in &place {
        let inside =
            overlays.stripes(OBJECT).find(|stripe| !overlays.children(OBJECT, *node, *stripe).is_empty());
        let parent = inside.and_then(|stripe| overlays.parent(OBJECT, *node, stripe));
        inner += usize::from(inside.is_some());
        assert!(
            parent.is_none_or(|parent| parent == source() || place[&parent] < *at),
            "{node:?} is too early"
        );
    }
    assert!(order[inner..].is_sorted(), "leaves come last");
}

#[test]
fn of_many_some_are_looked_at_that_have_slots_left_and_those_of_the_rack() {
    let number = |n: u32| {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    };
    let one = |n| Beginner { node: number(n), rack: Some((n / 32).to_string()), weight: 1.0 };
    let mut overlays = Overlays::default();
    overlays.begin(OBJECT, 1000, &[source()], &(0..2_000).map(one).collect::<Vec<_>>());
    let (receiver, rack, mut found) = (number(700), (700 / 32).to_string(), 0);
    for stripe in 0..8 {
        let likely = overlays.likely(OBJECT, (receiver, stripe), Some(&rack), |_| true).unwrap();
        assert!((WITH_SLOTS..=WITH_SLOTS + 32 + ANY).contains(&likely.len()), "{}", likely.len());
        let mates = likely.iter().filter(|it| u32::from_be_bytes(it.0[..4].try_into().unwrap()) / 32 == 21);
        assert_eq!(mates.count(), 32);
        let known = Known { among: Some(likely.clone()), ..Known::of_all(|_| true, |_| false, None) };
        // Where it stands above all of them nobody is found.
        let parent = overlays.mend(OBJECT, (receiver, stripe), &known);
        found += u32::from(parent.is_some());
        assert!(parent.is_none_or(|it| likely.contains(&it)));
    }
    assert!(found >= 6, "{found} of 8");
    overlays.check(&BTreeSet::new()).unwrap();
    assert_eq!(begun(200, 0).likely(OBJECT, (node(1), 0), None, |_| true), None, "all of few");
}

#[test]
fn who_comes_late_has_all_stripes_and_slots_in_the_trees_that_have_the_fewest() {
    let mut overlays = begun(10, 0);
    let left = |overlays: &Overlays, stripe: usize| -> u32 {
        overlays.only().members.values().map(|member| member.free(stripe)).sum()
    };
    for n in 11..=40 {
        let parents = overlays.join(OBJECT, (node(n), None), true, &all(), |_| false).unwrap();
        assert_eq!((parents.of, parents.nodes.len()), (4, 4));
        assert!(!parents.nodes.contains(&source()), "the source sends no second copy");
        assert_eq!(overlays.only().members[&node(n)].slots.iter().sum::<u32>(), 4);
        overlays.check(&BTreeSet::new()).unwrap();
    }
    let left: Vec<u32> = (0..4).map(|stripe| left(&overlays, stripe)).collect();
    assert!(left.iter().max().unwrap() - left.iter().min().unwrap() <= 4, "{left:?}");
}

/// There are as many slots as are needed, but not always in the tree in which they are.
#[test]
fn of_those_who_come_late_nobody_sends_more_than_a_copy() {
    let mut overlays = begun(29, 0);
    for n in 100..120 {
        overlays.join(OBJECT, (node(n), None), true, &all(), |_| false).unwrap();
        overlays.check(&BTreeSet::new()).unwrap();
        let most = overlays.only().members.values().map(|member| member.load()).max();
        assert_eq!(most, Some(1000), "after {n}");
    }
}

/// Most hops from the source to a receiver, of all stripes.
fn deepest(overlays: &Overlays) -> u32 {
    let overlay = overlays.only();
    let depth = |stripe: u8| {
        let hops = |at: &NodeId| overlay.depth(usize::from(stripe), *at, node(0), |_| false);
        overlay.members.keys().map(|at| hops(at).expect("a way")).max()
    };
    (0..overlay.of).filter_map(depth).max().unwrap()
}

#[test]
fn who_comes_late_while_nobody_has_anything_stands_near_the_source() {
    let at_once = deepest(&begun(63, 0));
    // One that comes late sends a stripe to two, at once to four.
    for (first, more) in [(2, 3), (10, 2), (16, 1), (26, 1), (40, 1), (63, 1)] {
        let mut overlays = begun(first, 0);
        for n in first + 1..=64 {
            overlays.join(OBJECT, (node(n), None), true, &all(), |_| true).unwrap();
            overlays.check(&BTreeSet::new()).unwrap();
        }
        let overlay = overlays.only();
        let edges: usize = overlay.members.values().flat_map(|it| &it.children).map(Vec::len).sum();
        assert_eq!(edges, usize::from(overlay.of) * 63, "the source sends one copy");
        assert!(overlay.members.values().all(|it| it.load() <= 1000), "and nobody more than one");
        let hops = deepest(&overlays);
        assert!(hops <= at_once + more, "{first}: {hops} hops instead of {at_once}");
    }
}

/// Who has what from whom, but for a receiver.
fn edges_but(overlays: &Overlays, but: NodeId) -> Vec<(NodeId, Vec<Option<NodeId>>)> {
    let others = overlays.only().members.iter().filter(|(it, _)| **it != but);
    others.map(|(it, member)| (*it, member.parents.clone())).collect()
}

#[test]
fn nobody_who_has_much_gives_its_place_to_one_that_comes_late() {
    let mut overlays = begun(20, 0);
    // The last slots near the source are taken.
    for n in 21..=29 {
        overlays.join(OBJECT, (node(n), None), true, &all(), |_| false).unwrap();
    }
    let before = edges_but(&overlays, node(30));
    let second = |it: NodeId| it == node(2);
    overlays.join(OBJECT, (node(30), None), true, &all(), |_| false).unwrap();
    assert_eq!(edges_but(&overlays, node(30)), before);
    overlays.leave(OBJECT, node(30));
    overlays.join(OBJECT, (node(30), None), true, &all(), second).unwrap();
    let moved = edges_but(&overlays, node(30)).into_iter().zip(before).filter(|(now, before)| now != before);
    assert_eq!(moved.map(|((it, _), _)| it).collect::<Vec<_>>(), [node(2)]);
    overlays.check(&BTreeSet::new()).unwrap();
}

#[test]
fn whose_place_was_taken_has_it_back_if_the_late_one_does_not_come() {
    let mut overlays = begun(20, 0);
    // The last slots near the source are taken.
    for n in 21..=29 {
        overlays.join(OBJECT, (node(n), None), true, &all(), |_| false).unwrap();
    }
    let before = edges_but(&overlays, node(30));
    let parents = overlays.join(OBJECT, (node(30), None), true, &all(), |_| true).unwrap();
    assert_ne!(edges_but(&overlays, node(30)), before);
    assert_eq!(parents.nodes.len(), 4);
    overlays.withdraw(OBJECT, node(30));
    assert_eq!(edges_but(&overlays, node(30)), before);
    overlays.check(&BTreeSet::new()).unwrap();
}

#[test]
fn who_comes_late_takes_the_place_of_one_of_its_own_rack() {
    let mut overlays = begun(48, 8);
    let before = edges_but(&overlays, node(100));
    overlays.join(OBJECT, (node(100), Some("3")), true, &all(), |_| true).unwrap();
    let moved = edges_but(&overlays, node(100)).into_iter().zip(before).filter(|(now, before)| now != before);
    let moved: Vec<NodeId> = moved.map(|((it, _), _)| it).collect();
    assert!(!moved.is_empty());
    assert!(moved.iter().all(|it| overlays.only().members[it].rack.as_deref() == Some("3")), "{moved:?}");
    overlays.check(&BTreeSet::new()).unwrap();
}

#[test]
fn who_passes_nothing_on_is_nobodys_parent() {
    let mut overlays = begun(2, 0);
    overlays.join(OBJECT, (node(3), None), false, &all(), |_| false).unwrap();
    let known = only(|other| other == node(3));
    assert_eq!(overlays.mend(OBJECT, (node(1), 0), &known), Some(source()));
}

#[test]
fn who_has_all_needs_no_parent_and_is_as_near_as_the_source() {
    let mut overlays = begun(12, 0);
    overlays.done(OBJECT, node(5));
    assert!(overlays.is_done(OBJECT, node(5)));
    assert!((0..4).all(|stripe| overlays.parent(OBJECT, node(5), stripe).is_none()));
    assert_eq!(overlays.only().depth(0, node(5), node(1), |_| false), Some(0));
    // A receiver that had no other parent has it.
    let top = overlays.children_of(source(), 0)[0];
    let known = only(|other| other == node(5));
    assert_eq!(overlays.mend(OBJECT, (top, 0), &known), Some(node(5)));
    overlays.lose(OBJECT, top);
    overlays.lose(OBJECT, node(5));
    assert!(overlays.has(OBJECT, top) && !overlays.has(OBJECT, node(5)), "it has it no longer");
}

#[test]
fn who_holds_up_others_becomes_a_leaf_and_no_other_in_the_next_two_seconds() {
    let mut overlays = begun(6, 0);
    let slow = overlays.children_of(source(), 0)[0];
    let below = overlays.children_of(slow, 0);
    let order = |it: &&NodeId| (overlays.only().slots(**it, 0), Reverse(**it));
    let heir = *below.iter().max_by_key(order).unwrap();
    let mut demote = |at: u64, slow| {
        let now = Time::ZERO + Duration::from_millis(at);
        let moved = overlays.demote(now, OBJECT, (slow, 0), |_, _| true, &all());
        overlays.check(&BTreeSet::new()).unwrap();
        moved
    };
    let moved = demote(1000, slow);
    let told: BTreeSet<NodeId> = moved.iter().map(|(node, _)| *node).collect();
    assert_eq!((moved[0], moved.len()), ((heir, source()), 6), "the heir stands where it stood");
    assert_eq!(told, below.iter().copied().chain([slow]).collect());
    assert!(moved.iter().all(|(_, parent)| *parent != slow));
    assert_eq!(demote(2999, heir), []);
    assert_eq!(demote(3000, heir)[0].1, source());
}

#[test]
fn who_takes_the_place_of_a_slow_one_sends_no_more_than_it_has_slots_for() {
    for (count, stripe) in (10..=64).flat_map(|count| (0..4).map(move |stripe| (count, stripe))) {
        let mut overlays = begun(count, 0);
        let at = usize::from(stripe);
        let slow = overlays.children_of(source(), at)[0];
        let moved = overlays.demote(Time::ZERO, OBJECT, (slow, stripe), |_, _| true, &all());
        overlays.check(&BTreeSet::new()).unwrap();
        let heir = &overlays.only().members[&moved[0].0];
        let has_slots = heir.slots[at] > 0;
        assert!(!has_slots || heir.children[at].len() <= heir.slots[at] as usize + 1, "{count}: {heir:?}");
        // What the slow one sent is dealt to several.
        let children = |it: &Member| it.children.iter().map(Vec::len).sum::<usize>();
        let most = overlays.only().members.values().map(children).max().unwrap();
        let copy = usize::from(overlays.only().of);
        assert!(most <= copy + 2, "{count}: {most} instead of {copy}");
    }
}

#[test]
fn where_somebody_dies_its_children_go_to_those_that_have_slots_left() {
    for count in [10, 20, 40, 64, 200] {
        let mut overlays = begun(count, 0);
        let is_inner = |it: &Member| it.children[1].len() > 1 && it.parents[1] != Some(source());
        let dead = *overlays.only().members.iter().find(|(_, it)| is_inner(it)).unwrap().0;
        let orphans = overlays.children_of(dead, 1);
        overlays.leave(OBJECT, dead);
        assert!(orphans.iter().all(|it| overlays.parent(OBJECT, *it, 1).is_none()));
        let mut with_slots = 0;
        for orphan in orphans {
            let before = overlays.only().members.clone();
            let is_rooted = |it: NodeId| overlays.only().depth(1, it, orphan, |_| false).is_some();
            let is_free = before.iter().any(|(it, member)| member.free(1) > 0 && is_rooted(*it));
            let parent = overlays.mend(OBJECT, (orphan, 1), &all()).unwrap();
            assert!(parent != source() && (!is_free || before[&parent].free(1) > 0), "{count}: {parent:?}");
            with_slots += u32::from(is_free);
            overlays.check(&BTreeSet::new()).unwrap();
        }
        assert!(with_slots > 0, "{count}: its own parent has one");
    }
}

/// All slots are taken but those of nodes that are silent. One more child of the root would make all of the tree late.
#[test]
fn where_nobody_has_a_slot_left_one_sends_more_whose_children_send_to_nobody() {
    for stripe in 0..4 {
        let mut overlays = begun(29, 0);
        for n in 30..=50 {
            overlays.join(OBJECT, (node(n), None), true, &all(), |_| true).unwrap();
        }
        let is_inner = |it: &Member| it.children[stripe].len() > 2 && it.parents[stripe] != Some(source());
        let inner = overlays.only().members.iter().filter(|(_, it)| is_inner(it));
        let silent: Vec<NodeId> = inner.map(|(it, _)| *it).take(2).collect();
        for child in silent.iter().flat_map(|it| overlays.children_of(*it, stripe)).collect::<Vec<_>>() {
            let known = only(|it| !silent.contains(&it));
            let parent = overlays.mend(OBJECT, (child, stripe as u8), &known).unwrap();
            overlays.check(&BTreeSet::new()).unwrap();
            let (overlay, member) = (overlays.only(), &overlays.only().members[&parent]);
            let others = (0..4).flat_map(|its| member.children[its].iter().map(move |it| (*it, its)));
            let others = others.filter(|(it, _)| *it != child);
            let below: usize = others.map(|(it, its)| overlay.children(it, its).len()).sum();
            assert!(member.load() <= 1000 || below == 0, "{stripe}: {member:?}");
        }
    }
}

#[test]
fn where_the_first_of_a_tree_dies_one_of_its_children_stands_where_it_stood() {
    for (count, rack) in [(3, 0), (8, 0), (10, 0), (64, 0), (48, 8)] {
        let mut overlays = begun(count, rack);
        let dead = overlays.children_of(source(), 1)[0];
        let orphans = overlays.children_of(dead, 1);
        overlays.leave(OBJECT, dead);
        for orphan in orphans {
            overlays.mend(OBJECT, (orphan, 1), &all()).unwrap();
        }
        assert_eq!(overlays.children_of(source(), 1).len(), 1, "{count} in racks of {rack}");
        overlays.check(&BTreeSet::new()).unwrap();
    }
}

#[test]
fn who_is_restored_before_its_parent_is_counted() {
    let mut overlays = Overlays::default();
    for (child, parent) in [(2, node(1)), (3, node(2)), (1, source())] {
        for stripe in 0..3 {
            overlays.restore(OBJECT, (1000, 3), (node(child), None), (stripe, parent));
        }
    }
    overlays.check(&BTreeSet::new()).unwrap();
    assert_eq!(overlays.mend(OBJECT, (node(1), 0), &all()), Some(source()), "all others are below it");
}

#[derive(Clone, Debug)]
enum Step {
    Join(u8, bool),
    Leave(u8),
    Mend(u8, u8),
    Hold(u8),
    Done(u8),
    Demote(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (n, stripe) = (|| 1..=40u8, || 0..9u8);
    prop_oneof![
        (n(), any::<bool>()).prop_map(|(n, passes_on)| Step::Join(n, passes_on)),
        n().prop_map(Step::Leave),
        (n(), stripe()).prop_map(|(n, stripe)| Step::Mend(n, stripe)),
        n().prop_map(Step::Hold),
        n().prop_map(Step::Done),
        (n(), stripe()).prop_map(|(n, stripe)| Step::Demote(n, stripe)),
    ]
}

proptest! {
    /// Receivers come, go and fail in any order: trees are trees, and nobody has a stripe from somebody below it.
    #[test]
    fn trees_are_trees_whatever_happens(
        (count, rack) in (2..=40u8, 0..9u8),
        steps in prop::collection::vec((step(), any::<u64>(), any::<bool>()), 1..60),
    ) {
        let mut overlays = begun(count, rack);
        let of = overlays.only().of;
        let mut holders = BTreeSet::new();
        overlays.check(&holders)?;
        for (at, (step, here, has_source)) in (0..).zip(steps) {
            let may = |other: NodeId| here >> other.0[0] & 1 == 1;
            let holds = |other| holders.contains(&other);
            let known = Known::of_all(may, holds, has_source.then(source));
            match step {
                Step::Join(n, passes_on) => {
                    let rack = (n + rack).to_string();
                    let yields = |leaf: NodeId| here.reverse_bits() >> leaf.0[0] & 1 == 1;
                    overlays.join(OBJECT, (node(n), Some(&rack)), passes_on, &known, yields);
                }
                Step::Leave(n) => _ = overlays.leave(OBJECT, node(n)),
                Step::Mend(n, stripe) => {
                    let (n, stripe) = (node(n), stripe % of);
                    let parent = overlays.mend(OBJECT, (n, stripe), &known);
                    prop_assert!(parent.is_none_or(|it| it == source() || may(it)));
                    prop_assert!(parent.is_none_or(|it| overlays.parent(OBJECT, n, stripe) == Some(it)));
                }
                Step::Hold(n) => _ = holders.insert(node(n)),
                Step::Done(n) => overlays.done(OBJECT, node(n)),
                Step::Demote(n, stripe) => {
                    let (slow, stripe) = (node(n), stripe % of);
                    let now = Time::ZERO + Duration::from_millis(500) * at;
                    let below = overlays.children_of(slow, usize::from(stripe));
                    let above = overlays.parent(OBJECT, slow, stripe);
                    let moved = overlays.demote(now, OBJECT, (slow, stripe), |_, _| true, &known);
                    let is_heir = |(heir, parent)| below.contains(&heir) && Some(parent) == above;
                    prop_assert!(moved.first().is_none_or(|it| is_heir(*it)));
                    if !moved.is_empty() {
                        prop_assert!(overlays.only().members[&slow].children[usize::from(stripe)].is_empty());
                    }
                }
            }
            overlays.check(&holders)?;
        }
    }
}
