//! Flows through the agent of this host: a program of its own for each coflow, as a job's would be.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use headwater_agent::client::{Client, Event, Fetch};
use headwater_api::AppError;

use super::{Ends, Plan, PlannedCoflow, Via};
use crate::agents::{Application, connections, failed, now, wait};

const SHUFFLE: Application = Application {
    name: "shuffle",
    token: b"the token of all programs of a shuffle",
    output: "outputs",
    patience: Duration::from_secs(120),
    introduced_within: Duration::from_secs(20),
};

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
    let held = SHUFFLE.register(socket, file, partitions.iter().copied())?;
    let mut client = SHUFFLE.connect(socket)?;
    for host in others {
        SHUFFLE.find(&mut client, host)?;
    }
    Ok(Programs { socket: socket.clone(), _held: held })
}

impl Programs {
    /// Fetches a coflow's flows, all at its time.
    pub(super) fn begin(&mut self, coflow: PlannedCoflow, after: Duration, ends: Ends) {
        let (socket, from) = (self.socket.clone(), now());
        std::thread::spawn(move || {
            let client = SHUFFLE.connect(&socket);
            wait(after.saturating_sub(from.elapsed()));
            let fetched = client.and_then(|client| fetch(client, &coflow));
            // The listener is gone only if another coflow has failed.
            let _ = ends.send(fetched.map(|()| coflow.coflow));
        });
    }

    /// The agent's connections that are up.
    pub(super) fn connections(&self) -> Result<u64, AppError> {
        connections(&self.socket)
    }
}

fn fetch(mut client: Client, coflow: &PlannedCoflow) -> Result<(), AppError> {
    for (number, flow) in (0..).zip(&coflow.flows) {
        let fetch = SHUFFLE.fetch(number, coflow.coflow.into(), &flow.from, flow.partition);
        client.fetch(&Fetch { credit: flow.bytes, ..fetch }).map_err(failed)?;
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
