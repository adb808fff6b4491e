//! Nothing gets lost and nothing comes from nowhere, whatever the network, the traffic and the faults.

use std::collections::BTreeMap;

use headwater_fabric::LinkId;
use headwater_switch::{PortStats, Seen};
use headwater_testbed::soft_switch::{DropReason, FabricCounts, FabricOutput};
use headwater_units::Time;
use proptest::prelude::*;

use super::common::{Input, LATE, Net, TestFrame, any_run, poll, put};

/// Frames inside, and bytes trimmed away, by the counts of ports and links.
fn inside(net: &mut Net, now: Time, links: usize) -> (Seen, u64) {
    // Tells it the time, before what is on links is counted.
    net.queue_len(now, LinkId(0));
    let (mut inside, mut trimmed) = (net.in_flight(), 0);
    for link in (0..links as u32).map(LinkId) {
        let PortStats { bytes_in, bytes_out, bytes_dropped, bytes_trimmed, .. } = net.stats(now, link);
        inside.frames += net.queue_len(now, link);
        inside.bytes += (bytes_in - bytes_out - bytes_dropped - bytes_trimmed).get();
        trimmed += bytes_trimmed.get();
    }
    (inside, trimmed)
}

fn check(counts: FabricCounts, (inside, trimmed): (Seen, u64)) -> Result<(), TestCaseError> {
    let FabricCounts { injected, copied, duplicated, delivered, dropped, lost, unroutable, .. } = counts;
    let sum = |of: &[Seen], what: fn(&Seen) -> u64| of.iter().map(what).sum::<u64>();
    let (made, gone) = ([injected, copied, duplicated], [delivered, dropped, lost, unroutable, inside]);
    prop_assert_eq!(sum(&made, |it| it.frames), sum(&gone, |it| it.frames), "frames {:?}", counts);
    prop_assert_eq!(sum(&made, |it| it.bytes), sum(&gone, |it| it.bytes) + trimmed, "bytes {:?}", counts);
    Ok(())
}

/// Outputs of the network, counted by its driver.
#[derive(Debug, Default)]
struct Heard {
    delivered: u64,
    dropped: u64,
    lost: u64,
    unroutable: u64,
    /// Of each frame: how many came to an end, and their bytes with those that were cut off.
    ends: BTreeMap<u64, (u64, u64)>,
}

impl Heard {
    fn note(&mut self, output: FabricOutput<TestFrame>) {
        let (count, frame) = match output {
            FabricOutput::Deliver { frame, .. } => (&mut self.delivered, frame),
            FabricOutput::Dropped { why: DropReason::Full | DropReason::Cut, frame, .. } => {
                (&mut self.dropped, frame)
            }
            FabricOutput::Dropped { why: DropReason::Lost, frame, .. } => (&mut self.lost, frame),
            FabricOutput::Dropped { why: DropReason::Unroutable, frame, .. } => (&mut self.unroutable, frame),
            FabricOutput::Wake(_) => return,
        };
        *count += 1;
        let ends = self.ends.entry(frame.id).or_default();
        *ends = (ends.0 + 1, ends.1 + frame.len + frame.cut);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// At every moment, in frames and in bytes; and the counters are what a listener would count.
    #[test]
    fn what_goes_in_comes_out_is_counted_as_gone_or_is_still_inside(
        run in any_run(), polls in prop::collection::vec(any::<bool>(), 120),
    ) {
        let links = run.topology.fabric().link_count();
        let mut net = run.net();
        let (mut heard, mut lens) = (Heard::default(), BTreeMap::new());
        for ((now, input), polled) in run.inputs.into_iter().zip(polls) {
            if let Input::Frame(_, frame) = &input {
                lens.insert(frame.id, frame.len);
            }
            put(&mut net, now, input);
            if polled {
                poll(&mut net, now).0.into_iter().for_each(|it| heard.note(it));
            }
            let inside = inside(&mut net, now, links);
            check(net.counts(), inside)?;
        }
        let (said, wake) = poll(&mut net, LATE);
        said.into_iter().for_each(|it| heard.note(it));
        let (inside, trimmed) = inside(&mut net, LATE, links);
        prop_assert_eq!((wake, inside), (None, Seen::default()), "in the end nothing is inside");
        let counts = net.counts();
        check(counts, (inside, trimmed))?;
        prop_assert_eq!(
            [heard.delivered, heard.dropped, heard.lost, heard.unroutable],
            [counts.delivered, counts.dropped, counts.lost, counts.unroutable].map(|it| it.frames)
        );
        prop_assert_eq!(heard.ends.len(), lens.len(), "every frame has an end");
        for (id, (ends, bytes)) in heard.ends {
            prop_assert_eq!(bytes, ends * lens[&id], "frame {}", id);
        }
    }
}
