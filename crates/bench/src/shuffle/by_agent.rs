//! Flows through the agent of this host: a program of its own for each coflow, as a job's would be.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use headwater_agent::client::{Client, ClientError, Event, Fetch};
use headwater_agent::client_frames::{Index, Range};
use headwater_api::AppError;
use headwater_units::Bytes;
use serde_json::Value;

use super::{Ends, Plan, PlannedCoflow, Via};

const APPLICATION: &str = "shuffle";
const TOKEN: &[u8] = b"the token of all programs of a shuffle";
/// What a host holds for others.
const OUTPUT: &str = "outputs";
/// How long agents may take to know each other and their outputs.
const INTRODUCED_WITHIN: Duration = Duration::from_secs(20);
/// A program waits no longer than this for the next bytes.
const PATIENCE: Duration = Duration::from_secs(120);

/// The programs of a host.
pub(super) struct Programs {
    socket: PathBuf,
    /// Holds the outputs.
    _held: Client,
}

/// Registers this host's outputs, and waits until the outputs of the others can be had.
pub(super) fn prepare(plan: &Plan) -> Result<Programs, AppError> {
    let Via::Agent { socket, file, partitions, others } = &plan.via else {
        return Err(AppError::Failed("this plan is not for an agent".to_owned()));
    };
    let total: u64 = partitions.iter().sum();
    let failed_file = |source| AppError::io(format!("cannot make {}", file.display()), source);
    File::create(file).and_then(|made| made.set_len(total)).map_err(failed_file)?;
    let mut held = Client::connect(socket, APPLICATION, TOKEN).map_err(failed)?;
    let mut offset = 0;
    let ranges = partitions.iter().map(|length| {
        offset += length;
        Range { offset: Bytes::new(offset - length), length: Bytes::new(*length), info: 0 }
    });
    let path = file.to_str().ok_or_else(|| AppError::Failed("the folder has no plain name".to_owned()))?;
    held.register(OUTPUT, path, Index::Ranges(ranges.collect())).map_err(failed)?;
    let mut client = Client::connect(socket, APPLICATION, TOKEN).map_err(failed)?;
    client.patience(Some(PATIENCE)).map_err(failed)?;
    let began = now();
    let mut flow = 0;
    for host in others {
        loop {
            flow += 1;
            client.fetch(&wanted(flow, u64::MAX, host, 0, 0)).map_err(failed)?;
            match client.next().map_err(failed)? {
                Event::Opened { .. } => break client.cancel(flow).map_err(failed)?,
                Event::Broken { refusal, .. } if began.elapsed() > INTRODUCED_WITHIN => {
                    return Err(failed(refusal.into()));
                }
                _ => wait(Duration::from_millis(20)),
            }
        }
    }
    Ok(Programs { socket: socket.clone(), _held: held })
}

impl Programs {
    /// Fetches a coflow's flows, all at its time.
    pub(super) fn begin(&mut self, coflow: PlannedCoflow, after: Duration, ends: Ends) {
        let (socket, from) = (self.socket.clone(), now());
        std::thread::spawn(move || {
            let client = Client::connect(&socket, APPLICATION, TOKEN).map_err(failed);
            wait(after.saturating_sub(from.elapsed()));
            let fetched = client.and_then(|client| fetch(client, &coflow));
            // Whoever waits for it is gone only if another coflow has failed.
            let _ = ends.send(fetched.map(|()| coflow.coflow));
        });
    }

    /// The agent's connections that are up.
    pub(super) fn connections(&self) -> Result<u64, AppError> {
        let status: Value = serde_json::from_str(&Client::status(&self.socket).map_err(failed)?)
            .map_err(|error| AppError::Failed(error.to_string()))?;
        let lanes = status.get("lanes").and_then(Value::as_array);
        let is_up = |lane: &&Value| lane.get("up").and_then(Value::as_bool) == Some(true);
        Ok(lanes.map_or(0, |lanes| lanes.iter().filter(is_up).count()) as u64)
    }
}

fn wanted(flow: u64, coflow: u64, host: &str, partition: u32, credit: u64) -> Fetch<'_> {
    Fetch { flow, coflow, host, output: OUTPUT, first: partition, count: 1, credit }
}

fn fetch(mut client: Client, coflow: &PlannedCoflow) -> Result<(), AppError> {
    client.patience(Some(PATIENCE)).map_err(failed)?;
    for (number, flow) in (0..).zip(&coflow.flows) {
        let fetch = wanted(number, coflow.coflow.into(), &flow.from, flow.partition, flow.bytes);
        client.fetch(&fetch).map_err(failed)?;
    }
    let (mut left, mut got) = (coflow.flows.len(), 0);
    while left > 0 {
        match client.next().map_err(failed)? {
            Event::Data { bytes, .. } => got += bytes.len() as u64,
            Event::End { .. } => left -= 1,
            Event::Broken { refusal, .. } => return Err(failed(refusal.into())),
            Event::Opened { .. } => {}
        }
    }
    let wanted: u64 = coflow.flows.iter().map(|flow| flow.bytes).sum();
    match got == wanted {
        true => Ok(()),
        false => Err(AppError::Failed(format!("{got} bytes came of {wanted}"))),
    }
}

fn failed(error: ClientError) -> AppError {
    AppError::Failed(format!("an agent of the shuffle: {error}"))
}

#[allow(clippy::disallowed_methods, reason = "programs run in real time")]
fn now() -> Instant {
    Instant::now()
}

#[allow(clippy::disallowed_methods, reason = "programs run in real time")]
fn wait(span: Duration) {
    std::thread::sleep(span);
}
