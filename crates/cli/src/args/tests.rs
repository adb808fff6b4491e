use clap::CommandFactory;

use super::*;

fn parsed(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("headwater").chain(line.split_whitespace()))
}

#[test]
fn the_definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn every_option_and_command_says_what_it_does() {
    fn check(command: &clap::Command) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
        }
        command.get_subcommands().for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn every_setting_that_is_a_flag_reaches_its_layer() {
    let flags = "--state s --json --progress none --controller h --pin 0000000000000000000000000000000000000000000000000000000000000001 \
        --node-name n --listen :1 --uplink 1Mbit/s --downlink 2Mbit/s --rack r --label zone=eu --data-port 5 --limit 3Mbit/s --gentle --dscp 4 --dscp-control 48 --dscp-levels 3,2,1 --dscp-trimmed 7 --mtu 1500 --loss-response ignore \
        --max-sources 2 --groups none --equal-theta --metrics :2 --drain 5s --log-level debug --log-format json --quota 1G --timeout 3s --spread residue --theta 2";
    let cli = parsed(&format!("config {flags}")).unwrap();
    let mut layer = Layer::default();
    cli.global.fill(&mut layer);
    cli.command.fill(&mut layer);
    assert!(layer.written().iter().all(Option::is_some), "{layer:?}");
}

#[test]
fn common_options_may_stand_before_or_after_the_command() {
    for line in ["--json --state s ls", "ls --state s --json"] {
        let cli = parsed(line).unwrap();
        assert_eq!((cli.global.json, cli.global.state), (Some(true), Some("s".into())));
    }
    assert_eq!(parsed("ls --json=false").unwrap().global.json, Some(false));
}

#[test]
fn the_commands_of_the_comparison_bench_parse() {
    for line in [
        "controller --listen 10.77.0.1:7000 --state /d/hw",
        "status --controller 10.77.0.1:7000 --state /d/hw --json",
        "serve --controller 10.77.0.1:7000 --listen 10.77.0.11:7001 --state /d/hw /d/object.bin",
        "ls --controller 10.77.0.1:7000 --state /d/hw --json",
        "get object.bin --controller 10.77.0.1:7000 --state /d/hw -o /d/out",
        #[cfg(feature = "laboratory")]
        "demo --rates 100,100,300 --loss 1% --kill 2@2s --json",
    ] {
        parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn the_commands_of_an_experiment_parse() {
    let measured = "--timeline t.csv --timeline-every 1ms --tuning t.toml --dscp-control 48";
    for line in [
        format!("get x --from a --spread equal --wait-for-start {measured}"),
        format!("serve x {measured}"),
        format!("node --join a {measured}"),
        format!("up {measured}"),
        "controller --tuning t.toml --equal-theta".to_owned(),
    ] {
        parsed(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    assert!(parsed("get x --from a --timeline-every 1ms").is_err(), "an interval of nothing");
}

#[test]
fn a_get_names_sources_or_a_controller_but_not_both() {
    assert!(parsed("get x --from a,b --controller c").is_err());
    let Command::Get(args) = parsed("get x --from a,b:9").unwrap().command else { panic!("not a get") };
    assert_eq!(args.from.len(), 2);
}

#[test]
fn a_machine_has_a_name_and_so_has_what_it_serves() {
    let name = |line: &str| {
        let mut layer = Layer::default();
        parsed(line).unwrap().command.fill(&mut layer);
        layer.node_name.map(|name| name.0)
    };
    for line in [
        "up --name red",
        "node --join h --name red",
        "node --join h --node-name red",
        "serve f --name object --node-name red",
    ] {
        assert_eq!(name(line).as_deref(), Some("red"), "{line}");
    }
    assert_eq!(name("serve f --name object"), None);
    for wrong in ["", "a,b", "a\nb"] {
        assert!(Cli::try_parse_from(["headwater", "up", "--name", wrong]).is_err(), "{wrong:?}");
    }
}
