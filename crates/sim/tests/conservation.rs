//! Nothing gets lost that nobody lost: at every port and on every link of an engine run, in frames and bytes, for push flows
//! in a storm and for the baselines.

mod storm;

use headwater_baseline::{DctcpConfig, ReceiverConfig, Scheme, SenderConfig};
use headwater_sim::packet::{Change, Transport};
use storm::{Storm, conserved};

#[test]
fn what_goes_into_a_port_comes_out_or_is_dropped_or_waits_there() {
    let (mut frames, mut drops, mut trims, mut lost) = (0, 0, 0, 0);
    for seed in 20_000..20_080 {
        let (records, facts) = Storm::new(seed).run();
        conserved(&records, &facts).unwrap_or_else(|what| panic!("storm {seed}: {what}\n{facts}"));
        frames += records.counts.hops;
        drops += records.counts.drops;
        trims += records.counts.trims;
        lost += records.counts.faults.lost;
    }
    assert!(frames > 100_000 && drops > 100 && trims > 100 && lost > 100, "{frames} {drops} {trims} {lost}");
}

#[test]
fn baselines_conserve_frames_and_bytes_as_well() {
    let dctcp = Scheme::Dctcp(DctcpConfig::default());
    let schemes = [Scheme::NewReno, dctcp, Scheme::DCCP, Scheme::NDP, Scheme::Bic, Scheme::Vegas];
    for seed in 30_000..30_080 {
        let mut storm = Storm::new(seed);
        // Hosts of baselines neither pause for good nor restart: nobody would report their tasks.
        storm.facts.changes.retain(|(_, change)| matches!(change, Change::Link(..)));
        storm.setup.changes = storm.facts.changes.clone();
        let sender = SenderConfig::data_centre(schemes[seed as usize % schemes.len()]);
        let receiver = ReceiverConfig::of(&sender);
        storm.setup.transport = Transport::Baseline { sender, receiver };
        storm.setup.carry_bytes = false;
        let (records, facts) = storm.run();
        conserved(&records, &facts).unwrap_or_else(|what| panic!("storm {seed}: {what}\n{facts}"));
        assert_eq!(records.counts.in_flight, 0, "storm {seed}\n{facts}");
    }
}

#[test]
fn a_frame_too_few_is_noticed() {
    let (mut records, facts) = Storm::new(20_000).run();
    let link = records.tallies.iter().position(|ends| ends.arrived.frames > 0).expect("something was sent");
    records.tallies[link].arrived.frames -= 1;
    assert!(conserved(&records, &facts).is_err());
}
