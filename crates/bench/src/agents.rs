//! Set-up and clean-up around a measurement with agents: agents get to know each other, outputs are registered and
//! found, and connections are counted.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use headwater_agent::client::{Client, ClientError, Event, Fetch};
use headwater_agent::client_frames::{Index, Range};
use headwater_api::AppError;
use headwater_units::Bytes;
use serde_json::Value;

/// Between two looks at whether an output can be had.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// An agent that has said where it is.
#[derive(Clone, Debug)]
pub(crate) struct Agent {
    /// Name of its host for others.
    pub(crate) name: String,
    /// Where programs reach it.
    pub(crate) socket: PathBuf,
    address: String,
    fingerprint: String,
}

impl Agent {
    /// From the line that it says when it is ready; `None` if that is another line.
    pub(crate) fn of(name: &str, ready: &Value) -> Option<Agent> {
        let text = |key: &str| ready.get(key).and_then(Value::as_str).map(str::to_owned);
        let (address, fingerprint, socket) = (text("address")?, text("fingerprint")?, text("socket")?);
        Some(Agent { name: name.to_owned(), socket: socket.into(), address, fingerprint })
    }
}

/// Writes the list by which agents know each other. They read it again when they are told to hang up.
pub(crate) fn write_list<'a>(
    file: &Path,
    agents: impl IntoIterator<Item = &'a Agent>,
) -> Result<(), AppError> {
    let line = |agent: &Agent| {
        let Agent { name, address, fingerprint, .. } = agent;
        format!("[{name}]\naddress = \"{address}\"\nfingerprint = \"{fingerprint}\"\n")
    };
    let list: String = agents.into_iter().map(line).collect();
    std::fs::write(file, list).map_err(|error| AppError::io("cannot write a list of agents", error))
}

/// An application's way to agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Application {
    pub(crate) name: &'static str,
    pub(crate) token: &'static [u8],
    /// Name of its outputs.
    pub(crate) output: &'static str,
    /// It waits no longer than this for what an agent says next.
    pub(crate) patience: Duration,
    /// How long agents may take to know each other.
    pub(crate) introduced_within: Duration,
}

impl Application {
    /// A program of it at this agent.
    pub(crate) fn connect(&self, socket: &Path) -> Result<Client, AppError> {
        let client = Client::connect(socket, self.name, self.token).map_err(failed)?;
        client.patience(Some(self.patience)).map_err(failed)?;
        Ok(client)
    }

    /// Registers a file whose partitions have these lengths. The agent has it as long as the client is there.
    pub(crate) fn register(
        &self,
        socket: &Path,
        file: &Path,
        lengths: impl IntoIterator<Item = u64>,
    ) -> Result<Client, AppError> {
        let mut held = self.connect(socket)?;
        let mut offset = 0;
        let ranges = lengths.into_iter().map(|length| {
            offset += length;
            Range { offset: Bytes::new(offset - length), length: Bytes::new(length), info: 0 }
        });
        let path =
            file.to_str().ok_or_else(|| AppError::Failed(format!("{} is no plain name", file.display())))?;
        held.register(self.output, path, Index::Ranges(ranges.collect())).map_err(failed)?;
        Ok(held)
    }

    /// One partition of a host's output.
    pub(crate) fn fetch<'a>(&self, flow: u64, coflow: u64, host: &'a str, partition: u32) -> Fetch<'a> {
        Fetch { flow, coflow, host, output: self.output, first: partition, count: 1, credit: 0 }
    }

    /// Waits until this host's output can be had: agents hear of each other a moment after they were told to read their list.
    pub(crate) fn find(&self, client: &mut Client, host: &str) -> Result<(), AppError> {
        let began = now();
        // Numbers that no measured flow has.
        for flow in (0..u64::MAX).rev() {
            client.fetch(&self.fetch(flow, u64::MAX, host, 0)).map_err(failed)?;
            match client.next().map_err(failed)? {
                Event::Opened { .. } => return client.cancel(flow).map_err(failed),
                Event::Broken { refusal, .. } if began.elapsed() > self.introduced_within => {
                    return Err(failed(refusal.into()));
                }
                _ => wait(LOOK_INTERVAL),
            }
        }
        unreachable!("time has passed before numbers run out")
    }
}

/// Connections of an agent that are up.
pub(crate) fn connections(socket: &Path) -> Result<u64, AppError> {
    let status: Value = serde_json::from_str(&Client::status(socket).map_err(failed)?)
        .map_err(|error| AppError::Failed(error.to_string()))?;
    let lanes = status.get("lanes").and_then(Value::as_array);
    let is_up = |lane: &&Value| lane.get("up").and_then(Value::as_bool) == Some(true);
    Ok(lanes.map_or(0, |lanes| lanes.iter().filter(is_up).count()) as u64)
}

pub(crate) fn failed(error: ClientError) -> AppError {
    AppError::Failed(format!("an agent: {error}"))
}

#[allow(clippy::disallowed_methods, reason = "programs run in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "programs run in real time")]
pub(crate) fn wait(span: Duration) {
    std::thread::sleep(span);
}
