//! Casts by whole nodes and the product's controller, in the packet simulator.

use headwater_experiment::run::{CastError, CastSpec, CastStage, run_cast};
use headwater_experiment::scenario::{Scenario, ScenarioError, Scheme};
use headwater_experiment::table::Table;
use headwater_experiment::workload::WorkloadError;
use headwater_sim::packet::cast::{CastOutcome, ReceiverRow};
use headwater_units::{Duration, Time};
use headwater_wire::CastRoute;

/// Hosts on one switch, each with a link of 20 Mbit/s: a MiB takes 0.46 s.
fn star(hosts: u32, rest: &str) -> String {
    format!(
        "fabric = {{ kind = 'big-switch', hosts = {hosts}, rate = '20 Mbit/s', delay = '50 us' }}\n{rest}"
    )
}

fn cast(text: &str, seed: u64) -> CastOutcome {
    let spec = CastSpec::of_text(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    run_cast(&spec, seed).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn overlay(receivers: u32, seed: u64) -> CastOutcome {
    cast(&star(receivers + 1, "[cast]\nobject = '8 MiB'\nwish = 'overlay'"), seed)
}

fn row(outcome: &CastOutcome, host: u32) -> &ReceiverRow {
    outcome.receivers.iter().find(|row| row.host == host).expect("it is a receiver")
}

/// Seconds from the beginning.
fn finished(outcome: &CastOutcome, host: u32) -> f64 {
    let row = row(outcome, host);
    let finished = row.finished.unwrap_or_else(|| panic!("host {host} has it: {row:?}"));
    finished.since(headwater_units::Time::ZERO).as_secs_f64()
}

/// Completion time of the others when one receiver is out of reach: they must not wait for that one.
fn last_but(outcome: &CastOutcome, but: u32) -> f64 {
    let others = outcome.receivers.iter().map(|row| row.host).filter(|host| *host != but);
    others.map(|host| finished(outcome, host)).fold(0.0, f64::max)
}

#[test]
fn an_overlay_takes_little_longer_than_one_copy_and_its_source_sends_little_more() {
    for receivers in [4, 8, 16] {
        let outcome = overlay(receivers, 1);
        let (stretch, copies) = (outcome.stretch(), outcome.copies);
        println!("{receivers} receivers: {stretch:.3} of one copy's time, {copies:.3} copies");
        assert!(outcome.is_complete(), "{:?}", outcome.receivers);
        assert!(matches!(outcome.route, Some(CastRoute::Overlay { .. })), "{:?}", outcome.route);
        assert_eq!(outcome.controller.casts_overlaid, 1);
        assert!((1.0..1.3).contains(&stretch), "{receivers} receivers: {stretch}");
        assert!((1.0..1.2).contains(&copies), "{receivers} receivers: {copies}");
    }
}

/// Each receiver passes about one copy on. What it sends beside that is ACKs, and those take the uplink of a slow link away.
#[test]
fn acks_cost_a_slow_uplink_little() {
    let star = star(17, "[cast]\nobject = '8 MiB'\nwish = 'overlay'").replace("20 Mbit/s", "5 Mbit/s");
    let outcome = cast(&star, 1);
    assert!(outcome.is_complete(), "{:?}", outcome.receivers);
    assert!((1.0..1.05).contains(&outcome.host_copies), "{}", outcome.host_copies);
}

#[test]
fn the_same_seed_is_the_same_cast() {
    let outcome = overlay(6, 7);
    assert_eq!(outcome, overlay(6, 7));
    assert_ne!(outcome.events, overlay(6, 8).events);
}

#[test]
fn a_receiver_that_dies_keeps_nobody_else_from_the_object() {
    let text = star(
        9,
        "faults = [{ at = '1 s', on = 'host 4', what = { kind = 'host-kill' } }]\n[cast]\nobject = '8 MiB'\nwish = 'overlay'",
    );
    let outcome = cast(&text, 1);
    assert_eq!(row(&outcome, 4).failed.as_deref(), Some("it died"));
    // Receivers that were served by it are served by others within the 1.5 s after which a flow counts as silent.
    let (last, one) = (last_but(&outcome, 4), outcome.one_copy.as_secs_f64());
    assert!(last < one * 1.3 + 1.5, "the last has it after {last} s, one copy takes {one} s");
    assert!(outcome.copies < 1.3, "{}", outcome.copies);
}

#[test]
fn a_receiver_that_is_frozen_for_a_while_comes_after_the_others() {
    for wish in ["overlay", "multicast"] {
        let text = star(
            9,
            &format!(
                "faults = [{{ at = '1 s', until = '4 s', on = 'host 4', what = {{ kind = 'host-pause' }} }}]\n\
                 [cast]\nobject = '8 MiB'\nwish = '{wish}'"
            ),
        );
        let outcome = cast(&text, 1);
        let (last, one) = (last_but(&outcome, 4), outcome.one_copy.as_secs_f64());
        let (late, copies) = (finished(&outcome, 4), outcome.copies);
        println!("{wish}: the others {last:.2} s, the frozen one {late:.2} s, {copies:.3} copies");
        assert!(outcome.is_complete());
        assert!(last < one * 1.3 + 2.0, "{wish}: the others wait until {last} s; one copy takes {one} s");
        assert!(late > 4.0 && late < 4.0 + 2.0 * one, "{wish}: the frozen one has it after {late} s");
        assert!(copies < 2.0, "{wish}: {copies}");
    }
}

#[test]
fn who_was_killed_and_starts_anew_is_invited_again() {
    let text = star(
        5,
        "faults = [{ at = '1 s', until = '2 s', on = 'host 2', what = { kind = 'host-kill' } }]\n\
         [cast]\nobject = '8 MiB'\nwish = 'overlay'",
    );
    let outcome = cast(&text, 1);
    let (last, late) = (last_but(&outcome, 2), finished(&outcome, 2));
    let one = outcome.one_copy.as_secs_f64();
    // Its finished blocks are still there.
    assert!(last < late && late < 2.0 + 1.5 * one, "the others {last} s, it {late} s");
}

#[test]
fn a_get_joins_a_cast_that_is_under_way() {
    let text = star(6, "[cast]\nobject = '8 MiB'\nwish = 'overlay'\ngets = [{ host = 5, at = '1500 ms' }]");
    let outcome = cast(&text, 1);
    assert!(outcome.is_complete());
    assert_eq!(outcome.controller.overlays_joined, 1);
    assert!(outcome.copies < 1.3, "the others serve it: {} copies", outcome.copies);
}

#[test]
fn several_gets_of_one_object_come_to_be_one() {
    let gets: Vec<String> =
        (1..=5).map(|host| format!("{{ host = {host}, at = '{} ms' }}", host * 20)).collect();
    let text = star(6, &format!("[cast]\nobject = '8 MiB'\nreceivers = []\ngets = [{}]", gets.join(", ")));
    let outcome = cast(&text, 1);
    assert!(outcome.is_complete());
    assert!(outcome.controller.swarms_overlaid >= 1, "{:?}", outcome.controller);
    assert!(outcome.copies < 1.5, "{}", outcome.copies);
}

#[test]
fn a_group_gets_each_symbol_once() {
    let outcome = cast(&star(9, "[cast]\nobject = '8 MiB'\nwish = 'multicast'"), 1);
    assert!(outcome.is_complete());
    assert!(matches!(outcome.route, Some(CastRoute::Multicast { members: 8, .. })), "{:?}", outcome.route);
    assert!(outcome.stretch() < 1.1 && outcome.copies < 1.05, "{} {}", outcome.stretch(), outcome.copies);
}

/// Ports that grant rates (PAM), those of hosts too.
const GRANTS: &str = "port = { queue = '200 packets', mark_threshold = 'none', \
    allocator = { variant = 'simple', round_trip = '2 ms' } }";

fn at_computed_rates(receivers: u32, faults: &str) -> CastOutcome {
    let rest = format!("{GRANTS}\n{faults}\n[cast]\nobject = '8 MiB'\nwish = 'rates'");
    cast(&star(receivers + 1, &rest), 1)
}

#[test]
fn the_product_s_controller_opens_groups_at_computed_rates() {
    for receivers in [1, 4, 8] {
        let outcome = at_computed_rates(receivers, "");
        println!("{receivers}: {:.3} of one copy's time, {:.3} copies", outcome.stretch(), outcome.copies);
        assert!(outcome.is_complete(), "{:?}", outcome.receivers);
        let members = receivers as u16;
        assert!(
            matches!(outcome.route, Some(CastRoute::Rates { members: m, .. }) if m == members),
            "{:?}",
            outcome.route
        );
        assert_eq!((outcome.controller.casts_grouped, outcome.controller.casts_unscheduled), (1, 0));
        assert!(outcome.stretch() < 1.1 && outcome.copies < 1.05, "{} {}", outcome.stretch(), outcome.copies);
        assert_eq!(outcome.dropped, 0);
    }
}

#[test]
fn a_frozen_or_killed_receiver_holds_up_no_computed_rate_for_long() {
    for (kind, has_it) in [("host-pause", true), ("host-kill", false)] {
        let until = if has_it { ", until = '2300 ms'" } else { "" };
        let fault =
            format!("faults = [{{ at = '1 s'{until}, on = 'host 4', what = {{ kind = '{kind}' }} }}]");
        let outcome = at_computed_rates(4, &fault);
        let others = last_but(&outcome, 4);
        println!("{kind}: others at {others:.2} s, {:?}", row(&outcome, 4));
        // Half a second until it is left behind.
        assert!(others < 1.1 * outcome.one_copy.as_secs_f64() + 0.7, "{kind}: {others}");
        assert_eq!(row(&outcome, 4).finished.is_some(), has_it, "{kind}: {:?}", row(&outcome, 4));
    }
}

#[test]
fn computed_rates_are_refused_where_ports_grant_none() {
    let outcome = cast(&star(4, "[cast]\nobject = '1 MiB'\nwish = 'rates'"), 1);
    assert!(outcome.receivers.iter().all(|row| row.failed.as_deref() == Some("Unscheduled(NotStated)")));
}

#[test]
fn a_bcube_gets_it_down_two_trees_from_hosts_that_hand_on() {
    let text = "fabric = { kind = 'bcube', n = 4, k = 1, rate = '20 Mbit/s', delay = '50 us' }\n\
                [cast]\nobject = '8 MiB'\nwish = 'trees'";
    let outcome = cast(text, 1);
    assert!(outcome.is_complete());
    assert!(
        matches!(outcome.route, Some(CastRoute::Trees { trees: 2, members: 15, .. })),
        "{:?}",
        outcome.route
    );
    assert!(outcome.stretch() < 1.2 && outcome.copies < 1.05, "{} {}", outcome.stretch(), outcome.copies);
}

/// One object of 8 blocks by an overlay to hosts 1 to 4, while this goes wrong; until all are at rest.
fn overlay_while(fault: &str) -> CastOutcome {
    let text = "[cast]\nobject = '2 MiB'\nwish = 'overlay'\ndrain = '60 s'";
    let outcome = cast(&star(5, &format!("faults = [{fault}]\n{text}")), 1);
    assert!(outcome.left.is_empty(), "{fault}: {:?}", outcome.left);
    outcome
}

/// Goal: nodes that the controller still hears, and nobody else does, keep no others from the object. Some stripes come to the source's
/// rack by way of the other one, which has more nodes than a receiver can try in its patience.
#[test]
fn a_rack_that_is_cut_off_keeps_no_other_from_the_object() {
    let text = "fabric = { kind = 'leaf-spine', leaves = 2, spines = 1, hosts_per_leaf = 12, rate = '20 Mbit/s', \
                    fabric_rate = '240 Mbit/s', delay = '50 us' }\n\
                faults = [{ at = '400 ms', on = 'link leaf0-spine0', what = { kind = 'link-down' } }, \
                          { at = '400 ms', on = 'link spine0-leaf0', what = { kind = 'link-down' } }]\n\
                [cast]\nobject = '2 MiB'\nsource = 23\nwish = 'overlay'\nstates_racks = true\ndrain = '60 s'";
    let outcome = cast(text, 1);
    for host in 12..=22 {
        let finished = row(&outcome, host).finished;
        assert!(finished.is_some_and(|at| at < Time::ZERO + Duration::from_secs(4)), "{host}: {finished:?}");
    }
    let failed = |host: &u32| row(&outcome, *host).failed.is_some();
    assert!((0..12).all(|host| failed(&host)), "{:?}", outcome.receivers);
    assert!(outcome.left.is_empty(), "{:?}", outcome.left);
}

#[test]
fn a_receiver_whose_disk_is_full_says_so_and_keeps_nobody_else_from_the_object() {
    let outcome = overlay_while("{ at = '300 ms', on = 'host 4', what = { kind = 'disk-full' } }");
    assert_eq!(row(&outcome, 4).failed.as_deref(), Some("the disk is full"));
    assert!((1..=3).all(|host| row(&outcome, host).finished.is_some()), "{:?}", outcome.receivers);
}

#[test]
fn a_slow_disk_and_what_comes_twice_or_damaged_keep_nobody_from_the_object() {
    for what in [
        "kind = 'disk-late', by = '200 ms'",
        "kind = 'replay', p = 0.3, by = '100 ms'",
        "kind = 'corrupt', p = 0.2",
    ] {
        let outcome = overlay_while(&format!("{{ until = '2 s', on = 'host 4', what = {{ {what} }} }}"));
        assert!(outcome.is_complete() && outcome.distrusted.is_empty(), "{what}: {:?}", outcome.receivers);
    }
}

#[test]
fn a_relay_that_lies_is_the_only_one_who_is_not_believed() {
    let outcome = overlay_while("{ on = 'host 4', what = { kind = 'wrong-symbols', p = 0.5 } }");
    assert!(outcome.is_complete(), "{:?}", outcome.receivers);
    assert!(outcome.distrusted.iter().all(|(_, whom)| *whom == 4), "{:?}", outcome.distrusted);
}

#[test]
fn where_only_a_liar_has_it_nobody_gets_it_and_everybody_knows_why() {
    let outcome = overlay_while("{ on = 'host 0', what = { kind = 'wrong-symbols', p = 0.5 } }");
    for row in &outcome.receivers {
        assert!(row.finished.is_none() && row.failed.is_some(), "{row:?}");
    }
    assert!(outcome.distrusted.iter().any(|(_, whom)| *whom == 0), "{:?}", outcome.distrusted);
}

#[test]
fn a_cast_goes_on_when_its_controller_has_started_anew_whatever_that_has_kept() {
    for forgets in [false, true] {
        let outcome = overlay_while(&format!(
            "{{ at = '300 ms', on = 'controller', what = {{ kind = 'controller-restart', forgets = {forgets} }} }}"
        ));
        assert!(outcome.is_complete(), "forgets {forgets}: {:?}", outcome.receivers);
        assert_eq!(outcome.controller.tasks_restored > 0, !forgets);
    }
}

/// Two racks of four hosts; a MiB takes 0.46 s.
fn racks(rest: &str) -> String {
    let fabric = "{ kind = 'leaf-spine', leaves = 2, hosts_per_leaf = 4, spines = 2, rate = '20 Mbit/s', \
                  fabric_rate = '80 Mbit/s', delay = '50 us' }";
    format!("fabric = {fabric}\n{rest}\n[cast]\nobject = '8 MiB'\nwish = 'overlay'\nstates_racks = true")
}

#[test]
fn a_rack_that_is_cut_off_for_a_while_comes_after_the_others_with_the_object_whole() {
    let cut = "faults = [{ at = '1 s', until = '2 s', on = 'rack 1', what = { kind = 'rack-cut' } }]";
    let (whole, outcome) = (cast(&racks(""), 1), cast(&racks(cut), 1));
    assert!(outcome.is_complete(), "{:?}", outcome.receivers);
    let last = |of: &CastOutcome, hosts: std::ops::RangeInclusive<u32>| {
        hosts.map(|host| finished(of, host)).fold(0.0, f64::max)
    };
    assert!(last(&outcome, 4..=7) > last(&whole, 4..=7) + 0.4, "{:?}", outcome.receivers);
    assert!(last(&outcome, 1..=3) < last(&outcome, 4..=7), "{:?}", outcome.receivers);
}

#[test]
fn a_share_of_the_hosts_dies_as_the_seed_draws_and_the_others_have_the_object() {
    let drawn =
        "drawn_faults = [{ share = 0.2, from = '500 ms', to = '3 s', what = { kind = 'host-kill' } }]";
    let dead = |seed| -> Vec<u32> {
        let outcome = cast(&racks(drawn), seed);
        let dead = outcome.receivers.iter().filter(|row| row.finished.is_none());
        dead.map(|row| row.host).collect()
    };
    let all: Vec<Vec<u32>> = (1..=3).map(dead).collect();
    assert!(all.iter().all(|dead| dead.len() == 2), "{all:?}");
    assert!(all.iter().any(|dead| *dead != all[0]), "{all:?}");
    assert_eq!(all[0], dead(1));
}

#[test]
fn faults_of_racks_and_drawn_faults_are_read_written_and_refused_with_words() {
    let wrong = |faults: &str| {
        let spec = CastSpec::of_text(&racks(faults));
        spec.expect_err("it is wrong").to_string()
    };
    assert!(wrong("faults = [{ on = 'rack 2', what = { kind = 'rack-cut' } }]").contains("no rack 2"));
    assert!(
        wrong("faults = [{ on = 'host 1', what = { kind = 'rack-cut' } }]").contains("a rack, not to a host")
    );
    for (drawn, part) in [
        ("share = 2.0, to = '1 s', what = { kind = 'host-kill' }", "drawn_faults.0.share"),
        ("share = 0.5, from = '2 s', to = '1 s', what = { kind = 'host-kill' }", "drawn_faults.0.to"),
        ("share = 0.5, to = '1 s', what = { kind = 'corrupt', p = 2 }", "drawn_faults.0.what.p"),
        ("share = 0.5, to = '1 s', what = { kind = 'link-down' }", "a link, not to a host"),
    ] {
        let error = wrong(&format!("drawn_faults = [{{ {drawn} }}]"));
        assert!(error.contains(part), "{drawn}: {error}");
    }
    let good = "faults = [{ at = '1 s', on = 'rack 1', what = { kind = 'rack-cut' } }]\n\
                drawn_faults = [{ share = 0.5, to = '1 s', what = { kind = 'host-pause' } }]";
    let read = CastSpec::of_text(&racks(good)).unwrap().network;
    assert_eq!(toml::from_str::<Scenario>(&toml::to_string(&read).unwrap()).unwrap(), read);
}

#[test]
fn faults_of_casts_are_read_written_and_refused_with_words() {
    let text = |fault: &str| star(3, &format!("faults = [{{ {fault} }}]\n[cast]\nobject = '1 MiB'"));
    let wrong = |fault: &str| CastSpec::of_text(&text(fault)).expect_err("it is wrong").to_string();
    let on_link = wrong("on = 'link h0-switch', what = { kind = 'disk-full' }");
    assert!(on_link.contains("host") && on_link.contains("link"), "{on_link}");
    let on_host = wrong("on = 'host 1', what = { kind = 'controller-restart' }");
    assert!(on_host.contains("controller"), "{on_host}");
    assert!(wrong("on = 'controller', what = { kind = 'host-pause' }").contains("host"));
    assert!(wrong("on = 'host 1', what = { kind = 'replay', p = 0.6, by = '1 s' }").contains("0 to 0.5"));
    assert!(wrong("on = 'host 1', what = { kind = 'wrong-symbols', p = 2 }").contains("a probability"));
    assert!(wrong("on = 'host 1', what = { kind = 'corrupt' }").contains("p"));
    assert!(wrong("on = 'the moon', what = { kind = 'disk-full' }").contains("controller"));
    let good = text("on = 'host 1', what = { kind = 'disk-late', by = '5 ms' }");
    let read = CastSpec::of_text(&good).unwrap().network;
    assert_eq!(toml::from_str::<Scenario>(&toml::to_string(&read).unwrap()).unwrap(), read);
}

#[test]
fn what_cannot_be_cast_is_refused_before_anything_runs() {
    let wrong = |text: &str| {
        let spec = CastSpec::of_text(text);
        spec.and_then(|spec| run_cast(&spec, 1)).expect_err("it is wrong")
    };
    let object = "[cast]\nobject = '1 MiB'";
    assert!(matches!(
        wrong(&star(3, &format!("{object}\nsource = 3"))),
        CastError::Workload(WorkloadError::NoHost { host: 3, .. })
    ));
    assert!(matches!(
        wrong(&star(3, &format!("{object}\nreceivers = [1, 1]"))),
        CastError::Workload(WorkloadError::HostTwice { host: 1, .. })
    ));
    assert!(wrong(&star(3, &format!("{object}\nwish = 'pigeons'"))).to_string().contains("pigeons"));
    assert!(wrong(&star(3, "")).to_string().contains("object"));
    assert!(matches!(
        wrong(&star(3, &format!("{object}\nholders = [0]"))),
        CastError::Workload(WorkloadError::HostTwice { host: 0, .. })
    ));
    let get = "gets = [{ host = 1, at = '1 s', by = 'pigeon' }]";
    assert!(wrong(&star(3, &format!("{object}\n{get}"))).to_string().contains("pigeon"));
    let group = wrong(&star(66, &format!("{object}\nwish = 'multicast'")));
    assert!(group.to_string().contains("at most 64 members"), "{group}");
}

#[test]
fn a_job_of_the_scheme_cast_has_a_row_for_each_receiver_and_what_left_the_source() {
    let scenario = |more: &str| -> Scenario {
        toml::from_str(&format!(
            "scheme = 'cast'\n{}\n[workload]\nkind = 'cast'\nobject = '1 MiB'\nwish = 'overlay'\ncontroller = 4",
            star(5, more)
        ))
        .unwrap()
    };
    let good = scenario("transport = { machines = 'product' }");
    good.check().unwrap();
    assert_eq!(scenario("").check(), Err(ScenarioError::CastMachines));
    let pushed = Scenario { scheme: Scheme::TABLE_II[0], ..good.clone() };
    assert_eq!(pushed.check(), Err(ScenarioError::NotCast(Scheme::TABLE_II[0])));

    let stage = CastStage::new(&good).unwrap();
    let done = |host: u32, ms: u64| (host, Time::ZERO, Some(Time::ZERO + Duration::from_millis(ms)));
    let tables = stage.tables(vec![done(1, 500), done(2, 900), (3, Time::ZERO, None)], 1.5, &[]);
    let column = |table: &Table, name: &str| -> Vec<f64> {
        (0..table.rows()).map(|row| table.column(name).unwrap().number(row).unwrap()).collect()
    };
    let measure = |name: &str| {
        let names = tables.measures.column("name").unwrap();
        let row = (0..tables.measures.rows()).find(|row| names.is(*row, name)).unwrap();
        tables.measures.column("value").unwrap().number(row).unwrap()
    };
    // A copy of 1 MiB is 737 symbols of 1424 B with 114 B around each, at 20 Mbit/s.
    let one_copy = 737.0 * (1424.0 + 48.0 + 28.0 + 38.0) * 8.0 / 20e6;
    assert!((measure("one_copy_s") / one_copy - 1.0).abs() < 1e-3, "{} {one_copy}", measure("one_copy_s"));
    assert_eq!(column(&tables.tasks, "receiver"), [1.0, 2.0, 3.0]);
    assert_eq!(column(&tables.tasks, "tct_s")[..2], [0.5, 0.9]);
    assert!(column(&tables.tasks, "tct_s")[2].is_nan() && measure("stretch").is_nan(), "one has it not");
    assert_eq!(measure("copies"), 1.5);
}
