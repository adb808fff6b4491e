//! From flags and settings to what a command acts on; checks that look at more than one of them.

#[cfg(feature = "laboratory")]
mod demo;

use std::collections::BTreeMap;
use std::path::PathBuf;

use headwater_api::{
    CONTROLLER_PORT, Cast, CoflowPolicy, Common, Config, ControllerAt, ControllerOptions, ControllerSettings,
    Experiments, ForgetOptions, GcOptions, Get, NODE_PORT, NodeKind, Output, Put, QueryOptions, Reload,
    RmOptions, Rollout, ServeOptions, Where,
};
use headwater_experiment::scenario::{self, TransportSpec};
use headwater_units::{BitRate, Duration};
use headwater_wire::{CastWish, Class, CodePoints, SpreadRule};

use super::args::{
    CastArgs, CoflowFlag, CoflowOrder, ControllerArgs, ForgetArgs, GcArgs, GetArgs, NodeArgs, PlanArgs,
    PutArgs, RmArgs, ServeArgs, TimelineFlags, TuningFlag, UpArgs, WhomFlags,
};
use super::experiments;
use super::network;
use super::settings::{Origin, Settings};
use super::usage::UsageError;
use super::values::labels::Labels;
use super::values::waves;
use super::values::{LossResponse, Spread, Theta, Via};

/// A rack with what its uplink carries, and labels.
type Standing = (Option<(String, Option<BitRate>)>, BTreeMap<String, String>);

/// How long `ls`, `rm` and `status` wait for an answer unless told otherwise.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A packet of Ethernet's size each second: with less, receivers take a source for gone.
const LEAST_LIMIT: BitRate = BitRate::new(12_000);

/// Options of a `get`, and of the node that does it.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) by: Config,
    pub(crate) get: Get,
    pub(crate) output: Output,
}

/// Nodes that an object is for, and in which waves.
fn wanted(what: &str, whom: &WhomFlags) -> Result<Cast, UsageError> {
    if whom.is_empty() {
        return wrong(format!(
            "{what} to whom? Give --all (every node that keeps objects), --label KEY=VALUE, or --to NODE,... (`headwater status` lists \
             them)"
        ));
    }
    let cast = Cast::new(what, whom.receivers());
    if whom.waves.is_empty() {
        return Ok(cast);
    }
    let waves =
        waves::growing(&whom.waves).map_err(|error| UsageError::Options(format!("--waves: {error}")))?;
    let (pause, max_failures) = (whom.pause.unwrap_or_default(), whom.max_failures.unwrap_or_default());
    Ok(cast.rollout(Rollout { waves, pause, max_failures }))
}

fn wrong<T>(reason: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError::Options(reason.into()))
}

impl Settings {
    pub(crate) fn common(&self) -> Result<Common, UsageError> {
        let values = &self.values;
        let (rack, labels) = self.place()?;
        if let Some(limit) = values.limit.filter(|limit| limit.0 < LEAST_LIMIT) {
            return wrong(format!(
                "a limit of {} lets less than a packet a second through: give at least {LEAST_LIMIT}, as in --limit 50Mbit/s",
                limit.0
            ));
        }
        let usual = Common::new(self.state()?);
        Ok(Common {
            node_name: values.node_name.as_ref().map(|name| name.0.clone()),
            pin: values.pin,
            uplink: values.uplink.map(|rate| rate.0),
            downlink: values.downlink.map(|rate| rate.0),
            rack,
            labels,
            limit: values.limit.map(|rate| rate.0),
            gentle: values.gentle.unwrap_or_default(),
            dscp: self.code_points()?,
            mtu: values.mtu.map(|mtu| mtu.0),
            data_port: values.data_port.map_or(0, |port| port.0),
            loss_response_ignore: values.loss_response == Some(LossResponse::Ignore),
            patience: values.timeout.unwrap_or(usual.patience),
            patience_stated: values.timeout.is_some(),
            ..usual
        })
    }

    /// The rack, and the other labels. The label `rack` names the rack too.
    fn place(&self) -> Result<Standing, UsageError> {
        let labels = self.values.label.as_ref().map(Labels::by_key).transpose();
        let mut labels = labels.map_err(|error| UsageError::Options(error.to_string()))?.unwrap_or_default();
        let rack = self.values.rack.clone().map(|rack| (rack.name, rack.uplink));
        let rack = match (rack, labels.remove("rack")) {
            (Some((name, _)), Some(label)) if name != label => {
                return wrong(format!(
                    "--rack {name} and --label rack={label} name two racks: leave one out"
                ));
            }
            (rack, label) => rack.or_else(|| Some((label?, None))),
        };
        Ok((rack, labels))
    }

    /// A code point stated for data holds for all of it, unless told otherwise; but lower effort has its own.
    fn code_points(&self) -> Result<CodePoints, UsageError> {
        let values = &self.values;
        let (usual, bulk) = (CodePoints::default(), values.dscp.map_or(0, |dscp| dscp.0));
        let level = |place: usize, class: Class| match values.dscp_levels {
            Some(levels) => levels.0[place],
            None if self.is_chosen("dscp") => bulk,
            None => usual.of(class),
        };
        let of = |class: Class| match class {
            Class::Control => values.dscp_control.map_or(bulk, |dscp| dscp.0),
            Class::First => level(0, class),
            Class::Second => level(1, class),
            Class::Third => level(2, class),
            Class::Bulk => bulk,
            Class::Gentle => usual.of(class),
        };
        let trimmed = values.dscp_trimmed.map_or(usual.trimmed(), |dscp| dscp.0);
        CodePoints::new(of, trimmed).map_err(|error| UsageError::Options(error.to_string()))
    }

    /// As [`Settings::common`], with what these flags ask for. A value that the user set wins over constants of a
    /// paper.
    fn measured(
        &self,
        timeline: &TimelineFlags,
        tuning: &TuningFlag,
    ) -> Result<(Common, Option<TransportSpec>), UsageError> {
        let (timeline, mut tuning) = experiments::read(timeline, tuning)?;
        if let Some(tuning) = &mut tuning
            && self.is_chosen("loss-response")
        {
            tuning.loss_response = match self.values.loss_response {
                Some(LossResponse::Ignore) => scenario::LossResponse::Ignore,
                _ => scenario::LossResponse::Guarded,
            };
        }
        let common = self.common()?;
        // Then the constants say all about it.
        let loss_response_ignore = common.loss_response_ignore && tuning.is_none();
        let constants = tuning.as_ref().map(|spec| Box::new(experiments::tuning(spec)));
        let experiments = Experiments { timeline, tuning: constants };
        Ok((Common { experiments, loss_response_ignore, ..common }, tuning))
    }

    /// Whether somebody set the key, rather than nobody.
    fn is_chosen(&self, key: &str) -> bool {
        self.origin(key).is_some_and(|origin| *origin != Origin::Default)
    }

    pub(crate) fn up(&self, args: &UpArgs) -> Result<Config, UsageError> {
        // The first machine of a cluster answers where controllers are looked for.
        let controller = ControllerAt::Here(self.controller_settings(args.coflows));
        self.any_node(self.measured(&args.timeline, &args.tuning)?.0, controller, CONTROLLER_PORT)
    }

    pub(crate) fn node(&self, args: &NodeArgs) -> Result<Config, UsageError> {
        match self.controller() {
            Some(join) => {
                let controller = ControllerAt::Elsewhere(join);
                self.any_node(self.measured(&args.timeline, &args.tuning)?.0, controller, NODE_PORT)
            }
            None => wrong(
                "a node needs a controller: give --join ADDR, or use `headwater up` on the first machine",
            ),
        }
    }

    fn any_node(&self, common: Common, controller: ControllerAt, port: u16) -> Result<Config, UsageError> {
        let (metrics, drain) = (self.metrics(), self.drain());
        let kind = NodeKind::Resident { controller, listen: Some(self.listen(port)), metrics, drain };
        Ok(Config { common, quota: self.values.quota, kind })
    }

    fn controller_settings(&self, coflows: CoflowFlag) -> ControllerSettings {
        ControllerSettings {
            coflows: match coflows.coflow_order {
                CoflowOrder::Aalo => CoflowPolicy::Aalo,
                CoflowOrder::Sincronia => CoflowPolicy::Sincronia,
                CoflowOrder::Varys => CoflowPolicy::Varys,
            },
            equal_theta: self.values.equal_theta.unwrap_or_default(),
            groups: self.values.groups.clone().map(|groups| groups.0),
            max_sources: self.values.max_sources.map(|count| count.0),
        }
    }

    pub(crate) fn daemon(&self, args: &ControllerArgs) -> Result<ControllerOptions, UsageError> {
        Ok(ControllerOptions {
            common: self.measured(&TimelineFlags::default(), &args.tuning)?.0,
            listen: self.listen(CONTROLLER_PORT),
            metrics: self.metrics(),
            settings: self.controller_settings(args.coflows),
            network: args.topology.as_deref().map(network::read).transpose()?,
        })
    }

    pub(crate) fn serve(&self, args: &ServeArgs) -> Result<ServeOptions, UsageError> {
        if args.name.is_some() && args.files.len() > 1 {
            return wrong(format!("--name names one object, but {} files are given", args.files.len()));
        }
        // Only a controller that the user chose: a one-shot source does not join a cluster by itself.
        let chosen = self.origin("controller") != Some(&Origin::Daemon);
        Ok(ServeOptions {
            common: self.measured(&args.timeline, &args.tuning)?.0,
            files: args.files.clone(),
            name: args.name.clone(),
            skip_special: args.skip_special,
            times: args.keep_mtimes,
            controller: self.controller().filter(|_| chosen),
            listen: self.values.listen.map(|listen| listen.at(NODE_PORT)),
            metrics: self.metrics(),
            drain: self.drain(),
            record: args.record.clone(),
        })
    }

    pub(crate) fn get(&self, args: &GetArgs) -> Result<Wanted, UsageError> {
        let at = if !args.from.is_empty() {
            Where::From(args.from.iter().map(|address| address.with_port(NODE_PORT)).collect())
        } else if let Some(controller) = self.controller() {
            Where::Controller(controller)
        } else if !args.keep {
            Where::Here
        } else {
            return wrong(
                "who has it? Give --from ADDR,... (sources) or --controller ADDR; no daemon of this state folder named one",
            );
        };
        let theta = match (self.values.theta, &at) {
            (Some(Theta::Fixed(theta)), Where::From(_)) => Some(theta),
            (Some(Theta::Fixed(_)), Where::Controller(_) | Where::Here)
                if self.origin("theta") == Some(&Origin::Flag) =>
            {
                return wrong("--theta needs --from: with a controller, the controller decides the weights");
            }
            _ => None,
        };
        let (common, tuning) = self.measured(&args.timeline, &args.tuning)?;
        let alone = match &at {
            Where::From(sources) => sources.len() == 1,
            Where::Controller(_) | Where::Here => self.values.max_sources.is_some_and(|count| count.0 == 1),
        };
        if args.what.len() > 1 {
            check_several(args)?;
        }
        let what = args.what.first().cloned().unwrap_or_default();
        // An id stands for that object and nothing else.
        let hash = args.hash.or_else(|| what.parse().ok());
        let output = match &args.output {
            None if args.keep => Output::Store,
            None => Output::Default,
            path if data_on_stdout(path.as_ref()) => Output::Stdout,
            Some(path) => Output::File(path.clone()),
        };
        let get = Get {
            hash,
            range: args.range.map(|range| (range.from, range.to)),
            sha256: args.sha256,
            overwrite: args.force,
            delivery: args.transport.delivery(common.experiments.pulled_window(alone)),
            spread: self.spread(tuning.as_ref()),
            max_sources: self.values.max_sources.map(|count| count.0),
            timeout: self.values.timeout,
            deadline: args.deadline,
            drain: !args.no_drain,
            theta,
            record: args.record.clone(),
            wait_for_line: args.wait_for_start,
            ..Get::new(what)
        };
        Ok(Wanted { by: Config::guest(common, at), get, output })
    }

    pub(crate) fn cast(&self, args: &CastArgs) -> Result<(Config, Cast), UsageError> {
        let Some(controller) = self.controller() else {
            return wrong(
                "a cast needs a controller: give --controller ADDR; no daemon of this state folder named one",
            );
        };
        let common = self.common()?;
        let cast = Cast {
            wish: match args.via {
                Via::Best => CastWish::Best,
                Via::Trees => CastWish::Trees,
                Via::Multicast => CastWish::Multicast,
                Via::Overlay => CastWish::Overlay,
                Via::Unicast => CastWish::Unicast,
                Via::Rates => CastWish::Rates,
            },
            urgency: args.standing.urgency(),
            gentle: common.gentle,
            timeout: self.values.timeout,
            ..wanted(&args.what, &args.whom)?
        };
        Ok((Config::guest(common, Where::Controller(controller)), cast))
    }

    pub(crate) fn plan(&self, args: &PlanArgs) -> Result<(QueryOptions, Cast), UsageError> {
        let cast = wanted(&args.what, &args.whom)?;
        if self.controller().is_none() {
            return wrong(
                "a plan needs a controller: give --controller ADDR; no daemon of this state folder named one",
            );
        }
        Ok((self.query()?, cast))
    }

    pub(crate) fn put(&self, args: &PutArgs) -> Result<(Config, Put), UsageError> {
        let from = match args.file.as_os_str() == "-" {
            true => Put::reader("-", std::io::stdin()),
            false => Put::path(args.file.clone()),
        };
        let put = Put {
            name: args.name.clone(),
            replace: args.replace,
            link: args.link,
            skip_special: args.skip_special,
            times: !args.no_mtimes,
            ..from
        };
        Ok((Config { quota: self.values.quota, ..Config::guest(self.common()?, Where::Here) }, put))
    }

    pub(crate) fn query(&self) -> Result<QueryOptions, UsageError> {
        let timeout = self.values.timeout.unwrap_or(ANSWER_TIMEOUT);
        Ok(QueryOptions { common: self.common()?, controller: self.controller(), timeout })
    }

    pub(crate) fn forget(&self, args: &ForgetArgs) -> Result<ForgetOptions, UsageError> {
        let Some(controller) = self.controller() else {
            return wrong(
                "which controller is to forget it? Give --controller ADDR; no daemon of this state folder named one",
            );
        };
        let timeout = self.values.timeout.unwrap_or(ANSWER_TIMEOUT);
        Ok(ForgetOptions { common: self.common()?, controller, what: args.what.clone(), timeout })
    }

    pub(crate) fn rm(&self, args: &RmArgs) -> Result<RmOptions, UsageError> {
        Ok(RmOptions { common: self.common()?, what: args.what.clone() })
    }

    pub(crate) fn gc(&self, args: &GcArgs) -> Result<GcOptions, UsageError> {
        Ok(GcOptions { common: self.common()?, dry_run: args.dry_run })
    }

    /// The user's choice, else that of the constants, else the product's.
    fn spread(&self, tuning: Option<&TransportSpec>) -> SpreadRule {
        match (tuning, self.values.spread.unwrap_or_default()) {
            (Some(tuning), _) if !self.is_chosen("spread") => tuning.spread_rule(true),
            (_, Spread::Listed) => SpreadRule::Listed,
            (_, Spread::Residue) => SpreadRule::Residue,
            (_, Spread::Equal) => SpreadRule::Equal,
        }
    }

    /// The controller as `host:port`.
    fn controller(&self) -> Option<String> {
        self.values.controller.as_ref().map(|address| address.with_port(CONTROLLER_PORT))
    }

    fn listen(&self, port: u16) -> std::net::SocketAddr {
        self.values.listen.map_or_else(|| headwater_api::wildcard(port), |listen| listen.at(port))
    }

    pub(crate) fn drain(&self) -> Duration {
        self.values.drain.unwrap_or(Duration::ZERO)
    }

    /// Settings that a running daemon can take over.
    pub(crate) fn reload(&self) -> Result<Reload, UsageError> {
        let Common { limit, gentle, rack, labels, .. } = self.common()?;
        Ok(Reload { limit, gentle, rack, labels, quota: self.values.quota, drain: self.drain() })
    }

    fn metrics(&self) -> Option<std::net::SocketAddr> {
        self.values.metrics.map(|address| address.at(METRICS_PORT))
    }
}

/// Where Prometheus looks for exporters that have no port of their own in its list (as OpenTelemetry's does).
const METRICS_PORT: u16 = 9464;

/// Whether `get` writes the object itself to standard output.
pub(crate) fn data_on_stdout(output: Option<&PathBuf>) -> bool {
    const NAMES: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];
    output.is_some_and(|path| NAMES.iter().any(|name| path.as_os_str() == *name))
}

/// Checks the options of a get of several objects: the output is a folder, and no option is about a single one.
fn check_several(args: &GetArgs) -> Result<(), UsageError> {
    if let Some(path) = &args.output
        && !path.is_dir()
        && !path.as_os_str().as_encoded_bytes().ends_with(b"/")
    {
        return wrong(format!(
            "several objects go into a folder: -o {}/ makes one there, without -o they come into this one",
            path.display()
        ));
    }
    let of_one = [
        ("--hash", args.hash.is_some()),
        ("--range", args.range.is_some()),
        ("--wait-for-start", args.wait_for_start),
    ];
    match of_one.iter().find(|(_, given)| *given) {
        Some((flag, _)) => wrong(format!("{flag} is said of one object, but several are asked for")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::args::{Cli, Command};
    use super::super::settings::Layer;
    use super::*;
    use headwater_api::Receivers;

    pub(super) fn settings(line: &str) -> (Settings, Command) {
        let line = format!("headwater {line} --state /nonexistent/headwater");
        let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
        let mut flags = Layer::default();
        cli.global.fill(&mut flags);
        cli.command.fill(&mut flags);
        // An empty config file of our own: the user's must not matter here.
        let config = tempfile::NamedTempFile::new().unwrap();
        (Settings::gather(Some(config.path().to_owned()), flags).unwrap(), cli.command)
    }

    fn get(line: &str) -> Result<Wanted, UsageError> {
        match settings(line) {
            (settings, Command::Get(args)) => settings.get(&args),
            _ => panic!("not a get"),
        }
    }

    fn at(wanted: Wanted) -> Where {
        match wanted.by.kind {
            NodeKind::Guest(at) => at,
            NodeKind::Resident { .. } => panic!("a get serves nobody"),
        }
    }

    #[test]
    fn a_get_asks_sources_at_their_port_and_controllers_at_theirs() {
        let at = |line| at(get(line).unwrap());
        assert_eq!(at("get x --from a,b:9"), Where::From(vec!["a:7001".into(), "b:9".into()]));
        assert_eq!(at("get x --controller c"), Where::Controller("c:7000".into()));
    }

    #[test]
    fn a_fixed_weight_needs_a_receiver_that_plans_for_itself() {
        assert_eq!(get("get x --from a --theta 4").unwrap().get.theta, Some(4.0));
        assert_eq!(get("get x --from a --theta auto").unwrap().get.theta, None);
        assert!(get("get x --controller a --theta 4").is_err());
    }

    #[test]
    fn symbols_are_spread_as_chosen_or_as_the_constants_say_or_as_usual() {
        let spread = |line: &str| get(&format!("get x --from a {line}")).unwrap().get.spread;
        assert_eq!(spread(""), SpreadRule::Listed);
        assert_eq!(spread("--spread equal"), SpreadRule::Equal);
        assert_eq!(spread("--tuning gain=0.0625"), SpreadRule::Residue);
        assert_eq!(spread("--tuning assignment='listed'"), SpreadRule::Listed);
        assert_eq!(spread("--tuning gain=0.0625 --spread listed"), SpreadRule::Listed);
    }

    #[test]
    fn a_chosen_response_to_loss_wins_over_constants() {
        let response = |line: &str| {
            let common = get(&format!("get x --from a {line}")).unwrap().by.common;
            let tuning = common.experiments.tuning;
            (tuning.map(|tuning| tuning.source.push.wfcc.loss_response), common.loss_response_ignore)
        };
        use headwater_transport::push::wfcc::LossGuard;
        use headwater_transport::push::wfcc::LossResponse::{Guarded, Ignore};
        let guarded = Guarded(LossGuard::default());
        assert_eq!(response("--loss-response ignore"), (None, true));
        assert_eq!(response("--tuning gain=0.0625"), (Some(Ignore), false));
        assert_eq!(response("--tuning gain=0.0625 --loss-response guarded"), (Some(guarded), false));
        assert_eq!(
            response("--tuning loss_response='guarded' --loss-response ignore"),
            (Some(Ignore), false)
        );
    }

    #[test]
    fn a_rack_is_a_label_and_there_is_one() {
        let place = |line: &str| {
            let common = get(&format!("get x --from a {line}")).map_err(|error| error.to_string())?.by.common;
            let labels: Vec<String> =
                common.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Ok::<_, String>((common.rack.map(|(name, _)| name), labels))
        };
        let rack = Some("r1".to_owned());
        assert_eq!(place(""), Ok((None, vec![])));
        assert_eq!(place("--label rack=r1 --label zone=eu"), Ok((rack.clone(), vec!["zone=eu".to_owned()])));
        assert_eq!(place("--rack r1=10Gbit/s --label rack=r1"), Ok((rack.clone(), vec![])));
        assert_eq!(
            place("--rack r1 --label zone=eu,disk=ssd").map(|(rack, labels)| (rack, labels.len())),
            Ok((rack, 2))
        );
        assert!(place("--rack r1 --label rack=r2").unwrap_err().contains("name two racks"));
        assert!(place("--label zone=eu --label zone=us").unwrap_err().contains("both 'eu' and 'us'"));
    }

    #[test]
    fn a_cast_is_for_all_or_for_names_or_for_labels() {
        let receivers = |line: &str| match settings(&format!("cast x --controller c {line}")) {
            (settings, Command::Cast(args)) => settings.cast(&args).unwrap().1.to,
            _ => panic!("not a cast"),
        };
        assert_eq!(receivers("--all"), Receivers::All);
        assert_eq!(receivers("--to a,b"), Receivers::Named(vec!["a".into(), "b".into()]));
        let labels = vec![("rack".into(), "r1".into()), ("zone".into(), "eu".into())];
        assert_eq!(receivers("--label rack=r1 --label zone=eu"), Receivers::Labelled(labels));
        let (settings, Command::Cast(args)) = settings("cast x --controller c") else { panic!("not a cast") };
        let nobody = settings.cast(&args).unwrap_err().to_string();
        assert!(["--all", "--label", "--to"].iter().all(|flag| nobody.contains(flag)), "{nobody}");
        for line in ["--all --to a", "--all --label a=b", "--to a --label a=b", "--label a"] {
            let line = format!("headwater cast x {line}");
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }

    #[test]
    fn acks_have_the_code_point_of_data_unless_told_otherwise() {
        let dscp = |line: &str| {
            let common = get(&format!("get x --from a {line}")).unwrap().by.common;
            (common.dscp.of(Class::Bulk), common.dscp.of(Class::Control))
        };
        assert_eq!(dscp(""), (0, 0));
        assert_eq!(dscp("--dscp 10"), (10, 10));
        assert_eq!(dscp("--dscp 10 --dscp-control 48"), (10, 48));
    }

    #[test]
    fn levels_have_code_points_of_their_own_unless_data_has_one() {
        let levels = |line: &str| {
            let common = get(&format!("get x --from a {line}")).unwrap().by.common;
            (Class::LEVELS.map(|level| common.dscp.of(level)), common.dscp.trimmed())
        };
        assert_eq!(levels(""), ([27, 19, 11, 0, 1], 51));
        assert_eq!(levels("--dscp 10"), ([10, 10, 10, 10, 1], 51));
        assert_eq!(levels("--dscp 10 --dscp-levels 3,2,5"), ([3, 2, 5, 10, 1], 51));
        assert_eq!(levels("--dscp-trimmed 7"), ([27, 19, 11, 0, 1], 7));
    }

    #[test]
    fn data_cannot_look_trimmed() {
        for line in ["--dscp 51", "--dscp-trimmed 0", "--dscp-levels 1,2,51", "--dscp-trimmed 27"] {
            let error = get(&format!("get x --from a {line}")).unwrap_err().to_string();
            assert!(error.contains("trimmed"), "{line}: {error}");
        }
    }

    #[test]
    fn a_dash_is_standard_output() {
        assert_eq!(get("get x --from a -o -").unwrap().output, Output::Stdout);
        assert_eq!(get("get x --from a").unwrap().output, Output::Default);
        for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
            assert_eq!(get(&format!("get x --from a -o {name}")).unwrap().output, Output::Stdout);
        }
        assert_eq!(get("get x --from a -o ./-").unwrap().output, Output::File("./-".into()));
    }

    #[test]
    fn several_objects_go_into_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().display();
        for output in
            ["".to_owned(), "-o new/".to_owned(), format!("-o {there}"), "--keep --controller c".to_owned()]
        {
            assert!(get(&format!("get x y {output}")).is_ok(), "{output}");
        }
        for output in ["-o new", "-o -", "--hash 00", "--range 0-1", "--wait-for-start"] {
            let output = output.replace("00", &"0".repeat(64));
            let error = get(&format!("get x y {output}")).unwrap_err().to_string();
            assert!(error.contains("several"), "{output}: {error}");
        }
    }

    #[test]
    fn who_names_nobody_means_this_machine() {
        assert_eq!(at(get("get x").unwrap()), Where::Here);
        assert!(get("get x --keep").unwrap_err().to_string().contains("--controller"));
    }

    #[test]
    fn one_name_is_for_one_file() {
        let serve = |line| match settings(line) {
            (settings, Command::Serve(args)) => settings.serve(&args),
            _ => panic!("not a serve"),
        };
        assert!(serve("serve a b --name n").is_err());
        let options = serve("serve a --name n --listen 127.0.0.1").unwrap();
        assert_eq!(options.listen, Some("127.0.0.1:7001".parse().unwrap()));
        assert_eq!(options.controller, None);
    }
}
