//! A scenario of which only the network matters: users who run programs of their own on it need no workload.

use thiserror::Error;
use toml::{Table, Value};

use super::{Scenario, ScenarioError};

/// Parts that a network has no use for, and a scenario cannot be without.
const WITHOUT_WORKLOAD: &str = r#"
    scheme = "dctcp"
    workload = { kind = "long-flows", flows = [] }
"#;

/// A text from which no network can be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum NetworkTextError {
    /// It cannot be read.
    #[error(transparent)]
    Text(#[from] toml::de::Error),
    /// It is no network.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl Scenario {
    /// Reads a scenario for its network: `fabric`, and `port`, `nic`, `packet`, `routing` and `faults` where they are not as
    /// usual. What a scenario has besides may be there and is not used; a file with a `[scenario]`, as experiments are, is
    /// read from there, without its axes and schemes.
    ///
    /// # Errors
    /// [`NetworkTextError`], with the line or the field.
    pub fn of_network(text: &str) -> Result<Scenario, NetworkTextError> {
        let mut table: Table = toml::from_str(text)?;
        if let Some(Value::Table(scenario)) = table.remove("scenario") {
            table = scenario;
        }
        for (name, value) in toml::from_str::<Table>(WITHOUT_WORKLOAD)? {
            table.entry(name).or_insert(value);
        }
        let scenario: Scenario = table.try_into()?;
        scenario.check_network()?;
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FABRIC: &str =
        r#"fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "10 ms" }"#;

    #[test]
    fn a_fabric_alone_is_a_network() {
        let scenario = Scenario::of_network(FABRIC).unwrap();
        assert_eq!(scenario.topology().unwrap().hosts().len(), 2);
    }

    #[test]
    fn a_whole_scenario_and_an_experiment_are_networks_too() {
        let alone = Scenario::of_network(FABRIC).unwrap();
        let whole =
            format!("scheme = 'reno'\nuntil = '1 s'\n{FABRIC}\n[workload]\nkind = 'long-flows'\nflows = []");
        assert_eq!(Scenario::of_network(&whole).unwrap().fabric, alone.fabric);
        let experiment = format!("title = 'x'\n[scenario]\n{FABRIC}");
        assert_eq!(Scenario::of_network(&experiment).unwrap(), alone);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| Scenario::of_network(text).unwrap_err().to_string();
        assert!(wrong("port = {}").contains("fabric"));
        assert!(wrong(&format!("{FABRIC}\nports = {{}}")).contains("ports"));
        let fault = "faults = [{ on = 'link left-middle', what = { kind = 'link-down' } }]";
        assert!(
            wrong(&format!("{FABRIC}\n{fault}")).contains("left-right")
                || wrong(&format!("{FABRIC}\n{fault}")).contains("h0-left")
        );
    }
}
