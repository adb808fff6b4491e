//! One scenario, two engines: the simulator's records and those of real packets agree.

use std::path::Path;

use super::common::{Printed, alone, lab_run};

/// How far from the simulator real packets may be.
enum Within {
    /// Of the simulator's value.
    Percent(f64),
    /// Below it and above it, in the claim's own unit.
    Absolute { below: f64, above: f64 },
}
use Within::{Absolute, Percent};

/// By claim of `experiments/emulate/parity.toml`.
const AGREE: [(&str, Within); 10] = [
    ("E-parity/unicast", Percent(3.0)),
    ("E-parity/two-sources", Percent(3.0)),
    ("E-parity/loss", Percent(3.0)),
    ("E-parity/rate", Percent(3.0)),
    ("E-parity/down", Percent(5.0)),
    ("E-parity/shares", Percent(5.0)),
    (WEIGHTS, Percent(25.0)),
    (QUEUE, Absolute { below: 15.0, above: 3.0 }),
    ("E-parity/marks", Percent(10.0)),
    ("E-parity/goodput", Percent(2.0)),
];

/// Of 30 packets. A host that is woken late lets the queue run down meanwhile, of which the switch knows nothing: on busy machines
/// valid runs had 28.0 and 27.0. Nothing but a threshold or a window that is wrong makes it longer.
const QUEUE: &str = "E-parity/queue";

/// In 3 s a flow of seven packets of window carries 1900 packets, and the ratio of two such differs by 6 % (standard
/// deviation) from run to run, so that one of twelve single runs misses the claim's 20 % about 4. Hence it is held
/// against the simulator's value only.
const WEIGHTS: &str = "E-parity/weights";

/// Goal: completion times, shares, weights, queue, mark fraction and goodput are what the packet engine says they are, and
/// claims pass on both.
#[test]
fn simulator_and_real_packets_agree() {
    let Some(_alone) = alone() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/emulate/parity.toml");
    let [simulated, real] =
        ["packet", "netns"].map(|engine| Printed::by(lab_run(folder.path(), &file, engine)).ends_judged());
    assert_eq!(simulated.measured.len(), AGREE.len(), "{simulated:?}");
    let mut compared = 0;
    for (claim, within) in AGREE {
        let (wanted, verdict) = &simulated.measured[claim];
        assert_eq!(verdict, "pass", "{claim}: {wanted} on the packet engine");
        let Some(measured) = real.value(claim) else {
            headwater_skips::too_busy(claim);
            continue;
        };
        eprintln!(
            "{claim}: packet {wanted:.4}, netns {measured:.4}: {:+.2} %",
            (measured / wanted - 1.0) * 100.0
        );
        let verdict = &real.measured[claim].1;
        assert!(
            verdict == "pass" || [WEIGHTS, QUEUE].contains(&claim),
            "{claim}: {measured} on the netns engine"
        );
        let (below, above) = match within {
            Percent(percent) => (wanted * percent / 100.0, wanted * percent / 100.0),
            Absolute { below, above } => (below, above),
        };
        let agree = (-below..=above).contains(&(measured - wanted));
        assert!(agree, "{claim}: {measured} is not {wanted}, {below} less or {above} more");
        compared += 1;
    }
    if compared == 0 {
        headwater_skips::too_busy("for every single run; nothing was compared");
    }
}
