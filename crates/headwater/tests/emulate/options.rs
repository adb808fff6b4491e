//! Options beside the scenario: when faults begin, and how long packets may be.

use std::time::{Duration, Instant};

use headwater_experiment::scenario::Scenario;
use headwater_testbed::emulate::{EmulateError, EmulatedNet, HostFault, NetOptions};
use headwater_testbed::soft_switch::Sampling;
use rustix::time::{ClockId, clock_gettime};

use super::common::{DUMBBELL, alone, at, conserved, content, drain, net, udp};

/// Goal: a scenario's packets pass in one piece, however long.
#[test]
fn a_jumbo_packet_gets_through_unfragmented() {
    let Some(_alone) = alone() else { return };
    let net = net(&format!("packet = {{ data = \"9014 B\" }}\n{DUMBBELL}"));
    assert_eq!(net.mtu(), 9000);
    // 28 bytes of headers over IPv4, 48 over IPv6, and 14 of Ethernet.
    let mut families = vec![([net.ipv4(0), net.ipv4(1)].map(Into::into), 28)];
    families.extend(net.ipv6(0).zip(net.ipv6(1)).map(|(a, b)| ([a, b].map(Into::into), 48)));
    let (count, mut sent) = (20, 0);
    for (addresses, headers) in families {
        let [near, far] = [0, 1].map(|host| udp(net.namespace(host).unwrap(), addresses[host]));
        let wanted: Vec<_> = (0..count).map(|number| content(number, 9000 - headers)).collect();
        wanted.iter().for_each(|bytes| _ = near.send_to(bytes, at(addresses[1])).unwrap());
        assert_eq!(drain(&far, Duration::from_millis(400)), wanted);
        sent += u64::from(count);
    }
    let seen = net.switch().snapshot().unwrap();
    conserved(&seen);
    let middle = seen.links[net.link("left-right").unwrap().index()].port;
    assert_eq!((middle.frames_out, middle.bytes_out.get()), (sent, sent * 9014));
    assert!(seen.ports.iter().all(|port| port.too_long + port.refused == 0), "{:?}", seen.ports);
}

/// Goal: what is longer than any frame is refused, with the longest.
#[test]
fn packets_longer_than_jumbo_are_refused() {
    let text = format!("packet = {{ data = \"9015 B\" }}\n{DUMBBELL}");
    let error = EmulatedNet::build(&Scenario::of_network(&text).unwrap(), 1).unwrap_err().to_string();
    assert!(error.contains("9014"), "{error}");
}

const FAULTS: &str = r#"
    [[faults]]
    on = "link left-right"
    what = { kind = "link-down" }
    at = "300 ms"
    until = "600 ms"
    [[faults]]
    on = "host 1"
    what = { kind = "host-pause" }
    at = "1 s"
    until = "2 s"
    [[faults]]
    on = "host 0"
    what = { kind = "host-restart" }
    at = "1500 ms"
"#;

/// Goal: faults wait for the beginning, which is one moment on the switch's clock and on the machine's; those on hosts
/// are told to the caller, who runs programs there.
#[test]
fn held_faults_happen_at_their_times_since_the_beginning() {
    let Some(_alone) = alone() else { return };
    let scenario = Scenario::of_network(&format!("{DUMBBELL}{FAULTS}")).unwrap();
    assert!(matches!(EmulatedNet::build(&scenario, 1), Err(EmulateError::HostFault)));
    let options = NetOptions { hold_faults: true, ..NetOptions::default() };
    let net = EmulatedNet::build_with(&scenario, 1, &options).unwrap();
    let ms = headwater_units::Duration::from_millis;
    assert_eq!(
        net.host_faults(),
        [
            (ms(1000), HostFault::Pause(1)),
            (ms(1500), HostFault::Restart(0)),
            (ms(2000), HostFault::Resume(1))
        ]
    );

    let [near, far] = [0, 1].map(|host| udp(net.namespace(host).unwrap(), net.ipv4(host).into()));
    // A datagram each 5 ms, or later, for the time `span`. By number, the milliseconds since the beginning: whether it
    // arrives.
    let send_for = |span: Duration, since: Instant| {
        let (first, mut sent) = (since.elapsed(), Vec::new());
        while since.elapsed() < first + span {
            let number = since.elapsed().as_millis() as u32;
            near.send_to(&content(number, 100), at(net.ipv4(1).into())).unwrap();
            sent.push(number);
            std::thread::sleep(Duration::from_millis(5));
        }
        let arrived = drain(&far, Duration::from_millis(100));
        let arrived: Vec<_> =
            arrived.iter().map(|it| u32::from_be_bytes(it[..4].try_into().unwrap())).collect();
        sent.into_iter().map(|number| (number, arrived.contains(&number))).collect::<Vec<_>>()
    };
    // Later than the fault would have been without holding it, and nothing is missing.
    let before = Instant::now();
    let sent = send_for(Duration::from_millis(800), before);
    assert!(sent.iter().all(|(_, arrived)| *arrived), "{sent:?}");

    let monotonic = || {
        let now = clock_gettime(ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let links = vec![net.link("left-right").unwrap()];
    let earlier = monotonic();
    let begin = net.begin().unwrap();
    let since = Instant::now();
    assert!((earlier..=monotonic()).contains(&begin.monotonic_ns), "{begin:?}");
    net.switch().sample(Sampling { every: ms(10), links, most: 1000 }).unwrap();
    let sent = send_for(Duration::from_millis(900), since);
    // 10.2 ms from the sender to the end of the link that goes down. Around both moments it depends on who was late.
    let should_arrive = |number: u32| match number {
        0..270 | 650.. => Some(true),
        305..585 => Some(false),
        _ => None,
    };
    for (number, arrived) in &sent {
        assert!(should_arrive(*number).is_none_or(|should| should == *arrived), "{number} in {sent:?}");
    }
    assert!(sent.iter().any(|(number, _)| should_arrive(*number) == Some(false)), "{sent:?}");
    let samples = net.switch().take_samples().unwrap();
    assert!(samples.iter().all(|it| it.at >= begin.switch), "{begin:?} {:?}", samples[0]);
    // Both clocks run alike: the switch's says now what the machine's does.
    let (seen, now) = (net.switch().snapshot().unwrap(), monotonic());
    let passed = seen.at.since(begin.switch).as_nanos();
    assert!(passed <= now - begin.monotonic_ns && now - begin.monotonic_ns - passed < 1_000_000_000);
    conserved(&seen);
}
