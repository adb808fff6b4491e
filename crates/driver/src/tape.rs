//! Recording a machine and playing the record back (the same inputs at the same times must give the same outputs).

use std::fmt::Debug;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_units::Time;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAGIC: &[u8] = b"headwater tape 6\n";
/// No step is longer: a control message is at most 64 KiB.
const LONGEST_STEP: usize = 1 << 20;

/// Which machine, as it was made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Machine {
    Receivers(HostReceiverConfig),
    Source(Box<SourceConfig>, [u8; 32]),
}

#[derive(Serialize, Deserialize)]
enum Step<C, E> {
    Handle(Time, Input<C>),
    Poll(Time, Output<E>),
}

/// A file that a machine will be recorded in, created and empty.
#[derive(Clone, Debug)]
pub struct TapeFile(Arc<File>);

impl TapeFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// The system's.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        File::create(path).map(|file| TapeFile(Arc::new(file)))
    }
}

/// A machine that may be recorded.
pub(crate) struct Taped<M> {
    pub(crate) machine: M,
    tape: Option<BufWriter<Arc<File>>>,
}

impl<M> Taped<M> {
    /// Records to `file`, if given.
    pub(crate) fn new(
        machine: M,
        made: impl FnOnce() -> Machine,
        file: Option<TapeFile>,
    ) -> std::io::Result<Self> {
        let tape = match file {
            None => None,
            Some(TapeFile(file)) => {
                let mut tape = BufWriter::new(file);
                tape.write_all(MAGIC)?;
                write(&mut tape, &made())?;
                Some(tape)
            }
        };
        Ok(Taped { machine, tape })
    }

    /// Has everything in the file that was recorded so far.
    pub(crate) fn flush(&mut self) {
        if let Some(tape) = &mut self.tape
            && let Err(error) = tape.flush()
        {
            tracing::warn!(%error, "recording stops");
            self.tape = None;
        }
    }

    fn note<C: Serialize, E: Serialize>(&mut self, step: impl FnOnce() -> Step<C, E>) {
        if let Some(tape) = &mut self.tape
            && let Err(error) = write(tape, &step())
        {
            tracing::warn!(%error, "recording stops");
            self.tape = None;
        }
    }
}

impl<M> Endpoint for Taped<M>
where
    M: Endpoint<Command: Clone + Serialize, Event: Clone + Serialize>,
{
    type Command = M::Command;
    type Event = M::Event;

    fn handle(&mut self, now: Time, input: Input<M::Command>) {
        if self.tape.is_some() {
            self.note(|| Step::<_, M::Event>::Handle(now, input.clone()));
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self, now: Time) -> Output<M::Event> {
        if self.tape.is_none() {
            // Straight to the caller: to look at an output on its way costs as much as to make it.
            return self.machine.poll(now);
        }
        let output = self.machine.poll(now);
        self.note(|| Step::<M::Command, _>::Poll(now, output.clone()));
        output
    }
}

fn write(to: &mut impl Write, what: &impl Serialize) -> std::io::Result<()> {
    let bytes = postcard::to_stdvec(what).map_err(std::io::Error::other)?;
    to.write_all(&(bytes.len() as u32).to_be_bytes())?;
    to.write_all(&bytes)
}

/// Why a record does not play.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("cannot read the record: {0}")]
    Io(#[from] std::io::Error),
    /// It is no record, or one of another version.
    #[error("not a record of this version: {0}")]
    Format(String),
    /// The machine did something else than it did then.
    #[error("step {step} differs: recorded {recorded}, now {now}")]
    Differs {
        /// Number of the step, from zero.
        step: u64,
        /// Output in the record.
        recorded: String,
        /// Output of the replay.
        now: String,
    },
}

/// Totals of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Replayed {
    /// Inputs handed in.
    pub inputs: u64,
    /// Outputs compared; all were identical.
    pub outputs: u64,
}

/// Feeds a record to a fresh machine and compares every output.
///
/// # Errors
/// [`ReplayError`]; a truncated last step is not an error, since a killed process leaves one.
pub fn replay(path: &Path) -> Result<Replayed, ReplayError> {
    let mut tape = BufReader::new(File::open(path)?);
    let mut magic = [0; MAGIC.len()];
    tape.read_exact(&mut magic).map_err(|_| ReplayError::Format("too short".into()))?;
    if magic != MAGIC {
        return Err(ReplayError::Format("wrong first line".into()));
    }
    match read(&mut tape)? {
        Some(Machine::Receivers(config)) => play(Receivers::new(config), &mut tape),
        Some(Machine::Source(config, seed)) => play(Source::new(*config, seed), &mut tape),
        None => Err(ReplayError::Format("no machine".into())),
    }
}

fn play<M>(mut machine: M, tape: &mut impl Read) -> Result<Replayed, ReplayError>
where
    M: Endpoint<Command: DeserializeOwned, Event: DeserializeOwned + PartialEq + Debug>,
{
    let mut played = Replayed::default();
    while let Some(step) = read::<Step<M::Command, M::Event>>(tape)? {
        match step {
            Step::Handle(now, input) => {
                machine.handle(now, input);
                played.inputs += 1;
            }
            Step::Poll(now, recorded) => {
                let output = machine.poll(now);
                if output != recorded {
                    return Err(ReplayError::Differs {
                        step: played.inputs + played.outputs,
                        recorded: format!("{recorded:?}"),
                        now: format!("{output:?}"),
                    });
                }
                played.outputs += 1;
            }
        }
    }
    Ok(played)
}

fn read<T: for<'a> Deserialize<'a>>(from: &mut impl Read) -> Result<Option<T>, ReplayError> {
    let mut len = [0; 4];
    if from.read_exact(&mut len).is_err() {
        return Ok(None);
    }
    let len = u32::from_be_bytes(len) as usize;
    if len > LONGEST_STEP {
        return Err(ReplayError::Format(format!("a step of {len} bytes")));
    }
    let mut bytes = vec![0; len];
    if from.read_exact(&mut bytes).is_err() {
        return Ok(None);
    }
    postcard::from_bytes(&bytes).map(Some).map_err(|e| ReplayError::Format(e.to_string()))
}
